"""Fields that one NVML call returns together, by NVML's field ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.faults import (
    DRIVER_ERROR,
    IMPOSSIBLE,
    NO_DATA,
    CallFailedError,
    fault,
    field_reason,
    is_gpu_loss,
)
from gpuscale.agent.nvml.library import Answer, Handle, union_value
from gpuscale.agent.nvml.values.rows import HOTTEST_C
from gpuscale.agent.nvml.values.sources import Findings, Retry

BatchPace = Literal["read", "second", "counters", "energy"]
ALL_LINKS = 0xFFFF_FFFF
"""The scope that means the sum over the links."""
_KIB_TO_MB = 1024 / 1_000_000


@dataclass(frozen=True, slots=True)
class BatchField:
    """A DCGM field with its NVML field id."""

    field: str
    nvml_name: str
    """Of the library's constant with the id."""
    scale: float = 1.0
    at_most: float | None = None
    """Above it the value is a fault of the sensor."""


@dataclass(frozen=True, slots=True)
class FieldCall:
    """Fields that are read in one call."""

    source: str
    pace: BatchPace
    fields: tuple[BatchField, ...]


def _same_names(*names: str) -> tuple[BatchField, ...]:
    """Return fields with the same name in DCGM and NVML."""
    return tuple(BatchField(f"DCGM_FI_DEV_{name}", f"NVML_FI_DEV_{name}") for name in names)


_VIOLATIONS = {
    "POWER": "POWER",
    "THERMAL": "THERMAL",
    "SYNC_BOOST": "SYNC_BOOST",
    "BOARD_LIMIT": "BOARD_LIMIT",
    "LOW_UTIL": "LOW_UTILIZATION",
    "RELIABILITY": "RELIABILITY",
    "TOTAL_APP_CLOCKS": "TOTAL_APP_CLOCKS",
    "TOTAL_BASE_CLOCKS": "TOTAL_BASE_CLOCKS",
}
_CLOCK_EVENTS = (
    "SW_POWER_CAP",
    "SYNC_BOOST",
    "SW_THERM_SLOWDOWN",
    "HW_THERM_SLOWDOWN",
    "HW_POWER_BRAKE_SLOWDOWN",
)
_ECC_PLACES = ("L1", "L2", "DEV", "REG", "TEX")
_NVLINK_ERRORS = ("CRC_FLIT", "CRC_DATA", "REPLAY", "RECOVERY")
_COUNTED_LINKS = 12
"""Links that NVML has error counters of."""

BATCHES = (
    FieldCall(
        "temperature",
        "second",
        (BatchField("DCGM_FI_DEV_MEMORY_TEMP", "NVML_FI_DEV_MEMORY_TEMP", at_most=HOTTEST_C),),
    ),
    FieldCall(
        "power",
        "read",
        (BatchField("DCGM_FI_DEV_POWER_USAGE_INSTANT", "NVML_FI_DEV_POWER_INSTANT", 1 / 1000),),
    ),
    FieldCall("energy", "energy", _same_names("TOTAL_ENERGY_CONSUMPTION")),
    FieldCall(
        "violations",
        "counters",
        tuple(
            BatchField(f"DCGM_FI_DEV_{ours}_VIOLATION", f"NVML_FI_DEV_PERF_POLICY_{theirs}")
            for ours, theirs in _VIOLATIONS.items()
        ),
    ),
    FieldCall(
        "clock_event_times",
        "counters",
        tuple(
            BatchField(
                f"DCGM_FI_DEV_CLOCKS_EVENT_REASON_{name}_NS",
                f"NVML_FI_DEV_CLOCKS_EVENT_REASON_{name}",
            )
            for name in _CLOCK_EVENTS
        ),
    ),
    FieldCall("recovery_action", "counters", _same_names("GET_GPU_RECOVERY_ACTION")),
    FieldCall(
        "c2c",
        "counters",
        _same_names(
            "C2C_LINK_COUNT",
            "C2C_LINK_ERROR_INTR",
            "C2C_LINK_ERROR_REPLAY",
            "C2C_LINK_ERROR_REPLAY_B2B",
        ),
    ),
    FieldCall("pcie_errors", "counters", _same_names("PCIE_COUNT_CORRECTABLE_ERRORS")),
    FieldCall(
        "ecc",
        "counters",
        _same_names(
            "ECC_CURRENT",
            "ECC_PENDING",
            *(f"ECC_{kind}_{span}_TOTAL" for span in ("VOL", "AGG") for kind in ("SBE", "DBE")),
            *(
                f"ECC_{kind}_{span}_{place}"
                for span in ("VOL", "AGG")
                for place in _ECC_PLACES
                for kind in ("SBE", "DBE")
            ),
            "ECC_DBE_VOL_CBU",
            "ECC_DBE_AGG_CBU",
        ),
    ),
    FieldCall(
        "retired_pages", "counters", _same_names("RETIRED_SBE", "RETIRED_DBE", "RETIRED_PENDING")
    ),
    FieldCall(
        "nvlink_errors",
        "counters",
        _same_names(
            *(
                f"NVLINK_{kind}_ERROR_COUNT_{which}"
                for kind in _NVLINK_ERRORS
                for which in ("TOTAL", *(f"L{link}" for link in range(_COUNTED_LINKS)))
            )
        ),
    ),
)
"""Every batch, in the order of the calls."""


