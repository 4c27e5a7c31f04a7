"""Spans and steps out of the answers of a Prometheus. Plain arithmetic, no I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpuscale.ops.past.kinds import KINDS, METRIC_QUERY, PRESENT_QUERY, SPARSE, STEPS

_GAP_STEPS = 2
"""Moments without a point within which what was so is taken to have gone on: a scrape may be missed."""

_OWNER_KEYS = ("owner_kind", "owner_name")

Point = tuple[int, float]
"""Seconds since the epoch, and a value."""
Series = Sequence[tuple[Mapping[str, str], Sequence[Point]]]


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that happened."""

    kind: str
    """An id of `KINDS` or `STEPS`."""
    about: str
    """What it happened to: `hpa/prod/chat`."""
    what: str
    begin_s: int
    end_s: int
    """The same as the begin for a step."""
    begins_before: bool = False
    """Whether it was so when the range began."""
    goes_on: bool = False
    """Whether it was so when the range ended."""


@dataclass(frozen=True, slots=True)
class Past:
    """What happened in a range, in order."""

    begin_s: int
    end_s: int
    step_s: int
    incidents: tuple[Incident, ...]
    unseen: tuple[str, ...]
    """Kinds of which nothing can be said, with the reason."""


def queries() -> Mapping[str, str]:
    """Return the range queries by the names of `past_of`."""
    return {
        **{each.id: each.query for each in (*KINDS, *STEPS)},
        "metrics": METRIC_QUERY,
        "present": PRESENT_QUERY,
    }


def past_of(
    answers: Mapping[str, Series],
    begin_s: int,
    end_s: int,
    step_s: int,
    makers: Iterable[Mapping[str, str]] = (),
    unseen: Sequence[str] = (),
) -> Past:
    """Return what happened, from the answers to `queries`.

    Args:
        answers: by name; what could not be asked is left out.
        begin_s: of the range.
        end_s: likewise.
        step_s: between two moments.
        makers: labels of `makers_query`'s rows.
        unseen: what could not be asked, each with the reason.
    """
    made = {(row.get("namespace"), row.get("replicaset")): row for row in makers}
    found: list[Incident] = []
    for kind in KINDS:
        for found_labels, points in answers.get(kind.id, ()):
            labels = found_labels
            if labels.get("owner_kind") == "ReplicaSet":
                maker = made.get((labels.get("namespace"), labels.get("owner_name")), {})
                labels = {**labels, **{key: maker[key] for key in _OWNER_KEYS if key in maker}}
            for begin, end, most in _spans(points, step_s):
                is_first, is_last = begin <= begin_s + step_s, end >= end_s - _GAP_STEPS * step_s
                if end - begin < kind.least_s and not is_last:
                    continue
                if kind.begins_only and is_first:
                    continue
                about, what = kind.about(labels), kind.tell(labels, most)
                end = begin if kind.begins_only else end
                goes_on = is_last and not kind.begins_only
                found.append(Incident(kind.id, about, what, begin, end, is_first, goes_on))
    metrics = _by_hpa(answers.get("metrics", ()))
    for steps in STEPS:
        for labels, points in answers.get(steps.id, ()):
            about = steps.about(labels)
            for (_, before), (at, after) in pairwise(points):
                if before != after:
                    why = _why(metrics.get(about, ()), at, after > before)
                    found.append(Incident(steps.id, about, steps.tell(before, after) + why, at, at))
    present = {labels.get("__name__", "") for labels, _ in answers.get("present", ())} | SPARSE
    absent = [
        f"{each.id}: there is no series {each.needs}"
        for each in (*KINDS, *STEPS)
        if each.needs not in present
    ]
    order = [each.id for each in (*KINDS, *STEPS)]
    found.sort(key=lambda each: (each.begin_s, order.index(each.kind), each.about))
    return Past(begin_s, end_s, step_s, tuple(found), (*unseen, *absent))


def _spans(points: Sequence[Point], step_s: int) -> Iterator[tuple[int, int, float]]:
    """Yield begin, end and highest value of each run of moments."""
    run: list[Point] = []
    for point in points:
        if run and point[0] - run[-1][0] > _GAP_STEPS * step_s:
            yield run[0][0], run[-1][0] + step_s, max(value for _, value in run)
            run = []
        run.append(point)
    if run:
        yield run[0][0], run[-1][0] + step_s, max(value for _, value in run)


def _by_hpa(series: Series) -> Mapping[str, Series]:
    found: dict[str, list[tuple[Mapping[str, str], Sequence[Point]]]] = {}
    for labels, points in series:
        about = f"hpa/{labels.get('namespace', '')}/{labels.get('horizontalpodautoscaler', '')}"
        found.setdefault(about, []).append((labels, points))
    return found


def _why(metrics: Series, at_s: int, is_up: bool) -> str:
    """Return the metric that asked for most just before a step, in words; empty where none is known."""
    seen = [
        (value, labels.get("metric_name", ""))
        for labels, points in metrics
        if (value := _last_before(points, at_s)) is not None
    ]
    if not seen:
        return ""
    value, name = max(seen)
    is_reason = value > 1 if is_up else value < 1
    return f": {name} was at {100 * value:.0f} % of its target" if is_reason else ""


def _last_before(points: Iterable[Point], at_s: int) -> float | None:
    found = None
    for moment, value in points:
        if moment > at_s:
            break
        found = value
    return found
