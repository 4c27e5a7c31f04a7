"""Laws that simulated GPUs keep under any load."""

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.simulated import GpuWork, SimulatedReader

RATIOS = st.floats(0.0, 3.0)
MODEL = st.sampled_from(sorted(MODELS)).map(MODELS.__getitem__)
WORKS = st.lists(
    st.builds(
        GpuWork, st.integers(1, 99_999), st.just("python"), RATIOS, RATIOS, st.integers(0, 200_000)
    ),
    max_size=6,
)
STEPS_MS = st.lists(st.integers(1, 120_000), min_size=1, max_size=12)
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"


def reader(model, work):
    return SimulatedReader("n1", model, 1, 1, work)


def times(steps_ms):
    now_ms = 1000
    for step_ms in steps_ms:
        yield now_ms
        now_ms += step_ms


@given(MODEL, WORKS)
def test_values_stay_within_what_a_gpu_can_show(model, works) -> None:
    values = reader(model, lambda *_: works).read(1000)[0].values
    for name in ("GPU_UTIL", "MEM_COPY_UTIL"):
        assert 0 <= values[f"DCGM_FI_DEV_{name}"] <= 100
    assert all(0 <= value <= 1 for name, value in values.items() if name.endswith("_ACTIVE"))
    assert 0 < values["DCGM_FI_DEV_POWER_USAGE"] <= model.max_power_w
    assert model.idle_temp_c <= values["DCGM_FI_DEV_GPU_TEMP"] <= model.max_temp_c
    assert values["DCGM_FI_DEV_SM_CLOCK"] <= model.max_sm_clock_mhz


@given(MODEL, WORKS)
def test_framebuffer_parts_add_up_to_the_total(model, works) -> None:
    values = reader(model, lambda *_: works).read(1000)[0].values
    reserved = values.get("DCGM_FI_DEV_FB_RESERVED", 0)  # AMD SMI has no such value
    parts = [values["DCGM_FI_DEV_FB_USED"], values["DCGM_FI_DEV_FB_FREE"], reserved]
    assert min(parts) >= 0
    assert sum(parts) == values["DCGM_FI_DEV_FB_TOTAL"]


@given(MODEL, WORKS)
def test_processes_add_up_to_the_device(model, works) -> None:
    reading = reader(model, lambda *_: works).read(1000)[0]
    assert [process.pid for process in reading.processes] == [work.pid for work in works]
    sums = [
        sum(getattr(process, name) for process in reading.processes)
        for name in ("sm_util", "mem_copy_util", "memory_used_mib")
    ]
    assert sums == [
        reading.values[f"DCGM_FI_DEV_{name}"] for name in ("GPU_UTIL", "MEM_COPY_UTIL", "FB_USED")
    ]
    assert all(process.sm_util >= 0 for process in reading.processes)


@given(st.lists(WORKS, min_size=1, max_size=5), STEPS_MS)
def test_energy_never_falls(loads, steps_ms) -> None:
    source = reader(MODELS["NVIDIA H200"], lambda _gpu, _from_ms, to_ms: loads[to_ms % len(loads)])
    energies = [source.read(now_ms)[0].values[ENERGY] for now_ms in times(steps_ms)]
    assert energies == sorted(energies)


@given(MODEL, RATIOS, RATIOS, st.integers(1, 40), st.integers(1, 20))
def test_pace_of_reading_makes_no_difference(model, busy, copy, step_s, steps) -> None:
    works = (GpuWork(1, "python", busy, copy, 100),)
    slow, fast = (reader(model, lambda *_: works) for _ in range(2))
    end_ms = 1000 + steps * step_s * 1000
    for now_ms in range(1000, end_ms, 1000):
        fast.read(now_ms)
    for now_ms in range(1000, end_ms, step_s * 1000):
        slow.read(now_ms)
    seldom, often = (source.read(end_ms)[0].values for source in (slow, fast))
    assert abs(seldom["DCGM_FI_DEV_GPU_TEMP"] - often["DCGM_FI_DEV_GPU_TEMP"]) <= 1
    if model.has_energy_counter:
        assert abs(seldom[ENERGY] - often[ENERGY]) <= 1


@given(st.integers(), MODEL, WORKS, STEPS_MS)
def test_same_seed_and_calls_give_the_same_readings(seed, model, works, steps_ms) -> None:
    first, second = (SimulatedReader("n1", model, 2, seed, lambda *_: works) for _ in range(2))
    for now_ms in times(steps_ms):
        assert first.read(now_ms) == second.read(now_ms)
