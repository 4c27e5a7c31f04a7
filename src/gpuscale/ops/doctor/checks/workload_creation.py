"""Pods that are never created: refused by the API server, or of a stuck rollout.

Source: kubernetes v1.36 pkg/controller/replicaset (ReplicaFailure, FailedCreate), pkg/controller/deployment
    (Progressing); refusals: plugin/pkg/admission (priority, limitranger, serviceaccount), apiserver
    pkg/admission/plugin/resourcequota and webhook/errors; k8s.io/pod-security-admission/admission.
"""

import re
from collections.abc import Iterator, Mapping

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.workload_subjects import Key, about, subjects
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import WORKLOAD, ClusterFinding
from gpuscale.ops.doctor.snapshot import Snapshot

CREATION_CHECKS = Checks(WORKLOAD)
PODS_REFUSED = CREATION_CHECKS.add(
    "pods-refused",
    Severity.ERROR,
    "Pods that the API server refuses: a quota, a LimitRange, a webhook, a missing PriorityClass.",
    "Do what the message says; the controller tries again by itself.",
)
ROLLOUT_STUCK = CREATION_CHECKS.add(
    "rollout-stuck",
    Severity.WARNING,
    "A Deployment whose new pods don't become ready in time.",
    "See why the new pods don't run, or go back: kubectl rollout undo.",
)
DEPLOYMENT_PAUSED = CREATION_CHECKS.add(
    "deployment-paused",
    Severity.WARNING,
    "A Deployment that is paused before its pods are made.",
    "Resume the rollout.",
)
NODE_NAME_GONE = CREATION_CHECKS.add(
    "node-name-gone",
    Severity.ERROR,
    "A pod template with the name of a node that is not there.",
    "Take nodeName out of the pod template, and choose nodes by a label.",
)

_REFUSALS: tuple[tuple[str, str, str], ...] = (
    (
        r"exceeded quota: (?P<name>[^,\s]+)",
        "Raise ResourceQuota {name}, or lower maxReplicas.",
        "kubectl describe resourcequota -n {namespace} {name}",
    ),
    (
        r"failed quota: (?P<name>[^:\s]+)",
        "Give the containers what ResourceQuota {name} asks every pod to state.",
        "kubectl describe resourcequota -n {namespace} {name}",
    ),
    (
        r"failed calling webhook \"(?P<name>[^\"]+)\"",
        "Start the server of webhook {name}, or delete its configuration if its server is gone.",
        "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations",
    ),
    (
        r"admission webhook \"(?P<name>[^\"]+)\" denied",
        "Change the pod template so that the policy of webhook {name} allows it.",
        "kubectl get {kind} -n {namespace} {workload} -o yaml",
    ),
    (
        r"no PriorityClass with name (?P<name>\S+) was found",
        "Make PriorityClass {name}, or take priorityClassName out of the pod template.",
        "kubectl get priorityclass",
    ),
    (
        r"(?:maximum|minimum) \S+ usage per (?:Container|Pod)|must be equal to \S+ request|"
        r"limit to request ratio",
        "Keep within the LimitRange of the namespace, or change it.",
        "kubectl describe limitrange -n {namespace}",
    ),
    (
        r"violates PodSecurity \"(?P<name>[^\"]+)\"",
        "Change the pod template to what PodSecurity {name} allows, or the namespace's label "
        "pod-security.kubernetes.io/enforce.",
        "kubectl get namespace {namespace} --show-labels",
    ),
    (
        r"RuntimeClass \"(?P<name>[^\"]+)\" not found",
        "Make RuntimeClass {name}, as the GPU operator does, or take runtimeClassName out of the "
        "pod template.",
        "kubectl get runtimeclass",
    ),
    (
        r"ValidatingAdmissionPolicy '(?P<name>[^']+)'",
        "Change the pod template so that ValidatingAdmissionPolicy {name} allows it, or change "
        "the policy.",
        "kubectl get validatingadmissionpolicy {name} -o yaml",
    ),
    (
        r"serviceaccount \"(?P<name>[^\"]+)\" not found",
        "Make the service account, or correct serviceAccountName in the pod template.",
        "kubectl create serviceaccount -n {namespace} {account}",
    ),
)


