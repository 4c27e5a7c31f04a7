"""The number of a node's GPUs, and of those that each container requests.

A container requests a whole number of GPUs, with equal request and limit, and the kubelet allocates exactly
as many devices. On a shared GPU these are shares, as in Kubernetes' own counts.
"""

from collections.abc import Collection, Iterable, Mapping

from gpuscale.agent.attribution.join import holders_of
from gpuscale.agent.attribution.kubelet.allocations import (
    ContainerDevices,
    KubeletDevice,
    NodeAllocations,
)
from gpuscale.agent.attribution.kubelet.device_ids import is_gpu_resource
from gpuscale.agent.attribution.kubelet.device_parts import ACK_RESOURCE
from gpuscale.agent.attribution.processes.processes import PodDirectory
from gpuscale.agent.gpu.owners import ContainerRef, NodeGpuResources
from gpuscale.kube.informers import NodeView, PodRecord


def count_devices(devices: Iterable[KubeletDevice] | None) -> int | None:
    """Return the number of distinct devices; None if unknown."""
    return None if devices is None else len(set(devices))


def allocated_counts(holders: Mapping[ContainerDevices, ContainerRef]) -> dict[ContainerRef, int]:
    """Return each container's number of allocated devices; resource claims don't count."""
    counts = {ref: _device_count(each) for each, ref in holders.items()}
    return {ref: count for ref, count in counts.items() if count}


def _device_count(each: ContainerDevices) -> int:
    """Return a container's number of devices; units of memory are no devices."""
    parts = sum(part.count for part in each.parts if part.resource != ACK_RESOURCE)
    return len(each.devices) + parts


def gpu_resources(
    allocations: NodeAllocations | None,
    view: NodeView,
    directory: PodDirectory,
    extra_resources: Collection[str],
) -> NodeGpuResources:
    """Return the node's GPU counts from the API server, or else from the kubelet.

    Args:
        allocations: of the kubelet; None while it is silent.
        view: the node by the API server; empty without it.
        directory: the view's pods.
        extra_resources: names of resources that are GPUs though their names don't say so.
    """
    reported = count_devices(allocations.allocatable) if allocations else None
    node = view.node
    return NodeGpuResources(
        capacity=_gpu_count(node.capacity, extra_resources) if node else None,
        allocatable=_gpu_count(node.allocatable, extra_resources) if node else reported,
        containers=(
            allocated_counts(holders_of(allocations, directory)[0])
            if allocations
            else _limits(view.pods, directory, extra_resources)
        ),
    )


def _gpu_count(amounts: Mapping[str, int], extra_resources: Collection[str]) -> int:
    return sum(count for name, count in amounts.items() if is_gpu_resource(name, extra_resources))


def _limits(
    pods: Iterable[PodRecord], directory: PodDirectory, extra_resources: Collection[str]
) -> dict[ContainerRef, int]:
    """Return the GPU limits of containers in active pods."""
    counts = {
        directory.by_name[pod.namespace, pod.name][container]: _gpu_count(amounts, extra_resources)
        for pod in pods
        if not pod.is_ended
        for container, amounts in pod.limits.items()
    }
    return {ref: count for ref, count in counts.items() if count}
