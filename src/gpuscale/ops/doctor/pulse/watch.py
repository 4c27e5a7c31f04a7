"""Observes one HPA's chain while its pods are under load.

Nothing in the cluster is changed but by the load itself.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from math import isfinite
from typing import Any

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError, UnavailableError, UsageError
from gpuscale.base.objects.fields import Fields
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.terms import metric_path, scale_path
from gpuscale.kube import fields_of
from gpuscale.kube.client import KubeClient
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.agents import AgentReader
from gpuscale.ops.doctor.autoscalers import custom_path
from gpuscale.ops.doctor.checks.metrics_api import group_of
from gpuscale.ops.doctor.pulse.hops import (
    PodStage,
    Pulse,
    PulseHop,
    PulseObserver,
    PulseSight,
    stuck_hop,
)
from gpuscale.ops.doctor.pulse.load import PulseLoad
from gpuscale.ops.doctor.pulse.report import fix_for
from gpuscale.ops.doctor.snapshot import AgentLook, HpaLook, Look, Snapshot
from gpuscale.server.sources.http import SourceAccess

_BEFORE = 3
"""Looks before the load begins."""
_EVERY_S = 0.5
_ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_USAGE = {facts.UTILIZATION: 1.0, _ENGINE: 100.0}
"""Series of how busy a GPU is, and the percent that 1 means. The latter is for MIG instances, which
have no other; of whole GPUs it is read more seldom, and would still show the load before."""
_INSTANCE = "GPU_I_ID"


@dataclass(frozen=True, slots=True)
class PulseSettings:
    """The load of a pulse, and its longest duration."""

    hpa: str | None = None
    """`namespace/name`; None for the only one that scales on a custom or external metric."""
    url: str | None = None
    """What is asked for to make load; None where somebody else makes it."""
    at_once: int = 4
    for_s: float = 60.0


def choose(snapshot: Snapshot, wanted: str | None) -> HpaLook:
    """Return the HPA of this name.

    Raises:
        UsageError: there is none, more than one to choose from, or it scales nothing.
    """
    can_be = {
        look.about: look
        for look in snapshot.hpas
        if any(group_of(each) for each in look.hpa.metrics)
    }
    there = ", ".join(about.removeprefix("hpa/") for about in can_be) or "none in this cluster"
    if wanted is not None:
        look = can_be.get(f"hpa/{wanted}")
        if look is None:
            raise UsageError(
                f"--pulse-hpa: found {wanted!r}, expected an HPA on a custom or external metric: {there}"
            )
    elif len(can_be) == 1:
        look = next(iter(can_be.values()))
    else:
        raise UsageError(
            f"--pulse: expected one HPA on a custom or external metric, found: {there}; "
            "choose with --pulse-hpa NAMESPACE/NAME"
        )
    if not look.selector:
        reason = look.target_fault or "its scale has no selector"
        raise UsageError(f"{look.about}: expected a target with pods to watch: {reason}")
    return look


class PulseWatch:
    """Observes the chain of one HPA.

    Args:
        connection: to the API server.
        clock: for the times.
        snapshot: a look at the whole cluster, for what is where.
        look: at the HPA.
        agent_urls: of agents that are asked directly, by node.
        agent_access: what requests to these carry.
    """

    def __init__(
        self,
        connection: KubeClient,
        clock: Clock,
        snapshot: Snapshot,
        look: HpaLook,
        agent_urls: Mapping[str, str],
        agent_access: SourceAccess | None = None,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._look = look
        self._custom = custom_path(snapshot)
        self._agents = AgentReader(connection, agent_urls, agent_access)
        self._around = _around(snapshot, look)
        self._targets = {
            spec.name: float(target)
            for spec in look.hpa.metrics
            if (target := spec.target.average_value or spec.target.value) is not None
        }

    async def pulse(self, settings: PulseSettings, begin: Callable[[], None]) -> Pulse:
        """Return the hops' times, once a new pod is ready or time is up.

        Args:
            settings: what is done.
            begin: called when the load begins, or may.

        Raises:
            UnavailableError: the HPA is at its limit or still scaling, so nothing would be seen.
            ApiUnreachableError, ApiStatusError: the API server does not let us look at HPA or pods.
        """
        before = []
        for _ in range(_BEFORE):
            before.append(await self._sight())
            await self._clock.sleep(_EVERY_S)
        self._check_room(before[-1])
        observer = PulseObserver(before, self._targets)
        load = (
            PulseLoad(settings.url, settings.at_once, settings.for_s)
            if settings.url is not None
            else None
        )
        begin()
        start_ms = self._clock.now_ms()
        async with AsyncExitStack() as stack:
            if load is not None:
                await stack.enter_async_context(load.running())
            sight = before[-1]
            while self._clock.now_ms() - start_ms < settings.for_s * 1000:
                await self._clock.sleep(_EVERY_S)
                sight = await self._sight()
                observer.see(sight)
                if observer.is_through:
                    break
        if load is None:
            start_ms = start_ms if observer.first_ms is None else observer.first_ms
        return await self._report_of(observer, sight, start_ms, load)

    async def _report_of(
        self, observer: PulseObserver, last: PulseSight, start_ms: int, load: PulseLoad | None
    ) -> Pulse:
        times = observer.times(start_ms)
        stuck = stuck_hop(times)
        fault = last.faults.get(stuck, "") if stuck else ""
        if stuck is PulseHop.CREATED:
            fault = await self._why_none_created() or fault
        count = load.count if load else None
        if stuck is PulseHop.GPU and count is not None and not count.answered:
            fault = f"no request was answered well: {count.fault or 'no answer in time'}"
        fix = fix_for(stuck, self._look) if stuck else ""
        return Pulse(self._look.about, times, round(_EVERY_S * 1000), fault, fix, count)

    def _check_room(self, sight: PulseSight) -> None:
        most, about = self._look.hpa.max_replicas, self._look.about
        if sight.wanted is not None and sight.wanted >= most:
            raise UnavailableError(
                f"{about} already wants {sight.wanted} replicas of at most {most}, so load adds none; "
                "wait until it wants fewer, or raise maxReplicas"
            )
        if sight.wanted is not None and sight.wanted > len(sight.pods):
            raise UnavailableError(
                f"{about} already wants {sight.wanted} replicas, and {len(sight.pods)} pods are there; "
                "wait until it has scaled"
            )

    async def _sight(self) -> PulseSight:
        """Return an observation, reading the chain from its end.

        So a hop never seems to react before the hop that causes it, however long the reads take.
        """
        path = f"/api/v1/namespaces/{self._look.namespace}/pods"
        answer = await self._connection.get(path, {"labelSelector": self._look.selector})
        pods = Look(_items(answer)).each
        wanted, hpa_fault = await self._hpa()
        values, value_fault = await self._values()
        gpu_percent, gpu_fault = await self._gpu(pods)
        waiting = next((why for pod in pods if (why := facts.why_waiting(pod))), "")
        faults = {
            PulseHop.GPU: gpu_fault,
            PulseHop.VALUE: value_fault,
            PulseHop.HPA: hpa_fault,
            PulseHop.CREATED: hpa_fault,
            PulseHop.SCHEDULED: waiting,
            PulseHop.READY: next((why for pod in pods if (why := _why_not_ready(pod))), ""),
        }
        stages = {pod.child("metadata").text("uid"): _stage(pod) for pod in pods}
        return PulseSight(self._clock.now_ms(), gpu_percent, values, wanted, stages, faults)

    async def _hpa(self) -> tuple[int | None, str]:
        """Return the HPA's desired replicas, and its condition's message."""
        name = self._look.hpa.metadata.name
        place = f"namespaces/{self._look.namespace}/horizontalpodautoscalers/{name}"
        status = fields_of(await self._connection.get(f"/apis/autoscaling/v2/{place}")).child(
            "status"
        )
        texts = [
            f"{each.text('type')}={each.text('status')}: {each.text('message')}"
            for each in status.items("conditions")
        ]
        wanted = [status.integer("desiredReplicas"), await self._asked_of_target()]
        return max((each for each in wanted if each is not None), default=None), "; ".join(texts)

    async def _asked_of_target(self) -> int | None:
        """Return the target's replicas in its spec, which KEDA raises from zero without the HPA."""
        path = scale_path(self._look.hpa.target, self._look.namespace)
        try:
            return fields_of(await self._connection.get(path)).child("spec").integer("replicas")
        except GpuscaleError:
            return None

    async def _why_none_created(self) -> str:
        """Return the workload's reason for creating no pods; empty if it gives none."""
        path = scale_path(self._look.hpa.target, self._look.namespace).removesuffix("/scale")
        try:
            status = fields_of(await self._connection.get(path)).child("status")
        except GpuscaleError as error:
            return str(error)
        texts = (
            each.text("message")
            for each in status.items("conditions")
            if each.text("type") == "ReplicaFailure"
        )
        return next(texts, "")

    async def _values(self) -> tuple[dict[str, float], str]:
        """Return each metric's highest value, and why one has none."""
        found: dict[str, float] = {}
        faults = []
        for spec in self._look.hpa.metrics:
            if group_of(spec) is None:
                continue
            path, params = metric_path(
                spec, self._look.namespace, self._look.selector, self._custom
            )
            try:
                items = _items(await self._connection.get(path, params))
                found[spec.name] = max(float(parse_quantity(item["value"])) for item in items)
            except GpuscaleError as error:
                faults.append(str(error))
            except (KeyError, TypeError, ValueError):
                faults.append(f"{spec.name} has no value")
        shown = [f"{name} is {value:g} at most" for name, value in found.items()]
        return found, "; ".join(faults or shown)

    async def _gpu(self, pods: Iterable[Fields]) -> tuple[float | None, str]:
        """Return the utilization of the busiest GPU of these pods, and why it is unknown."""
        looks = (await self._agents.read(self._around)).looks
        names = {facts.name(pod) for pod in pods}
        seen = list(busy_percents(looks, self._look.namespace, names))
        if seen:
            return max(seen), f"the busiest GPU of these pods is {max(seen):g} % busy"
        faults = [f"{look.node}: {look.fault}" for look in looks if look.fault]
        return None, "; ".join(faults) or "no agent reports a GPU of these pods"


