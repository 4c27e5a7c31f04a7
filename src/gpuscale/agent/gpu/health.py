"""GPU health: a verdict with reasons, from a GPU's readings.

A GPU is unhealthy when work on it fails or must not be started: it is lost, waits for a reset, its memory is
beyond repair, its fabric is not set up, or it has just raised an XID of its own. What only slows it down, or
is repaired at the next reset, is a warning: the GPU still counts.

Source: NVIDIA nvml.h 13.0 (`nvmlDeviceGpuRecoveryAction_t`, `NVML_GPU_FABRIC_*`, clocks event reasons);
    NVIDIA XID catalog; DCGM 4, dcgm_structs.h and dcgm_errors.h (health watches and `DCGM_FR_*`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from gpuscale.agent.gpu.readings import EventCount, GpuReading

Severity = Literal["fatal", "warning"]

RECOVERY = "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION"
REMAP_FAILED = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
REMAP_PENDING = "DCGM_FI_DEV_ROW_REMAP_PENDING"
DOUBLE_BIT = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
RETIRED_PENDING = "DCGM_FI_DEV_RETIRED_PENDING"
LINK_FAILED = "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS"
FABRIC_STATE = "DCGM_FI_DEV_FABRIC_MANAGER_STATUS"
FABRIC_SUMMARY = "DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY"
SLOWED_BY = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
HEALTH_FIELDS = frozenset(
    {
        RECOVERY,
        REMAP_FAILED,
        REMAP_PENDING,
        DOUBLE_BIT,
        RETIRED_PENDING,
        LINK_FAILED,
        FABRIC_STATE,
        FABRIC_SUMMARY,
        SLOWED_BY,
        XID_COUNT,
    }
)
"""What a verdict is made of."""
STATUS_FIELD = "DCGM_EXP_GPU_HEALTH_STATUS"

BROKEN_XIDS = frozenset(
    {48, 62, 64, 74, 79, 92, 95, 109, 119, 120, 136, 140, 143, 155, 157, 158, 161, 167, 171, 172}
)
"""Those that the GPU, its memory or its links raise, and that a program can't."""


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """A fault of a GPU."""

    reason: str
    """One of a fixed set of words, fit for a metric's label; an XID's has its number."""
    severity: Severity
    watch: str
    """DCGM's subsystem."""
    code: str
    """DCGM's word for it."""


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """The verdict on a GPU's health."""

    problems: tuple[HealthProblem, ...]

    @property
    def is_healthy(self) -> bool:
        """Return whether the GPU counts as capacity."""
        return all(each.severity != "fatal" for each in self.problems)


def _fatal(reason: str, watch: str, code: str) -> HealthProblem:
    return HealthProblem(reason, "fatal", watch, f"DCGM_FR_{code}")


def _warning(reason: str, watch: str, code: str) -> HealthProblem:
    return HealthProblem(reason, "warning", watch, f"DCGM_FR_{code}")


