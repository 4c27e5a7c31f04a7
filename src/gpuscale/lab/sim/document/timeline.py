"""A run's series over time: a row for each interval, gaps where data is missing."""

from collections.abc import Iterable, Mapping

MAX_POINTS = 100_000
"""Older rows are dropped; at one row per 15 s this is more than two weeks."""


class SeriesRecorder:
    """Named series of equal length on one time axis."""

    def __init__(self) -> None:
        self.total = 0
        """Rows so far, dropped ones included."""
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
        if len(self._times) > MAX_POINTS:
            dropped = len(self._times) // 10
            del self._times[:dropped]
            for name, values in tuple(self._series.items()):
                del values[:dropped]
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
