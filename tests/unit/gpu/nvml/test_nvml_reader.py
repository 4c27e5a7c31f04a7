# mypy: disable-error-code="arg-type"
"""What the reader makes of NVML, over the stand-in."""

import threading
import time
from collections import Counter

import pynvml
import pytest

from gpuscale.agent.gpu.readings import EventCount, GpuIdentity
from gpuscale.agent.nvml import faults
from gpuscale.agent.nvml.reader import NvmlReader
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.base.errors import UnavailableError
from gpuscale.signals import DEFAULT_COUNTERS, FIELDS
from gpuscale.testing.nvml import FakeGpu, FakeNvml, FakeProcess

DEFAULTS = frozenset(row.field for row in DEFAULT_COUNTERS)
UTIL = "DCGM_FI_DEV_GPU_UTIL"
MEM_UTIL = "DCGM_FI_DEV_MEM_COPY_UTIL"
ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
TENSOR = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
XID = "DCGM_FI_DEV_XID_ERRORS"


def test_identity_is_what_labels_need(bench) -> None:
    b = bench(FakeGpu(name="NVIDIA H200", uuid="GPU-1", bus=0x1A))
    assert b.reader.gpus() == (GpuIdentity(0, "GPU-1", "00000000:1A:00.0", "NVIDIA H200"),)


def test_every_asked_field_has_a_value_or_a_known_reason(bench) -> None:
    b = bench()
    b.one()
    reading = b.one()
    asked = {field for field in FIELDS if not FIELDS[field].is_derived}
    known = reading.values.keys() | reading.absent.keys()
    assert known <= asked
    assert set(reading.absent.values()) <= faults.REASONS


def test_the_default_counters_all_have_a_value_or_a_reason(bench) -> None:
    b = bench(fields=DEFAULTS)
    reading = b.one()
    assert reading.values.keys() | reading.absent.keys() == DEFAULTS


def test_a_field_that_nvml_has_not_is_told_so(bench) -> None:
    reading = bench(fields={"DCGM_FI_DEV_CC_MODE"}).one()
    assert reading.absent == {"DCGM_FI_DEV_CC_MODE": "NVML does not offer it"}


def test_memory_in_mib_with_the_reserved_part_apart(bench) -> None:
    values = bench(FakeGpu(total_mib=1000, reserved_mib=100, used_mib=300)).one().values
    assert values["DCGM_FI_DEV_FB_TOTAL"] == 1000
    assert values["DCGM_FI_DEV_FB_USED"] == 300
    assert values["DCGM_FI_DEV_FB_RESERVED"] == 100
    assert values["DCGM_FI_DEV_FB_FREE"] == 600
    assert values["DCGM_FI_DEV_FB_USED_PERCENT"] == pytest.approx(300 / 900)


