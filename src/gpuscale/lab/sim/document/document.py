"""A run as one plain document, for `simulate -o json`, the page and the report.

`{"scenario", "seed", "description", "summary", "events", "series"}`; times are seconds of scenario time,
and null in a series is a gap.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

from gpuscale.base.objects.scaled_object import KIND
from gpuscale.base.pages.timeline import SeriesRecorder
from gpuscale.lab.sim.autoscaler import SyncFigures
from gpuscale.lab.sim.control.machines import Rental
from gpuscale.lab.sim.control.queues import JobQueues
from gpuscale.lab.sim.document.jobs import job_progress
from gpuscale.lab.sim.document.requests import request_summaries
from gpuscale.lab.sim.events import SimulationEvent
from gpuscale.lab.sim.site import Site
from gpuscale.triggers.keda import ACTIVATED, DEACTIVATED

_Sizes = Mapping[tuple[str, str], Sequence[float]]
"""What things were set to, in the order they were, by the kind and the object of the event."""
_DIGITS = 6
"""Enough for a microsecond or a millionth of a request, and short in the file."""


def document(world: Site, recorder: SeriesRecorder) -> dict[str, object]:
    """Return the whole run so far."""
    _, times, series = recorder.series()
    return {
        "scenario": world.setup.name,
        "seed": world.setup.seed,
        "description": world.setup.description,
        "summary": summary(world),
        "events": events(world, world.cluster.events.since(0)),
        "series": {"t": times, **series},
    }


def events(world: Site, items: Iterable[SimulationEvent]) -> list[dict[str, object]]:
    """Return events as plain data, oldest first."""
    return [
        {
            "t": world.seconds(event.time_ms),
            "kind": event.kind,
            "object": event.object,
            "from": event.before,
            "to": event.after,
            "reason": event.reason,
        }
        for event in items
    ]


def row(
    world: Site, hpas: Mapping[str, SyncFigures], pod_utilization: Mapping[str, float | None]
) -> dict[str, float | None]:
    """Return the current numbers, by series name.

    Args:
        world: the cluster.
        hpas: HPA key to what it shows.
        pod_utilization: series name (`gpu/...`, `pod/...`) to percent.
    """
    values: dict[str, float | None] = dict(pod_utilization)
    for key, service in world.services.items():
        name = key.partition("/")[2]
        values[f"load/{name}"] = round(service.rate, _DIGITS)
        values[f"queue/{name}"] = round(service.waiting, _DIGITS)
        values[f"replicas/{name}/ready"] = world.ready_pods(key)
        if service.model.batching is not None:
            values[f"inFlight/{name}"] = round(service.in_service, _DIGITS)
            used = service.kv_used
            values[f"kvCache/{name}"] = None if used is None else round(used, _DIGITS)
    for key, hpa in world.cluster.hpas.items():
        name, shown = hpa.metadata.name, hpas.get(key)
        deployment = f"{hpa.metadata.namespace}/{hpa.target.name}"
        values[f"hpa/{name}/current"] = world.cluster.deployments[deployment].replicas
        if hpa.metrics:
            # The number that the controller compares with the metric's value, in any form of
            # target.
            target = hpa.metrics[0 if shown is None else shown.metric].target
            quantity = target.average_value or target.value
            percent = target.average_utilization
            values[f"hpa/{name}/target"] = percent if quantity is None else float(quantity)
        if shown is not None:
            values[f"hpa/{name}/desired"] = shown.desired
            values[f"hpa/{name}/value"] = None if shown.milli is None else shown.milli / 1000
    for name, jobs in job_progress(world).items():
        values[f"jobs/{name}/pending"] = jobs.pending
        values[f"jobs/{name}/running"] = jobs.running
        values[f"jobs/{name}/succeeded"] = jobs.succeeded
    values["pods/pending"] = world.pending_pods()
    for name in world.cloud.pools:
        ready, total = world.cloud.sizes(name)
        values[f"nodes/{name}/ready"] = ready
        values[f"nodes/{name}/total"] = total
    return values


def summary(world: Site) -> dict[str, object]:
    """Return the summary of a run."""
    log = _sizes(world.cluster.events.since(0))
    now_ms = world.engine.now_ms
    rentals = world.cloud.rentals
    failed_rules = {
        f"{group.name}/{rule.name}": {
            "evaluations": rule.status.evaluations,
            "failures": rule.status.failures,
            "lastError": rule.status.latest_failure,
        }
        for group in world.prometheus_rules.groups
        for rule in group.rules
        if rule.status.failures
    }
    return {
        "duration": world.seconds(now_ms),
        "hpas": _hpa_summaries(world, log),
        "nodePools": {
            name: {
                "maxNodes": max(
                    [
                        max(item.pool.min_nodes, item.initial_nodes),
                        *log.get(("TriggeredScaleUp", f"NodePool/{name}"), ()),
                    ]
                ),
                "finalNodes": world.cloud.sizes(name)[1],
            }
            for name, item in world.cloud.pools.items()
        },
        "jobs": {
            name: {
                "submitted": jobs.submitted,
                "pending": jobs.pending,
                "running": jobs.running,
                "succeeded": jobs.succeeded,
            }
            for name, jobs in job_progress(world).items()
        },
        **({"groups": _group_summaries(world)} if world.groups else {}),
        **({"queues": _queue_summaries(world.queues, now_ms)} if world.queues else {}),
        "completedJobs": len(world.cluster.completed_jobs),
        "submittedJobs": len(world.cluster.jobs),
        **_hours(world, now_ms),
        "gpuEnergyKwh": round(world.work_energy.kwh(now_ms), 4),
        "cost": _cost(rentals, now_ms),
        "currency": world.setup.currency,
        "poolsWithoutPrice": sorted({each.pool for each in rentals if each.price_per_hour is None}),
        **request_summaries(world),
        "scaleOuts": _scale_outs(world),
        **({"failedRules": failed_rules} if failed_rules else {}),
    }


def _hours(world: Site, now_ms: int) -> dict[str, float]:
    """Return the paid GPU-hours and their use: busy, starting, and the idle rest."""
    rentals = world.cloud.rentals
    gpu_hours = sum(rental.hours(now_ms) * rental.gpus for rental in rentals)
    on_the_way = sum(rental.starting_hours(now_ms) * rental.gpus for rental in rentals)
    starting = on_the_way + world.cluster.starting_gpu_ms / 3_600_000
    busy = world.busy_gpu_hours()
    return {
        "nodeHours": round(sum(rental.hours(now_ms) for rental in rentals), 4),
        "gpuHours": round(gpu_hours, 4),
        "busyGpuHours": round(busy, 4),
        "startingGpuHours": round(starting, 4),
        "idleGpuHours": round(max(0.0, gpu_hours - busy - starting), 4),
    }


def _cost(rentals: Sequence[Rental], now_ms: int) -> float | None:
    """Return the cost of all nodes; None if one has no price."""
    costs = [
        None if rental.price_per_hour is None else rental.hours(now_ms) * rental.price_per_hour
        for rental in rentals
    ]
    known = [cost for cost in costs if cost is not None]
    return round(sum(known), 4) if len(known) == len(costs) else None


def _hpa_summaries(world: Site, log: _Sizes) -> Mapping[str, Mapping[str, object]]:
    started = {item.metadata.key: item.replicas for item in world.setup.deployments}
    found: dict[str, dict[str, object]] = {}
    for hpa in world.cluster.hpas.values():
        deployment = f"{hpa.metadata.namespace}/{hpa.target.name}"
        sizes = log.get(("SuccessfulRescale", f"HorizontalPodAutoscaler/{hpa.metadata.name}"), [])
        scaled = f"{KIND}/{hpa.metadata.owner.name}" if hpa.metadata.owner else ""
        woken = log.get((ACTIVATED, scaled), [])
        found[hpa.metadata.name] = {
            "maxReplicas": max([started[deployment], *sizes, *woken]),
            "finalReplicas": world.cluster.deployments[deployment].replicas,
            "rescales": len(sizes),
        }
        if scaled:
            found[hpa.metadata.name] |= {
                "activations": len(woken),
                "deactivations": len(log.get((DEACTIVATED, scaled), [])),
            }
    return found


def _group_summaries(world: Site) -> Mapping[str, Mapping[str, object]]:
    """Return the groups of each LeaderWorkerSet at the end, and how long they held GPUs in vain."""
    found: dict[str, dict[str, object]] = {}
    for key, groups in world.groups.items():
        item, now = world.cluster.deployments[key], groups.now()
        found[item.metadata.name] = {
            "podsPerReplica": sum(count for _, count in item.templates),
            "finalReplicas": item.replicas,
            "readyReplicas": len(now.since_ms),
            "finalPods": now.pods,
            "heldGpuHours": round(world.held_gpu_ms[key] / 3_600_000, 4),
        }
    return found


def _queue_summaries(queues: JobQueues, now_ms: int) -> Mapping[str, Mapping[str, object]]:
    """Return what became of the workloads of each ClusterQueue, and how long they waited for quota."""
    found: dict[str, dict[str, object]] = {}
    for name, waited_ms in queues.waits_ms.items():
        still_ms = [now_ms - since for queue, since in queues.since_ms.values() if queue == name]
        found[name] = {
            "submitted": len(waited_ms) + len(still_ms),
            "admitted": len(waited_ms),
            "waiting": len(still_ms),
            "meanWaitTime": _mean_seconds(waited_ms),
            "longestWaitTime": ranked_seconds([*waited_ms, *still_ms], 100),
        }
    return found


def _sizes(log: Sequence[SimulationEvent]) -> _Sizes:
    found: dict[tuple[str, str], list[float]] = {}
    for event in log:
        if event.after is not None:
            found.setdefault((event.kind, event.object), []).append(event.after)
    return found


def _scale_outs(world: Site) -> dict[str, object]:
    """Return the mean times of scale-outs in seconds; None without scale-outs."""
    rises, scale_outs = world.scale_outs.rises, world.scale_outs.all
    answered = [rise.to_ready_ms for rise in rises if rise.scale_outs]
    ready = [each for each in scale_outs if each.ready_ms is not None]
    return {
        "count": len(scale_outs),
        "ready": len(ready),
        "loadRises": len(rises),
        "answeredRises": len(answered),
        "loadToReadyTimeP50": ranked_seconds(answered, 50),
        "loadToReadyTimeP95": ranked_seconds(answered, 95),
        "loadToReadyTimeMax": ranked_seconds(answered, 100),
        "meanLoadToDecisionTime": _mean_seconds(rise.to_decision_ms for rise in rises),
        "meanLoadToReadyTime": _mean_seconds(rise.to_ready_ms for rise in rises),
        "meanDecisionToReadyTime": _mean_seconds(
            each.ready_ms - each.decided_ms for each in scale_outs if each.ready_ms is not None
        ),
    }


def ranked_seconds(times_ms: Sequence[int | None], percent: int) -> float | None:
    """Return the smallest time that this percentage of times stays within.

    One that never came is longer than all others; None where the rank falls on one, or there are no times.
    """
    ranked = sorted(math.inf if time_ms is None else time_ms for time_ms in times_ms)
    rank = math.ceil(percent * len(ranked) / 100) - 1
    return round(ranked[rank] / 1000, 3) if ranked and math.isfinite(ranked[rank]) else None


def _mean_seconds(times_ms: Iterable[int | None]) -> float | None:
    known = [time_ms for time_ms in times_ms if time_ms is not None]
    return round(sum(known) / len(known) / 1000, 3) if known else None
