"""A scenario as a fleet: Deployments with HPAs, loads, pools and prices, in steps of one HPA sync.

Nothing is rendered, scraped or scheduled pod by pod: signals are a step's means, late by a scrape, and a
day of a hundred services takes a fraction of a second. What that can't tell is left out of the summary, and
`notModelled` says why.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy

from gpuscale.base.errors import UsageError
from gpuscale.base.objects.hpa import ExternalMetric, HorizontalPodAutoscaler, PodsMetric
from gpuscale.base.objects.workloads import Deployment, LeaderWorkerSet
from gpuscale.hpa import ControllerSettings
from gpuscale.hpa.cluster.nodes import ClusterAutoscaler
from gpuscale.hpa.cluster.scheduling import NodeState, SchedulerSettings, free_share, misfits
from gpuscale.hpa.controller import HpaPolicy
from gpuscale.hpa.replicas import limits_of
from gpuscale.lab.plan.fleet.fleet import FleetPool, FleetService, replay_fleet
from gpuscale.lab.plan.fleet.manifest_hpa import (
    EXTERNAL_AVERAGE,
    OBJECT_AVERAGE,
    POD_AVERAGE,
    VALUE,
    manifest_policy,
)
from gpuscale.lab.plan.fleet.state import Table
from gpuscale.lab.sim.control.machines import CloudPool
from gpuscale.lab.sim.control.supply import Supply
from gpuscale.lab.sim.fluid.document import FluidWorkload, fluid_series, fluid_summary
from gpuscale.lab.sim.fluid.loads import requests_until
from gpuscale.lab.sim.fluid.signals import EXPECTED, FluidSignal, signal_of
from gpuscale.lab.sim.scenario.setup import ServiceSetup, Setup
from gpuscale.triggers.policies import STATIC, Numbers, Policy


def simulate_fluid(
    setup: Setup,
    say: Callable[[str], None] | None = None,
    *,
    series: bool = True,
) -> dict[str, object]:
    """Return the run's document, with those fields of an exact run that a fluid one has figures for.

    Args:
        setup: what to run.
        say: gets a line before something is compiled, and where numba is not installed.
        series: whether the document has them; those of a hundred services for weeks take 2 GiB.

    Raises:
        UsageError: the scenario has what this fidelity does not model; with all of it.
    """
    check_fluid(setup, "--fidelity fluid")
    step_s = setup.pipeline.hpa_sync_period / 1000
    steps = math.ceil(setup.duration_ms / 1000 / step_s)
    workloads = [_workload(setup, each, step_s) for each in setup.workloads]
    demand = _demand(workloads, numpy.arange(steps + 1, dtype=numpy.float64) * step_s)
    pools = [fleet_pool(setup, each) for each in setup.pools]
    run = replay_fleet([each.service for each in workloads], pools, demand, step_s, say=say)
    return {
        "scenario": setup.name,
        "seed": setup.seed,
        "description": setup.description,
        "summary": fluid_summary(setup, workloads, run, demand),
        "events": [],
        "series": fluid_series(workloads, run) if series else {},
    }


def _demand(workloads: Sequence[FluidWorkload], times: Numbers) -> Table:
    """Return the arrivals between the times, in busy pods, by step and workload."""
    demand = numpy.empty((len(times) - 1, len(workloads)))
    for index, each in enumerate(workloads):
        came = numpy.diff(requests_until(each.setup.load, times))
        demand[:, index] = came / (each.setup.model.largest_rate * numpy.diff(times))
    # Rounding may give a tiny negative number.
    return numpy.maximum(demand, 0.0)


def check_fluid(setup: Setup, what: str, *, with_reservations: bool = False) -> None:
    """Refuse a scenario that is no fleet of Deployments on equal nodes.

    Args:
        setup: the scenario.
        what: asked for it, in messages.
        with_reservations: whether nodes may be reserved for good, which is a matter of their price alone.

    Raises:
        UsageError: it has what a fleet's replay does not model; with all of it.
    """
    if faults := list(_faults(setup, with_reservations=with_reservations)):
        raise UsageError("\n".join(f"{setup.name}: {what}: {each}" for each in faults))


def _faults(setup: Setup, *, with_reservations: bool) -> Iterator[str]:
    if setup.scaled_objects:
        yield "found ScaledObjects, expected Deployments with HPAs or a fixed count"
    if any(isinstance(each, LeaderWorkerSet) for each in setup.deployments):
        yield (
            "found LeaderWorkerSets, expected Deployments with HPAs or a fixed count; simulate without it "
            "and up run groups"
        )
    if any(each.template.spec.claims for each in setup.deployments):
        yield "found pods that claim devices, expected GPUs of a device plugin"
    if setup.daemon_sets:
        yield "found DaemonSets, expected Deployments with HPAs or a fixed count"
    if setup.jobs:
        yield "found Jobs, expected Deployments with HPAs or a fixed count"
    if not setup.workloads:
        yield "found no workload with a load, expected one or more"
    if setup.replica_policy is not HpaPolicy:
        yield "found a replicaPolicy, expected none"
    if setup.node_policy is not ClusterAutoscaler:
        yield "found a policy of the node autoscaler, expected none"
    for item in setup.pools:
        held = item.supply.reservations if with_reservations else ()
        for_good = tuple(each for each in held if each.from_ms == 0 and each.until_ms is None)
        if len(item.machines) > 1 or item.supply != Supply(reservations=for_good):
            yield (
                f"node pool {item.pool.name}: found instanceTypes, stockOuts, quotaGpus or interruptions, "
                "expected equal nodes that always come"
            )
        if any(machine.is_shared for machine in item.machines):
            yield f"node pool {item.pool.name}: found sharing or mig, expected a pod for each GPU"
    if setup.scheduler != SchedulerSettings():
        yield "found scheduler, expected the settings that kube-scheduler has by itself"
    if setup.hpa_changes:
        yield (
            "found hpaChanges, expected HPAs that stay as they are; --set 'spec.hpaChanges=[]' leaves them "
            "as the manifests have them"
        )
    if setup.provisioning_requests or setup.capacity_buffers:
        yield "found provisioningRequests or capacityBuffers, expected none"
    for hpa in setup.hpas:
        target = f"{hpa.metadata.namespace}/{hpa.target.name}"
        scaled = next((each for each in setup.workloads if each.deployment == target), None)
        if scaled is None:
            yield f"HorizontalPodAutoscaler {hpa.metadata.name}: found no load of {target}"
        elif len(hpa.metrics) != 1 or signal_of(setup, scaled, hpa.metrics[0]) is None:
            names = ", ".join(each.name for each in hpa.metrics) or "none"
            yield (
                f"HorizontalPodAutoscaler {hpa.metadata.name}: found metrics {names}, expected {EXPECTED}"
            )
        if hpa.min_replicas == 0:
            yield f"HorizontalPodAutoscaler {hpa.metadata.name}: found minReplicas 0, expected 1 or more"
    for workload in setup.workloads:
        if workload.model.batching is not None:
            yield f"Deployment {workload.deployment}: found service.batching, expected gpuSecondsPerRequest"
        if home_pool(setup, _deployment(setup, workload)) is None:
            yield f"Deployment {workload.deployment}: found no node pool that takes its pods"


def _deployment(setup: Setup, workload: ServiceSetup) -> Deployment:
    return next(each for each in setup.deployments if each.metadata.key == workload.deployment)


def home_pool(setup: Setup, deployment: Deployment) -> CloudPool | None:
    """Return the first pool whose empty nodes could run a Deployment's pods."""
    spec = deployment.template.spec
    fitting = (
        each for each in setup.pools if not misfits(spec, NodeState(each.pool.node(each.pool.name)))
    )
    return next(fitting, None)


