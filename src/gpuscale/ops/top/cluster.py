"""Looks at a live cluster: what its GPUs, nodes, workloads and Jobs do now. Reads only."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import MetricAmounts, metric_amounts, targets_text
from gpuscale.base.objects.nodes import offer_of
from gpuscale.kube.client import ApiStatusError, JsonObject, KubeClient
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.agents import AgentReader
from gpuscale.ops.doctor.direct import at_once
from gpuscale.ops.doctor.judges import KINDS
from gpuscale.ops.doctor.prometheus import PrometheusReader, configured
from gpuscale.ops.doctor.snapshot import AgentLook, Look, Snapshot
from gpuscale.ops.observe.lookup import list_all
from gpuscale.ops.top.gpu_rows import SERIES, gpu_rows, samples_of
from gpuscale.ops.top.picture import (
    EventRow,
    GpuRow,
    JobRow,
    NodeRow,
    Picture,
    WorkloadRow,
    mean_use,
)
from gpuscale.server.sources.http import SourceAccess

_PATHS = {
    **{kind.plural: kind.path for kind in KINDS if kind.plural in ("nodes", "pods", "hpas")},
    "jobs": "/apis/batch/v1/jobs",
    "events": "/api/v1/events",
}
_ADDRESS_PATHS = {
    kind.plural: kind.path
    for kind in KINDS
    if kind.plural in ("services", "deployments", "apiservices")
}
"""Where a metrics server says which Prometheus it asks."""
_MOST_AGENTS = 1000
"""That are asked; where there are more, a Prometheus is asked instead, if there is one."""
_MOST_EVENTS = 500
_SCALED_KINDS = frozenset(
    {
        *("HorizontalPodAutoscaler", "ScaledObject", "Deployment", "StatefulSet", "ReplicaSet"),
        *("LeaderWorkerSet", "Rollout", "Job", "JobSet", "Workload"),
        *("Node", "NodeClaim", "NodePool"),
    }
)
"""Kinds of which every event is about what `top` shows; of pods only some are."""
_POD_REASONS = frozenset(
    {"TriggeredScaleUp", "NotTriggerScaleUp", "Preempted", "Nominated", "Evicted", "ScaleDown"}
)
_SHORT = {"HorizontalPodAutoscaler": "hpa"}
_NO_SERIES = (
    "GPU values: no node agent and no dcgm-exporter is ready on this cluster, and no Prometheus is known; "
    "name one with --prometheus-url"
)


@dataclass(frozen=True, slots=True)
class TopSettings:
    """What is looked at, and addresses that bypass the API server."""

    namespace: str | None = None
    """Whose workloads, Jobs and events are shown; None for all."""
    prometheus_url: str | None = None
    """None: the agents are asked, by way of the API server."""
    prometheus_access: SourceAccess | None = None
    agent_urls: Mapping[str, str] = field(default_factory=dict)
    """By node."""
    agent_access: SourceAccess | None = None


class ClusterReader:
    """Takes pictures of a cluster.

    Args:
        client: to the API server.
        name: of the cluster, for people.
        clock: for ages.
        settings: what to look at.
    """

    def __init__(self, client: KubeClient, name: str, clock: Clock, settings: TopSettings) -> None:
        self._client = client
        self._name = name
        self._clock = clock
        self._settings = settings
        self._agents = AgentReader(client, settings.agent_urls, settings.agent_access, _MOST_AGENTS)
        self._prometheus = PrometheusReader(
            client, settings.prometheus_url, settings.prometheus_access
        )

    async def look(self) -> Picture:
        """Return what is there now.

        Raises:
            ApiUnreachableError: the API server does not answer.
            ApiStatusError: it lets us see nothing at all.
        """
        unseen: list[str] = []
        looks = await self._listed(_PATHS, unseen)
        seen = Snapshot(self._clock.now_ms(), looks=looks)
        gpus = _with_only_owners(await self._gpus(seen, unseen), seen)
        pods = _PodBook(facts.active_pods(seen))
        held: dict[str, list[GpuRow]] = defaultdict(list)
        for gpu in gpus:
            for owner in gpu.owners:
                held[owner].append(gpu)
        return Picture(
            at_ms=seen.now_ms,
            source=f"cluster {self._name}",
            gpus=gpus,
            nodes=_node_rows(seen, gpus),
            workloads=tuple(
                _workload_row(hpa, pods, held) for hpa in self._inside(seen.looks["hpas"].items)
            ),
            jobs=tuple(_job_rows(self._inside(seen.looks["jobs"].items), pods, seen.now_ms)),
            events=_event_rows(self._inside(seen.looks["events"].items)),
            unseen=tuple(unseen),
        )

    async def _listed(self, paths: Mapping[str, str], unseen: list[str]) -> dict[str, Look]:
        """Return the objects by plural name; says what can't be listed."""

        async def listed(path: str) -> Look:
            try:
                return Look(await list_all(self._client, path))
            except ApiStatusError as error:
                return Look(fault=str(error))

        found = await at_once(listed(path) for path in paths.values())
        looks = dict(zip(paths, found, strict=True))
        faults = {plural: look.fault for plural, look in looks.items() if look.fault}
        if len(faults) == len(looks):
            raise ApiStatusError(403, f"nothing can be listed: {next(iter(faults.values()))}")
        unseen += [f"{plural}: {fault}" for plural, fault in faults.items()]
        return looks

    def _inside(self, items: Iterable[Mapping[str, object]]) -> list[Fields]:
        wanted = self._settings.namespace
        found = Look(tuple(items)).each
        return [each for each in found if wanted in (None, facts.namespace(each), "")]

    # GPU values

    async def _gpus(self, seen: Snapshot, unseen: list[str]) -> tuple[GpuRow, ...]:
        """Return the GPUs by the source that serves the cluster best; says why there is none."""
        if self._settings.prometheus_url is not None:
            return await self._by_prometheus(seen, unseen)
        asked = len(facts.agent_pods(seen))
        if not 0 < asked <= _MOST_AGENTS:
            more = await self._listed(_ADDRESS_PATHS, unseen)
            known = Snapshot(seen.now_ms, looks={**seen.looks, **more})
            if any(configured(known)):
                return await self._by_prometheus(known, unseen)
        if not asked:
            unseen.append(_NO_SERIES)
            return ()
        agents = await self._agents.read(seen)
        if agents.passed_over:
            unseen.append(
                f"GPU values of {agents.passed_over} nodes: of so many node agents only some are asked; "
                "a Prometheus has them all, named with --prometheus-url"
            )
        unseen += _agent_faults(agents.looks)
        rows = (gpu_rows(samples_of(look.families), node=look.node) for look in agents.looks)
        return tuple(row for of_node in rows for row in of_node)

    async def _by_prometheus(self, seen: Snapshot, unseen: list[str]) -> tuple[GpuRow, ...]:
        agents = frozenset(map(facts.full_name, facts.agent_pods(seen)))
        query = f'{{__name__=~"{"|".join(SERIES)}"}}'
        try:
            rows = await self._prometheus.rows(seen, query)
        except GpuscaleError as error:
            unseen.append(f"GPU values: {error}")
            return ()
        if not rows:
            unseen.append("GPU values: the Prometheus has no series of DCGM's names now")
        samples = ((labels.get("__name__", ""), labels, value) for labels, value in rows)
        return gpu_rows(samples, not_owners=agents)


