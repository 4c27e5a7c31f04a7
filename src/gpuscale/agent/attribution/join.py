"""Joins the kubelet's allocations, the API server's pods, processes' cgroups, and readings."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from gpuscale.agent.attribution import reasons
from gpuscale.agent.attribution.kubelet.allocations import (
    ContainerDevices,
    KubeletDevice,
    NodeAllocations,
)
from gpuscale.agent.attribution.kubelet.device_ids import (
    KnownGpus,
    replica_of,
    resolve_claim,
    resolve_device,
    unknown_share,
)
from gpuscale.agent.attribution.processes.cgroups import ProcessPlace
from gpuscale.agent.attribution.processes.processes import PodDirectory, owner_of_process
from gpuscale.agent.attribution.sharing.shared_gpus import SharedGpus
from gpuscale.agent.gpu.owners import ClaimRef, ContainerRef, Holding, Unattributed
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading
from gpuscale.kube.informers import DeviceKey, NodeView

_UNFIT = re.compile("[^a-zA-Z0-9_]")


def safe_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels under valid Prometheus names; if two names collide, the first key wins.

    Source: NVIDIA dcgm-exporter 4.8.2, internal/pkg/transformation. Difference: a name that would begin
        with a digit gets `_` before it.
    """
    safe: dict[str, str] = {}
    for key in sorted(labels):
        name = _UNFIT.sub("_", key)
        if name[:1].isdigit() or not name:
            name = f"_{name}"
        safe.setdefault(name, labels[key])
    return safe


PodName = tuple[str, str]
"""(namespace, pod)."""
_NOBODYS = frozenset({reasons.PROCESS_NOT_IN_POD, reasons.NO_GPU_REQUEST})
"""Why a process is known to be on a GPU that it was not given."""


@dataclass(frozen=True, slots=True)
class GpuOwners:
    """The containers that hold each GPU, according to the kubelet."""

    by_gpu: Mapping[str, tuple[ContainerRef, ...]] = field(default_factory=dict)
    missing: tuple[Unattributed, ...] = ()
    holdings: Mapping[str, tuple[Holding, ...]] = field(default_factory=dict)
    """What each of those containers was given."""


def pod_directory(view: NodeView) -> PodDirectory:
    """Return the node's pods for look-up."""
    by_container_id: dict[str, ContainerRef] = {}
    by_uid: dict[str, tuple[ContainerRef, ...]] = {}
    by_name: dict[PodName, dict[str, ContainerRef]] = {}
    for pod in view.pods:
        labels = safe_labels(pod.labels)
        if owner := view.owners.get(pod.uid):
            labels |= {"owner_kind": owner.kind, "owner_name": owner.name}
        names = dict.fromkeys((*pod.containers, *pod.container_ids.values()))
        refs = {
            name: ContainerRef(pod.namespace, pod.name, name, pod.uid, labels) for name in names
        }
        for container_id, name in pod.container_ids.items():
            by_container_id[container_id] = refs[name]
        for uid in filter(None, (pod.uid, pod.static_hash)):
            by_uid[uid] = tuple(refs.values())
        by_name[pod.namespace, pod.name] = refs
    ended = frozenset((pod.namespace, pod.name) for pod in view.pods if pod.is_ended)
    return PodDirectory(by_container_id, by_uid, by_name, ended)


def gpu_owners(
    allocations: NodeAllocations,
    directory: PodDirectory,
    gpus: Iterable[GpuIdentity],
    claim_devices: Mapping[DeviceKey, str],
) -> GpuOwners:
    """Return the containers that hold each GPU, and the devices that match no GPU of the reader."""
    known = KnownGpus(gpus)
    refs, twice = holders_of(allocations, directory)
    holdings: dict[str, dict[Holding, None]] = {}
    missing = list(twice)
    for each, ref in refs.items():
        found: list[tuple[str | Unattributed | None, Holding]] = [
            (resolve_device(device, known), Holding(ref, replica_of(device)))
            for device in each.devices
        ]
        for claim in each.claims:
            named = ClaimRef(claim.namespace, claim.claim, claim.driver, claim.pool, claim.device)
            found.append((resolve_claim(claim, known, claim_devices), Holding(ref, claim=named)))
        for gpu, holding in found:
            if isinstance(gpu, Unattributed):
                missing.append(_of_container(gpu, each))
            elif gpu is not None:
                holdings.setdefault(gpu, {})[holding] = None
        missing += (_of_container(unknown_share(device), each) for device in each.unknown)
    held = {gpu: tuple(each) for gpu, each in holdings.items()}
    owners = {gpu: tuple(dict.fromkeys(it.container for it in each)) for gpu, each in held.items()}
    return GpuOwners(owners, tuple(missing), held)


