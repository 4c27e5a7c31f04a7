"""What a node agent streams, into the store: its series kept up line by line.

Every line says that all series were measured at its time, whether their values changed or not. Changed values
are stored with each line; the others once a second, so that a fast stream of steady values costs little and
nothing looks older than a second. Of the values of one second the newest is kept: what is current is as fresh
as the stream, and a range has a sample a second.
"""

from gpuscale.exposition.stream import SeriesKey, StreamDecoder
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.samples import Series
from gpuscale.series.store import SeriesStore
from gpuscale.series.target import TargetSeries

STEADY_MS = 1_000
"""How often values that stay the same are stored."""
RESOLUTION_MS = 1_000
"""The step of time of which the newest sample is kept, unless a setting says otherwise."""


class StreamedTarget:
    """The series of one agent, over any number of connections.

    Args:
        store: where samples go.
        target: the agent's labels.
        resolution_ms: the step of time of which the newest sample is kept.
    """

    def __init__(
        self, store: SeriesStore, target: TargetSeries, resolution_ms: int = RESOLUTION_MS
    ) -> None:
        self._resolution_ms = resolution_ms
        self._store = store
        self._target = target
        self._decoder = StreamDecoder()
        self._refs: dict[SeriesKey, Series] = {}
        self._stored_ms = 0
        """The time of the last samples."""
        self._steady_ms = -STEADY_MS
        """When all of them were stored last."""

    @property
    def series(self) -> int:
        """Return how many series the agent has now."""
        return len(self._refs)

    @property
    def measured_ms(self) -> int | None:
        """Return when the agent says that it measured last; None before this connection's snapshot."""
        return self._decoder.measured_ms

    @property
    def error(self) -> str | None:
        """Return why the agent's latest read failed."""
        return self._decoder.error

    @property
    def ended(self) -> str | None:
        """Return why the agent ended the stream; None while it goes on."""
        return self._decoder.ended

    def connected(self) -> None:
        """Begin a new connection, whose first line is a snapshot; series go on until then."""
        self._decoder = StreamDecoder()

    def feed(self, line: bytes, now_ms: int) -> int:
        """Store what a line brings, and return how many samples that were.

        A time in the future is that of arrival: the agent's clock is ahead.

        Raises:
            StreamError: the line is not of the format.
        """
        decoder = self._decoder
        decoder.feed(line)
        if decoder.measured_ms is None or decoder.ended is not None:
            return 0
        t_ms = min(decoder.measured_ms, now_ms)
        if t_ms <= self._stored_ms:
            # Two lines of one millisecond, or a clock that was set back: time goes on here.
            t_ms = min(self._stored_ms + 1, now_ms)
        if decoder.is_reshaped:
            self._reshape(t_ms)
        return self._append(t_ms, now_ms)

    def lost(self, t_ms: int) -> None:
        """Note that the agent can't be followed: its series end, and `up` is 0."""
        self._end(self._refs, {}, t_ms)
        self._refs = {}
        self._target.report("up", 0, t_ms)

    def gone(self, t_ms: int) -> None:
        """Note that the agent is no more: all that was written for it ends."""
        self._end(self._refs, {}, t_ms)
        self._refs = {}
        self._target.end_reports(t_ms)

    def _reshape(self, t_ms: int) -> None:
        """Follow series that came, and end those that went."""
        before = self._refs
        self._refs = {key: before.get(key) or self._ref(key) for key in self._decoder.series}
        self._end(before, self._refs, t_ms)
        self._steady_ms = t_ms - STEADY_MS

    def _ref(self, key: SeriesKey) -> Series:
        return self._target.ref({**dict(key.labels), METRIC_NAME: key.name})

    def _end(
        self, before: dict[SeriesKey, Series], now: dict[SeriesKey, Series], t_ms: int
    ) -> None:
        kept = set(now.values())
        for series in before.values():
            if series not in kept:
                self._store.mark_stale(series, t_ms)

    def _append(self, t_ms: int, now_ms: int) -> int:
        series = self._decoder.series
        if t_ms - self._steady_ms >= STEADY_MS:
            refs, values = list(self._refs.values()), list(series.values())
            self._steady_ms = t_ms
            self._target.report("up", 1, t_ms)
        else:
            touched = self._decoder.touched
            refs, values = [self._refs[key] for key in touched], [series[key] for key in touched]
        self._stored_ms = t_ms
        return self._store.append_newest(refs, values, t_ms, now_ms, self._resolution_ms)
