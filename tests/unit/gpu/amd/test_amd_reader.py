"""AMD GPUs over the stand-in: units, what is absent and why, faults, and coming back from them."""

import builtins
import sys

import pytest

from gpuscale.agent.amd.library import load_amdsmi
from gpuscale.agent.amd.reader import RETRY_MS, AmdReader
from gpuscale.agent.gpu.readings import ProcessReading
from gpuscale.base.errors import UnavailableError
from gpuscale.signals import FIELDS
from gpuscale.signals.amd.values import DCGM_FIXED, DCGM_SOURCES, amd_call_of
from gpuscale.testing.amdsmi import (
    AmdSmiLibraryException,
    AmdSmiTimeoutException,
    StandInAmdSmi,
    StandInGpu,
    stand_in_process,
)

IO, NOT_SUPPORTED, NO_PERM, RESTART_ERR = 12, 2, 10, 54
FIRST = StandInGpu().uuid


def second(**changes):
    return StandInGpu(uuid="second", bdf="0000:3a:00.0", **changes)


def values(**changes):
    (reading,) = AmdReader(StandInAmdSmi(StandInGpu(**changes))).read(1000)
    return reading.values


def absent(**changes):
    (reading,) = AmdReader(StandInAmdSmi(StandInGpu(**changes))).read(1000)
    return reading.absent


def test_identity_is_the_gpus() -> None:
    (gpu,) = AmdReader(StandInAmdSmi(StandInGpu())).gpus()
    assert (gpu.index, gpu.uuid) == (0, FIRST)
    assert gpu.pci_bus_id == "00000000:1A:00.0"
    assert gpu.model == "AMD Instinct MI300X"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("GPU_UTIL", 42),
        ("MEM_COPY_UTIL", 17),
        ("POWER_USAGE", 310.0),
        # 2,000,000 steps of 15.25 µJ are 30,500,000 µJ.
        ("TOTAL_ENERGY_CONSUMPTION", 30_500),
        ("FB_TOTAL", 196_592),
        ("FB_USED", 40_960),
        # 196,592 - 40,960
        ("FB_FREE", 155_632),
        ("GPU_TEMP", 61),
        ("MEMORY_TEMP", 55),
        ("SM_CLOCK", 1950),
        ("MAX_SM_CLOCK", 2100),
        ("MEM_CLOCK", 1300),
        ("MAX_MEM_CLOCK", 1300),
        ("PCIE_REPLAY_COUNTER", 3),
        ("ECC_SBE_VOL_TOTAL", 5),
        ("ECC_DBE_VOL_TOTAL", 0),
        ("COUNT", 1),
        ("NAME", "AMD Instinct MI300X"),
        ("SERIAL", "692251001124"),
        ("UUID", FIRST),
        ("PCI_BUSID", "00000000:1A:00.0"),
    ],
)
def test_dcgm_fields_are_in_dcgms_units(field: str, value) -> None:
    read = values()[f"DCGM_FI_DEV_{field}"]
    assert read == value
    assert type(read) is type(value)


def test_the_drivers_version_is_read() -> None:
    assert values()["DCGM_FI_DRIVER_VERSION"] == "6.14.14"


def test_native_values_are_in_the_units_of_their_families() -> None:
    read = values()
    assert read["amd:energy"] == 30_500_000
    # 32,000 MT/s
    assert read["amd:pcie_speed"] == 32.0
    assert read["amd:vram_total"] == 196_592
    assert (read["amd:compute_partition"], read["amd:memory_partition"]) == ("SPX", "NPS1")


def test_average_power_stands_in_where_there_is_no_momentary_power() -> None:
    read = values(current_socket_power="N/A", average_socket_power=295)
    assert read["DCGM_FI_DEV_POWER_USAGE"] == 295.0
    assert "amd:current_socket_power" not in read


def test_edge_temperature_stands_in_where_there_is_no_junction() -> None:
    assert values(temperatures={0: 48})["DCGM_FI_DEV_GPU_TEMP"] == 48


def test_memory_temperature_is_the_hottest_of_its_sensors() -> None:
    assert values(temperatures={3: 51, 4: 58, 5: 53})["DCGM_FI_DEV_MEMORY_TEMP"] == 58


