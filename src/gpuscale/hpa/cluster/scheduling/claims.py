"""What a pod claims of a node's devices, by claims and by resources that DeviceClasses serve.

Source: kubernetes v1.37 pkg/scheduler/framework/plugins/dynamicresources (dynamicresources.go,
extendeddynamicresources.go) and noderesources/fit.go (shouldDelegateResourceToDRA).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuscale.base.objects.devices import (
    Device,
    DeviceAsk,
    DeviceClaim,
    DeviceClasses,
    DeviceKey,
    DeviceRequest,
    NodeDevices,
)
from gpuscale.base.objects.nodes import Node
from gpuscale.base.objects.pods import PodSpec
from gpuscale.hpa.cluster.scheduling.devices.allocating import AllocationError, NamedClaim, allocate
from gpuscale.hpa.cluster.scheduling.devices.selecting import selects

FOR_RESOURCES = "<extended-resources>"
NO_DEVICES = "cannot allocate all claims"
FAULT = 'running "DynamicResources" filter plugin: '
"""With this begins that a pod's claims can't be judged on a node."""
_NANO = 1_000_000_000
_NONE = NodeDevices((), DeviceClasses())


@dataclass(frozen=True, slots=True)
class DeviceFit:
    """What a pod would get of a node's devices."""

    refused: str = ""
    """Why it gets none; empty where it gets all, or asks for none. With `FAULT` begins what keeps it off all
    nodes."""
    keys: frozenset[DeviceKey] = frozenset()
    points: int = 0


_NOTHING = DeviceFit()


def devices_for(spec: PodSpec, node: Node, held: frozenset[DeviceKey]) -> DeviceFit:
    """Return what a pod gets of a node's devices.

    Args:
        spec: of the pod; claims whose template is not known ask for nothing.
        node: the node.
        held: its devices that are allocated.
    """
    if not spec.claims and node.devices is None:
        return _NOTHING
    claims = [NamedClaim(each.name, each.asks) for each in spec.claims if each.asks is not None]
    by_resources = claim_for_resources(spec, node)
    if by_resources is not None:
        claims.append(NamedClaim(FOR_RESOURCES, by_resources))
    if not claims:
        return _NOTHING
    try:
        found = allocate(claims, node.devices or _NONE, held)
    except AllocationError as error:
        return DeviceFit(f"{FAULT}{error}")
    if found is None:
        return DeviceFit(NO_DEVICES)
    return DeviceFit(keys=found.keys, points=found.points)


def unmatched(claim: DeviceClaim, classes: DeviceClasses, devices: Sequence[Device]) -> str:
    """Return the expression of a claim that no device satisfies; empty where each request has devices.

    Args:
        claim: what is asked for; of a request with alternatives the first is named, where none has a device.
        classes: of devices; one that is not there selects all.
        devices: all that there are, whoever has them.
    """
    for request in claim.requests:
        failed = [_first_unmatched(ask, classes, devices) for ask in request.asks]
        if all(failed):
            return failed[0]
    return ""


def _first_unmatched(ask: DeviceAsk, classes: DeviceClasses, left: Sequence[Device]) -> str:
    known = classes.by_name.get(ask.class_name)
    for expression in (*(known.selectors if known else ()), *ask.selectors):
        left = [each for each in left if selects(expression, each)]
        if not left:
            return expression
    return ""


def is_served(resource: str, node: Node) -> bool:
    """Return whether a resource that a pod asks for is had of the node's devices for claims."""
    if node.devices is None or resource not in node.devices.classes.by_resource:
        return False
    by_plugin = node.allocatable.get(resource)
    return by_plugin is None or by_plugin.nano <= 0


def claim_for_resources(spec: PodSpec, node: Node) -> DeviceClaim | None:
    """Return the claim that stands for the resources that a pod gets of a node's devices, if any."""
    requests = tuple(_requests_by_resources(spec, node, node.devices)) if node.devices else ()
    return DeviceClaim(requests) if requests else None


def _requests_by_resources(
    spec: PodSpec, node: Node, devices: NodeDevices
) -> Iterator[DeviceRequest]:
    """Yield the requests of the claim that stands for a pod's resources, in the order of their names."""
    containers = (*spec.init_containers, *spec.containers)
    first_regular = len(spec.init_containers)
    asked = {name for each in containers for name in each.requests}
    found: dict[str, DeviceRequest] = {}
    for resource in sorted(name for name in asked if is_served(name, node)):
        class_name = devices.classes.by_resource[resource].name
        counts: list[int] = []
        for each in containers:
            amount = each.requests.get(resource)
            counts.append(amount.nano // _NANO if amount else 0)
        lasting = [
            count if index >= first_regular or containers[index].sidecar else 0
            for index, count in enumerate(counts)
        ]
        wanted = list(enumerate(lasting))
        # Init containers that end share what later ones have; only the largest of the rest counts.
        rest = [
            (counts[index] - sum(lasting[index:]), -index)
            for index in range(first_regular)
            if not containers[index].sidecar
        ]
        if rest and max(rest)[0] > 0:
            more, index = max(rest)
            wanted.append((-index, more))
        for index, count in wanted:
            if count > 0:
                place = sorted(containers[index].requests).index(resource)
                name = f"container-{index}-request-{place}"
                found[name] = DeviceRequest(name, (DeviceAsk("", class_name, count),))
    for name in sorted(found):
        yield found[name]
