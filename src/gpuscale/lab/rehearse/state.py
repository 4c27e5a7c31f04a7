"""A rehearsal's current state, in the live loop's form for the terminal."""

from collections.abc import Mapping, Sequence

from gpuscale.agent.gpu import GpuReading
from gpuscale.lab.rehearse.site import RehearsalSite
from gpuscale.lab.sim.document.jobs import job_progress
from gpuscale.lab.sim.load.service import SimulatedService
from gpuscale.lab.sim.needs import UTILIZATION


def state_of(
    site: RehearsalSite, readings: Mapping[str, Sequence[GpuReading]], speed: float
) -> dict[str, object]:
    """Return the state.

    Args:
        site: the machines, and what the API server said last.
        readings: node to what its GPUs showed when they were read last.
        speed: of the rehearsal.
    """
    return {
        "t": site.seconds(site.engine.now_ms),
        "speed": speed,
        "workloads": [_workload(site, key, service) for key, service in site.services.items()],
        "hpas": [_hpa(site, key) for key in site.cluster.hpas],
        "nodes": [
            {
                "ready": True,
                "gpus": [{"util": each.values.get(UTILIZATION)} for each in readings.get(name, ())],
            }
            for name in site.cluster.nodes
        ],
        "jobs": {
            "workloads": [
                {
                    "name": name,
                    "planned": jobs.planned,
                    "pending": jobs.pending,
                    "running": jobs.running,
                    "succeeded": jobs.succeeded,
                }
                for name, jobs in job_progress(site).items()
            ]
        },
    }


def _workload(site: RehearsalSite, key: str, service: SimulatedService) -> dict[str, object]:
    ready = site.ready_pods(key)
    return {
        "name": key.partition("/")[2],
        "rate": service.planned_rate(site.engine.now_ms),
        "ready": ready,
        "pending": max(0, site.cluster.deployments[key].replicas - ready),
        "queue": round(service.waiting, 1),
    }


def _hpa(site: RehearsalSite, key: str) -> dict[str, object]:
    hpa, figures = site.cluster.hpas[key], site.figures.get(key)
    seen = None if figures is None or figures.milli is None else f"{figures.milli / 1000:g}"
    return {
        "reference": f"{hpa.target.kind}/{hpa.target.name}",
        "targets": seen,
        "desired": None if figures is None else figures.desired,
    }
