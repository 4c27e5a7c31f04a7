"""Reads scaling figures from API objects: an HPA's status, a pod's state, an event.

They are read field by field; what is missing or of another type is passed over.

Source: Kubernetes API v1.36, autoscaling/v2 HorizontalPodAutoscalerStatus, core/v1 PodStatus and Event.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from gpuscale.base.quantity import parse_quantity
from gpuscale.kube import fields_of, mapping_of, text_of
from gpuscale.kube.client import JsonObject
from gpuscale.load.timeline.types import TimelineMark
from gpuscale.ops.doctor import is_ready

_MAX_TEXT = 500
_VALUES = ("averageUtilization", "averageValue", "value")


@dataclass(frozen=True, slots=True)
class MetricFigures:
    """A metric in an HPA's status and spec."""

    name: str
    unit: str
    """`%` of a request, else the metric's own name: each has a chart of its own."""
    current: float | None
    target: float | None


@dataclass(frozen=True, slots=True)
class HpaFigures:
    """An HPA's status; None means not reported yet."""

    current: int | None
    wanted: int | None
    metrics: tuple[MetricFigures, ...]


def read_hpa_figures(body: JsonObject) -> HpaFigures:
    """Return the figures of an autoscaling/v2 HPA."""
    status, spec = mapping_of(body.get("status")), mapping_of(body.get("spec"))
    current = {
        (kind, name): values for kind, name, values in _metrics(status, "currentMetrics", "current")
    }
    metrics = []
    for kind, name, target in _metrics(spec, "metrics", "target"):
        key = next((each for each in _VALUES if each in target), "")
        found = _number(current.get((kind, name), {}).get(key))
        unit = "%" if key == "averageUtilization" else name
        metrics.append(MetricFigures(name, unit, found, _number(target.get(key))))
    has_looked = bool(status.get("conditions"))
    return HpaFigures(
        current=_count(status.get("currentReplicas")) if has_looked else None,
        wanted=_count(status.get("desiredReplicas")) if has_looked else None,
        metrics=tuple(metrics),
    )


def _metrics(
    part: Mapping[str, object], key: str, values: str
) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    """Yield type, name and values of each metric in a spec or status."""
    listed = part.get(key)
    for each in listed if isinstance(listed, list) else ():
        body = mapping_of(each)
        kind = text_of(body.get("type"))
        own = mapping_of(body.get(kind[:1].lower() + kind[1:]))
        name = text_of(mapping_of(own.get("metric")).get("name")) or text_of(own.get("name"))
        if name:
            yield kind, name, mapping_of(own.get(values))


def _number(value: object) -> float | None:
    try:
        return float(parse_quantity(value)) if isinstance(value, (str, int)) else None
    except ValueError:
        return None


def _count(value: object) -> int:
    """Return a replica count; Go omits a 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def read_pod_state(body: JsonObject) -> str:
    """Return a pod's state: pending, starting, running, ending, done or failed."""
    status = mapping_of(body.get("status"))
    phase = text_of(status.get("phase"))
    if phase in ("Succeeded", "Failed"):
        return "done" if phase == "Succeeded" else "failed"
    if text_of(mapping_of(body.get("metadata")).get("deletionTimestamp")):
        return "ending"
    if phase == "Running":
        return "running" if is_ready(fields_of(body)) else "starting"
    is_placed = text_of(mapping_of(body.get("spec")).get("nodeName"))
    return "starting" if is_placed else "pending"


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The relevant facts of a node."""

    is_ready: bool
    has_gpus: bool


def read_node_state(body: JsonObject) -> NodeFigures:
    """Return whether a node is ready, and whether it has GPUs of any vendor's device plugin."""
    capacity = mapping_of(mapping_of(body.get("status")).get("capacity"))
    gpus = (value for name, value in capacity.items() if name.endswith("/gpu"))
    return NodeFigures(is_ready(fields_of(body)), any(_number(value) for value in gpus))


def read_event(body: JsonObject) -> TimelineMark | None:
    """Return an event as a mark; None where it has no time."""
    about = mapping_of(body.get("involvedObject"))
    series = mapping_of(body.get("series"))
    times = (
        series.get("lastObservedTime"), body.get("lastTimestamp"), body.get("eventTime"),
        body.get("firstTimestamp"),
    )  # fmt: skip
    at_ms = next((found for each in times if (found := _time_ms(each)) is not None), None)
    if at_ms is None:
        return None
    return TimelineMark(
        at_ms,
        text_of(body.get("reason"))[:_MAX_TEXT],
        f"{text_of(about.get('kind'))}/{text_of(about.get('name'))}"[:_MAX_TEXT],
        text_of(body.get("message"))[:_MAX_TEXT],
    )


def _time_ms(value: object) -> int | None:
    try:
        return round(datetime.fromisoformat(text_of(value)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
