"""The status that a kubelet writes for a pod, stage by stage."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuscale.kube.client.client import JsonObject as Json


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod's node and addresses."""

    pod_ip: str
    host_ip: str
    started: str
    """When the kubelet took it on."""


def creating(pod: Json, placed: Placed, now: str) -> Json:
    """Return the patch for a pod whose image is being pulled."""
    state = {"waiting": {"reason": "ContainerCreating"}}
    return _patch(pod, placed, now, phase="Pending", ready=False, state=state)


def running(pod: Json, placed: Placed, now: str, *, ready: bool) -> Json:
    """Return the patch for a pod whose containers run."""
    state = {"running": {"startedAt": now}}
    return _patch(pod, placed, now, phase="Running", ready=ready, state=state)


def succeeded(pod: Json, placed: Placed, now: str) -> Json:
    """Return the patch for a pod whose containers have ended well."""
    ended = {"exitCode": 0, "reason": "Completed", "startedAt": placed.started, "finishedAt": now}
    return _patch(pod, placed, now, phase="Succeeded", ready=False, state={"terminated": ended})


def _patch(
    pod: Json, placed: Placed, now: str, *, phase: str, ready: bool, state: Mapping[str, Any]
) -> Json:
    conditions = {
        "PodReadyToStartContainers": "waiting" not in state,
        "Initialized": True,
        "ContainersReady": ready,
        "Ready": ready,
    }
    status = {
        "phase": phase,
        "hostIP": placed.host_ip,
        "podIP": placed.pod_ip,
        "podIPs": [{"ip": placed.pod_ip}],
        "startTime": placed.started,
        "conditions": [
            {"type": kind, "status": str(holds), "lastTransitionTime": now}
            for kind, holds in conditions.items()
        ],
        "containerStatuses": [
            _container(container, state, ready=ready) for container in pod["spec"]["containers"]
        ],
    }
    return {"status": status}


def _container(container: Json, state: Mapping[str, Any], *, ready: bool) -> Json:
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": "",
        "ready": ready,
        "started": "running" in state,
        "restartCount": 0,
        "state": state,
    }
