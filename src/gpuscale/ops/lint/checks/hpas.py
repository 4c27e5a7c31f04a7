"""Faults of autoscalers that don't depend on rules.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go and metrics/client.go (which field of a
    target counts; what is asked for); pkg/apis/autoscaling/validation/validation.go (what passes).
"""

from collections.abc import Iterator

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.gpu_resources import gpu_kind
from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    ExternalMetric,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    TargetType,
    selector_fault,
)
from gpuscale.base.quantity import Quantity
from gpuscale.hpa.terms import MARKS_ZERO, SCALE_TO_ZERO, TOLERANCE, KubernetesVersion
from gpuscale.ops.lint.autoscalers import Autoscaler, autoscalers
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.hpa_places import PlacedMetric, placed_metrics
from gpuscale.ops.lint.inputs import FileJudge, Inputs, PlacedHpa
from gpuscale.ops.lint.workloads import ObjectKey, found_kind
from gpuscale.server.rules import (
    KUBERNETES,
    NAMESPACES,
    ResourceType,
    UnknownResourceError,
)

_CHECKS = Checks()
IMPOSSIBLE_SELECTOR = _CHECKS.add(
    "impossible-selector",
    Severity.ERROR,
    "A metric selector that the controller can't ask with.",
    "Write a key, an operator and values that Kubernetes takes; where no label can have the value, give the "
    "series another one, with a recording rule or a relabelling, or put the condition into metricsQuery.",
)
CLUSTER_SCOPED_OBJECT = _CHECKS.add(
    "cluster-scoped-object",
    Severity.ERROR,
    "An object without a namespace, which an HPA can't ask for.",
    "Use an External metric with a selector, or a metric of an object in the namespace.",
)
NAMESPACE_NAME_IGNORED = _CHECKS.add(
    "namespace-name-ignored",
    Severity.WARNING,
    "A Namespace other than the HPA's own.",
    "Name the namespace of the HPA, or use an External metric with a selector.",
)
IGNORED_TARGET_TYPE = _CHECKS.add(
    "ignored-target-type",
    Severity.WARNING,
    "`target.type` names another field than the one that counts.",
    "Write the type of the field that counts.",
)
CONTRADICTING_TARGET_TYPE = _CHECKS.add(
    "contradicting-target-type",
    Severity.ERROR,
    "`target.type` names a field that is not set.",
    "Write type: Value with value, or type: AverageValue with averageValue.",
)
IGNORED_TARGET_FIELD = _CHECKS.add(
    "ignored-target-field",
    Severity.WARNING,
    "A field of the target that the controller does not look at.",
    "Leave the field out.",
)
GPU_RESOURCE_METRIC = _CHECKS.add(
    "gpu-resource-metric",
    Severity.ERROR,
    "A Resource metric on GPUs, which Kubernetes does not measure.",
    "Use a Pods metric such as DCGM_FI_DEV_GPU_UTIL, with a rule that serves it.",
)
SCALE_TO_ZERO_GATE = _CHECKS.add(
    "scale-to-zero-gate",
    Severity.NOTE,
    "`minReplicas: 0`, which takes a feature gate before Kubernetes 1.37.",
    "Turn it on in kube-apiserver and kube-controller-manager, or take minReplicas 1.",
)
TOLERANCE_GATE = _CHECKS.add(
    "tolerance-gate",
    Severity.WARNING,
    "A tolerance of the HPA's own, with `--kubernetes-version` of a release that drops it.",
    "Leave it out, or turn the gate on where there is one.",
)
ZERO_IN_MANIFEST = _CHECKS.add(
    "zero-in-manifest",
    Severity.WARNING,
    "An HPA whose target's manifest writes `replicas: 0`: it never wakes, or is paused at each apply.",
    "Take replicas out of the manifest; who applies it then leaves the count to the HPA.",
)
CHAIN_CHECKS = Checks("autoscaler")
TWO_HPAS = CHAIN_CHECKS.add(
    "two-hpas",
    Severity.ERROR,
    "Two autoscalers of one target.",
    "Put the metrics of both into one HPA; the highest count wins.",
)
REMOVED_API_VERSION = CHAIN_CHECKS.add(
    "removed-api-version",
    Severity.ERROR,
    "An API version, or a kind, that is no longer served.",
    "Write what replaced it, such as autoscaling/v2.",
)
DESCRIBED_OBJECT_ABSENT = CHAIN_CHECKS.add(
    "described-object-absent",
    Severity.ERROR,
    "An Object metric of an object that is not in the HPA's namespace, or of a kind that is not there.",
    "Name an object of the HPA's own namespace; the controller looks nowhere else.",
)

