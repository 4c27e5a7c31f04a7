"""The results of a fluid run, under the names of an exact run's document."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.workloads import Deployment
from gpuscale.lab.plan.fleet.fleet import FleetRun, FleetService
from gpuscale.lab.plan.fleet.state import Table
from gpuscale.lab.sim.control.machines import CloudPool
from gpuscale.lab.sim.energy import work_w
from gpuscale.lab.sim.fluid.loads import rates_at
from gpuscale.lab.sim.scenario.setup import ServiceSetup, Setup
from gpuscale.triggers.policies import Numbers

NOT_MODELLED = {
    "events": "steps have no moments",
    "scaleOuts": "single orders and pods are not followed",
    "latency": "a fluid waits only when it is saturated; single requests have no times here",
    "slo": "it is held against latency",
    "startTimes": "each pod takes the mean, and pulls its image again",
    "scheduler": "GPUs decide where a pod fits; those of a Deployment all use the first pool that takes one",
    "noise": "signals are a step's means: agents' intervals, sampling and the seed change nothing",
}
"""What a summary of this fidelity lacks or simplifies, and why."""
ACCURACY = "GPU-hours within 5 % of an exact run's in 91 of 100 drawn scenarios"
"""Found by `benchmarks/bench_fluid.py`."""
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class FluidWorkload:
    """A Deployment in its form for a fleet."""

    name: str
    setup: ServiceSetup
    deployment: Deployment
    hpa: HorizontalPodAutoscaler | None
    service: FleetService
    busy: float
    """Share of its GPUs' time that a saturated pod uses."""
    home: CloudPool
    """Where its pods are."""


def fluid_summary(
    setup: Setup, workloads: Sequence[FluidWorkload], run: FleetRun, demand: Table
) -> dict[str, object]:
    """Return the summary of a run."""
    columns, hours_a_step = run.columns, run.step_s / 3600
    hpas: dict[str, object] = {}
    requests: dict[str, object] = {}
    short: dict[str, object] = {}
    busy_hours: list[float] = []
    for index, each in enumerate(workloads):
        if each.hpa is not None:
            asked = columns.placed[:, index] + columns.waiting[:, index]
            changes = numpy.diff(asked, prepend=each.deployment.replicas)
            hpas[each.hpa.metadata.name] = {
                "maxReplicas": int(asked.max()),
                "finalReplicas": int(asked[-1]),
                "rescales": int(numpy.count_nonzero(changes)),
            }
        came = demand[:, index]
        lacks = numpy.maximum(0.0, came - columns.ready[:, index])
        arrived = float(came.sum()) * run.step_s
        waiting = float(columns.queue[-1, index])
        given_up = _total(columns.given_up[:, index])
        rate = each.setup.model.largest_rate
        busy_hours.append((arrived - waiting - given_up) / 3600 * each.service.gpus * each.busy)
        requests[each.name] = {
            "arrived": round(arrived * rate, 3),
            "served": round((arrived - waiting - given_up) * rate, 3),
            "waiting": round(waiting * rate, 3),
            "rejected": round(given_up * rate, 3),
        }
        short[each.name] = {
            "shortTime": round(int(numpy.count_nonzero(lacks > 1e-9)) * run.step_s, 3),
            "shortPodHours": round(float(lacks.sum()) * hours_a_step, 4),
        }
    rented = columns.nodes + columns.nodes_coming
    node_hours = [_total(rented[:, at]) * hours_a_step for at in range(len(run.pools))]
    prices = [each.price_per_hour for each in setup.pools]
    costs = [
        None if price is None and hours else (price or 0.0) * hours
        for price, hours in zip(prices, node_hours, strict=True)
    ]
    known = [cost for cost in costs if cost is not None]
    return {
        "fidelity": "fluid",
        "accuracy": ACCURACY,
        "duration": setup.duration_ms / 1000,
        "hpas": hpas,
        "nodePools": {
            pool.name: {
                "maxNodes": int(rented[:, at].max()),
                "finalNodes": int(rented[-1, at]),
            }
            for at, pool in enumerate(run.pools)
        },
        **_hours(workloads, run, node_hours, sum(busy_hours)),
        "gpuEnergyKwh": round(_energy_kwh(setup, workloads, run, busy_hours), 4),
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
    workloads: Sequence[FluidWorkload],
    run: FleetRun,
    node_hours: Sequence[float],
    busy_hours: float,
) -> dict[str, float]:
    """Return the paid GPU-hours and their use: busy, starting, and the idle rest."""
    columns, hours_a_step = run.columns, run.step_s / 3600
    gpu_hours = sum(h * pool.gpus for h, pool in zip(node_hours, run.pools, strict=True))
    starting = sum(
        _total(columns.nodes_coming[:, at]) * pool.gpus for at, pool in enumerate(run.pools)
    )
    for index, each in enumerate(workloads):
        # Pods that had GPUs after a step and don't serve in the next one.
        late = columns.placed[:-1, index] - columns.ready[1:, index]
        starting += _total(late) * each.service.gpus
    starting_hours = starting * hours_a_step
    return {
        "nodeHours": round(sum(node_hours), 4),
        "gpuHours": round(gpu_hours, 4),
        "busyGpuHours": round(busy_hours, 4),
        "startingGpuHours": round(starting_hours, 4),
        "idleGpuHours": round(max(0.0, gpu_hours - busy_hours - starting_hours), 4),
    }


def _energy_kwh(
    setup: Setup,
    workloads: Sequence[FluidWorkload],
    run: FleetRun,
    busy_hours: Sequence[float],
) -> float:
    """Return the energy of all GPUs in kWh: idle while their node exists, plus that of work."""
    idle = sum(
        _total(run.columns.nodes[:, at])
        * run.step_s
        / 3600
        * pool.gpus
        * pool.gpu_model.idle_power_w
        for at, pool in enumerate(setup.pools)
    )
    worked = sum(
        hours * work_w(each.home.gpu_model)
        for each, hours in zip(workloads, busy_hours, strict=True)
    )
    return (idle + worked) / 1000


def fluid_series(workloads: Sequence[FluidWorkload], run: FleetRun) -> dict[str, object]:
    """Return the series under an exact run's names, without those of single pods and GPUs."""
    columns = run.columns
    times = numpy.arange(1, len(columns.nodes) + 1, dtype=numpy.float64) * run.step_s
    series: dict[str, object] = {"t": times.tolist()}
    for index, each in enumerate(workloads):
        rate = each.setup.model.largest_rate
        series[f"load/{each.name}"] = _rounded(rates_at(each.setup.load, times))
        queue: Numbers = columns.queue[:, index].astype(numpy.float64) * rate
        series[f"queue/{each.name}"] = _rounded(queue)
        series[f"replicas/{each.name}/ready"] = columns.ready[:, index].tolist()
        if each.hpa is not None:
            asked = columns.placed[:, index] + columns.waiting[:, index]
            series[f"hpa/{each.hpa.metadata.name}/current"] = asked.tolist()
    series["pods/pending"] = columns.waiting.sum(axis=1).tolist()
    for at, pool in enumerate(run.pools):
        ready = columns.nodes[:, at]
        series[f"nodes/{pool.name}/ready"] = ready.tolist()
        series[f"nodes/{pool.name}/total"] = (ready + columns.nodes_coming[:, at]).tolist()
    return series


def _total(column: Numbers) -> float:
    return float(column.sum(dtype=numpy.float64))


def _rounded(column: Numbers) -> list[float]:
    values: list[float] = numpy.round(column, _DIGITS).tolist()
    return values
