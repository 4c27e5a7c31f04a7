"""Scheduled pods that don't serve: containers that wait, exit, or are not ready.

Source: kubernetes v1.36 pkg/kubelet/images (ErrImagePull ...), pkg/kubelet/container (CrashLoopBackOff ...),
    pkg/kubelet/lifecycle (UnexpectedAdmissionError, OutOf...).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.gpu_resources import counts_gpus
from gpuscale.base.words import counted
from gpuscale.kube import fields_of
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.workload_subjects import Key, about, pods_by_subject
from gpuscale.ops.doctor.judges import WORKLOAD, ClusterFinding
from gpuscale.ops.doctor.snapshot import Snapshot

CONTAINER_CHECKS = Checks(WORKLOAD)
CONTAINER_WAITING = CONTAINER_CHECKS.add(
    "container-waiting",
    Severity.ERROR,
    "A container that does not start: its image, its configuration, or it ends again and again.",
    "See the message; the kubelet tries again by itself.",
)
CONTAINER_ENDS = CONTAINER_CHECKS.add(
    "container-ends",
    Severity.WARNING,
    "A container that ends and is started again, such as for want of memory.",
    "See why it ended; give it more memory where that is the reason.",
)
POD_STARTS_SLOWLY = CONTAINER_CHECKS.add(
    "pod-starts-slowly",
    Severity.WARNING,
    "A pod that has had a node for over 10 minutes, and whose containers are not there.",
    "See its events: a volume, a large image, or the network.",
)
POD_NOT_READY = CONTAINER_CHECKS.add(
    "pod-not-ready",
    Severity.WARNING,
    "A pod that has run for over 10 minutes and is not ready, so that the HPA leaves it out.",
    "See why its readiness probe fails.",
)
SET_WAITS_FOR_FIRST = CONTAINER_CHECKS.add(
    "set-waits-for-first",
    Severity.NOTE,
    "A StatefulSet that makes its next pod once the one before is ready, and several are missing.",
    "Make it again with podManagementPolicy: Parallel if its pods can start side by side.",
)
POD_FAILED = CONTAINER_CHECKS.add(
    "pod-failed",
    Severity.WARNING,
    "Pods that the kubelet refused or evicted in the last hour.",
    "See the message; the controller makes others in their place.",
)

_START_MS = 60_000
_SLOW_MS = 600_000
_RECENT_MS = 3_600_000
_OFTEN = 3
"""Restarts."""
_STARTING = ("ContainerCreating", "PodInitializing", "")
_IMAGE = ("ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_FAILURES = ("UnexpectedAdmissionError", "Evicted", "NodeAffinity", "Terminated", "NodeShutdown")
_OUT_OF = "OutOf"
_MOST_SHARED = re.compile(r"maximum request size for shared resources is (\d+)")
"""NVIDIA k8s-device-plugin 0.20 internal/plugin/server.go, where failRequestsGreaterThanOne is on."""
_OOM = "OOMKilled"


@dataclass(frozen=True, slots=True)
class Stop:
    """A container that does not run as it should, and why."""

    pod: Fields
    container: str
    reason: str
    said: str


def container_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the workloads with scheduled pods that don't serve."""
    for key, pods in pods_by_subject(snapshot).items():
        stops = [stop for pod in pods if _is_active(pod) for stop in _stops(pod)]
        waiting = [stop for stop in stops if stop.reason not in (_OOM, "ended")]
        if waiting:
            yield _waiting(key, waiting, _behind(snapshot, key, pods))
        ended = [stop for stop in stops if stop.reason in (_OOM, "ended")]
        if ended:
            yield _ended(key, ended)
        calm = [pod for pod in pods if _is_active(pod) and not any(_stops(pod))]
        yield from _slow(snapshot, key, calm, _behind(snapshot, key, pods))
        yield from _failed(snapshot, key, pods)


def _is_active(pod: Fields) -> bool:
    gone = pod.child("metadata").data.get("deletionTimestamp") is not None
    return not gone and pod.child("status").text("phase") not in ("Succeeded", "Failed")


def _stops(pod: Fields) -> Iterator[Stop]:
    status = pod.child("status")
    for key in ("initContainerStatuses", "containerStatuses"):
        for each in status.items(key):
            waiting = each.child("state").child("waiting")
            last = last_words(each)
            if waiting.text("reason") not in _STARTING:
                said = "; ".join(filter(None, (waiting.text("message"), last)))
                yield Stop(pod, each.text("name"), waiting.text("reason"), said)
                continue
            reason = each.child("lastState").child("terminated").text("reason")
            restarts = each.integer("restartCount") or 0
            if restarts and (reason == _OOM or restarts >= _OFTEN) and not waiting.data:
                kind = _OOM if reason == _OOM else "ended"
                yield Stop(pod, each.text("name"), kind, f"{counted(restarts, 'restart')}; {last}")


