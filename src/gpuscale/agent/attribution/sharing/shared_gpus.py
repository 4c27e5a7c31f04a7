"""Each container's part of shared GPUs: from pods' annotations, or else from device ids."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuscale.agent.attribution import reasons
from gpuscale.agent.attribution.kubelet.allocations import (
    ContainerDevices,
    KubeletDevice,
    NodeAllocations,
)
from gpuscale.agent.attribution.kubelet.device_ids import DeviceId, KnownGpus, resolve_device
from gpuscale.agent.attribution.kubelet.device_parts import ACK_RESOURCE
from gpuscale.agent.attribution.processes.processes import PodDirectory
from gpuscale.agent.attribution.sharing.schemes import RESERVATION_NAMESPACES, GpuPart, parts_of
from gpuscale.agent.gpu.owners import ContainerRef, Grant, Unattributed
from gpuscale.agent.gpu.readings import GpuIdentity
from gpuscale.kube.informers import PodRecord

_GIB_IN_MIB = 1024
_GROUP_LABEL = "runai-gpu-group"
_WHOSE_FRACTION = (
    reasons.SHARE_UNRESOLVED,
    "it holds a GPU for pods with fractions of it; let the exporter read pods from the API server",
)
PodName = tuple[str, str]
"""(namespace, pod)."""


@dataclass(frozen=True, slots=True)
class SharedGpus:
    """The parts of shared GPUs."""

    grants: Mapping[str, Mapping[ContainerRef, Grant]] = field(default_factory=dict)
    """UUID of a GPU to what each container has of it."""
    unplaced: frozenset[ContainerRef] = frozenset()
    """Containers that have a part of a GPU that could not be found out."""
    reservations: frozenset[PodName] = frozenset()
    """Pods that hold a GPU only so that others can share it."""
    missing: tuple[Unattributed, ...] = ()


class _Collected:
    """Parts found so far, pod by pod."""

    def __init__(self, known: KnownGpus, units: Mapping[str, int]) -> None:
        self._known = known
        self._units = units
        self.grants: dict[str, dict[ContainerRef, Grant]] = {}
        self.unplaced: set[ContainerRef] = set()
        self.missing: list[Unattributed] = []

    def place(self, ref: ContainerRef, part: GpuPart, groups: Mapping[str, str]) -> None:
        """Record a part's container, or that its GPU is not on this reader."""
        gpu = self._find(part, groups)
        if gpu is None:
            who = f"{ref.namespace}/{ref.pod}/{ref.container}"
            named = part.uuid or part.group or part.index
            detail = (
                f"{who} has a part of GPU {named}, which is none of those read here: {self._known}"
            )
            self.miss(ref, reasons.SHARE_UNRESOLVED, detail)
            return
        grant = self._in_mib(part, gpu)
        self.add(gpu, ref, grant)

    def add(self, gpu: str, ref: ContainerRef, grant: Grant) -> None:
        held = self.grants.setdefault(gpu, {})
        held[ref] = held[ref].plus(grant) if ref in held else grant

    def miss(self, ref: ContainerRef, reason: str, detail: str) -> None:
        self.unplaced.add(ref)
        self.missing.append(Unattributed(reason, f"{ref.namespace}/{ref.pod}", detail))

    def _find(self, part: GpuPart, groups: Mapping[str, str]) -> str | None:
        if part.group:
            return groups.get(part.group)
        return self._known.find(DeviceId("", uuid=part.uuid, index=part.index))

    def _in_mib(self, part: GpuPart, gpu: str) -> Grant:
        """Return the grant with memory in MiB; a unit is a GiB unless the units of a GPU are known."""
        if not part.memory_units:
            return part.grant
        of_gpu = self._units.get(gpu, 0)
        if of_gpu:
            return replace(part.grant, memory_part=min(1.0, part.memory_units / of_gpu))
        return replace(part.grant, memory_mib=part.memory_units * _GIB_IN_MIB)


