# mypy: disable-error-code="assignment"
"""The reader on a real GPU, against loads that are known.

Tolerances stand beside the checks. No test needs root, DCGM or an idle machine but for its GPU.
"""

import itertools
import statistics
import time

import pynvml
import pytest

from gpuscale.agent.nvml import faults, library
from gpuscale.agent.nvml.values import windows
from gpuscale.agent.nvml.values.plan import READABLE
from gpuscale.readings import open_gpus
from gpuscale.signals import DEFAULT_COUNTERS

DEFAULTS = frozenset(row.field for row in DEFAULT_COUNTERS)
UTIL = "DCGM_FI_DEV_GPU_UTIL"
MEM_UTIL = "DCGM_FI_DEV_MEM_COPY_UTIL"
USED = "DCGM_FI_DEV_FB_USED"
POWER = "DCGM_FI_DEV_POWER_USAGE"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
TENSOR = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
DRAM = "DCGM_FI_PROF_DRAM_ACTIVE"
SETTLE = 2
"""Readings after a step that still hold some of the step before: one window, and GPM's lag of 0.2 s."""


def of(field, readings):
    return [reading.values[field] for reading in readings if field in reading.values]


@pytest.fixture
def device(identity):
    """The GPU's handle in the vendor's own module, beside the reader's."""
    pynvml.nvmlInit()
    yield pynvml.nvmlDeviceGetHandleByIndex(identity.index)
    pynvml.nvmlShutdown()


def test_identity_is_the_drivers(identity, device, results) -> None:
    assert identity.uuid == pynvml.nvmlDeviceGetUUID(device)
    assert identity.model == pynvml.nvmlDeviceGetName(device)
    assert len(identity.pci_bus_id.split(":")[0]) == 8
    results["driver"] = pynvml.nvmlSystemGetDriverVersion()


def test_every_default_field_has_a_value_or_a_reason(pace, results) -> None:
    last = pace("idle", DEFAULTS).run(6)[-1]
    assert last.values.keys() | last.absent.keys() == DEFAULTS
    assert set(last.absent.values()) <= faults.REASONS
    assert {UTIL, USED, POWER, ENERGY, "DCGM_FI_DEV_XID_ERRORS"} <= last.values.keys()
    results["default_fields"] = {"values": dict(last.values), "absent": dict(last.absent)}


def test_every_field_that_nvml_may_have_is_told_or_explained(pace, results) -> None:
    last = pace(fields=READABLE).run(2)[-1]
    assert last.values.keys() | last.absent.keys() == READABLE
    assert faults.READER_FAULT not in last.absent.values()
    results["all_fields"] = {
        "values": {field: value for field, value in last.values.items() if field not in DEFAULTS},
        "absent": dict(last.absent),
    }


def test_values_follow_a_stepped_load(pace, load, results) -> None:
    duties = [0.0, 0.5, 1.0, 0.0]
    seconds = 7
    reads = pace("stepped_load", DEFAULTS, graphics_period_ms=0)  # on any number of GPUs
    idle_used = of(USED, reads.run(2))[-1]
    worker = load("--steps", ",".join(f"{seconds}x{duty}" for duty in duties), "--hold-mib", "1024")
    worker.go()
    table = []
    for duty in duties:
        readings = reads.run(seconds)[SETTLE:]
        table.append(
            {"duty": duty}
            | {name: statistics.fmean(of(name, readings)) for name in (UTIL, USED, POWER)}
            | {
                name: statistics.fmean(of(name, readings) or [-1.0])
                for name in (ACTIVE, TENSOR, DRAM)
            }
        )
    results["stepped_load"] = {"product_us": worker.ready["product_us"], "steps": table}
    idle, half, full, after = table
    # The duty is kept by a sleeping process, and its period ends between two samples: 10 points.
    assert idle[UTIL] <= 5
    assert 40 <= half[UTIL] <= 65
    assert full[UTIL] >= 90
    assert after[UTIL] <= 10
    assert idle[USED] - idle_used >= 1024  # what it holds, and its CUDA context
    # An H200 idles near 80 W and has 700 W; a loop of bf16 products took over 450 W at a half.
    assert idle[POWER] + 50 < half[POWER] < full[POWER]
    if half[TENSOR] >= 0:
        assert idle[TENSOR] < 0.02
        assert half[TENSOR] == pytest.approx(full[TENSOR] / 2, rel=0.35)
        assert full[TENSOR] > 0.5
        assert full[DRAM] > idle[DRAM]
        assert half[ACTIVE] * 100 == pytest.approx(half[UTIL], abs=10)


