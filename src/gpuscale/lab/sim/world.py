"""The simulated cluster: objects, controllers, kubelets, nodes, GPUs and load on one engine.

How readings reach the autoscaler is not in here. In virtual time `lab.sim.pipeline` carries them, in the
live loop real HTTP does; both then hand their observations to `lab.sim.autoscaler`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.pods import Lifecycle, Pod
from gpuscale.base.quantity import Quantity
from gpuscale.lab.sim.control.controllers import reconcile
from gpuscale.lab.sim.control.kubelet import Kubelet
from gpuscale.lab.sim.control.machines import CloudPool, Machine
from gpuscale.lab.sim.control.scheduler import Scheduler
from gpuscale.lab.sim.engine import EventStage
from gpuscale.lab.sim.scenario.setup import JobSetup, Setup
from gpuscale.lab.sim.site import Site


class World(Site):
    """A simulated cluster on an engine.

    Args:
        setup: what it starts with.
        start_ms: milliseconds since the epoch at the scenario's second 0.
        fields: the GPU fields that anyone looks at; None is all.
        one_by_one: whether services may serve requests one by one.
    """

    def __init__(
        self,
        setup: Setup,
        start_ms: int,
        fields: frozenset[str] | None = None,
        *,
        one_by_one: bool = False,
    ) -> None:

        def made(site: Site) -> SimulatedControlPlane:
            self._simulated = SimulatedControlPlane(site)
            return self._simulated

        super().__init__(setup, start_ms, fields, control_plane=made, one_by_one=one_by_one)
        self.cloud.start()
        self.control_plane.touch()
        self.begin(start_ms)
        for change in setup.hpa_changes:
            # Before the Deployment's controller runs at the same time.
            self.engine.at(
                start_ms + change.at_ms, EventStage.LOAD, partial(self._change, change.hpa)
            )

    # What can go wrong

    def lose_node(self, name: str) -> None:
        """Let a node's machine be gone, and its pods with it."""
        reason = f"Deleting node {name} because it does not exist in the cloud provider"
        self.cloud.lose(name, "DeletingNode", reason)
        self.containers.end_orphans()
        self.control_plane.touch()

    def lose_gpu(self, node: str, index: int) -> None:
        """Let a GPU fall off the bus.

        Nothing is read of it, the device plugin takes it off what the node offers, services on it are not
        ready, and Jobs' pods on it end and are made again.
        """
        self._set_lost(node, index, is_lost=True)
        message = f"Xid 79: GPU {index} has fallen off the bus"
        self.cluster.event(self.engine.now_ms, "GPULost", f"Node/{node}", message, type_="Warning")
        holders = self.cluster.devices.holders(node)[index]
        self._simulated.gpu_lost(holders)

    def mend_gpu(self, node: str, index: int) -> None:
        """Let a lost GPU work again, as after a reset of it."""
        self._set_lost(node, index, is_lost=False)
        self.cluster.event(
            self.engine.now_ms, "GPUBack", f"Node/{node}", f"GPU {index} answers after a reset"
        )
        self._simulated.gpu_back(self.cluster.devices.holders(node)[index])

    def _set_lost(self, node: str, index: int, *, is_lost: bool) -> None:
        reader = self.gpus.readers[node]
        (reader.lose if is_lost else reader.mend)(index)
        self.cluster.devices.set_lost(node, index, is_lost=is_lost)
        there, sign = self.cluster.nodes[node], -1 if is_lost else 1
        units = self.cloud.machine_of(node).offers
        changed = {
            name: Quantity(amount.nano + sign * units.get(name, 0) * 10**9, amount.format)
            for name, amount in there.allocatable.items()
        }
        self.cluster.set_node(replace(there, allocatable=changed))

    def _change(self, hpa: HorizontalPodAutoscaler, _now_ms: int) -> None:
        self.cluster.hpas[hpa.metadata.key] = hpa


class SimulatedControlPlane:
    """The controllers, scheduler and kubelet of a simulation."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._scheduler = Scheduler(
            site.cluster,
            site.setup.scheduler,
            self.evict,
            lambda: site.cloud.current_budgets(),
        )
        self._kubelet = Kubelet(
            site.cluster,
            site.engine,
            self._lifecycle_of,
            self.touch,
            site.containers,
            site.job_sets,
        )
        self._reconciling = False

    def touch(self) -> None:
        """Run the controllers and the scheduler at this simulated time."""
        if not self._reconciling:
            self._reconciling = True
            self._site.engine.after(0, EventStage.CONTROLLERS, self._reconcile)

    def unschedulable(self) -> list[Pod]:
        """Return the pods that were tried and fit on no node, oldest first."""
        return self._scheduler.unschedulable()

    def node_joined(self, _name: str, _pool: CloudPool, _machine: Machine) -> None:
        """Schedule pending pods again."""
        self.touch()

    def node_usable(self, _name: str) -> None:
        self.touch()

    def node_cordoned(self, _name: str, is_cordoned: bool) -> None:
        """Schedule pending pods where a node takes them again; the scheduler sees its taints."""
        if not is_cordoned:
            self.touch()

    def evict(self, key: str) -> None:
        """End a pod; its controller makes another."""
        self._site.cluster.mark_deleted(key, self._site.engine.now_ms)
        self._kubelet.stop(key)
        self.touch()

    def node_left(self, name: str) -> None:
        """Do nothing: the node's pods are gone with it."""

    def gpu_lost(self, keys: Sequence[str]) -> None:
        """End Jobs' pods on a lost GPU, and let the others be not ready."""
        pods = [self._site.cluster.pods[key] for key in keys]
        for pod in pods:
            if self._lifecycle_of(pod).run_ms is None:
                self._kubelet.gpu_lost(pod)
            elif pod.metadata.deletion_ms is None:
                self.evict(pod.metadata.key)
        self.touch()

    def gpu_back(self, keys: Sequence[str]) -> None:
        """Let pods serve that only waited for their GPU."""
        for key in keys:
            self._kubelet.gpu_back(key)
        self.touch()

    def submit(self, _setup: JobSetup) -> None:
        self.touch()

    def _lifecycle_of(self, pod: Pod) -> Lifecycle:
        lifecycle = self._site.lifecycle_of(pod)
        if self._site.engine.now_ms == self._site.start_ms and lifecycle.run_ms is None:
            # The cluster starts with all Deployments running.
            return replace(lifecycle, image_pull_ms=0, startup_ms=0)
        return lifecycle

    def _reconcile(self, now_ms: int) -> None:
        self._reconciling = False
        outcome = reconcile(self._site.cluster, now_ms)
        if self._site.queues is not None and self._site.queues.look(outcome.jobs, now_ms):
            self.touch()
        for key in outcome.deleted:
            self._kubelet.stop(key)
        if outcome.deleted and self._site.groups:
            self.touch()  # what was on no node is gone at once, and others may follow it
        self._site.engine.at(now_ms, EventStage.SCHEDULER, self._place)

    def _place(self, now_ms: int) -> None:
        bound = self._scheduler.run(now_ms)
        for key in bound:
            self._kubelet.take(key)
        if bound and self._site.groups:
            self.touch()  # workers may wait for their leader's node
        if self._scheduler.found_none:
            self._site.cloud.pods_wait(now_ms)
