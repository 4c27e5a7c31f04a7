"""Notes on a decision: which rules shaped it, and what to change for another result.

Conditions report stabilization, rates and bounds. The dead band and pods that are not counted leave no
trace in them; these are found by deciding again without the rule.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpuscale.base.golang.durations import format_duration
from gpuscale.base.objects.hpa import (
    ExternalMetric,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
    ScalingRules,
    SelectPolicy,
)
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.quantity import Quantity
from gpuscale.hpa.decisions.document_fields import NOW_MS
from gpuscale.hpa.decisions.documents import DecisionRequest, decide_request
from gpuscale.hpa.decisions.observed import metric_label
from gpuscale.hpa.kernel.numbers import MIN_INT32
from gpuscale.hpa.replicas.numbers import scale_down_window_s
from gpuscale.hpa.replicas.tolerances import tolerances_for_hpa, tolerances_text
from gpuscale.hpa.terms.conditions import ABLE_TO_SCALE, SCALING_LIMITED, could_decide
from gpuscale.hpa.terms.queries import metric_command, pods_command, scale_command, why_command
from gpuscale.hpa.terms.samples import is_code, is_one_number
from gpuscale.hpa.terms.units import spec_unit_fault
from gpuscale.hpa.terms.versions import SCALE_TO_ZERO, TOLERANCE
from gpuscale.hpa.types import (
    ContainerUsages,
    Decision,
    ExternalValues,
    FetchError,
    MetricStatus,
    ObjectValue,
    Observation,
    PodValues,
    ReadyCondition,
    Recommendation,
)
from gpuscale.signals import impossible


@dataclass(frozen=True, slots=True)
class DecisionNote:
    """A note on a rule that shaped a decision."""

    rule: str
    """Its name, such as `tolerance`."""
    effect: str
    remedy: str
    """What to change, or how to find out more."""


def decision_notes(request: DecisionRequest, decision: Decision) -> tuple[DecisionNote, ...]:
    """Return the notes on a decision, in the order of the rules."""
    if not decision.metrics:
        return (_without_metrics(request, decision),)
    failed = tuple(_failed_metrics(request, decision))
    if not could_decide(decision):
        return failed
    return (
        *failed,
        *_units(request, decision),
        *_uncounted_pods(request, decision),
        *_tolerance(request, decision),
        *_stabilization(request, decision),
        *_limits(request, decision),
    )


ABSURD_RATIO = 1e4
"""More pods than a cluster runs; a value so far above its target is in another unit."""
_UNIT = "unit of the target"
_GPUS_OF_A_POD, _GPUS_OF_ALL = 128, 1_000_000
"""As many GPUs as a rule may have summed up in one value: a pod has at most 16, each in 7 parts."""


def _units(request: DecisionRequest, decision: Decision) -> Iterator[DecisionNote]:
    for spec, status in zip(request.hpa.metrics, decision.metrics, strict=True):
        fault = spec_unit_fault(spec)
        ratio = _times_target(spec, status)
        impossible = _impossible_values(spec, request.observations[status.index])
        if ratio > ABSURD_RATIO and not impossible:
            impossible = _no_readings(spec, request.observations[status.index])
        if impossible:
            yield DecisionNote("impossible value", impossible, _IMPOSSIBLE_REMEDY)
        if fault is not None:
            yield DecisionNote(_UNIT, fault.what, fault.fix())
        elif ratio > ABSURD_RATIO and not impossible:
            effect = f"{metric_label(spec)} is {ratio:.3g} times its target, {status.target}."
            if status.proposed_replicas == MIN_INT32:
                effect += (
                    " That asks for more replicas than 32 bits hold; kube-controller-manager on amd64 takes "
                    f"it for {MIN_INT32}, and so for none."
                )
            remedy = "Does the target lack its unit? 16Gi is 16 GiB, 16 is 16 bytes."
            yield DecisionNote(_UNIT, effect, remedy)


_IMPOSSIBLE_REMEDY = (
    "An exporter or a driver gave a number that is no reading. gpuscale's metrics API leaves it out; another "
    "one does if its rule compares, such as `<<.Series>>{<<.LabelMatchers>>} <= 100`."
)


def _values(spec: MetricSpec, observation: Observation) -> list[tuple[str, int]]:
    """Return whose each value is, and the value in thousandths."""
    match spec, observation:
        case PodsMetric(), PodValues():
            return [(f"Pod {each.object_name}: ", each.value_milli) for each in observation.samples]
        case ObjectMetric(), ObjectValue():
            return [("", observation.value_milli)]
        case ExternalMetric(), ExternalValues():
            return [("", each) for each in observation.values_milli]
        case _:
            return []


def _no_readings(spec: MetricSpec, observation: Observation) -> str:
    """Return the value that is a code or far from what other pods have, where no unit explains it."""
    values = _values(spec, observation)
    for whose, milli in values:
        if is_code(milli / 1000):
            said = f'{metric_label(spec)} is {milli // 1000}, a code of DCGM or NVML for "no value"'
            return f"{whose}{said}. The controller counts it."
    target = spec.target.average_value or spec.target.value
    if target is None or not isinstance(spec, PodsMetric):
        return ""
    most = ABSURD_RATIO * target.milli_value()
    usual = [milli for _, milli in values if milli <= most]
    if not usual:
        return ""  # All pods have it, so that the target may be in another unit.
    whose, milli = max(values, key=lambda each: each[1])
    return (
        f"{whose}{metric_label(spec)} is {milli / 1000:.6g}, where other pods have {max(usual) / 1000:.6g} "
        "at most. The controller counts it."
    )


def _impossible_values(spec: MetricSpec, observation: Observation) -> str:
    """Return the metric values that no GPU can have; the controller counts them nevertheless."""
    values = _values(spec, observation)
    most = _GPUS_OF_A_POD if isinstance(spec, PodsMetric) else _GPUS_OF_ALL
    found = [
        f"{whose}{said}"
        for whose, milli in values
        if (said := impossible(spec.name, milli / 1000, summed_of=most)) is not None
    ]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{found[0]}{more}. The controller counts it." if found else ""


def _times_target(spec: MetricSpec, status: MetricStatus) -> float:
    """Return a metric's ratio to its target; 0 if it has no value."""
    target = spec.target
    if target.average_utilization is not None:
        return (status.average_utilization or 0) / target.average_utilization
    if target.average_value is not None:
        return (status.average_value_milli or 0) / target.average_value.milli_value()
    if target.value is not None:
        return (status.value_milli or 0) / target.value.milli_value()
    return 0.0


