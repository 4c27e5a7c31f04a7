"""The machines and load of a simulated cluster, under any control plane.

Nodes, their GPUs, the cloud that makes them, and the services whose requests keep them busy. Who makes
pods, places and starts them is not in here: in `lab.sim.world` it is the simulator, in a rehearsal
Kubernetes.
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, Self

from gpuscale.base.golang.durations import format_duration
from gpuscale.base.objects.kueue import QUEUE_LABEL
from gpuscale.base.objects.meta import ObjectMeta, OwnerReference
from gpuscale.base.objects.pods import Container, Lifecycle, Pod, PodPhase, PodSpec, PodStatus
from gpuscale.base.objects.taints import Toleration
from gpuscale.base.objects.workloads import DaemonSet, LeaderWorkerSet
from gpuscale.base.streams import stream
from gpuscale.hpa.cluster.nodes import CapacityBuffer, ProvisioningRequest
from gpuscale.hpa.cluster.scheduling import device_requests, misfits, refusal_of
from gpuscale.lab.sim.cluster import Cluster
from gpuscale.lab.sim.control.cloud import Cloud
from gpuscale.lab.sim.control.containers import Containers
from gpuscale.lab.sim.control.controllers import live_pods, owner_of_replicas
from gpuscale.lab.sim.control.groups import Groups
from gpuscale.lab.sim.control.job_sets import JobSets
from gpuscale.lab.sim.control.machines import CloudPool, Machine
from gpuscale.lab.sim.control.queues import JobQueues
from gpuscale.lab.sim.energy import WorkEnergy
from gpuscale.lab.sim.engine import Engine, EventStage
from gpuscale.lab.sim.load.agents import PodWork, SimulatedGpus, owner_key
from gpuscale.lab.sim.load.arrivals import Arrivals
from gpuscale.lab.sim.load.one_by_one import MAX_REQUESTS, OneByOne
from gpuscale.lab.sim.load.service import SimulatedService
from gpuscale.lab.sim.pod_index import OwnerKey
from gpuscale.lab.sim.scale_outs import PodPath, ScaleOuts
from gpuscale.lab.sim.scenario.setup import STOP_MS, JobSetup, ServiceSetup, Setup, StartTimes
from gpuscale.triggers.keda import made_hpa

_NODE_CRITICAL = 2_000_001_000
"""The priority of `system-node-critical`, which the chart gives node agents."""
_LOAD_STEP_MS = 1_000
"""How often requests are worked off; loads are exact integrals, so this only sets the grain of queues."""


class ControlPlane(Protocol):
    """The controllers of a cluster's pods: simulated, or behind a real API server."""

    def touch(self) -> None:
        """Trigger the controllers and the scheduler, if they don't watch by themselves."""

    def unschedulable(self) -> list[Pod]:
        """Return the pods that were tried and fit on no node, oldest first."""

    def node_joined(self, name: str, pool: CloudPool, machine: Machine) -> None: ...

    def node_usable(self, name: str) -> None: ...

    def node_cordoned(self, name: str, is_cordoned: bool) -> None: ...

    def evict(self, key: str) -> None: ...

    def node_left(self, name: str) -> None: ...

    def submit(self, setup: JobSetup) -> None:
        """Create a Job, whose pods' work is known already."""


