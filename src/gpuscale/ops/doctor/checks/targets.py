"""HPAs' targets: whose pods are counted, and what 0 replicas mean.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (ScalingDisabled).
"""

from collections.abc import Iterator

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.hpa.terms import MARKS_ZERO, SCALED_TO_ZERO
from gpuscale.kube import fields_of
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.judges import AUTOSCALER, ClusterFinding
from gpuscale.ops.doctor.snapshot import HpaLook, Snapshot

TARGET_CHECKS = Checks(AUTOSCALER)
FOREIGN_PODS = TARGET_CHECKS.add(
    "foreign-pods",
    Severity.WARNING,
    "Pods that the target's selector takes and that are not its own; the HPA counts them.",
    "Give the pod other labels.",
)
HPA_PAUSED = TARGET_CHECKS.add(
    "hpa-paused",
    Severity.NOTE,
    "A workload at 0 replicas, which pauses its HPA.",
    "Set replicas to 1 or more for the HPA to go on.",
)
STUCK_AT_ZERO = TARGET_CHECKS.add(
    "stuck-at-zero",
    Severity.WARNING,
    "A workload at 0 replicas that its HPA will not wake, although it has `minReplicas: 0`.",
    "Set replicas to 1, and take replicas out of manifests that are applied again and again.",
)


def target_findings(snapshot: Snapshot, look: HpaLook) -> Iterator[ClusterFinding]:
    """Return the faults of an HPA's target that its pods and replicas show."""
    body = facts.workload_of(snapshot, look)
    if body is not None:
        yield from _foreign(snapshot, look, body)
        yield from _paused(look, body)
        yield from _stuck(snapshot, look, body)


def _foreign(snapshot: Snapshot, look: HpaLook, body: Fields) -> Iterator[ClusterFinding]:
    target = look.hpa.target
    if facts.controller(body) is not None or not snapshot.serves("replicasets"):
        return
    others = [
        pod
        for pod in facts.pods_of(snapshot, look)
        if facts.maker(snapshot, pod) != (target.kind, target.name) and _is_alone(pod)
    ]
    if others:
        first = others[0]
        place = f"-n {facts.namespace(first)} {facts.name(first)}"
        yield FOREIGN_PODS.found(
            look.about,
            f"The selector of {target.kind} {target.name} takes a pod that is not its own, which counts "
            "for the HPA too.",
            f"pod {facts.full_name(first)}; selector {look.selector}",
            Fix(FOREIGN_PODS.fix, f"kubectl get pod {place} --show-labels"),
        )


def _is_alone(pod: Fields) -> bool:
    """Return whether a pod's controller is a Job, or it has none."""
    return (facts.controller(pod) or ("Job", ""))[0] == "Job"


def _paused(look: HpaLook, body: Fields) -> Iterator[ClusterFinding]:
    if not is_paused(look, body):
        return
    target = look.hpa.target
    yield HPA_PAUSED.found(
        look.about,
        f"{target.kind} {target.name} has 0 replicas, which pauses its HPA.",
        "spec.replicas: 0",
        Fix(
            HPA_PAUSED.fix,
            f"kubectl scale -n {look.namespace} {target.kind.lower()}/{target.name} --replicas=1",
        ),
    )


def is_paused(look: HpaLook, body: Fields | None) -> bool:
    """Return whether an HPA is paused: its workload has 0 replicas and `minReplicas` is not 0."""
    return (
        body is not None
        and body.child("spec").integer("replicas", 1) == 0
        and look.hpa.min_replicas != 0
    )


def _stuck(snapshot: Snapshot, look: HpaLook, body: Fields) -> Iterator[ClusterFinding]:
    """Yield a finding where an HPA wrongly treats 0 replicas as a pause, and won't scale up."""
    version = snapshot.kubernetes
    marks = version is None or version >= MARKS_ZERO
    if look.hpa.min_replicas != 0 or body.child("spec").integer("replicas", 1) != 0 or not marks:
        return
    conditions = fields_of(dict(look.body)).child("status").items("conditions")
    said = next((each for each in conditions if each.text("type") == SCALED_TO_ZERO), None)
    if said is not None and said.text("status") == "True":
        return
    target = look.hpa.target
    yield STUCK_AT_ZERO.found(
        look.about,
        f"{target.kind} {target.name} has 0 replicas that its HPA did not write: it takes them for a pause.",
        f"condition {SCALED_TO_ZERO}: {'none' if said is None else said.text('status')}",
        Fix(
            STUCK_AT_ZERO.fix,
            f"kubectl scale -n {look.namespace} {target.kind.lower()}/{target.name} --replicas=1",
        ),
    )
