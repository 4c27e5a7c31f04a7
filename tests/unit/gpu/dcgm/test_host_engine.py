# mypy: disable-error-code="arg-type"
"""What a DCGM host engine has and NVML has not, by a stand-in with DCGM's own layouts and codes."""

import logging
import time

import pytest

from gpuscale.agent.dcgm.library import DcgmError, DcgmLibrary, Entity
from gpuscale.agent.dcgm.reader import HostEngineReader
from gpuscale.agent.exporter.possible import PossibleReader
from gpuscale.agent.exporter.readers import make_reader
from gpuscale.agent.exporter.settings import read_settings
from gpuscale.agent.gpu.readings import GpuIdentity, GpuInstance, GpuReading
from gpuscale.base.errors import UnavailableError

GPU, INSTANCE = 1, 4
GR, SM, OCCUPANCY, TENSOR, PCIE = 1001, 1002, 1003, 1004, 1009
NAMES = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": GR,
    "DCGM_FI_PROF_SM_ACTIVE": SM,
    "DCGM_FI_PROF_SM_OCCUPANCY": OCCUPANCY,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": TENSOR,
    "DCGM_FI_PROF_PCIE_TX_BYTES": PCIE,
}
WHY = "the GPU has no profiling counters that NVML reads"


class Inner:
    """GPUs older than Hopper: a temperature, and no profiling counter."""

    def __init__(self, *gpus, known=()):
        self._gpus = gpus
        self._known = dict(known)
        self.is_closed = False

    def gpus(self):
        return self._gpus

    def read(self, now_ms):
        return tuple(
            GpuReading(
                gpu,
                now_ms,
                {"DCGM_FI_DEV_GPU_TEMP": 41, **self._known},
                {name: WHY for name in NAMES if name not in self._known},
            )
            for gpu in self._gpus
        )

    def stats(self):
        return ()

    def close(self):
        self.is_closed = True


def gpu(number, instance=None):
    part = None if instance is None else GpuInstance(instance, "1g.5gb", f"MIG-{number}-{instance}")
    return GpuIdentity(number, f"GPU-{number}", f"0000000{number}:00:00.0", "NVIDIA A100", part)


def reader_of(inner, following):
    return HostEngineReader(inner, following, frozenset({*NAMES, "DCGM_FI_DEV_GPU_TEMP"}))


def until(reader, wanted, *, limit_s=60):
    """Return the readings once they are as wanted."""
    end = time.monotonic() + limit_s
    while not wanted(found := reader.read(round(time.time() * 1000))):
        assert time.monotonic() < end, found
        time.sleep(0.02)
    return found


def has(name, number=0):
    return lambda found: name in found[number].values


def test_values_fill_what_nvml_does_not_have(engine) -> None:
    engine.put(GPU, 0, SM, 0.25)
    engine.put(GPU, 1, SM, 0.75)
    engine.put(GPU, 1, PCIE, 123_456_789_012)
    reader = reader_of(Inner(gpu(0), gpu(1)), engine.follow())
    first, second = until(reader, has("DCGM_FI_PROF_SM_ACTIVE"))
    assert first.values == {"DCGM_FI_DEV_GPU_TEMP": 41, "DCGM_FI_PROF_SM_ACTIVE": 0.25}
    assert second.values["DCGM_FI_PROF_SM_ACTIVE"] == 0.75
    assert second.values["DCGM_FI_PROF_PCIE_TX_BYTES"] == 123_456_789_012
    assert set(first.values) | set(first.absent) == {*NAMES, "DCGM_FI_DEV_GPU_TEMP"}
    assert first.absent == {
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": f"{WHY}; DCGM host engine: No data is available",
        "DCGM_FI_PROF_SM_OCCUPANCY": f"{WHY}; DCGM host engine: the GPU has no such counter",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": f"{WHY}; DCGM host engine: No data is available",
        "DCGM_FI_PROF_PCIE_TX_BYTES": f"{WHY}; DCGM host engine: No data is available",
    }


