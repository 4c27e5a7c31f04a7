"""Pods, with the status that a kubelet and a scheduler would write."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from gpuscale.base.objects.pods import Container, Pod, PodPhase
from gpuscale.base.objects.workloads import LWS_WORKER
from gpuscale.lab.kube_api.objects.run import Json, Run, address

GRACE_S = 30
"""What a pod has to end in, where its template says nothing else."""
_NO_IMAGE = "simulated"
"""Of a container that the simulation adds, such as that of the node agents."""
_NOT_READY_S = 300
_DEFAULT_TOLERATIONS = tuple(
    {
        "key": f"node.kubernetes.io/{what}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": _NOT_READY_S,
    }
    for what in ("not-ready", "unreachable")
)
"""What the API server's admission adds (plugin/pkg/admission/defaulttolerationseconds)."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """Facts about a pod that the pod itself does not hold."""

    template: str
    """Kind and key of the manifest that its template is from, as `Kind namespace/name`."""
    number: int
    """Counts pods, for an address."""
    node_number: int
    """That of its node."""
    scheduled_ms: int | None
    started_ms: int | None
    """When its containers started; None before."""
    unscheduled: str = ""
    """Why it has no node; empty before the first try."""
    tried_ms: int = 0
    """When the scheduler tried first, with that reason."""


def pod_body(run: Run, pod: Pod, facts: PodFacts) -> Json:
    """Return a Pod."""
    metadata = run.metadata("Pod", pod.metadata)
    owner = pod.metadata.owner
    if owner is not None:
        metadata["generateName"] = f"{owner.name}-"
        labels = dict(metadata.get("labels", {}))
        if owner.kind == "ReplicaSet":
            labels["pod-template-hash"] = owner.name.rpartition("-")[2]
        elif owner.kind == "Job":
            uid = run.uid("Job", f"{pod.metadata.namespace}/{owner.name}")
            labels |= job_labels(uid, owner.name)
        metadata["labels"] = labels
    if pod.metadata.deletion_ms is not None:
        grace_ms = GRACE_S * 1000
        metadata["deletionTimestamp"] = run.time(pod.metadata.deletion_ms + grace_ms)
        metadata["deletionGracePeriodSeconds"] = GRACE_S
    kind, _, key = facts.template.partition(" ")
    is_worker = pod.metadata.labels.get(LWS_WORKER, "0") != "0"
    template = run.template(kind, key, of_workers=is_worker)
    spec = pod_spec(template.get("spec", {}), pod.spec.containers)
    spec["tolerations"] = [*spec.get("tolerations", ()), *_DEFAULT_TOLERATIONS]
    if pod.spec.node_name:
        spec["nodeName"] = pod.spec.node_name
    if pod.spec.priority_class:
        spec["priorityClassName"] = pod.spec.priority_class
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**spec, "serviceAccountName": "default", "priority": pod.spec.priority},
        "status": _status(run, pod, facts),
    }


def pod_spec(template: Mapping[str, Any], containers: Sequence[Container]) -> Json:
    """Return a template's pod spec as its file has it, with the API server's most visible defaults.

    Args:
        template: of the file; empty where there is none.
        containers: with what they ask for, limits included.
    """
    spec = deepcopy(dict(template))
    written = spec.get("containers") or [
        {"name": each.name, "image": each.image or _NO_IMAGE} for each in containers
    ]
    asked = {each.name: each for each in containers}
    spec["containers"] = [_container(each, asked.get(each.get("name", ""))) for each in written]
    defaults: Json = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": GRACE_S,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    }
    return {**defaults, **spec}


def _container(written: Mapping[str, Any], asked: Container | None) -> Json:
    image = str(written.get("image", "")).rpartition("/")[2]
    # An image with a moving tag is pulled each time (pkg/apis/core/v1/defaults.go).
    is_moving = "@" not in image and (":" not in image or image.endswith(":latest"))
    body: Json = {
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if is_moving else "IfNotPresent",
        **written,
    }
    body["ports"] = [{"protocol": "TCP", **port} for port in written.get("ports") or ()]
    if not body["ports"]:
        del body["ports"]
    resources: Json = {}
    if asked is not None and asked.limits:
        resources["limits"] = {name: str(amount) for name, amount in asked.limits.items()}
    if asked is not None and asked.requests:
        resources["requests"] = {name: str(amount) for name, amount in asked.requests.items()}
    return {**body, "resources": resources}


