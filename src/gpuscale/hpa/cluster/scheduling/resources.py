"""What pods take of a node, as exact integers (`base.objects.requests`)."""

from gpuscale.base.objects.gpu_resources import WHOLE_GPUS
from gpuscale.base.objects.pods import PodSpec
from gpuscale.base.objects.requests import total_requests

NANO = 1_000_000_000


def pod_requests(spec: PodSpec) -> dict[str, int]:
    """Return what a pod needs on its node, one pod slot included."""
    total = total_requests(spec.containers, spec.init_containers, spec.requests, spec.overhead)
    return {**total, "pods": NANO}


def gpu_count(spec: PodSpec) -> int:
    """Return how many whole GPUs a pod asks for."""
    requests = pod_requests(spec)
    return sum(requests.get(name, 0) for name in WHOLE_GPUS) // NANO
