"""A scenario as a fleet: its Deployments with their HPAs, loads, pools and prices, in steps of one HPA sync.

Nothing is rendered, scraped or scheduled pod by pod: signals are a step's means, late by a scrape, and a
day of a hundred services takes a fraction of a second. What that can't tell is left out of the summary, and
`notModelled` says why.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpuscale.cluster.nodes.policy import ClusterAutoscaler
from gpuscale.cluster.scheduling.fit import NodeState, misfits
from gpuscale.core.errors import UsageError
from gpuscale.hpa.numbers import limits_of
from gpuscale.hpa.policy import HpaPolicy
from gpuscale.hpa.types import ControllerSettings
from gpuscale.objects.hpa import HorizontalPodAutoscaler, ObjectMetric, PodsMetric
from gpuscale.objects.workloads import Deployment
from gpuscale.plan.fleet.fleet import FleetPool, FleetRun, FleetService, replay_fleet
from gpuscale.plan.fleet.manifest_hpa import OBJECT_AVERAGE, POD_AVERAGE, VALUE, manifest_policy
from gpuscale.plan.policies.policy import Numbers, Policy
from gpuscale.plan.policies.static import STATIC
from gpuscale.sim.control.cloud import CloudPool
from gpuscale.sim.scenario.setup import ServiceSetup, Setup

NOT_MODELLED = {
    "events": "steps have no moments",
    "scaleOuts": "single orders and pods are not followed",
    "latency": "a fluid waits only when it is saturated; single requests have no times here",
    "slo": "it is held against latency",
    "startTimes": "each pod takes the mean, and pulls its image again",
    "queueLimit": "it holds for each ready pod, not for the Deployment",
    "scheduler": "GPUs alone decide; all pods of a Deployment use the first pool that takes one",
    "noise": "signals are a step's means: agents' intervals, sampling and the seed change nothing",
}
"""What a summary of this fidelity lacks or simplifies, and why."""
_GPU_USE = re.compile("(gpu|sm)_?util", re.IGNORECASE)
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class _Workload:
    """A Deployment on its way into a fleet."""

    name: str
    setup: ServiceSetup
    deployment: Deployment
    hpa: HorizontalPodAutoscaler | None
    service: FleetService
    busy: float
    """Share of its GPUs' time that a saturated pod uses."""


def simulate_fluid(setup: Setup, say: Callable[[str], None] | None = None) -> dict[str, object]:
    """Return the document of a run, with the fields of an exact one where there are figures.

    Args:
        setup: what to run.
        say: gets a line before something is compiled, and where numba is not installed.

    Raises:
        UsageError: the scenario has what this fidelity does not model; with all of it.
    """
    faults = list(_faults(setup))
    if faults:
        raise UsageError("\n".join(f"{setup.name}: --fidelity fluid: {each}" for each in faults))
    step_s = setup.pipeline.hpa_sync_period / 1000
    steps = math.ceil(setup.duration_ms / 1000 / step_s)
    workloads = [_workload(setup, each, step_s) for each in setup.workloads]
    demand = [
        [
            (each.setup.load.requests_until(at + step_s) - each.setup.load.requests_until(at))
            / (each.setup.model.largest_rate * step_s)
            for each in workloads
        ]
        for at in (step * step_s for step in range(steps))
    ]
    pools = [fleet_pool(setup, each) for each in setup.pools]
    run = replay_fleet([each.service for each in workloads], pools, demand, step_s, say=say)
    return {
        "scenario": setup.name,
        "seed": setup.seed,
        "description": setup.description,
        "summary": _summary(setup, workloads, run, demand),
        "events": [],
        "series": _series(workloads, run),
    }


