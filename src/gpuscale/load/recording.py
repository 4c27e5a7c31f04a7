"""Results of requests, second by second, in bounded memory."""

import ctypes
import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hdrh.histogram import HdrHistogram

_MOST_US = 3_600_000_000
_DIGITS = 3


def new_histogram() -> HdrHistogram:
    """Return an empty histogram of microseconds, up to an hour, within 0.1 % of each value."""
    return HdrHistogram(1, _MOST_US, _DIGITS)


@dataclass(slots=True)
class RequestCounts:
    """Counts of requests and their results."""

    sent: int = 0
    ok: int = 0
    not_sent: int = 0
    """Due, but beyond the bounds of connections and of what waits for one."""
    statuses: Counter[int] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    """By kind: refused, reset, timeout, tls, malformed, unfinished."""
    bytes_in: int = 0

    def add(self, other: "RequestCounts") -> None:
        """Add another one's counts."""
        self.sent += other.sent
        self.ok += other.ok
        self.not_sent += other.not_sent
        self.statuses.update(other.statuses)
        self.faults.update(other.faults)
        self.bytes_in += other.bytes_in

    @property
    def errors(self) -> int:
        """Requests that failed: no response, or a status of 400 or more."""
        failed = sum(count for status, count in self.statuses.items() if status >= 400)
        return failed + sum(self.faults.values()) + self.not_sent


@dataclass(slots=True)
class Second:
    """One process' results in one second of the run.

    It is used before the next one is taken: its histograms are those of the second after the next.
    """

    index: int
    counts: RequestCounts
    in_flight: int
    latency: HdrHistogram
    service: HdrHistogram
    lateness: HdrHistogram

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the pickled form: histograms in their own encoding."""
        parts = (each.encode() for each in (self.latency, self.service, self.lateness))
        return _decoded, (self.index, self.counts, self.in_flight, *parts)

    def release(self) -> None:
        """Release histograms of other processes once they are added up.

        Each and its encoder hold each other: memory would rise by megabytes until they are looked for.
        """
        for histogram in (self.latency, self.service, self.lateness):
            histogram.encoder = None


def _decoded(index: int, counts: RequestCounts, in_flight: int, *encoded: bytes) -> Second:
    return Second(index, counts, in_flight, *map(HdrHistogram.decode, encoded))


class RunRecorder:
    """Records results, and hands them out as seconds.

    Two sets of histograms take turns. Encoding them takes milliseconds, for which requests would be late.
    """

    def __init__(self) -> None:
        self.counts = RequestCounts()
        self.latency = new_histogram()
        """From the moment a request was due to its whole answer: what a user waits."""
        self.service = new_histogram()
        """From the moment it was written: what the server takes, without what waits in this process."""
        self.lateness = new_histogram()
        """From the moment it was due to the moment that this process turned to it."""
        self._others = tuple(new_histogram() for _ in range(3))

    def take(self, index: int, in_flight: int) -> Second:
        """Return the results since the last call, and start again."""
        taken = (self.latency, self.service, self.lateness)
        second = Second(index, self.counts, in_flight, *taken)
        for histogram in self._others:
            _empty(histogram)
        self.latency, self.service, self.lateness = self._others
        self._others = taken
        self.counts = RequestCounts()
        return second


@dataclass(frozen=True, slots=True)
class RunSecond:
    """One second of a run, all processes together. Times are milliseconds, None without an answer."""

    t_s: int
    planned: float
    sent: int
    ok: int
    errors: int
    not_sent: int
    in_flight: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None


class RunRecording:
    """Adds up all processes' seconds to rows and totals.

    Args:
        started_ms: when the first second began.
    """

    def __init__(self, started_ms: int) -> None:
        self.started_ms = started_ms
        self.rows: list[RunSecond] = []
        self.counts = RequestCounts()
        self.latency = new_histogram()
        self.service = new_histogram()
        self.lateness = new_histogram()
        self._second = new_histogram()

    def add(self, seconds: list[Second], planned: float) -> RunSecond:
        """Add one second's results of each process."""
        counts, latency = RequestCounts(), self._second
        _empty(latency)
        for second in seconds:
            counts.add(second.counts)
            latency.add(second.latency)
            self.service.add(second.service)
            self.lateness.add(second.lateness)
        self.counts.add(counts)
        self.latency.add(latency)
        # One pass for all three; an empty histogram would give 0.
        is_empty = not latency.get_total_count()
        found = {} if is_empty else latency.get_percentile_to_value_dict([50, 95, 99])
        row = RunSecond(
            t_s=seconds[0].index,
            planned=planned,
            sent=counts.sent,
            ok=counts.ok,
            errors=counts.errors,
            not_sent=counts.not_sent,
            in_flight=sum(second.in_flight for second in seconds),
            p50_ms=_ms(found.get(50)),
            p95_ms=_ms(found.get(95)),
            p99_ms=_ms(found.get(99)),
        )
        self.rows.append(row)
        return row


def _empty(histogram: HdrHistogram) -> None:
    """Reset a histogram, quicker than its `reset`, whose 0.6 ms would delay requests."""
    ctypes.memset(histogram.counts, 0, ctypes.sizeof(histogram.counts))
    histogram.total_count = 0
    histogram.min_value, histogram.max_value = sys.maxsize, 0


def _ms(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1000


def percentile_ms(histogram: HdrHistogram, percentile: float) -> float | None:
    """Return a percentile in milliseconds; None of an empty histogram."""
    if not histogram.get_total_count():
        return None
    return float(histogram.get_value_at_percentile(percentile)) / 1000
