"""The stream of lines in which a replica delivers the agents it follows to the others.

Each line begins with the number of an agent, or `-` for the replica itself, and a word:

    - hello {"version":1,"replica":"…"}
    - alive
    - renew
    7 origin {"url":"…","labels":[[name,value],…],"pod":"…"}
    7 line {"kind":"snapshot",…}
    7 lost
    7 left
    7 gone

`line` brings one of an agent's stream (`base.exposition.stream`), with the labels and the times that the
series have in the store. `lost`: the agent can't be followed, and its series have ended. `left`: the replica
no longer follows it. `gone`: the agent is no more. The first `alive` ends what is there at the beginning, and
`renew` ends an answer and asks for the next request.
"""

import json
import math
from asyncio import Event
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from gpuscale.base.exposition.stream import VERSION, StreamLine, encoded
from gpuscale.series import METRIC_NAME
from gpuscale.series.scraping import StreamedTarget
from gpuscale.series.storage import Series
from gpuscale.server.sources.feeds.targets import FeedTarget

MAX_UNSENT_BYTES = 64 * 1024 * 1024
"""Of one reader; the answer to one that is slower ends."""
_PAUSE_S = 0.9
"""From one line of values of an agent to the next, at least."""


@dataclass(slots=True, eq=False)
class Reader:
    """One response that streams lines to a replica."""

    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    is_ended: bool = False
    ready: Event = field(default_factory=Event)

    def put(self, text: bytes) -> None:
        """Queue text; a reader that falls too far behind is dropped."""
        self.size += len(text)
        if self.size > MAX_UNSENT_BYTES:
            self.is_ended = True
            self.parts.clear()
        if not self.is_ended:
            self.parts.append(text)
        self.ready.set()

    def taken(self) -> bytes:
        text = b"".join(self.parts)
        self.parts.clear()
        self.size = 0
        self.ready.clear()
        return text


class _Agent:
    """An agent that is delivered, with its pending changes."""

    def __init__(self, number: int, target: FeedTarget, series: StreamedTarget) -> None:
        self.sent_s = -math.inf
        self.is_dirty = True
        self.is_reshaped = True
        self.number = number
        self._target = target
        self._series = series
        self._ms = 0
        self._values: dict[Series, float] = {}
        self._ids: dict[Series, int] = {}
        self._next_id = 1
        self._changed: dict[Series, None] = {}
        self._new: dict[Series, None] = {}
        self._gone: list[int] = []
        self._is_described = False

    def note(self, found: StreamLine[Series], t_ms: int) -> None:
        """Add the changes of one line from the agent."""
        self._ms, self.is_dirty = t_ms, True
        self._is_described = self._is_described or found.is_described
        for series in found.gone:
            if self._values.pop(series, None) is None:
                continue
            self._changed.pop(series, None)
            id_ = self._ids.pop(series)
            if self._new.pop(series, self) is self:
                self._gone.append(id_)
            self.is_reshaped = True
        for series, value in zip(found.touched, found.values, strict=True):
            before = self._values.get(series)
            self._values[series] = value
            if before is None:
                self._ids[series] = self._next_id
                self._next_id += 1
                self._new[series] = None
                self.is_reshaped = True
            elif series not in self._new and before != value:
                self._changed[series] = None

    def change(self) -> bytes:
        """Return a line with the changes since the last one."""
        message: dict[str, object] = {"kind": "change"}
        if self._changed:
            values = self._values
            message["values"] = {
                str(self._ids[series]): encoded(values[series]) for series in self._changed
            }
        if self._new:
            message["new"] = [self._entry(series) for series in self._new]
        if self._gone:
            message["gone"] = self._gone
        if self._is_described:
            message["families"] = dict(self._series.families)
        line = self._line(message if len(message) > 1 else {"kind": "heartbeat"})
        self.forget_changes()
        return line

    def forget_changes(self) -> None:
        self._changed, self._new, self._gone = {}, {}, []
        self.is_dirty = self.is_reshaped = self._is_described = False

    def snapshot(self) -> bytes:
        """Return the lines with which an agent's delivery begins."""
        target = self._target
        origin = {"url": target.url, "labels": target.labels, "pod": target.pod}
        message: dict[str, object] = {
            "kind": "snapshot",
            "version": VERSION,
            "series": [self._entry(series) for series in self._values],
            "families": dict(self._series.families),
        }
        return b"%d origin %s\n%s" % (self.number, _json(origin), self._line(message))

    def _line(self, message: dict[str, object]) -> bytes:
        message["ms"] = self._ms
        if self._series.error is not None:
            message["error"] = self._series.error
        return b"%d line %s\n" % (self.number, _json(message))

    def _entry(self, series: Series) -> list[object]:
        labels = {name: text for name, text in series.labels.items() if name != METRIC_NAME}
        name = series.labels[METRIC_NAME]
        return [self._ids[series], name, labels, encoded(self._values[series])]


class Relay:
    """Delivers one replica's agents to any number of readers.

    Args:
        replica: its name.
        now_s: the machine's time.
    """

    def __init__(self, replica: str, now_s: Callable[[], float]) -> None:
        self._replica = replica
        self._now_s = now_s
        self._agents: dict[FeedTarget, _Agent] = {}
        self._numbers = 0
        self._readers: set[Reader] = set()

    @property
    def readers(self) -> int:
        return len(self._readers)

    def note(
        self, target: FeedTarget, series: StreamedTarget, found: StreamLine[Series], t_ms: int
    ) -> None:
        """Take a line that came from an agent, for delivery."""
        agent = self._agents.get(target)
        if agent is not None:
            agent.note(found, t_ms)
            return
        self._numbers += 1
        agent = self._agents[target] = _Agent(self._numbers, target, series)
        agent.note(found, t_ms)
        agent.forget_changes()
        agent.sent_s = self._now_s()
        if self._readers:
            self._put(agent.snapshot())

    def end(self, target: FeedTarget, word: Literal["lost", "left", "gone"]) -> None:
        """Tell the readers that an agent is no longer delivered, and why."""
        agent = self._agents.pop(target, None)
        if agent is not None:
            self._put(b"%d %s\n" % (agent.number, word.encode()))

    def flush(self, *, at_once: bool = False) -> None:
        """Send pending changes to the readers, about once a second for each agent."""
        now_s = self._now_s()
        for agent in self._agents.values():
            if not agent.is_dirty:
                continue
            if not self._readers:
                agent.forget_changes()
            elif at_once or agent.is_reshaped or now_s - agent.sent_s >= _PAUSE_S:
                agent.sent_s = now_s
                self._put(agent.change())

    def alive(self) -> None:
        self._put(b"- alive\n")

    def open(self) -> Reader:
        """Start a response, with all current agents."""
        self.flush(at_once=True)
        reader = Reader()
        reader.put(b"- hello %s\n" % _json({"version": 1, "replica": self._replica}))
        for part in self._snapshots():
            reader.put(part)
        reader.put(b"- alive\n")
        self._readers.add(reader)
        return reader

    def close(self, reader: Reader) -> None:
        self._readers.discard(reader)

    def _snapshots(self) -> Iterator[bytes]:
        return (agent.snapshot() for agent in self._agents.values())

    def _put(self, text: bytes) -> None:
        for reader in self._readers:
            reader.put(text)


def _json(message: object) -> bytes:
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode(errors="replace")
