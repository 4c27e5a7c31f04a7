"""HPAs' targets: whether they exist, who owns them, and who else sets their replicas.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (AmbiguousSelector, ScalingDisabled);
    managers of fields: Argo CD (argocd-controller), Flux (kustomize-controller, helm-controller).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import merge

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import SelectPolicy
from gpuscale.base.objects.label_index import LabelIndex, SelectorIndex
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.words import closest
from gpuscale.hpa.terms import MARKS_ZERO, SCALED_TO_ZERO
from gpuscale.kube import fields_of
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import AUTOSCALER, ClusterFinding
from gpuscale.ops.doctor.snapshot import HpaLook, Snapshot

TARGET_CHECKS = Checks(AUTOSCALER)
NO_SCALE_TARGET = TARGET_CHECKS.add(
    "no-scale-target",
    Severity.ERROR,
    "An HPA of something that is not there.",
    "Correct scaleTargetRef, or make what it names.",
)
WRONG_TARGET_VERSION = TARGET_CHECKS.add(
    "wrong-target-version",
    Severity.ERROR,
    "An HPA whose scaleTargetRef names an API version that its target does not have.",
    "Correct scaleTargetRef.apiVersion.",
)
TARGET_IS_OWNED = TARGET_CHECKS.add(
    "target-is-owned",
    Severity.ERROR,
    "An HPA of a ReplicaSet that a Deployment owns, which sets its replicas back.",
    "Name the Deployment in scaleTargetRef.",
)
SELECTORS_OVERLAP = TARGET_CHECKS.add(
    "selectors-overlap",
    Severity.ERROR,
    "Two scaled workloads whose selectors take each other's pods, so neither HPA scales.",
    "Give each workload a label of its own in its selector.",
)
FOREIGN_PODS = TARGET_CHECKS.add(
    "foreign-pods",
    Severity.WARNING,
    "Pods that the target's selector takes and that are not its own; the HPA counts them.",
    "Give the pod other labels.",
)
REPLICAS_OWNED = TARGET_CHECKS.add(
    "replicas-owned",
    Severity.WARNING,
    "Something else than the HPA sets the replicas, again and again.",
    "Take replicas out of the manifests that it applies.",
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
SCALE_DOWN_DISABLED = TARGET_CHECKS.add(
    "scale-down-disabled",
    Severity.NOTE,
    "An HPA that never scales down.",
    "Take behavior.scaleDown.selectPolicy: Disabled out, if that is not meant.",
)
SCALE_UP_DISABLED = TARGET_CHECKS.add(
    "scale-up-disabled",
    Severity.WARNING,
    "An HPA that never scales up.",
    "Take behavior.scaleUp.selectPolicy: Disabled out.",
)

_RECONCILERS = {
    "argocd": (
        "Argo CD",
        "Take spec.replicas out of the manifest in Git, or add /spec/replicas to ignoreDifferences "
        "with RespectIgnoreDifferences=true.",
    ),
    "kustomize-controller": ("Flux", "Take spec.replicas out of the manifest in Git."),
    "helm-controller": ("Flux", "Take the replicas out of the chart's values."),
    "fleet": ("Fleet", "Take spec.replicas out of the manifest in Git."),
    "configsync": ("Config Sync", "Take spec.replicas out of the manifest in Git."),
    "keda": ("KEDA", "Delete one of the two: the HPA, or the ScaledObject."),
}
"""A word in the names of managers that set a field again and again, and what to do."""
_TRACKED = "argocd.argoproj.io/tracking-id"
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def target_findings(snapshot: Snapshot, look: HpaLook) -> Iterator[ClusterFinding]:
    """Return the faults of an HPA's target."""
    yield from _absent(snapshot, look)
    body = facts.workload_of(snapshot, look)
    if body is not None:
        yield from _owned(snapshot, look, body)
        overlaps = [*_overlap(snapshot, look, body)]
        yield from overlaps
        if not overlaps:
            yield from _foreign(snapshot, look, body)
        yield from _replicas(look, body)
        yield from _paused(look, body)
        yield from _stuck(snapshot, look, body)
    yield from _behavior(look)


def _edit(look: HpaLook) -> str:
    return f"kubectl edit hpa -n {look.namespace} {look.hpa.metadata.name}"