def last_words(status: Fields) -> str:
    """Return how a container last ended, with its message; empty if it never did."""
    for state in ("lastState", "state"):
        ended = status.child(state).child("terminated")
        if ended.data:
            text = f"last ended with code {ended.integer('exitCode', 0)}, {ended.text('reason')}"
            said = ended.text("message").strip()
            return f"{text}: {said}" if said else text
    return ""


def _waiting(key: Key, stops: Sequence[Stop], behind: str) -> ClusterFinding:
    first = stops[0]
    pods = {facts.name(stop.pod) for stop in stops}
    return CONTAINER_WAITING.found(
        about(key),
        f"Container {first.container} of {counted(len(pods), 'pod')} does not start: {first.reason}.",
        f"pod {facts.full_name(first.pod)}: {first.reason}: {first.said}".rstrip(": ") + behind,
        _start_fix(key, first),
    )


def _start_fix(key: Key, stop: Stop) -> Fix:
    place = f"-n {facts.namespace(stop.pod)} {facts.name(stop.pod)}"
    if stop.reason in _IMAGE:
        return Fix(
            f"Correct the image of container {stop.container}, or give the pods an imagePullSecret "
            "for its registry.",
            f"kubectl describe pod {place}",
        )
    if stop.reason in _CONFIG:
        return Fix(
            "Make what the message names, such as a ConfigMap or Secret, or take it out of the pod "
            "template.",
            f"kubectl describe pod {place}",
        )
    if stop.reason == "CrashLoopBackOff":
        return Fix(
            "See what it said before it ended.",
            f"kubectl logs {place} -c {stop.container} --previous",
        )
    return Fix(CONTAINER_WAITING.fix, f"kubectl describe pod {place}")


def _ended(key: Key, stops: Sequence[Stop]) -> ClusterFinding:
    first = stops[0]
    place = f"-n {facts.namespace(first.pod)} {facts.name(first.pod)}"
    if first.reason == _OOM:
        what = f"Container {first.container} was killed for want of memory."
        fix = Fix(
            f"Raise the memory limit of container {first.container}, or lower what it loads.",
            f"kubectl describe pod {place}",
        )
    else:
        what = f"Container {first.container} ends and is started again."
        fix = Fix(
            "See what it said before it ended.",
            f"kubectl logs {place} -c {first.container} --previous",
        )
    return CONTAINER_ENDS.found(
        about(key), what, f"pod {facts.full_name(first.pod)}: {first.said}", fix
    )


def _slow(
    snapshot: Snapshot, key: Key, pods: Sequence[Fields], behind: str
) -> Iterator[ClusterFinding]:
    late = [pod for pod in pods if _since_scheduled(snapshot, pod) > _SLOW_MS]
    starting = [pod for pod in late if pod.child("status").text("phase") == "Pending"]
    if starting:
        yield POD_STARTS_SLOWLY.found(
            about(key),
            f"{counted(len(starting), 'pod')} got a node over 10 minutes ago and did not start.",
            f"pod {facts.full_name(starting[0])} on node {facts.spec_of(starting[0]).node_name}: "
            f"{_not_ready(starting[0])}{behind}",
            Fix(POD_STARTS_SLOWLY.fix, _describe(starting[0])),
        )
    early = [pod for pod in pods if not facts.is_ready(pod) and pod not in late]
    if behind and not late and early and _since_scheduled(snapshot, early[0]) > _START_MS:
        yield SET_WAITS_FOR_FIRST.found(
            about(key),
            f"Pod {facts.name(early[0])} is not ready yet, and the next ones wait for it.",
            f"{_not_ready(early[0])}{behind}",
            Fix(SET_WAITS_FOR_FIRST.fix, _describe(early[0])),
        )
    unready = [
        pod
        for pod in late
        if pod.child("status").text("phase") == "Running" and not facts.is_ready(pod)
    ]
    if unready:
        yield POD_NOT_READY.found(
            about(key),
            f"{counted(len(unready), 'pod')} of it runs and is not ready.",
            f"pod {facts.full_name(unready[0])}: {_not_ready(unready[0])}{behind}",
            Fix(POD_NOT_READY.fix, _describe(unready[0])),
        )


