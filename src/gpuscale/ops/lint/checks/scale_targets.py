"""What autoscalers scale: whether it can be scaled, who else sets its replicas, and whose pods are counted.

Source: kubernetes v1.37 pkg/controller/podautoscaler/horizontal.go (reconcileAutoscaler: the target by group
    and kind, in any version; AmbiguousSelector), replica_calculator.go (a missing request); client-go
    restmapper/discovery.go (kinds in lower case); KEDA v2.21 apis/keda/v1alpha1/gvkr_types.go (by group, kind
    and version); managers of fields: Argo CD (argocd-controller), Flux (kustomize-controller,
    helm-controller); NVML's reference (nvmlDeviceGetUtilizationRates: not with MIG).
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import merge

from gpuscale.base.errors import QueryError
from gpuscale.base.findings import Check, Checks, Fix, Severity, Unseen
from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    PodsMetric,
    ResourceMetric,
    TargetType,
)
from gpuscale.base.objects.label_index import LabelIndex, SelectorIndex
from gpuscale.base.objects.scaled_object import PROMETHEUS, ScaleTrigger
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.words import closest
from gpuscale.ops.lint.autoscalers import Autoscaler, autoscalers
from gpuscale.ops.lint.cluster import AbsentTarget
from gpuscale.ops.lint.findings import LintFinding, Place
from gpuscale.ops.lint.hpa_places import placed_metrics
from gpuscale.ops.lint.inputs import FileJudge, Inputs
from gpuscale.ops.lint.operators.kinds import Scale, custom_kind
from gpuscale.ops.lint.operators.made import Made, written_in
from gpuscale.ops.lint.workloads import SCALED, ObjectKey, Workload, found_kind
from gpuscale.series.promql import parse_query
from gpuscale.server.rules.queries import reads
from gpuscale.signals import GPU_SIGNALS

SCALE_TARGET_CHECKS = Checks("autoscaler")
NO_SCALE_TARGET = SCALE_TARGET_CHECKS.add(
    "no-scale-target",
    Severity.ERROR,
    "An HPA of something that is not there, or that can't be scaled.",
    "Correct scaleTargetRef, or make what it names.",
)
WRONG_TARGET_VERSION = SCALE_TARGET_CHECKS.add(
    "wrong-target-version",
    Severity.ERROR,
    "An HPA whose scaleTargetRef names an API version that its target does not have.",
    "Correct scaleTargetRef.apiVersion.",
)
TARGET_IS_OWNED = SCALE_TARGET_CHECKS.add(
    "target-is-owned",
    Severity.WARNING,
    "An HPA of a ReplicaSet that a Deployment owns, which sets its replicas back.",
    "Name the Deployment in scaleTargetRef.",
)
SELECTORS_OVERLAP = SCALE_TARGET_CHECKS.add(
    "selectors-overlap",
    Severity.ERROR,
    "Two scaled workloads whose selectors take each other's pods, so neither HPA scales.",
    "Give each workload a label of its own in its selector.",
)
REPLICAS_OWNED = SCALE_TARGET_CHECKS.add(
    "replicas-owned",
    Severity.WARNING,
    "Something else than the HPA sets the replicas, again and again; a note where that may be once.",
    "Take replicas out of the manifests that it applies.",
)
NO_RESOURCE_REQUEST = SCALE_TARGET_CHECKS.add(
    "no-resource-request",
    Severity.ERROR,
    "A target in percent of a request that a container does not make.",
    "Give each container a request, or set an averageValue.",
)
NO_GPU_REQUEST = SCALE_TARGET_CHECKS.add(
    "no-gpu-request",
    Severity.WARNING,
    "Scaled by a GPU metric, and no container asks for a GPU.",
    "Give the container a limit: only so a GPU is known to be the pod's.",
)
AGENT_SERIES_CHECKS = Checks("node agent")
NO_GPU_UTIL = AGENT_SERIES_CHECKS.add(
    "no-gpu-util",
    Severity.ERROR,
    "GPUs without DCGM_FI_DEV_GPU_UTIL, which is off or is MIG's lack.",
    "Add its row to the counters file; a MIG instance has none: scale on DCGM_FI_PROF_GR_ENGINE_ACTIVE.",
)

_APPS = "apps/v1"
_UNSCALABLE = ("DaemonSet", "Job", "CronJob", "Pod")
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
_TRACKS = {
    _TRACKED: "argocd-controller",
    "kustomize.toolkit.fluxcd.io/name": "kustomize-controller",
    "helm.toolkit.fluxcd.io/name": "helm-controller",
}
"""Annotations and labels of what is applied again and again, and by whom."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NOT_OF_MIG = frozenset(f"DCGM_FI_DEV_{each}_UTIL" for each in ("GPU", "MEM_COPY", "ENC", "DEC"))
_GPU_METRICS = frozenset(signal.metric for signal in GPU_SIGNALS.values())


