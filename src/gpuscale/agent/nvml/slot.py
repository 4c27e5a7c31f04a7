"""A GPU's slot on the node: its current job, and its reading while it can't be read."""

import logging

from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading
from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.device import OpenGpu, ReaderContext
from gpuscale.agent.nvml.faults import (
    NO_ANSWER,
    READER_FAULT,
    CallFailedError,
    DriverGoneError,
    GpuLostError,
)
from gpuscale.agent.nvml.values.sources import RetryPause
from gpuscale.agent.nvml.workers import Work
from gpuscale.base.errors import UnavailableError

_log = logging.getLogger(__name__)

Readings = tuple[GpuReading, ...]


class Slot:
    """One of NVML's indexes, with the GPU that has it.

    Args:
        index: NVML's number.
        caller: makes the calls of this GPU.
        shared: with the other GPUs.
    """

    def __init__(self, index: int, caller: Caller, shared: ReaderContext) -> None:
        self.gpu = GpuIdentity(index, f"unknown-{index}", "", "")
        self.caller = caller
        self._shared = shared
        self.work: Work[Readings] = Work()
        self._open: OpenGpu | None = None
        self._lost: str | None = None
        self._retry = RetryPause()
        self._asked_ms: int | None = None

    @property
    def is_stuck(self) -> bool:
        """Return whether a call hangs."""
        return self.work.is_busy

    @property
    def is_lost(self) -> bool:
        """Return whether the last read failed."""
        return self._lost is not None

    def begin_open(self, now_ms: int) -> None:
        """Start to identify the slot's GPU; not while a call hangs."""
        self._asked_ms = now_ms
        self.work.begin(lambda: self._opened(now_ms))

    def begin_read(self, now_ms: int) -> None:
        """Start a read; not while a call hangs."""
        self._asked_ms = now_ms
        self.work.begin(lambda: self._read(now_ms))

    def begin_close(self) -> None:
        """Start to free the GPU's library objects; not while a call hangs."""
        self.work.begin(self._closed)

    def outcome(self, now_ms: int) -> Readings:
        """Return the readings of the current job, or a reading without values that gives the reason.

        What an earlier call brings late is old, and passed over.

        Raises:
            DriverGoneError: nothing can be read of any GPU.
        """
        if self._asked_ms != now_ms or not self.work.wait(0):
            return (self.without_values(NO_ANSWER, now_ms),)
        try:
            return self.work.take()
        except DriverGoneError:
            raise
        except (GpuLostError, CallFailedError) as failure:
            return (self.without_values(failure.reason, now_ms),)
        except Exception:  # noqa: BLE001 - whatever went wrong with one GPU, the others have readings
            _log.exception("reading GPU %d (%s) broke off", self.gpu.index, self.gpu.uuid)
            return (self.without_values(READER_FAULT, now_ms),)

    def without_values(self, reason: str, now_ms: int) -> GpuReading:
        """Return a reading with one reason for all fields."""
        return lost_reading(self.gpu, reason, self._shared, now_ms)

    def _opened(self, now_ms: int) -> Readings:
        self._ensure_open(now_ms)
        return ()

    def _read(self, now_ms: int) -> Readings:
        gpu = self._ensure_open(now_ms)
        try:
            return gpu.read(now_ms)
        except GpuLostError as failure:
            gpu.close()
            self._open = None
            raise self._lose(failure.reason, now_ms) from failure

    def _closed(self) -> Readings:
        if self._open is not None:
            self._open.close()
        return ()

    def _ensure_open(self, now_ms: int) -> OpenGpu:
        if self._open is not None:
            return self._open
        if self._lost is not None and not self._retry.is_over(now_ms):
            raise GpuLostError(self._lost)
        try:
            self._open = OpenGpu(self.caller, self.gpu.index, self._shared)
        except (GpuLostError, CallFailedError) as failure:
            raise self._lose(failure.reason, now_ms) from failure
        self._lost = None
        self.gpu = self._open.gpu
        return self._open

    def _lose(self, reason: str, now_ms: int) -> UnavailableError:
        self._lost = reason
        self._retry.begin(now_ms, self._shared.settings.lost_retry_ms)
        return GpuLostError(reason)


def lost_reading(gpu: GpuIdentity, reason: str, shared: ReaderContext, now_ms: int) -> GpuReading:
    """Return a reading without values. Events of the GPU are still reported: an XID may say why."""
    events = shared.xids.events(
        (gpu.uuid, None), now_ms, shared.settings.xid_window_ms, shared.fields
    )
    return GpuReading(gpu, now_ms, {}, dict.fromkeys(shared.fields, reason), (), events)