def with_shares(owners: GpuOwners, shared: SharedGpus) -> GpuOwners:
    """Return the owners with those of shared GPUs, without the pods that only reserve a GPU for them."""
    holdings = {
        gpu: tuple(each for each in held if _pod_of(each.container) not in shared.reservations)
        for gpu, held in owners.holdings.items()
    }
    for gpu, grants in shared.grants.items():
        known = {each.container for each in holdings.get(gpu, ())}
        more = (Holding(ref) for ref in grants if ref not in known)
        holdings[gpu] = (*holdings.get(gpu, ()), *more)
    by_gpu = {
        gpu: tuple(dict.fromkeys(each.container for each in held))
        for gpu, held in holdings.items()
        if held
    }
    return replace(owners, by_gpu=by_gpu, holdings=holdings)


def _pod_of(ref: ContainerRef) -> PodName:
    return ref.namespace, ref.pod


def _of_container(gpu: Unattributed, each: ContainerDevices) -> Unattributed:
    who = f"{each.namespace}/{each.pod}/{each.container}"
    return Unattributed(gpu.reason, gpu.subject, f"allocated to {who}: {gpu.detail}")


def holders_of(
    allocations: NodeAllocations, directory: PodDirectory
) -> tuple[dict[ContainerDevices, ContainerRef], tuple[Unattributed, ...]]:
    """Return the containers that hold devices, and the device ids that two pods claim.

    Kubelets before 1.34 also list pods that have finished, beside those that got their devices since. The
    API server says which; where it does not, both stay, and no GPU is given to one of them alone.
    """
    running = [each for each in allocations.containers if _name(each) not in directory.ended]
    pods = _pods_by_device(running)
    contested = {device: names for device, names in pods.items() if len(names) > 1}
    gone = {
        (name, device)
        for device, names in contested.items()
        if not names.keys().isdisjoint(directory.by_name)
        for name in names
        if name not in directory.by_name
    }
    holding = [
        each for each in running if not any((_name(each), it) in gone for it in each.devices)
    ]
    still = _pods_by_device(holding)
    twice = []
    for device in contested:
        if len(still[device]) > 1:
            who = " and ".join(f"{namespace}/{pod}" for namespace, pod in still[device])
            detail = f"listed for {who}; one of them has ended, and the API server would tell which"
            twice.append(Unattributed(reasons.DEVICE_ALLOCATED_TWICE, device.id, detail))
    refs = {}
    for each in holding:
        ref = directory.by_name.get(_name(each), {}).get(each.container)
        refs[each] = ref or ContainerRef(each.namespace, each.pod, each.container)
    return refs, tuple(twice)


def _name(each: ContainerDevices) -> PodName:
    return each.namespace, each.pod


def _pods_by_device(
    containers: Iterable[ContainerDevices],
) -> dict[KubeletDevice, dict[PodName, None]]:
    pods: dict[KubeletDevice, dict[PodName, None]] = {}
    for each in containers:
        for device in each.devices:
            pods.setdefault(device, {})[_name(each)] = None
    return pods


def process_owners(
    readings: Iterable[GpuReading],
    owners: Mapping[str, tuple[ContainerRef, ...]],
    directory: PodDirectory,
    place_of: Callable[[int], ProcessPlace],
) -> tuple[dict[int, ContainerRef], tuple[Unattributed, ...]]:
    """Return the container of each process, and why others have none.

    Args:
        readings: with their processes.
        owners: UUID of a GPU to its containers.
        directory: the node's pods; empty without the API server.
        place_of: returns where a process runs; raises OSError where that can't be read.
    """
    by_pid: dict[int, ContainerRef] = {}
    missing: dict[int, Unattributed] = {}
    for reading in readings:
        holders = owners.get(reading.gpu.allocated_as, ())
        for process in reading.processes:
            pid = process.pid
            if pid in by_pid:
                continue
            try:
                place = place_of(pid)
            except FileNotFoundError:
                continue  # it has ended meanwhile
            except OSError as error:
                detail = f"its cgroup can't be read: {error.strerror or error}"
                missing[pid] = Unattributed(reasons.PROCESS_UNREADABLE, str(pid), detail)
                continue
            found = owner_of_process(pid, place, holders, directory)
            if isinstance(found, ContainerRef):
                by_pid[pid] = found
                missing.pop(pid, None)
            else:
                missing[pid] = found
    return by_pid, tuple(missing.values())


def unknown_processes(
    readings: Iterable[GpuReading],
    by_pid: Mapping[int, ContainerRef],
    missing: Iterable[Unattributed],
    *,
    has_unplaced: bool = False,
) -> frozenset[int]:
    """Return the processes that may belong to any container: neither owned nor known to be the host's.

    Args:
        readings: with their processes.
        by_pid: the owners of those that have one.
        missing: why others have none.
        has_unplaced: whether some container has a part of a GPU that is not known; a pod's process on a GPU
            that seems to be free may then be on that part.
    """
    known = _NOBODYS - {reasons.NO_GPU_REQUEST} if has_unplaced else _NOBODYS
    nobodys = {gap.subject for gap in missing if gap.reason in known}
    pids = {process.pid for reading in readings for process in reading.processes}
    return frozenset(pid for pid in pids if pid not in by_pid and str(pid) not in nobodys)
