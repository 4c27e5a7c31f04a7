"""A rehearsal's machines: nodes, GPUs and load as in a simulation, under a real control plane.

Pods and counts are not decided in here. They are what the API server says (`lab.rehearse.mirror`); what the
node pools and the load ask for in turn is left in `orders`, for those who talk to the API server.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuscale.base.objects.pods import Lifecycle, Pod
from gpuscale.lab.sim.autoscaler import SyncFigures
from gpuscale.lab.sim.control.machines import CloudPool, Machine
from gpuscale.lab.sim.scenario.setup import JobSetup, Setup
from gpuscale.lab.sim.site import Site


@dataclass(frozen=True, slots=True)
class AddNode:
    """An order to create a pool's node, Ready and without its GPUs."""

    name: str
    pool: CloudPool
    machine: Machine


@dataclass(frozen=True, slots=True)
class OfferGpus:
    """An order to let a node's GPUs be scheduled on."""

    name: str
    machine: Machine


@dataclass(frozen=True, slots=True)
class CordonNode:
    """An order to keep new pods off a node, or to let them on again."""

    name: str
    is_cordoned: bool


@dataclass(frozen=True, slots=True)
class EvictPod:
    """An order to ask the eviction API to end a pod."""

    key: str


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """An order to delete a node."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateJob:
    """An order to create a Job."""

    run: JobSetup


Order = AddNode | OfferGpus | CordonNode | EvictPod | RemoveNode | CreateJob


class RehearsalSite(Site):
    """Simulated machines whose pods come from an API server.

    Args:
        setup: as placed in the rehearsal's namespaces.
        now_ms: milliseconds since the epoch.
        control_plane: makes what controls its pods; None for `ClusterControlPlane`.
    """

    def __init__(
        self,
        setup: Setup,
        now_ms: int,
        control_plane: "Callable[[RehearsalSite], ClusterControlPlane] | None" = None,
    ) -> None:
        self.orders: deque[Order] = deque()
        """What is to be done on the API server, oldest first."""
        self.stuck: set[str] = set()
        """Keys of the pods that the scheduler found no node for."""
        self.figures: dict[str, SyncFigures] = {}
        """HPA key to what its status shows."""
        self.has_begun = False
        super().__init__(setup, now_ms, control_plane=control_plane or ClusterControlPlane)

    def begin(self, start_ms: int) -> None:
        """Start the scenario at `start_ms`; nodes created earlier count from then on."""
        self.engine.run_until(start_ms)
        for rental in self.cloud.rentals:
            rental.from_ms = rental.ready_ms = start_ms
        self.has_begun = True
        super().begin(start_ms)

    def seconds(self, time_ms: int) -> float:
        """Return the scenario time in seconds; before the start it is 0."""
        return max(0.0, super().seconds(time_ms)) if self.has_begun else 0.0

    def lifecycle_now(self, owner: str) -> Lifecycle:
        """Return the durations of a pod's life, by its owner; before the start, serving pods start at once.

        What serves is up at once before the scenario's start.
        """
        lifecycle = self.lifecycle_by_owner(owner)
        if not self.has_begun and lifecycle.run_ms is None:
            return replace(lifecycle, image_pull_ms=0, startup_ms=0)
        return lifecycle

    def is_up(self) -> bool:
        """Return whether each Deployment's pods are all ready or unschedulable."""
        for key, item in self.cluster.deployments.items():
            pods = self.cluster.selected(item.metadata.namespace, item.selector)
            stuck = sum(1 for pod in pods if pod.metadata.key in self.stuck)
            if self.ready_pods(key) + stuck < item.replicas:
                return False
        return True


class ClusterControlPlane:
    """Kubernetes' own controllers; what they need to know is ordered at the API server."""

    def __init__(self, site: RehearsalSite) -> None:
        self._site = site

    def touch(self) -> None:
        """Do nothing: Kubernetes' controllers watch by themselves."""

    def unschedulable(self) -> list[Pod]:
        """Return the pods that the scheduler found no node for, oldest first."""
        stuck = self._site.stuck
        return [pod for pod in self._site.cluster.unscheduled() if pod.metadata.key in stuck]

    def node_joined(self, name: str, pool: CloudPool, machine: Machine) -> None:
        self._site.orders.append(AddNode(name, pool, machine))

    def node_usable(self, name: str) -> None:
        self._site.orders.append(OfferGpus(name, self._site.cloud.machine_of(name)))

    def node_cordoned(self, name: str, is_cordoned: bool) -> None:
        self._site.orders.append(CordonNode(name, is_cordoned))

    def evict(self, key: str) -> None:
        """Order an eviction; what a budget refuses is asked for again while the node is leaving."""
        if (order := EvictPod(key)) not in self._site.orders:
            self._site.orders.append(order)

    def node_left(self, name: str) -> None:
        """Order the deletion of a Node, whose pods are gone."""
        self._site.containers.end_orphans()
        self._site.orders.append(RemoveNode(name))

    def submit(self, setup: JobSetup) -> None:
        self._site.orders.append(CreateJob(setup))
