"""Profiling counters from GPM, NVML's GPU performance monitoring: Hopper and newer, no privilege needed.

A value is the mean between two samples. Two buffers take turns: the newer sample of one read is the older
one of the next, so the windows of successive reads join without a gap. A read takes one sample and makes
one request, which is set up once and holds only what is wanted.

The graphics engine's activity is a source of its own: a request takes 0.03 ms for whatever metrics it holds,
and 1.4 ms more where that one is among them (H200, driver 580).

Source: NVIDIA nvml.h 13.0, nvmlGpmMetricId_t; NVIDIA DCGM 4 (which metric is which field).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.faults import (
    DRIVER_ERROR,
    IMPOSSIBLE,
    NEEDS_GPM,
    NO_DATA,
    OTHER_PROFILED,
    CallFailedError,
    field_reason,
)
from gpuscale.agent.nvml.library import Answer, Handle, profiling_turn
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.agent.nvml.values.sources import Findings, Retry, Value
from gpuscale.signals import FIELDS, NVLINK_LINKS

SHORTEST_MS = 100
"""Samples must lie at least this far apart."""
_MIB = 1024 * 1024
_UNITS: Mapping[bytes, float] = {
    b"%": 0.01,
    b"B/s": 1,
    b"KB/s": 1_000,
    b"KiB/s": 1_024,
    b"MB/s": 1_000_000,
    b"MiB/s": _MIB,
    b"GB/s": 1_000_000_000,
    b"GiB/s": 1_024 * _MIB,
}
"""A metric's unit, as NVML names it beside the value, to the factor that makes it a ratio or bytes/s."""
_HIGHEST_RATIO = 1.01
"""Counters are read one after the other, so that a full pipe may come out a little above 1."""

_METRICS: Mapping[str, int] = {
    "GR_ENGINE_ACTIVE": 1,
    "SM_ACTIVE": 2,
    "SM_OCCUPANCY": 3,
    "PIPE_INT_ACTIVE": 4,
    "PIPE_TENSOR_ACTIVE": 5,
    "PIPE_TENSOR_DFMA_ACTIVE": 6,
    "PIPE_TENSOR_HMMA_ACTIVE": 7,
    "PIPE_TENSOR_IMMA_ACTIVE": 9,
    "DRAM_ACTIVE": 10,
    "PIPE_FP64_ACTIVE": 11,
    "PIPE_FP32_ACTIVE": 12,
    "PIPE_FP16_ACTIVE": 13,
    "PCIE_TX_BYTES": 20,
    "PCIE_RX_BYTES": 21,
    **{f"NVDEC{n}_ACTIVE": 30 + n for n in range(8)},
    **{f"NVJPG{n}_ACTIVE": 40 + n for n in range(8)},
    **{f"NVOFA{n}_ACTIVE": 50 + n for n in range(2)},
    "NVLINK_RX_BYTES": 60,
    "NVLINK_TX_BYTES": 61,
    **{f"NVLINK_L{link}_RX_BYTES": 62 + 2 * link for link in range(NVLINK_LINKS)},
    **{f"NVLINK_L{link}_TX_BYTES": 63 + 2 * link for link in range(NVLINK_LINKS)},
    "C2C_TX_ALL_BYTES": 100,
    "C2C_RX_ALL_BYTES": 101,
    "C2C_TX_DATA_BYTES": 102,
    "C2C_RX_DATA_BYTES": 103,
}
GPM_METRICS: Mapping[str, int] = {f"DCGM_FI_PROF_{name}": id_ for name, id_ in _METRICS.items()}
"""DCGM profiling field to GPM metric."""
GRAPHICS_FIELDS = frozenset({"DCGM_FI_PROF_GR_ENGINE_ACTIVE"})
"""The costly one."""


@dataclass(frozen=True, slots=True)
class GpmTarget:
    """A GPU, or a GPU instance, that is sampled."""

    gpu: Handle
    instance_id: int | None = None