def scale_target_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the faults of what autoscalers scale."""
    scaled = [*autoscalers(inputs)]
    overlaps = _Overlaps(inputs, scaled)
    by_target = {each.target: each for each in reversed(scaled)}
    places: dict[tuple[str, str], list[str]] = {}
    for namespace, kind, name in inputs.workloads:
        places.setdefault((kind, name), []).append(namespace)
    for each in scaled:
        faults = [*_reference(inputs, each, _absent(inputs, each, places))]
        yield from faults
        workload = each.workload(inputs)
        if workload is None:
            if not faults:
                _not_looked_at(inputs, each)
            continue
        yield from _owned(by_target, each, workload)
        yield from overlaps.findings(each, workload)
        # An operator knows whose the replicas are, of what it makes and of what it makes an autoscaler for.
        document = workload.part.document
        is_operators = isinstance(document, Made) or written_in(each.part.document) is document
        if not inputs.is_simulated and not is_operators:
            yield from _replicas(inputs, each, workload)
    yield from _requests(inputs)


def _not_looked_at(inputs: Inputs, scaler: Autoscaler) -> None:
    _, kind, name = scaler.target
    if not scaler.is_live and kind not in inputs.cluster.complete:
        inputs.unseen.append(
            Unseen(
                "",
                f"{scaler.title}: {kind} {name}, with its replicas, requests and labels",
                "no file has it",
                Fix(f"Name the manifest of {kind} {name} too, or look at the cluster with --live."),
            )
        )


# The reference


def _absent(
    inputs: Inputs, scaler: Autoscaler, places: Mapping[tuple[str, str], Sequence[str]]
) -> AbsentTarget | None:
    """Return what is known of a target that is not there; None where it is, or that is unknown."""
    _, kind, name = scaler.target
    if kind in inputs.cluster.complete and scaler.target not in inputs.workloads:
        elsewhere = tuple(sorted(places.get((kind, name), ())))
        return AbsentTarget("neither the files nor the cluster have it", elsewhere)
    return inputs.cluster.absent.get(scaler.title)


def _reference(
    inputs: Inputs, scaler: Autoscaler, absent: AbsentTarget | None
) -> Iterator[LintFinding]:
    _, kind, name = scaler.target
    said = "" if absent is None else absent.said
    group, _, version = scaler.target_version.rpartition("/")
    right = scaler.target_version if "." in group else SCALED.get(kind)
    edit = scaler.kubectl("edit")
    known = inputs.defined.get((group, kind)) or custom_kind(scaler.target_version, kind)
    if known is not None and known.served and version not in known.served:
        right = f"{group}/{min(known.served)}"
    if known is not None and known.scale is not Scale.WHOLE and not scaler.is_own:
        what = f"A {kind} has no scale subresource, so nothing else can set its replicas."
        if known.scale is Scale.UNCOUNTED:
            what = (
                f"The scale subresource of {kind} has no labelSelectorPath, so that an HPA can't tell its "
                "pods and never scales it (InvalidSelector)."
            )
        place = scaler.part.place("spec", "scaleTargetRef", "kind")
        yield NO_SCALE_TARGET.found(
            place, what, said, Fix(known.instead or NO_SCALE_TARGET.fix, edit)
        )
        return
    if right is None:
        what = f"There is no kind {kind} in {scaler.target_version} to scale; kinds are told apart by case."
        meant = closest(kind, SCALED) or closest(kind.removesuffix("s").title(), SCALED)
        say = NO_SCALE_TARGET.fix
        if kind in _UNSCALABLE:
            what = f"Its target is a {kind}, which can't be scaled."
            say = "Name a Deployment or StatefulSet; a DaemonSet has one pod for each node."
        elif meant is not None:
            say = f"Correct scaleTargetRef.kind: {meant} is meant, most likely."
        place = scaler.part.place("spec", "scaleTargetRef", "kind")
        yield NO_SCALE_TARGET.found(place, what, said, Fix(say, edit))
        return
    if scaler.written_kind != kind:
        yield NO_SCALE_TARGET.at(Severity.NOTE).found(
            scaler.part.place("spec", "scaleTargetRef", "kind"),
            f"The kind is {kind}. The HPA controller finds {scaler.written_kind} too; what compares kinds "
            "as they are written doesn't.",
            said,
            Fix(f"Write kind: {kind}.", edit),
        )
    if scaler.target_version != right:
        # An HPA goes by group and kind, KEDA by the version too.
        is_found = group == right.rpartition("/")[0] and not scaler.is_kedas
        what = f"{kind} {name} is looked for as {scaler.target_version}, and Kubernetes has it as {right}."
        if is_found:
            what = (
                f"Kubernetes does not serve {scaler.target_version}. The HPA goes by group and kind, and "
                f"finds {kind} {name} as {right}; others that read the reference don't."
            )
        check = WRONG_TARGET_VERSION.at(Severity.NOTE) if is_found else WRONG_TARGET_VERSION
        reference = {"apiVersion": right, "kind": kind, "name": name}
        yield check.found(
            scaler.part.place("spec", "scaleTargetRef", "apiVersion"),
            what,
            said,
            Fix(
                f"Correct scaleTargetRef.apiVersion to {right}.",
                scaler.patch({"scaleTargetRef": reference}),
            ),
        )
        if not is_found:
            return
    if absent is not None:
        what = f"There is no {kind} {scaler.namespace}/{name} to scale."
        say = NO_SCALE_TARGET.fix
        if absent.elsewhere:
            what += f" There is one in namespace {', '.join(absent.elsewhere)}."
            say = f"Make the HPA in namespace {absent.elsewhere[0]}: it scales in its own namespace alone."
        yield NO_SCALE_TARGET.found(scaler.reference, what, said, Fix(say, edit))


def _owned(
    by_target: Mapping[ObjectKey, Autoscaler], scaler: Autoscaler, workload: Workload
) -> Iterator[LintFinding]:
    owner = workload.controller
    if owner is None or owner[0] != "Deployment":
        return
    fix = Fix(
        f"Name Deployment {owner[1]} in scaleTargetRef.",
        scaler.patch(
            {"scaleTargetRef": {"apiVersion": _APPS, "kind": "Deployment", "name": owner[1]}}
        ),
    )
    other = by_target.get((scaler.namespace, *owner))
    if other is not None:
        fix = Fix(
            f"Delete this HPA: {other.title} scales Deployment {owner[1]}.",
            scaler.kubectl("delete"),
        )
    yield TARGET_IS_OWNED.found(
        scaler.reference,
        f"Its target belongs to Deployment {scaler.namespace}/{owner[1]}, which sets it back.",
        f"ReplicaSet {scaler.target[2]}, ownerReferences: Deployment {owner[1]}",
        fix,
    )


# Pods


@dataclass(frozen=True, slots=True)
class _Target:
    place: int
    scaler: Autoscaler
    workload: Workload
    selector: Selector


class _Overlaps:
    """The targets of each namespace that no other object owns, each once, in the order of their HPAs."""

    def __init__(self, inputs: Inputs, scaled: Sequence[Autoscaler]) -> None:
        found: dict[str, dict[int, _Target]] = {}
        for place, scaler in enumerate(scaled):
            workload = scaler.workload(inputs)
            if workload is None or workload.controller is not None or workload.selector is None:
                continue
            of_namespace = found.setdefault(scaler.namespace, {})
            target = _Target(place, scaler, workload, workload.selector)
            of_namespace.setdefault(id(workload), target)
        self._by_selector = {
            namespace: SelectorIndex((each, each.selector) for each in targets.values())
            for namespace, targets in found.items()
        }
        self._by_pod_labels = {
            namespace: LabelIndex((each, each.workload.pods.labels) for each in targets.values())
            for namespace, targets in found.items()
        }

    def findings(self, scaler: Autoscaler, workload: Workload) -> Iterator[LintFinding]:
        if workload.controller is not None or workload.selector is None:
            return
        own = workload.pods.labels
        taken = self._by_pod_labels[scaler.namespace].selected(workload.selector)
        near = merge(
            self._by_selector[scaler.namespace].taking(own), taken, key=lambda each: each.place
        )
        other = next((each for each in near if each.workload is not workload), None)
        if other is None:
            return
        pair = sorted((other.workload.title, workload.title))
        kind = other.scaler.target[1].lower()
        yield SELECTORS_OVERLAP.found(
            scaler.reference,
            f"The selectors of {pair[0]} and {pair[1]} take the same pods, so no HPA of them scales.",
            f"{other.workload.title} selects {other.selector}, and the pods of {scaler.target[2]} have the "
            f"labels {', '.join(f'{k}={v}' for k, v in own.items())}",
            Fix(
                f"Give {pair[0]} and {pair[1]} each a label of its own, in selector and pod template; a "
                "selector can't change, so make one of them again.",
                f"kubectl get {kind} -n {scaler.namespace} -o wide" if scaler.is_live else "",
            ),
        )


def _requests(inputs: Inputs) -> Iterator[LintFinding]:
    """Yield metrics that the pods' requests leave without a value."""
    for placed in inputs.hpas:
        meta, target = placed.hpa.metadata, placed.hpa.target
        workload = inputs.workloads.get((meta.namespace, found_kind(target.kind), target.name))
        if workload is None or not workload.has_template:
            continue
        is_live = workload.is_live
        for metric in placed_metrics(placed):
            spec = metric.spec
            if isinstance(spec, ResourceMetric | ContainerResourceMetric):
                if spec.target.type is TargetType.UTILIZATION:
                    only = spec.container if isinstance(spec, ContainerResourceMetric) else None
                    yield from _without_request(metric.name, workload, spec.name, only)
                continue
            if not isinstance(spec, PodsMetric):
                continue
            has_values = (meta.key, spec.name) in inputs.cluster.measured
            if spec.name in _GPU_METRICS and not workload.asks_for_gpus and not has_values:
                # With values, GPUs are evidently tied to the pods, by whatever scheme.
                yield NO_GPU_REQUEST.found(
                    metric.name,
                    f"It is scaled by {spec.name}, and no container of {workload.title} asks for a GPU.",
                    f"{workload.title} has no limit of a GPU resource",
                    Fix(
                        NO_GPU_REQUEST.fix,
                        _get(workload) if is_live else "",
                    ),
                )
            if not has_values:
                served = inputs.custom.servings(spec.name)
                series = next((each.series for each in served), None) or spec.name
                yield from _of_mig(metric.name, workload, series)
    for found in inputs.scaled_objects:
        kind = found_kind(found.scaled.target_kind)
        key = found.scaled.metadata.namespace, kind, found.scaled.target_name
        workload = inputs.workloads.get(key)
        if workload is None or not workload.has_template:
            continue
        for index, trigger in enumerate(found.scaled.triggers):
            for name in _series(trigger):
                place = found.place("spec", "triggers", index, "metadata", "query")
                # The query may read the GPUs of others.
                check = NO_GPU_UTIL.at(Severity.WARNING)
                yield from _of_mig(place, workload, name, check)
            if trigger.is_resource and trigger.metric_type == TargetType.UTILIZATION.value:
                only = trigger.metadata.get("containerName")
                place = found.place("spec", "triggers", index, "type")
                yield from _without_request(place, workload, trigger.kind, only)


