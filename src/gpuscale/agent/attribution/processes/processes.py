"""The owner of a process, found by its cgroup, the API server's pods and the kubelet's allocations.

The API server's word comes first: container ids are exact. Without it, the kubelet's allocations name a
process' container only where they leave no choice, because they carry no UID to compare with a cgroup's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.agent.attribution import reasons
from gpuscale.agent.attribution.processes.cgroups import ProcessPlace
from gpuscale.agent.gpu.owners import ContainerRef, Unattributed

_NEEDS_API = "let the exporter read pods from the API server to tell them apart"


@dataclass(frozen=True, slots=True)
class PodDirectory:
    """The node's pods for look-up; empty without an API server."""

    by_container_id: Mapping[str, ContainerRef] = field(default_factory=dict)
    by_uid: Mapping[str, tuple[ContainerRef, ...]] = field(default_factory=dict)
    """Pod UID, or a static pod's hash, to the containers of that pod."""
    by_name: Mapping[tuple[str, str], Mapping[str, ContainerRef]] = field(default_factory=dict)
    """(namespace, pod) to container name to container."""
    ended: frozenset[tuple[str, str]] = frozenset()
    """(namespace, pod) of pods that have finished, which old kubelets still list."""


def owner_of_process(
    pid: int, place: ProcessPlace, owners: Sequence[ContainerRef], directory: PodDirectory
) -> ContainerRef | Unattributed:
    """Return a process' container, or why it is unknown.

    Args:
        pid: for the message.
        place: what its cgroup says.
        owners: the containers that its GPU is allocated to.
        directory: pods by container id and UID.
    """
    known = directory.by_container_id.get(place.container_id)
    if known is not None:
        return known
    containers = directory.by_uid.get(place.pod_uid)
    if containers is not None:
        return _only_one(pid, place, containers, owners)
    if not place.is_in_pod:
        return Unattributed(reasons.PROCESS_NOT_IN_POD, str(pid), "a process outside of any pod")
    if not directory.by_uid:
        return _by_allocation(pid, owners)
    # Only a pod whose UID is not known yet can be new to the API server.
    unnamed = [each for each in owners if not each.pod_uid]
    if len(unnamed) == 1:
        return unnamed[0]
    detail = f"the API server knows no pod with UID {place.pod_uid} on this node"
    return Unattributed(reasons.CONTAINER_UNKNOWN, str(pid), detail)


def _only_one(
    pid: int,
    place: ProcessPlace,
    containers: Sequence[ContainerRef],
    owners: Sequence[ContainerRef],
) -> ContainerRef | Unattributed:
    """Return the only container of a pod that may own a process with an unknown container id."""
    if len(containers) == 1:
        return containers[0]
    holders = [each for each in containers if each in owners]
    if len(holders) == 1:
        return holders[0]
    detail = (
        f"pod {containers[0].namespace}/{containers[0].pod} has no container {place.container_id}"
    )
    return Unattributed(reasons.CONTAINER_UNKNOWN, str(pid), detail)


def _by_allocation(pid: int, owners: Sequence[ContainerRef]) -> ContainerRef | Unattributed:
    if not owners:
        detail = f"its GPU is allocated to no pod; {_NEEDS_API}"
        return Unattributed(reasons.NO_GPU_REQUEST, str(pid), detail)
    first = owners[0]
    if len(owners) == 1:
        return first
    if any((each.namespace, each.pod) != (first.namespace, first.pod) for each in owners):
        detail = f"its GPU is allocated to {len(owners)} containers; {_NEEDS_API}"
        return Unattributed(reasons.SEVERAL_PODS_ONE_GPU, str(pid), detail)
    return ContainerRef(first.namespace, first.pod, "", first.pod_uid, first.labels)
