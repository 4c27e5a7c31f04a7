"""One look at an HPA's chain, from its pods back to their GPUs, as a cluster shows it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Any

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.fields import Fields
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.terms import metric_path, scale_path
from gpuscale.kube import fields_of
from gpuscale.kube.client import KubeClient
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.agents import AgentReader
from gpuscale.ops.doctor.autoscalers import custom_path
from gpuscale.ops.doctor.checks.metrics_api import group_of
from gpuscale.ops.doctor.pulse.hops import PodStage
from gpuscale.ops.doctor.snapshot import AgentLook, HpaLook, Look, Snapshot
from gpuscale.server.sources.http import SourceAccess

_ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
_USAGE = {facts.UTILIZATION: 1.0, _ENGINE: 100.0}
"""Series of how busy a GPU is, and the percent that 1 means. The latter is for MIG instances, which
have no other; of whole GPUs it is read more seldom, and would still show the load before."""
_INSTANCE = "GPU_I_ID"


@dataclass(frozen=True, slots=True)
class DeviceSight:
    """A GPU or MIG instance, as its node's agent shows it."""

    node: str
    uuid: str
    """With `/` and the instance's number for MIG."""
    percent: float
    pod: str
    """`namespace/name` that the agent names; empty for none."""


@dataclass(frozen=True, slots=True)
class PodSight:
    """A pod of the HPA's target."""

    name: str
    uid: str
    stage: PodStage
    node: str
    asks: bool
    """Whether it asks for a GPU, in any way."""
    waiting: str
    """Why it has no node, or is not ready; empty where nothing says so."""


@dataclass(frozen=True, slots=True)
class ItemSight:
    """A value of a metric."""

    about: str
    """`Kind/name` of the object that it is of; empty for an external metric."""
    value: float
    at_ms: int | None
    """When it was measured, as the API says."""


@dataclass(frozen=True, slots=True)
class ChainSight:
    """The chain at one moment."""

    at_ms: int
    pods: Sequence[PodSight]
    desired: int | None
    """Replicas that the HPA wants; None before its first sync."""
    asked: int | None
    """Replicas in the target's spec; None where it has no scale that can be read."""
    generation: int
    """Of the HPA: it changes with its spec."""
    conditions: Mapping[str, str]
    """Of the HPA, by type: `status: message`."""
    values: Mapping[str, Sequence[ItemSight]]
    """By metric; those without a value are left out."""
    value_faults: Sequence[str]
    devices: Sequence[DeviceSight]
    """Of the nodes that are looked at."""
    agent_faults: Sequence[str]

    @property
    def size(self) -> int | None:
        """Return the replicas that HPA, workload and pods agree on; None where one of them differs."""
        size = len(self.pods)
        return size if self.desired == self.asked == size else None

    def of_pods(self, namespace: str) -> Sequence[DeviceSight]:
        """Return the devices that agents give to these pods."""
        names = {f"{namespace}/{each.name}" for each in self.pods}
        return [each for each in self.devices if each.pod in names]