# Decided without a look at metrics


def _without_metrics(request: DecisionRequest, decision: Decision) -> DecisionNote:
    hpa, count = request.hpa, request.scale.spec_replicas
    if request.scale_error:
        return DecisionNote(
            "scale",
            "Without its target's scale the HPA looks at nothing else.",
            f"See that spec.scaleTargetRef names a {hpa.target.kind} that is there, with its apiVersion, and "
            "that its kind has a scale subresource.",
        )
    if decision.rescale:
        above = count > hpa.max_replicas
        bound = "spec.maxReplicas" if above else "spec.minReplicas"
        return DecisionNote(
            bound.removeprefix("spec."),
            "A count outside the bounds is set to the bound before anything else is looked at.",
            f"{'Raise' if above else 'Lower'} {bound} of the HPA if the count was meant.",
        )
    if count == 0:
        effect = "An HPA leaves a target with 0 replicas alone."
        remedy = f"Start it by hand: {scale_command(hpa.target, hpa.metadata.namespace, 1)}"
        if hpa.min_replicas == 0:
            effect = (
                "From 0 replicas an HPA wakes only what it put to 0 itself, which the condition ScaledToZero "
                "says; a 0 that something else wrote is a pause."
            )
            remedy += (
                ". If a manifest in Git has replicas: 0, take the field out, or it stops again at the next "
                "apply."
            )
        return DecisionNote("pause", effect, remedy)
    if len(request.selecting_hpas) > 1:
        others = ", ".join(key for key in request.selecting_hpas if key != hpa.metadata.key)
        return DecisionNote(
            "ambiguous selector",
            f"Pods of this HPA's target are also pods of the target of {others}; "
            "that stops each of the HPAs.",
            "Keep one HPA for each target, and give targets selectors that find no pod of another.",
        )
    return DecisionNote(
        "selector",
        "The HPA does not know which pods are its target's.",
        "Correct the selector in the status of the target's scale; "
        "a custom resource names it with labelSelectorPath.",
    )


