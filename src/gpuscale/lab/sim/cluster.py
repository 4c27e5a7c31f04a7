"""The state of the simulated cluster, as its API server and device managers would know it.

Only bookkeeping lives here. Who creates pods, places them, starts them or adds nodes is in the modules
named for it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from gpuscale.base.errors import BugError
from gpuscale.base.objects.devices import DeviceKey
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import Pod, PodPhase, PodStatus
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.objects.workloads import Deployment, Job, Service
from gpuscale.base.streams import name_suffix
from gpuscale.hpa.cluster.scheduling import NodeState
from gpuscale.lab.sim.devices import WHOLE, Devices
from gpuscale.lab.sim.events import EventLog, SimulationEvent
from gpuscale.lab.sim.pod_index import FINISHED, OwnerKey, PodIndex
from gpuscale.server.rules import ResourceType


class Cluster:
    """The cluster's objects by key, and the pod on each GPU.

    Args:
        seed: of the run.
        clock: returns the time, milliseconds.
    """

    def __init__(self, seed: int, clock: Callable[[], int] = lambda: 0) -> None:
        self.seed = seed
        self.events = EventLog()
        self.nodes: dict[str, Node] = {}
        self.index = PodIndex(clock)
        self.pods = self.index.pods
        """By key; what changes them is below."""
        self.deployments: dict[str, Deployment] = {}
        self.jobs: dict[str, Job] = {}
        self.services: dict[str, Service] = {}
        self.hpas: dict[str, HorizontalPodAutoscaler] = {}
        self.controlled: dict[OwnerKey, tuple[int, str]] = {}
        """What makes pods, to its place among those and the key of its Deployment or Job."""
        self.worker_sets: dict[str, dict[int, int]] = {}
        """LeaderWorkerSet key to the groups with workers, and when the leader was made that these serve."""
        self.gangs: dict[str, int] = {}
        """PodGroup key to its minCount, of those whose pods get nodes at once or not at all."""
        self.completed_jobs: set[str] = set()
        self.suspended: set[str] = set()
        """Keys of the Jobs that make no pods yet."""
        self.starting_gpu_ms = 0
        """For how long GPUs were held by pods that had not become ready, of those that did."""
        self.succeeded_pods: Counter[str] = Counter()
        """Job key to how many of its pods have succeeded, those included that left with their node."""
        self.on_ready: Callable[[], None] = lambda: None
        """Called when a pod has become ready."""
        self.on_workers: Callable[[OwnerKey, OwnerKey], None] = lambda _leaders, _workers: None
        """Called with the owners of a group's leader and workers before the first of these are made."""
        self.version = 0
        """Grows with every change of a pod or node, so that what was counted can be kept until then."""
        self.devices = Devices()
        self._names = 0
        self._states: dict[str, NodeState] = {}

    def event(
        self,
        time_ms: int,
        kind: str,
        object_name: str,
        reason: str,
        *,
        before: float | None = None,
        after: float | None = None,
        namespace: str = "",
        type_: str = "Normal",
        pods: tuple[str, ...] = (),
    ) -> None:
        event = SimulationEvent(
            time_ms, kind, object_name, reason, before, after, namespace, type_, pods
        )
        self.events.add(event)

    def new_pod_name(self, namespace: str, prefix: str, *names: str) -> str:
        """Return a new pod name, equal in every run of a seed.

        Five letters are not enough to be different by themselves: where a name is taken, the next is drawn,
        as the API server does it for `generateName`.
        """
        while True:
            self._names += 1
            name = f"{prefix}-{name_suffix(self.seed, *names, str(self._names))}"
            if f"{namespace}/{name}" not in self.pods:
                return name

    def control(self, owner: OwnerKey, key: str) -> None:
        """Add a Deployment or Job for the controllers to reconcile."""
        self.controlled[owner] = len(self.controlled), key
        self.index.changed_owners[owner] = None

    def control_group(self, leaders: OwnerKey, workers: OwnerKey) -> None:
        """Add the workers of a group; they are reconciled with their leaders."""
        self.control(workers, self.controlled[leaders][1])
        self.index.unite(leaders, workers)
        self.on_workers(leaders, workers)

    # Nodes

    def add_node(
        self,
        node: Node,
        gpus: int,
        offers: Mapping[str, int] = WHOLE,
        gpu_of: Mapping[tuple[str, str], tuple[int, ...]] = MappingProxyType({}),
    ) -> None:
        """Add a node with `gpus` free GPUs.

        Args:
            node: as it is known.
            gpus: how many.
            offers: how many pods may ask one GPU for a unit of a resource.
            gpu_of: driver and name of a device for claims, to the GPUs that it is, or is a part of.
        """
        self.nodes[node.metadata.name] = node
        self.devices.join(node.metadata.name, gpus, offers, gpu_of)
        self._states[node.metadata.name] = NodeState(node)
        self.version += 1

    def set_node(self, node: Node) -> None:
        """Replace what is known of a node."""
        self.nodes[node.metadata.name] = node
        self.index.changed_nodes.add(node.metadata.name)
        self.version += 1

    def remove_node(self, name: str) -> None:
        """Remove a node with its pods."""
        for pod in self.pods_on(name):
            self.remove_pod(pod.metadata.key)
        del self.nodes[name]
        self.devices.leave(name)
        self._states.pop(name, None)
        self.version += 1

    def node_states(self) -> Mapping[str, NodeState]:
        """Return each node with the requests of its unfinished pods; valid until the next change."""
        changed = self.index.changed_nodes
        for name in changed:
            if name in self.nodes:
                self._states[name] = self.index.state_of(self.nodes[name])
        changed.clear()
        return self._states

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
        self.devices.release(key)
        self.index.remove(key)
        self.version += 1

    def set_status(self, key: str, status: PodStatus) -> None:
        """Replace a pod's status; a finished pod frees its GPUs."""
        pod = self.pods[key]
        self._put(replace(pod, status=status))
        owner = pod.metadata.owner
        is_new = status.phase is not pod.status.phase
        if is_new and status.phase is PodPhase.SUCCEEDED and owner and owner.kind == "Job":
            self.succeeded_pods[f"{pod.metadata.namespace}/{owner.name}"] += 1
        if status.phase in FINISHED:
            self.devices.release(key)
        if status.ready and not pod.status.ready:
            bound_ms, ready_ms = status.start_ms, status.ready_transition_ms
            if bound_ms is not None and ready_ms is not None:
                held = self.devices.gpus_of(pod.spec.node_name, pod.spec)
                self.starting_gpu_ms += round(max(0, ready_ms - bound_ms) * held)
            self.on_ready()

    def mark_deleted(self, key: str, now_ms: int) -> None:
        pod = self.pods[key]
        self._put(replace(pod, metadata=replace(pod.metadata, deletion_ms=now_ms)))

    def bind(self, key: str, node: str, devices: frozenset[DeviceKey] = frozenset()) -> None:
        """Bind a pod to a node, and give it GPUs there, and the devices that its claims have got.

        Raises:
            BugError: the node has too few free GPUs; the scheduler has checked.
        """
        pod = self.pods[key]
        gpus, claims = self.devices.take(key, node, pod.spec, devices), pod.spec.claims
        if claims:  # some alternatives are of more GPUs than others
            claims = (replace(claims[0], gpus=gpus), *(replace(c, gpus=0) for c in claims[1:]))
        spec = replace(pod.spec, node_name=node, claims=claims)
        self._put(replace(pod, spec=spec, devices=devices))

    def pods_on(self, node: str) -> list[Pod]:
        return self.index.on(node)

    def owned_by(self, kind: str, namespace: str, name: str) -> list[Pod]:
        """Return a controller's pods, oldest first."""
        return self.index.owned_by((kind, namespace, name))

    def selected(self, namespace: str, selector: Selector) -> list[Pod]:
        """Return the pods of a namespace that a selector matches."""
        return self.index.selected(namespace, selector)

    def unscheduled(self) -> list[Pod]:
        """Return the unscheduled pods, oldest first."""
        return [self.pods[key] for key in self.index.waiting]

    def _put(self, pod: Pod) -> None:
        self.index.put(pod)
        self.version += 1

    # Finding objects by kind, for the metrics API

    def objects_of(self, plural: str) -> Iterator[tuple[str, str, dict[str, str]]]:
        """Return (namespace, name, labels) of each object of a resource; none for an unknown resource."""
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
            for namespace in sorted({*(+self.index.namespaces), "default"}):
                yield "", namespace, {}


class ClusterDirectory:
    """Answers from the cluster's current state."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def names(
        self, resource: ResourceType, namespace: str | None, selector: Selector
    ) -> tuple[str, ...]:
        """Return the names of the selected objects, sorted."""
        if resource.plural == "pods":
            pods = self._cluster.selected(namespace or "", selector)
            return tuple(sorted(pod.metadata.name for pod in pods))
        return tuple(
            sorted(
                name
                for scope, name, labels in self._cluster.objects_of(resource.plural)
                if scope == (namespace or "") and selector.matches(labels)
            )
        )
