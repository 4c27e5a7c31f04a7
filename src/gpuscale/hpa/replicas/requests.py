"""What the pods of a target request of a resource.

Source: kubernetes v1.36 pkg/controller/podautoscaler/replica_calculator.go (calculateRequests).
"""

from collections.abc import Sequence

from gpuscale.hpa.failures import UncomputableError
from gpuscale.hpa.types import PodInfo


def calculate_requests(pods: Sequence[PodInfo], container: str, resource: str) -> dict[str, int]:
    """Return each pod's request in milli-units; a named container counts alone.

    Raises:
        UncomputableError: a request is missing, or a pod lacks the named container.
    """
    if container:
        return {pod.name: _container_request(pod, container, resource) for pod in pods}
    return {pod.name: _pod_request(pod, resource) for pod in pods}


def _pod_request(pod: PodInfo, resource: str) -> int:
    if pod.pod_requests:
        return _pod_level_request(pod, resource)
    return sum(_container_request(pod, c.name, resource) for c in pod.containers)


def _pod_level_request(pod: PodInfo, resource: str) -> int:
    """Return the pod's own request, or for a resource it leaves open what its containers request."""
    if resource in pod.pod_requests:
        return pod.pod_requests[resource].milli_value()
    requests = [
        c.requests[resource].milli_value() for c in pod.containers if resource in c.requests
    ]
    if not requests:
        raise UncomputableError(f"missing pod-level request for {resource} in Pod {pod.name}")
    return sum(requests)


def _container_request(pod: PodInfo, container: str, resource: str) -> int:
    for candidate in pod.containers:
        if candidate.name == container:
            if resource in candidate.requests:
                return candidate.requests[resource].milli_value()
            raise UncomputableError(
                f"missing request for {resource} in container {container} of Pod {pod.name}"
            )
    raise UncomputableError(f"container {container} not found in Pod {pod.name}")