def _series(trigger: ScaleTrigger) -> Iterator[str]:
    """Yield the series of a prometheus trigger's query, each once."""
    if trigger.kind != PROMETHEUS:
        return
    with suppress(QueryError):
        yield from dict.fromkeys(
            str(each.series) for each in reads(parse_query(trigger.query).root)
        )


def _get(workload: Workload) -> str:
    pods = workload.pods
    return f"kubectl get {pods.kind.lower()} -n {pods.namespace} {pods.name} -o yaml"


def _without_request(
    place: Place, workload: Workload, resource: str, only: str | None
) -> Iterator[LintFinding]:
    pods = workload.pods
    names = [each.name for each in pods.spec.containers]
    names += [each.text("name") for each in pods.part.items("initContainers")]
    if only is not None and only not in names:
        yield NO_RESOURCE_REQUEST.at(Severity.WARNING).found(
            place,
            f"Its target is a percentage of the {resource} request of container {only}, and the pods have "
            "no container of that name, unless something adds one to them.",
            f"{workload.title} has {', '.join(names)}",
            f"Name a container of {workload.title}.",
        )
        return
    without = [
        each.name
        for each in pods.spec.containers
        if only in (None, each.name) and resource not in each.requests
    ]
    if not without or resource in pods.spec.requests:
        return
    command = shlex.join(
        (
            *("kubectl", "set", "resources", "-n", pods.namespace, pods.kind.lower(), pods.name),
            *("-c", without[0], f"--requests={resource}=AMOUNT"),
        )
    )
    # The default of a LimitRange may give the request to pods; files don't say whether there is one.
    check = NO_RESOURCE_REQUEST if workload.is_live else NO_RESOURCE_REQUEST.at(Severity.WARNING)
    unless = "" if workload.is_live else ", unless a LimitRange of the namespace gives one"
    yield check.found(
        place,
        f"Its target is a percentage of the {resource} request, and container {without[0]} makes none"
        f"{unless}.",
        f"{pods.kind} {pods.namespace}/{pods.name}: no request of {resource} in {', '.join(without)}",
        Fix(
            f"Give container {without[0]} a request of {resource}, or set an averageValue.",
            command if workload.is_live else "",
        ),
    )


