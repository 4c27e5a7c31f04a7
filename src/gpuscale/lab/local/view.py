"""The live loop's data for the page and the terminal."""

import math
from collections import Counter
from collections.abc import Callable

from gpuscale.agent.gpu import GpuReading
from gpuscale.base.clock import PacedClock
from gpuscale.base.objects.pods import Pod, PodPhase
from gpuscale.base.pages.timeline import SeriesRecorder
from gpuscale.hpa import targets_cell
from gpuscale.lab.local.agents import AGENT_DOWN
from gpuscale.lab.local.lags import lags
from gpuscale.lab.local.metric_figures import metric_figures
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.document.document import document, events, summary
from gpuscale.lab.sim.document.jobs import job_progress
from gpuscale.lab.sim.load.service import SimulatedService
from gpuscale.lab.sim.pod_index import FINISHED
from gpuscale.lab.sim.scenario.setup import JobSetup
from gpuscale.lab.sim.world import World
from gpuscale.lab.views.report import render_report
from gpuscale.lab.views.summary import summary_totals

MAX_ROWS = 200
"""More than anyone reads; the rows go out twice a second."""


def job_rows(world: World) -> list[dict[str, object]]:
    """Return the submitted Jobs: running first, then pending, then completed.

    Each has `name`, `namespace`, `completions` wanted, `succeeded`, `running`, `pending` (completions
    for which no container runs yet) and `age` in seconds.
    """
    cluster = world.cluster
    running = Counter(
        f"{pod.metadata.namespace}/{pod.metadata.owner.name}"
        for pod in cluster.pods.values()
        if pod.metadata.owner is not None
        and pod.metadata.owner.kind == "Job"
        and pod.status.phase is PodPhase.RUNNING
    )
    submitted = [each for each in world.setup.jobs if each.job.metadata.key in cluster.jobs]

    def order(setup: JobSetup) -> tuple[int, int]:
        key = setup.job.metadata.key
        if key in cluster.completed_jobs:
            return 2, -setup.at_ms
        return (0 if running[key] else 1), setup.at_ms

    rows: list[dict[str, object]] = []
    for setup in sorted(submitted, key=order)[:MAX_ROWS]:
        job, key = setup.job, setup.job.metadata.key
        succeeded = min(job.completions, cluster.succeeded_pods[key])
        rows.append(
            {
                "name": job.metadata.name,
                "namespace": job.metadata.namespace,
                "completions": job.completions,
                "succeeded": succeeded,
                "running": min(running[key], job.completions - succeeded),
                "pending": max(0, job.completions - succeeded - running[key]),
                "age": (world.engine.now_ms - world.start_ms - setup.at_ms) / 1000,
            }
        )
    return rows


_FACTORS = (1, 2, 4, 8)
_SAMPLES = 200
"""Moments at which a scenario's load is looked at to find its largest rate."""
_MAX_RATE = 1e6
_SUM_MS = 10_000
"""Scenario time between two looks at a whole run, which may have 200,000 events."""


