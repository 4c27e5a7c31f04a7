"""Assumed CPU and memory of simulated pods and nodes, for `kubectl top`.

A scenario says nothing of CPU and main memory, so these are plain assumptions: a pod keeps one core busy for
each GPU that computes, as the thread that feeds it does, and holds as much main memory as GPU memory, since
its model went through it. Node agents are left out. No HPA of the loop scales on these values: virtual time
has none either, and the two must agree.
"""

from collections import Counter
from collections.abc import Iterable

from gpuscale.hpa.cluster.scheduling import device_requests
from gpuscale.kube.informers import ObjectRecord
from gpuscale.lab.kube_api.objects.run import Json, Run
from gpuscale.lab.kube_api.store import Stored
from gpuscale.lab.sim.load.agents import owner_key
from gpuscale.lab.sim.world import World
from gpuscale.server.metricsapi.usage import ObjectUsage, node_item, pod_item
from gpuscale.server.sources import NodeUsage, PodContainersUsage, Usage

WINDOW_MS = 15_000
"""What usage is averaged over, in scenario time."""
_MIB_MILLI = 1024 * 1024 * 1000
_CORE_MILLI = 1000


class SimulatedUsage:
    """Assumed usage of a simulated cluster's running pods."""

    def __init__(self, world: World, run: Run) -> None:
        self._world = world
        self._run = run

    def pod(self, stored: Stored) -> Json | None:
        """Return a pod's PodMetrics without kind; None while no container runs."""
        namespace, name = stored.key
        key = f"{namespace}/{name}"
        usage = self._usage(key)
        if usage is None:
            return None
        first, *rest = (each.name for each in self._world.cluster.pods[key].spec.containers)
        containers = {first: usage} | dict.fromkeys(rest, Usage(0, 0))
        measured = ObjectUsage(_record(stored), PodContainersUsage(containers, self._now_ms()))
        return pod_item(measured, self._window_ms(), self._now_ms())

    def nodes(self, nodes: Iterable[Stored]) -> list[Json]:
        """Return the NodeMetrics of nodes, without their kind."""
        cpu: Counter[str] = Counter()
        memory: Counter[str] = Counter()
        for key in self._world.containers.processes:
            usage = self._usage(key)
            if usage is not None:
                node = self._world.cluster.pods[key].spec.node_name
                cpu[node] += usage.cpu_milli or 0
                memory[node] += usage.memory_milli or 0
        now_ms, window_ms = self._now_ms(), self._window_ms()
        found = ((stored, Usage(cpu[stored.key[1]], memory[stored.key[1]])) for stored in nodes)
        return [
            node_item(ObjectUsage(_record(stored), NodeUsage(usage, now_ms)), window_ms, now_ms)
            for stored, usage in found
        ]

    def _usage(self, key: str) -> Usage | None:
        pod = self._world.cluster.pods.get(key)
        if pod is None or key not in self._world.containers.processes:
            return None
        work = self._world.gpus.work[owner_key(pod)]
        gpus = sum(device_requests(pod.spec).values())
        now_ms = self._world.engine.now_ms
        busy = 0.0
        if work.service is None:
            busy = work.steady_ratio
        elif pod.status.ready:
            busy = work.service.busy_ratio(now_ms - WINDOW_MS, now_ms)
        cpu_milli = round(busy * gpus * _CORE_MILLI)
        return Usage(cpu_milli, work.memory_mib * gpus * _MIB_MILLI)

    def _now_ms(self) -> int:
        return self._run.axis.to_caller_ms(self._world.engine.now_ms)

    def _window_ms(self) -> int:
        return max(1, round(WINDOW_MS / self._run.axis.speed))


def _record(stored: Stored) -> ObjectRecord:
    namespace, name = stored.key
    return ObjectRecord(namespace, name, stored.body["metadata"].get("labels") or {})
