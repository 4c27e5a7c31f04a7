"""A rehearsal compared with a simulation of the scenario: equal changes, and their distance in time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.errors import BugError
from gpuscale.triggers.keda import ACTIVATED, DEACTIVATED

REPLICAS = ("SuccessfulRescale", ACTIVATED, DEACTIVATED)
"""Kinds of events that change the replicas of a Deployment."""
NODES = ("TriggeredScaleUp", "ScaleDown")
"""Kinds of events that change the size of a node pool."""
Document = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class CountChange:
    """A change of a count, such as replicas."""

    object: str
    """Of the autoscaler: `HorizontalPodAutoscaler/name` or `ScaledObject/name`; for nodes the kind alone, as
    names differ."""
    before: float | None
    after: float | None
    seconds: float
    """Of scenario time."""

    @property
    def what(self) -> tuple[str, float | None, float | None]:
        """Return the change without its time."""
        return self.object, self.before, self.after


def changes(document: Document, kinds: Sequence[str]) -> tuple[CountChange, ...]:
    """Return the changes of these kinds in a run's document, in order."""
    events = document["events"]
    if not isinstance(events, Iterable):
        raise BugError("a run's document has no events")
    found: list[CountChange] = []
    for event in events:
        if event["kind"] not in kinds:
            continue
        name, seconds = str(event["object"]), event["t"]
        if not isinstance(seconds, (int, float)):
            raise BugError(f"found time {seconds!r} in a run's document")
        shown = "Node" if name.startswith("Node/") else name
        before, after = _number(event["from"]), _number(event["to"])
        found.append(CountChange(shown, before, after, seconds))
    return tuple(found)


def paired(
    simulated: Sequence[CountChange], rehearsed: Sequence[CountChange]
) -> tuple[tuple[CountChange | None, CountChange | None], ...]:
    """Return the changes of both runs side by side; None where one run has no more."""
    length = max(len(simulated), len(rehearsed))
    return tuple(
        (
            simulated[index] if index < len(simulated) else None,
            rehearsed[index] if index < len(rehearsed) else None,
        )
        for index in range(length)
    )


def table_rows(scenario: str, simulated: Document, rehearsed: Document) -> list[str]:
    """Return the rows of a Markdown table: scenario, change, both times and their difference."""
    rows: list[str] = []
    for kinds in (REPLICAS, NODES):
        for virtual, real in paired(changes(simulated, kinds), changes(rehearsed, kinds)):
            shown = virtual or real
            if shown is None:
                raise BugError("a row needs a change")
            change = f"{shown.before:g} → {shown.after:g}"
            times = [f"{each.seconds:.1f} s" if each else "-" for each in (virtual, real)]
            apart = f"{real.seconds - virtual.seconds:+.1f} s" if virtual and real else "-"
            cells = (scenario, shown.object, change, *times, apart)
            rows.append(f"| {' | '.join(cells)} |")
    return rows


def _number(value: object) -> float | None:
    return value if isinstance(value, (int, float)) else None