def _with_only_owners(gpus: Sequence[GpuRow], seen: Snapshot) -> tuple[GpuRow, ...]:
    """Return the GPUs, with the owner where no series says it and only one pod can be meant."""
    pods = facts.pods_by_node(seen)
    sure = {}
    for node in facts.gpu_nodes(seen):
        asking = [pod for pod in pods.get(facts.name(node), ()) if facts.asks_for_gpus(pod)]
        if len(asking) == 1 and facts.wanted_gpus(facts.spec_of(asking[0])) >= facts.capacity(node):
            sure[facts.name(node)] = (facts.full_name(asking[0]),)
    return tuple(gpu if gpu.owners else replace(gpu, owners=sure.get(gpu.node, ())) for gpu in gpus)


def _agent_faults(looks: Sequence[AgentLook]) -> list[str]:
    """Return what agents did not answer, once for each reason."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for look in looks:
        if look.fault:
            nodes[look.fault.replace(look.node, "NODE")].append(look.node)
    return [
        f"GPU values of {names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: "
        f"{fault.replace('NODE', names[0])}"
        for fault, names in nodes.items()
    ]


# Pods and their workloads


class _PodBook:
    """Pods by the workload that made them."""

    def __init__(self, pods: Sequence[Fields]) -> None:
        self._by_owner: dict[tuple[str, str, str], list[Fields]] = defaultdict(list)
        for pod in pods:
            kind, name = facts.owner_kind(pod)
            hashed = facts.labels(pod).get("pod-template-hash", "")
            if kind == "ReplicaSet" and hashed and name.endswith(f"-{hashed}"):
                # Its Deployment or Rollout has the name without the hash.
                kind, name = "", name.removesuffix(f"-{hashed}")
            self._by_owner[facts.namespace(pod), kind, name].append(pod)

    def of(self, namespace: str, kind: str, name: str) -> Sequence[Fields]:
        """Return the pods of a workload."""
        maker = {"Deployment": "", "Rollout": "", "LeaderWorkerSet": "StatefulSet"}.get(kind, kind)
        return self._by_owner.get((namespace, maker, name), ())


def _is_unplaced(pod: Fields) -> bool:
    return facts.condition(pod, "PodScheduled") == "False"


def _workload_row(hpa: Fields, pods: _PodBook, gpus: Mapping[str, Sequence[GpuRow]]) -> WorkloadRow:
    spec, status = hpa.child("spec"), hpa.child("status")
    reference = spec.child("scaleTargetRef")
    kind, target = reference.text("kind"), reference.text("name")
    own = pods.of(facts.namespace(hpa), kind, target)
    waiting = [pod for pod in own if _is_unplaced(pod)]
    metrics = _deciding_first(hpa)
    deciding = metrics[0][2] if metrics else MetricAmounts("", None, None, is_percent=False)
    return WorkloadRow(
        namespace=facts.namespace(hpa),
        name=facts.name(hpa),
        target=f"{kind}/{target}",
        metrics=targets_text([each[0] for each in metrics], [each[1] for each in metrics]),
        signal=deciding.name,
        value=deciding.value,
        target_value=deciding.target,
        is_percent=deciding.is_percent,
        times_target=deciding.times_target,
        least=1 if (least := spec.integer("minReplicas")) is None else least,
        most=spec.integer("maxReplicas") or 0,
        replicas=status.integer("currentReplicas") or 0,
        wanted=status.integer("desiredReplicas") or 0,
        running=sum(map(facts.is_ready, own)),
        pending=len(waiting),
        reason=facts.why_waiting(waiting[0]) if waiting else _controllers_reason(hpa),
        use_percent=mean_use([gpu for pod in own for gpu in gpus.get(facts.full_name(pod), ())]),
    )


def _deciding_first(hpa: Fields) -> list[tuple[JsonObject, JsonObject, MetricAmounts]]:
    """Return metrics, their values, and both as numbers; the highest multiple of its target first."""
    specs = [dict(each.data) for each in hpa.child("spec").items("metrics")]
    current = [dict(each.data) for each in hpa.child("status").items("currentMetrics")]
    padded = [current[index] if index < len(current) else {} for index in range(len(specs))]
    found = [
        (spec, now, metric_amounts(spec, now)) for spec, now in zip(specs, padded, strict=True)
    ]
    return sorted(found, key=lambda each: -(each[2].times_target or 0))


def _controllers_reason(hpa: Fields) -> str:
    """Return what the HPA's controller says of its last sync, what keeps it from scaling first."""
    conditions = {each.text("type"): each for each in hpa.child("status").items("conditions")}
    for kind, status in (
        ("ScalingActive", "False"),
        ("AbleToScale", "False"),
        ("ScalingLimited", "True"),
        ("AbleToScale", "True"),
    ):
        found = conditions.get(kind)
        if found is not None and found.text("status") == status:
            return found.text("message")
    return "the controller has not looked at it yet"