class ChainReader:
    """Looks at the chain of one HPA.

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
        self._nodes = {pod.child("spec").text("nodeName") for pod in facts.pods_of(snapshot, look)}
        self._around = _around(snapshot, self._nodes)

    def knows(self, nodes: set[str]) -> bool:
        """Return whether the agents of these nodes are among those that are read."""
        return nodes <= self._nodes

    async def sight(self) -> ChainSight:
        """Return a look, read from the chain's end.

        So a hop never seems to react before the hop that causes it, however long the reads take.

        Raises:
            ApiUnreachableError, ApiStatusError: the API server does not let us look at HPA or pods.
        """
        look = self._look
        path = f"/api/v1/namespaces/{look.namespace}/pods"
        answer = await self._connection.get(path, {"labelSelector": look.selector})
        pods = [_pod(each) for each in Look(_items(answer)).each]
        place = f"namespaces/{look.namespace}/horizontalpodautoscalers/{look.hpa.metadata.name}"
        hpa = fields_of(await self._connection.get(f"/apis/autoscaling/v2/{place}"))
        asked = await self._asked_of_target()
        values, value_faults = await self._values()
        looks = (await self._agents.read(self._around)).looks
        return ChainSight(
            self._clock.now_ms(),
            pods,
            hpa.child("status").integer("desiredReplicas"),
            asked,
            hpa.child("metadata").integer("generation") or 0,
            {
                each.text("type"): f"{each.text('status')}: {each.text('message')}"
                for each in hpa.child("status").items("conditions")
            },
            values,
            value_faults,
            list(devices_of(looks)),
            [f"{each.node}: {each.fault}" for each in looks if each.fault],
        )

    async def why_none_created(self) -> str:
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

    async def _asked_of_target(self) -> int | None:
        """Return the target's replicas in its spec, which KEDA raises from zero without the HPA."""
        path = scale_path(self._look.hpa.target, self._look.namespace)
        try:
            return fields_of(await self._connection.get(path)).child("spec").integer("replicas")
        except GpuscaleError:
            return None

    async def _values(self) -> tuple[dict[str, list[ItemSight]], list[str]]:
        """Return each metric's values, and why one has none."""
        found: dict[str, list[ItemSight]] = {}
        faults = []
        for spec in self._look.hpa.metrics:
            if group_of(spec) is None:
                continue
            path, params = metric_path(
                spec, self._look.namespace, self._look.selector, self._custom
            )
            try:
                items = _items(await self._connection.get(path, params))
                found[spec.name] = [_item(each) for each in items]
            except GpuscaleError as error:
                faults.append(str(error))
            except (KeyError, TypeError, ValueError):
                faults.append(f"{spec.name} has no value")
            else:
                if not items:
                    del found[spec.name]
                    faults.append(f"{spec.name} has no value")
        return found, faults


def devices_of(looks: Iterable[AgentLook]) -> Iterable[DeviceSight]:
    """Yield the GPUs and MIG instances of agents' pages, a row for each pod that has one."""
    for look in looks:
        for name, percent in _USAGE.items():
            for sample in look.families[name].samples if name in look.families else ():
                labels = dict(sample.labels)
                instance = labels.get(_INSTANCE, "")
                if not isfinite(sample.value) or (name == _ENGINE and not instance):
                    continue
                pod = f"{labels.get('namespace', '')}/{labels['pod']}" if labels.get("pod") else ""
                uuid = labels.get("UUID", "") + (f"/{instance}" if instance else "")
                yield DeviceSight(look.node, uuid, sample.value * percent, pod)


def _around(snapshot: Snapshot, nodes: set[str]) -> Snapshot:
    """Return a snapshot with the agents of these nodes only."""
    agents = [
        pod.data
        for pod in facts.agent_pods(snapshot)
        if pod.child("spec").text("nodeName") in nodes
    ]
    return Snapshot(snapshot.now_ms, looks={"nodes": snapshot.looks["nodes"], "pods": Look(agents)})


def _pod(body: Fields) -> PodSight:
    node = body.child("spec").text("nodeName")
    stage = PodStage.SCHEDULED if node else PodStage.CREATED
    if facts.is_ready(body):
        stage = PodStage.READY
    return PodSight(
        facts.name(body),
        body.child("metadata").text("uid"),
        stage,
        node,
        facts.asks_for_gpus(body),
        facts.why_waiting(body) or _why_not_ready(body),
    )


def _why_not_ready(body: Fields) -> str:
    for container in body.child("status").items("containerStatuses"):
        waiting = container.child("state").child("waiting")
        if reason := waiting.text("reason"):
            return f"{facts.name(body)}: {reason} {waiting.text('message')}".rstrip()
    return ""


def _item(body: Mapping[str, Any]) -> ItemSight:
    described = body.get("describedObject") or {}
    about = f"{described['kind']}/{described['name']}" if described else ""
    stamp = body.get("timestamp")
    at_ms = round(datetime.fromisoformat(stamp).timestamp() * 1000) if stamp else None
    return ItemSight(about, float(parse_quantity(body["value"])), at_ms)


def _items(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [each for each in answer.get("items") or () if isinstance(each, dict)]