_KINDS = {each.kind.lower(): each.kind for each in KUBERNETES.types}


def hpa_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the faults of the files' autoscalers."""
    for whole, gone in inputs.removed:
        yield REMOVED_API_VERSION.found(
            whole.place("apiVersion"),
            f"{gone.since} and later do not serve {whole.text('apiVersion')}.",
            "",
            f"Write {gone.instead}: {gone.how}.",
        )
    for placed in inputs.hpas:
        yield from _scale_to_zero(placed, inputs.kubernetes)
        yield from _tolerance(placed, inputs.kubernetes)
        for metric in placed_metrics(placed):
            yield from _metric_findings(metric)
        yield from _zero_in_manifest(inputs, placed)
    yield from _one_target(inputs)


def described_resource(spec: ObjectMetric) -> ResourceType | None:
    """Return the resource of an Object metric; None for a kind that is not built in."""
    described = spec.described_object
    try:
        return KUBERNETES.find_kind(described.kind, described.api_version)
    except UnknownResourceError:
        return None


def _scale_to_zero(placed: PlacedHpa, version: KubernetesVersion | None) -> Iterator[LintFinding]:
    gate = SCALE_TO_ZERO
    if placed.hpa.min_replicas != 0 or (version is not None and gate.is_on(version)):
        return
    since = (
        f"The gate is off by default up to Kubernetes {gate.last_alpha}, and on from {gate.beta}; turned off "
        "again, it leaves at 0 what is there."
    )
    yield SCALE_TO_ZERO_GATE.found(
        placed.place("spec", "minReplicas"),
        f"minReplicas 0 is taken only with the feature gate {gate.name}."
        if version is not None
        else f"Before Kubernetes {gate.beta}, minReplicas 0 is taken only with the feature gate {gate.name}.",
        since,
    )


def _tolerance(placed: PlacedHpa, version: KubernetesVersion | None) -> Iterator[LintFinding]:
    behavior = placed.hpa.behavior
    if version is None or behavior is None or TOLERANCE.is_on(version):
        return
    has_gate = TOLERANCE.stage(version) == "alpha"
    for key, rules in (("scaleUp", behavior.scale_up), ("scaleDown", behavior.scale_down)):
        if rules.tolerance is not None:
            yield TOLERANCE_GATE.found(
                placed.place("spec", "behavior", key, "tolerance"),
                f"Kubernetes {version} drops the tolerance"
                + (f" unless the feature gate {TOLERANCE.name} is on." if has_gate else "."),
                f"It is there from {TOLERANCE.alpha} with the gate, and from {TOLERANCE.beta} by default.",
            )


