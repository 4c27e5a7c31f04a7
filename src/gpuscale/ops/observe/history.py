"""The controller's memory, reconstructed from an HPA's status and events.

The controller keeps its recommendations and its changes in memory and shows them nowhere. Its status has the
count of its last decision, and an event each count that it wrote.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (stabilizeRecommendation, storeScaleEvent,
reconcileAutoscaler).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.golang.durations import format_duration
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.hpa.controller import DEFAULT_SETTINGS
from gpuscale.hpa.terms import SCALING_ACTIVE
from gpuscale.kube import mapping_of, text_of
from gpuscale.ops.observe.answers import Entry, age_s, conditions_of, count

_RESCALE = "SuccessfulRescale"
_NEW_SIZE = re.compile(r"New size: (\d{1,10}); reason: (.*)")
_REPLICA_SET = re.compile(r"Scaled (?:up|down) replica set \S+ from (\d{1,10}) to (\d{1,10})")
_SAME_CHANGE_S = 5.0
"""A Deployment follows its scale in less; event times are whole seconds."""
_BY_METRICS = ("above target", "below target")
"""How the reason of a change ends that the metrics asked for; others follow the bounds and record no wish."""


@dataclass(frozen=True, slots=True)
class History:
    """The past of an HPA in a Decision document."""

    entries: Entry
    """Its `history`; empty for a first sync."""
    unknown: tuple[str, ...]
    """What the controller knows beyond that."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A replica count that the controller wrote."""

    replicas: int
    age_s: float
    is_by_metrics: bool


def read_history(
    body: Mapping[str, object],
    events: Sequence[Mapping[str, object]],
    hpa: HorizontalPodAutoscaler,
    now_ms: int,
    target_events: Sequence[Mapping[str, object]] = (),
) -> History:
    """Return what can be reconstructed of the controller's memory of one HPA.

    Args:
        body: of the HPA.
        events: on it.
        hpa: the same HPA, read.
        now_ms: that ages count back from.
        target_events: on the target; a Deployment's say how far a change went.
    """
    window_s = _longest_window_s(hpa)
    changes = sorted(_changes(body, events, now_ms), key=lambda change: -change.age_s)
    recommendations = [
        {"replicas": change.replicas, "age": change.age_s}
        for change in changes
        if change.is_by_metrics and change.age_s <= window_s
    ]
    last = _last_recommendation(body, now_ms)
    entries: Entry = {}
    if last is not None:
        entries["recommendations"] = [*recommendations, last]
    unknown = []
    if window_s:
        unknown.append(
            f"What it recommended within the last {format_duration(window_s * 1000)}. Taken from its status "
            "and events; a change that stabilization holds back may come earlier than said here."
        )
    if hpa.behavior is not None:
        steps = [
            # Its age, and the count before and after it.
            (_event_age_s(event, now_ms), int(match[1]), int(match[2]))
            for event in target_events
            if (match := _REPLICA_SET.match(text_of(event.get("message"))))
        ]
        rules = (hpa.behavior.scale_up, hpa.behavior.scale_down)
        period_s = max((policy.period_s for each in rules for policy in each.policies), default=0)
        ups, downs, missing = _scale_events(body, changes, steps)
        entries |= {key: each for key, each in (("scaleUps", ups), ("scaleDowns", downs)) if each}
        if missing is not None and missing <= period_s:
            unknown.append(
                f"How far it went {format_duration(round(missing) * 1000)} ago: spec.behavior's policies "
                "may allow less than this answer says."
            )
    return History(entries, tuple(unknown))


def _last_recommendation(body: Mapping[str, object], now_ms: int) -> Entry | None:
    """Return the last sync's recommendation with its lowest possible age; None before the first sync.

    Syncs are not dated. While the metrics work the last one was just now; while they fail nothing is
    recommended. Where they never worked the only record is the count of the first sync, as old as the HPA.
    """
    status, conditions = mapping_of(body.get("status")), conditions_of(body)
    if not conditions:
        return None
    active = next((c for c in conditions if c.get("type") == SCALING_ACTIVE), {})
    is_failing = active.get("status") == "False"
    age = age_s(active.get("lastTransitionTime"), now_ms) if is_failing else 0.0
    desired, current = count(status.get("desiredReplicas")), count(status.get("currentReplicas"))
    if is_failing and desired == 0 and current > 0:
        created = mapping_of(body.get("metadata")).get("creationTimestamp")
        return {"replicas": current, "age": age_s(created, now_ms)}
    return {"replicas": desired, "age": age}


def _changes(
    body: Mapping[str, object], events: Sequence[Mapping[str, object]], now_ms: int
) -> Iterator[_Change]:
    uid = text_of(mapping_of(body.get("metadata")).get("uid"))
    for event in events:
        match = _NEW_SIZE.fullmatch(text_of(event.get("message")))
        is_of_hpa = text_of(mapping_of(event.get("involvedObject")).get("uid")) == uid
        if event.get("reason") != _RESCALE or match is None or not is_of_hpa:
            continue
        replicas = count(int(match[1]))
        yield _Change(replicas, _event_age_s(event, now_ms), match[2].endswith(_BY_METRICS))


def _event_age_s(event: Mapping[str, object], now_ms: int) -> float:
    series = mapping_of(event.get("series")).get("lastObservedTime")
    return age_s(series or event.get("lastTimestamp") or event.get("eventTime"), now_ms)


def _scale_events(
    body: Mapping[str, object],
    changes: Sequence[_Change],
    steps: Sequence[tuple[float, int, int]],
) -> tuple[list[Entry], list[Entry], float | None]:
    """Return the scale-ups and scale-downs, and the age of the newest one of unknown size."""
    status = mapping_of(body.get("status"))
    before, after = count(status.get("currentReplicas")), count(status.get("desiredReplicas"))
    ups: list[Entry] = []
    downs: list[Entry] = []
    missing: float | None = None
    previous: int | None = None
    for index, change in enumerate(changes):
        is_last_sync = index == len(changes) - 1 and before != after == change.replicas
        start = before if is_last_sync else _start(change, steps)
        start = previous if start is None else start
        previous = change.replicas
        if start is None:
            missing = change.age_s
        elif start != change.replicas:
            directed = ups if change.replicas > start else downs
            directed.append({"change": abs(change.replicas - start), "age": change.age_s})
    return ups, downs, missing


def _start(change: _Change, steps: Sequence[tuple[float, int, int]]) -> int | None:
    """Return the replica count before a change, if the target's events have it."""
    starts = (
        before
        for age, before, after in steps
        if after == change.replicas and abs(age - change.age_s) <= _SAME_CHANGE_S
    )
    return next(starts, None)


def _longest_window_s(hpa: HorizontalPodAutoscaler) -> int:
    default = DEFAULT_SETTINGS.downscale_stabilization_s
    if hpa.behavior is None:
        return default
    down = hpa.behavior.scale_down.stabilization_window_s
    return max(default if down is None else down, hpa.behavior.scale_up.stabilization_window_s or 0)
