"""What looks back over a window, where the machine's clock is set while it does."""

import io

from gpuscale.agent.attribution.processes.shares import ContainerShare
from gpuscale.agent.exporter.families.azure import AzureCluster, AzureMetrics
from gpuscale.agent.exporter.families.containers import GpuShares
from gpuscale.agent.gpu.owners import ContainerRef, NodeGpuResources
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading
from gpuscale.agent.nvml.values.clock_events import ClockEventCounts
from gpuscale.agent.nvml.xid import XidLog
from gpuscale.agent.recordings.recording import ReadingRecorder, read_recording

NOW_MS = 1_800_000_000_000
HOUR_MS, MINUTE_MS, WINDOW_MS = 3_600_000, 60_000, 300_000
GPU = GpuIdentity(0, "GPU-1", "00000000:1A:00.0", "NVIDIA H200")
PLACE = ("GPU-1", None)
SLOWDOWN = "DCGM_EXP_CLOCK_EVENTS_COUNT"
XIDS = "DCGM_EXP_XID_ERRORS_COUNT"


def reading(at_ms, **values):
    return GpuReading(GPU, at_ms, values, {})


def duty_cycle(*uses):
    """Return the mean of the uses (milliseconds, percent) of one container."""
    azure = AzureMetrics(AzureCluster())
    for at_ms, percent in uses:
        share = ContainerShare(ContainerRef("ml", "bert-0", "main"), percent, 1)
        azure.observe((GpuShares(reading(at_ms, DCGM_FI_DEV_FB_TOTAL=100), (share,)),), at_ms)
    families = azure.families(NodeGpuResources())
    (sample,) = next(each for each in families if each.name == "containerGpuDutyCycle").samples
    return sample.value


def test_azures_minute_forgets_what_was_before_a_clock_was_set_back() -> None:
    assert duty_cycle((NOW_MS, 10), (NOW_MS + 1_000, 30)) == 20
    assert duty_cycle((NOW_MS, 10), (NOW_MS - HOUR_MS, 30), (NOW_MS - HOUR_MS + 1_000, 50)) == 40
    assert duty_cycle((NOW_MS, 10), (NOW_MS + HOUR_MS, 30)) == 30


def test_clock_events_of_before_a_clock_was_set_back_are_not_counted_on() -> None:
    counts = ClockEventCounts(WINDOW_MS, frozenset({SLOWDOWN}))
    counts.add(NOW_MS, 1)
    counts.add(NOW_MS + 1_000, 1)
    assert [each.value for each in counts.events()] == [2]
    counts.add(NOW_MS - HOUR_MS, 1)
    assert [each.value for each in counts.events()] == [1]


def xids(log, now_ms):
    return [each.value for each in log.events(PLACE, now_ms, WINDOW_MS, frozenset({XIDS}))]


def test_an_xid_counts_for_one_more_window_after_a_clock_was_set_back() -> None:
    log = XidLog()
    log.add(PLACE, 79, NOW_MS)
    assert xids(log, NOW_MS) == [1]
    back_ms = NOW_MS - HOUR_MS
    assert xids(log, back_ms) == [1]
    assert xids(log, back_ms + WINDOW_MS - 1) == [1]
    assert xids(log, back_ms + WINDOW_MS) == [0]


def test_a_recording_goes_on_from_where_a_clock_was_set_back() -> None:
    lines = io.StringIO()
    recorder = ReadingRecorder(lines)
    for at_ms in (NOW_MS, NOW_MS + 1_000, NOW_MS - HOUR_MS, NOW_MS - HOUR_MS + 1_000):
        recorder.write((reading(at_ms - 100),), now_ms=at_ms)
    ticks = list(read_recording(io.StringIO(lines.getvalue())))
    assert [each.now_ms - NOW_MS for each in ticks] == [0, 1_000, 1_000, 2_000]
    assert {each.now_ms - each.readings[0].measured_ms for each in ticks} == {100}