def node_share(pool: CloudPool, deployment: Deployment) -> float:
    """Return what one pod of a Deployment asks for of a node's CPU and memory."""
    empty = NodeState(pool.pool.node(pool.pool.name))
    return free_share(empty) - free_share(empty.with_pod(deployment.template.spec))


def _workload(setup: Setup, workload: ServiceSetup, step_s: float) -> FluidWorkload:
    deployment = _deployment(setup, workload)
    hpas = (
        each
        for each in setup.hpas
        if f"{each.metadata.namespace}/{each.target.name}" == workload.deployment
    )
    hpa = next(hpas, None)
    model, lag = workload.model, _lag(setup, setup.pipeline.scrape_interval)
    busy = min(1.0, model.largest_rate * model.seconds_per_request)
    if hpa is None:
        policy, settings = STATIC, STATIC.settings()
        settings[0] = deployment.replicas
        least = most = deployment.replicas
    else:
        signal = signal_of(setup, workload, hpa.metrics[0])
        if signal is None:
            raise UsageError(f"{setup.name}: {hpa.metadata.name}: expected {EXPECTED}")
        lag = _lag(setup, signal.interval_ms)
        policy, settings = _policy(setup, hpa, signal, step_s, lag)
        least, most = hpa.min_replicas or 1, hpa.max_replicas
    home = home_pool(setup, deployment) or setup.pools[0]  # it exists: `_faults` has checked
    service = FleetService(
        name=workload.deployment,
        pool=home.pool.name,
        policy=policy,
        settings=settings,
        most=most,
        least=least,
        first=deployment.replicas,
        gpus=model.gpus,
        share=node_share(home, deployment),
        start_up_s=(workload.lifecycle.image_pull_ms + workload.lifecycle.startup_ms) / 1000,
        lag_s=lag * step_s,
        patience_s=model.timeout_s,
        most_waiting_s=model.queue_limit / model.largest_rate,
    )
    name = workload.deployment.partition("/")[2]
    return FluidWorkload(name, workload, deployment, hpa, service, busy, home)


