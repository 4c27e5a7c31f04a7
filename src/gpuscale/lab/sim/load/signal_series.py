"""The series behind signals, as model servers, gateways and queues expose them for a service.

Which series those are, with which labels and in which unit, is read off the signals themselves.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuscale.base.exposition.families import Family, Sample
from gpuscale.signals import SIGNALS, Signal, filled_in

Quantity = Literal[
    "queue",
    "inFlight",
    "unanswered",
    "kvCache",
    "kvUsed",
    "kvSize",
    "pods",
    "answered",
    "waitedSeconds",
    "answeredSeconds",
    "tokens",
    "firstToken",
]
Type = Literal["gauge", "counter", "histogram"]
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of histograms; the usual ones of client libraries, and two for language models."""
_SHOWN: Mapping[str, Quantity] = {
    "waiting": "queue",
    "queue": "queue",
    "ready": "queue",
    "lag": "queue",
    "visible": "queue",
    "messages": "unanswered",
    "running": "inFlight",
    "in-flight": "unanswered",
    "kv-cache": "kvCache",
    "tokens-in-batch": "kvUsed",
    "rate": "answered",
    "queue-time": "waitedSeconds",
    "tokens": "tokens",
    "ttft": "firstToken",
}
"""What a signal says of a service, by what its name has after its family's."""
_BESIDE: Mapping[str, Quantity] = {
    "envoy_cluster_upstream_rq_active": "inFlight",
    "envoy_cluster_upstream_rq_pending_active": "queue",
    "llm_d_epp_ready_endpoints": "pods",
}
"""Series that a query takes together with others."""
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}")
_EQUAL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Exposed:
    """One exposed series."""

    name: str
    """Of a histogram without its endings."""
    labels: tuple[tuple[str, str], ...]
    quantity: Quantity
    type: Type
    factor: float = 1.0
    """What a value is multiplied by to be in the series' unit."""
    is_mean: bool = False
    """Whether it is what a pod has in the mean, though it is exposed in front of them."""

    @property
    def names(self) -> tuple[str, ...]:
        """The series names in a store."""
        if self.type != "histogram":
            return (self.name,)
        return tuple(f"{self.name}_{ending}" for ending in ("bucket", "sum", "count"))


def exposed_by(family: str, of: str, namespace: str, *, by_pods: bool) -> tuple[Exposed, ...]:
    """Return the series of a signal family that a simulated service has.

    Args:
        family: such as vllm or rabbitmq.
        of: what the signals in front of pods are of: a queue, a pool, an Ingress.
        namespace: where that is.
        by_pods: whether those that the pods expose are meant, or those in front of them.
    """
    found: list[Exposed] = []
    for name, signal in SIGNALS.items():
        quantity = _SHOWN.get(name.removeprefix(f"{family}-"))
        if signal.family.name == family and quantity and (signal.kind == "pods") == by_pods:
            found += (
                _of_pods(signal, quantity)
                if by_pods
                else _in_front(signal, quantity, of, namespace)
            )
    return tuple(dict.fromkeys(found))


def _of_pods(signal: Signal, quantity: Quantity) -> Iterator[Exposed]:
    labels = tuple(_EQUAL.findall(signal.matchers))
    types: Mapping[str, Type] = {"gauge": "gauge", "p95": "histogram"}
    kind = types.get(signal.how, "counter")
    yield Exposed(signal.series, labels, quantity, kind, float(signal.per_unit))
    if signal.divisor is not None:
        other: Quantity = "kvSize" if kind == "gauge" else "answered"
        yield Exposed(signal.divisor, labels, other, kind)


def _in_front(signal: Signal, quantity: Quantity, of: str, namespace: str) -> Iterator[Exposed]:
    """Yield the series that a signal's query reads, under the current release's names."""
    current = filled_in(signal.query, of, namespace).partition(" or ")[0]
    for name, matchers in _SELECTOR.findall(current):
        shown = _BESIDE.get(name, quantity)
        factor = 1.0
        if name.endswith("_sum"):
            shown, factor = "answeredSeconds", 1000.0 if "milliseconds" in name else 1.0
        kind: Type = "counter" if "rate(" in current else "gauge"
        is_mean = shown in ("queue", "inFlight") and "_average_" in name
        yield Exposed(name, tuple(_EQUAL.findall(matchers)), shown, kind, factor, is_mean)


def exposed_families(
    series: Sequence[Exposed],
    gauges: Mapping[Quantity, float],
    counted: Mapping[str, Sequence[float]],
) -> Iterator[Family]:
    """Yield the series whose values are known, as families.

    Args:
        series: what is exposed.
        gauges: values as they are now.
        counted: counts so far; of a histogram those up to each bound, all of them, and their sum.
    """
    for name in dict.fromkeys(each.name for each in series):
        same = [each for each in series if each.name == name]
        samples = tuple(sample for each in same for sample in _samples(each, gauges, counted))
        if samples:
            yield Family(name, same[0].type, "As the simulated service has it.", samples)


def _samples(
    each: Exposed, gauges: Mapping[Quantity, float], counted: Mapping[str, Sequence[float]]
) -> Iterator[Sample]:
    values = counted.get(each.quantity)
    if each.type == "gauge":
        value = gauges.get(each.quantity)
        if value is not None:
            pods = gauges.get("pods", 1.0) if each.is_mean else 1.0
            if pods:
                yield Sample(each.labels, value * each.factor / pods)
    elif values is not None and each.type == "counter":
        yield Sample(each.labels, values[0] * each.factor)
    elif values is not None:
        yield from histogram_samples(each.labels, values)


def histogram_samples(
    labels: tuple[tuple[str, str], ...], values: Sequence[float]
) -> Iterator[Sample]:
    """Yield a histogram's samples: cumulative counts, total count, sum."""
    *counts, seconds = values
    for bound, count in zip([*(f"{bound:g}" for bound in BUCKETS_S), "+Inf"], counts, strict=True):
        yield Sample((*labels, ("le", bound)), count, "_bucket")
    yield Sample(labels, seconds, "_sum")
    yield Sample(labels, counts[-1], "_count")
