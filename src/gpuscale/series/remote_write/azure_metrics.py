"""Samples as Azure Monitor's custom metrics: minimum, maximum, sum and count of each minute.

Azure keeps minutes. Several of the same series and minute are put together there, so what a batch has of a
minute may be sent at once, and nothing has to be kept until the minute is over.

Source: Microsoft, "Custom metrics in Azure Monitor" (fields, limits) and "Metrics - Create" (lines of JSON,
    one for each metric, minute and list of dimensions); telegraf plugins/outputs/azure_monitor (4 MB).
"""

import json
import math
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.words import rfc3339
from gpuscale.series.labels import LabelSet
from gpuscale.series.remote_write.relabelling import RelabelRule, relabelled

MAX_DIMENSIONS = 10
MAX_CHARS = 256
"""Of a namespace, a metric's name, and a dimension's name and value."""
MAX_AGE_S = 20 * 60
"""Older values are refused."""
MAX_BODY_BYTES = 1_000_000
"""Of a request. Azure takes four megabytes; to send so many at once would hold up the event loop."""
_MINUTE_MS = 60_000
_MAX_REMEMBERED = 50_000
"""Series; then they are forgotten, and encoded again."""
_NAME = "__name__"


@dataclass(frozen=True, slots=True)
class AzureSeries:
    """A series as Azure identifies it."""

    metric: str
    names: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(slots=True)
class _Minute:
    """One minute of a series."""

    least: float = math.inf
    greatest: float = -math.inf
    total: float = 0.0
    count: int = 0


class AzureEncoder:
    """Encodes label sets as dimensions.

    Args:
        namespace: of the metrics.
        dimensions: names of labels that are sent, ten at most; series that differ in others count as one.
        external: labels that every series gets unless it has one of that name.
        rules: what is done to labels then; a series may be left out.
    """

    headers = (("Content-Type", "application/x-ndjson"), ("User-Agent", "gpuscale"))

    def __init__(
        self,
        namespace: str,
        dimensions: Sequence[str],
        external: Mapping[str, str],
        rules: Sequence[RelabelRule],
    ) -> None:
        self._namespace = namespace
        self._dimensions = tuple(dimensions)
        self._external = dict(external)
        self._rules = tuple(rules)
        self._known: dict[LabelSet, AzureSeries | None] = {}

    def encode(self, labels: LabelSet) -> AzureSeries | None:
        """Return a series' encoded form; None if it is dropped, or Azure would refuse it."""
        if labels not in self._known:
            if len(self._known) >= _MAX_REMEMBERED:
                self._known.clear()
            self._known[labels] = self._encoded(labels)
        return self._known[labels]

    def _encoded(self, labels: LabelSet) -> AzureSeries | None:
        found = relabelled({**self._external, **dict(labels.items())}, self._rules)
        if not found or not found.get(_NAME):
            return None
        kept = [(name, found[name]) for name in self._dimensions if found.get(name)]
        texts = [found[_NAME], *(value for _, value in kept)]
        if any(len(text) > MAX_CHARS for text in texts):
            return None
        return AzureSeries(
            found[_NAME], tuple(name for name, _ in kept), tuple(value for _, value in kept)
        )

    def message(self) -> "AzureMessage":
        return AzureMessage(self._namespace)


class AzureMessage:
    """A growing message."""

    def __init__(self, namespace: str) -> None:
        self.samples = 0
        self.newest_ms = 0
        self._namespace = namespace
        self._minutes: dict[tuple[str, int, tuple[str, ...]], dict[tuple[str, ...], _Minute]] = {}

    def add(
        self,
        labels: Iterable[AzureSeries | None],
        times_ms: Sequence[int],
        rows: Sequence[bytes],
    ) -> None:
        """Add series that share their times; values that JSON can't hold and end markers are skipped.

        Args:
            labels: of each series; None for one that is left out.
            times_ms: T, ascending.
            rows: T; the values of all series at one time, eight little-endian bytes each.
        """
        series = list(labels)
        for t_ms, row in zip(times_ms, rows, strict=True):
            minute_ms = t_ms // _MINUTE_MS * _MINUTE_MS
            for each, value in zip(series, _doubles(row), strict=True):
                if each is None or not math.isfinite(value):
                    continue
                line = self._minutes.setdefault((each.metric, minute_ms, each.names), {})
                known = line.setdefault(each.values, _Minute())
                known.least = min(known.least, value)
                known.greatest = max(known.greatest, value)
                known.total += value
                known.count += 1
                self.samples += 1
                self.newest_ms = max(self.newest_ms, t_ms)

    def bodies(self) -> Iterator[tuple[bytes, int]]:
        """Yield request bodies, each with its number of samples."""
        lines: list[bytes] = []
        size = samples = 0
        for text, count in self._lines():
            if lines and size + len(text) + 1 > MAX_BODY_BYTES:
                yield b"\n".join(lines), samples
                lines, size, samples = [], 0, 0
            lines.append(text)
            size += len(text) + 1
            samples += count
        if lines:
            yield b"\n".join(lines), samples

    def _lines(self) -> Iterator[tuple[bytes, int]]:
        """Yield a line for each metric, minute and set of dimensions; split if a line would be too long."""
        for (metric, minute_ms, names), found in self._minutes.items():
            # A series has at most ten values of 256 characters, each up to six bytes in JSON.
            most = max(1, MAX_BODY_BYTES // 2 // (100 + 6 * (MAX_CHARS + 3) * max(1, len(names))))
            # A sum that overflows is no value.
            minutes = [each for each in found.items() if math.isfinite(each[1].total)]
            for first in range(0, len(minutes), most):
                part = minutes[first : first + most]
                base = {
                    "metric": metric,
                    "namespace": self._namespace,
                    "dimNames": list(names),
                    "series": [_series(values, minute) for values, minute in part],
                }
                time = rfc3339(minute_ms / 1000)
                line = {"time": time, "data": {"baseData": base}}
                text = json.dumps(line, separators=(",", ":"), allow_nan=False).encode()
                yield text, sum(minute.count for _, minute in part)


def _series(values: tuple[str, ...], minute: _Minute) -> dict[str, object]:
    return {
        "dimValues": list(values),
        "min": minute.least,
        "max": minute.greatest,
        "sum": minute.total,
        "count": minute.count,
    }


def _doubles(row: bytes) -> "array[float]":
    found = array("d")
    found.frombytes(row)
    if sys.byteorder == "big":
        found.byteswap()
    return found