def _faults(setup: Setup) -> Iterator[str]:
    if setup.scaled_objects:
        yield "found ScaledObjects, expected Deployments with HPAs or a fixed count"
    if setup.jobs:
        yield "found Jobs, expected Deployments with HPAs or a fixed count"
    if not setup.workloads:
        yield "found no workload with a load, expected one or more"
    if setup.replica_policy is not HpaPolicy:
        yield "found a replicaPolicy, expected none"
    if setup.node_policy is not ClusterAutoscaler:
        yield "found a policy of the node autoscaler, expected none"
    for hpa in setup.hpas:
        metric = hpa.metrics[0] if len(hpa.metrics) == 1 else None
        is_use = isinstance(metric, PodsMetric | ObjectMetric) and _GPU_USE.search(metric.name)
        if not is_use:
            names = ", ".join(str(getattr(each, "name", "")) for each in hpa.metrics) or "none"
            yield (
                f"HorizontalPodAutoscaler {hpa.metadata.name}: found metrics {names}, expected one Pods"
                " or Object metric of GPU use in percent, with gpu_util or sm_util in its name"
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
    """Return the first pool whose empty nodes take a Deployment's pods."""
    spec = deployment.template.spec
    fitting = (
        each for each in setup.pools if not misfits(spec, NodeState(each.pool.node(each.pool.name)))
    )
    return next(fitting, None)


def _workload(setup: Setup, workload: ServiceSetup, step_s: float) -> _Workload:
    deployment = _deployment(setup, workload)
    hpas = (
        each
        for each in setup.hpas
        if f"{each.metadata.namespace}/{each.target.name}" == workload.deployment
    )
    hpa = next(hpas, None)
    model = workload.model
    busy = min(1.0, model.largest_rate * model.seconds_per_request)
    if hpa is None:
        policy, settings = STATIC, STATIC.settings()
        settings[0] = deployment.replicas
        least = most = deployment.replicas
    else:
        policy, settings = _policy(setup, hpa, busy, step_s)
        least, most = hpa.min_replicas or 1, hpa.max_replicas
    home = home_pool(setup, deployment)
    service = FleetService(
        name=workload.deployment,
        pool=home.pool.name if home else "",
        policy=policy,
        settings=settings,
        most=most,
        least=least,
        first=deployment.replicas,
        gpus=model.gpus,
        start_up_s=(workload.lifecycle.image_pull_ms + workload.lifecycle.startup_ms) / 1000,
        lag_s=_lag(setup) * step_s,
        patience_s=min(model.queue_limit / model.largest_rate, model.timeout_s),
    )
    name = workload.deployment.partition("/")[2]
    return _Workload(name, workload, deployment, hpa, service, busy)


def _policy(
    setup: Setup, hpa: HorizontalPodAutoscaler, busy: float, step_s: float
) -> tuple[Policy, Numbers]:
    pipeline, (metric,) = setup.pipeline, hpa.metrics
    controller = ControllerSettings(
        downscale_stabilization_s=pipeline.downscale_stabilization // 1000,
        tolerance=pipeline.tolerance,
    )
    target = metric.target.average_value
    kind = POD_AVERAGE if isinstance(metric, PodsMetric) else OBJECT_AVERAGE
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
        busy=busy,
        step_s=step_s,
        lag=_lag(setup),
    )


def _lag(setup: Setup) -> int:
    """Return the steps by which signals are late, beyond the mean of the last step itself.

    A scrape, and a rule where there are any, is half its interval old in the mean; so is a step's mean.
    """
    pipeline = setup.pipeline
    age_ms = pipeline.scrape_interval / 2
    if setup.prometheus_rules.groups:
        age_ms += pipeline.rule_interval / 2
    return max(0, round((age_ms - pipeline.hpa_sync_period / 2) / pipeline.hpa_sync_period))


def fleet_pool(setup: Setup, pool: CloudPool) -> FleetPool:
    """Return a pool of a scenario as a fleet has it."""
    autoscaler = setup.autoscaler
    # A pod has to be old enough, and a scan has to see it.
    seen_ms = autoscaler.gpu_pod_age_ms + setup.scan_interval_ms
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