# Metrics that failed


def _failed_metrics(request: DecisionRequest, decision: Decision) -> Iterator[DecisionNote]:
    if could_decide(decision):
        effect = "The other metrics decide; they can raise the count and not lower it."
    elif all(status.error is not None for status in decision.metrics):
        effect = "Without a metric there is no count to scale to."
    else:
        asked = _asked(decision)
        effect = f"The other metrics ask for {asked}, but while one fails the count is not lowered."
    namespace, selector = request.hpa.metadata.namespace, request.scale.selector
    for status in decision.metrics:
        if status.error is None:
            continue
        spec = request.hpa.metrics[status.index]
        if _is_empty(request.observations[status.index]):
            why = why_command(spec, namespace, selector)
            remedy = f"Ask as the controller does: {metric_command(spec, namespace, selector)}"
            if why:
                remedy += f"; or follow it hop by hop: {why}"
        elif "missing request" in status.error or "missing pod-level request" in status.error:
            remedy = "Give every container of the target's pods a request for the resource."
        elif status.error.startswith("invalid "):
            remedy = "Make target.type name the target field that is set."
        else:
            remedy = f"Look at the target's pods: {pods_command(namespace, selector)}"
        yield DecisionNote(f"failed metric {metric_label(spec)}", effect, remedy)


def _is_empty(observation: Observation) -> bool:
    match observation:
        case FetchError():
            return True
        case PodValues() | ContainerUsages():
            return not observation.samples
        case ExternalValues():
            return not observation.values_milli
        case _:
            return False


# Pods that are not counted


def _uncounted_pods(request: DecisionRequest, decision: Decision) -> Iterator[DecisionNote]:
    for index, spec in enumerate(request.hpa.metrics):
        if isinstance(spec, ObjectMetric | ExternalMetric):
            ready = tuple(
                replace(pod, phase=PodPhase.RUNNING, ready=ReadyCondition.TRUE)
                for pod in request.pods
            )
            asked = _asked_if(decision, index, replace(request, pods=ready))
            if asked is not None:
                yield DecisionNote(
                    "ready pods",
                    "A Value target multiplies only the pods that run and are ready; "
                    f"with all of them ready the metrics would ask for {asked}.",
                    "Get the pods ready, or use an AverageValue target, which does not look at them.",
                )
            continue
        seen = request.observations[index]
        names = set(seen.pods) if isinstance(seen, PodValues | ContainerUsages) else set[str]()
        # Only pods whose samples count, each as if it had been ready for long.
        measured = tuple(
            replace(pod, ready=ReadyCondition.TRUE, ready_transition_ms=0, start_ms=0)
            for pod in request.pods
            if pod.name in names and pod.phase is not PodPhase.PENDING
        )
        asked = _asked_if(decision, index, replace(request, pods=measured))
        if asked is not None:
            command = pods_command(request.hpa.metadata.namespace, request.scale.selector)
            yield DecisionNote(
                "pods without a sample",
                "Pods that are not ready or have no sample damp the change; "
                f"without them the metrics would ask for {asked}.",
                f"Find out why they report nothing: {command}",
            )