def _since_scheduled(snapshot: Snapshot, pod: Fields) -> int:
    for each in pod.child("status").items("conditions"):
        if each.text("type") == "PodScheduled" and each.text("status") == "True":
            changed = each.time_ms("lastTransitionTime")
            return 0 if changed is None else snapshot.now_ms - changed
    return 0


def _not_ready(pod: Fields) -> str:
    said = [
        f"{each.text('reason')} {each.text('message')}".strip()
        for each in pod.child("status").items("conditions")
        if each.text("type") in ("Ready", "ContainersReady") and each.text("status") != "True"
    ]
    return next(filter(None, said), "it is not Ready")


def _describe(pod: Fields) -> str:
    return f"kubectl describe pod -n {facts.namespace(pod)} {facts.name(pod)}"


def _ask_for_fewer(snapshot: Snapshot, key: Key, pod: Fields, most: int) -> Fix:
    """Return the command that lowers a container's request to what a shared GPU grants at once."""
    kind, namespace, name = key
    body = facts.named(snapshot, *key)
    template = fields_of({}) if body is None else body.child("spec").child("template")
    commands = []
    for each in template.child("spec").items("containers"):
        resources = each.child("resources")
        for resource, amount in resources.quantities("limits").items():
            if not counts_gpus(resource) or amount.nano <= most * 1_000_000_000:
                continue
            # The API server refuses a limit below the request beside it.
            is_both = resource in resources.quantities("requests")
            options = ("limits", "requests") if is_both else ("limits",)
            commands.append(
                f"kubectl set resources -n {namespace} {kind.lower()} {name} -c {each.text('name')} "
                + " ".join(f"--{option}={resource}={most}" for option in options)
            )
    return Fix(
        f"Ask for {most}, or run more pods: more shares of a shared GPU are no larger part of it.",
        " && ".join(commands) or _describe(pod),
    )


def _behind(snapshot: Snapshot, key: Key, pods: Sequence[Fields]) -> str:
    """Return which pods of a StatefulSet wait until earlier ones are ready; empty if none do.

    Source: kubernetes v1.37 pkg/controller/statefulset/stateful_set_control.go (processReplica).
    """
    body = facts.named(snapshot, *key)
    if key[0] != "StatefulSet" or body is None:
        return ""
    spec = body.child("spec")
    waiting = (spec.integer("replicas") or 0) - sum(map(_is_active, pods))
    if spec.text("podManagementPolicy") == "Parallel" or waiting <= 0:
        return ""
    return (
        f"; {counted(waiting, 'pod')} of the StatefulSet {'is' if waiting == 1 else 'are'} made once it is "
        "ready (podManagementPolicy OrderedReady; Parallel makes all at once, in a StatefulSet made again)"
    )


def _is_replaced(snapshot: Snapshot, pod: Fields) -> bool:
    """Return whether a pod's ReplicaSet is scaled to 0, so that its failures are over."""
    kind, name = facts.owner_kind(pod)
    body = facts.named(snapshot, kind, facts.namespace(pod), name)
    return kind == "ReplicaSet" and body is not None and not body.child("spec").integer("replicas")


def _failed(snapshot: Snapshot, key: Key, pods: Sequence[Fields]) -> Iterator[ClusterFinding]:
    failed = [
        pod
        for pod in pods
        if pod.child("status").text("phase") == "Failed"
        and pod.child("status").text("reason").startswith((*_FAILURES, _OUT_OF))
        and snapshot.now_ms - (pod.child("metadata").time_ms("creationTimestamp") or 0) < _RECENT_MS
        and not _is_replaced(snapshot, pod)
    ]
    if failed:
        status = failed[-1].child("status")
        reason = status.text("reason")
        node = facts.spec_of(failed[-1]).node_name
        fix = Fix(POD_FAILED.fix, _describe(failed[-1]))
        most = _MOST_SHARED.search(status.text("message"))
        if most is not None:
            fix = _ask_for_fewer(snapshot, key, failed[-1], int(most[1]))
        elif reason.startswith("UnexpectedAdmissionError") or "/" in reason:
            fix = Fix(
                f"See what the device plugin of node {node} says: the scheduler counted devices that the "
                "kubelet does not have.",
                f"kubectl get pods -A -o wide --field-selector=spec.nodeName={node}",
            )
        yield POD_FAILED.found(
            about(key),
            f"{counted(len(failed), 'pod')} failed on arrival or was evicted: {reason}.",
            f"pod {facts.full_name(failed[-1])} on node {node}: {status.text('message')}",
            fix,
        )