def _policy(
    setup: Setup, hpa: HorizontalPodAutoscaler, signal: FluidSignal, step_s: float, lag: int
) -> tuple[Policy, Numbers]:
    pipeline, (metric,) = setup.pipeline, hpa.metrics
    controller = ControllerSettings(
        downscale_stabilization_s=pipeline.downscale_stabilization // 1000,
        tolerance=pipeline.tolerance,
    )
    target = metric.target.average_value
    kind = EXTERNAL_AVERAGE if isinstance(metric, ExternalMetric) else OBJECT_AVERAGE
    if isinstance(metric, PodsMetric):
        kind = POD_AVERAGE
    if target is None:
        target, kind = metric.target.value, VALUE
    rules = hpa.behavior and (hpa.behavior.scale_up.tolerance, hpa.behavior.scale_down.tolerance)
    up, down = rules or (None, None)
    return manifest_policy(
        limits_of(hpa, controller),
        target.milli_value() if target else 0,
        kind,
        tolerance_up=controller.tolerance if up is None else float(up),
        tolerance_down=controller.tolerance if down is None else float(down),
        busy_milli=1000 * signal.busy,
        waiting_milli=1000 * signal.waiting,
        shows=signal.shows,
        unit_milli=1000 * signal.unit,
        step_s=step_s,
        lag=lag,
    )


def _lag(setup: Setup, interval_ms: int) -> int:
    """Return the delay of signals in steps, beyond that of a step's own mean.

    A scrape, and a rule where there are any, is half its interval old in the mean; so is a step's mean.
    """
    pipeline = setup.pipeline
    age_ms = interval_ms / 2
    if setup.prometheus_rules.groups:
        age_ms += pipeline.rule_interval / 2
    return max(0, round((age_ms - pipeline.hpa_sync_period / 2) / pipeline.hpa_sync_period))


def fleet_pool(setup: Setup, pool: CloudPool) -> FleetPool:
    """Return a scenario's pool in its form for a fleet."""
    autoscaler = setup.autoscaler
    # A pod must be old enough, and a scan must find it. Frequent loops begin with the pod.
    scan_ms, age_ms = setup.scan_interval_ms, autoscaler.gpu_pod_age_ms
    is_frequent = autoscaler.frequent_loops_enabled
    seen_ms = math.ceil(age_ms / scan_ms) * scan_ms if is_frequent else age_ms + scan_ms
    return FleetPool(
        name=pool.pool.name,
        gpus=pool.gpus,
        most=pool.pool.max_nodes,
        least=pool.pool.min_nodes,
        coming_s=(seen_ms + pool.provisioning_ms) / 1000,
        unneeded_s=autoscaler.unneeded_time_ms / 1000,
        delay_after_add_s=autoscaler.delay_after_add_ms / 1000,
        spreads=True,
    )