def _asked_if(decision: Decision, index: int, other: DecisionRequest) -> int | None:
    """Return the count that the metrics would propose for another request; None if unchanged."""
    instead = decide_request(other).metrics[index]
    if instead.proposed_replicas is None or decision.metrics[index].proposed_replicas is None:
        return None
    statuses = (*decision.metrics[:index], instead, *decision.metrics[index + 1 :])
    asked = _highest(statuses)
    return None if asked == _asked(decision) else asked


def _asked(decision: Decision) -> int:
    return _highest(decision.metrics)


def _highest(statuses: Sequence[MetricStatus]) -> int:
    """Return the highest proposed count; a negative one counts as none."""
    counts = [s.proposed_replicas for s in statuses if s.proposed_replicas is not None]
    return max([0, *counts])


# The dead band


def _tolerance(request: DecisionRequest, decision: Decision) -> Iterator[DecisionNote]:
    exact = request.hpa
    if exact.behavior is not None:
        none = Quantity(0)
        behavior = replace(
            exact.behavior,
            scale_up=replace(exact.behavior.scale_up, tolerance=none),
            scale_down=replace(exact.behavior.scale_down, tolerance=none),
        )
        exact = replace(exact, behavior=behavior)
    settings = replace(request.settings, tolerance=0.0)
    asked = _asked(decide_request(replace(request, hpa=exact, settings=settings)))
    if asked == _asked(decision):
        return
    tolerances = tolerances_for_hpa(request.hpa, request.settings)
    is_up = asked > _asked(decision)
    direction = "scaleUp" if is_up else "scaleDown"
    ratio = tolerances.scale_up if is_up else tolerances.scale_down
    own = f"Set spec.behavior.{direction}.tolerance below {ratio:g}"
    gate = f"the feature gate {TOLERANCE.name}"
    match None if request.kubernetes is None else TOLERANCE.stage(request.kubernetes):
        case "beta" | "stable":
            remedy = f"{own}, or move the target."
        case "alpha":
            remedy = f"{own} (with {gate}), or move the target."
        case "absent":
            before = TOLERANCE.alpha
            remedy = (
                f"Move the target: before Kubernetes {before} an HPA has no tolerance of its own."
            )
        case _:
            remedy = (
                f"{own} (from Kubernetes {TOLERANCE.beta} on; in {TOLERANCE.alpha} and "
                f"{TOLERANCE.last_alpha} with {gate}), or move the target."
            )
    yield DecisionNote(
        "tolerance",
        f"A ratio from {tolerances_text(tolerances)} counts as on target; without that the metrics would ask "
        f"for {asked}.",
        remedy,
    )


# Stabilization


def _stabilization(request: DecisionRequest, decision: Decision) -> Iterator[DecisionNote]:
    reason = _reason(decision, ABLE_TO_SCALE)
    if reason not in {"ScaleUpStabilized", "ScaleDownStabilized"}:
        return
    is_up = reason == "ScaleUpStabilized"
    behavior, window_s = request.hpa.behavior, request.settings.downscale_stabilization_s
    if behavior is not None and is_up:
        window_s = behavior.scale_up.stabilization_window_s or 0
    elif behavior is not None:
        window_s = scale_down_window_s(behavior, window_s)
    asked = _asked(decision)
    seed = Recommendation(request.scale.spec_replicas, NOW_MS)
    # The count is kept until no recommendation in the window is above the proposal.
    against = [
        each.time_ms
        for each in request.state.recommendations or (seed,)
        if (each.replicas < asked if is_up else each.replicas > asked)
    ]
    wait_ms = max(0, max(against, default=NOW_MS) + window_s * 1000 - NOW_MS)
    wait, window = format_duration(wait_ms), format_duration(window_s * 1000)
    kept, direction = ("lowest", "scaleUp") if is_up else ("highest", "scaleDown")
    first = (
        " The document tells of no history: for a first sync that starts with the count there is."
        if request.is_first_sync
        else ""
    )
    most = "at most " if request.unknown else ""  # the controller's memory may be older
    yield DecisionNote(
        "stabilization",
        f"The metrics ask for {asked}; the {kept} count of the last {window} holds.{first}",
        f"Wait: if they go on asking for {asked}, it holds for {most}another {wait}. A shorter "
        f"spec.behavior.{direction}.stabilizationWindowSeconds ends it earlier.",
    )


