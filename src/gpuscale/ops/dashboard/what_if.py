"""What an HPA would do with another target, value or bounds: the real decision, on changed input. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpuscale.base.objects.hpa import ExternalMetric, MetricSpec, MetricTarget, ObjectMetric
from gpuscale.base.quantity import Quantity, parse_quantity
from gpuscale.hpa import (
    ContainerUsages,
    ExternalValues,
    MetricStatus,
    ObjectValue,
    Observation,
    PodValues,
)
from gpuscale.hpa.controller import deciding_metric
from gpuscale.hpa.decisions import DecisionRequest, current_milli, decide_request

_MOST_REPLICAS = 2**31 - 1
_MOST_AMOUNT = 2**62
"""Thousandths: what a controller can count, with room above."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is changed; None is left as it is."""

    target: Quantity | None = None
    """Of the deciding metric; percent where it is a share of the request."""
    value: Quantity | None = None
    """Of the same, as it is held against the target."""
    least: int | None = None
    most: int | None = None


def read_change(query: Mapping[str, str]) -> Change:
    """Read a change from `target`, `value`, `min` and `max`; one that is empty is none.

    Raises:
        ValueError: one of them can't be; the message is for the user.
    """
    return Change(
        _amount(query, "target", least=1),
        _amount(query, "value", least=0),
        _count(query, "min"),
        _count(query, "max"),
    )


def changed(request: DecisionRequest, change: Change, metric: int | None = None) -> DecisionRequest:
    """Return what an HPA would see.

    Args:
        request: what it sees.
        change: to make.
        metric: whose target and value are changed, by its place; None is the one that decides now.

    Raises:
        ValueError: the change makes no HPA, or there is no metric to change.
    """
    hpa = request.hpa
    least = hpa.min_replicas if change.least is None else change.least
    most = hpa.max_replicas if change.most is None else change.most
    if most < max(1, least or 0):
        raise ValueError(f"max: found {most}, expected at least 1 and the minimum, {least}")
    if least == 0 and hpa.min_replicas != 0 and not request.settings.scale_to_zero:
        raise ValueError("min: found 0, expected at least 1; this cluster's HPAs don't go to zero")
    request = replace(request, hpa=replace(hpa, min_replicas=least, max_replicas=most))
    if change.target is None and change.value is None:
        return request
    index = deciding_index(request) if metric is None else metric
    metrics, observations = list(hpa.metrics), list(request.observations)
    if index >= len(metrics):
        raise ValueError(
            f"the HPA has {len(metrics)} metrics now, and number {index + 1} is changed"
        )
    spec = metrics[index]
    if change.target is not None:
        metrics[index] = replace(spec, target=_target(spec.target, change.target))
    if change.value is not None:
        status, replicas = decide_request(request).metrics[index], request.scale.status_replicas
        observations[index] = _observed(observations[index], spec, status, change.value, replicas)
    return replace(
        request,
        hpa=replace(request.hpa, metrics=tuple(metrics)),
        observations=tuple(observations),
    )


def deciding_index(request: DecisionRequest) -> int:
    """Return the place of the metric that decides now.

    Raises:
        ValueError: the HPA looks at none.
    """
    statuses = decide_request(request).metrics
    if not statuses:
        raise ValueError("the HPA looks at no metric now, so there is none to change")
    return (deciding_metric(statuses) or statuses[0]).index


def _target(target: MetricTarget, amount: Quantity) -> MetricTarget:
    if target.average_utilization is not None:
        return replace(target, average_utilization=max(1, amount.value()))
    if target.average_value is not None:
        return replace(target, average_value=amount)
    return replace(target, value=amount)


def _observed(
    observation: Observation, spec: MetricSpec, status: MetricStatus, value: Quantity, replicas: int
) -> Observation:
    """Return an answer of the metrics API that comes to this value."""
    milli = value.milli_value()
    is_of_all = isinstance(spec, ObjectMetric | ExternalMetric)
    total = milli * replicas if is_of_all and spec.target.average_value is not None else milli
    match observation:
        case PodValues(samples):
            return PodValues(tuple(replace(each, value_milli=milli) for each in samples))
        case ObjectValue():
            return replace(observation, value_milli=total)
        case ExternalValues():
            return replace(observation, values_milli=(total,))
        case ContainerUsages(samples):
            percent = status.average_utilization
            now = current_milli(status) if percent is None else 1000 * percent
            if now:
                return ContainerUsages(
                    tuple(
                        replace(each, containers=_scaled(each.containers, milli / now))
                        for each in samples
                    )
                )
    raise ValueError("value: the metric has none now that could be changed")


def _scaled(usages: Mapping[str, int | None], factor: float) -> Mapping[str, int | None]:
    return {
        name: None if milli is None else round(milli * factor) for name, milli in usages.items()
    }


def _amount(query: Mapping[str, str], name: str, least: int) -> Quantity | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    try:
        found = parse_quantity(text)
    except ValueError:
        found = None
    if found is None or not least <= found.milli_value() <= _MOST_AMOUNT:
        expected = "a number such as 20, 11500m or 500Mi"
        raise ValueError(f"{name}: found {text[:30]!r}, expected {expected}")
    return found


def _count(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and int(text[:12]) <= _MOST_REPLICAS):
        raise ValueError(f"{name}: found {text[:30]!r}, expected a whole number of replicas")
    return int(text)