@pytest.mark.parametrize("said", ["N/A", 0xFFFF, 101])
def test_activity_that_stands_for_no_value_is_absent_and_never_zero(said) -> None:
    (reading,) = AmdReader(
        StandInAmdSmi(StandInGpu(activity={"gfx_activity": said, "umc_activity": 3}))
    ).read(1000)
    assert "DCGM_FI_DEV_GPU_UTIL" not in reading.values
    expected = (
        "AMD SMI says N/A" if said == "N/A" else "AMD SMI gives a number that stands for no value"
    )
    assert reading.absent["DCGM_FI_DEV_GPU_UTIL"] == expected
    assert reading.absent["amd:gfx_activity"] == expected
    assert reading.values["DCGM_FI_DEV_MEM_COPY_UTIL"] == 3


def test_an_idle_gpu_is_zero_percent_busy() -> None:
    assert values(activity={"gfx_activity": 0, "umc_activity": 0})["DCGM_FI_DEV_GPU_UTIL"] == 0


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"current_socket_power": 0, "average_socket_power": 0}, "POWER_USAGE"),
        ({"energy_accumulator": 0}, "TOTAL_ENERGY_CONSUMPTION"),
        ({"temperatures": {1: 0}}, "GPU_TEMP"),
    ],
)
def test_power_energy_and_heat_of_zero_are_no_measurement(change, field: str) -> None:
    reason = "AMD SMI gives 0, which is no measurement"
    assert absent(**change)[f"DCGM_FI_DEV_{field}"] == reason


def test_a_sensor_that_is_missing_is_absent_in_the_librarys_words() -> None:
    assert absent()["amd:edge_temperature"] == "Feature not supported"


def test_an_answer_without_the_key_is_absent() -> None:
    reason = "this amdsmi does not give it"
    assert absent(activity={"gfx_activity": 42})["DCGM_FI_DEV_MEM_COPY_UTIL"] == reason


def test_more_memory_used_than_there_is_leaves_the_free_part_absent() -> None:
    (reading,) = AmdReader(StandInAmdSmi(StandInGpu(vram_total=10, vram_used=11))).read(1000)
    assert "DCGM_FI_DEV_FB_FREE" not in reading.values
    assert reading.values["DCGM_FI_DEV_FB_USED"] == 11


def test_what_amd_does_not_have_is_absent_with_a_reason() -> None:
    reasons = absent()
    for name in ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"):
        assert reasons[name] == "AMD SMI has no such value"


def test_every_field_has_a_value_or_a_reason() -> None:
    (reading,) = AmdReader(StandInAmdSmi(StandInGpu())).read(1000)
    assert {*reading.values, *reading.absent} >= set(FIELDS)
    assert not reading.values.keys() & reading.absent.keys()


def test_only_the_fields_that_were_asked_for_are_given() -> None:
    fields = frozenset({"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_XID_ERRORS"})
    (reading,) = AmdReader(StandInAmdSmi(StandInGpu()), fields=fields).read(1000)
    named = {name for name in (*reading.values, *reading.absent) if not name.startswith("amd:")}
    assert named == fields


def test_processes_are_told_with_their_memory_and_the_compute_units_that_they_occupy() -> None:
    running = [
        stand_in_process(41, cu_occupancy=76),
        stand_in_process(42, name="N/A", cu_occupancy="N/A"),
    ]
    (reading,) = AmdReader(StandInAmdSmi(StandInGpu(processes=running))).read(1000)
    # 76 of 304 compute units; the other process has none that are known.
    assert reading.values["amd:process_cu_occupancy:41"] == 25.0
    assert "amd:process_cu_occupancy:42" not in reading.values
    # For how much of the time they used which engine is not known, so not 0.
    assert reading.processes == (
        ProcessReading(41, "python", None, None, None, None, 2048),
        ProcessReading(42, "", None, None, None, None, 2048),
    )


def test_processes_that_cannot_be_listed_are_absent_with_a_reason() -> None:
    gpu = StandInGpu(faults={"amdsmi_get_gpu_process_list": AmdSmiLibraryException(NO_PERM)})
    (reading,) = AmdReader(StandInAmdSmi(gpu)).read(1000)
    assert reading.processes == ()
    assert reading.absent["amd:process_cu_occupancy:"] == "Permission Denied"


def test_a_call_that_fails_leaves_the_others_alone() -> None:
    gpu = StandInGpu(faults={"amdsmi_get_power_info": AmdSmiLibraryException(NO_PERM)})
    (reading,) = AmdReader(StandInAmdSmi(gpu)).read(1000)
    assert reading.absent["DCGM_FI_DEV_POWER_USAGE"] == "Permission Denied"
    assert reading.values["DCGM_FI_DEV_GPU_UTIL"] == 42


