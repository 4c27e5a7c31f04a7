"""The estimate of what switches between processes take, against closed forms and a model of turns."""

import statistics

import pytest

from gpuscale.agent.attribution.processes.time_slicing import TURN_COST, switching_part
from gpuscale.testing.nvml.time_slicing import ProcessLoad, TimeSlicedGpu

S = 1_000_000
SECONDS = 60
SWITCH_US = 250
MODEL_COST = SWITCH_US / (SWITCH_US + 2_000)
"""Of the model's own turns, which are 2 ms long in the mean."""


@pytest.mark.parametrize("uses", [(), (0, 0), (70,), (70, 0, 0)])
def test_nothing_is_switched_without_two_that_use_the_gpu(uses) -> None:
    assert switching_part(uses) == 0


@pytest.mark.parametrize("uses", [(50, 50), (60, 60), (25, 25, 25, 25)])
def test_a_gpu_that_is_always_busy_with_equals_switches_all_the_time(uses) -> None:
    assert switching_part(uses) == pytest.approx(TURN_COST)


def test_two_equals_are_alone_as_long_as_all_bursts_are_of_one() -> None:
    # Busy for 0.8, n bursts with (1 - 0.8) 0.8^n: all of one process with 2 * 0.5^n, which sums up to
    # 2 * 0.2 * 0.4 / (1 - 0.4) = 0.2667 of the time, so a third of 0.8; the rest is contended.
    assert switching_part((40, 40)) == pytest.approx(TURN_COST * 2 / 3)


def test_one_with_little_work_is_there_for_twice_its_work() -> None:
    # 5 of 80: at most 2 * 5 / 80 of the busy time.
    assert switching_part((75, 5)) == pytest.approx(TURN_COST * 0.125)


MIXES = [
    (40, 40),
    (56, 24),
    (75, 4, 4),
    (32, 24, 16, 8),
    (20, 20),
    (60, 10),
    (25, 25, 25),
    (80, 8),
    (15, 15, 15, 15, 15),
]


@pytest.mark.parametrize("mix", MIXES, ids=str)
def test_the_estimate_is_what_a_gpu_spends_that_takes_turns(mix) -> None:
    loads = [ProcessLoad(n, percent) for n, percent in enumerate(mix)]
    spent, estimated = [], []
    for seed in range(3):
        shared = TimeSlicedGpu(loads, SECONDS, 0, seed=seed, switch_us=SWITCH_US)
        looks = range(200_000, SECONDS * S, 200_000)
        busy = statistics.mean(shared.busy_percent(at_us) for at_us in looks)
        work = [shared.true_percent(each.pid, 0, SECONDS * S) for each in loads]
        spent.append(100 * (1 - sum(work) / busy))
        part = switching_part([busy * each / sum(work) for each in work])
        estimated.append(100 * part * MODEL_COST / TURN_COST)
    assert statistics.mean(estimated) == pytest.approx(statistics.mean(spent), abs=1.5)
