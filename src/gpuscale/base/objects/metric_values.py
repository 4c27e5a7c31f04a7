"""Values of the custom and external metrics APIs: one type from the query to the decision.

Source: k8s.io/metrics v0.36 pkg/apis/custom_metrics/v1beta2/types.go and external_metrics/v1beta1/types.go;
defaults of missing fields: kubernetes v1.36 pkg/controller/podautoscaler/metrics/client.go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gpuscale.base.quantity import parse_quantity

DEFAULT_WINDOW_MS = 60_000
"""The controller's window of a value that names none."""
NO_TIME_MS = -62_135_596_800_000
"""Go's zero time, the year 1: when a value that carries no time was measured."""
_MAX_WINDOW_S = 1_000_000_000
"""Thirty years; nothing is measured over more."""
_MAX_INT64 = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class MetricValue:
    """A custom metric of one object."""

    object_name: str
    value_milli: int
    measured_ms: int = 0
    window_ms: int = DEFAULT_WINDOW_MS


@dataclass(frozen=True, slots=True)
class ExternalValue:
    """One value of an external metric."""

    labels: Mapping[str, str] | None
    """None for a scalar."""
    value_milli: int
    measured_ms: int


def items_of(answer: Mapping[str, object]) -> tuple[Mapping[str, object], ...]:
    """Return the items of an API's list.

    Raises:
        ValueError: it is no list.
    """
    items = answer.get("items")
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError("the answer is no list of metrics")
    return tuple(items)


def read_pod_values(items: Sequence[Mapping[str, object]]) -> tuple[MetricValue, ...]:
    """Return the values of a Pods metric, in the order of the items.

    Raises:
        ValueError: an item has no pod, no value, or a window that is no number of seconds.
    """
    return tuple(_metric_value(_named(item), item) for item in items)


def read_object_value(items: Sequence[Mapping[str, object]]) -> MetricValue:
    """Return the value of an Object metric.

    Raises:
        ValueError: there is not exactly one item, or it has no value.
    """
    if len(items) != 1:
        raise ValueError(
            f"the custom metrics API server returned {len(items)} results "
            "when we asked for exactly one"
        )
    return _metric_value(_name(items[0]), items[0])


def read_external_values(items: Sequence[Mapping[str, object]]) -> tuple[ExternalValue, ...]:
    """Return the values of an External metric, in the order of the items.

    Raises:
        ValueError: an item has no value.
    """
    return tuple(map(_external_value, items))


def _metric_value(name: str, item: Mapping[str, object]) -> MetricValue:
    window = item.get("windowSeconds", item.get("window"))
    return MetricValue(
        name,
        milli_of(item.get("value")),
        time_ms(item.get("timestamp")),
        DEFAULT_WINDOW_MS if window is None else _window_ms(window),
    )


def _external_value(item: Mapping[str, object]) -> ExternalValue:
    labels = item.get("metricLabels")
    pairs = labels.items() if isinstance(labels, dict) else ()
    return ExternalValue(
        {str(key): str(text) for key, text in pairs},
        milli_of(item.get("value")),
        time_ms(item.get("timestamp")),
    )


def _name(item: Mapping[str, object]) -> str:
    described = item.get("describedObject")
    name = described.get("name") if isinstance(described, dict) else None
    return name if isinstance(name, str) else ""


def _named(item: Mapping[str, object]) -> str:
    name = _name(item)
    if not name:
        raise ValueError("the answer has an item without a name")
    return name


def milli_of(value: object) -> int:
    """Return a quantity in thousandths, rounded up.

    Raises:
        ValueError: it is no quantity, or does not fit 64 bits.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("the answer has an item without a value")
    milli = parse_quantity(value).milli_value()
    if abs(milli) > _MAX_INT64:
        raise ValueError(f"the answer has a value beyond {_MAX_INT64}m")
    return milli


def time_ms(time: object) -> int:
    """Return an API time in milliseconds since the epoch; `NO_TIME_MS` if missing."""
    try:
        moment = datetime.fromisoformat(time if isinstance(time, str) else "")
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1000)
    except (OverflowError, ValueError):
        return NO_TIME_MS


def _window_ms(window: object) -> int:
    if isinstance(window, bool) or not isinstance(window, int) or not 0 <= window <= _MAX_WINDOW_S:
        raise ValueError("the answer has a window that is no number of seconds")
    return window * 1000