def job_labels(uid: str, name: str) -> dict[str, str]:
    """Return the labels that Kubernetes adds to a Job's pods."""
    return {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }


def _status(run: Run, pod: Pod, facts: PodFacts) -> Json:
    body: Json = {"phase": pod.status.phase.value, "qosClass": _qos(pod)}
    if not pod.spec.node_name:
        if facts.unscheduled:
            since = facts.tried_ms
            why = ("Unschedulable", facts.unscheduled)
            body["conditions"] = [run.condition("PodScheduled", False, *why, since)]
        return body
    scheduled_ms = facts.scheduled_ms or pod.metadata.creation_ms
    body["conditions"] = _conditions(run, pod, scheduled_ms, facts.started_ms)
    host = address(10, 200, facts.node_number)
    body |= {"hostIP": host, "hostIPs": [{"ip": host}]}
    if facts.started_ms is not None:
        ip = address(10, 64, facts.number)
        body |= {"podIP": ip, "podIPs": [{"ip": ip}]}
    body["startTime"] = run.time(scheduled_ms)
    body["containerStatuses"] = [
        _container_status(run, pod, each, facts) for each in pod.spec.containers
    ]
    return body


def _conditions(run: Run, pod: Pod, scheduled_ms: int, started_ms: int | None) -> list[Json]:
    status = pod.status
    is_ready = status.ready is True
    changed_ms = status.ready_transition_ms or scheduled_ms
    is_over = status.phase is PodPhase.SUCCEEDED
    reason = message = ""
    if is_over and not is_ready:
        reason = "PodCompleted"
    elif not is_ready:
        names = " ".join(each.name for each in pod.spec.containers)
        reason, message = "ContainersNotReady", f"containers with unready status: [{names}]"
    has_started = started_ms is not None and not is_over
    return [
        run.condition("PodReadyToStartContainers", has_started, "", "", started_ms or scheduled_ms),
        run.condition("Initialized", True, reason if is_over else "", "", scheduled_ms),
        run.condition("Ready", is_ready, reason, message, changed_ms),
        run.condition("ContainersReady", is_ready, reason, message, changed_ms),
        run.condition("PodScheduled", True, "", "", scheduled_ms),
    ]


def _container_status(run: Run, pod: Pod, container: Container, facts: PodFacts) -> Json:
    started_ms = facts.started_ms
    state: Json = {"waiting": {"reason": "ContainerCreating"}}
    if pod.status.phase is PodPhase.SUCCEEDED:
        ended_ms = pod.status.ready_transition_ms or pod.metadata.creation_ms
        state = {
            "terminated": {
                "exitCode": 0,
                "reason": "Completed",
                "startedAt": run.time(ended_ms if started_ms is None else started_ms),
                "finishedAt": run.time(ended_ms),
            }
        }
    elif started_ms is not None:
        state = {"running": {"startedAt": run.time(started_ms)}}
    return {
        "name": container.name,
        "image": container.image or _NO_IMAGE,
        "imageID": "",
        "lastState": {},
        "ready": pod.status.ready is True,
        "restartCount": 0,
        "started": "running" in state,
        "state": state,
    }


def _qos(pod: Pod) -> str:
    """Return a pod's QoS class, from its CPU and memory (pkg/apis/core/v1/helper/qos)."""
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    asked = [
        (each.requests.get(name), each.limits.get(name))
        for each in containers
        for name in ("cpu", "memory")
    ]
    if all(request is None and limit is None for request, limit in asked):
        return "BestEffort"
    if all(request is not None and request == limit for request, limit in asked):
        return "Guaranteed"
    return "Burstable"