class Site:
    """A cluster's machines, existing before the scenario starts with `begin`.

    Args:
        setup: nodes, workloads and load.
        start_ms: milliseconds since the epoch.
        fields: the GPU fields that anyone looks at; None is all.
        control_plane: makes what controls the pods of this site; it gets the site before any node is there.
        one_by_one: whether services may serve requests one by one; not where real requests join them.
    """

    def __init__(
        self,
        setup: Setup,
        start_ms: int,
        fields: frozenset[str] | None = None,
        *,
        control_plane: Callable[[Self], ControlPlane],
        one_by_one: bool = False,
    ) -> None:
        self.setup = setup
        self._one_by_one = one_by_one
        self.start_ms = start_ms
        """The scenario's second 0."""
        self.engine = Engine(start_ms)
        engine = self.engine
        self.cluster = Cluster(setup.seed, lambda: engine.now_ms)
        self.containers = Containers(self.cluster)
        self.job_sets = JobSets(self.cluster)
        self.queues = JobQueues(self.cluster, setup.queues) if setup.queues else None
        window_ms = setup.pipeline.collect_interval
        processes = self.containers.processes
        self.daemons = tuple(map(_daemon, setup.daemon_sets))
        """A pod of each DaemonSet of the manifests, on no node."""
        self.gpus = SimulatedGpus(self.cluster, processes, setup.seed, window_ms, fields)
        self.services: dict[str, SimulatedService] = {}
        """Deployment key to its requests."""
        self.scale_outs = ScaleOuts()
        self.prometheus_rules = setup.prometheus_rules.fresh()
        self.cluster.on_ready = self._pod_ready
        self.cluster.on_workers = self._add_workers
        self.control_plane = control_plane(self)
        self.cloud = Cloud(
            self.cluster,
            self.engine,
            setup.pools,
            setup.autoscaler,
            setup.node_policy(),
            budgets=setup.budgets,
            unschedulable=self.control_plane.unschedulable,
            joined=self._node_joined,
            usable=self.control_plane.node_usable,
            cordoned=self.control_plane.node_cordoned,
            evict=self.control_plane.evict,
            left=self._node_left,
            room=self._room,
            daemons=self.daemons,
        )
        self.work_energy = WorkEnergy(self.cluster.index, self.cloud)
        self._lifecycles: dict[str, Lifecycle] = {}
        self._starts: dict[str, StartTimes] = {}
        self._pulled: dict[tuple[str, str], str] = {}
        """Node and owner to the first pod that had the image pulled there."""
        self._owners: dict[str, OwnerKey] = {}
        """Deployment key to what makes its pods; of a LeaderWorkerSet, its leaders."""
        self.groups: dict[str, Groups] = {}
        """LeaderWorkerSet key to its groups."""
        self.held_gpu_ms: Counter[str] = Counter()
        """LeaderWorkerSet key to how long its groups have held GPUs while a part of them had no node."""
        self._leaders: dict[str, str] = {}
        """Of the pods' owners, those of workers, to that of their leaders."""
        self._busy_gpu_ms = 0.0
        self._worked_ms = start_ms
        self._create_objects()

    # What others look at

    def seconds(self, time_ms: int) -> float:
        """Return the scenario time in seconds."""
        return (time_ms - self.start_ms) / 1000

    def ready_pods(self, deployment: str) -> int:
        """Return the number of a Deployment's pods that accept requests; of groups, those that are whole."""
        if deployment in self.groups:
            return len(self.groups[deployment].now().since_ms)
        return self.cluster.index.ready[self._owners[deployment]]

    def serving_pods(self, deployment: str) -> list[Pod]:
        """Return a Deployment's pods that accept requests; of groups, their leaders."""
        if deployment in self.groups:
            return list(self.groups[deployment].now().leaders)
        live = live_pods(self.cluster, self.cluster.deployments[deployment])
        return [pod for pod in live if pod.status.ready]

    def service_of(self, pod: Pod) -> str | None:
        """Return the name of the first Service that selects a pod; None if there is none."""
        labels = pod.metadata.labels.items()
        for each in self.cluster.services.values():
            is_near = each.metadata.namespace == pod.metadata.namespace
            if is_near and each.selector and each.selector.items() <= labels:
                return each.metadata.name
        return None

    def pending_pods(self) -> int:
        """Return the number of pods that wait for a node or are starting."""
        return self.cluster.index.pending

    def busy_gpu_hours(self) -> float:
        """Return the hours of actual GPU work, summed over GPUs."""
        return self._busy_gpu_ms / 3_600_000

    # What others do to it

    def begin(self, start_ms: int) -> None:
        """Start the scenario at `start_ms`: load, Jobs, growing pools."""
        self.start_ms = self._worked_ms = start_ms
        self.cloud.begin(start_ms)
        for workload in self.setup.workloads:
            service = self._service(workload)
            self.services[workload.deployment] = service
            owner = self._replica_set_key(workload.deployment)
            self._lifecycles[owner] = workload.lifecycle
            if workload.starts is not None:
                self._starts[owner] = workload.starts
            groups = self.groups.get(workload.deployment)
            since_ms = groups.ready_since_ms if groups else None
            self.gpus.work[owner] = PodWork(workload.memory_mib, service, group_since_ms=since_ms)
        engine, load_ms, scan_ms = self.engine, _LOAD_STEP_MS, self.setup.scan_interval_ms
        engine.every(load_ms, EventStage.LOAD, self.advance_load, first_ms=start_ms + load_ms)
        engine.every(
            scan_ms, EventStage.NODE_AUTOSCALER, self.cloud.scan, first_ms=start_ms + scan_ms
        )
        for workload in self.setup.workloads:
            for moment in workload.load.changes(self.setup.duration_ms / 1000):
                self._announce_change(workload, moment)
        for job in self.setup.jobs:
            self._submit_later(job)

    def lifecycle_of(self, pod: Pod) -> Lifecycle:
        """Return the durations of the steps in a pod's life."""
        owner = owner_key(pod)
        lifecycle, starts = self.lifecycle_by_owner(owner), self._starts.get(owner)
        if starts is None:
            return lifecycle
        of_all = self._leaders.get(owner, owner)
        first = self._pulled.setdefault((pod.spec.node_name, of_all), pod.metadata.key)
        pull = starts.pull if first == pod.metadata.key else starts.cached_pull
        draw = stream(self.setup.seed, "start", pod.metadata.key)
        pull_s, startup_s = pull.at(draw.random()), starts.startup.at(draw.random())
        return replace(
            lifecycle, image_pull_ms=round(1000 * pull_s), startup_ms=round(1000 * startup_s)
        )

    def lifecycle_by_owner(self, owner: str) -> Lifecycle:
        """Return the same by owner key, as `owner_key` gives it."""
        return self._lifecycles[owner]

    def advance_load(self, now_ms: int) -> None:
        """Advance the services' work to now; readings call this first."""
        elapsed_ms = now_ms - self._worked_ms
        if elapsed_ms <= 0:
            return
        for key, service in self.services.items():
            pods = self.ready_pods(key)
            service.advance(now_ms, pods)
            busy = service.busy_ratio(self._worked_ms, now_ms)
            busy_gpu_ms = busy * elapsed_ms * pods * service.model.gpus
            self._busy_gpu_ms += busy_gpu_ms
            if key in self.groups:
                self._add_group_energy(key, busy * elapsed_ms)
            else:
                self.work_energy.add_ready(self._owners[key], busy_gpu_ms)
        for key, groups in self.groups.items():
            self.held_gpu_ms[key] += groups.now().held_gpus * elapsed_ms
        if self.cluster.jobs:
            for key in self.containers.processes:
                pod = self.cluster.pods[key]
                work = self.gpus.work[owner_key(pod)]
                busy = work.steady_ratio
                if busy and work.since_ms(pod, 0) is not None:
                    gpus = sum(device_requests(pod.spec).values())
                    busy_gpu_ms = busy * gpus * elapsed_ms
                    self._busy_gpu_ms += busy_gpu_ms
                    self.work_energy.add_pod(pod, busy_gpu_ms)
        self._worked_ms = now_ms

    def set_replicas(self, deployment: str, replicas: int) -> None:
        item = self.cluster.deployments[deployment]
        self.cluster.deployments[deployment] = replace(item, replicas=replicas)
        self.cluster.version += 1
        self.cluster.index.changed_owners[self._owners[deployment]] = None
        self.scale_outs.resized(deployment, item.replicas, replicas, self.engine.now_ms)
        self.control_plane.touch()

    def set_rate(self, deployment: str, rate: float | None) -> None:
        """Set a Deployment's request rate; None follows the scenario."""
        service = self.services[deployment]
        before = service.rate
        service.manual_rate = rate
        after = service.planned_rate(self.engine.now_ms) if rate is None else rate
        self.log_load(deployment, before, after, self.engine.now_ms)

    def log_load(self, deployment: str, before: float, after: float, now_ms: int) -> None:
        """Log a change of a Deployment's load."""
        self.scale_outs.load_changed(deployment, before, after, now_ms)
        namespace, _, name = deployment.partition("/")
        reason = f"load is now {after:g} requests/s"
        self.cluster.event(
            now_ms,
            "LoadChanged",
            f"{type(self.cluster.deployments[deployment]).__name__}/{name}",
            reason,
            before=before,
            after=after,
            namespace=namespace,
        )

    # Inside

    def _add_group_energy(self, key: str, busy_ms: float) -> None:
        # Leader and workers may be on nodes of different GPUs.
        for pod in self.groups[key].now().ready if busy_ms else ():
            gpus = sum(device_requests(pod.spec).values())
            if gpus:
                self.work_energy.add_pod(pod, busy_ms * gpus)

    def _add_workers(self, leaders: OwnerKey, workers: OwnerKey) -> None:
        """Let the workers of a group do what their leaders do."""
        of_leaders, mine = _work_key(leaders), _work_key(workers)
        self._leaders[mine] = of_leaders
        self._lifecycles[mine] = self._lifecycles[of_leaders]
        self.gpus.work[mine] = self.gpus.work[of_leaders]
        if of_leaders in self._starts:
            self._starts[mine] = self._starts[of_leaders]

    def _pod_ready(self) -> None:
        now_ms = self.engine.now_ms
        for key in self.scale_outs.awaited():
            ready = self.ready_pods(key)
            done = self.scale_outs.pods_ready(key, ready, now_ms)
            for each in done:
                each.path = self._last_path(key, each.decided_ms)
            if not done or ready < self.cluster.deployments[key].replicas:
                continue
            latest, (namespace, _, name) = done[-1], key.partition("/")
            since = [f"{_seconds(now_ms - latest.decided_ms)} after the decision"]
            if latest.load_ms is not None:
                since.append(f"{_seconds(now_ms - latest.load_ms)} after the load rose")
            self.cluster.event(
                now_ms,
                "ReplicasReady",
                f"{type(self.cluster.deployments[key]).__name__}/{name}",
                f"{latest.after} of {latest.after} {'groups' if key in self.groups else 'pods'} are ready, "
                f"{', '.join(since)}",
                before=latest.before,
                after=latest.after,
                namespace=namespace,
            )

    def _last_path(self, deployment: str, since_ms: int) -> PodPath | None:
        """Return the way of the pod that was ready last, of those made since a decision."""
        pods = [
            pod
            for pod in self.serving_pods(deployment)
            if pod.metadata.creation_ms >= since_ms and pod.status.ready_transition_ms is not None
        ]
        if not pods:
            return None
        pod = max(pods, key=lambda each: each.status.ready_transition_ms or 0)
        rental = self.cloud.rental(pod.spec.node_name)
        is_new = rental is not None and rental.from_ms >= since_ms
        process = self.containers.processes.get(pod.metadata.key)
        return PodPath(
            pod.metadata.creation_ms,
            rental.from_ms if rental and is_new else None,
            rental.ready_ms if rental and is_new else None,
            pod.status.start_ms,
            process.started_ms if process else None,
        )

    def _create_objects(self) -> None:
        setup = self.setup
        self.cluster.deployments = {item.metadata.key: item for item in setup.deployments}
        self.cluster.services = {item.metadata.key: item for item in setup.services}
        made = (made_hpa(each) for each in setup.scaled_objects if not each.is_paused)
        self.cluster.hpas = {item.metadata.key: item for item in (*setup.hpas, *made)}
        self.cluster.gangs = {
            each.metadata.key: each.min_count
            for each in setup.pod_groups
            if each.min_count is not None
        }
        for deployment in setup.deployments:
            owner = owner_of_replicas(self.cluster, deployment)
            key = deployment.metadata.key
            self._owners[key] = owner
            self.cluster.control(owner, key)
            if isinstance(deployment, LeaderWorkerSet):
                self.groups[key] = Groups(self.cluster, deployment)
            # Without a load, its pods hold their GPUs idle.
            self._lifecycles[self._replica_set_key(key)] = Lifecycle(stop_ms=STOP_MS)
            self.gpus.work[self._replica_set_key(key)] = PodWork(0, None)

    def _service(self, workload: ServiceSetup) -> SimulatedService:
        model, load = workload.model, workload.load
        if not self._one_by_one:
            # A real request has a place in the queue, which only advances when one is served.
            return SimulatedService(replace(model, timeout_s=math.inf), load, self.start_ms)
        count = load.requests_until(self.setup.duration_ms / 1000)
        if not workload.is_one_by_one or count > MAX_REQUESTS:
            return SimulatedService(model, load, self.start_ms)
        seed, key = self.setup.seed, workload.deployment
        draw = stream(seed, "arrivals", key).random if workload.is_random else None
        arrivals = Arrivals(load, draw)
        times = stream(seed, "service times", key).random
        return OneByOne(model, load, self.start_ms, times, arrivals)

    def _replica_set_key(self, deployment: str) -> str:
        return _work_key(self._owners[deployment])

    def _announce_change(self, workload: ServiceSetup, moment: float) -> None:
        before, after = workload.load.rate(moment - 0.001), workload.load.rate(moment)

        def announce(now_ms: int) -> None:
            if self.services[workload.deployment].manual_rate is None:
                self.log_load(workload.deployment, before, after, now_ms)

        self.engine.at(self.start_ms + round(moment * 1000), EventStage.LOAD, announce)

    def _submit_later(self, setup: JobSetup) -> None:
        def submit(now_ms: int) -> None:
            meta = setup.job.metadata
            owner = f"Job {meta.namespace}/{meta.name}"
            self._lifecycles[owner] = setup.lifecycle
            since_ms = self.job_sets.computes_since_ms if setup.with_jobs else None
            self.gpus.work[owner] = PodWork(
                setup.memory_mib, None, setup.utilization_ratio, since_ms
            )
            if setup.with_jobs and setup.job is setup.with_jobs[0]:
                self.job_sets.add(setup.with_jobs)
            self.cluster.jobs[meta.key] = setup.job
            if setup.job.gang is not None:
                self.cluster.gangs[meta.key] = setup.job.gang
            self.cluster.control(("Job", meta.namespace, meta.name), meta.key)
            is_first = not setup.with_jobs or setup.job is setup.with_jobs[0]
            if self.queues is not None and QUEUE_LABEL in meta.labels and is_first:
                self.queues.submit(setup.name, setup.with_jobs or (setup.job,), now_ms)
            self.control_plane.submit(setup)

        self.engine.at(self.start_ms + setup.at_ms, EventStage.CONTROLLERS, submit)

    def _node_joined(self, name: str, pool: CloudPool, machine: Machine) -> None:
        # A split GPU reports its instances, which simulated GPUs don't have: better nothing.
        self.gpus.join(name, machine.gpu_model, 0 if machine.is_split else machine.gpus)
        self.cluster.add_pod(self._agent_pod(name))
        for pod in self.daemons:
            self._start_daemon(pod, name)
        self.control_plane.node_joined(name, pool, machine)

    def _room(self) -> tuple[tuple[ProvisioningRequest, ...], tuple[CapacityBuffer, ...]]:
        """Return the requests that are made by now, and the buffers as large as they are now."""
        setup, now_ms = self.setup, self.engine.now_ms - self.start_ms
        requests = tuple(
            replace(
                each,
                metadata=replace(
                    each.metadata, creation_ms=self.start_ms + each.metadata.creation_ms
                ),
            )
            for each in setup.provisioning_requests
            if each.metadata.creation_ms <= now_ms
        )
        return requests, tuple(
            each.now(self.cluster.deployments) for each in setup.capacity_buffers
        )

    def _node_left(self, name: str) -> None:
        self.gpus.leave(name)
        self.control_plane.node_left(name)

    def _start_daemon(self, pod: Pod, node: str) -> None:
        """Start the pod of a DaemonSet on a new node, if that takes it; it is there at once."""
        state, meta = self.cluster.node_states()[node], pod.metadata
        if refusal_of(pod.spec, state.node):
            return
        now_ms = self.engine.now_ms
        if missing := misfits(pod.spec, state):
            about, reason = f"DaemonSet/{meta.name}", f"no pod on {node}: {', '.join(missing)}"
            self.cluster.event(
                now_ms,
                "FailedScheduling",
                about,
                reason,
                namespace=meta.namespace,
                type_="Warning",
            )
            return
        name = self.cluster.new_pod_name(meta.namespace, meta.name, "daemon", meta.name, node)
        made = replace(meta, name=name, creation_ms=now_ms)
        spec = replace(pod.spec, node_name=node)
        self.cluster.add_pod(Pod(made, spec, PodStatus(PodPhase.RUNNING, now_ms, True, now_ms)))

    def _agent_pod(self, node: str) -> Pod:
        """Return the pod of the node agent, as a DaemonSet would create it."""
        pipeline = self.setup.pipeline
        namespace, service = pipeline.agent_namespace, pipeline.agent_service
        name = self.cluster.new_pod_name(namespace, service, "agent", node)
        labels = {"app.kubernetes.io/name": pipeline.agent_service}
        now_ms = self.engine.now_ms
        owner = OwnerReference("DaemonSet", pipeline.agent_service)
        meta = ObjectMeta(name, pipeline.agent_namespace, labels, {}, now_ms, None, owner)
        everywhere = (Toleration(operator="Exists"),)
        spec = PodSpec(
            (Container("exporter"),),
            node_name=node,
            tolerations=everywhere,
            priority=_NODE_CRITICAL,
            priority_class="system-node-critical",
        )
        return Pod(meta, spec, PodStatus(PodPhase.RUNNING, now_ms, True, now_ms))


def _daemon(item: DaemonSet) -> Pod:
    owner = OwnerReference("DaemonSet", item.metadata.name)
    labels, annotations = dict(item.template.labels), dict(item.template.annotations)
    meta = replace(item.metadata, labels=labels, annotations=annotations, owner=owner)
    return Pod(meta, item.template.spec)


def _work_key(owner: OwnerKey) -> str:
    """Return what `owner_key` gives for an owner's pods."""
    kind, namespace, name = owner
    return f"{kind} {namespace}/{name}"


def _seconds(milliseconds: int) -> str:
    """Return a duration without milliseconds, for display."""
    return format_duration(round(milliseconds / 1000) * 1000)