def test_an_error_that_is_not_the_librarys_is_absent_by_its_kind() -> None:
    gpu = StandInGpu(faults={"amdsmi_get_energy_count": UnicodeDecodeError("u", b"", 0, 0, "")})
    (reading,) = AmdReader(StandInAmdSmi(gpu)).read(1000)
    reason = "amdsmi failed with UnicodeDecodeError"
    assert reading.absent["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"] == reason


def test_a_function_that_this_release_lacks_is_absent() -> None:
    class Older(StandInAmdSmi):
        amdsmi_get_pcie_info = property()

    (reading,) = AmdReader(Older(StandInGpu())).read(1000)
    reason = "this amdsmi has no such function"
    assert reading.absent["DCGM_FI_DEV_PCIE_REPLAY_COUNTER"] == reason


@pytest.mark.parametrize("fault", [AmdSmiLibraryException(IO), AmdSmiTimeoutException()])
def test_a_lost_gpu_leaves_the_others_alone_and_shows_no_old_value(fault) -> None:
    first, other = StandInGpu(), second()
    reader = AmdReader(StandInAmdSmi(first, other))
    reader.read(1000)
    first.faults["*"] = fault
    lost, well = reader.read(2000)
    assert lost.is_lost
    assert set(lost.absent.values()) == {fault.err_info.partition(" - ")[2]}
    assert set(lost.absent) >= set(FIELDS)
    assert well.values["DCGM_FI_DEV_GPU_UTIL"] == 42
    assert well.measured_ms == 2000


def test_a_gpu_that_does_not_answer_costs_one_call_a_read() -> None:
    gpu = StandInGpu()
    reader = AmdReader(StandInAmdSmi(gpu, second()))
    reader.read(1000)
    before = sum(call.errors for call in reader.stats())
    gpu.faults["*"] = AmdSmiTimeoutException()
    reader.read(2000)
    # The edge sensor and the memory's four stacks of the other GPU are not supported: five errors.
    assert sum(call.errors for call in reader.stats()) - before == 1 + 5


def test_a_gpu_that_answers_again_is_read_again() -> None:
    gpu = StandInGpu()
    reader = AmdReader(StandInAmdSmi(gpu))
    reader.read(1000)
    gpu.faults["*"] = AmdSmiLibraryException(IO)
    assert reader.read(2000)[0].is_lost
    gpu.faults.clear()
    assert reader.read(3000)[0].values["DCGM_FI_DEV_GPU_UTIL"] == 42


def test_gpus_come_back_after_a_driver_reload_under_new_handles() -> None:
    module = StandInAmdSmi(StandInGpu(), second())
    reader = AmdReader(module)
    reader.read(1000)
    module.reload_driver()
    assert all(reading.is_lost for reading in reader.read(2000))
    assert all(reading.is_lost for reading in reader.read(1000 + RETRY_MS - 1))
    assert not any(reading.is_lost for reading in reader.read(1000 + RETRY_MS))
    assert module.starts == 2


def test_without_a_driver_nothing_is_read_until_it_is_back() -> None:
    module = StandInAmdSmi(StandInGpu())
    reader = AmdReader(module)
    reader.read(1000)
    module.is_driver_loaded = False
    with pytest.raises(UnavailableError) as caught:
        reader.read(2000)
    assert str(caught.value) == "AMD SMI lost its driver: Driver not loaded"
    with pytest.raises(UnavailableError) as caught:
        reader.read(3000)
    assert str(caught.value) == (
        "AMD SMI can't be started: Driver not loaded; is the amdgpu driver loaded?"
    )
    assert [gpu.uuid for gpu in reader.gpus()] == [FIRST]
    module.is_driver_loaded = True
    module.reload_driver()
    assert reader.read(4000)[0].values["DCGM_FI_DEV_GPU_UTIL"] == 42


def test_a_driver_that_failed_to_restart_ends_the_whole_read() -> None:
    gpu = second(faults={"amdsmi_get_pcie_info": AmdSmiLibraryException(RESTART_ERR)})
    with pytest.raises(UnavailableError, match="AMDGPU restart failed"):
        AmdReader(StandInAmdSmi(StandInGpu(), gpu)).read(1000)