def _zero_in_manifest(inputs: Inputs, placed: PlacedHpa) -> Iterator[LintFinding]:
    hpa = placed.hpa
    key = hpa.metadata.namespace, found_kind(hpa.target.kind), hpa.target.name
    workload = inputs.workloads.get(key)
    if workload is None or workload.written_replicas != 0:
        return
    what = f"The manifest of {workload.title} writes replicas: 0"
    if hpa.min_replicas != 0:
        says = f"{what}, which pauses the HPA each time it is applied."
    elif inputs.kubernetes is None or inputs.kubernetes >= MARKS_ZERO:
        says = (
            f"{what}: the HPA wakes only what it put to 0 itself (condition ScaledToZero), so it stays at 0 "
            "until somebody scales it up."
        )
    else:
        says = f"{what}, so that each apply stops the workload whatever its load."
    yield ZERO_IN_MANIFEST.found(
        placed.place("spec", "scaleTargetRef"),
        says,
        f"{workload.part.place('spec', 'replicas')}: replicas: 0",
    )


def _one_target(inputs: Inputs) -> Iterator[LintFinding]:
    """Report an object with two autoscalers; HPAs come first, in any file order."""
    first: dict[ObjectKey, Autoscaler] = {}
    for scaler in autoscalers(inputs):
        other = first.setdefault(scaler.target, scaler)
        if other is scaler or other.title == scaler.title:
            continue
        _, kind, name = scaler.target
        kedas = ", of which KEDA makes an HPA" if other.is_kedas else ""
        check, what = TWO_HPAS, "has another HPA already: neither scales it (AmbiguousSelector)."
        if other.is_own or scaler.is_own:
            check = TWO_HPAS.at(Severity.WARNING)
            what = "has another autoscaler already: each sets back what the other wrote."
        # What somebody made beside a ScaledObject goes: KEDA makes its own HPA again.
        spare = other if scaler.is_kedas else scaler
        yield check.found(
            scaler.reference,
            f"{kind} {name} {what}",
            f"{other.reference}: {other.title}{kedas}",
            Fix(TWO_HPAS.fix, spare.kubectl("delete")),
        )


def _metric_findings(metric: PlacedMetric) -> Iterator[LintFinding]:
    match metric.spec:
        case PodsMetric(target=target):
            yield from _pods_target(metric, target)
        case ObjectMetric(target=target):
            yield from _object_target(metric, target)
            yield from _object(metric, metric.spec)
        case ExternalMetric(target=target):
            yield from _external_target(metric, target)
        case ResourceMetric() | ContainerResourceMetric():
            yield from _resource_target(metric, metric.spec)
    if fault := selector_fault(metric.spec):
        yield IMPOSSIBLE_SELECTOR.found(
            metric.selector,
            f"The controller can't ask with this selector: {fault}.",
            "The API server stores it, and the metric then fails at each sync.",
        )


# Targets


def _pods_target(metric: PlacedMetric, target: MetricTarget) -> Iterator[LintFinding]:
    if target.type is not TargetType.AVERAGE_VALUE:
        yield _ignored_type(
            metric,
            target.type,
            f"for a Pods metric the controller reads averageValue alone: it compares the mean of "
            f"the pods' values with {target.average_value}, and nothing is a percentage of a "
            "request.",
            "Write type: AverageValue, which is what happens.",
        )
    yield from _ignored_fields(metric, target, "averageValue")


def _object_target(metric: PlacedMetric, target: MetricTarget) -> Iterator[LintFinding]:
    wanted = {TargetType.VALUE: "value", TargetType.AVERAGE_VALUE: "averageValue"}
    field = wanted.get(target.type)
    if field is not None and _fields(target)[field] is not None:
        yield from _ignored_fields(metric, target, field)
        return
    given = " and ".join(name for name, value in _fields(target).items() if value is not None)
    yield CONTRADICTING_TARGET_TYPE.found(
        metric.target_type,
        f"type: {target.type.value} with {given}: for an Object metric the type says which field "
        "counts, and that one is not set.",
        "The API server takes it, and each sync ends with: invalid object metric source: neither "
        "a value target nor an average value target was set",
    )


