"""Requests of a run: how many were served, their waits, and whether the objectives were met."""

from gpuscale.lab.queueing.tally import Spread, percentile
from gpuscale.lab.sim.load.service import SimulatedService
from gpuscale.lab.sim.scenario.model import SloSpec
from gpuscale.lab.sim.site import Site

_PERCENTS = (50, 95, 99)
_DIGITS = 6


def request_summaries(world: Site) -> dict[str, object]:
    """Return the summary of requests, by Deployment; a time that no request had is null."""
    named = {key.partition("/")[2]: service for key, service in world.services.items()}
    promised = {
        workload.deployment.partition("/")[2]: workload.slo
        for workload in world.setup.workloads
        if workload.slo is not None
    }
    slos = {name: _slo(named[name], slo) for name, slo in promised.items()}
    return {
        "requests": {name: _requests(service) for name, service in named.items()},
        "wait": {name: _wait(service) for name, service in named.items()},
        "latency": {
            name: _percentiles(service.latencies, is_known=service.waits.count > 0)
            for name, service in named.items()
        },
        **({"slo": slos} if slos else {}),
        "shortOfCapacity": {
            name: {
                "shortTime": round(service.short_s, 3),
                "shortPodHours": round(service.short_pod_s / 3600, 4),
            }
            for name, service in named.items()
        },
    }


def _requests(service: SimulatedService) -> dict[str, float]:
    found = {
        "arrived": round(service.arrived, 3),
        "served": round(service.served, 3),
        "waiting": round(service.waiting, 3),
        "rejected": round(service.rejected, 3),
    }
    if service.is_one_by_one:
        found["inService"] = round(service.in_service, 3)
    if service.is_one_by_one or service.timed_out:
        found["timedOut"] = round(service.timed_out, 3)
    return found


def _wait(service: SimulatedService) -> dict[str, float | None]:
    mean_s = service.waits.mean_s
    return {
        "meanTime": None if mean_s is None else round(mean_s, _DIGITS),
        **_percentiles(service.waits, is_known=service.waits.count > 0),
    }


def _percentiles(times: Spread, *, is_known: bool) -> dict[str, float | None]:
    return {
        f"timeP{percent}": round(percentile(times, percent), _DIGITS) if is_known else None
        for percent in _PERCENTS
    }


def _slo(service: SimulatedService, slo: SloSpec) -> dict[str, object]:
    """Return how many requests were answered in time, of those answered, refused or given up."""
    latencies = service.latencies
    answered = service.waits.count
    total = answered + service.rejected + service.timed_out
    good = answered * (1 - latencies.exceeding(slo.latency))
    attained = 100 * good / total if total else None
    return {
        "latencyTime": slo.latency,
        "percent": slo.percent,
        "attainedPercent": None if attained is None else round(attained, 3),
        "met": None if attained is None else attained >= slo.percent,
    }
