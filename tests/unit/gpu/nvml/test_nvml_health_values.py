"""What the driver gives about faults and causes on Hopper and later, over the stand-in."""

import pynvml
import pytest

from gpuscale.agent.nvml import faults
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.base.errors import UnavailableError
from gpuscale.testing.nvml import FakeGpu
from gpuscale.testing.nvml.gpus import Scripted

ACTION = "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION"
CAPPED = "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS"
CRC = "DCGM_FI_DEV_NVLINK_ERROR_DL_CRC"
SENT = "DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES"
STATE = "DCGM_FI_DEV_FABRIC_MANAGER_STATUS"
SUMMARY = "DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY"
UTIL = "DCGM_FI_DEV_GPU_UTIL"


def test_recovery_action_and_clock_event_times_are_read(bench) -> None:
    values: dict[int, Scripted] = {
        pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: 2,
        pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP: 1_500_000,
    }
    reading = bench(FakeGpu(field_values=values), fields={ACTION, CAPPED}).one()
    assert reading.values == {ACTION: 2, CAPPED: 1_500_000}


def test_link_counts_are_the_sum_of_the_links_that_have_them(bench) -> None:
    gpu = FakeGpu(link_counts={pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC: (3, 0, 4)})
    reading = bench(gpu, fields={CRC, SENT}).one()
    assert reading.values == {CRC: 7}
    assert reading.absent == {SENT: faults.NOT_SUPPORTED}


@pytest.mark.parametrize(
    ("fabric", "values"),
    [
        pytest.param(None, {STATE: 0}, id="none"),
        pytest.param((2, 0, 0), {STATE: 2, SUMMARY: 0}, id="being set up"),
        pytest.param((3, 0, 1), {STATE: 3, SUMMARY: 1}, id="set up"),
        pytest.param((3, 999, 2), {STATE: 4, SUMMARY: 2}, id="failed"),
    ],
)
def test_fabric_state_is_dcgms(bench, fabric, values) -> None:
    assert bench(FakeGpu(fabric=fabric), fields={STATE, SUMMARY}).one().values == values


def test_driver_without_the_fabric_call_has_no_state(bench) -> None:
    b = bench(FakeGpu(fabric=(3, 0, 1)), fields={STATE, UTIL})
    b.nvml.not_supported("nvmlDeviceGetGpuFabricInfoV")
    assert b.one().absent == {STATE: faults.NOT_SUPPORTED}


HOUR_S = 3600


def test_a_clock_set_back_does_not_keep_a_lost_gpu_lost(bench) -> None:
    settings = NvmlSettings(patience_ms=10_000, deadline_ms=30_000)
    b = bench(FakeGpu(busy_percent=40), FakeGpu(busy_percent=70), fields={UTIL}, settings=settings)
    b.read()
    b.nvml.lose(0)
    assert b.one().is_lost
    b.clock.advance(-HOUR_S)
    b.nvml.find(0)
    assert b.one().values[UTIL] == 40


def test_a_clock_set_back_does_not_keep_a_driver_away(bench) -> None:
    b = bench(FakeGpu(busy_percent=40), fields={UTIL})
    b.nvml.reset()
    with pytest.raises(UnavailableError):
        b.read()
    b.clock.advance(-HOUR_S)
    b.nvml.restore()
    assert b.one().values[UTIL] == 40


def test_ways_to_the_other_gpus_are_told(bench) -> None:
    gpus = FakeGpu(), FakeGpu(), FakeGpu(name="NVIDIA L4")
    first, second, _ = bench(*gpus, fields={"DCGM_EXP_P2P_STATUS", UTIL}).read()
    assert [(dict(each.labels), each.value) for each in first.events] == [
        ({"link_status": "OK", "peer_gpu": "1"}, 0),
        ({"link_status": "NotSupported", "peer_gpu": "2"}, 5),
    ]
    assert dict(second.events[0].labels)["peer_gpu"] == "0"


def test_driver_that_does_not_know_the_ways_is_left_alone_for_a_while(bench) -> None:
    b = bench(FakeGpu(), FakeGpu(), fields={"DCGM_EXP_P2P_STATUS", UTIL})
    b.nvml.not_supported("nvmlDeviceGetP2PStatus")
    assert b.one().events == b.one().events == ()
    assert b.nvml.count("nvmlDeviceGetP2PStatus") == 2
