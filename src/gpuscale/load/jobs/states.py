"""A Job's state, from API objects: pending with a reason, on a node, running, done.

Source: kubernetes v1.36 api core/v1 types.go (PodScheduled, its reasons, waiting reasons of containers),
pkg/kubelet/images/types.go (reasons of pulls), batch/v1 types.go (conditions of Jobs); Cluster Autoscaler
(TriggeredScaleUp, NotTriggerScaleUp) and Karpenter (Nominated), whose events on pods say what they do.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from gpuscale.kube import mapping_of, text_of

Body = Mapping[str, object]
SCALE_UPS = frozenset({"TriggeredScaleUp", "Nominated"})
"""Reasons of events that say a node is on its way to a pod."""
_PULL_FAULTS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "RegistryUnavailable",
        "ImageInspectError",
    }
)
_TEXT = 300
"""Characters of a reason that are kept; a scheduler's has a part for each node."""


class JobState(Enum):
    """A Job's state, in the words of the chart."""

    PENDING = "pending"
    """Made; no pod, or none that the scheduler has looked at."""
    UNSCHEDULABLE = "unschedulable"
    WAITING_FOR_NODE = "waiting for a node"
    """Unschedulable, and a node autoscaler says that one comes."""
    STARTING = "starting"
    """On a node; the image is pulled, containers are made."""
    PULL_FAILS = "image pull fails"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    REMOVED = "removed"
    """From outside, before its end."""

    @property
    def is_over(self) -> bool:
        return self in _OVER

    @property
    def is_waiting(self) -> bool:
        """Return whether the Job exists and does not run yet."""
        return self is not JobState.RUNNING and self not in _OVER


_OVER = frozenset({JobState.DONE, JobState.FAILED, JobState.TIMED_OUT, JobState.REMOVED})


@dataclass(frozen=True, slots=True)
class Standing:
    """A Job's state at one time."""

    state: JobState
    reason: str = ""
    node: str = ""


def standing_of(
    job: Body, pods: Iterable[Body], promised: frozenset[str], unmade: str = ""
) -> Standing:
    """Return a Job's state.

    Args:
        job: the Job.
        pods: its pods, in any order.
        promised: names of pods that a node autoscaler has promised a node.
        unmade: why the last try to make a pod failed; empty where none did.
    """
    if ended := _ended(job):
        return ended
    found = [_pod_standing(pod, promised) for pod in pods if not _is_ending(pod)]
    # Of several pods, the one that is furthest decides the Job's state.
    if found:
        return max(found, key=lambda each: _ORDER.index(each.state))
    if mapping_of(job.get("spec")).get("suspend") is True:
        return Standing(JobState.PENDING, "suspended; a queue such as Kueue lets it go on")
    return Standing(JobState.PENDING, unmade or "no pod yet")


_ORDER = (
    JobState.PENDING,
    JobState.UNSCHEDULABLE,
    JobState.WAITING_FOR_NODE,
    JobState.PULL_FAILS,
    JobState.STARTING,
    JobState.RUNNING,
)


def _ended(job: Body) -> Standing | None:
    for condition in _items(mapping_of(job.get("status")), "conditions"):
        if condition.get("status") != "True":
            continue
        if condition.get("type") == "Complete":
            return Standing(JobState.DONE)
        if condition.get("type") == "Failed":
            words = (text_of(condition.get(key)) for key in ("reason", "message"))
            return Standing(JobState.FAILED, ": ".join(filter(None, words))[:_TEXT])
    return None


def _pod_standing(pod: Body, promised: frozenset[str]) -> Standing:
    status = mapping_of(pod.get("status"))
    node = text_of(mapping_of(pod.get("spec")).get("nodeName"))
    match status.get("phase"):
        case "Running":
            return Standing(JobState.RUNNING, "", node)
        case "Succeeded":
            return Standing(JobState.RUNNING, "", node)  # the Job itself shows when it is done
        case "Failed":
            return Standing(JobState.PENDING, f"a pod failed: {_failure(status)}".rstrip(": "))
    if not node:
        return _unplaced(pod, status, promised)
    for container in (
        *_items(status, "initContainerStatuses"),
        *_items(status, "containerStatuses"),
    ):
        waiting = mapping_of(mapping_of(container.get("state")).get("waiting"))
        reason = text_of(waiting.get("reason"))
        if reason in _PULL_FAULTS:
            message = text_of(waiting.get("message"))
            return Standing(JobState.PULL_FAILS, f"{reason}: {message}"[:_TEXT].rstrip(": "), node)
        if reason:
            return Standing(JobState.STARTING, reason, node)
    return Standing(JobState.STARTING, "", node)


def _unplaced(pod: Body, status: Body, promised: frozenset[str]) -> Standing:
    name = text_of(mapping_of(pod.get("metadata")).get("name"))
    for condition in _items(status, "conditions"):
        if condition.get("type") != "PodScheduled" or condition.get("status") != "False":
            continue
        message = text_of(condition.get("message"))[:_TEXT]
        if condition.get("reason") != "Unschedulable":
            return Standing(JobState.PENDING, text_of(condition.get("reason")))
        state = JobState.WAITING_FOR_NODE if name in promised else JobState.UNSCHEDULABLE
        return Standing(state, message)
    return Standing(JobState.PENDING, "the scheduler has not looked at its pod")


def _failure(status: Body) -> str:
    """Return why a pod failed: its own reason, or that of the first failed container."""
    if text_of(status.get("reason")):
        return text_of(status.get("reason"))
    for container in _items(status, "containerStatuses"):
        ended = mapping_of(mapping_of(container.get("state")).get("terminated"))
        if ended.get("exitCode"):
            return f"{text_of(ended.get('reason')) or 'Error'} (exit code {ended['exitCode']})"
    return ""


def _is_ending(pod: Body) -> bool:
    return "deletionTimestamp" in mapping_of(pod.get("metadata"))


def _items(body: Body, key: str) -> list[Body]:
    found = body.get(key)
    return [mapping_of(each) for each in found] if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class NodeSight:
    """The relevant facts of a node."""

    name: str
    is_ready: bool
    offered: int
    """Units of the resources that the Jobs ask for; 1 where they ask for none."""


def node_sight(node: Body, wanted: frozenset[str]) -> NodeSight:
    """Return a node's facts that matter to Jobs with extended resources."""
    status = mapping_of(node.get("status"))
    is_ready = any(
        each.get("type") == "Ready" and each.get("status") == "True"
        for each in _items(status, "conditions")
    )
    allocatable = mapping_of(status.get("allocatable"))
    offered = sum(_whole(allocatable.get(name)) for name in wanted) if wanted else 1
    name = text_of(mapping_of(node.get("metadata")).get("name"))
    return NodeSight(name, is_ready, offered)


def _whole(value: object) -> int:
    text = value if isinstance(value, str | int) else ""
    return int(text) if str(text).isdecimal() and len(str(text)) < 10 else 0