def _external_target(metric: PlacedMetric, target: MetricTarget) -> Iterator[LintFinding]:
    field = "value" if target.average_value is None else "averageValue"
    named = TargetType.VALUE if field == "value" else TargetType.AVERAGE_VALUE
    if target.type is not named:
        yield _ignored_type(
            metric,
            target.type,
            f"for an External metric the controller goes by the field that is set, {field}.",
            f"Write type: {named.value}, which is what happens.",
        )
    yield from _ignored_fields(metric, target, field)


def _resource_target(
    metric: PlacedMetric, spec: ResourceMetric | ContainerResourceMetric
) -> Iterator[LintFinding]:
    if gpu_kind(spec.name) is not None:
        yield GPU_RESOURCE_METRIC.found(
            metric.name,
            f"No metrics API serves {spec.name} as a resource: the resource metrics API has cpu and memory.",
        )
    target = spec.target
    field = "averageUtilization" if target.average_utilization is not None else "averageValue"
    named = TargetType.UTILIZATION if field == "averageUtilization" else TargetType.AVERAGE_VALUE
    if target.type is not named:
        yield _ignored_type(
            metric,
            target.type,
            f"for a Resource metric the controller goes by the field that is set, {field}.",
            f"Write type: {named.value}, which is what happens.",
        )
    yield from _ignored_fields(metric, target, field)


def _ignored_type(metric: PlacedMetric, type_: TargetType, why: str, fix: str) -> LintFinding:
    return IGNORED_TARGET_TYPE.found(
        metric.target_type,
        f"type: {type_.value} has no effect: {why}",
        "",
        fix,
    )


def _ignored_fields(
    metric: PlacedMetric, target: MetricTarget, counts: str
) -> Iterator[LintFinding]:
    for field, value in _fields(target).items():
        if value is not None and field != counts:
            yield IGNORED_TARGET_FIELD.found(
                metric.target(field),
                f"{field} has no effect: the controller looks at {counts}.",
                "",
                f"Leave {field} out.",
            )


def _fields(target: MetricTarget) -> dict[str, Quantity | int | None]:
    return {
        "value": target.value,
        "averageValue": target.average_value,
        "averageUtilization": target.average_utilization,
    }


# What is asked for


def _object(metric: PlacedMetric, spec: ObjectMetric) -> Iterator[LintFinding]:
    resource = described_resource(spec)
    described = spec.described_object
    is_own = "." not in described.api_version.rpartition("/")[0]
    meant = _KINDS.get(described.kind.lower())
    if resource is None and is_own and meant not in (None, described.kind):
        # Kubernetes' clients find kinds in lower case too: client-go restmapper/discovery.go.
        is_found = described.kind == described.kind.lower()
        yield DESCRIBED_OBJECT_ABSENT.at(Severity.NOTE if is_found else Severity.ERROR).found(
            metric.described,
            f"The kind is {meant}. The HPA controller finds {described.kind} too; what compares kinds as "
            "they are written doesn't."
            if is_found
            else f"There is no kind {described.kind}; kinds are told apart by case.",
            "",
            f"Write kind: {meant}.",
        )
    if resource is None or resource.namespaced:
        return
    namespace = metric.placed.hpa.metadata.namespace
    if resource != NAMESPACES:
        yield CLUSTER_SCOPED_OBJECT.found(
            metric.described,
            f"An HPA can't read a metric of a {described.kind}: it asks in its own namespace, "
            f"{namespace}, and a {described.kind} is in none.",
            f"It asks for /namespaces/{namespace}/{resource.name}/{described.name}/{spec.name}.",
        )
    elif described.name != namespace:
        yield NAMESPACE_NAME_IGNORED.found(
            metric.described,
            f"The name {described.name} has no effect: the controller asks for the metric of the "
            f"HPA's own namespace, {namespace}.",
            f"It asks for /namespaces/{namespace}/metrics/{spec.name}.",
            f"Name {namespace}, or use an External metric with a selector.",
        )


JUDGE = FileJudge("hpas", Checks(including=(_CHECKS, CHAIN_CHECKS)), hpa_findings)
