"""Shares of containers against work that the loads count themselves, on a model of the driver's looks."""

import statistics

import pytest

from gpuscale.agent.attribution.processes.shares import split_utilisation
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.testing.nvml import FakeGpu
from gpuscale.testing.nvml.time_slicing import ProcessLoad, TimeSlicedGpu

from .conftest import START_MS

S = 1_000_000
WINDOW_S = 10


def owners(pids):
    refs = {pid: ContainerRef("ml", f"pod-{pid}", "main") for pid in pids}
    return lambda gpu: Attribution({gpu.uuid: tuple(refs.values())}, refs)


def run(bench, loads, seconds, seed, *, switch_us=0, every_s=1.0):
    """Return (seconds, PID, told, standard error, true over the last 10 s) of each read."""
    start_us = START_MS * 1000
    shared = TimeSlicedGpu(loads, seconds, start_us, seed=seed, switch_us=switch_us)
    gpu = FakeGpu(busy_percent=shared.busy_percent)
    b = bench(gpu, fields={"DCGM_FI_DEV_GPU_UTIL"})
    attribution = owners([each.pid for each in loads])
    joins = {each.pid: each.joins_s for each in loads}
    told = []
    while b.now_ms * 1000 < start_us + (seconds - every_s) * S:
        gpu.processes = shared.processes(b.now_ms * 1000 + round(every_s * S))
        reading = b.one(every_s)
        now_us = b.now_ms * 1000
        at_s = (now_us - start_us) / S
        there = {each.pid for each in gpu.processes}
        for share in split_utilisation(reading, attribution(reading.gpu)):
            pid = int(share.container.pod.removeprefix("pod-"))
            if pid in there:
                since_s = max(joins[pid], at_s - WINDOW_S)
                true = shared.true_percent(pid, round(start_us + since_s * S), now_us)
                told.append((at_s, pid, share.sm_util, share.standard_error, true))
    return told


MIXES = [
    pytest.param((40, 40), id="50:50"),
    pytest.param((56, 24), id="70:30"),
    pytest.param((75, 4, 4), id="90:5:5"),
    pytest.param((32, 24, 16, 8), id="40:30:20:10"),
]


@pytest.mark.parametrize("mix", MIXES)
def test_means_are_true_and_errors_are_as_large_as_told(bench, mix) -> None:
    told = []
    for seed in range(6):
        loads = [ProcessLoad(40 + n, percent) for n, percent in enumerate(mix)]
        told += [each for each in run(bench, loads, 130, seed) if each[0] > WINDOW_S]
    for pid in {each[1] for each in told}:
        errors = [value - true for _, whose, value, _, true in told if whose == pid]
        told_errors = [error for _, whose, _, error, _ in told if whose == pid]
        assert abs(statistics.mean(errors)) < 2
        # The error that is told is the one that is made, to a third.
        assert 2 / 3 < statistics.mean(told_errors) / statistics.pstdev(errors) < 3 / 2


@pytest.mark.parametrize("mix", MIXES)
def test_time_slicing_keeps_the_proportions(bench, mix) -> None:
    # Switches between contexts make every process look busier than its work, by a tenth in all.
    sums = dict.fromkeys(range(40, 40 + len(mix)), 0.0)
    trues = dict(sums)
    for seed in range(6):
        loads = [ProcessLoad(40 + n, percent) for n, percent in enumerate(mix)]
        for at_s, pid, value, _, true in run(bench, loads, 130, seed, switch_us=250):
            if at_s > WINDOW_S:
                sums[pid] += value
                trues[pid] += true
    for pid in sums:
        share = 100 * sums[pid] / sum(sums.values())
        assert abs(share - 100 * trues[pid] / sum(trues.values())) < 2
    assert 1.01 < sum(sums.values()) / sum(trues.values()) < 1.2


def test_one_that_joins_is_told_within_three_seconds_and_takes_nothing_from_the_other(
    bench,
) -> None:
    joined, other = [], []
    for seed in range(24):
        loads = [ProcessLoad(41, 56), ProcessLoad(42, 24, joins_s=15.3)]
        for at_s, pid, value, _, true in run(bench, loads, 21, seed):
            if 18.3 <= at_s < 19.3:
                (joined if pid == 42 else other).append(value - true)
    # 15 looks: a standard error of 10 points for one reading, of 2 for the mean of 24.
    assert abs(statistics.mean(joined)) < 5
    assert abs(statistics.mean(other)) < 4


def test_one_that_leaves_is_gone_at_once_and_its_time_goes_to_nobody(bench) -> None:
    loads = [ProcessLoad(41, 50), ProcessLoad(42, 30, leaves_s=15.0)]
    told = run(bench, loads, 24, seed=3)
    after = [each for each in told if each[0] >= 15]
    assert {each[1] for each in after} == {41}
    assert all(abs(value - true) < 25 for at_s, _, value, _, true in after if at_s > 18)


def test_the_only_process_of_a_gpu_is_told_the_gpus_own_utilisation(bench) -> None:
    told = run(bench, [ProcessLoad(41, 50)], 20, seed=1)
    assert all(error is None for _, _, _, error, _ in told)
    assert statistics.mean(each[2] for each in told) == pytest.approx(50, abs=8)


def test_a_change_of_load_is_asked_for_within_a_second(bench) -> None:
    gpu = FakeGpu(busy_percent=5)
    loads = [ProcessLoad(41, 40), ProcessLoad(42, 40)]
    shared = TimeSlicedGpu(loads, 40, START_MS * 1000, seed=1)
    gpu.processes = shared.processes(START_MS * 1000)
    b = bench(gpu, fields={"DCGM_FI_DEV_GPU_UTIL"})
    for _ in range(12):
        b.one()
    asked = b.nvml.count("nvmlDeviceGetProcessUtilization")
    b.one()
    assert b.nvml.count("nvmlDeviceGetProcessUtilization") - asked <= 1
    gpu.busy_percent = 90
    asked = b.nvml.count("nvmlDeviceGetProcessUtilization")
    b.one()
    b.one()
    assert b.nvml.count("nvmlDeviceGetProcessUtilization") > asked
