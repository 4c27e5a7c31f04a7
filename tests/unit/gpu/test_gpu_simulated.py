"""Simulated GPUs against hand-made sums."""

import math

import pytest

from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.simulated import LOST, POWER_NOISE_RATIO, GpuWork, SimulatedReader
from gpuscale.signals.amd.values import DCGM_FIXED, DCGM_SOURCES

T4 = MODELS["Tesla T4"]
H200 = MODELS["NVIDIA H200"]


def work(busy=0.23, copy=0.1, memory=4000, pid=101):
    return GpuWork(pid, "python", busy, copy, memory)


def reader(*works, model=T4, count=1, seed=1, node="n1", fields=None):
    return SimulatedReader(node, model, count, seed, lambda *_: works, fields=fields)


def values(*works, model=T4, now_ms=1000):
    return reader(*works, model=model).read(now_ms)[0].values


def test_utilisation_is_the_work_to_the_percent() -> None:
    assert values(work(busy=0.23))["DCGM_FI_DEV_GPU_UTIL"] == 23


@pytest.mark.parametrize(("busy", "percent"), [(0.004, 0), (0.006, 1), (0.29, 29), (0.998, 100)])
def test_utilisation_is_rounded_to_the_nearest_percent(busy: float, percent: int) -> None:
    assert values(work(busy=busy))["DCGM_FI_DEV_GPU_UTIL"] == percent