def test_a_gpu_that_is_not_listed_any_more_stays_listed_as_lost() -> None:
    first, other = StandInGpu(), second()
    module = StandInAmdSmi(first, other)
    reader = AmdReader(module)
    reader.read(1000)
    first.faults["*"] = AmdSmiLibraryException(IO)
    reader.read(2000)
    module.gpus.remove(first)
    module.reload_driver()
    readings = reader.read(2000 + RETRY_MS)
    by_uuid = {reading.gpu.uuid: reading for reading in readings}
    assert set(by_uuid[FIRST].absent.values()) == {"AMD SMI does not list the GPU any more"}
    assert by_uuid["second"].values["DCGM_FI_DEV_GPU_UTIL"] == 42
    assert {gpu.uuid for gpu in reader.gpus()} == {FIRST, "second"}


def test_a_gpu_in_the_place_of_another_replaces_it() -> None:
    first = StandInGpu()
    module = StandInAmdSmi(first)
    reader = AmdReader(module)
    reader.read(1000)
    first.faults["*"] = AmdSmiLibraryException(IO)
    reader.read(2000)
    module.gpus = [StandInGpu(uuid="partition-0")]
    reader.read(2000 + RETRY_MS)
    assert [gpu.uuid for gpu in reader.gpus()] == ["partition-0"]


def test_a_gpu_that_cannot_be_named_is_logged_and_found_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = StandInGpu(faults={"amdsmi_get_gpu_device_uuid": AmdSmiLibraryException(IO)})
    reader = AmdReader(StandInAmdSmi(first, second()))
    assert [reading.gpu.uuid for reading in reader.read(1000)] == ["second"]
    assert [record.message for record in caplog.records] == [
        "AMD GPU 0 can't be identified by its UUID: I/O Error"
    ]
    first.faults.clear()
    readings = reader.read(1000 + RETRY_MS)
    assert [reading.gpu.uuid for reading in readings] == [FIRST, "second"]


def test_no_gpu_is_reported() -> None:
    with pytest.raises(UnavailableError) as caught:
        AmdReader(StandInAmdSmi()).read(1000)
    assert str(caught.value) == "AMD SMI found no GPU on this node"


def test_a_clock_that_is_set_back_does_not_stop_the_retries() -> None:
    module = StandInAmdSmi(StandInGpu())
    reader = AmdReader(module)
    reader.read(1_000_000)
    module.reload_driver()
    reader.read(1_001_000)
    assert not reader.read(5000)[0].is_lost


def test_close_shuts_the_library_down_once() -> None:
    module = StandInAmdSmi(StandInGpu())
    reader = AmdReader(module)
    reader.read(1000)
    reader.close()
    reader.close()
    stats = {call.source: call for call in reader.stats()}
    assert (stats["amdsmi_shut_down"].calls, stats["amdsmi_shut_down"].errors) == (1, 0)
    # init, activity, power, ... each once; the temperatures of seven sensors.
    assert stats["amdsmi_get_temp_metric"].calls == 7


def test_a_missing_native_library_is_told_without_a_word_on_standard_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(name, *arguments, **keywords):
        if name == "amdsmi":
            sys.stdout.write("Unable to find libamd_smi.so")
            raise KeyError("libamd_smi.so")
        return real(name, *arguments, **keywords)

    real = builtins.__import__
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(UnavailableError) as caught:
        load_amdsmi()
    assert str(caught.value) == (
        "amdsmi can't load libamd_smi.so; install gpuscale[amd], and ROCm's amd-smi-lib, "
        "which holds libamd_smi.so"
    )
    assert capsys.readouterr().out == ""


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    with pytest.raises(UnavailableError) as caught:
        load_amdsmi()
    assert str(caught.value).startswith("the Python package amdsmi is missing; install ")


def test_an_installed_module_is_what_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    module = StandInAmdSmi()
    monkeypatch.setitem(sys.modules, "amdsmi", module)
    assert load_amdsmi() is module


def test_sources_name_fields_that_exist_and_their_calls() -> None:
    assert {*DCGM_SOURCES, *DCGM_FIXED} <= set(FIELDS)
    call = "amdsmi_get_temp_metric(HOTSPOT or EDGE)"
    assert amd_call_of("DCGM_FI_DEV_GPU_TEMP") == call
    assert amd_call_of("DCGM_FI_DEV_POWER_USAGE") == "amdsmi_get_power_info"
    assert amd_call_of("DCGM_FI_DEV_NAME") == "amdsmi_get_gpu_asic_info"
    assert amd_call_of("DCGM_FI_DEV_XID_ERRORS") is None