def _summary(
    setup: Setup, workloads: Sequence[_Workload], run: FleetRun, demand: Sequence[Sequence[float]]
) -> dict[str, object]:
    columns, hours_a_step = run.columns, run.step_s / 3600
    hpas: dict[str, object] = {}
    requests: dict[str, object] = {}
    short: dict[str, object] = {}
    busy_hours = 0.0
    for index, each in enumerate(workloads):
        asked = (columns.placed[:, index] + columns.waiting[:, index]).tolist()
        changes = pairwise([each.deployment.replicas, *asked])
        if each.hpa is not None:
            hpas[each.hpa.metadata.name] = {
                "maxReplicas": int(max(asked)),
                "finalReplicas": int(asked[-1]),
                "rescales": sum(before != after for before, after in changes),
            }
        came = [row[index] for row in demand]
        lacks = [
            max(0.0, need - ready)
            for need, ready in zip(came, columns.ready[:, index].tolist(), strict=True)
        ]
        arrived = sum(came) * run.step_s
        waiting, given_up = float(columns.queue[-1, index]), float(columns.given_up[:, index].sum())
        rate = each.setup.model.largest_rate
        busy_hours += (arrived - waiting - given_up) / 3600 * each.service.gpus * each.busy
        requests[each.name] = {
            "arrived": round(arrived * rate, 3),
            "served": round((arrived - waiting - given_up) * rate, 3),
            "waiting": round(waiting * rate, 3),
            "rejected": round(given_up * rate, 3),
        }
        short[each.name] = {
            "shortTime": round(sum(lack > 1e-9 for lack in lacks) * run.step_s, 3),
            "shortPodHours": round(sum(lacks) * hours_a_step, 4),
        }
    rented = (columns.nodes + columns.nodes_coming).tolist()
    node_hours = [sum(row[at] for row in rented) * hours_a_step for at in range(len(run.pools))]
    prices = [each.price_per_hour for each in setup.pools]
    costs = [
        None if price is None and hours else (price or 0.0) * hours
        for price, hours in zip(prices, node_hours, strict=True)
    ]
    known = [cost for cost in costs if cost is not None]
    return {
        "fidelity": "fluid",
        "duration": setup.duration_ms / 1000,
        "hpas": hpas,
        "nodePools": {
            pool.name: {
                "maxNodes": int(max(row[at] for row in rented)),
                "finalNodes": int(rented[-1][at]),
            }
            for at, pool in enumerate(run.pools)
        },
        **_hours(workloads, run, node_hours, busy_hours),
        "cost": round(sum(known), 4) if len(known) == len(costs) else None,
        "currency": setup.currency,
        "poolsWithoutPrice": sorted(
            each.pool.name
            for each, hours in zip(setup.pools, node_hours, strict=True)
            if hours and each.price_per_hour is None
        ),
        "requests": requests,
        "shortOfCapacity": short,
        "notModelled": {name: {"reason": reason} for name, reason in NOT_MODELLED.items()},
    }


def _hours(
    workloads: Sequence[_Workload], run: FleetRun, node_hours: Sequence[float], busy_hours: float
) -> dict[str, float]:
    """Return what was paid for, and what became of it: busy, starting, and the rest idle."""
    columns, hours_a_step = run.columns, run.step_s / 3600
    gpu_hours = sum(h * pool.gpus for h, pool in zip(node_hours, run.pools, strict=True))
    coming = columns.nodes_coming.sum(axis=0).tolist()
    starting = sum(count * pool.gpus for count, pool in zip(coming, run.pools, strict=True))
    for index, each in enumerate(workloads):
        # What had GPUs after a step and does not serve in the next one.
        late = columns.placed[:-1, index] - columns.ready[1:, index]
        starting += float(late.sum()) * each.service.gpus
    starting_hours = starting * hours_a_step
    return {
        "nodeHours": round(sum(node_hours), 4),
        "gpuHours": round(gpu_hours, 4),
        "busyGpuHours": round(busy_hours, 4),
        "startingGpuHours": round(starting_hours, 4),
        "idleGpuHours": round(max(0.0, gpu_hours - busy_hours - starting_hours), 4),
    }


def _series(workloads: Sequence[_Workload], run: FleetRun) -> dict[str, object]:
    """Return the series under the names of an exact run; of its pods and GPUs there are none."""
    columns = run.columns
    times = [(row + 1) * run.step_s for row in range(len(columns.nodes))]
    series: dict[str, object] = {"t": times}
    for index, each in enumerate(workloads):
        rate = each.setup.model.largest_rate
        series[f"load/{each.name}"] = [round(each.setup.load.rate(t), _DIGITS) for t in times]
        series[f"queue/{each.name}"] = [
            round(value * rate, _DIGITS) for value in columns.queue[:, index].tolist()
        ]
        series[f"replicas/{each.name}/ready"] = columns.ready[:, index].tolist()
        if each.hpa is not None:
            asked = columns.placed[:, index] + columns.waiting[:, index]
            series[f"hpa/{each.hpa.metadata.name}/current"] = asked.tolist()
    series["pods/pending"] = columns.waiting.sum(axis=1).tolist()
    for at, pool in enumerate(run.pools):
        series[f"nodes/{pool.name}/ready"] = columns.nodes[:, at].tolist()
        series[f"nodes/{pool.name}/total"] = (
            columns.nodes[:, at] + columns.nodes_coming[:, at]
        ).tolist()
    return series
