"""How busy a GPU was between two reads, not just at the moment of the read.

GPM has the mean of the GPU's own utilisation, and is asked anyway where profiling fields are. Elsewhere the
driver keeps a sample of every 200 ms or so; their mean is the utilisation of the window. Where it has no such
buffer either, the figure that it computes itself is taken, over a window of its own choice. Which of them
was used is in the names that the calls are counted under: `gpm`, `utilization_samples` and
`memory_utilization_samples`, `utilization_rates`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuscale.gpu.nvml.calls import Caller
from gpuscale.gpu.nvml.faults import IMPOSSIBLE, NO_DATA, CallFailedError
from gpuscale.gpu.nvml.gpm import Gpm
from gpuscale.gpu.nvml.library import Handle, utilization_samples
from gpuscale.gpu.nvml.settings import NvmlSettings
from gpuscale.gpu.nvml.sources import Findings, Retry, Scheduled
from gpuscale.gpu.nvml.windows import HIGHEST_PERCENT, mean_percent

_CLOCK_LEAD_US = 1_000_000
"""How far a sample may be ahead of our clock before one of the two must have been set."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of the two utilisations."""

    field: str
    source: str
    """Under which name calls for its buffer are counted."""
    samples: str
    """The library's constant for the buffer."""
    rate: str
    """Its member in what the driver computes itself."""


GPU_UTIL = "DCGM_FI_DEV_GPU_UTIL"
MEMORY_UTIL = "DCGM_FI_DEV_MEM_COPY_UTIL"
_KINDS = (
    _Kind(GPU_UTIL, "utilization_samples", "NVML_GPU_UTILIZATION_SAMPLES", "gpu"),
    _Kind(MEMORY_UTIL, "memory_utilization_samples", "NVML_MEMORY_UTILIZATION_SAMPLES", "memory"),
)
UTILIZATION_CALLS: Mapping[str, str] = {
    GPU_UTIL: (
        "nvmlGpmMetricsGet(1); without GPM nvmlDeviceGetSamples, or nvmlDeviceGetUtilizationRates"
    ),
    MEMORY_UTIL: "nvmlDeviceGetSamples, or nvmlDeviceGetUtilizationRates",
}
"""Where each comes from, in the order of preference."""
UTILIZATION_FIELDS = frozenset(UTILIZATION_CALLS)


class Utilization:
    """GPU and memory utilisation of one GPU.

    Args:
        caller: of the GPU.
        handle: of the GPU.
        fields: which of the two.
        settings: windows.
    """

    def __init__(
        self, caller: Caller, handle: Handle, fields: frozenset[str], settings: NvmlSettings
    ) -> None:
        self._caller = caller
        self._handle = handle
        self._settings = settings
        self._means = [
            _Mean(caller, handle, kind, settings) for kind in _KINDS if kind.field in fields
        ]
        self._retry = Retry(settings.unsupported_retry_ms)
        self.fields = UTILIZATION_FIELDS & fields

    def read(self, now_ms: int) -> Findings:
        """Return a value or a reason for each field."""
        found = Findings()
        without: list[_Kind] = []
        for mean in self._means:
            value = mean.read(now_ms)
            if value is None:
                without.append(mean.kind)
            else:
                found.values[mean.kind.field] = round(value)
        if without:
            self._ask_driver(without, now_ms, found)
        return found

    def begin_window(self, now_ms: int) -> None:
        """Have the next means begin here: until now, others have told."""
        for mean in self._means:
            mean.begin_window(now_ms)

    def close(self) -> None:
        """Do nothing; the buffers are the driver's."""

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


class GpmOrSamples:
    """Profiling values, and GPU utilisation from them or, where they have none, from the driver's samples.

    Args:
        gpm: gives profiling values and GPU utilisation.
        samples: gives GPU utilisation.
        settings: the pace of each.
        shift: of their turns.
    """

    def __init__(
        self, gpm: Gpm, samples: Utilization, settings: NvmlSettings, shift: float
    ) -> None:
        self._gpm = Scheduled(gpm, settings.gpm_period_ms, shift)
        self._samples = Scheduled(samples, settings.utilization_period_ms, shift)
        self._begin_window = samples.begin_window
        self.fields = gpm.fields | samples.fields

    def read(self, now_ms: int) -> Findings:
        """Return a value or a reason for each field."""
        found = self._gpm.read(now_ms)
        if GPU_UTIL not in found.absent:
            self._begin_window(now_ms)
            return found
        sampled = self._samples.read(now_ms)
        absent = {field: why for field, why in found.absent.items() if field != GPU_UTIL}
        return Findings({**found.values, **sampled.values}, {**absent, **sampled.absent})

    def close(self) -> None:
        """Free what GPM holds."""
        self._gpm.close()


class _Mean:
    """The mean over the window of one kind of samples."""

    def __init__(self, caller: Caller, handle: Handle, kind: _Kind, settings: NvmlSettings) -> None:
        self.kind = kind
        self._caller = caller
        self._handle = handle
        self._settings = settings
        self._retry = Retry(settings.unsupported_retry_ms)
        self._seen_us: int | None = None
        self._last: tuple[int, float] | None = None

    def begin_window(self, now_ms: int) -> None:
        """Have the next mean begin here."""
        self._seen_us = now_ms * 1000
        self._last = None

    def read(self, now_ms: int) -> float | None:
        """Return percent; None when the samples don't tell."""
        if self._retry.reason(now_ms) is not None:
            return None
        since_us = self._since_us(now_ms)
        try:
            samples = self._caller.timed(
                self.kind.source,
                utilization_samples,
                self._caller.library,
                self._handle,
                self._caller.constant(self.kind.samples),
                since_us,
            )
        except CallFailedError as failure:
            if failure.reason != NO_DATA:
                self._last = None
            self._retry.note(failure, now_ms)
            samples = []
        value = mean_percent(samples, since_us)
        if value is None:
            return self._recent(now_ms)
        self._seen_us = max(stamp_us for stamp_us, _ in samples)
        self._last = (now_ms, value)
        return value

    def _since_us(self, now_ms: int) -> int:
        """Return where the window begins: at the newest sample seen, unless a clock was set."""
        now_us = now_ms * 1000
        if self._seen_us is None or self._seen_us > now_us + _CLOCK_LEAD_US:
            return now_us - self._settings.first_window_ms * 1000
        return self._seen_us

    def _recent(self, now_ms: int) -> float | None:
        """Return the last mean while it is fresh: reads may come faster than samples."""
        if self._last is None or now_ms - self._last[0] > self._settings.fresh_sample_ms:
            return None
        return self._last[1]
