"""The API server of `gpuscale.testing`, and objects for it."""

from gpuscale.testing.api_server import NODES, PODS, RESOURCE_SLICES, FakeApiServer

POD, NODE, SLICES = PODS, NODES, RESOURCE_SLICES
__all__ = ["NODE", "POD", "SLICES", "FakeApiServer", "bookmark", "node", "pod"]


def bookmark(version):
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


def pod(name, *, controller=None, container_id="", labels=None, phase="Running", gpus=0):
    references = [{**controller, "controller": True}] if controller else []
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    return {
        "metadata": {
            "namespace": "ml",
            "name": name,
            "uid": f"uid-{name}",
            "labels": labels or {},
            "ownerReferences": references,
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": limits}]},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{container_id}"}],
        },
    }


def node(capacity, allocatable):
    status = {"capacity": capacity, "allocatable": allocatable}
    return {"metadata": {"name": "n1"}, "status": status}
