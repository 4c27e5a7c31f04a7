"""The setup of a run: a scenario with everything it names."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuscale.base.errors import UsageError
from gpuscale.base.loads import Load
from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.kueue import QUEUE_LABEL, KueueObject
from gpuscale.base.objects.pod_groups import PodGroup
from gpuscale.base.objects.pods import Lifecycle
from gpuscale.base.objects.scaled_object import ScaledObject
from gpuscale.base.objects.workloads import DaemonSet, Deployment, Job, LeaderWorkerSet, Service
from gpuscale.hpa.cluster.nodes import (
    AutoscalerSettings,
    NodePolicyFactory,
    ProvisioningRequest,
)
from gpuscale.hpa.cluster.scheduling import SchedulerSettings
from gpuscale.hpa.controller import ReplicaPolicyFactory
from gpuscale.lab.queueing.times import Times
from gpuscale.lab.sim.control.machines import CloudPool
from gpuscale.lab.sim.load.costs import ServiceModel
from gpuscale.lab.sim.load.pod_metrics import ServedMetrics
from gpuscale.lab.sim.scenario import model as spec
from gpuscale.lab.sim.scenario.capacity import Buffer
from gpuscale.series.rules import RuleGroups
from gpuscale.server.rules import AdapterConfig
from gpuscale.signals import Counter
from gpuscale.triggers import Trigger

STOP_MS = 2_000
"""From SIGTERM to gone, for a process that ends when asked; the grace period of 30 s is its upper limit."""


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Times of pods' start steps, in seconds."""

    pull: Times
    cached_pull: Times
    """On a node that has the image."""
    startup: Times


@dataclass(frozen=True, slots=True)
class ServiceSetup:
    """A Deployment or LeaderWorkerSet with its load and the cost of a request."""

    deployment: str
    """`namespace/name` of either."""
    model: ServiceModel
    load: Load
    lifecycle: Lifecycle
    memory_mib: int
    is_one_by_one: bool = False
    """Whether each request is served by itself."""
    is_random: bool = True
    """Whether those come at random."""
    slo: spec.SloSpec | None = None
    metrics: ServedMetrics | None = None
    starts: StartTimes | None = None
    """None: all take what `lifecycle` says."""


@dataclass(frozen=True, slots=True)
class JobSetup:
    """A Job to submit at one time."""

    job: Job
    manifest: str
    """`namespace/name` of the Job or JobSet in the manifests that this is a copy of."""
    name: str
    """Of the copy."""
    at_ms: int
    lifecycle: Lifecycle
    utilization_ratio: float
    memory_mib: int
    with_jobs: tuple[Job, ...] = ()
    """Of its JobSet, itself among them: their pods compute once all of them run."""


@dataclass(frozen=True, slots=True)
class HpaChange:
    """An HPA of the manifests from a time on."""

    at_ms: int
    hpa: HorizontalPodAutoscaler


@dataclass(frozen=True, slots=True)
class Setup:
    """The setup of a run."""

    name: str
    description: str
    duration_ms: int
    seed: int
    pipeline: spec.Pipeline
    scan_interval_ms: int
    autoscaler: AutoscalerSettings
    replica_policy: ReplicaPolicyFactory
    node_policy: NodePolicyFactory
    pools: tuple[CloudPool, ...]
    currency: str
    """Of all prices."""
    deployments: tuple[Deployment, ...]
    """And the LeaderWorkerSets."""
    services: tuple[Service, ...]
    hpas: tuple[HorizontalPodAutoscaler, ...]
    """Of the manifests; those that KEDA makes come with `scaled_objects`."""
    scaled_objects: tuple[ScaledObject, ...]
    workloads: tuple[ServiceSetup, ...]
    jobs: tuple[JobSetup, ...]
    rules: AdapterConfig
    rules_text: str
    """The file that `rules` was read from."""
    prometheus_rules: RuleGroups
    counters: tuple[Counter, ...]
    manifests: tuple[Mapping[str, object], ...]
    """The Kubernetes objects as their files have them, for an API server."""
    budgets: tuple[PodDisruptionBudget, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    """Those that are served as external metrics; KEDA's come with `scaled_objects`."""
    hpa_changes: tuple[HpaChange, ...] = ()
    """Oldest first."""
    provisioning_requests: tuple[ProvisioningRequest, ...] = ()
    """Oldest first; made at milliseconds of the scenario."""
    capacity_buffers: tuple[Buffer, ...] = ()
    scheduler: SchedulerSettings = SchedulerSettings()  # noqa: RUF009 - frozen
    pod_groups: tuple[PodGroup, ...] = ()
    """Of the manifests; those of Jobs come with these."""
    daemon_sets: tuple[DaemonSet, ...] = ()
    queues: tuple[KueueObject, ...] = ()
    """Of Kueue; without any, Jobs start at once."""


def check_no_groups(setup: Setup, by: str) -> None:
    """Raise if a scenario has LeaderWorkerSets, JobSets, queues, DaemonSets or pods with claims.

    Args:
        setup: the scenario.
        by: the command that can't do them.

    Raises:
        UsageError: it has.
    """
    groups = [each for each in setup.deployments if isinstance(each, LeaderWorkerSet)]
    if groups:
        raise UsageError(
            f"{setup.name}: {by}: found LeaderWorkerSet {groups[0].metadata.key}, expected Deployments; "
            "gpuscale simulate and up run groups"
        )
    workloads: list[Deployment | Job] = [*setup.deployments, *(each.job for each in setup.jobs)]
    claiming = [each.metadata.key for each in workloads if each.template.spec.claims]
    if claiming:
        raise UsageError(
            f"{setup.name}: {by}: found {claiming[0]}, whose pods claim devices, expected GPUs of a device "
            "plugin; gpuscale simulate runs claims"
        )
    sets = [each.manifest for each in setup.jobs if each.with_jobs]
    if sets:
        raise UsageError(
            f"{setup.name}: {by}: found JobSet {sets[0]}, expected Jobs; gpuscale simulate and up run "
            "JobSets"
        )
    if setup.daemon_sets:
        raise UsageError(
            f"{setup.name}: {by}: found DaemonSet {setup.daemon_sets[0].metadata.key}, expected none; "
            "gpuscale simulate and up run DaemonSets"
        )
    queued = [each.manifest for each in setup.jobs if QUEUE_LABEL in each.job.metadata.labels]
    if queued:
        raise UsageError(
            f"{setup.name}: {by}: found Job {queued[0]} in a queue of Kueue, expected none; gpuscale "
            "simulate and up run queues"
        )
