"""The type of a signal, and the PromQL of its value."""

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["pods", "object", "external"]
"""How an HPA reads it: from each pod, from an object that it describes, or from neither."""
How = Literal["gauge", "rate", "mean", "p95"]
WINDOW = "2m"
"""What rates are taken over: two samples are in it where pods are scraped every minute."""


@dataclass(frozen=True, slots=True)
class SignalFamily:
    """A server, gateway, proxy or exporter that exposes signals."""

    name: str
    """The first part of its signals' names."""
    title: str
    version: str
    """The release that its names were read in."""
    port: int = 0
    """Where the pods of a workload serve metrics; 0 where it isn't the workload that does."""
    path: str = "/metrics"
    needs: str = ""
    """What has to be switched on, in one sentence; empty where it always serves."""
    names: str = ""
    """What `name` is the name of, for signals that take one."""


GPUS = SignalFamily("gpu", "GPUs", "dcgm-exporter 4.9")


@dataclass(frozen=True, slots=True)
class Described:
    """The object that an Object metric is of."""

    api_version: str
    kind: str
    resource: str
    """Singular, as rules name it."""

    @property
    def group(self) -> str:
        return self.api_version.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal."""

    metric: str
    """What the custom metrics API calls it; of an external signal, what it measures."""
    series: str
    """What the current release calls it; a histogram without its ending."""
    unit: str
    target: float
    """Per pod, where the user gives none."""
    aggregate: Literal["avg", "sum", "max"] = "avg"
    """The value of a pod with several series, such as those of its GPUs: their mean, sum, or highest."""
    divisor: str | None = None
    """Series that the sum is divided by; for `mean` the counter of what happened."""
    of_processes: bool = False
    """Whether it takes the host's processes to know it."""
    is_alibabas: bool = False
    """Whether it has Alibaba's labels, and takes the node agent's style `ack`."""
    family: SignalFamily = GPUS
    kind: Kind = "pods"
    how: How = "gauge"
    """`rate`: a counter's, by the second; `mean`: of two counters' rates; `p95`: of a histogram."""
    per_unit: int = 1
    """What a value is divided by to be in `unit`."""
    older: tuple[str, ...] = ()
    """What older releases call the series; where a pod has several, the newest counts."""
    older_until: tuple[int, ...] = ()
    """The release that has no older name any more, as far as one is known."""
    matchers: str = ""
    """What selects its series among those of their name."""
    label: str = ""
    """Of an object's signal: the label that holds the object's name."""
    described: Described | None = None
    is_total: bool = False
    """Of an object's signal: whether it grows with the load, and not with the load of each pod."""
    query: str = ""
    """Of all that are not read from pods: PromQL of the whole load as one number, with `$name` and
    `$namespace` to be filled in."""
    is_there_at_zero: bool = False
    """Whether there is load to be seen while there is no pod, so that it can bring the first."""
    is_queue: bool = False
    """Whether it is what waits, or for how long: more of it is too few pods, whatever its target."""
    what: str = field(default="", compare=False)
    """What it says, for people."""
    why: str = field(default="", compare=False)
    """Why the target is a sensible one."""

    @property
    def is_sum(self) -> bool:
        """Whether a pod's value is a sum over its series, without an upper bound."""
        return self.aggregate == "sum" and self.divisor is None

    @property
    def spellings(self) -> tuple[str, ...]:
        """The signal's series names in all releases, the current one first."""
        return (self.series, *self.older)

    @property
    def is_of_gpus(self) -> bool:
        return self.family is GPUS


def filled_in(query: str, name: str, namespace: str) -> str:
    """Return a query for one object; its name is written as PromQL has it."""
    return query.replace("$namespace", _quoted(namespace)).replace("$name", _quoted(name))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def value_by(signal: Signal, matchers: str, by: str) -> str:
    """Return PromQL for a signal's value, grouped by some labels.

    Args:
        signal: one that is read from pods or of an object.
        matchers: what selects the series, without braces.
        by: the labels, separated by commas.
    """
    selected = ",".join(each for each in (signal.matchers, matchers) if each)
    # During a rolling update a fleet has both names: each pod's newest one counts, and none counts
    # twice.
    found = " or ".join(_value(signal, each, selected, by) for each in signal.spellings)
    return found if signal.per_unit == 1 else f"({found}) / {signal.per_unit}"


def _value(signal: Signal, series: str, matchers: str, by: str) -> str:
    match signal.how:
        case "gauge":
            value = f"{signal.aggregate}({series}{{{matchers}}}) by ({by})"
            if signal.divisor is None:
                return value
            return f"{value} / sum({signal.divisor}{{{matchers}}}) by ({by})"
        case "rate":
            return f"sum(rate({series}{{{matchers}}}[{WINDOW}])) by ({by})"
        case "mean":
            happened = f"sum(rate({signal.divisor}{{{matchers}}}[{WINDOW}])) by ({by})"
            return f"sum(rate({series}{{{matchers}}}[{WINDOW}])) by ({by}) / {happened}"
        case "p95":
            rates = f"sum(rate({series}_bucket{{{matchers}}}[{WINDOW}])) by (le, {by})"
            return f"histogram_quantile(0.95, {rates})"
