"""The simulated cluster as a whole: objects, controllers, kubelets, nodes, GPUs and load on one engine.

How readings reach the autoscaler is not in here. In virtual time `sim.pipeline` carries them, in the
live loop real HTTP does; both then hand their observations to `sim.autoscaler`.
"""

from dataclasses import replace

from gpuscale.objects.meta import ObjectMeta, OwnerReference
from gpuscale.objects.pods import Container, Pod, PodPhase, PodSpec, PodStatus, Toleration
from gpuscale.scheduling.resources import gpu_count
from gpuscale.sim.agents import PodWork, SimulatedGpus, owner_key
from gpuscale.sim.cloud import Cloud, CloudPool
from gpuscale.sim.cluster import Cluster
from gpuscale.sim.controllers import live_pods, reconcile, replica_set_name
from gpuscale.sim.engine import Engine, Stage
from gpuscale.sim.kubelet import Kubelet, Lifecycle
from gpuscale.sim.scheduler import Scheduler
from gpuscale.sim.service import Service
from gpuscale.sim.setup import JobSetup, ServiceSetup, Setup

_LOAD_STEP_MS = 1_000
"""How often requests are worked off; loads are exact integrals, so this only sets the grain of queues."""


class World:
    """A cluster that lives as long as its engine runs.

    Args:
        setup: what it starts with.
        start_ms: milliseconds since the epoch at the scenario's second 0.
        fields: the GPU fields that anyone looks at; None is all.
    """

    def __init__(self, setup: Setup, start_ms: int, fields: frozenset[str] | None = None) -> None:
        self.setup = setup
        self.start_ms = start_ms
        self.engine = Engine(start_ms)
        self.cluster = Cluster(setup.seed)
        self.scheduler = Scheduler(self.cluster)
        self.kubelet = Kubelet(self.cluster, self.engine, self._lifecycle_of, self.touch)
        window_ms = setup.pipeline.collect_interval
        self.gpus = SimulatedGpus(self.cluster, self.kubelet, setup.seed, window_ms, fields)
        self.services: dict[str, Service] = {}
        """Deployment key to its requests."""
        self.cloud = Cloud(
            self.cluster,
            self.engine,
            setup.pools,
            setup.autoscaler,
            unschedulable=self.scheduler.unschedulable,
            joined=self._node_joined,
            left=self.gpus.leave,
        )
        self._lifecycles: dict[str, Lifecycle] = {}
        self._reconciling = False
        self._counted_version = -1
        self._ready: dict[str, int] = {}
        self._busy_gpu_ms = 0.0
        self._worked_ms = start_ms
        self._create_objects()
        self._schedule()

    # What others look at

    def seconds(self, time_ms: int) -> float:
        """Return seconds of scenario time."""
        return (time_ms - self.start_ms) / 1000

    def ready_pods(self, deployment: str) -> int:
        """Return how many pods of a Deployment take requests."""
        if self._counted_version != self.cluster.version:
            self._counted_version = self.cluster.version
            self._ready = {key: self._count_ready(key) for key in self.cluster.deployments}
        return self._ready[deployment]

    def pending_pods(self) -> int:
        """Return how many pods wait for a node or a start."""
        pods = self.cluster.pods.values()
        return sum(1 for pod in pods if pod.status.phase is PodPhase.PENDING)

    def busy_gpu_hours(self) -> float:
        """Return how long GPUs have really computed, added up."""
        return self._busy_gpu_ms / 3_600_000

    # What others do to it

    def advance_load(self, now_ms: int) -> None:
        """Let the work of the time up to now be done; readings ask for it first."""
        elapsed_ms = now_ms - self._worked_ms
        if elapsed_ms <= 0:
            return
        for key, service in self.services.items():
            pods = self.ready_pods(key)
            service.advance(now_ms, pods)
            busy = service.busy_ratio(self._worked_ms, now_ms)
            self._busy_gpu_ms += busy * elapsed_ms * pods * service.model.gpus
        if self.cluster.jobs:
            self._busy_gpu_ms += self._job_gpus() * elapsed_ms
        self._worked_ms = now_ms

    def touch(self) -> None:
        """Have the controllers and the scheduler look, still at this moment."""
        if not self._reconciling:
            self._reconciling = True
            self.engine.after(0, Stage.CONTROLLERS, self._reconcile)

    def set_replicas(self, deployment: str, replicas: int) -> None:
        """Write a Deployment's scale."""
        self.cluster.deployments[deployment] = replace(
            self.cluster.deployments[deployment], replicas=replicas
        )
        self.cluster.version += 1
        self.touch()

    def set_rate(self, deployment: str, rate: float | None) -> None:
        """Have this many requests per second come, or (None) as many as the scenario says."""
        service = self.services[deployment]
        before = service.rate
        service.manual_rate = rate
        after = service.planned_rate(self.engine.now_ms) if rate is None else rate
        self.log_load(deployment, before, after, self.engine.now_ms)

    def log_load(self, deployment: str, before: float, after: float, now_ms: int) -> None:
        """Log that the load of a Deployment changed."""
        name = deployment.partition("/")[2]
        reason = f"load is now {after:g} requests/s"
        self.cluster.event(
            now_ms, "LoadChanged", f"Deployment/{name}", reason, before=before, after=after
        )

    # Inside

    def _create_objects(self) -> None:
        setup = self.setup
        self.cluster.deployments = {item.metadata.key: item for item in setup.deployments}
        self.cluster.services = {item.metadata.key: item for item in setup.services}
        self.cluster.hpas = {item.metadata.key: item for item in setup.hpas}
        for workload in setup.workloads:
            self._add_service(workload)
        for deployment in setup.deployments:
            if deployment.metadata.key not in self.services:
                self._add_idle(deployment.metadata.key)

    def _add_service(self, workload: ServiceSetup) -> None:
        service = Service(workload.model, workload.load, self.start_ms)
        self.services[workload.deployment] = service
        owner = self._replica_set_key(workload.deployment)
        self._lifecycles[owner] = workload.lifecycle
        self.gpus.work[owner] = PodWork(workload.memory_mib, service)

    def _add_idle(self, deployment: str) -> None:
        """A Deployment that the scenario gives no load to: its pods hold their GPUs and do nothing."""
        owner = self._replica_set_key(deployment)
        self._lifecycles[owner] = Lifecycle(0, 0)
        self.gpus.work[owner] = PodWork(0, None)

    def _replica_set_key(self, deployment: str) -> str:
        item = self.cluster.deployments[deployment]
        name = replica_set_name(self.cluster, item)
        return f"ReplicaSet {item.metadata.namespace}/{name}"

    def _schedule(self) -> None:
        self.cloud.start()
        self.touch()
        engine, start = self.engine, self.start_ms
        engine.every(_LOAD_STEP_MS, Stage.LOAD, self.advance_load, first_ms=start + _LOAD_STEP_MS)
        scan_ms = self.setup.scan_interval_ms
        engine.every(scan_ms, Stage.NODE_AUTOSCALER, self.cloud.scan, first_ms=start + scan_ms)
        for workload in self.setup.workloads:
            for moment in workload.load.changes(self.setup.duration_ms / 1000):
                self._announce_change(workload, moment)
        for job in self.setup.jobs:
            self._submit_later(job)

    def _announce_change(self, workload: ServiceSetup, moment: float) -> None:
        before, after = workload.load.rate(moment - 0.001), workload.load.rate(moment)

        def announce(now_ms: int) -> None:
            if self.services[workload.deployment].manual_rate is None:
                self.log_load(workload.deployment, before, after, now_ms)

        self.engine.at(self.start_ms + round(moment * 1000), Stage.LOAD, announce)

    def _submit_later(self, setup: JobSetup) -> None:
        def submit(now_ms: int) -> None:
            meta = setup.job.metadata
            owner = f"Job {meta.namespace}/{meta.name}"
            self._lifecycles[owner] = setup.lifecycle
            self.gpus.work[owner] = PodWork(setup.memory_mib, None, setup.utilization_ratio)
            self.cluster.jobs[meta.key] = setup.job
            self.touch()

        self.engine.at(self.start_ms + setup.at_ms, Stage.CONTROLLERS, submit)

    def _lifecycle_of(self, pod: Pod) -> Lifecycle:
        lifecycle = self._lifecycles[owner_key(pod)]
        if self.engine.now_ms == self.start_ms and lifecycle.run_ms is None:
            return Lifecycle(0, 0)  # the cluster starts with its Deployments up
        return lifecycle

    def _job_gpus(self) -> float:
        """Return how many GPUs' worth of work the running jobs do."""
        pods = [self.cluster.pods[key] for key in self.kubelet.processes]
        return sum(
            self.gpus.work[owner_key(pod)].steady_ratio * gpu_count(pod.spec) for pod in pods
        )

    def _reconcile(self, now_ms: int) -> None:
        self._reconciling = False
        outcome = reconcile(self.cluster, now_ms)
        for key in outcome.deleted:
            self.kubelet.stop(key)
        self.engine.at(now_ms, Stage.SCHEDULER, self._place)

    def _place(self, now_ms: int) -> None:
        for key in self.scheduler.run(now_ms):
            self.kubelet.take(key)

    def _count_ready(self, deployment: str) -> int:
        pods = live_pods(self.cluster, self.cluster.deployments[deployment])
        return sum(1 for pod in pods if pod.status.ready)

    def _node_joined(self, name: str, pool: CloudPool) -> None:
        self.gpus.join(name, self.setup.models[pool.pool.name], pool.gpus)
        self.cluster.add_pod(self._agent_pod(name))
        self.touch()

    def _agent_pod(self, node: str) -> Pod:
        """The node agent's own pod, which a DaemonSet would run there."""
        pipeline = self.setup.pipeline
        name = f"{pipeline.agent_service}-{self.cluster.unique_suffix('agent', node)}"
        labels = {"app.kubernetes.io/name": pipeline.agent_service}
        now_ms = self.engine.now_ms
        owner = OwnerReference("DaemonSet", pipeline.agent_service)
        meta = ObjectMeta(name, pipeline.agent_namespace, labels, {}, now_ms, None, owner)
        everywhere = (Toleration(operator="Exists"),)
        spec = PodSpec((Container("exporter"),), node_name=node, tolerations=everywhere)
        return Pod(meta, spec, PodStatus(PodPhase.RUNNING, now_ms, True, now_ms))