def _job_rows(jobs: Sequence[Fields], pods: _PodBook, now_ms: int) -> Iterable[JobRow]:
    for job in jobs:
        template = job.child("spec").child("template")
        if not (facts.asks_for_gpus(template) or facts.claims_of(template.child("spec"))):
            continue
        own = pods.of(facts.namespace(job), "Job", facts.name(job))
        spec, status = job.child("spec"), job.child("status")
        pending = sum(map(_is_unplaced, own))
        running = sum(map(facts.is_ready, own))
        yield JobRow(
            namespace=facts.namespace(job),
            name=facts.name(job),
            pending=pending,
            running=running,
            succeeded=status.integer("succeeded") or 0,
            failed=status.integer("failed") or 0,
            planned=spec.integer("completions") if "completions" in spec.data else None,
            age_s=_age_s(job, now_ms),
            state=_job_state(job, running),
        )


def _job_state(job: Fields, running: int) -> str:
    for kind in ("Complete", "Failed"):
        if facts.condition(job, kind) == "True":
            return kind
    if job.child("spec").boolean("suspend"):
        return "Suspended"
    return "Running" if running else "Waiting"


# Nodes and events


def _node_rows(seen: Snapshot, gpus: Sequence[GpuRow]) -> tuple[NodeRow, ...]:
    by_node: dict[str, list[GpuRow]] = defaultdict(list)
    for gpu in gpus:
        by_node[gpu.node].append(gpu)
    pods = facts.pods_by_node(seen)
    rows = []
    for node in facts.gpu_nodes(seen):
        name, labels = facts.name(node), facts.labels(node)
        on_it = pods.get(name, ())
        instance_type, pool, is_spot = offer_of(labels)
        rows.append(
            NodeRow(
                name=name,
                instance_type=instance_type,
                pool=pool,
                is_spot=is_spot,
                status=_node_status(node),
                gpus=facts.allocatable(node),
                asked_gpus=sum(facts.wanted_gpus(facts.spec_of(pod)) for pod in on_it),
                use_percent=mean_use(by_node[name]),
                age_s=_age_s(node, seen.now_ms),
                notes=tuple(str(taint) for taint, _ in facts.momentary(seen, node)),
            )
        )
    return tuple(sorted(rows, key=lambda row: row.name))