class FieldBatch:
    """Reads the fields of one batch.

    Args:
        caller: of the GPU.
        handle: of the GPU.
        batch: what to ask for.
        fields: which of them.
        retry_ms: when to ask again when the call as a whole is not supported.
    """

    def __init__(
        self,
        caller: Caller,
        handle: Handle,
        batch: FieldCall,
        fields: frozenset[str],
        retry_ms: int,
    ) -> None:
        self._caller = caller
        self._handle = handle
        self._source = batch.source
        self._rows = [each for each in batch.fields if each.field in fields]
        self._retry = Retry(retry_ms)
        self.fields = frozenset(each.field for each in self._rows)

    def read(self, now_ms: int) -> Findings:
        """Return a value or a reason for each field."""
        found = Findings()
        reason = self._retry.reason(now_ms)
        if reason is not None:
            found.miss(self.fields, reason)
            return found
        try:
            ids = [self._caller.constant(row.nvml_name) for row in self._rows]
            answers = ask(self._caller, self._source, self._handle, ids)
        except CallFailedError as failure:
            found.miss(self.fields, self._retry.note(failure, now_ms))
            return found
        for row, answer in zip(self._rows, answers, strict=True):
            _put(row, answer, found)
        return found

    def close(self) -> None:
        """Do nothing: a batch holds no resources."""


def ask(caller: Caller, source: str, handle: Handle, ids: Sequence[Answer]) -> Answer:
    """Return one `nvmlFieldValue_t` for each id, or pair of id and scope.

    Raises:
        CallFailedError: the call failed as a whole.
        GpuLostError: the GPU is gone.
    """
    answers = caller.call(source, "nvmlDeviceGetFieldValues", handle, ids)
    for answer in answers:
        if is_gpu_loss(answer.nvmlReturn):
            raise fault(answer.nvmlReturn)
    return answers


def _put(row: BatchField, answer: Answer, found: Findings) -> None:
    if answer.nvmlReturn != 0:
        found.absent[row.field] = field_reason(answer.nvmlReturn)
        return
    value = union_value(answer.valueType, answer.value)
    if value is None:
        found.absent[row.field] = DRIVER_ERROR
    elif row.at_most is not None and value > row.at_most:
        found.absent[row.field] = IMPOSSIBLE
    else:
        found.values[row.field] = value if row.scale == 1.0 else value * row.scale


@dataclass(frozen=True, slots=True)
class LinkRate:
    """A rate computed from cumulative NVLink counters."""

    field: str
    ways: tuple[str, ...]
    """Constants with the ids of the counters that are added up, in KiB."""
    scope: int


_TX = "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX"
_RX = "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX"
LINK_RATES = (
    LinkRate("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", (_TX, _RX), ALL_LINKS),
    LinkRate("DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_TOTAL", (_TX,), ALL_LINKS),
    LinkRate("DCGM_FI_DEV_NVLINK_RX_BANDWIDTH_TOTAL", (_RX,), ALL_LINKS),
    *(
        LinkRate(f"DCGM_FI_DEV_NVLINK_BANDWIDTH_L{link}", (_TX, _RX), link)
        for link in range(_COUNTED_LINKS)
    ),
)
"""NVLink traffic without its protocol's overhead, in MB/s."""


class LinkRates:
    """NVLink traffic between two reads.

    Args:
        caller: of the GPU.
        handle: of the GPU.
        fields: which rates.
        retry_ms: when to ask again where there is no NVLink.
    """

    def __init__(
        self, caller: Caller, handle: Handle, fields: frozenset[str], retry_ms: int
    ) -> None:
        self._caller = caller
        self._handle = handle
        self._rates = [each for each in LINK_RATES if each.field in fields]
        self._retry = Retry(retry_ms)
        self._last: dict[str, tuple[int, float]] = {}
        self.fields = frozenset(each.field for each in self._rates)

    def read(self, now_ms: int) -> Findings:
        """Return a value or a reason for each field; the first reading has no rate yet."""
        found = Findings()
        reason = self._retry.reason(now_ms)
        if reason is not None:
            found.miss(self.fields, reason)
            return found
        try:
            counters = self._counters()
        except CallFailedError as failure:
            self._last.clear()
            found.miss(self.fields, self._retry.note(failure, now_ms))
            return found
        for rate in self._rates:
            value = self._rate(rate.field, counters[rate.field], now_ms)
            if value is None:
                found.absent[rate.field] = NO_DATA
            else:
                found.values[rate.field] = value
        return found

    def close(self) -> None:
        """Do nothing: counters hold no resources."""

    def _counters(self) -> dict[str, float]:
        """Return the sum of each rate's counters, in KiB."""
        asked = [
            (rate.field, (self._caller.constant(way), rate.scope))
            for rate in self._rates
            for way in rate.ways
        ]
        answers = ask(self._caller, "nvlink", self._handle, [pair for _, pair in asked])
        sums: dict[str, float] = {}
        for (field, _), answer in zip(asked, answers, strict=True):
            if answer.nvmlReturn != 0:
                raise CallFailedError(field_reason(answer.nvmlReturn))
            sums[field] = sums.get(field, 0.0) + (union_value(answer.valueType, answer.value) or 0)
        return sums

    def _rate(self, field: str, kib: float, now_ms: int) -> int | None:
        """Return MB/s since the last read; None if unknown."""
        before = self._last.get(field)
        self._last[field] = (now_ms, kib)
        if before is None or now_ms <= before[0] or kib < before[1]:
            return None
        return round((kib - before[1]) * _KIB_TO_MB / ((now_ms - before[0]) / 1000))
