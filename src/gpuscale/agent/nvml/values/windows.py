"""Means over a window, from samples that the driver has buffered."""

from collections.abc import Iterable
from dataclasses import dataclass

HIGHEST_PERCENT = 100
LONGEST_SAMPLE_US = 1_000_000
"""The longest that a driver takes from one sample to the next."""


def mean_percent(samples: Iterable[tuple[int, float]], since_us: int) -> float | None:
    """Return the mean of samples after `since_us`, weighted by duration.

    A sample covers the time from the one before it, as far as a driver ever waits: where the buffer does
    not reach back to the window's start, the mean is of what it does reach. Samples with values that can't be
    are passed over.

    Args:
        samples: (microseconds, percent), in any order.
        since_us: where the window begins, exclusive.

    Returns:
        Percent, or None when there is no sample.
    """
    area = 0.0
    told_us = 0
    last_us = since_us
    for stamp_us, value in sorted(samples):
        if stamp_us > last_us and 0 <= value <= HIGHEST_PERCENT:
            span_us = min(stamp_us - last_us, LONGEST_SAMPLE_US)
            area += value * span_us
            told_us += span_us
            last_us = stamp_us
    return area / told_us if told_us else None


@dataclass(frozen=True, slots=True)
class ProcessSample:
    """The mean use of one process over a window, in percent, and when it was last seen to use the GPU."""

    pid: int
    stamp_us: int
    use: "ProcessUse"

    @property
    def is_plausible(self) -> bool:
        """Return whether the sample has a valid PID and possible values; the buffer may hold garbage."""
        use = self.use
        uses = (use.sm_util, use.mem_copy_util, use.encode_util, use.decode_util)
        return self.pid > 0 and all(0 <= each <= HIGHEST_PERCENT for each in uses)


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """The mean use of one process over a window, in whole percent."""

    sm_util: int
    mem_copy_util: int
    encode_util: int
    decode_util: int


IDLE = ProcessUse(0, 0, 0, 0)
LOOK_MS = 200
"""From one look of the driver at who runs to the next."""
_SHORTEST_MS = 1_000
"""Fewer looks than in so long say nothing; a process that is younger is divided by so many."""


@dataclass(frozen=True, slots=True)
class SampledUse:
    """A process' utilization, and the number of samples behind it."""

    use: ProcessUse
    looks: int


def sampled_use(use: ProcessUse, age_ms: int, window_ms: int) -> SampledUse:
    """Return a process' utilization over its own lifetime, if that is shorter than the window.

    Args:
        use: over the whole window, as if the process had been there all the time.
        age_ms: since when it is there; at most the window.
        window_ms: what the driver's means are of.
    """
    own_ms = min(window_ms, max(age_ms, _SHORTEST_MS))
    looks = max(1, own_ms // LOOK_MS)
    if own_ms == window_ms:
        return SampledUse(use, looks)
    sm, copy, encode, decode = (
        min(HIGHEST_PERCENT, round(each * window_ms / own_ms))
        for each in (use.sm_util, use.mem_copy_util, use.encode_util, use.decode_util)
    )
    return SampledUse(ProcessUse(sm, copy, encode, decode), looks)


def process_uses(samples: Iterable[ProcessSample], since_us: int) -> dict[int, ProcessUse]:
    """Return the mean use by PID over the time since `since_us`.

    The driver has computed the means already: it looks every 200 ms, gives what the GPU did since to the one
    process that it finds running, and divides the sum of a process by the number of all looks in the window.
    So the means of the processes add up to the GPU's own, whenever each of them was last seen. (Measured on
    an H200, driver 580: of two processes, one had 54 and the other, last seen 400 ms ago, 27, after three
    looks at a GPU of 80 %.)
    """
    fresh = [each for each in samples if each.is_plausible and each.stamp_us > since_us]
    return {each.pid: each.use for each in sorted(fresh, key=lambda each: each.stamp_us)}
