"""Means over windows, against sums done by hand."""

import pytest

from gpuscale.agent.nvml.values.windows import ProcessSample, ProcessUse, mean_percent, process_uses


@pytest.mark.parametrize(
    ("samples", "since", "mean"),
    [
        pytest.param([], 0, None, id="none"),
        pytest.param([(100, 50)], 100, None, id="the sample at the window's start is not in it"),
        pytest.param([(200, 40), (400, 80)], 0, 60.0, id="equal spans: (40 + 80) / 2"),
        pytest.param([(100, 40), (400, 80)], 0, 70.0, id="(40 * 100 + 80 * 300) / 400"),
        pytest.param([(400, 80), (200, 40)], 0, 60.0, id="any order"),
        pytest.param(
            [(200, 40), (300, 101), (400, 80)], 0, 60.0, id="impossible values passed over"
        ),
        pytest.param([(50, 100), (200, 40)], 100, 40.0, id="older samples do not count"),
        # The buffer begins 15 s after the window does: its first sample stands for 1 s and no more,
        # (90 * 1.0 + 20 * 0.2) / 1.2 = 78.3
        pytest.param(
            [(16_000_000, 90), (16_200_000, 20)],
            1_000_000,
            pytest.approx(94 / 1.2),
            id="a buffer that does not reach back far enough",
        ),
    ],
)
def test_mean_is_weighted_by_time(samples, since: int, mean) -> None:
    assert mean_percent(samples, since) == mean


def sample(pid, stamp, sm):
    return ProcessSample(pid, stamp, ProcessUse(sm, 0, 0, 0))


def test_use_is_the_drivers_mean_whenever_a_process_was_last_seen() -> None:
    # What an H200 said of the last 500 ms, in which it was at 80 % and looked at three times: one process was
    # found twice, 2 * 80 / 3 = 54, the other once, 80 / 3 = 27. Together they are the GPU's 80.
    uses = process_uses([sample(1, 500_000, 54), sample(2, 100_000, 27)], 0)
    assert {pid: use.sm_util for pid, use in uses.items()} == {1: 54, 2: 27}


def test_of_several_samples_of_a_process_the_newest_counts() -> None:
    assert process_uses([sample(1, 1000, 40), sample(1, 250, 20)], 0) == {
        1: ProcessUse(40, 0, 0, 0)
    }


@pytest.mark.parametrize(
    "junk",
    [
        pytest.param(sample(0, 1000, 50), id="no process"),
        pytest.param(sample(1, 1000, 4_000_000), id="more than all"),
        pytest.param(sample(1, 900, 50), id="stale"),
    ],
)
def test_junk_in_the_buffer_is_no_use(junk) -> None:
    assert process_uses([junk], 900) == {}