def _of_mig(
    place: Place, workload: Workload, series: str, check: Check = NO_GPU_UTIL
) -> Iterator[LintFinding]:
    gpus = workload.pods.gpus
    is_mig = gpus and all(name.startswith("nvidia.com/mig-") for name in gpus)
    if series in _NOT_OF_MIG and is_mig:
        yield check.found(
            place,
            f"{workload.title} asks for {next(iter(gpus))}, and a MIG instance has no {series}: NVML gives "
            "no utilization where MIG is on, so the metric has no value.",
            "",
            "Scale on DCGM_FI_PROF_GR_ENGINE_ACTIVE, a ratio, which each instance has.",
        )


# Replicas


def _replicas(inputs: Inputs, scaler: Autoscaler, workload: Workload) -> Iterator[LintFinding]:
    manager = _manager(workload)
    if manager is not None:
        who, say = next(
            (each for word, each in _RECONCILERS.items() if word in manager),
            (manager, REPLICAS_OWNED.fix),
        )
        yield REPLICAS_OWNED.found(
            scaler.reference,
            f"{who} sets spec.replicas of {workload.title} too, and sets it back at each sync.",
            f"{manager} owns the field spec.replicas",
            Fix(say, f"{_get(workload)} --show-managed-fields" if workload.is_live else ""),
        )
        return
    replicas = workload.written_replicas
    if not replicas:
        return  # Of 0, another check says what comes of it.
    file = workload.part.document.source
    reconcilers = [each for each in inputs.reconcilers if each.applies(file)]
    if any(each.leaves_replicas for each in reconcilers):
        return
    tracks = {*workload.part.fields("metadata", "annotations")}
    tracks |= {*workload.part.fields("metadata", "labels")}
    managers = (each for key, each in _TRACKS.items() if key in tracks)
    by = next(managers, reconcilers[0].manager if reconcilers else None)
    who, say = (
        ("each apply", "Take replicas out of the manifest, and out of what was applied last.")
        if by is None
        else _RECONCILERS[next(word for word in _RECONCILERS if word in by)]
    )
    is_below, is_above = replicas < scaler.least, replicas > scaler.most
    then = "which undoes what the HPA wrote"
    if is_below:
        then = f"below {scaler.least_key} {scaler.least}: pods go, and the HPA makes them again"
    elif is_above:
        then = f"above {scaler.most_key} {scaler.most}: pods are made, and the HPA takes them away again"
    is_certain = by is not None or is_below or is_above
    check = REPLICAS_OWNED if is_certain else REPLICAS_OWNED.at(Severity.NOTE)
    yield check.found(
        workload.part.place("spec", "replicas"),
        f"The manifest of {workload.title} writes replicas: {replicas}, and {scaler.title} scales it: {who} "
        f"sets it to {replicas}, {then}.",
        "\n".join(
            (
                f"{scaler.reference}: {scaler.title}",
                *(f"{each.part.place()}: {each.part.text('kind')}" for each in reconcilers),
            )
        ),
        say,
    )


def _manager(workload: Workload) -> str | None:
    """Return the manager that keeps resetting the replicas, as the object's managed fields show it."""
    for each in workload.part.items("metadata", "managedFields"):
        manager = each.text("manager")
        owns = "f:replicas" in each.fields("fieldsV1", "f:spec")
        applies = each.text("operation") == "Apply" and "kubectl" not in manager
        is_known = any(word in manager for word in _RECONCILERS)
        if owns and not each.text("subresource") and (applies or is_known):
            return manager
    annotations = workload.part.fields("metadata", "annotations")
    if _TRACKED in annotations and _applies_replicas(annotations):
        return "argocd-controller"
    return None


def _applies_replicas(annotations: Mapping[str, object]) -> bool:
    try:
        spec = json.loads(str(annotations.get(_LAST_APPLIED, "")))["spec"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
    return isinstance(spec, dict) and "replicas" in spec


JUDGE = FileJudge(
    "scale-targets",
    Checks(including=(SCALE_TARGET_CHECKS, AGENT_SERIES_CHECKS)),
    scale_target_findings,
)