def test_what_nvml_has_stays_and_is_not_watched(engine) -> None:
    engine.put(GPU, 0, SM, 0.25)
    engine.put(GPU, 0, GR, 0.5)
    known = {"DCGM_FI_PROF_SM_ACTIVE": 0.9}
    reader = reader_of(Inner(gpu(0), known=known.items()), engine.follow())
    (found,) = until(reader, has("DCGM_FI_PROF_GR_ENGINE_ACTIVE"))
    assert found.values["DCGM_FI_PROF_SM_ACTIVE"] == 0.9
    # On GPUs that NVML reads in full, the host engine is left alone.
    nothing = engine.follow()
    full = Inner(gpu(0), known=dict.fromkeys(NAMES, 0.5).items())
    reader_of(full, nothing).read(0)
    assert nothing.stats().calls == 0


def test_mig_instances_have_values_of_their_own(engine) -> None:
    engine.instance(7, 0, 3)
    engine.instance(8, 0, 4)
    engine.put(INSTANCE, 7, GR, 0.125)
    engine.put(INSTANCE, 8, GR, 0.5)
    reader = reader_of(Inner(gpu(0, 3), gpu(0, 4), gpu(0, 5)), engine.follow())
    third, fourth, fifth = until(reader, has("DCGM_FI_PROF_GR_ENGINE_ACTIVE"))
    assert third.values["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] == 0.125
    assert fourth.values["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] == 0.5
    assert fifth.absent["DCGM_FI_PROF_GR_ENGINE_ACTIVE"].endswith("has no such GPU")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (140_737_488_355_328.0, "the host engine has none yet"),
        (140_737_488_355_330.0, "not supported"),
        (140_737_488_355_331.0, "not permitted"),
        (float("inf"), "the host engine has none yet"),
        (float("nan"), "the host engine has none yet"),
        (0x7FFFFFFFFFFFFFF0, "the host engine has none yet"),
        (0x7FFFFFFFFFFFFFF1, "not found"),
        (0x7FFFFFFFFFFFFFF2, "not supported"),
    ],
)
def test_blank_values_are_none(engine, value, words: str) -> None:
    """As dcgm_structs.h has them: each kind has a first blank value, and all above it are blank."""
    engine.put(GPU, 0, SM, value)
    connection = engine.load().connect("localhost")
    entity = Entity(GPU, 0)
    connection.watch("one", [entity], [SM], 1000)
    (found,) = connection.latest(entity, [SM])
    assert (found.value, found.absent) == (None, words)
    connection.close()


def test_zero_and_the_largest_values_are_values(engine) -> None:
    connection = engine.load().connect("/run/dcgm.sock")
    connection.watch("one", [Entity(GPU, 0)], [SM, PCIE], 1000)
    for value in (0.0, 1.0, 140_737_488_355_327.0, 0, 0x7FFFFFFFFFFFFFEF):
        field = SM if isinstance(value, float) else PCIE
        engine.put(GPU, 0, field, value)
        (found,) = connection.latest(Entity(GPU, 0), [field])
        assert (found.value, found.absent) == (value, "")
    connection.close()


def test_old_values_are_none(engine) -> None:
    engine.put(GPU, 0, SM, 0.25, age_s=60)
    engine.put(GPU, 0, GR, 0.5)
    reader = reader_of(Inner(gpu(0)), engine.follow())
    (found,) = until(reader, has("DCGM_FI_PROF_GR_ENGINE_ACTIVE"))
    assert found.absent["DCGM_FI_PROF_SM_ACTIVE"].endswith("value is too old")


