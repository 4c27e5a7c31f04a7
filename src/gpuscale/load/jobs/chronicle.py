"""The record of a run of Jobs: states with times, nodes, counts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuscale.base.words import counted
from gpuscale.load.jobs.states import JobState, NodeSight, Standing
from gpuscale.load.timeline.types import Span, Timeline, TimelineMark, Track

MAX_MARKS = 20_000
MAX_POINTS = 5_000
"""Of each track."""


@dataclass(slots=True)
class JobLife:
    """The record of one Job, from creation to end."""

    name: str
    made_ms: int
    standing: Standing
    since_ms: int
    """When it came to the state that it has."""
    spans: list[Span] = field(default_factory=list)
    """States that are over."""
    running_ms: int | None = None
    """When it first ran."""
    ended_ms: int | None = None
    node: str = ""
    """The last one."""
    reasons: list[str] = field(default_factory=list)
    """Why it waited, each once, in order."""


class Chronicle:
    """Records observations of a cluster, keeping what changed.

    Args:
        title: of the timeline.
        started_ms: when the run began.
        has_nodes: whether nodes can be seen at all.
    """

    def __init__(self, title: str, started_ms: int, *, has_nodes: bool) -> None:
        self.lives: dict[str, JobLife] = {}
        self.refused: dict[str, str] = {}
        """Jobs that the API server did not take, and why."""
        self.marks: list[TimelineMark] = []
        self.nodes: dict[str, NodeSight] = {}
        self.most_nodes: int | None = None
        self.added_nodes = self.removed_nodes = 0
        self._title = title
        self._started_ms = self._now_ms = started_ms
        self._has_nodes = has_nodes
        self._are_nodes_known = False
        self._points: dict[str, list[tuple[int, float | None]]] = {}
        self._values: dict[str, float | None] = {}
        self._recorded_ms = started_ms
        self._every_ms = 500
        """Between points of counts that stay as they are; it doubles when a run gets long."""
        self._said: set[tuple[str, str]] = set()

    def made(self, name: str, now_ms: int) -> None:
        """Record a Job's creation."""
        waiting = Standing(JobState.PENDING, "no pod yet")
        self.lives[name] = JobLife(name, now_ms, waiting, now_ms)

    def refuse(self, name: str, why: str, now_ms: int) -> None:
        """Record that a Job was refused."""
        self.refused[name] = why
        self.mark_once(now_ms, "FailedCreate", f"Job/{name}", why)

    def see(self, name: str, standing: Standing, now_ms: int) -> None:
        """Record a Job's state; a finished Job stays finished."""
        life = self.lives.get(name)
        if life is None or life.standing.state.is_over:
            return
        if standing.node:
            life.node = standing.node
        if standing.state.is_waiting and standing.reason and standing.reason not in life.reasons:
            life.reasons.append(standing.reason)
        if standing.state is life.standing.state:
            life.standing = standing
            return
        if now_ms > life.since_ms:
            life.spans.append(Span(name, life.standing.state.value, life.since_ms, now_ms))
        life.standing, life.since_ms = standing, now_ms
        if standing.state is JobState.RUNNING and life.running_ms is None:
            life.running_ms = now_ms
        if standing.state.is_over:
            life.ended_ms = now_ms
            if standing.state is not JobState.DONE:
                word = standing.state.value.title().replace(" ", "")
                self.mark(now_ms, f"Job{word}", f"Job/{name}", standing.reason)

    def see_nodes(self, nodes: Iterable[NodeSight], now_ms: int) -> None:
        """Record the current nodes; those of the first observation existed before."""
        found = {node.name: node for node in nodes if node.offered}
        if self._are_nodes_known:
            for name in sorted(found.keys() - self.nodes.keys()):
                self.added_nodes += 1
                self.mark(now_ms, "NodeAdded", f"Node/{name}", "")
            for name in sorted(self.nodes.keys() - found.keys()):
                self.removed_nodes += 1
                self.mark(now_ms, "NodeRemoved", f"Node/{name}", "")
            for name in sorted(found.keys() & self.nodes.keys()):
                if found[name].is_ready != self.nodes[name].is_ready:
                    word = "NodeReady" if found[name].is_ready else "NodeNotReady"
                    self.mark(now_ms, word, f"Node/{name}", "")
        self.nodes, self._are_nodes_known = found, True
        self.most_nodes = max(self.most_nodes or 0, len(found))

    def mark(self, at_ms: int, kind: str, about: str, text: str) -> None:
        """Record an event."""
        if len(self.marks) < MAX_MARKS:
            self.marks.append(TimelineMark(at_ms, kind, about, text))

    def mark_once(self, at_ms: int, kind: str, about: str, text: str) -> None:
        """Record an event, once for all objects."""
        if (kind, text) not in self._said and len(self._said) < MAX_MARKS:
            self._said.add((kind, text))
            self.mark(at_ms, kind, about, text)

    def counts(self) -> "Counter[JobState]":
        """Return the number of Jobs in each state."""
        return Counter(life.standing.state for life in self.lives.values())

    def record(
        self, now_ms: int, *, are_jobs_seen: bool = True, are_nodes_seen: bool = True
    ) -> None:
        """Record the current counts; one that can't be observed is a gap."""
        self._now_ms = now_ms
        states = self.counts()
        waiting = sum(number for state, number in states.items() if state.is_waiting)
        failed = sum(
            number
            for state, number in states.items()
            if state.is_over and state is not JobState.DONE
        )
        values: dict[str, float | None] = {
            "made": float(len(self.lives)),
            "pending": float(waiting),
            "running": float(states[JobState.RUNNING]),
            "done": float(states[JobState.DONE]),
            "failed": float(failed + len(self.refused)),
        }
        if not are_jobs_seen:
            values |= dict.fromkeys(("pending", "running", "done", "failed"))
        if self._has_nodes:
            is_known = are_nodes_seen and self._are_nodes_known
            ready = [node for node in self.nodes.values() if node.is_ready]
            values["nodes"] = float(len(ready)) if is_known else None
            values["offered"] = float(sum(node.offered for node in ready)) if is_known else None
        if values == self._values and now_ms - self._recorded_ms < self._every_ms:
            return
        self._values, self._recorded_ms = values, now_ms
        for name, value in values.items():
            self._points.setdefault(name, []).append((now_ms, value))
        if len(self._points["made"]) > MAX_POINTS:
            self._every_ms *= 2
            for points in self._points.values():
                points[:] = points[::2]

    def timeline(self, resource: str) -> Timeline:
        """Return the run so far.

        Args:
            resource: what nodes offer to the Jobs, such as nvidia.com/gpu; empty for none.
        """
        hops = {"made": "load", "nodes": "nodes", "offered": "gpu"}
        units = {"nodes": "nodes", "offered": resource}
        tracks = tuple(
            Track(name, units.get(name, "Jobs"), hops.get(name, "replicas"), tuple(points))  # type: ignore[arg-type]
            for name, points in self._points.items()
            if name != "offered" or resource
        )
        marks = tuple(sorted(self.marks, key=lambda each: each.at_ms))
        return Timeline(
            self._title, self._started_ms, self._now_ms, tracks, marks, tuple(self._spans())
        )

    def _spans(self) -> Iterable[Span]:
        for life in self.lives.values():
            yield from life.spans
            # A succeeded Job's row ends; any other one extends to the end of the chart.
            if life.standing.state is not JobState.DONE and self._now_ms > life.since_ms:
                state = life.standing.state
                word = "failed" if state.is_over else state.value
                yield Span(life.name, word, life.since_ms, self._now_ms)

    def line(self, wanted: int) -> str:
        """Return the current state as one line."""
        states = self.counts()
        waiting = ", ".join(
            f"{number} {state.value}"
            for state, number in sorted(states.items(), key=lambda each: each[0].value)
            if state.is_waiting
        )
        over = {JobState.DONE: states[JobState.DONE]}
        failed = sum(n for state, n in states.items() if state.is_over) - over[JobState.DONE]
        parts = [f"{len(self.lives)} of {counted(wanted, 'Job')} made"]
        parts += [waiting] if waiting else []
        parts += [f"{states[JobState.RUNNING]} running", f"{over[JobState.DONE]} done"]
        parts += [f"{failed} failed"] if failed else []
        parts += [f"{len(self.refused)} refused"] if self.refused else []
        if self._has_nodes and self._are_nodes_known:
            parts.append(counted(len(self.nodes), "node"))
        return ", ".join(parts)


def waits_ms(lives: Mapping[str, JobLife]) -> list[int]:
    """Return the Jobs' waiting times until they ran, sorted; those that never ran are left out."""
    return sorted(
        life.running_ms - life.made_ms for life in lives.values() if life.running_ms is not None
    )