def creation_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the workloads whose pods can't be created, or don't become ready in time."""
    for key, body in subjects(snapshot).items():
        failure = _failure(snapshot, key, body)
        if failure:
            yield PODS_REFUSED.found(
                about(key),
                "The API server refuses its pods, so no more of them are made.",
                failure,
                refusal_fix(failure, key),
            )
        yield from _template(snapshot, key, body)
        progress = _condition(body, "Progressing")
        if progress is not None and progress.text("reason") == "ProgressDeadlineExceeded":
            kind, namespace, name = key
            yield ROLLOUT_STUCK.found(
                about(key),
                "Its new pods did not become ready in time.",
                progress.text("message"),
                Fix(
                    ROLLOUT_STUCK.fix,
                    f"kubectl rollout status -n {namespace} {kind.lower()}/{name} --timeout=1s; "
                    f"kubectl get pods -n {namespace}",
                ),
            )


def _template(snapshot: Snapshot, key: Key, body: Fields) -> Iterator[ClusterFinding]:
    kind, namespace, name = key
    spec = body.child("spec")
    if spec.boolean("paused") and _missing(body) > 0:
        yield DEPLOYMENT_PAUSED.found(
            about(key),
            "It is paused, and its pods are not made.",
            f"spec.paused: true; {_missing(body)} pods are missing",
            Fix(
                DEPLOYMENT_PAUSED.fix,
                f"kubectl rollout resume -n {namespace} {kind.lower()}/{name}",
            ),
        )
    node = spec.child("template").child("spec").text("nodeName")
    if node and snapshot.serves("nodes") and node not in facts.nodes_by_name(snapshot):
        yield NODE_NAME_GONE.found(
            about(key),
            f"Its template binds every pod to node {node}, which is not there.",
            f"nodeName: {node}",
            Fix(NODE_NAME_GONE.fix, f"kubectl edit {kind.lower()} -n {namespace} {name}"),
        )


def _condition(body: Fields, kind: str) -> Fields | None:
    listed = body.child("status").items("conditions")
    return next((each for each in listed if each.text("type") == kind), None)


def _failure(snapshot: Snapshot, key: Key, body: Fields) -> str:
    """Return the API server's reason for refusing a workload's pods; empty if it accepts them."""
    failure = _condition(body, "ReplicaFailure")
    if failure is not None and failure.text("status") == "True":
        return f"{failure.text('reason')}: {failure.text('message')}"
    if key[0] != "StatefulSet" or _missing(body) <= 0:
        return ""  # For a StatefulSet only events show it, which are kept for an hour.
    return _refusals(snapshot).get(key, "")


@once
def _refusals(snapshot: Snapshot) -> Mapping[Key, str]:
    """Return the API server's first reason for refusing pods, by the object that creates them."""
    found: dict[Key, str] = {}
    for event in snapshot.all("refusals"):
        of = event.child("involvedObject")
        key = of.text("kind"), of.text("namespace"), of.text("name")
        found.setdefault(key, f"{event.text('reason')}: {event.text('message')}")
    return found


def _missing(body: Fields) -> int:
    wanted = body.child("spec").integer("replicas", 1) or 0
    return wanted - (body.child("status").integer("replicas") or 0)


def refusal_fix(message: str, key: Key) -> Fix:
    """Return how to get a refused pod accepted."""
    kind, namespace, name = key
    for pattern, say, command in _REFUSALS:
        found = re.search(pattern, message)
        if found is not None:
            words = {"name": "", **found.groupdict()}
            words |= {"account": words["name"].rpartition("/")[2]}
            words |= {"namespace": namespace, "kind": kind.lower(), "workload": name}
            return Fix(say.format(**words), command.format(**words))
    return Fix(PODS_REFUSED.fix, f"kubectl describe {kind.lower()} -n {namespace} {name}")