def test_an_engine_that_goes_and_comes_back(engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    engine.put(GPU, 0, SM, 0.25)
    reader = reader_of(Inner(gpu(0)), engine.follow())
    until(reader, has("DCGM_FI_PROF_SM_ACTIVE"))
    engine.away(1)
    (found,) = until(reader, lambda each: "DCGM_FI_PROF_SM_ACTIVE" in each[0].absent)
    said = "dcgmEntitiesGetLatestValues: The connection to the host engine is not valid any longer"
    assert found.values == {"DCGM_FI_DEV_GPU_TEMP": 41}
    assert found.absent["DCGM_FI_PROF_SM_ACTIVE"] in {
        f"{WHY}; the DCGM host engine at localhost:5555: {each}"
        for each in (said, said.replace("EntitiesGetLatestValues", "Connect_v2"))
    }
    engine.away(0)
    engine.put(GPU, 0, SM, 0.5)
    (found,) = until(reader, has("DCGM_FI_PROF_SM_ACTIVE"))
    assert found.values["DCGM_FI_PROF_SM_ACTIVE"] == 0.5
    assert engine.connections() >= 2
    messages = [each.message for each in caplog.records]
    assert "the DCGM host engine at localhost:5555 answers" in messages


def test_a_call_that_hangs_holds_up_no_read(engine) -> None:
    engine.put(GPU, 0, SM, 0.25)
    following = engine.follow()
    reader = reader_of(Inner(gpu(0)), following)
    until(reader, has("DCGM_FI_PROF_SM_ACTIVE"))
    engine.hang(1)
    # What was known gets too old; nothing waits for the call, so this read is of a later time.
    (found,) = reader.read(round(time.time() * 1000) + 7_200_000)
    assert found.absent["DCGM_FI_PROF_SM_ACTIVE"].endswith("value is too old")
    reader.close()
    assert following.stats().calls >= 1


def test_a_gpu_without_profiling_leaves_the_reason(engine) -> None:
    engine.profiling(-36)
    reader = reader_of(Inner(gpu(0)), engine.follow())
    name = "DCGM_FI_PROF_SM_ACTIVE"
    (found,) = until(reader, lambda each: each[0].absent[name].endswith("no such counter"))
    assert found.values == {"DCGM_FI_DEV_GPU_TEMP": 41}


def test_a_watch_that_is_refused_leaves_the_reason(engine) -> None:
    """Such as when another tool has the counters."""
    engine.watching(-36)
    reader = reader_of(Inner(gpu(0)), engine.follow())
    name = "DCGM_FI_PROF_SM_ACTIVE"
    words = "dcgmWatchFields: Profiling is not supported for this group of GPUs or GPU"
    until(reader, lambda each: each[0].absent[name].endswith(words))


def test_the_pace_is_the_agents_within_bounds(engine) -> None:
    for interval_ms, asked_us in ((1000, 1_000_000), (100, 500_000)):
        following = engine.follow(interval_ms=interval_ms)
        engine.put(GPU, 0, SM, 0.25)
        until(reader_of(Inner(gpu(0)), following), has("DCGM_FI_PROF_SM_ACTIVE"))
        assert engine.interval_us() == asked_us
        following.close()
    # An entity at a time, whatever their number: each value takes 4 KiB.
    assert engine.largest_ask() <= len(NAMES)


def test_instances_that_come_are_found(engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuscale.agent.dcgm.engine._LAYOUT_S", 0.2)
    engine.put(GPU, 0, SM, 0.25)
    reader = reader_of(Inner(gpu(0), gpu(0, 3)), engine.follow())
    until(reader, has("DCGM_FI_PROF_SM_ACTIVE"))
    engine.instance(7, 0, 3)
    engine.put(INSTANCE, 7, SM, 0.5)
    found = until(reader, has("DCGM_FI_PROF_SM_ACTIVE", 1))
    assert found[1].values["DCGM_FI_PROF_SM_ACTIVE"] == 0.5


def test_closing_disconnects_and_closes_the_inner_reader(engine) -> None:
    engine.put(GPU, 0, SM, 0.25)
    inner = Inner(gpu(0))
    reader = reader_of(inner, engine.follow())
    until(reader, has("DCGM_FI_PROF_SM_ACTIVE"))
    reader.close()
    assert inner.is_closed
    while engine.is_open():
        time.sleep(0.01)
    reader.close()


def test_no_library_and_no_engine_are_said(engine) -> None:
    with pytest.raises(UnavailableError, match=r"found no libdcgm-9\.so, which comes with"):
        DcgmLibrary(["libdcgm-9.so", "libdcgm-8.so"])
    engine.away(1)
    with pytest.raises(DcgmError, match="dcgmConnect_v2: The connection"):
        engine.load().connect("localhost")


def test_the_flag_puts_a_host_engine_beside_nvml() -> None:
    settings = read_settings({"remote-hostengine-info": ["localhost:5555"]}, {}, "n1")
    reader = make_reader(settings, frozenset(NAMES), "n1")
    assert isinstance(reader, PossibleReader)
    assert isinstance(reader.inner, HostEngineReader)
    reader.close()
    plain = make_reader(read_settings({}, {}, "n1"), frozenset(NAMES), "n1")
    assert isinstance(plain, PossibleReader)
    assert not isinstance(plain.inner, HostEngineReader)
    plain.close()
