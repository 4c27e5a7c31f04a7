"""The `observed` entries of a Decision document: what the metrics APIs answered, one per metric."""

from collections.abc import Sequence
from itertools import zip_longest

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    ExternalMetric,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from gpuscale.base.objects.metric_values import DEFAULT_WINDOW_MS, MetricValue
from gpuscale.base.objects.selectors import Selector
from gpuscale.hpa.decisions.document_fields import (
    NOW_MS,
    measured_ms,
    milli_of,
    note_unknown,
    shown,
    span_ms,
    value_milli,
)
from gpuscale.hpa.types import (
    ContainerUsages,
    ExternalValues,
    FetchError,
    ObjectValue,
    Observation,
    PodUsage,
    PodValues,
)

_ANSWERS: tuple[str, ...] = ("pods", "value", "samples", "error")
_UNREADABLE = FetchError("")
"""Placeholder of an entry with a fault until the whole document is refused."""


def metric_label(spec: MetricSpec) -> str:
    """Return the short name of a metric, such as `External queue(name=a)` or `Resource cpu`."""
    match spec:
        case PodsMetric():
            return f"Pods {spec.name}{_in_parentheses(spec.selector)}"
        case ObjectMetric():
            return f"Object {spec.name}{_in_parentheses(spec.selector)}"
        case ExternalMetric():
            return f"External {spec.name}{_in_parentheses(spec.selector)}"
        case ResourceMetric():
            return f"Resource {spec.name}"
        case ContainerResourceMetric():
            return f"ContainerResource {spec.name} of {spec.container}"


def _in_parentheses(selector: Selector | None) -> str:
    return f"({selector})" if selector else ""


def read_observed(
    spec: Fields, metrics: Sequence[MetricSpec] | None, *, is_needed: bool
) -> tuple[Observation, ...]:
    """Return the answers of a document.

    Args:
        spec: the fields of its `spec`; faults are noted there.
        metrics: those of the HPA; None where they could not be read, and what answers belong to is unknown.
        is_needed: whether this sync looks at metrics; if not, `observed` may be left out.
    """
    entries = tuple(spec.items("observed"))
    if metrics is None:
        return tuple(_observation(entry, None) for entry in entries)
    if len(entries) != len(metrics) and (is_needed or "observed" in spec):
        names = ", ".join(metric_label(metric) for metric in metrics)
        expected = f"{_entries(len(metrics))}, one for each metric of the HPA in its order: {names}"
        spec.note(("observed",), expected, found=_entries(len(entries)))
    pairs = zip_longest(entries, metrics[: len(entries)])
    return tuple(_observation(entry, metric) for entry, metric in pairs)


def _entries(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"


def _observation(entry: Fields, metric: MetricSpec | None) -> Observation:
    note_unknown(entry, *_ANSWERS)
    answers = [key for key in _ANSWERS if key in entry]
    match metric:
        case None:
            wanted = _ANSWERS
        case ObjectMetric():
            wanted = "value", "error"
        case ExternalMetric():
            wanted = "samples", "error"
        case _:
            wanted = "pods", "error"
    if len(answers) != 1 or answers[0] not in wanted:
        found = " and ".join(answers) or "no answer"
        of_metric = "" if metric is None else f" for the metric {metric_label(metric)}"
        entry.note((), f"one of {', '.join(wanted)}{of_metric}", found=found)
        return _UNREADABLE
    match answers[0]:
        case "error":
            return FetchError(entry.text("error"))
        case "value":
            return ObjectValue(value_milli(entry, "value"))
        case "samples":
            return ExternalValues(_samples_milli(entry))
        case _:
            return _of_pods(entry, metric)


def _samples_milli(entry: Fields) -> tuple[int, ...]:
    samples = entry.data["samples"]
    if not isinstance(samples, list):
        entry.note(("samples",), "a list of quantities", found=shown(samples))
        return ()
    return tuple(milli_of(entry, ("samples", i), value) for i, value in enumerate(samples))


def _of_pods(entry: Fields, metric: MetricSpec | None) -> Observation:
    items = tuple(entry.items("pods"))
    note_repeated(items, "pod")
    if metric is None:
        has_containers = any("containers" in item for item in items)
    else:
        has_containers = isinstance(metric, ResourceMetric | ContainerResourceMetric)
    if has_containers:
        return ContainerUsages(tuple(_pod_usage(item) for item in items))
    return PodValues(tuple(_pod_value(item) for item in items))


def oldest_age_s(observation: Observation) -> float | None:
    """Return the age of the oldest of the pods' values, in seconds; None where values have no times."""
    match observation:
        case PodValues(samples) | ContainerUsages(samples) if samples:
            return (NOW_MS - min(each.measured_ms for each in samples)) / 1000
        case _:
            return None


def note_repeated(items: Sequence[Fields], key: str) -> None:
    """Record each item with the name of an earlier one."""
    seen: set[object] = set()
    for item in items:
        name = item.data.get(key)
        if isinstance(name, str) and name in seen:
            item.note((key,), "each pod once", found=repr(name))
        seen.add(name if isinstance(name, str) else None)


def _pod_value(item: Fields) -> MetricValue:
    note_unknown(item, "pod", "value", "age", "window")
    return MetricValue(
        object_name=item.text("pod", required=True),
        value_milli=value_milli(item, "value"),
        measured_ms=measured_ms(item),
        window_ms=_window_ms(item),
    )


def _pod_usage(item: Fields) -> PodUsage:
    note_unknown(item, "pod", "containers", "age", "window")
    containers = item.child("containers", required=True)
    # The API may list a container without this resource.
    usages = {
        name: value_milli(containers, name) if name in containers else None
        for name in containers.data
    }
    return PodUsage(
        pod=item.text("pod", required=True),
        containers=usages,
        measured_ms=measured_ms(item),
        window_ms=_window_ms(item),
    )


def _window_ms(item: Fields) -> int:
    window_ms = span_ms(item, "window")
    return DEFAULT_WINDOW_MS if window_ms is None else window_ms
