"""What was seen of a cluster and of one workload: idle, under load, and left alone again."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.pulse.hops import LoadCount
from gpuscale.ops.doctor.pulse.sights import ChainSight, devices_of
from gpuscale.ops.doctor.snapshot import AgentLook, HpaLook, Snapshot
from gpuscale.server.metricsapi.wire import CUSTOM_GROUP, EXTERNAL_GROUP
from gpuscale.signals import impossible

READINGS = {
    "utilization": ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
    "memory used": ("DCGM_FI_DEV_FB_USED",),
    "temperature": ("DCGM_FI_DEV_GPU_TEMP",),
    "power": ("DCGM_FI_DEV_POWER_USAGE",),
}
"""What an accelerator's page has to have (the first two), and should have, by the series that say it."""


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """A node with accelerators, and what its exporter shows."""

    name: str
    has: int
    """Whole GPUs by its capacity; 0 where they are partitioned, shared or claimed."""
    seen: int
    """Devices on the exporter's page."""
    missing: Sequence[str]
    """Of `READINGS`, those that some device lacks."""
    impossible: Sequence[str]
    """Readings that can't be, as text."""
    fault: str = ""
    """Why there is no page."""


@dataclass(frozen=True, slots=True)
class MetricEvidence:
    """A metric of the HPA."""

    name: str
    kind: str
    """Pods, Object, External, Resource or ContainerResource."""
    target: float | None

    @property
    def of_pods(self) -> bool:
        return self.kind == "Pods"

    @property
    def served(self) -> bool:
        """Return whether the custom or external metrics API serves it, as it does not cpu and memory."""
        return self.kind in ("Pods", "Object", "External")


@dataclass(frozen=True)
class Evidence:
    """All that the judge gets."""

    about: str
    """The HPA, as `hpa/namespace/name`."""
    namespace: str
    kubernetes: str
    spec: Mapping[str, Any]
    """Of the HPA, as the cluster has it."""
    minimum: int
    maximum: int
    metrics: Sequence[MetricEvidence]
    servers: Mapping[str, str]
    """Who serves each metrics API."""
    exporters: Sequence[str]
    """Images of the agents' pods."""
    nodes: Sequence[NodeEvidence]
    nodes_fault: str = ""
    simulated: bool = False
    """Whether nodes say that they are simulated (kwok, or a rehearsal)."""
    before: Sequence[ChainSight] = ()
    loaded: Sequence[ChainSight] = ()
    after: Sequence[ChainSight] = ()
    load: LoadCount | None = None
    """None where somebody else made the load."""
    steady_ms: int = 30_000
    """How long the workload has to stay at its size at the end."""
    faults: Sequence[str] = ()
    """Of looks that could not be taken."""

    @property
    def sights(self) -> Sequence[ChainSight]:
        return (*self.before, *self.loaded, *self.after)


def standing(snapshot: Snapshot, look: HpaLook, kubernetes: str) -> Evidence:
    """Return the evidence before anything happens: the stack, its nodes, and the HPA."""
    servers = {
        group: facts.server_of(body)
        for body in snapshot.all("apiservices")
        if (group := body.child("spec").text("group")) in (CUSTOM_GROUP, EXTERNAL_GROUP)
    }
    metrics = [
        MetricEvidence(
            spec.name,
            type(spec).__name__.removesuffix("Metric"),
            float(target) if (target := spec.target.average_value or spec.target.value) else None,
        )
        for spec in look.hpa.metrics
    ]
    images = {
        each.text("image")
        for pod in facts.agent_pods(snapshot)
        for each in pod.child("spec").items("containers")
    }
    nodes = facts.gpu_nodes(snapshot)
    return Evidence(
        look.about,
        look.namespace,
        kubernetes,
        look.body.get("spec") or {},
        1 if look.hpa.min_replicas is None else look.hpa.min_replicas,
        look.hpa.max_replicas,
        metrics,
        servers,
        sorted(images),
        list(_nodes(snapshot)),
        snapshot.looks["nodes"].fault,
        any(
            key.startswith(("kwok.", "gpuscale.dev/rehearsal"))
            for node in nodes
            for key in (*facts.labels(node), *node.child("metadata").labels("annotations"))
        ),
    )


def _nodes(snapshot: Snapshot) -> Iterator[NodeEvidence]:
    by_node: dict[str, list[AgentLook]] = {}
    for each in snapshot.agents:
        by_node.setdefault(each.node, []).append(each)
    for node in facts.gpu_nodes(snapshot):
        name = facts.name(node)
        looks = by_node.get(name, [])
        good = [each for each in looks if not each.fault]
        has = 0 if facts.shares_gpus(node) else facts.whole_gpus(node)
        if not good:
            fault = "; ".join(each.fault for each in looks) or "no exporter runs there"
            yield NodeEvidence(name, has, 0, (), (), fault)
            continue
        devices = {each.uuid for each in devices_of(good)}
        missing = [what for what, series in READINGS.items() if not _has(good, series, devices)]
        yield NodeEvidence(name, has, len(devices), missing, list(_impossible(good)))


def _impossible(looks: Sequence[AgentLook]) -> Iterator[str]:
    """Yield what can't be among the readings, and of which device."""
    for look in looks:
        for name in (each for series in READINGS.values() for each in series):
            for sample in look.families[name].samples if name in look.families else ():
                if (said := impossible(name, sample.value)) is not None:
                    yield f"{dict(sample.labels).get('UUID', '')}: {said}"


def _has(looks: Sequence[AgentLook], series: Sequence[str], devices: Collection[str]) -> bool:
    """Return whether each device has a sample of one of the series."""
    there = {
        dict(sample.labels).get("UUID", "")
        for look in looks
        for name in series
        if name in look.families
        for sample in look.families[name].samples
    }
    return all(uuid.partition("/")[0] in there for uuid in devices)