def test_idle_gpu_reads_zero_and_runs_at_idle_clocks() -> None:
    read = values()
    assert read["DCGM_FI_DEV_GPU_UTIL"] == 0
    assert read["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] == 0.0
    assert read["DCGM_FI_DEV_SM_CLOCK"] == 300
    assert read["DCGM_FI_DEV_MEM_CLOCK"] == 405
    assert read["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"] == 0x1


def test_busy_gpu_runs_at_boost_clocks() -> None:
    read = values(work())
    assert (read["DCGM_FI_DEV_SM_CLOCK"], read["DCGM_FI_DEV_MEM_CLOCK"]) == (1590, 5001)


def test_processes_add_up_and_saturate() -> None:
    # 0.7 + 0.6 = 1.3 of the time: all of it, split 7 to 6. 100 * 7/13 = 53.8, the rest is 46.
    reading = reader(work(busy=0.7, pid=1), work(busy=0.6, pid=2)).read(1000)[0]
    assert reading.values["DCGM_FI_DEV_GPU_UTIL"] == 100
    assert [process.sm_util for process in reading.processes] == [54, 46]


def test_idle_process_is_there_with_zero_use_and_its_memory() -> None:
    (process,) = reader(work(busy=0.0, copy=0.0, memory=1200)).read(1000)[0].processes
    assert (process.pid, process.sm_util, process.memory_used_mib) == (101, 0, 1200)


def test_framebuffer_adds_up_to_the_total() -> None:
    # T4: 15360 in all, 256 reserved, 4000 used; 15360 - 256 - 4000 = 11104 free.
    read = values(work(memory=4000))
    assert read["DCGM_FI_DEV_FB_TOTAL"] == 15_360
    assert read["DCGM_FI_DEV_FB_RESERVED"] == 256
    assert read["DCGM_FI_DEV_FB_USED"] == 4000
    assert read["DCGM_FI_DEV_FB_FREE"] == 11_104
    assert read["DCGM_FI_DEV_FB_USED_PERCENT"] == pytest.approx(4000 / 15_104)


def test_power_is_linear_between_idle_and_limit() -> None:
    # T4: 9 W idle, 70 W limit. 9 + 61 * (0.85 * 0.23 + 0.15 * 0.1) = 9 + 61 * 0.2105 = 21.8405 W.
    power = values(work(busy=0.23, copy=0.1))["DCGM_FI_DEV_POWER_USAGE"]
    assert power == pytest.approx(21.8405, rel=POWER_NOISE_RATIO)


def test_power_never_reads_above_the_limit() -> None:
    source = reader(work(busy=1.0, copy=1.0))
    assert all(
        source.read(now_ms)[0].values["DCGM_FI_DEV_POWER_USAGE"] <= 70
        for now_ms in range(1000, 60_000, 1000)
    )


def test_energy_is_power_times_time_without_noise() -> None:
    # 21.8405 W (see above) for the window of the first reading, 1 s, and 14 s more: 327.6075 J.
    source = reader(work(busy=0.23, copy=0.1))
    source.read(1000)
    energy_mj = source.read(15_000)[0].values["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"]
    assert energy_mj == pytest.approx(327_607.5, abs=1)


def test_energy_counts_what_happened_between_readings() -> None:
    """A burst that is over before the utilisation window still used energy."""

    # Full load from 1 s to 6 s, idle from 6 s to 16 s; readings at 1 s and 16 s.
    def burst(_gpu, from_ms, to_ms):
        busy_ms = max(0, min(to_ms, 6000) - max(from_ms, 1000))
        share = busy_ms / (to_ms - from_ms)
        return (work(busy=share, copy=share),)

    source = SimulatedReader("n1", T4, 1, 1, burst)
    source.read(1000)
    last = source.read(16_000)[0].values
    # 1 s idle, 5 s at 70 W, 10 s idle: 9 + 350 + 90 = 449 J.
    assert last["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == pytest.approx(449_000, abs=1)
    assert last["DCGM_FI_DEV_GPU_UTIL"] == 0


def test_temperature_is_a_first_order_lag() -> None:
    # T4 settles at 78 C under full power, from 34 C, with a time constant of 50 s.
    # After 50 s: 78 - 44 / e = 78 - 16.187 = 61.8, after 1000 s: 78.
    source = reader(work(busy=1.0, copy=1.0))
    source.read(1000)
    assert source.read(50_000)[0].values["DCGM_FI_DEV_GPU_TEMP"] == round(78 - 44 / math.e)
    assert source.read(1_000_000)[0].values["DCGM_FI_DEV_GPU_TEMP"] == 78


def test_hot_gpu_lowers_its_clock_and_says_why() -> None:
    # At its hottest an H200 gives up 5 % of 1980 MHz: 1881 MHz.
    source = reader(work(busy=1.0, copy=1.0), model=H200)
    source.read(1000)
    read = source.read(10_000_000)[0].values
    assert read["DCGM_FI_DEV_SM_CLOCK"] == pytest.approx(1881, abs=1)
    assert read["DCGM_FI_DEV_CLOCKS_EVENT_REASONS"] & 0x20


def test_profiling_fields_are_ratios_of_the_work() -> None:
    read = values(work(busy=0.5, copy=0.2))
    assert read["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] == 0.5
    assert read["DCGM_FI_PROF_DRAM_ACTIVE"] == 0.2


@pytest.mark.parametrize(
    ("model", "field", "reason"),
    [
        ("Tesla K80", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Tesla K80 has no profiling counters"),
        ("Tesla K80", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Tesla K80 has no energy counter"),
        ("Tesla T4", "DCGM_FI_DEV_MEMORY_TEMP", "Tesla T4 has no memory temperature sensor"),
        ("Tesla T4", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "Tesla T4 has no NVLink"),
        ("Tesla T4", "DCGM_FI_DEV_ROW_REMAP_FAILURE", "Tesla T4 has no row remapping"),
        ("NVIDIA H200", "DCGM_FI_DEV_RETIRED_SBE", "NVIDIA H200 has no page retirement"),
        ("NVIDIA H200", "DCGM_FI_DEV_FAN_SPEED", "not simulated"),
        ("NVIDIA L40S", "DCGM_FI_DEV_MIG_MAX_SLICES", "NVIDIA L40S has no MIG"),
        (
            "AMD Instinct MI300X",
            "DCGM_FI_DEV_POWER_MGMT_LIMIT",
            "AMD Instinct MI300X has no such value in AMD SMI",
        ),
        (
            "AMD Instinct MI300X",
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            "AMD Instinct MI300X has no such value in AMD SMI",
        ),
    ],
)
def test_what_a_model_lacks_is_absent_with_a_reason(model: str, field: str, reason: str) -> None:
    reading = reader(work(), model=MODELS[model]).read(1000)[0]
    assert field not in reading.values
    assert reading.absent[field] == reason


@pytest.mark.parametrize("model", ["Tesla V100-SXM2-16GB", "Tesla T4", "NVIDIA L4"])
def test_volta_and_newer_have_profiling_fields(model: str) -> None:
    assert "DCGM_FI_PROF_GR_ENGINE_ACTIVE" in values(work(), model=MODELS[model])


def test_an_amd_gpu_serves_what_the_reader_of_real_ones_does() -> None:
    read = values(work(busy=0.5), model=MODELS["AMD Instinct MI300X"])
    assert read["DCGM_FI_DEV_GPU_UTIL"] == 50
    assert read["DCGM_FI_DEV_FB_TOTAL"] == 196_592
    assert read["DCGM_FI_DEV_NAME"] == "AMD Instinct MI300X"
    assert read.keys() <= DCGM_SOURCES.keys() | DCGM_FIXED.keys()


def test_only_the_fields_asked_for_are_computed() -> None:
    asked = frozenset({"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEMORY_TEMP"})
    reading = reader(work(), fields=asked).read(1000)[0]
    assert reading.values == {"DCGM_FI_DEV_GPU_UTIL": 23}
    assert reading.absent.keys() == {"DCGM_FI_DEV_MEMORY_TEMP"}


def test_same_seed_and_calls_give_the_same_readings() -> None:
    first, second = (reader(work(), model=H200, count=4, seed=7) for _ in range(2))
    times = range(1000, 30_000, 1000)
    assert [first.read(now) for now in times] == [second.read(now) for now in times]


def test_seed_and_node_give_other_uuids() -> None:
    uuids = {
        reader(seed=seed, node=node).gpus()[0].uuid for seed in (1, 2) for node in ("n1", "n2")
    }
    assert len(uuids) == 4


def test_gpus_are_named_as_the_driver_names_them() -> None:
    gpus = reader(model=H200, count=2).gpus()
    assert [(gpu.index, gpu.device, gpu.model) for gpu in gpus] == [
        (0, "nvidia0", "NVIDIA H200"),
        (1, "nvidia1", "NVIDIA H200"),
    ]
    assert [gpu.pci_bus_id for gpu in gpus] == ["00000000:1A:00.0", "00000000:27:00.0"]
    assert len({gpu.uuid for gpu in gpus}) == 2


def test_bus_ids_stay_apart_on_large_nodes() -> None:
    gpus = reader(count=40).gpus()
    assert len({gpu.pci_bus_id for gpu in gpus}) == 40


def test_work_is_asked_for_the_window_of_each_gpu() -> None:
    asked = []

    def note(gpu, from_ms, to_ms):
        asked.append((gpu, from_ms, to_ms))
        return ()

    source = SimulatedReader("n1", T4, 2, 1, note, window_ms=500)
    source.read(1000)
    assert asked == [(0, 500, 1000), (1, 500, 1000)]
    # A second later utilisation is still about 500 ms, and energy about all of the second.
    source.read(2000)
    assert asked[2:4] == [(0, 1500, 2000), (0, 1000, 2000)]


def test_lost_gpu_has_reasons_only_and_the_others_go_on() -> None:
    source = reader(work(), count=2, fields=frozenset({"DCGM_FI_DEV_GPU_UTIL"}))
    source.lose(0)
    lost, healthy = source.read(1000)
    assert lost.is_lost
    assert (lost.values, lost.absent) == ({}, {"DCGM_FI_DEV_GPU_UTIL": LOST})
    assert lost.processes == ()
    assert healthy.values == {"DCGM_FI_DEV_GPU_UTIL": 23}
    assert len(source.gpus()) == 2


def test_reading_the_same_time_twice_adds_no_energy() -> None:
    source = reader(work())
    assert source.read(1000) == source.read(1000)


def test_reading_carries_the_time_it_is_about() -> None:
    assert reader().read(123_456)[0].measured_ms == 123_456