def test_utilisation_of_a_second_is_a_mean_and_no_moment(pace, load, device, results) -> None:
    reads = pace("one_busy_process", DEFAULTS)
    worker = load("--steps", "22x0.5", "--period-ms", "430")
    worker.go()
    moments = []
    reads.run(SETTLE)
    means = of(
        UTIL,
        reads.run(
            16, also=lambda _: moments.append(pynvml.nvmlDeviceGetUtilizationRates(device).gpu)
        ),
    )
    results["half_busy"] = {"means": means, "rates_of_the_driver": moments}
    # A second holds two periods and 140 ms of a third: 2 * 215 ms and 0 to 140 ms more, so 43 to 57. The load
    # itself keeps its duty within 8 points.
    assert sum(35 <= mean <= 60 for mean in means) >= 0.75 * len(means)
    assert statistics.pstdev(means) <= statistics.pstdev(moments)


def test_two_processes_are_told_apart(pace, load, results) -> None:
    """The driver looks every 200 ms and gives all it sees to the process running then, so the periods of the
    loads must not divide 200 ms, nor each other: 370 ms comes back to the same phase of the driver's after
    7.4 s, 290 ms after 5.8 s, and the two of them to each other's after 10.73 s.

    What is told at a time is the mean of 10 s, and so of 50 looks. Four such windows that do not overlap hold
    200 looks, each of which finds the busier with 0.7: a standard error of sqrt(0.7 * 0.3 / 200) = 0.032 for
    the share, of which three are the 10 points that it has to be right within.
    """
    reads = pace("two_processes", DEFAULTS)
    # 70 : 30 of 0.8 of the time, so that each gets its work done.
    busier, idler = (
        load("--steps", f"48x{duty}", "--period-ms", period_ms, "--size", "2048")
        for duty, period_ms in ((0.56, "370"), (0.24, "290"))
    )
    for worker in (busier, idler):
        worker.go()
    reads.run(SETTLE)
    rows = []
    for reading in reads.run(42):
        use = {process.pid: process.sm_util for process in reading.processes}
        rows.append([use.get(busier.pid), use.get(idler.pid), reading.values[UTIL]])
    windows = rows[11::10]
    busy, idle = (sum(row[n] or 0 for row in windows) for n in (0, 1))
    assert busy + idle > 0, rows
    results["two_processes"] = {
        "columns": ["70 % process, every 370 ms", "30 % process, every 290 ms", "GPU_UTIL"],
        "rows": rows,
        "shares_of_10_s": [row[0] / (row[0] + row[1]) for row in windows],
        "share": busy / (busy + idle),
    }
    assert len(windows) == 4
    assert busy / (busy + idle) == pytest.approx(0.7, abs=0.1)
    # The parts add up to the GPU's own utilisation of those 10 s; each is rounded, and the windows differ by
    # up to 5 s of 10.
    for begin in (2, 12, 22, 32):
        whole = statistics.fmean(row[2] for row in rows[begin : begin + 10])
        assert rows[begin + 9][0] + rows[begin + 9][1] == pytest.approx(whole, abs=8)
    held = {process.pid: process.memory_used_mib for process in reads.readings[-1].processes}
    assert all((held[worker.pid] or 0) > 100 for worker in (busier, idler))


def test_processes_are_listed_where_they_are_asked_for(load, device) -> None:
    worker = load("--steps", "6x1")
    worker.go()
    with open_gpus("nvml", processes=True) as gpus:
        pids = {each.pid for reading in gpus.read() for each in reading.processes}
    assert pids == {each.pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(device)}
    with open_gpus("nvml") as gpus:
        assert not any(reading.processes for reading in gpus.read())


def test_energy_is_the_integral_of_power(pace, load, results) -> None:
    reads = pace(fields=frozenset({ENERGY, POWER}), energy_period_ms=0)
    worker = load("--steps", "14x0.5")
    worker.go()
    reads.run(SETTLE)
    readings = reads.run(10, interval_s=0.1)
    energy_j = (readings[-1].values[ENERGY] - readings[0].values[ENERGY]) / 1000
    power_j = (
        sum(
            (before.values[POWER] + now.values[POWER]) / 2 * (now.measured_ms - before.measured_ms)
            for before, now in itertools.pairwise(readings)
        )
        / 1000
    )
    results["energy"] = {"energy_j": energy_j, "power_integral_j": power_j}
    # The power reading is itself a mean over about a second.
    assert energy_j == pytest.approx(power_j, rel=0.15)


def test_slow_calls_are_slow_and_are_made_seldom(pace, results) -> None:
    reads = pace(fields=READABLE, energy_period_ms=5_000, counters_period_ms=5_000)
    reads.run(12)
    table = {
        each.source: {
            "calls": each.calls,
            "errors": each.errors,
            "mean_us": round(each.seconds / each.calls * 1e6, 1),
            "ms_per_read": round(each.seconds / len(reads.readings) * 1e3, 3),
        }
        for each in reads.reader.stats()
    }
    results["calls"] = table
    results["reader_cpu_ms_per_read"] = round(reads.spent_cpu_s / len(reads.readings) * 1e3, 3)
    # At the start and after 5 and 10 s, one early where GPUs are staggered.
    assert 3 <= table["energy"]["calls"] / len(reads.reader.gpus()) <= 4
    assert table["energy"]["mean_us"] > 5 * table["power"]["mean_us"]