def _node_status(node: Fields) -> str:
    status = {"True": "Ready", "False": "NotReady"}.get(facts.condition(node, "Ready"), "Unknown")
    return f"{status},SchedulingDisabled" if node.child("spec").boolean("unschedulable") else status


def _event_rows(events: Sequence[Fields]) -> tuple[EventRow, ...]:
    rows = []
    for event in events:
        about = event.child("involvedObject")
        kind, reason = about.text("kind"), event.text("reason")
        is_warning = event.text("type") == "Warning"
        if kind not in _SCALED_KINDS and not (
            kind in ("Pod", "ConfigMap") and (is_warning or reason in _POD_REASONS)
        ):
            continue
        place = about.text("namespace") if kind not in ("Node", "NodeClaim", "NodePool") else ""
        rows.append(
            EventRow(
                at_ms=_event_ms(event),
                kind=event.text("type"),
                reason=reason,
                about="/".join(
                    each
                    for each in (_SHORT.get(kind, kind.lower()), place, about.text("name"))
                    if each
                ),
                message=event.text("message").strip(),
                count=event.child("series").integer("count") or event.integer("count") or 1,
            )
        )
    return tuple(sorted(rows, key=lambda row: -row.at_ms)[:_MOST_EVENTS])


def _event_ms(event: Fields) -> int:
    """Return when an event was last seen, by whichever of its times the reporter wrote."""
    times = (
        event.child("series").time_ms("lastObservedTime"),
        event.time_ms("lastTimestamp"),
        event.time_ms("eventTime"),
        event.child("metadata").time_ms("creationTimestamp"),
    )
    return next((each for each in times if each is not None), 0)


def _age_s(body: Fields, now_ms: int) -> float | None:
    made_ms = body.child("metadata").time_ms("creationTimestamp")
    return None if made_ms is None else max(0, now_ms - made_ms) / 1000
