"""Follows a cluster or a machine, and keeps what the page shows of it: now, and the last hours."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.pages.timeline import SeriesRecorder
from gpuscale.ops.dashboard.deciding import Decider, explain
from gpuscale.ops.dashboard.recorded import Point
from gpuscale.ops.dashboard.state import chart_row, key_of, new_size, page_state
from gpuscale.ops.dashboard.what_if import changed, read_change
from gpuscale.ops.top.picture import EventRow, Picture, Reader

HISTORY_BYTES = 64 << 20
"""Of chart points: 20 HPAs looked at every 5 s are kept for 20 hours."""
_MOST_EVENTS = 5_000
_MOST_WORDS = 2_000
"""Letters of an event's message."""
_REPEAT_MS = 600_000
"""An event that repeats is told again after so long, as Kubernetes counts them into one."""

Past = Callable[[Picture], Awaitable[Sequence[Point]]]


class Dashboard:
    """What the page follows; it satisfies `LiveRun`.

    Args:
        reader: takes the pictures.
        clock: of this machine.
        every_s: between two pictures.
        decider: explains HPAs; None where there is no cluster to ask.
        past: returns the hours before a picture; None: charts begin with the first look.
        decided: is told each event with a new size, and why the HPA has it.
    """

    def __init__(
        self,
        reader: Reader,
        clock: Clock,
        every_s: float,
        decider: Decider | None = None,
        past: Past | None = None,
        decided: Callable[[EventRow, Sequence[str]], None] | None = None,
    ) -> None:
        self._past = past
        self._decided = decided
        self._no_past: tuple[str, ...] = ()
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
        self._hpas: Mapping[str, tuple[str, str]] = {}
        self._state: dict[str, object] = {}

    async def look(self) -> None:
        """Take a picture, and remember what is new in it.

        Raises:
            GpuscaleError: nothing can be looked at.
        """
        picture = await self._reader.look()
        if self._decider is not None:
            await self._decider.look(
                {(row.namespace, row.name): row.wanted for row in picture.workloads}
            )
        self._source = picture.source
        self._hpas = {key_of(row): (row.namespace, row.name) for row in picture.workloads}
        for event in reversed(picture.events):
            self._tell(event)
        if self._past is not None and not self._state:
            try:
                for seconds, row in await self._past(picture):
                    self._recorder.add(seconds, row)
            except GpuscaleError as error:
                self._no_past = (f"charts of the hours before: {error}",)
        if self._no_past:
            picture = replace(picture, unseen=(*picture.unseen, *self._no_past))
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
            "machine": not self._state["workloads"] and self._decider is None,
            "whatIf": self._decider is not None,
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

    async def what_if(self, query: Mapping[str, str]) -> Mapping[str, object]:
        """Return what the HPA `hpa` of the query would do with the changes in it.

        Raises:
            ValueError: it is none that is shown, or a change that can't be.
            GpuscaleError: it can't be read.
        """
        change = read_change(query)
        if self._decider is None or query.get("hpa") not in self._hpas:
            raise ValueError(
                f"hpa: found {query.get('hpa', '')[:80]!r}, expected one of the page's"
            )
        request = await self._decider.request(*self._hpas[query["hpa"]])
        return {
            "current": request.scale.spec_replicas,
            "asItIs": explain(request).desired,
            "desired": (found := explain(changed(request, change))).desired,
            "explanation": list(found.explanation),
        }

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
        if scaled is not None and scaled.why and self._decided is not None:
            self._decided(event, scaled.why)
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