class LiveView:
    """Serves the page's data from the simulation, and changes the load.

    Args:
        world: of the run.
        controller: its HPAs' decisions.
        recorder: its past.
        readings: the latest readings by node.
        clock: which it follows.
        addresses: returns where the servers are, node agents included.
        broken: returns what viewers have broken, as `LiveFaults` does.
        next_steps: returns what to do once the scenario's time is over, as texts and commands.
    """

    def __init__(
        self,
        world: World,
        controller: HpaController,
        recorder: SeriesRecorder,
        readings: Callable[[str], tuple[GpuReading, ...]],
        clock: PacedClock,
        started: str,
        addresses: Callable[[], dict[str, object]],
        broken: Callable[[], list[dict[str, object]]],
        next_steps: Callable[[], tuple[tuple[str, str], ...]] = tuple,
    ) -> None:
        self._world = world
        self._controller = controller
        self._recorder = recorder
        self._readings = readings
        self._clock = clock
        self._started = started
        self._addresses = addresses
        self._broken = broken
        self._next_steps = next_steps
        self._summed_ms = -_SUM_MS
        self._summed: list[tuple[str, str]] = []
        duration_s = world.setup.duration_ms / 1000
        self._peaks = {
            item.deployment: max(
                item.load.rate(duration_s * index / _SAMPLES) for index in range(_SAMPLES)
            )
            for item in world.setup.workloads
        }

    def document(self) -> dict[str, object]:
        """Return the whole run so far."""
        return {
            **document(self._world, self._recorder),
            "speed": self._clock.speed,
            "started": self._started,
        }

    def since(self, points: int, events_seen: int) -> dict[str, object]:
        """Return the points and events after these numbers of each."""
        first, times, series = self._recorder.series(points)
        log = self._world.cluster.events
        return {
            "points": first,
            "t": times,
            "series": series,
            "events": events(self._world, log.since(events_seen)),
            "totals": {"points": self._recorder.total, "events": log.total},
        }

    def state(self) -> dict[str, object]:
        now_ms = self._world.engine.now_ms
        return {
            "t": self._world.seconds(now_ms),
            "running": True,
            "speed": self._clock.speed,
            "paused": self._clock.is_paused,
            "fault": "",
            "addresses": self._addresses(),
            "workloads": [self._workload(key, item) for key, item in self._world.services.items()],
            "hpas": [self._hpa(key) for key in self._world.cluster.hpas],
            "nodes": [self._node(name) for name in self._world.cluster.nodes],
            "pods": [
                self._pod(pod, now_ms)
                for pod in self._world.cluster.pods.values()
                if _is_shown(pod)
            ],
            "jobs": self._jobs(),
            "figures": self._figures(),
            "unseen": [],
            "lags": lags(self._world),
            "broken": self._broken(),
            "next": self._next_steps() if self._is_over() else (),
        }

    def report(self) -> str:
        """Return the run so far as one HTML page, with the spread of the hops among its tables."""
        hops = {
            name: {"scaleOuts": count, "timeP50": p50, "timeP95": p95}
            for name, count, p50, p95 in lags(self._world)["spread"]
        }
        shown = {**summary(self._world), **({"hops": hops} if hops else {})}
        return render_report({**self.document(), "summary": shown})

    def _is_over(self) -> bool:
        passed_ms = self._world.engine.now_ms - self._world.start_ms
        return passed_ms >= self._world.setup.duration_ms

    def set_load(self, workload: str, rate: float | None) -> None:
        """Give a workload this many requests per second; None follows the scenario again.

        Raises:
            ValueError: no such workload, or a rate it can't have.
        """
        keys = {key.partition("/")[2]: key for key in self._world.services}
        if workload not in keys:
            known = ", ".join(keys) or "none"
            raise ValueError(f"found workload {workload!r}, expected one of: {known}")
        if rate is not None and not (math.isfinite(rate) and 0 <= rate <= _MAX_RATE):
            raise ValueError(
                f"found rate {rate:g}, expected 0 to {_MAX_RATE:g} requests per second"
            )
        self._world.set_rate(keys[workload], rate)

    def _workload(self, key: str, service: SimulatedService) -> dict[str, object]:
        name = key.partition("/")[2]
        now_ms = self._world.engine.now_ms
        ready = self._world.ready_pods(key)
        replicas = self._world.cluster.deployments[key].replicas
        manual = service.manual_rate
        planned = service.planned_rate(now_ms)
        # The load buttons: zero, and multiples of the scenario's largest rate.
        base = self._peaks[key] or 1.0
        offered = [(f"{factor}×", round(base * factor, 6)) for factor in _FACTORS]
        return {
            "name": name,
            "rate": (planned if manual is None else manual) + service.single_rate,
            "mode": "scenario" if manual is None else "manual",
            "scenarioRate": planned,
            "ready": ready,
            "pending": max(0, replicas - ready),
            "queue": round(service.waiting, 1),
            "received": service.single,
            "receivedRate": round(service.single_rate, 1),
            "steps": [{"label": label, "rate": rate} for label, rate in (("idle", 0), *offered)],
        }

    def _hpa(self, key: str) -> dict[str, object]:
        hpa = self._world.cluster.hpas[key]
        decision = self._controller.decisions.get(key)
        statuses = decision.metrics if decision else ()
        target = self._controller.target(hpa)
        return {
            "name": hpa.metadata.name,
            "workload": hpa.target.name,
            "reference": f"{hpa.target.kind}/{hpa.target.name}",
            "targets": targets_cell(hpa, statuses),
            "metrics": metric_figures(hpa, statuses),
            "min": hpa.min_replicas,
            "max": hpa.max_replicas,
            "current": target.scale.spec_replicas,
            "desired": decision.desired_replicas if decision else target.scale.spec_replicas,
            "next": None,  # the page shows what the last sync decided
            "conditions": [
                {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
                for c in (decision.conditions if decision else ())
            ],
            "explanation": list(decision.explanation) if decision else [],
        }

    def _node(self, name: str) -> dict[str, object]:
        holders = self._world.cluster.devices.holders(name)
        return {
            "name": name,
            "pool": self._world.cloud.pool_of(name).pool.name,
            "ready": True,
            "gpus": [
                {
                    "index": reading.gpu.index,
                    "uuid": reading.gpu.uuid,
                    "model": reading.gpu.model,
                    "util": reading.values.get("DCGM_FI_DEV_GPU_UTIL"),
                    "memoryUsedMib": reading.values.get("DCGM_FI_DEV_FB_USED"),
                    "memoryTotalMib": reading.values.get("DCGM_FI_DEV_FB_TOTAL"),
                    "temperatureC": reading.values.get("DCGM_FI_DEV_GPU_TEMP"),
                    "powerW": reading.values.get("DCGM_FI_DEV_POWER_USAGE"),
                    "pod": ", ".join(holders[reading.gpu.index]) or None,
                    "faults": _faults(reading),
                }
                for reading in self._readings(name)
            ],
        }

    def _pod(self, pod: Pod, now_ms: int) -> dict[str, object]:
        return {
            "name": pod.metadata.name,
            "namespace": pod.metadata.namespace,
            "phase": pod.status.phase.value,
            "ready": pod.status.ready is True,
            "node": pod.spec.node_name or None,
            "age": (now_ms - pod.metadata.creation_ms) / 1000,
        }

    def _jobs(self) -> dict[str, object]:
        """Return the total number of Jobs, and a row for each Job of the scenario with its copies."""
        progress = job_progress(self._world)
        return {
            "total": len(self._world.setup.jobs),
            "active": sum(jobs.running for jobs in progress.values()),
            "completed": len(self._world.cluster.completed_jobs),
            "workloads": [
                {
                    "name": name,
                    "planned": jobs.planned,
                    "submitted": jobs.submitted,
                    "pending": jobs.pending,
                    "running": jobs.running,
                    "succeeded": jobs.succeeded,
                }
                for name, jobs in progress.items()
            ],
            "items": job_rows(self._world),
        }

    def _figures(self) -> list[tuple[str, str]]:
        """Return the summary's numbers in words, recomputed from time to time."""
        now_ms = self._world.engine.now_ms
        if now_ms - self._summed_ms >= _SUM_MS:
            self._summed_ms = now_ms
            self._summed = summary_totals({"summary": summary(self._world)})
        return self._summed


def _faults(reading: GpuReading) -> list[str]:
    if not reading.is_lost:
        return []
    return sorted({*reading.absent.values()} - {AGENT_DOWN})


def _is_shown(pod: Pod) -> bool:
    daemon = pod.metadata.owner is not None and pod.metadata.owner.kind == "DaemonSet"
    return not daemon and pod.status.phase not in FINISHED
