"""The verdict on a GPU: which readings make it unhealthy, and which only warn."""

import pytest

from gpuscale.agent.gpu.health import WATCHES, health_of, status_events
from gpuscale.agent.gpu.readings import EventCount, GpuIdentity, GpuReading

GPU = GpuIdentity(0, "GPU-a", "00000000:1A:00.0", "NVIDIA H200")
GOOD = {
    "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": 0,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
    "DCGM_FI_DEV_ROW_REMAP_PENDING": 0,
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0,
    "DCGM_FI_DEV_FABRIC_MANAGER_STATUS": 3,
    "DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY": 1,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 0x4,
}


def verdict(events=(), **changed):
    values = GOOD | {f"DCGM_FI_DEV_{name}": value for name, value in changed.items()}
    found = health_of(GpuReading(GPU, 0, values, {}, (), tuple(events)))
    assert found is not None
    return found


def xid(number: int):
    labels = (("window_size_in_ms", "300000"), ("xid", str(number)))
    return EventCount("DCGM_EXP_XID_ERRORS_COUNT", labels, 1)


def test_busy_gpu_at_its_power_limit_is_healthy() -> None:
    assert verdict().problems == ()
    assert verdict().is_healthy


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        pytest.param({"GET_GPU_RECOVERY_ACTION": 1}, "needs_reset", id="reset"),
        pytest.param({"GET_GPU_RECOVERY_ACTION": 2}, "needs_reboot", id="reboot"),
        pytest.param({"GET_GPU_RECOVERY_ACTION": 3}, "needs_p2p_drain", id="drain P2P"),
        pytest.param({"GET_GPU_RECOVERY_ACTION": 4}, "needs_drain_and_reset", id="drain, reset"),
        pytest.param({"ROW_REMAP_FAILURE": 1}, "row_remap_failed", id="remap failed"),
        pytest.param({"FABRIC_MANAGER_STATUS": 1}, "fabric_not_started", id="no fabric yet"),
        pytest.param({"FABRIC_MANAGER_STATUS": 4}, "fabric_failed", id="fabric failed"),
        pytest.param({"FABRIC_HEALTH_SUMMARY": 2}, "fabric_unhealthy", id="fabric unhealthy"),
    ],
)
def test_what_makes_a_gpu_no_capacity(changed, reason: str) -> None:
    found = verdict(**changed)
    assert not found.is_healthy
    assert [each.reason for each in found.problems] == [reason]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        pytest.param({"ROW_REMAP_PENDING": 1}, "row_remap_pending", id="remap pending"),
        pytest.param({"ECC_DBE_VOL_TOTAL": 2}, "uncorrectable_ecc", id="double-bit errors"),
        pytest.param({"FABRIC_HEALTH_SUMMARY": 3}, "fabric_limited", id="fabric limited"),
        pytest.param({"CLOCKS_EVENT_REASONS": 0x40}, "slowed_by_heat", id="hardware heat"),
        pytest.param({"CLOCKS_EVENT_REASONS": 0x20}, "slowed_by_heat", id="driver's heat"),
        pytest.param({"CLOCKS_EVENT_REASONS": 0x80}, "slowed_by_power_brake", id="power brake"),
        pytest.param(
            {"NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS": 1}, "nvlink_not_recovered", id="link"
        ),
    ],
)
def test_what_only_warns(changed, reason: str) -> None:
    found = verdict(**changed)
    assert found.is_healthy
    assert [(each.reason, each.severity) for each in found.problems] == [(reason, "warning")]


def test_gpu_without_a_fabric_lacks_nothing() -> None:
    assert verdict(FABRIC_MANAGER_STATUS=0).is_healthy


@pytest.mark.parametrize(
    ("number", "is_healthy"),
    [(79, False), (48, False), (119, False), (13, True), (31, True), (94, True)],
)
def test_xids_of_the_hardware_count_and_those_of_programs_do_not(
    number: int, is_healthy: bool
) -> None:
    assert verdict([xid(number)]).is_healthy is is_healthy


def test_lost_gpu_is_unhealthy_and_one_of_which_nothing_is_known_has_no_verdict() -> None:
    lost = health_of(GpuReading(GPU, 0, {}, {"DCGM_FI_DEV_GPU_UTIL": "the GPU is lost"}))
    assert lost is not None
    assert [each.reason for each in lost.problems] == ["lost"]
    assert health_of(GpuReading(GPU, 0, {"DCGM_FI_DEV_GPU_UTIL": 1}, {})) is None


def test_status_by_subsystem_has_the_worst_of_each() -> None:
    found = status_events(verdict(ECC_DBE_VOL_TOTAL=1, ROW_REMAP_FAILURE=1))
    by_watch = {dict(each.labels)["health_watch"]: each for each in found}
    assert tuple(by_watch) == WATCHES
    assert by_watch["MEM"].value == 20
    assert dict(by_watch["MEM"].labels)["health_error_code"] == "DCGM_FR_ROW_REMAP_FAILURE"
    assert {each.value for watch, each in by_watch.items() if watch != "MEM"} == {0}
    assert dict(by_watch["PCIE"].labels)["health_error_code"] == "DCGM_FR_OK"
