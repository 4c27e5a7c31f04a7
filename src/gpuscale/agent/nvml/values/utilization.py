"""How busy a GPU was between two reads, not just at the moment of the read.

The driver computes a figure every 200 ms or so, and the mean of its figures is the utilisation of the window.
While reads come often they have been asked for one by one (`polls`). Where those don't cover the window, the
driver's buffer of past figures does; where it has no such buffer either, its newest figure is taken. Which of
them was used is in the names that the calls are counted under: `utilization_rates`, `utilization_samples` and
`memory_utilization_samples`.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.faults import IMPOSSIBLE, NO_DATA, CallFailedError
from gpuscale.agent.nvml.library import Handle, utilization_samples
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.agent.nvml.values.polls import Poller
from gpuscale.agent.nvml.values.sources import Findings, PeriodicTurn, Retry
from gpuscale.agent.nvml.values.windows import HIGHEST_PERCENT, mean_percent

_CLOCK_LEAD_US = 1_000_000
"""How far a sample may be ahead of our clock before one of the two must have been set."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """GPU utilization or memory utilization."""

    field: str
    source: str
    """Under which name calls for its buffer are counted."""
    samples: str
    """The library's constant for the buffer."""
    rate: str
    """Its member in what the driver computes itself."""


GPU_UTIL = "DCGM_FI_DEV_GPU_UTIL"
MEMORY_UTIL = "DCGM_FI_DEV_MEM_COPY_UTIL"
_GPU = _Kind(GPU_UTIL, "utilization_samples", "NVML_GPU_UTILIZATION_SAMPLES", "gpu")
_MEMORY = _Kind(
    MEMORY_UTIL, "memory_utilization_samples", "NVML_MEMORY_UTILIZATION_SAMPLES", "memory"
)
UTILIZATION_CALLS: Mapping[str, str] = dict.fromkeys(
    (GPU_UTIL, MEMORY_UTIL), "nvmlDeviceGetUtilizationRates every 200 ms, or nvmlDeviceGetSamples"
)
"""Where each comes from."""
UTILIZATION_FIELDS = frozenset(UTILIZATION_CALLS)


class Utilization:
    """GPU and memory utilisation of one GPU.

    Args:
        caller: of the GPU.
        handle: of the GPU.
        fields: which of the two, or both.
        settings: windows, and the pace of looking into the driver's buffers.
        poller: asks for the driver's figures beside the reads.
        shift: of the turns of looking into the buffers.
    """

    def __init__(
        self,
        caller: Caller,
        handle: Handle,
        fields: frozenset[str],
        settings: NvmlSettings,
        poller: Poller,
        shift: float,
    ) -> None:
        self.fields = UTILIZATION_FIELDS & fields
        self._caller = caller
        self._handle = handle
        self._poller = poller
        self._polls = poller.watch(handle)
        turns = {
            GPU_UTIL: PeriodicTurn(settings.utilization_period_ms, shift),
            MEMORY_UTIL: PeriodicTurn(settings.memory_utilization_period_ms, shift),
        }
        self._means = [
            _Mean(caller, handle, kind, settings, turns[kind.field])
            for kind in (_GPU, _MEMORY)
            if kind.field in fields
        ]
        self._retry = Retry(settings.unsupported_retry_ms)

    def read(self, now_ms: int) -> Findings:
        """Return a value or a reason for each field."""
        if self._poller.is_polling and self._polls.is_kept_up(now_ms * 1000):
            # The newest figure too, which the poller's thread would get up to a period later.
            with suppress(CallFailedError):  # the thread notices by itself
                rates = self._caller.call(
                    "utilization_rates", "nvmlDeviceGetUtilizationRates", self._handle
                )
                self._polls.add(now_ms * 1000, rates)
        found = Findings()
        without: list[_Kind] = []
        for mean in self._means:
            since_us = mean.since_us(now_ms)
            figures = self._polls.window(mean.kind.rate, since_us, now_ms * 1000)
            value = mean.read(now_ms) if figures is None else mean.take(figures, now_ms)
            if value is None:
                without.append(mean.kind)
            else:
                found.values[mean.kind.field] = round(value)
        if without:
            self._ask_driver(without, now_ms, found)
        return found

    def close(self) -> None:
        self._poller.leave(self._polls)

    def _ask_driver(self, kinds: list[_Kind], now_ms: int, found: Findings) -> None:
        fields = [kind.field for kind in kinds]
        reason = self._retry.reason(now_ms)
        if reason is not None:
            found.miss(fields, reason)
            return
        try:
            rates = self._caller.call(
                "utilization_rates", "nvmlDeviceGetUtilizationRates", self._handle
            )
        except CallFailedError as failure:
            found.miss(fields, self._retry.note(failure, now_ms))
            return
        for kind in kinds:
            value = getattr(rates, kind.rate)
            if value <= HIGHEST_PERCENT:
                found.values[kind.field] = value
            else:
                found.absent[kind.field] = IMPOSSIBLE


class _Mean:
    """The mean over the window, for one kind of utilization."""

    def __init__(
        self,
        caller: Caller,
        handle: Handle,
        kind: _Kind,
        settings: NvmlSettings,
        turns: PeriodicTurn,
    ) -> None:
        self.kind = kind
        self._caller = caller
        self._handle = handle
        self._settings = settings
        self._turns = turns
        self._retry = Retry(settings.unsupported_retry_ms)
        self._seen_us: int | None = None
        self._last: tuple[int, float] | None = None

    def since_us(self, now_ms: int) -> int:
        """Return the window's start: the newest known figure, unless a clock was set."""
        now_us = now_ms * 1000
        if self._seen_us is None or self._seen_us > now_us + _CLOCK_LEAD_US:
            return now_us - self._settings.first_window_ms * 1000
        return self._seen_us

    def take(self, figures: list[tuple[int, float]], now_ms: int) -> float | None:
        """Return the mean of some figures, and start the next window after them.

        Without any it is the last mean while that is fresh: reads may come faster than figures.
        """
        value = mean_percent(figures, self.since_us(now_ms))
        if value is None:
            if self._last is None or now_ms - self._last[0] > self._settings.fresh_sample_ms:
                return None
            return self._last[1]
        self._seen_us = max(stamp_us for stamp_us, _ in figures)
        self._last = (now_ms, value)
        return value

    def read(self, now_ms: int) -> float | None:
        """Return the mean of the driver's buffered figures in percent; None if there are none."""
        if self._last is not None and not self._turns.is_due(now_ms):
            return self._last[1]
        if self._retry.reason(now_ms) is not None:
            return None
        self._turns.take(now_ms)
        return self.take(self._buffered(now_ms), now_ms)

    def _buffered(self, now_ms: int) -> list[tuple[int, float]]:
        try:
            samples: list[tuple[int, float]] = self._caller.timed(
                self.kind.source,
                utilization_samples,
                self._caller.library,
                self._handle,
                self._caller.constant(self.kind.samples),
                self.since_us(now_ms),
            )
        except CallFailedError as failure:
            if failure.reason != NO_DATA:
                self._last = None
            self._retry.note(failure, now_ms)
            return []
        return samples
