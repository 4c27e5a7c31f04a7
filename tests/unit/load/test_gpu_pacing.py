"""How busy time is spread, and what the correction makes of what a driver counts."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.load.gpu.holding import LOOK_S
from gpuscale.load.gpu.pacing import LAG_S, PERIOD_S, Bursts, Holder, Turn

WINDOWS_S = (1 / 6, 0.2, 1.0)
"""Of NVML: the least and the most that NVIDIA documents, and what was measured on an H200."""


def busy_in(intervals, start, end):
    return sum(max(0.0, min(end, stop) - max(start, begin)) for begin, stop in intervals)


@pytest.mark.parametrize("window_s", WINDOWS_S)
@pytest.mark.parametrize("percent", [1, 30, 60, 90, 100])
def test_every_window_sees_the_same_share_wherever_it_begins(window_s, percent) -> None:
    length_s = Turn(0, 1).burst_ns(percent) / 1e9
    bursts = [(n * PERIOD_S, n * PERIOD_S + length_s) for n in range(90)]
    for offset in range(40):
        start = offset * 0.0137
        share = busy_in(bursts, start, start + window_s) / window_s
        assert 100 * share == pytest.approx(percent, abs=0.01)


@given(percent=st.floats(1, 100), processes=st.integers(1, 32))
def test_processes_of_one_gpu_take_turns_and_add_up(percent, processes) -> None:
    turns = [Turn(index, processes) for index in range(processes)]
    spans = [(turn.phase_s, turn.phase_s + turn.burst_ns(percent) / 1e9) for turn in turns]
    assert all(end <= begin + 1e-9 for (_, end), (begin, _) in pairwise(spans))
    assert spans[-1][1] <= PERIOD_S + 1e-9
    total = sum(end - begin for begin, end in spans) / PERIOD_S * 100
    # A burst of less than 20 us is not launched at all.
    expected = percent if percent / 100 * PERIOD_S / processes >= 20e-6 else 0
    assert total == pytest.approx(expected, abs=0.01)


def test_a_burst_that_comes_late_is_skipped_and_never_made_up_for() -> None:
    bursts = Bursts(100.0, Turn(0, 1))
    assert bursts.take(bursts.due_s(), 0, 50) == round(PERIOD_S * 5e8)
    # Three and a half periods late: three are lost, the fourth is launched.
    assert bursts.take(bursts.due_s() + 3.5 * PERIOD_S, 0, 50) > 0
    assert (bursts.launched, bursts.skipped) == (2, 3)
    assert bursts.due_s() == pytest.approx(100 + 5 * PERIOD_S)
    # Nor is one launched while two wait in the GPU's queue.
    assert bursts.take(bursts.due_s(), 2, 50) == 0
    assert (bursts.launched, bursts.skipped) == (2, 4)
    assert bursts.take(bursts.due_s(), 0, 0) == 0
    assert bursts.skipped == 4


class SimulatedGpu:
    """Counts as an H200 does: a sample every 200 ms of the 200 ms before, in whole percent.

    Args:
        more_ms: what the driver counts beside each burst, before and after the kernel.
        others: percent of the time that another process takes, at random moments of no relation to ours.
    """

    def __init__(self, more_ms=0.0, others=0.0) -> None:
        self.more_ms, self.others = more_ms, others
        self.own = []

    def launch(self, percent) -> None:
        """Be told a share for the next half second."""
        self.own.append(percent)

    def counted(self, looks):
        """Return the mean of the samples in the last half second, which are of up to 200 ms before."""
        end_s = looks * LOOK_S
        first = int((end_s - LOOK_S) / 0.2) + 1
        stamps = [n * 0.2 for n in range(first, int(end_s / 0.2 + 1e-9) + 1)]
        samples = [round(self.share(stamp - 0.2, stamp)) for stamp in stamps]
        return sum(samples) / len(samples)

    def share(self, start_s, end_s):
        """Return the busy percent of a time: ours and the others' overlap by chance."""
        steps = 20
        found = 0.0
        for step in range(steps):
            at_s = start_s + (end_s - start_s) * (step + 0.5) / steps
            index = int(at_s / LOOK_S)
            own = self.own[index] if 0 <= index < len(self.own) else 0.0
            own = min(100.0, own + self.more_ms / (PERIOD_S * 10)) if own else 0.0
            found += own + self.others - own * self.others / 100
        return found / steps


def held(gpu, wanted_at, looks):
    """Run the loop of a load, and return what is counted in each half second."""
    holder = Holder()
    counted = []
    for look in range(looks):
        gpu.launch(holder.own_percent(wanted_at(look * LOOK_S)))
        counted.append(gpu.counted(look + 1))
        if look >= 2:
            holder.look(wanted_at((look + 0.5) * LOOK_S - LAG_S), counted[-1])
    return counted


@pytest.mark.parametrize("wanted", [30, 60, 90])
@pytest.mark.parametrize(("more_ms", "others"), [(0, 0), (0.5, 0), (3, 0), (0.1, 25)])
def test_what_the_driver_counts_becomes_what_is_wanted(wanted, more_ms, others) -> None:
    counted = held(SimulatedGpu(more_ms, others), lambda _: wanted, 60)
    settled = counted[10:]  # after 5 s
    assert sum(settled) / len(settled) == pytest.approx(wanted, abs=1)
    # Without the correction 3 ms beside each burst would be 9 points too many.
    assert all(abs(each - wanted) <= 3 for each in settled)


def test_steps_are_followed_within_a_second() -> None:
    def wanted(at_s):
        return 20 if at_s < 15 else 80

    counted = held(SimulatedGpu(0.5), wanted, 60)
    assert sum(counted[20:29]) / 9 == pytest.approx(20, abs=1)
    assert all(abs(each - 80) <= 5 for each in counted[34:])


def test_a_gpu_that_others_keep_busy_is_not_waited_for() -> None:
    holder = Holder()
    for _ in range(100):
        holder.look(30, 90)
    assert holder.own_percent(30) == 0
    # As soon as they are gone, the load is back: 30 points are learnt again at a quarter of the error.
    for _ in range(12):
        holder.look(30, holder.own_percent(30))
    assert holder.own_percent(30) == pytest.approx(30, abs=1)
    # Nothing wanted is nothing launched, whatever others do, and nothing is learnt from it.
    before = holder.correction
    holder.look(0, 50)
    assert (holder.own_percent(0), holder.correction) == (0, before)