def _patch(look: HpaLook, spec: Mapping[str, object]) -> str:
    patch = json.dumps({"spec": spec})
    place = ("-n", look.namespace, "--type=merge", "-p", patch)
    return facts.quoted("kubectl", "patch", "hpa", look.hpa.metadata.name, *place)


def _absent(snapshot: Snapshot, look: HpaLook) -> Iterator[ClusterFinding]:
    target = look.hpa.target
    if not look.target_is_absent:
        return
    if facts.workload_of(snapshot, look) is not None:
        reference = {"apiVersion": "apps/v1", "kind": target.kind, "name": target.name}
        yield WRONG_TARGET_VERSION.found(
            look.about,
            f"{target.kind} {look.namespace}/{target.name} is there, as apps/v1, and the HPA names "
            f"{target.api_version}.",
            look.target_fault,
            Fix(
                "Correct scaleTargetRef.apiVersion to apps/v1.",
                _patch(look, {"scaleTargetRef": reference}),
            ),
        )
        return
    what = f"There is no {target.kind} {look.namespace}/{target.name} to scale."
    say = NO_SCALE_TARGET.fix
    plural = facts.WORKLOADS.get(target.kind, "")
    places = sorted(facts.namespaces_by_name(snapshot, plural).get(target.name, ()))
    meant = closest(target.kind, facts.WORKLOADS)
    if target.kind in ("DaemonSet", "Job", "CronJob", "Pod"):
        what = f"Its target is a {target.kind}, which can't be scaled."
        say = "Name a Deployment or StatefulSet; a DaemonSet has one pod for each node."
    elif places:
        what += f" There is one in namespace {', '.join(places)}."
        say = f"Make the HPA in namespace {places[0]}: it scales in its own namespace alone."
    elif target.kind not in facts.WORKLOADS and meant is not None:
        say = f"Correct scaleTargetRef.kind: {meant} is meant, most likely."
    yield NO_SCALE_TARGET.found(look.about, what, look.target_fault, Fix(say, _edit(look)))


def _owned(snapshot: Snapshot, look: HpaLook, body: Fields) -> Iterator[ClusterFinding]:
    owner = facts.controller(body)
    if owner is None or owner[0] != "Deployment":
        return
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": owner[1]}
    others = facts.hpas_by_target(snapshot).get((owner[0], look.namespace, owner[1]))
    fix = Fix(
        f"Name Deployment {owner[1]} in scaleTargetRef.",
        _patch(look, {"scaleTargetRef": reference}),
    )
    if others:
        fix = Fix(
            f"Delete this HPA: {others[0].about} scales Deployment {owner[1]}.",
            f"kubectl delete hpa -n {look.namespace} {look.hpa.metadata.name}",
        )
    yield TARGET_IS_OWNED.found(
        look.about,
        f"Its target belongs to Deployment {look.namespace}/{owner[1]}, which sets it back.",
        f"ReplicaSet {look.hpa.target.name}, ownerReferences: Deployment {owner[1]}",
        fix,
    )


@dataclass(frozen=True, slots=True)
class JudgedTarget:
    """A target of an HPA, with its pod selector."""

    place: int
    look: HpaLook
    body: Fields
    selector: Selector


@dataclass(frozen=True, slots=True)
class ScaledTargets:
    """A namespace's targets that no other object owns, each once, in the order of their HPAs."""

    by_selector: SelectorIndex[JudgedTarget]
    by_pod_labels: LabelIndex[JudgedTarget]
    """By the labels of the pods that they make."""


@once
def _scaled_targets(snapshot: Snapshot) -> Mapping[str, ScaledTargets]:
    found: dict[str, dict[int, JudgedTarget]] = {}
    for place, look in enumerate(snapshot.hpas):
        body = facts.workload_of(snapshot, look)
        selector = None if body is None else body.child("spec").selector("selector")
        if selector is not None and body is not None and facts.controller(body) is None:
            of_namespace = found.setdefault(look.namespace, {})
            of_namespace.setdefault(id(body), JudgedTarget(place, look, body, selector))
    return {
        namespace: ScaledTargets(
            SelectorIndex((each, each.selector) for each in targets.values()),
            LabelIndex((each, _template_labels(each.body)) for each in targets.values()),
        )
        for namespace, targets in found.items()
    }


