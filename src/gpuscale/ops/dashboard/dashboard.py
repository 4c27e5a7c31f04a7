"""Follows a cluster or a machine, and keeps what the page shows of it: now, and the last hours."""

from collections import deque
from datetime import UTC, datetime

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.pages.timeline import SeriesRecorder
from gpuscale.ops.dashboard.deciding import Decider
from gpuscale.ops.dashboard.state import chart_row, new_size, page_state
from gpuscale.ops.top.picture import EventRow, Picture, Reader

HISTORY_BYTES = 64 << 20
"""Of chart points: 20 HPAs looked at every 5 s are kept for 20 hours."""
_MOST_EVENTS = 5_000
_MOST_WORDS = 2_000
"""Letters of an event's message."""
_REPEAT_MS = 600_000
"""An event that repeats is told again after so long, as Kubernetes counts them into one."""


class Dashboard:
    """What the page follows; it satisfies `LiveRun`.

    Args:
        reader: takes the pictures.
        clock: of this machine.
        every_s: between two pictures.
        decider: explains HPAs; None where there is no cluster to ask.
    """

    def __init__(
        self, reader: Reader, clock: Clock, every_s: float, decider: Decider | None = None
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._every_s = every_s
        self._decider = decider
        self._started = datetime.fromtimestamp(clock.now_ms() / 1000, UTC).isoformat()
        self._recorder = SeriesRecorder(HISTORY_BYTES)
        self._events: deque[dict[str, object]] = deque(maxlen=_MOST_EVENTS)
        self._events_total = 0
        self._told: dict[tuple[str, str, str], int] = {}
        self._source = ""
        self._state: dict[str, object] = {}

    async def look(self) -> None:
        """Take a picture, and remember what is new in it.

        Raises:
            GpuscaleError: nothing can be looked at.
        """
        picture = await self._reader.look()
        if self._decider is not None:
            await self._decider.look((row.namespace, row.name) for row in picture.workloads)
        self._source = picture.source
        for event in reversed(picture.events):
            self._tell(event)
        self._recorder.add(picture.at_ms / 1000, chart_row(picture))
        self._state = self._page_state(picture)

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await self._clock.sleep(self._every_s)
            await self.look_again()

    async def look_again(self) -> None:
        """Look; where that fails, say so and keep what was seen before."""
        try:
            await self.look()
        except GpuscaleError as error:
            self._state = {**self._state, "fault": str(error)}

    def document(self) -> dict[str, object]:
        """Return all that is remembered."""
        _, times, series = self._recorder.series()
        return {
            "scenario": self._source,
            "description": "",
            "clock": "wall",
            "started": self._started,
            "summary": {},
            "events": list(self._events),
            "series": {"t": times, **series},
        }

    def since(self, points: int, events: int) -> dict[str, object]:
        """Return the points and events after these numbers of each."""
        first, times, series = self._recorder.series(points)
        kept = self._events_total - len(self._events)
        return {
            "points": first,
            "t": times,
            "series": series,
            "events": list(self._events)[max(0, events - kept) :],
            "totals": {"points": self._recorder.total, "events": self._events_total},
        }

    def state(self) -> dict[str, object]:
        """Return what the page shows of now; another object after each look."""
        return self._state

    def _page_state(self, picture: Picture) -> dict[str, object]:
        decider = self._decider
        return page_state(picture, lambda *_: None if decider is None else decider.explained(*_))

    def _tell(self, event: EventRow) -> None:
        key = event.about, event.reason, event.message
        if event.at_ms - self._told.get(key, -_REPEAT_MS) < _REPEAT_MS:
            return
        self._told.pop(key, None)
        self._told[key] = event.at_ms  # the newest last
        if len(self._told) > _MOST_EVENTS:
            del self._told[next(iter(self._told))]
        scaled = None
        after = new_size(event)
        if after is not None and self._decider is not None and self._state:
            _, namespace, name = event.about.split("/", 2)
            scaled = self._decider.why_scaled(namespace, name, after)
        self._events_total += 1
        self._events.append(
            {
                "t": event.at_ms / 1000,
                "kind": event.reason,
                "object": event.about,
                "from": None if scaled is None else scaled.before,
                "to": after,
                "reason": event.message[:_MOST_WORDS],
                "warning": event.kind == "Warning",
                "why": [] if scaled is None else list(scaled.why),
            }
        )
