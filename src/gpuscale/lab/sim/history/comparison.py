"""The difference between a replay with the real settings and the recording."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuscale.base.errors import BugError
from gpuscale.base.words import counted
from gpuscale.lab.sim.history.demand import Demand
from gpuscale.lab.sim.history.recording import Column, Recording, RecordingFacts, changes
from gpuscale.lab.sim.history.writing import POOL

_MS_PER_HOUR = 3_600_000
_DIGITS = 4
_MOST_SHOWN = 5
"""Changes of an HPA in the text."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Recorded and replayed GPU-hours, over the steps for which both are known."""

    recorded: float
    replayed: float

    def document(self) -> dict[str, object]:
        """Return both, and the replay's excess in percent; None if nothing was recorded."""
        recorded = self.recorded
        more = (self.replayed / recorded - 1) * 100 if recorded else None
        return {
            "recorded": round(recorded, _DIGITS),
            "replayed": round(self.replayed, _DIGITS),
            "differencePercent": None if more is None else round(more, 2),
        }


def compared(
    run: Mapping[str, Any],
    recording: Recording,
    demand: Demand,
    facts: RecordingFacts,
    deployment: str,
    settings: Sequence[str] = (),
    hpa_changes: Sequence[Mapping[str, Any]] = (),
) -> dict[str, object]:
    """Return the `replay` part of a run's document: recorded, missing and differing figures.

    Moments without a known demand or without recorded replicas are left out of the comparison.

    Args:
        run: the document of the replay.
        recording: what really happened.
        demand: what the replay's load was made of.
        facts: of the same workload.
        deployment: its name.
        settings: what was not as it really ran.
        hpa_changes: those of the HPA that were replayed, as a scenario has them.
    """
    series = run["series"]
    known = [rate is not None for rate in demand.rates]
    columns = recording.columns
    replayed = replicas_of(run, recording, deployment)
    pairs = _known_pairs(columns.replicas, replayed, known)
    node_pairs = _known_pairs(
        columns.nodes, _at_steps(series["t"], series[f"nodes/{POOL}/ready"], recording), known
    )
    differing = sum(seen != other for seen, other in pairs)
    return {
        "workload": deployment,
        "set": list(settings),
        "hours": round(len(recording) * recording.step_ms / _MS_PER_HOUR, _DIGITS),
        "missingPercent": round(100 * demand.missing_ratio, 2),
        "demand": "estimated from utilisation" if demand.is_estimated else "recorded requests",
        "lowerBoundPercent": round(100 * demand.lower_bound_ratio, 2),
        "assumed": list(facts.notes),
        "podGpuHours": _hours(pairs, facts.gpus_per_pod, recording.step_ms).document(),
        "nodeGpuHours": (
            _hours(node_pairs, facts.gpus_per_node, recording.step_ms).document()
            if node_pairs
            else None
        ),
        "replicasDifferPercent": round(100 * differing / len(pairs), 2) if pairs else None,
        "meanReplicasDifference": (
            round(sum(abs(seen - other) for seen, other in pairs) / len(pairs), 3)
            if pairs
            else None
        ),
        "scaleEvents": {
            "recorded": changes(columns.replicas),
            "replayed": changes(replayed),
        },
        "metricSeen": _has_metric(series),
        "hpaChanges": [dict(each) for each in hpa_changes],
    }


def replicas_of(run: Mapping[str, Any], recording: Recording, deployment: str) -> Column:
    """Return the replicas of a replay at the recording's steps."""
    series = run["series"]
    hpa = next(
        (name for name in series if name.startswith("hpa/") and name.endswith("/current")), None
    )
    return _at_steps(series["t"], series[hpa or f"replicas/{deployment}/ready"], recording)


def _at_steps(
    times_s: Sequence[float], values: Sequence[float | None], recording: Recording
) -> Column:
    """Return a run's series at the recording's steps; None outside of the kept rows."""
    if not times_s:
        raise BugError("a run without a row")
    found: list[float | None] = []
    for index in range(len(recording)):
        time_s = index * recording.step_ms / 1000
        row = bisect_right(times_s, time_s) - 1
        is_over = time_s >= times_s[-1] + recording.step_ms / 1000
        found.append(None if row < 0 or is_over else values[row])
    return tuple(found)


def _known_pairs(
    recorded: Column, replayed: Column, known: Sequence[bool]
) -> list[tuple[float, float]]:
    return [
        (seen, other)
        for seen, other, is_known in zip(recorded, replayed, known, strict=True)
        if is_known and seen is not None and other is not None
    ]


def _hours(pairs: Sequence[tuple[float, float]], gpus: int, step_ms: int) -> Pair:
    hours = gpus * step_ms / _MS_PER_HOUR
    return Pair(sum(seen for seen, _ in pairs) * hours, sum(other for _, other in pairs) * hours)


def _has_metric(series: Mapping[str, Sequence[float | None]]) -> bool | None:
    """Return whether an HPA ever had a metric value; None if the run has no HPA values."""
    values = [name for name in series if name.startswith("hpa/") and name.endswith("/value")]
    if not values:
        return None
    return any(value is not None for name in values for value in series[name])


def text(replay: Mapping[str, Any]) -> str:
    """Return the comparison in words."""
    lines = [
        f"{replay['hours']:g} h of {replay['workload']}; demand: {replay['demand']}; "
        f"nothing is known of {replay['missingPercent']:g} % of the time",
    ]
    if replay["lowerBoundPercent"]:
        lines.append(
            f"in {replay['lowerBoundPercent']:g} % of the known time the GPUs were saturated or off, and the "
            "demand is a lower bound"
        )
    lines += [f"assumed: {each}" for each in replay["assumed"]]
    changes_text = [_change_text(each) for each in replay["hpaChanges"]]
    if changes_text:
        more = len(changes_text) - _MOST_SHOWN
        rest = f"; and {counted(more, 'change')} more" if more > 0 else ""
        lines.append(
            f"the HPA changed and is replayed as it was: {'; '.join(changes_text[:_MOST_SHOWN])}{rest}"
        )
    if replay["metricSeen"] is False:
        lines.append(
            "the HPA had no value of its first metric in the whole replay: simulated pods have GPU metrics, "
            "and none that the rules make this metric of"
        )
    pods, nodes = replay["podGpuHours"], replay["nodeGpuHours"]
    parts = [f"GPU-hours of pods {_hours_text(pods)}"]
    if nodes is not None:
        parts.append(f"of nodes {_hours_text(nodes)}")
    differ = replay["replicasDifferPercent"]
    if differ is not None:
        mean = replay["meanReplicasDifference"]
        parts.append(f"replicas differ in {differ:g} % of the time (by {mean:g} in the mean)")
    events = replay["scaleEvents"]
    parts.append(f"{events['replayed']} changes of replicas for {events['recorded']}")
    what = (
        f"replay with {', '.join(replay['set'])}" if replay["set"] else "replay of what really ran"
    )
    lines.append(f"{what}: {', '.join(parts)}")
    return "\n".join(lines)


def _change_text(change: Mapping[str, Any]) -> str:
    limits = [f"{name} {change[name]}" for name in ("minReplicas", "maxReplicas") if name in change]
    targets = [f"target {value} of {name}" for name, value in change.get("targets", {}).items()]
    return f"from {change['at']} on {', '.join((*limits, *targets))}"


def _hours_text(hours: Mapping[str, Any]) -> str:
    more = hours["differencePercent"]
    shown = "" if more is None else f", {more:+g} %"
    return f"{hours['replayed']:.1f} for {hours['recorded']:.1f}{shown}"