# Rates and bounds


def _limits(request: DecisionRequest, decision: Decision) -> Iterator[DecisionNote]:
    hpa = request.hpa
    match _reason(decision, SCALING_LIMITED):
        case "TooManyReplicas" if (same := _one_number(request)) is not None:
            yield DecisionNote(
                "maxReplicas",
                f"The count is cut to spec.maxReplicas, {hpa.max_replicas}, and {same}: a number of all of "
                "them, such as a queue's length, is no smaller with more pods.",
                "If it is one number, ask for it as an External or Object metric with averageValue, which "
                "divides it by the pods; raise spec.maxReplicas only if each pod measured its own.",
            )
        case "TooManyReplicas":
            yield DecisionNote(
                "maxReplicas",
                f"The count is cut to spec.maxReplicas, {hpa.max_replicas}.",
                "Raise spec.maxReplicas, and see that the nodes have room for more pods.",
            )
        case "TooFewReplicas":
            gate = f"the feature gate {SCALE_TO_ZERO.name}"
            needed = "an Object or External metric"
            if not request.settings.scale_to_zero and request.kubernetes is not None:
                needed = f"{gate} and {needed}"
            elif not request.settings.scale_to_zero:
                needed = f"{needed}, and before Kubernetes {SCALE_TO_ZERO.beta} {gate}"
            remedy = f"Nothing, unless the target may stop: spec.minReplicas 0 takes {needed}."
            yield DecisionNote(
                "minReplicas",
                f"The count is raised to spec.minReplicas, {hpa.min_replicas}.",
                remedy if hpa.min_replicas == 1 else "Lower spec.minReplicas.",
            )
        case "ScaleUpLimit" if hpa.behavior is not None:
            yield _policy_limit("scaleUp", hpa.behavior.scale_up, decision)
        case "ScaleUpLimit":
            yield DecisionNote(
                "scale-up limit",
                "In one sync an HPA without spec.behavior at most doubles the count, or goes to 4.",
                "Wait: the next sync goes on from there. spec.behavior.scaleUp.policies sets another rate.",
            )
        case "ScaleDownLimit" if hpa.behavior is not None:
            yield _policy_limit("scaleDown", hpa.behavior.scale_down, decision)


def _one_number(request: DecisionRequest) -> str | None:
    """Return which metric has the same value of every pod; None for none."""
    for spec, observation in zip(request.hpa.metrics, request.observations, strict=True):
        values = [milli for _, milli in _values(spec, observation)]
        if isinstance(spec, PodsMetric) and is_one_number(spec.name, values):
            return f"all {len(values)} pods report {metric_label(spec)} {values[0] / 1000:g}"
    return None


def _policy_limit(direction: str, rules: ScalingRules, decision: Decision) -> DecisionNote:
    field = f"spec.behavior.{direction}"
    if rules.select_policy is SelectPolicy.DISABLED:
        return DecisionNote(
            "selectPolicy", f"{field}.selectPolicy is Disabled.", "Set it to Max or Min."
        )
    return DecisionNote(
        "policies",
        f"{field}.policies let the count go no further than {decision.desired_replicas} now.",
        "Wait until earlier changes are older than the policies' periods, or let them allow more.",
    )


def _reason(decision: Decision, kind: str) -> str:
    """Return a condition's reason before the scale is written, which would replace it."""
    conditions = decision.state_before_write.conditions
    return next((c.reason for c in conditions if c.type == kind), "")
