"""The series that a page's charts draw: a row for each interval, gaps where data is missing."""

from collections.abc import Iterable, Mapping

MAX_POINTS = 100_000
"""Older rows are dropped; at one row per 15 s this is more than two weeks."""
_VALUE_BYTES = 32
"""Of a value in a list, at most: a float, and where it is."""


class SeriesRecorder:
    """Named series of equal length on one time axis.

    Args:
        most_bytes: of values; older rows are dropped beyond it. None: only rows are counted.
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self.total = 0
        """Rows so far, dropped ones included."""
        self._most_values = None if most_bytes is None else most_bytes // _VALUE_BYTES
        self._times: list[float] = []
        self._series: dict[str, list[float | None]] = {}
        """Each up to its latest value; what is missing at the end is a gap that is filled in when asked."""

    def add(self, seconds: float, row: Mapping[str, float | None]) -> None:
        """Append a row; series without a value in it get a gap."""
        kept = len(self._times)
        for name, value in row.items():
            values = self._series.setdefault(name, [])
            if len(values) < kept:
                values.extend([None] * (kept - len(values)))
            values.append(value)
        self._times.append(seconds)
        self.total += 1
        while self._is_full():
            self._drop(max(1, len(self._times) // 10))

    def _is_full(self) -> bool:
        rows = len(self._times)
        if self._most_values is None or rows == 1:
            return rows > MAX_POINTS
        return rows > MAX_POINTS or rows * (1 + len(self._series)) > self._most_values

    def _drop(self, rows: int) -> None:
        del self._times[:rows]
        for name, values in tuple(self._series.items()):
            del values[:rows]
            if not values:
                del self._series[name]

    def forget(self, names: Iterable[str]) -> None:
        """Drop series, as if they had never had values."""
        for name in names:
            self._series.pop(name, None)

    def series(self, since: int = 0) -> tuple[int, list[float], dict[str, list[float | None]]]:
        """Return the index of the first row given, the times in seconds, and the values by name."""
        dropped = self.total - len(self._times)
        skip = min(max(0, since - dropped), len(self._times))
        rows = len(self._times) - skip
        found: dict[str, list[float | None]] = {}
        for name in sorted(self._series):
            values = self._series[name][skip:]
            found[name] = values + [None] * (rows - len(values))
        return dropped + skip, self._times[skip:], found