def shared_gpus(
    allocations: NodeAllocations,
    pods: Iterable[PodRecord],
    directory: PodDirectory,
    gpus: Iterable[GpuIdentity],
) -> SharedGpus:
    """Return pods' parts of GPUs.

    Args:
        allocations: of the kubelet.
        pods: of the node; empty without the API server.
        directory: the same pods, by name.
        gpus: of this node.
    """
    known = KnownGpus(gpus)
    running = [pod for pod in pods if pod.sharing and not pod.is_ended]
    groups, reservations = _groups(allocations, running, known)
    units = {device.id: device.count for device in allocations.units}
    found = _Collected(known, units)
    by_annotation: set[PodName] = set()
    for pod in running:
        name = pod.namespace, pod.name
        if name in reservations:
            continue
        parts, fault = parts_of(pod)
        if fault:
            found.miss(_ref(name, "", directory), reasons.SHARE_UNREADABLE, fault)
        for part in parts:
            found.place(_ref(name, part.container, directory), part, groups)
        if parts or fault:
            by_annotation.add(name)
    for each in allocations.containers:
        if each.parts and (each.namespace, each.pod) not in by_annotation:
            _by_ids(each, _ref((each.namespace, each.pod), each.container, directory), found)
        if (
            each.namespace in RESERVATION_NAMESPACES
            and (each.namespace, each.pod) not in reservations
        ):
            found.miss(
                _ref((each.namespace, each.pod), each.container, directory), *_WHOSE_FRACTION
            )
            reservations |= {(each.namespace, each.pod)}
    _replicas(allocations, directory, known, found)
    return SharedGpus(found.grants, frozenset(found.unplaced), reservations, tuple(found.missing))


def _by_ids(each: ContainerDevices, ref: ContainerRef, found: _Collected) -> None:
    """Record the parts in a container's device ids, if its annotations are unknown."""
    for device in each.parts:
        if device.resource == ACK_RESOURCE:
            found.place(
                ref, GpuPart(each.container, Grant(), device.id, memory_units=device.count), {}
            )
        else:
            who = f"{each.namespace}/{each.pod}/{each.container}"
            detail = (
                f"{who} has a part of a GPU by {device.resource}; its pod's annotation says of which one: "
                "let the exporter read pods from the API server"
            )
            found.miss(ref, reasons.SHARE_UNRESOLVED, detail)


def _replicas(
    allocations: NodeAllocations, directory: PodDirectory, known: KnownGpus, found: _Collected
) -> None:
    """Record the equal parts of time-slicing and MPS, by the number of allocatable replicas.

    Time-slicing limits no memory, and whether MPS does is not known here.
    """
    totals = Counter(
        (device.resource, stem)
        for device in dict.fromkeys(allocations.allocatable or ())
        if (stem := _replica_stem(device))
    )
    for each in allocations.containers:
        for device in each.devices:
            stem = _replica_stem(device)
            gpu = resolve_device(device, known) if stem else None
            total = totals.get((device.resource, stem), 0)
            if isinstance(gpu, str) and total > 1:
                ref = _ref((each.namespace, each.pod), each.container, directory)
                found.add(gpu, ref, Grant(cores_percent=100 / total))


def _replica_stem(device: KubeletDevice) -> str:
    """Return what the ids of a GPU's replicas share; empty for a device that is no replica."""
    stem, mark, _ = device.id.rpartition("::")
    return stem if mark else ""


def _groups(
    allocations: NodeAllocations, pods: Sequence[PodRecord], known: KnownGpus
) -> tuple[dict[str, str], frozenset[PodName]]:
    """Return the GPU of each group of pods that share one, and the pods that reserve it for them."""
    held: dict[PodName, KubeletDevice] = {
        (each.namespace, each.pod): each.devices[0]
        for each in allocations.containers
        if each.devices
    }
    groups: dict[str, str] = {}
    reservations: set[PodName] = set()
    for pod in pods:
        name = pod.namespace, pod.name
        if pod.namespace not in RESERVATION_NAMESPACES or _GROUP_LABEL not in pod.sharing:
            continue
        reservations.add(name)
        if name in held:
            gpu = resolve_device(held[name], known)
            if isinstance(gpu, str):
                groups[pod.sharing[_GROUP_LABEL]] = gpu
    return groups, frozenset(reservations)


def _ref(name: PodName, container: str, directory: PodDirectory) -> ContainerRef:
    containers = directory.by_name.get(name, {})
    if container in containers:
        return containers[container]
    any_of_pod = next(iter(containers.values()), None)
    uid = any_of_pod.pod_uid if any_of_pod else ""
    labels = any_of_pod.labels if any_of_pod else {}
    return ContainerRef(*name, container, uid, labels)
