"""A run as one plain document: what `simulate --json` prints and what the page and the report show.

`{"scenario", "seed", "description", "summary", "events", "series"}`; times are seconds of scenario time,
and null in a series is a gap.
"""

from collections.abc import Iterable, Mapping, Sequence

from gpuscale.objects.hpa import MetricTarget
from gpuscale.sim.autoscaler import HpaFigures
from gpuscale.sim.events import Event
from gpuscale.sim.jobs import job_progress
from gpuscale.sim.recorder import Recorder
from gpuscale.sim.site import Site

_DIGITS = 6
"""Enough for a microsecond or a millionth of a request, and short in the file."""


def document(world: Site, recorder: Recorder) -> dict[str, object]:
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


def events(world: Site, items: Iterable[Event]) -> list[dict[str, object]]:
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
    world: Site, hpas: Mapping[str, HpaFigures], pod_utilization: Mapping[str, float | None]
) -> dict[str, float | None]:
    """Return one moment's numbers by series name.

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
    values |= _hpa_values(world, hpas)
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


def _hpa_values(world: Site, hpas: Mapping[str, HpaFigures]) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for key, hpa in world.cluster.hpas.items():
        name = hpa.metadata.name
        deployment = f"{hpa.metadata.namespace}/{hpa.target.name}"
        values[f"hpa/{name}/current"] = world.cluster.deployments[deployment].replicas
        if hpa.metrics:
            values[f"hpa/{name}/target"] = _target(hpa.metrics[0].target)
        if key in hpas:
            shown = hpas[key]
            values[f"hpa/{name}/desired"] = shown.desired
            values[f"hpa/{name}/value"] = None if shown.milli is None else shown.milli / 1000
    return values


def _target(target: MetricTarget) -> float | None:
    """Return the number that a metric's value is held against, whichever form the target has."""
    quantity = target.average_value or target.value
    return float(quantity) if quantity is not None else target.average_utilization


def summary(world: Site) -> dict[str, object]:
    """Return the figures that sum a run up."""
    log = world.cluster.events.since(0)
    now_ms = world.engine.now_ms
    rentals = world.cloud.rentals
    return {
        "duration": world.seconds(now_ms),
        "hpas": _hpa_summaries(world, log),
        "nodePools": _pool_summaries(world, log),
        "jobs": {
            name: {
                "submitted": jobs.submitted,
                "pending": jobs.pending,
                "running": jobs.running,
                "succeeded": jobs.succeeded,
            }
            for name, jobs in job_progress(world).items()
        },
        "completedJobs": len(world.cluster.completed_jobs),
        "submittedJobs": len(world.cluster.jobs),
        "gpuHours": round(sum(rental.hours(now_ms) * rental.gpus for rental in rentals), 4),
        "busyGpuHours": round(world.busy_gpu_hours(), 4),
        "cost": round(sum(rental.hours(now_ms) * rental.price_per_hour for rental in rentals), 4),
        "requests": _requests(world),
        "meanScaleOutLag": mean_scale_out_lag(world, log),
    }


def _hpa_summaries(world: Site, log: Sequence[Event]) -> dict[str, object]:
    started = {item.metadata.key: item.replicas for item in world.setup.deployments}
    found: dict[str, object] = {}
    for hpa in world.cluster.hpas.values():
        deployment = f"{hpa.metadata.namespace}/{hpa.target.name}"
        sizes = _sizes_after(
            log, "SuccessfulRescale", f"HorizontalPodAutoscaler/{hpa.metadata.name}"
        )
        found[hpa.metadata.name] = {
            "maxReplicas": max([started[deployment], *sizes]),
            "finalReplicas": world.cluster.deployments[deployment].replicas,
            "rescales": len(sizes),
        }
    return found


def _pool_summaries(world: Site, log: Sequence[Event]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, item in world.cloud.pools.items():
        sizes = _sizes_after(log, "TriggeredScaleUp", f"NodePool/{name}")
        found[name] = {
            "maxNodes": max([item.pool.min_nodes, *sizes]),
            "finalNodes": world.cloud.sizes(name)[1],
        }
    return found


def _sizes_after(log: Sequence[Event], kind: str, name: str) -> list[float]:
    return [e.after for e in log if (e.kind, e.object) == (kind, name) and e.after is not None]


def _requests(world: Site) -> dict[str, object]:
    return {
        key.partition("/")[2]: {
            "arrived": round(service.arrived, 3),
            "served": round(service.served, 3),
            "waiting": round(service.waiting, 3),
            "rejected": round(service.rejected, 3),
        }
        for key, service in world.services.items()
    }


def mean_scale_out_lag(world: Site, log: Sequence[Event]) -> float | None:
    """Return the mean time in seconds from a rise of the load to the scale-out it led to.

    Only rises that are followed by a scale-out of the same Deployment before its load changes again
    count. None where there is none, as under a load that never jumps.
    """
    lags: list[float] = []
    for hpa in world.cluster.hpas.values():
        lags += _lags(
            log, f"Deployment/{hpa.target.name}", f"HorizontalPodAutoscaler/{hpa.metadata.name}"
        )
    return round(sum(lags) / len(lags), 3) if lags else None


def _lags(log: Sequence[Event], deployment: str, hpa: str) -> list[float]:
    lags: list[float] = []
    changed_ms: int | None = None
    for event in log:
        rises = (event.after or 0) > (event.before or 0)
        if event.kind == "LoadChanged" and event.object == deployment:
            changed_ms = event.time_ms if rises else None
        elif (
            event.kind == "SuccessfulRescale"
            and event.object == hpa
            and rises
            and changed_ms is not None
        ):
            lags.append((event.time_ms - changed_ms) / 1000)
            changed_ms = None
    return lags
