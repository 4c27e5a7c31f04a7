"""Answers of the metrics APIs as entries of a Decision document's `observed`.

An answer that the controller's client could not decode is an error, as it is there.

Source: kubernetes v1.36 pkg/controller/podautoscaler/metrics/client.go.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from gpuscale.core.durations import parse_duration_ms
from gpuscale.core.quantity import parse_quantity
from gpuscale.hpa.arithmetic import MAX_INT32, MAX_INT64
from gpuscale.hpa.document_fields import MAX_SPAN_S
from gpuscale.kube.json_values import mapping_of, text_of
from gpuscale.objects.hpa import (
    ContainerResourceMetric,
    ExternalMetric,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)

Entry = dict[str, object]


def observed_entry(spec: MetricSpec, answer: Mapping[str, object], now_ms: int) -> Entry:
    """Return what an API answered for a metric, with ages instead of times."""
    items = answer.get("items")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return {"error": "the answer is no list of metrics"}
    try:
        match spec:
            case PodsMetric():
                return {"pods": _pod_values(items, now_ms)}
            case ObjectMetric():
                return _object_value(items)
            case ExternalMetric():
                return {"samples": [_quantity(item.get("value")) for item in items]}
            case ResourceMetric() | ContainerResourceMetric():
                return {"pods": _pod_usages(items, spec.name, now_ms)}
    except ValueError as error:
        return {"error": str(error)}


def age_s(time: object, now_ms: int) -> float:
    """Return how long ago a time of the API was, in seconds; one that is missing is Go's year 1, long ago."""
    try:
        moment = datetime.fromisoformat(text_of(time))
    except ValueError:
        return float(MAX_SPAN_S)
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    try:
        passed_ms = now_ms - round(aware.timestamp() * 1000)
    except (OverflowError, ValueError):
        return float(MAX_SPAN_S)
    return min(max(passed_ms, 0) / 1000, MAX_SPAN_S)


def count(value: object) -> int:
    """Return a number of replicas; Go leaves out one that is 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return min(max(value, 0), MAX_INT32)


def conditions_of(body: Mapping[str, object]) -> tuple[Mapping[str, object], ...]:
    """Return the conditions in an object's status."""
    conditions = mapping_of(body.get("status")).get("conditions")
    return tuple(map(mapping_of, conditions if isinstance(conditions, list) else ()))


def _pod_values(items: Sequence[Mapping[str, object]], now_ms: int) -> list[Entry]:
    """Return a value for each pod; of two for one pod the last counts."""
    found: dict[str, Entry] = {}
    for item in items:
        name = _name(mapping_of(item.get("describedObject")))
        age = age_s(item.get("timestamp"), now_ms)
        found[name] = {"pod": name, "value": _quantity(item.get("value")), "age": age}
        window = item.get("windowSeconds", item.get("window"))
        if window is not None:
            found[name]["window"] = _seconds(window)
    return list(found.values())


def _object_value(items: Sequence[Mapping[str, object]]) -> Entry:
    if len(items) != 1:
        return {
            "error": f"the custom metrics API server returned {len(items)} results "
            "when we asked for exactly one"
        }
    return {"value": _quantity(items[0].get("value"))}


def _pod_usages(items: Sequence[Mapping[str, object]], resource: str, now_ms: int) -> list[Entry]:
    found: dict[str, Entry] = {}
    for item in items:
        name = _name(mapping_of(item.get("metadata")))
        found[name] = {
            "pod": name,
            "containers": _containers(item.get("containers"), resource),
            "age": age_s(item.get("timestamp"), now_ms),
            "window": _go_seconds(item.get("window")),
        }
    return list(found.values())


def _containers(containers: object, resource: str) -> dict[str, object]:
    """Return what each container used; None where it reports none of the resource."""
    found: dict[str, object] = {}
    for each in containers if isinstance(containers, list) else ():
        body = mapping_of(each)
        used = mapping_of(body.get("usage")).get(resource)
        found.setdefault(_name(body), None if used is None else _quantity(used))
    return found


def _name(body: Mapping[str, object]) -> str:
    name = text_of(body.get("name"))
    if not name:
        raise ValueError("the answer has an item without a name")
    return name


def _quantity(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("the answer has an item without a value")
    milli = parse_quantity(value).milli_value()
    if abs(milli) > MAX_INT64:
        raise ValueError(f"the answer has a value beyond {MAX_INT64}m")
    return str(value)


def _seconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SPAN_S:
        raise ValueError("the answer has a window that is no number of seconds")
    return float(value)


def _go_seconds(window: object) -> float:
    """Return the seconds of a Go duration such as `1m0.5s`."""
    return min(parse_duration_ms(text_of(window)) / 1000, float(MAX_SPAN_S))
