"""Why pods don't start, in the words of the scheduler, the kubelet or the program.

Source: kubernetes v1.36 pkg/kubelet/images/types.go, pkg/kubelet/container/sync_result.go (waiting reasons),
pkg/scheduler (condition PodScheduled), pkg/controller/daemon (event FailedCreate).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_MOST_CHARACTERS = 600
_IMAGE_REASONS = (
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "ImageInspectError",
    "RegistryUnavailable",
    "SignatureValidationFailed",
)
_START_REASONS = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "PreCreateHookError",
    "PreStartHookError",
    "PostStartHookError",
    "RunContainerError",
    "StartError",
)
_POD_SECURITY = "violates PodSecurity"
"""Source: k8s.io/pod-security-admission v0.36, admission/admission.go (EvaluatePod)."""
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PodFault:
    """A fault that keeps pods from running."""

    what: str
    who: str = "pods"
    """The pods."""
    is_refusal: bool = False
    """Whether the API server does not take such pods, so that there is none."""
    is_lasting: bool = False
    """Whether waiting does not change it."""

    def __str__(self) -> str:
        return f"{self.who} {self.what}"


def pod_faults(pods: Sequence[Body]) -> list[PodFault]:
    """Return the faults that keep pods from running, each once, however many pods have it."""
    named: dict[str, list[str]] = {}
    for pod in pods:
        if "deletionTimestamp" in pod["metadata"]:
            continue
        for text in dict.fromkeys(_faults_of(pod)):
            named.setdefault(text, []).append(pod["metadata"]["name"])
    return [PodFault(text[:_MOST_CHARACTERS], _who(names)) for text, names in named.items()]


def _who(names: Sequence[str]) -> str:
    return f"pod {names[0]}" if len(names) == 1 else f"{len(names)} pods ({names[0]}, ...)"


def _faults_of(pod: Body) -> Iterator[str]:
    status = pod.get("status", {})
    for condition in status.get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            yield f"can't be scheduled: {condition.get('message', condition.get('reason', ''))}"
    images = {
        each["name"]: each.get("image", "")
        for key in ("initContainers", "containers")
        for each in pod["spec"].get(key) or []
    }
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(key) or []:
            yield from _container_faults(container, images)


def _container_faults(container: Body, images: Mapping[str, str]) -> Iterator[str]:
    waiting = container.get("state", {}).get("waiting")
    if not waiting:
        return
    name, reason = container["name"], waiting.get("reason", "")
    said = f": {waiting['message']}" if waiting.get("message") else ""
    if reason in _IMAGE_REASONS:
        yield f"can't get its image {images.get(name, '')}: {reason}{said}"
    elif reason in _START_REASONS:
        yield f"can't start its container {name}: {reason}{said}"
    elif reason == "CrashLoopBackOff":
        ended = container.get("lastState", {}).get("terminated", {})
        yield f"can't keep its container {name} running: {_end(ended)}"


def _end(ended: Body) -> str:
    if not ended:
        return "CrashLoopBackOff"
    lines = str(ended.get("message", "")).strip().splitlines()
    said = f": {lines[-1]}" if lines else ""
    return f"it ended with exit code {ended.get('exitCode')} ({ended.get('reason', '')}){said}"


def creation_faults(body: Body, events: Sequence[Body]) -> list[PodFault]:
    """Return why pods can't be created, for instance because of a quota or pod security.

    Args:
        body: a Deployment, which has a condition for it, or a DaemonSet.
        events: of the DaemonSet, with reason FailedCreate.
    """
    status = body.get("status", {})
    found = [
        each.get("message", "")
        for each in status.get("conditions") or []
        if each["type"] == "ReplicaFailure" and each["status"] == "True"
    ]
    found += [each.get("message", "") for each in events[-1:]]
    has_none = not (status.get("replicas") or status.get("currentNumberScheduled"))
    return [_creation_fault(text, body, has_none=has_none) for text in found if text]


def _creation_fault(text: str, body: Body, *, has_none: bool) -> PodFault:
    what = f"can't be created: {text}"[:_MOST_CHARACTERS]
    is_lasting = _POD_SECURITY in text
    if is_lasting and body["kind"] == "DaemonSet":  # Our other pods keep to the level restricted.
        namespace = body["metadata"]["namespace"]
        what += (
            "; the pods need folders of their node, which the level privileged allows: kubectl label "
            f"namespace {namespace} pod-security.kubernetes.io/enforce=privileged --overwrite, or install "
            "into another namespace"
        )
    return PodFault(what, is_refusal=has_none, is_lasting=has_none and is_lasting)
