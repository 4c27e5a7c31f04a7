"""Means over a window, from samples that the driver has buffered."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

HIGHEST_PERCENT = 100
LONGEST_SAMPLE_US = 1_000_000
"""The longest that a driver takes from one sample to the next."""


def mean_percent(samples: Iterable[tuple[int, float]], since_us: int) -> float | None:
    """Return the mean of what was sampled after `since_us`, each sample weighted by its time.

    A sample stands for the time from the one before it, as far as a driver ever waits: where the buffer does
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
    """What one process used up to one moment, in percent of the time."""

    pid: int
    stamp_us: int
    sm_util: float
    mem_copy_util: float
    encode_util: float
    decode_util: float

    @property
    def is_plausible(self) -> bool:
        """Return whether it is about a process and within what can be; buffers come with junk."""
        return self.pid > 0 and all(0 <= use <= HIGHEST_PERCENT for use in self.uses)

    @property
    def uses(self) -> tuple[float, float, float, float]:
        """Return the four percentages."""
        return (self.sm_util, self.mem_copy_util, self.encode_util, self.decode_util)


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """The mean use of one process over a window, in whole percent."""

    sm_util: int
    mem_copy_util: int
    encode_util: int
    decode_util: int


IDLE = ProcessUse(0, 0, 0, 0)


def process_uses(samples: Iterable[ProcessSample], since_us: int) -> Mapping[int, ProcessUse]:
    """Return the mean use by PID over the time from `since_us` to the newest sample.

    A sample stands for the time from the one of that process before it, or from the window's start. For
    what is left to the newest sample of any process, the process had none, which is how the driver says
    that it was idle.
    """
    fresh = [each for each in samples if each.is_plausible and each.stamp_us > since_us]
    if not fresh:
        return {}
    newest_us = max(each.stamp_us for each in fresh)
    by_pid: dict[int, list[ProcessSample]] = {}
    for each in sorted(fresh, key=lambda each: each.stamp_us):
        by_pid.setdefault(each.pid, []).append(each)
    span_us = newest_us - since_us
    return {pid: _mean_use(of_pid, since_us, span_us) for pid, of_pid in by_pid.items()}


def _mean_use(samples: Sequence[ProcessSample], since_us: int, span_us: int) -> ProcessUse:
    areas = [0.0, 0.0, 0.0, 0.0]
    last_us = since_us
    for sample in samples:
        for n, use in enumerate(sample.uses):
            areas[n] += use * (sample.stamp_us - last_us)
        last_us = sample.stamp_us
    return ProcessUse(*(round(area / span_us) for area in areas))
