"""One trigger: the load of a workload, its target, and what wakes the workload when no pod is there."""

from dataclasses import dataclass
from typing import Literal

from gpuscale.triggers.credit import DEFAULT_DRAIN_S

Aggregation = Literal["mean", "max", "sum"]

DEFAULT_HOLD_S = 600.0
DEFAULT_LAG_S = 30.0
DEFAULT_LEARN_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class WorkloadRef:
    """A workload with a scale subresource, in the trigger's namespace."""

    kind: str
    """As the API has it, such as Deployment; of another group as it was written."""
    name: str
    api_version: str = "apps/v1"
    """The group alone, such as argoproj.io, where no version was stated."""


@dataclass(frozen=True, slots=True)
class PodLoad:
    """What the running pods carry; exactly one of metric and query is given."""

    metric: str = ""
    """Name of a metric of pods in the custom metrics API; or what a signal of `install` serves."""
    query: str = ""
    """PromQL with one number as its answer: the load of the whole workload."""
    aggregation: Aggregation = "mean"
    """Of a metric, over the workload's pods; the trigger's value is this times the pods, or the sum."""
    window_s: float = 0.0
    """The value is the mean of what was read within so many seconds; 0 is the last reading."""


@dataclass(frozen=True, slots=True)
class WakeQuery:
    """A wake source that needs no pod: active while a query's result is above the threshold."""

    query: str
    """PromQL with one number as its answer; no row at all is unavailable, not 0."""
    threshold: float = 0.0
    source: str = "query"
    """What it is called in reasons and metrics: `query`, or the name of a preset."""


@dataclass(frozen=True, slots=True)
class WakeSchedule:
    """A wake source that is active between two cron expressions, as KEDA's cron trigger is."""

    start: str
    """Five fields, such as `0 8 * * 1-5`."""
    end: str
    timezone: str = "UTC"


@dataclass(frozen=True, slots=True)
class Credit:
    """The settings for counting starting pods with their future load; see `triggers.credit`."""

    waiting: str
    """PromQL with one number as its answer: the part of the load that waits."""
    throughput: str
    """PromQL with one number: what the ready pods finish a second, over the last minute."""
    start_s: float | None = None
    """How long a pod takes to become ready; None is learned from the workload's pods."""
    drain_s: float = DEFAULT_DRAIN_S
    """Within how long a backlog that no start-up explains is to be gone."""


@dataclass(frozen=True, slots=True)
class ServedPolicy:
    """A policy that says how many replicas a workload needs."""

    name: str
    settings: tuple[tuple[str, float], ...]
    """Those that are not the policy's defaults, by name."""
    pod_load: float
    """The load that keeps one pod busy: the query's answer over it is the demand in pods."""
    start_s: float
    """From the order of a pod until it is ready."""
    least: int
    most: int
    lag_s: float = DEFAULT_LAG_S
    """How old a load is when the policy sees it; samples that come late are there by then."""
    learn_s: float = DEFAULT_LEARN_S
    """Of whole days before today, how much the policy learns from."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """What a workload is scaled on, parsed from KEDA metadata or a trigger file."""

    namespace: str
    name: str
    """Of the metric, as GetMetricSpec and the external metrics API have it."""
    workload: WorkloadRef | None
    """None where nothing has to be known of pods: a query, or wake sources alone."""
    load: PodLoad | None
    """None for a trigger that wakes and does nothing else."""
    target: float
    """Load per pod; the served value is a total, held against it as an AverageValue."""
    activation_target: float = 0.0
    """The workload is active while the load per pod is above it."""
    wakes: tuple[WakeQuery, ...] = ()
    schedule: WakeSchedule | None = None
    wake_replicas: int = 1
    """Pods that are asked for while a wake source is active, at least."""
    wake_deadline_s: float | None = None
    """How long a woken workload may take to its first ready pod; None is learned from its pods."""
    hold_s: float = DEFAULT_HOLD_S
    """How long the last decision is held while a source is unavailable."""
    fallback_replicas: int | None = None
    """Pods that are asked for after that, 1 at least; None is what was asked for last, at least 1."""
    credit: Credit | None = None
    """Of a load that is a query; None serves the load as it is."""
    policy: ServedPolicy | None = None
    """Says how many replicas the load, which is a query, needs; they are the value, and the target is 1."""