LOST = _fatal("lost", "ALL", "FALLEN_OFF_BUS")
BY_VALUE: Mapping[str, Mapping[int, HealthProblem]] = MappingProxyType(
    {
        RECOVERY: {
            1: _fatal("needs_reset", "ALL", "GPU_RECOVERY_RESET"),
            2: _fatal("needs_reboot", "ALL", "GPU_RECOVERY_REBOOT"),
            3: _fatal("needs_p2p_drain", "ALL", "GPU_RECOVERY_DRAIN_P2P"),
            4: _fatal("needs_drain_and_reset", "ALL", "GPU_RECOVERY_DRAIN_RESET"),
        },
        REMAP_FAILED: {1: _fatal("row_remap_failed", "MEM", "ROW_REMAP_FAILURE")},
        REMAP_PENDING: {1: _warning("row_remap_pending", "MEM", "PENDING_ROW_REMAP")},
        FABRIC_STATE: {
            1: _fatal("fabric_not_started", "NVLINK", "FABRIC_PROBE_STATE"),
            2: _fatal("fabric_in_progress", "NVLINK", "FABRIC_PROBE_STATE"),
            4: _fatal("fabric_failed", "NVLINK", "FABRIC_MANAGER_TRAINING_ERROR"),
        },
        FABRIC_SUMMARY: {
            2: _fatal("fabric_unhealthy", "NVLINK", "FABRIC_PROBE_STATE"),
            3: _warning("fabric_limited", "NVLINK", "FABRIC_PROBE_STATE"),
        },
    }
)
"""Field and value to what is wrong; other values are good."""
ABOVE_ZERO: Mapping[str, HealthProblem] = MappingProxyType(
    {
        DOUBLE_BIT: _warning("uncorrectable_ecc", "MEM", "VOLATILE_DBE_DETECTED"),
        RETIRED_PENDING: _warning("page_retirement_pending", "MEM", "PENDING_PAGE_RETIREMENTS"),
        LINK_FAILED: _warning("nvlink_not_recovered", "NVLINK", "NVLINK_DOWN"),
    }
)
"""Counts that are good at zero only."""
SLOWED: tuple[tuple[int, HealthProblem], ...] = (
    (0x40 | 0x20, _warning("slowed_by_heat", "THERMAL", "CLOCK_THROTTLE_THERMAL")),
    (0x80, _warning("slowed_by_power_brake", "POWER", "CLOCK_THROTTLE_POWER")),
)
"""Bits of the causes of slow clocks. The power limit is none: a busy GPU is at it."""

WATCHES = (
    "PCIE",
    "NVLINK",
    "PMU",
    "MCU",
    "MEM",
    "SM",
    "INFOROM",
    "THERMAL",
    "POWER",
    "DRIVER",
    "ALL",
)
"""DCGM's subsystems, in the order of its exporter."""
_RESULTS: Mapping[Severity, int] = MappingProxyType({"warning": 10, "fatal": 20})
_OK = "DCGM_FR_OK"


def health_of(reading: GpuReading) -> HealthVerdict | None:
    """Return the verdict on a GPU; None if none of its inputs could be read."""
    if reading.is_lost:
        return HealthVerdict((LOST,))
    if HEALTH_FIELDS.isdisjoint(reading.values):
        return None
    return HealthVerdict(tuple(_problems(reading)))


def _problems(reading: GpuReading) -> Iterator[HealthProblem]:
    values = reading.values
    for field, problems in BY_VALUE.items():
        if field in values and (problem := problems.get(int(values[field]))) is not None:
            yield problem
    for field, problem in ABOVE_ZERO.items():
        if field in values and int(values[field]) > 0:
            yield problem
    mask = int(values.get(SLOWED_BY, 0))
    yield from (problem for bits, problem in SLOWED if mask & bits)
    yield from (_fatal(f"xid_{xid}", "ALL", "XID_ERROR") for xid in _broken_xids(reading.events))


def _broken_xids(events: Sequence[EventCount]) -> list[int]:
    """Return the window's XIDs that indicate broken hardware rather than a faulty program."""
    counted = (dict(each.labels).get("xid", "") for each in events if each.field == XID_COUNT)
    return sorted(int(xid) for xid in counted if xid and int(xid) in BROKEN_XIDS)


def status_events(verdict: HealthVerdict) -> tuple[EventCount, ...]:
    """Return the samples of dcgm-exporter's health family: 0 pass, 10 warn, 20 fail, by subsystem."""
    worst: dict[str, HealthProblem] = {}
    for problem in verdict.problems:
        known = worst.get(problem.watch)
        if known is None or _RESULTS[problem.severity] > _RESULTS[known.severity]:
            worst[problem.watch] = problem
    return tuple(_status(watch, worst.get(watch)) for watch in WATCHES)


def _status(watch: str, problem: HealthProblem | None) -> EventCount:
    code = _OK if problem is None else problem.code
    labels = (("health_error_code", code), ("health_watch", watch))
    return EventCount(STATUS_FIELD, labels, 0 if problem is None else _RESULTS[problem.severity])