def _overlap(snapshot: Snapshot, look: HpaLook, body: Fields) -> Iterator[ClusterFinding]:
    targets = _scaled_targets(snapshot).get(look.namespace)
    if targets is None or facts.controller(body) is not None:
        return
    own, mine = _template_labels(body), body.child("spec").selector("selector")
    taken = () if mine is None else targets.by_pod_labels.selected(mine)
    near = merge(targets.by_selector.taking(own), taken, key=lambda each: each.place)
    other = next((each for each in near if each.body is not body), None)
    if other is None:
        return
    kind, name = other.look.hpa.target.kind, other.look.hpa.target.name
    pair = sorted((f"{kind} {name}", f"{look.hpa.target.kind} {look.hpa.target.name}"))
    yield SELECTORS_OVERLAP.found(
        look.about,
        f"The selectors of {pair[0]} and {pair[1]} take the same pods, so no HPA of them scales.",
        f"{kind} {name} selects {other.selector}, and the pods of {look.hpa.target.name} have the labels "
        f"{', '.join(f'{k}={v}' for k, v in own.items())}",
        Fix(
            f"Give {pair[0]} and {pair[1]} each a label of its own, in selector and pod template; a "
            "selector can't change, so make one of them again.",
            f"kubectl get {kind.lower()} -n {look.namespace} -o wide",
        ),
    )


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


def _template_labels(body: Fields) -> dict[str, str]:
    return body.child("spec").child("template").child("metadata").labels("labels")


def _replicas(look: HpaLook, body: Fields) -> Iterator[ClusterFinding]:
    manager = _manager(body)
    if manager is None:
        return
    who, say = next(
        (each for word, each in _RECONCILERS.items() if word in manager),
        (manager, REPLICAS_OWNED.fix),
    )
    target = look.hpa.target
    yield REPLICAS_OWNED.found(
        look.about,
        f"{who} sets spec.replicas of {target.kind} {target.name} too, and sets it back at each sync.",
        f"{manager} owns the field spec.replicas",
        Fix(
            say,
            f"kubectl get {target.kind.lower()} -n {look.namespace} {target.name} -o yaml "
            "--show-managed-fields",
        ),
    )


def _manager(body: Fields) -> str | None:
    """Return the manager that keeps resetting the replicas, as the object's managed fields show it."""
    metadata = body.child("metadata")
    for each in metadata.items("managedFields"):
        manager = each.text("manager")
        owns = "f:replicas" in each.child("fieldsV1").child("f:spec").data
        applies = each.text("operation") == "Apply" and "kubectl" not in manager
        is_known = any(word in manager for word in _RECONCILERS)
        if owns and not each.text("subresource") and (applies or is_known):
            return manager
    annotations = metadata.labels("annotations")
    if _TRACKED in annotations and _applies_replicas(annotations.get(_LAST_APPLIED, "")):
        return "argocd-controller"
    return None


def _applies_replicas(text: str) -> bool:
    try:
        spec = json.loads(text)["spec"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(spec, dict) and "replicas" in spec


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


def _behavior(look: HpaLook) -> Iterator[ClusterFinding]:
    spec = fields_of(dict(look.body)).child("spec").child("behavior")
    disabled = SelectPolicy.DISABLED.value
    if spec.child("scaleDown").text("selectPolicy") == disabled:
        yield SCALE_DOWN_DISABLED.found(
            look.about,
            "It never scales down.",
            "behavior.scaleDown.selectPolicy: Disabled",
            Fix(
                SCALE_DOWN_DISABLED.fix,
                _patch(look, {"behavior": {"scaleDown": {"selectPolicy": "Max"}}}),
            ),
        )
    if spec.child("scaleUp").text("selectPolicy") == disabled:
        yield SCALE_UP_DISABLED.found(
            look.about,
            "It never scales up.",
            "behavior.scaleUp.selectPolicy: Disabled",
            Fix(
                SCALE_UP_DISABLED.fix,
                _patch(look, {"behavior": {"scaleUp": {"selectPolicy": "Max"}}}),
            ),
        )