COST_RUNS = [
    pytest.param("defaults", 20, {}, id="defaults"),
    pytest.param("graphics_every_5_s", 15, {"graphics_period_ms": 5_000}, id="engine every 5 s"),
    pytest.param("nothing_polled", 15, {"poll_period_ms": 0}, id="samples at every read"),
]


@pytest.mark.parametrize(("name", "seconds", "settings"), COST_RUNS)
def test_cost_of_the_default_fields_is_reported(pace, results, name, seconds, settings) -> None:
    """What reading once a second costs after the start; no budget is checked here but the benchmark's."""
    reads = pace(fields=DEFAULTS, processes=False, **settings)
    reads.run(7)  # until every source has had its second turn
    before, cpu_s, process_s = costs(reads), reads.spent_cpu_s, time.process_time()
    readings = reads.run(seconds)
    after = costs(reads)
    gpus = len(reads.reader.gpus())
    cpu_ms = (reads.spent_cpu_s - cpu_s) * 1e3 / seconds / gpus
    table = {
        source: {
            "calls_per_read": round((calls - before.get(source, (0, 0.0))[0]) / seconds / gpus, 3),
            "ms_per_read": round(
                (spent_s - before.get(source, (0, 0.0))[1]) * 1e3 / seconds / gpus, 4
            ),
        }
        for source, (calls, spent_s) in after.items()
    }
    results.setdefault("cost_per_gpu", {})[name] = {
        "settings": settings,
        "gpus": gpus,
        "reads": seconds,
        "cpu_ms_per_read": round(cpu_ms, 3),
        "percent_of_a_core_at_1_s": round(cpu_ms / 10, 3),
        "percent_of_a_core_with_all_threads": round(
            (time.process_time() - process_s) * 100 / seconds / gpus, 3
        ),
        "sources": table,
    }
    assert all(reading.values.keys() | reading.absent.keys() == DEFAULTS for reading in readings)
    if settings.get("poll_period_ms") != 0:
        # Where utilisation is polled the driver's buffer is left alone.
        assert table["utilization_samples"]["calls_per_read"] == 0


def costs(reads):
    """Return calls and seconds so far by source."""
    return {each.source: (each.calls, each.seconds) for each in reads.reader.stats()}


@pytest.mark.parametrize("duty", [0.25, 0.75])
def test_polls_gpm_and_the_drivers_samples_agree_on_utilisation(
    pace, load, device, results, duty: float
) -> None:
    reads = pace(fields=frozenset({UTIL, MEM_UTIL, ACTIVE}))
    load("--steps", f"18x{duty}", "--period-ms", "430").go()
    reads.run(SETTLE)
    since_us = time.time_ns() // 1000
    readings = reads.run(12)
    found = {"polls": statistics.fmean(of(UTIL, readings))}
    for name, kind in (
        ("samples", pynvml.NVML_GPU_UTILIZATION_SAMPLES),
        ("memory_samples", pynvml.NVML_MEMORY_UTILIZATION_SAMPLES),
    ):
        buffered = library.utilization_samples(pynvml, device, kind, since_us)
        found[name] = windows.mean_percent(buffered, since_us)
    found["memory_polls"] = statistics.fmean(of(MEM_UTIL, readings))
    if ACTIVE in readings[-1].values:
        found["gpm"] = 100 * statistics.fmean(of(ACTIVE, readings))
        # The driver's looks count a short gap between kernels as busy; an H100 has more of them than an H200.
        assert found["gpm"] == pytest.approx(found["samples"], abs=8)
    results.setdefault("utilisation_by_source", {})[f"{duty:g}"] = found
    # All are means of the same 12 s but for the lag of each, up to 0.2 s: 2 % of it, and half a period.
    assert found["polls"] == pytest.approx(found["samples"], abs=5)
    assert found["memory_polls"] == pytest.approx(found["memory_samples"], abs=5)
    calls = {each.source: each.calls for each in reads.reader.stats()}
    assert calls["utilization_rates"] >= 5 * 10  # five a second, of ten seconds at least


def test_one_call_brings_what_the_binding_needs_two_for(device, results) -> None:
    since_us = time.time_ns() // 1000 - 3_000_000
    kind = pynvml.NVML_GPU_UTILIZATION_SAMPLES
    ours = library.utilization_samples(pynvml, device, kind, since_us)
    _, theirs = pynvml.nvmlDeviceGetSamples(device, kind, since_us)
    stamps = [sample.timeStamp for sample in theirs]
    assert [stamp for stamp, _ in ours] == stamps[: len(ours)]
    assert len(ours) in (len(stamps), len(stamps) - 1)

    def median_us(call):
        spent = []
        for _ in range(20):
            started = time.perf_counter()
            call()
            spent.append((time.perf_counter() - started) * 1e6)
        return round(statistics.median(spent), 1)

    results["samples"] = {
        "one_call_us": median_us(
            lambda: library.utilization_samples(pynvml, device, kind, since_us)
        ),
        "binding_us": median_us(lambda: pynvml.nvmlDeviceGetSamples(device, kind, since_us)),
    }