def _around(snapshot: Snapshot, look: HpaLook) -> Snapshot:
    """Return a snapshot with the nodes of an HPA's pods and their agents only."""
    nodes = {pod.child("spec").text("nodeName") for pod in facts.pods_of(snapshot, look)}
    agents = [
        pod.data
        for pod in facts.agent_pods(snapshot)
        if pod.child("spec").text("nodeName") in nodes
    ]
    return Snapshot(snapshot.now_ms, looks={"nodes": snapshot.looks["nodes"], "pods": Look(agents)})


def busy_percents(looks: Iterable[AgentLook], namespace: str, names: set[str]) -> Iterable[float]:
    """Return the utilization of pods' GPUs and MIG instances, in percent."""
    for look in looks:
        for name, percent in _USAGE.items():
            for sample in look.families[name].samples if name in look.families else ():
                labels = dict(sample.labels)
                is_ours = labels.get("namespace") == namespace and labels.get("pod") in names
                is_meant = name != _ENGINE or bool(labels.get(_INSTANCE))
                if is_ours and is_meant and isfinite(sample.value):
                    yield sample.value * percent


def _stage(pod: Fields) -> PodStage:
    if facts.is_ready(pod):
        return PodStage.READY
    return PodStage.SCHEDULED if pod.child("spec").text("nodeName") else PodStage.CREATED


def _why_not_ready(pod: Fields) -> str:
    for container in pod.child("status").items("containerStatuses"):
        waiting = container.child("state").child("waiting")
        if reason := waiting.text("reason"):
            return f"{facts.name(pod)}: {reason} {waiting.text('message')}".rstrip()
    return ""


def _items(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [each for each in answer.get("items") or () if isinstance(each, dict)]