class Gpm:
    """Profiling values of one GPU or MIG instance.

    Args:
        caller: of the GPU.
        target: what to sample.
        fields: which values.
        settings: when to ask again for what is not supported.
    """

    def __init__(
        self, caller: Caller, target: GpmTarget, fields: frozenset[str], settings: NvmlSettings
    ) -> None:
        self._caller = caller
        self._target = target
        self._fields = [field for field in GPM_METRICS if field in fields]
        self._retry = Retry(settings.unsupported_retry_ms)
        self._is_supported: bool | None = None
        self._turn = profiling_turn(caller.library)
        self._patience_s = settings.patience_ms / 1000
        self._older: _Sample | None = None
        self._spare: Answer = None
        self._request: Answer = None
        self._metrics: list[tuple[str, Answer]] = []
        self._findings = Findings()
        self.fields = frozenset(self._fields)
        self._findings.miss(self.fields, NO_DATA)

    def read(self, now_ms: int) -> Findings:
        """Return a value or a reason for each field; the first reading has no value yet."""
        reason = self._retry.reason(now_ms)
        if reason is not None:
            return self._absent(reason)
        if self._older is not None and 0 <= now_ms - self._older.taken_ms < SHORTEST_MS:
            return self._findings
        if not self._turn.take(self._patience_s):
            return self._absent(OTHER_PROFILED)
        try:
            if not self._supported():
                return self._absent(NEEDS_GPM)
            self._findings = self._advance(now_ms)
        except CallFailedError as failure:
            self._free()
            self._findings = self._absent(self._retry.note(failure, now_ms))
        finally:
            self._turn.give_back()
        return self._findings

    def close(self) -> None:
        if not self._turn.take(self._patience_s):
            return  # two samples stay allocated while a call for another GPU hangs
        try:
            self._free()
        finally:
            self._turn.give_back()

    def _free(self) -> None:
        held = [self._older.buffer] if self._older is not None else []
        if self._spare is not None:
            held.append(self._spare)
        self._older = self._spare = None
        for buffer in held:
            self._caller.call("gpm", "nvmlGpmSampleFree", buffer)

    def _absent(self, reason: str) -> Findings:
        found = Findings()
        found.miss(self.fields, reason)
        return found

    def _supported(self) -> bool:
        if self._is_supported is None:
            try:
                support = self._caller.call("gpm", "nvmlGpmQueryDeviceSupport", self._target.gpu)
                self._is_supported = bool(support.isSupportedDevice)
            except CallFailedError as failure:
                if not failure.is_lasting:
                    raise
                self._is_supported = False
        return self._is_supported

    def _advance(self, now_ms: int) -> Findings:
        """Take a sample, and return the values since the one before."""
        buffer, self._spare = self._spare, None
        if buffer is None:
            buffer = self._caller.call("gpm", "nvmlGpmSampleAlloc")
        newer = _Sample(buffer, now_ms)
        older, self._older = self._older, newer
        self._spare = older.buffer if older is not None else None
        target = self._target
        if target.instance_id is None:
            self._caller.call("gpm", "nvmlGpmSampleGet", target.gpu, buffer)
        else:
            self._caller.call("gpm", "nvmlGpmMigSampleGet", target.gpu, target.instance_id, buffer)
        if older is None or older.taken_ms > now_ms:
            return self._absent(NO_DATA)
        return self._values(older.buffer, buffer)

    def _values(self, older: Answer, newer: Answer) -> Findings:
        request = self._request
        if request is None:
            request = self._request = self._caller.library.c_nvmlGpmMetricsGet_t()
            request.version = self._caller.constant("NVML_GPM_METRICS_GET_VERSION")
            request.numMetrics = len(self._fields)
            for n, field in enumerate(self._fields):
                request.metrics[n].metricId = GPM_METRICS[field]
            # Where each field's value will be.
            self._metrics = [(field, request.metrics[n]) for n, field in enumerate(self._fields)]
        request.sample1, request.sample2 = older, newer
        self._caller.call("gpm", "nvmlGpmMetricsGet", request)
        found = Findings()
        for field, metric in self._metrics:
            _put(field, metric, found)
        return found


@dataclass(frozen=True, slots=True)
class _Sample:
    """A sample with its time."""

    buffer: Answer
    taken_ms: int


def _put(field: str, metric: Answer, found: Findings) -> None:
    if metric.nvmlReturn != 0:
        found.absent[field] = field_reason(metric.nvmlReturn)
        return
    value = metric.value
    if math.isnan(value):
        found.absent[field] = NO_DATA
        return
    factor = _UNITS.get(metric.metricInfo.unit)
    if factor is None:
        found.absent[field] = DRIVER_ERROR
        return
    converted = _CONVERSIONS[FIELDS[field].unit](value * factor)
    if converted is None:
        found.absent[field] = IMPOSSIBLE
    else:
        found.values[field] = converted


def _ratio(value: float) -> float | None:
    return min(1.0, value) if 0.0 <= value <= _HIGHEST_RATIO else None


def _bytes(value: float) -> Value | None:
    return round(value) if 0.0 <= value < math.inf else None


_CONVERSIONS: Mapping[str, Callable[[float], Value | None]] = {
    "ratio": _ratio,
    "bytes/s": _bytes,
}