def test_older_driver_has_used_memory_with_the_reserved_part_and_says_that_it_has_no_other(
    bench,
) -> None:
    b = bench(FakeGpu(total_mib=1000, reserved_mib=100, used_mib=300))
    b.nvml.fail("nvmlDeviceGetMemoryInfo_v2", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    reading = b.one()
    assert reading.values["DCGM_FI_DEV_FB_USED"] == 400
    assert reading.absent["DCGM_FI_DEV_FB_RESERVED"] == faults.NOT_SUPPORTED


def test_power_in_watts(bench) -> None:
    assert bench(FakeGpu(power_mw=451_500)).one().values["DCGM_FI_DEV_POWER_USAGE"] == 451.5


def test_temperature_of_a_broken_sensor_is_no_value(bench) -> None:
    reading = bench(FakeGpu(temperature_c=255)).one()
    assert reading.absent["DCGM_FI_DEV_GPU_TEMP"] == faults.IMPOSSIBLE


def test_slow_fields_come_by_the_dozen(bench) -> None:
    ids = {pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL: 3, pynvml.NVML_FI_DEV_PERF_POLICY_THERMAL: 77}
    values = bench(FakeGpu(field_values=ids)).one().values
    assert values["DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"] == 3
    assert values["DCGM_FI_DEV_THERMAL_VIOLATION"] == 77


# Utilisation


def half(now_us):
    """Busy in every other 200 ms."""
    return 100 if now_us // 200_000 % 2 else 0


def test_utilisation_is_the_mean_of_the_window_and_not_the_last_moment(bench) -> None:
    b = bench(FakeGpu(busy_percent=half), fields={UTIL})
    b.one()
    # Five samples a second, of which two or three are busy; two seconds have as many busy as idle ones.
    seen = [b.one(after_s=2.0).values[UTIL] for _ in range(3)]
    assert seen == [50, 50, 50]


def test_windows_join_without_a_gap_or_an_overlap(bench) -> None:
    ramp = {"start": None}

    def script(now_us):
        ramp["start"] = ramp["start"] or now_us
        return min(100, (now_us - ramp["start"]) // 200_000)

    b = bench(FakeGpu(busy_percent=script), fields={UTIL})
    b.one()
    # Sample n after the start is n %; each second has five: 5..9 -> 7 and so on, up by 5.
    first, second, third = (b.one().values[UTIL] for _ in range(3))
    assert (second - first, third - second) == (5, 5)


def test_read_between_two_samples_repeats_the_fresh_mean(bench) -> None:
    b = bench(FakeGpu(busy_percent=40), fields={UTIL})
    b.one()
    assert b.one(after_s=0.05).values[UTIL] == 40
    assert b.nvml.count("nvmlDeviceGetUtilizationRates") == 0


def calls_of(bench):
    return {each.source: each.calls for each in bench.reader.stats()}


@pytest.mark.parametrize(
    ("settings", "takes"),
    [
        # Samples at second 1, 6, 11 and 16.
        pytest.param({"gpm_period_ms": 5_000}, {"tensor": 4, "graphics": 16}, id="the others"),
        pytest.param({"graphics_period_ms": 5_000}, {"tensor": 16, "graphics": 4}, id="the engine"),
    ],
)
def test_the_graphics_engines_activity_has_a_pace_of_its_own(bench, settings, takes) -> None:
    field = {"tensor": TENSOR, "graphics": ACTIVE}
    for name, taken in takes.items():
        b = bench(
            FakeGpu(busy_percent=half, tensor_percent=half),
            fields={field[name]},
            settings=NvmlSettings(**settings),
        )
        readings = [b.one() for _ in range(16)]
        assert b.nvml.count("nvmlGpmSampleGet") == taken
        assert b.nvml.count("nvmlGpmMetricsGet") == taken - 1
        means = [reading.values[field[name]] for reading in readings[5:]]
        # Any whole second is busy for 400 or 600 ms, and so for 40 to 60 %.
        assert all(0.4 - 0.01 <= mean <= 0.6 + 0.01 for mean in means)


def test_the_more_gpus_the_seldomer_the_graphics_engine_is_read(bench) -> None:
    assert [NvmlSettings().graphics_ms(gpus) for gpus in (1, 2, 8)] == [1_000, 2_000, 8_000]
    b = bench(*(FakeGpu() for _ in range(8)), fields={ACTIVE})
    for _ in range(41):
        b.read()
    # In 40 s each has its turn five times, beside the first.
    assert b.nvml.count("nvmlGpmSampleGet") == pytest.approx(8 * 6, abs=8)


def test_memory_utilisation_is_the_mean_of_its_own_longer_window(bench) -> None:
    start_us = 1_700_000_000_000_000

    def script(now_us):
        return 90 if (now_us - start_us) % 5_000_000 >= 3_000_000 else 10

    b = bench(FakeGpu(memory_busy_percent=script), fields={MEM_UTIL})
    values = [b.one().values[MEM_UTIL] for _ in range(16)]
    # Asked for at second 1, 6, 11 and 16. Of five seconds two are at 90 and three at 10: 42.
    assert values[5:] == [42] * 11
    assert calls_of(b)["memory_utilization_samples"] == 4


def test_without_samples_the_drivers_own_figure_is_taken_and_the_stats_say_so(bench) -> None:
    b = bench(FakeGpu(busy_percent=31, has_samples=False), fields={UTIL})
    assert b.one().values[UTIL] == 31
    assert calls_of(b)["utilization_rates"] == 1


def test_utilisation_that_nothing_tells_is_absent(bench) -> None:
    b = bench(FakeGpu(has_samples=False), fields={UTIL, MEM_UTIL})
    b.nvml.not_supported("nvmlDeviceGetUtilizationRates")
    assert b.one().absent == dict.fromkeys((UTIL, MEM_UTIL), faults.NOT_SUPPORTED)


# Schedules


def test_slow_calls_are_made_once_a_period(bench) -> None:
    b = bench(fields={ENERGY}, settings=NvmlSettings(energy_period_ms=10_000))
    for _ in range(25):
        assert ENERGY in b.one().values
    # At second 0, 10 and 20.
    assert b.nvml.count("nvmlDeviceGetFieldValues") == 3


def test_temperatures_are_read_once_a_second_however_often_the_rest_is(bench) -> None:
    b = bench(fields={"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE"})
    for _ in range(12):
        assert "DCGM_FI_DEV_GPU_TEMP" in b.one(after_s=0.25).values
    assert b.nvml.count("nvmlDeviceGetPowerUsage") == 12
    # Of reads at 0, 0.25 .. 2.75 s, those at 0, 1 and 2 s.
    assert b.nvml.count("nvmlDeviceGetTemperature") == 3


def test_slow_value_is_dropped_when_its_call_fails(bench) -> None:
    b = bench(fields={ENERGY}, settings=NvmlSettings(energy_period_ms=2_000))
    assert b.one().values
    b.nvml.fail("nvmlDeviceGetFieldValues", pynvml.NVML_ERROR_UNKNOWN)
    assert b.one(after_s=2.0).absent == {ENERGY: faults.DRIVER_ERROR}


def test_what_is_not_supported_is_asked_again_only_after_a_while(bench) -> None:
    power = "DCGM_FI_DEV_POWER_USAGE"
    b = bench(fields={power})
    b.nvml.not_supported("nvmlDeviceGetPowerUsage")
    for _ in range(30):
        assert b.one().absent == {power: faults.NOT_SUPPORTED}
    assert b.nvml.count("nvmlDeviceGetPowerUsage") == 1
    b.nvml.mend("nvmlDeviceGetPowerUsage")
    assert b.one(after_s=60).values == {power: 75.0}


def test_only_calls_for_asked_fields_are_made(bench) -> None:
    b = bench(fields={"DCGM_FI_DEV_GPU_TEMP"}, settings=NvmlSettings(processes=False))
    b.one()
    b.nvml.calls.clear()
    b.one()
    assert b.nvml.calls == ["nvmlDeviceGetTemperature"]


def test_default_fields_have_these_calls_in_every_read_and_those_in_some(bench) -> None:
    ids = {pynvml.NVML_FI_DEV_MEMORY_TEMP: 40}
    b = bench(FakeGpu(field_values=ids), fields=DEFAULTS, settings=NvmlSettings(processes=False))
    for _ in range(60):
        b.one()
    b.nvml.calls.clear()
    for _ in range(60):
        b.one()
    calls = Counter(b.nvml.calls)
    every_read = {
        "nvmlGpmSampleGet": 2,  # for the graphics engine, and for the other profiling counters
        "nvmlGpmMetricsGet": 2,
        "nvmlDeviceGetSamples": 1,  # where nothing is polled
        "nvmlDeviceGetMemoryInfo": 1,
        "nvmlDeviceGetPowerUsage": 1,
        "nvmlDeviceGetClockInfo": 2,  # of the SMs and of the memory
        "nvmlDeviceGetTemperature": 1,
        "nvmlDeviceGetEncoderUtilization": 1,
        "nvmlDeviceGetDecoderUtilization": 1,
    }
    in_a_minute = {
        "nvmlDeviceGetPcieReplayCounter": 6,  # every 10 s
        "nvmlDeviceGetRemappedRows": 6,
        "nvmlDeviceGetCount": 6,
        "nvmlDeviceGetMigMode": 2,  # every 30 s
        "nvmlDeviceGetGridLicensableFeatures_v4": 1,
        # The memory's temperature 60, energy 1, NVLink 1: what this GPU has not is asked for once a minute.
        "nvmlDeviceGetFieldValues": 62,
    }
    expected = Counter({name: 60 * number for name, number in every_read.items()})
    expected["nvmlDeviceGetSamples"] += 12  # memory utilisation, every 5 s
    assert calls == expected + Counter(in_a_minute)


def test_slow_calls_of_several_gpus_are_spread_over_the_reads(bench) -> None:
    energy, replays = ENERGY, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
    b = bench(*(FakeGpu() for _ in range(8)), fields={energy, replays, MEM_UTIL})
    b.one()
    most = Counter()
    for _ in range(120):
        b.nvml.calls.clear()
        b.one()
        most |= Counter(b.nvml.calls)
    # Eight GPUs over the 60, 30, 10 and 5 reads of a period.
    assert most["nvmlDeviceGetFieldValues"] == 1
    assert most["nvmlDeviceGetMigMode"] == 1
    assert most["nvmlDeviceGetPcieReplayCounter"] == 1
    assert most["nvmlDeviceGetSamples"] == 2


def test_pcie_throughput_which_blocks_is_never_asked_for(bench) -> None:
    b = bench()
    for _ in range(3):
        b.one()
    assert "nvmlDeviceGetPcieThroughput" not in b.nvml.calls


# GPM


def test_profiling_values_are_ratios_and_bytes(bench) -> None:
    b = bench(FakeGpu(tensor_percent=42, pcie_rx_mib_s=2))
    assert b.one().absent[TENSOR] == faults.NO_DATA
    values = b.one().values
    assert values[TENSOR] == pytest.approx(0.42)
    assert values["DCGM_FI_PROF_PCIE_RX_BYTES"] == 2 * 1024 * 1024


def test_rates_go_by_the_unit_that_the_driver_names(bench) -> None:
    b = bench(FakeGpu(pcie_rx_mib_s=2, gpm_unit="KB/s"), fields={"DCGM_FI_PROF_PCIE_RX_BYTES"})
    b.one()
    assert b.one().values == {"DCGM_FI_PROF_PCIE_RX_BYTES": 2000}


def test_unknown_unit_is_no_value(bench) -> None:
    b = bench(FakeGpu(pcie_rx_mib_s=2, gpm_unit="furlongs"), fields={"DCGM_FI_PROF_PCIE_RX_BYTES"})
    b.one()
    assert b.one().absent == {"DCGM_FI_PROF_PCIE_RX_BYTES": faults.DRIVER_ERROR}


def test_gpm_is_asked_once_for_what_is_wanted_and_for_nothing_else(bench) -> None:
    b = bench(fields={UTIL, TENSOR, "DCGM_FI_PROF_DRAM_ACTIVE"})
    asked = []
    original = b.nvml.nvmlGpmMetricsGet

    def spy(request):
        asked.append([request.metrics[n].metricId for n in range(request.numMetrics)])
        return original(request)

    b.nvml.nvmlGpmMetricsGet = spy
    b.one()
    b.one()
    assert asked == [[5, 10]]


def test_without_a_field_that_needs_it_gpm_is_left_alone(bench) -> None:
    b = bench(fields={MEM_UTIL, "DCGM_FI_DEV_POWER_USAGE"})
    for _ in range(3):
        b.one()
    assert not [call for call in b.nvml.calls if "Gpm" in call]


def test_nan_is_no_value(bench) -> None:
    b = bench(FakeGpu(tensor_percent=lambda _: float("nan")), fields={TENSOR})
    b.one()
    assert b.one().absent == {TENSOR: faults.NO_DATA}


def test_gpu_without_gpm_says_what_it_needs(bench) -> None:
    b = bench(FakeGpu(has_gpm=False), fields={TENSOR})
    assert b.one().absent == {TENSOR: "needs GPM (Hopper or newer)"}


def test_samples_closer_than_the_driver_allows_repeat_the_last_values(bench) -> None:
    b = bench(FakeGpu(tensor_percent=42), fields={TENSOR})
    b.one()
    b.one()
    assert b.one(after_s=0.05).values[TENSOR] == pytest.approx(0.42)


def test_samples_are_freed_in_the_end(bench) -> None:
    b = bench()
    b.one()
    b.one()
    assert b.nvml.held_samples == 4  # two for the graphics engine, two for the other counters
    b.reader.close()
    assert b.nvml.held_samples == 0
    assert not b.nvml.is_open


# Processes


def test_processes_with_memory_and_use(bench) -> None:
    b = bench(FakeGpu(processes=[FakeProcess(7, 70), FakeProcess(9, 30, name="/opt/x/train --a")]))
    b.one()
    processes = b.one().processes
    assert [(each.pid, each.name, each.sm_util, each.memory_used_mib) for each in processes] == [
        (7, "python3", 70, 512),
        (9, "train", 30, 512),
    ]


def turns(pid_now, percent, start_us=1_700_000_000_000_000):
    """Return the use of a process that every third look finds, or the others."""
    is_third = pid_now == 9
    return lambda now_us: percent if ((now_us - start_us) // 200_000 % 3 == 0) == is_third else 0


def test_use_is_the_mean_of_ten_seconds_asked_for_every_five(bench) -> None:
    gpu = FakeGpu(
        busy_percent=90, processes=[FakeProcess(7, turns(7, 90)), FakeProcess(9, turns(9, 90))]
    )
    b = bench(gpu, fields={UTIL})
    readings = [b.one() for _ in range(31)]
    # Of three looks two find the one process, at a GPU of 90 %: 60 and 30. Fifty looks are not a multiple of
    # three: 33 or 34 of them, and 16 or 17.
    for reading in readings[10:]:
        use = {each.pid: each.sm_util for each in reading.processes}
        assert use == {7: pytest.approx(60, abs=1), 9: pytest.approx(30, abs=1)}
    # Two processes use the GPU: at second 1, 3, 5 and so on until 31.
    assert b.nvml.count("nvmlDeviceGetProcessUtilization") == 16


def test_use_of_a_lone_process_is_asked_for_every_five_seconds(bench) -> None:
    b = bench(FakeGpu(busy_percent=50, processes=[FakeProcess(7, 50)]), fields={UTIL})
    for _ in range(31):
        b.one()
    # At second 1, 6, 11, 16, 21, 26 and 31.
    assert b.nvml.count("nvmlDeviceGetProcessUtilization") == 7


def test_new_process_is_asked_for_at_once(bench) -> None:
    gpu = FakeGpu(processes=[FakeProcess(7, 50)])
    b = bench(gpu, fields={UTIL})
    b.one()
    # It has had one second of the window of ten, five looks: the driver's mean is 2 %, its own 20 %.
    since_us = b.now_ms * 1000
    gpu.processes.append(FakeProcess(9, lambda at_us: 20 if at_us > since_us else 0))
    assert [(each.sm_util, each.looks) for each in b.one().processes] == [(50, 50), (20, 5)]
    assert b.nvml.count("nvmlDeviceGetProcessUtilization") == 2


def test_processes_without_a_sample_are_idle(bench) -> None:
    (process,) = bench(FakeGpu(processes=[FakeProcess(7, 0)])).one().processes
    assert (process.sm_util, process.mem_copy_util) == (0, 0)


def test_memory_that_the_driver_does_not_tell_is_none(bench) -> None:
    gpu = FakeGpu(processes=[FakeProcess(7, memory_bytes=0xFFFF_FFFF_FFFF_FFFF)])
    assert bench(gpu).one().processes[0].memory_used_mib is None
    assert (
        bench(FakeGpu(processes=[FakeProcess(7, memory_bytes=None)]))
        .one()
        .processes[0]
        .memory_used_mib
        is None
    )


def test_use_that_is_not_permitted_is_none_and_not_idle(bench) -> None:
    b = bench(FakeGpu(processes=[FakeProcess(7, 50)]))
    b.nvml.no_permission("nvmlDeviceGetProcessUtilization")
    (process,) = b.one().processes
    assert (process.sm_util, process.memory_used_mib) == (None, 512)


def test_junk_in_the_buffer_gives_no_process(bench) -> None:
    junk = [(0, 1_700_000_000_500_000, 50), (99, 1_700_000_000_500_000, 5_000)]
    assert bench(FakeGpu(junk_samples=junk)).one().processes == ()


# XIDs and clock events


def wait_for(condition) -> None:
    event = threading.Event()
    for _ in range(6_000):
        if condition():
            return
        event.wait(0.005)
    raise AssertionError("it did not come")


def test_no_xid_is_zero(bench) -> None:
    assert bench(fields={XID}).one().values == {XID: 0}


def test_latest_xid_stays_and_is_counted(bench) -> None:
    fields = {XID, "DCGM_EXP_XID_ERRORS_TOTAL", "DCGM_EXP_XID_ERRORS_COUNT"}
    b = bench(fields=fields)
    window = ("window_size_in_ms", "300000")
    assert b.one().events == (EventCount("DCGM_EXP_XID_ERRORS_COUNT", (window,), 0),)
    for number in (31, 13, 31):
        b.nvml.xid(0, number)
    wait_for(lambda: sum(event.value for event in b.one(0.001).events) == 6)
    reading = b.one()
    assert reading.values[XID] == 31
    assert set(reading.events) == {
        EventCount("DCGM_EXP_XID_ERRORS_COUNT", (window, ("xid", "13")), 1),
        EventCount("DCGM_EXP_XID_ERRORS_COUNT", (window, ("xid", "31")), 2),
        EventCount("DCGM_EXP_XID_ERRORS_TOTAL", (("xid", "13"),), 1),
        EventCount("DCGM_EXP_XID_ERRORS_TOTAL", (("xid", "31"),), 2),
    }
    later = b.one(after_s=301)
    assert EventCount("DCGM_EXP_XID_ERRORS_COUNT", (window,), 0) in later.events
    assert later.values[XID] == 31


def test_every_gpu_is_watched_before_the_waiting_begins() -> None:
    # While somebody waits, the driver lets nobody register: the second GPU would be opened 10 s late.
    nvml = FakeNvml([FakeGpu(), FakeGpu(), FakeGpu()])
    reader = NvmlReader(NvmlSettings(xid_wait_ms=10_000), library=nvml, fields=frozenset({XID}))
    try:
        readings = reader.read(time.time_ns() // 1_000_000)
        assert [reading.values for reading in readings] == [{XID: 0}] * 3
        nvml.xid(2, 31)
        wait_for(lambda: reader.read(time.time_ns() // 1_000_000)[2].values == {XID: 31})
    finally:
        reader.close()


def test_gpu_that_sends_no_events_has_no_xid_value(bench) -> None:
    b = bench(fields={XID})
    b.nvml.not_supported("nvmlDeviceRegisterEvents")
    assert b.one().absent == {XID: faults.NOT_SUPPORTED}


def test_clock_events_are_counted_by_cause(bench) -> None:
    b = bench(FakeGpu(clock_reasons=0x44), fields={"DCGM_EXP_CLOCK_EVENTS_TOTAL"})
    b.one()
    assert b.one().events == (
        EventCount("DCGM_EXP_CLOCK_EVENTS_TOTAL", (("clock_event", "power_cap"),), 2),
        EventCount("DCGM_EXP_CLOCK_EVENTS_TOTAL", (("clock_event", "hw_thermal"),), 2),
    )


# NVLink


def test_nvlink_traffic_is_a_rate_between_reads(bench) -> None:
    total = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
    start_us = 1_700_000_000_000_000

    def kib(now_us):
        return (now_us - start_us) // 1_000_000 * 1_000_000

    ids = {
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: kib,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: kib,
    }
    paces = NvmlSettings(nvlink_period_ms=0)
    b = bench(FakeGpu(field_values=ids), fields={total}, settings=paces)
    assert b.one().absent == {total: faults.NO_DATA}
    # Both ways 1 000 000 KiB = 1 024 MB a second.
    assert b.one().values == {total: 2048}


def test_nvlink_traffic_of_the_profiling_counters_is_of_every_read(bench) -> None:
    both, sent = (f"DCGM_FI_DEV_NVLINK_{way}BANDWIDTH_TOTAL" for way in ("", "TX_"))
    ids = {
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: 0,
        pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: 0,
    }
    gpu = FakeGpu(field_values=ids, nvlink_tx_mib_s=1000, nvlink_rx_mib_s=500)
    b = bench(gpu, fields={both, sent, TENSOR})
    b.one()
    # 1000 MiB are 1048.576 MB, 1500 are 1572.864.
    assert b.one().values == {both: 1573, sent: 1049, TENSOR: 0.0}
    gpu.nvlink_tx_mib_s = 0
    gpu.nvlink_rx_mib_s = 0
    assert b.one().values == {both: 0, sent: 0, TENSOR: 0.0}
    assert b.nvml.count("nvmlGpmMetricsGet") == 2


def test_profiling_counters_invent_no_traffic_where_there_is_no_nvlink(bench) -> None:
    total = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
    b = bench(FakeGpu(nvlink_tx_mib_s=0, nvlink_rx_mib_s=0), fields={total})
    b.one()
    assert b.one().absent == {total: faults.NOT_SUPPORTED}


def test_no_library_is_told_with_what_to_do(bench) -> None:
    b = bench()
    b.nvml.reset(code=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    with pytest.raises(UnavailableError) as raised:
        b.read()
    assert str(raised.value) == (
        "NVML can't be used: libnvidia-ml.so.1 was not found; install NVIDIA's driver, or in "
        "Kubernetes run the pod with NVIDIA's container runtime"
    )
