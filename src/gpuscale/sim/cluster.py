"""The state of the simulated cluster: what an API server and the kubelets' device managers would know.

Only bookkeeping lives here. Who creates pods, places them, starts them or adds nodes is in the modules
named for it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from gpuscale.cluster.scheduling.fit import NodeState, node_state
from gpuscale.cluster.scheduling.resources import gpu_count
from gpuscale.core.errors import BugError
from gpuscale.core.streams import name_suffix
from gpuscale.objects.hpa import HorizontalPodAutoscaler
from gpuscale.objects.nodes import Node
from gpuscale.objects.pods import Pod, PodPhase, PodStatus
from gpuscale.objects.selectors import Selector
from gpuscale.objects.workloads import Deployment, Job, Service
from gpuscale.rules.resources import ResourceType
from gpuscale.sim.events import Event, EventLog

FINISHED = (PodPhase.SUCCEEDED, PodPhase.FAILED)


def _nothing() -> None:
    """Stand in for a listener."""


class Cluster:
    """Objects by key, and which pod holds which GPU."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.events = EventLog()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.deployments: dict[str, Deployment] = {}
        self.jobs: dict[str, Job] = {}
        self.services: dict[str, Service] = {}
        self.hpas: dict[str, HorizontalPodAutoscaler] = {}
        self.completed_jobs: set[str] = set()
        self.succeeded_pods: Counter[str] = Counter()
        """Job key to how many of its pods have succeeded, those included that left with their node."""
        self.on_ready: Callable[[], None] = _nothing
        """Called when a pod has become ready."""
        self.version = 0
        """Grows with every change of a pod or node, so that what was counted can be kept until then."""
        self.devices: dict[str, list[str | None]] = {}
        """Node name to the key of the pod on each of its GPUs."""
        self._names = 0
        self._states_version = -1
        self._states: tuple[NodeState, ...] = ()

    def event(
        self,
        time_ms: int,
        kind: str,
        object_name: str,
        reason: str,
        *,
        before: float | None = None,
        after: float | None = None,
    ) -> None:
        self.events.add(Event(time_ms, kind, object_name, reason, before, after))

    def unique_suffix(self, *names: str) -> str:
        """Return a new tail for a generated name, the same in every run of this seed."""
        self._names += 1
        return name_suffix(self.seed, *names, str(self._names))

    # Nodes

    def add_node(self, node: Node, gpus: int) -> None:
        """Let a node join with `gpus` free devices."""
        self.nodes[node.metadata.name] = node
        self.devices[node.metadata.name] = [None] * gpus
        self.version += 1

    def remove_node(self, name: str) -> None:
        """Let a node leave, with the pods that are still on it."""
        for pod in self.pods_on(name):
            self.remove_pod(pod.metadata.key)
        del self.nodes[name]
        del self.devices[name]
        self.version += 1

    def node_states(self) -> tuple[NodeState, ...]:
        """Return every node with what its unfinished pods take."""
        if self._states_version != self.version:
            self._states_version = self.version
            self._states = self._count_states()
        return self._states

    def _count_states(self) -> tuple[NodeState, ...]:
        bound: dict[str, list[Pod]] = {name: [] for name in self.nodes}
        for pod in self.pods.values():
            if pod.spec.node_name in bound and pod.status.phase not in FINISHED:
                bound[pod.spec.node_name].append(pod)
        return tuple(
            node_state(self.nodes[name], (pod.spec for pod in pods)) for name, pods in bound.items()
        )

    # Pods

    def add_pod(self, pod: Pod) -> None:
        """Create a pod.

        Raises:
            BugError: the name is taken.
        """
        if pod.metadata.key in self.pods:
            raise BugError(f"pod {pod.metadata.key} exists already")
        self._put(pod)

    def remove_pod(self, key: str) -> None:
        self.release_devices(key)
        del self.pods[key]
        self.version += 1

    def set_status(self, key: str, status: PodStatus) -> None:
        """Replace a pod's status; a finished pod gives its GPUs back."""
        pod = self.pods[key]
        self._put(replace(pod, status=status))
        if status.phase is PodPhase.SUCCEEDED and pod.status.phase is not PodPhase.SUCCEEDED:
            self._count_success(pod)
        if status.phase in FINISHED:
            self.release_devices(key)
        if status.ready and not pod.status.ready:
            self.on_ready()

    def mark_deleted(self, key: str, now_ms: int) -> None:
        pod = self.pods[key]
        self._put(replace(pod, metadata=replace(pod.metadata, deletion_ms=now_ms)))

    def bind(self, key: str, node: str) -> None:
        """Put a pod onto a node and give it the lowest free GPUs.

        Raises:
            BugError: the node has too few free GPUs; the scheduler has checked.
        """
        pod = self.pods[key]
        wanted = gpu_count(pod.spec)
        slots = self.devices[node]
        free = [index for index, holder in enumerate(slots) if holder is None]
        if len(free) < wanted:
            raise BugError(f"{node} has {len(free)} free GPUs, pod {key} needs {wanted}")
        for index in free[:wanted]:
            slots[index] = key
        self._put(replace(pod, spec=replace(pod.spec, node_name=node)))

    def release_devices(self, key: str) -> None:
        slots = self.devices.get(self.pods[key].spec.node_name, [])
        slots[:] = [None if holder == key else holder for holder in slots]

    def pods_on(self, node: str) -> list[Pod]:
        return [pod for pod in self.pods.values() if pod.spec.node_name == node]

    def owned_by(self, kind: str, namespace: str, name: str) -> list[Pod]:
        """Return the pods that a controller made, oldest first."""
        return [
            pod
            for pod in self.pods.values()
            if pod.metadata.owner is not None
            and (pod.metadata.owner.kind, pod.metadata.owner.name) == (kind, name)
            and pod.metadata.namespace == namespace
        ]

    def selected(self, namespace: str, selector: Selector) -> list[Pod]:
        """Return the pods of a namespace that a selector finds."""
        return [
            pod
            for pod in self.pods.values()
            if pod.metadata.namespace == namespace and selector.matches(pod.metadata.labels)
        ]

    def unscheduled(self) -> list[Pod]:
        """Return the pods that wait for a node, oldest first."""
        return [
            pod
            for pod in self.pods.values()
            if not pod.spec.node_name and pod.metadata.deletion_ms is None
        ]

    def _count_success(self, pod: Pod) -> None:
        owner = pod.metadata.owner
        if owner is not None and owner.kind == "Job":
            self.succeeded_pods[f"{pod.metadata.namespace}/{owner.name}"] += 1

    def _put(self, pod: Pod) -> None:
        self.pods[pod.metadata.key] = pod
        self.version += 1

    # Finding objects by kind, for the metrics API

    def objects_of(self, plural: str) -> Iterator[tuple[str, str, dict[str, str]]]:
        """Return (namespace, name, labels) of every object of a resource; none for an unknown one."""
        tables: dict[str, Iterable[Pod | Node | Deployment | Job | Service]] = {
            "pods": self.pods.values(),
            "nodes": self.nodes.values(),
            "services": self.services.values(),
            "deployments": self.deployments.values(),
            "jobs": self.jobs.values(),
        }
        for item in tables.get(plural, ()):
            yield item.metadata.namespace, item.metadata.name, dict(item.metadata.labels)
        if plural == "namespaces":
            for namespace in sorted(
                {pod.metadata.namespace for pod in self.pods.values()} | {"default"}
            ):
                yield "", namespace, {}


class ClusterDirectory:
    """Answers from the cluster's state; it is always up to date."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def names(
        self, resource: ResourceType, namespace: str | None, selector: Selector
    ) -> tuple[str, ...]:
        """Return the names of the selected objects, sorted."""
        return tuple(
            sorted(
                name
                for scope, name, labels in self._cluster.objects_of(resource.plural)
                if scope == (namespace or "") and selector.matches(labels)
            )
        )
