"""One sync of one HPA: how many replicas its target should have, and why.

Fetching and writing are the caller's. It reads the scale, the pods and the metrics, calls `decide`,
writes the scale if the decision says so, and keeps the state that `succeeded` or `failed` gives.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (reconcileAutoscaler).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuscale.base.objects.hpa import ExternalMetric, HorizontalPodAutoscaler, ObjectMetric
from gpuscale.hpa.combine import MetricsReplicas, compute_replicas_for_metrics
from gpuscale.hpa.kernel.functions import PLAIN, Kernel
from gpuscale.hpa.kernel.memory import DOWNS, UPS, Cells, Limits
from gpuscale.hpa.kernel.syncing import ABOVE_MAX, BELOW_MIN, MEASURED, PAUSED
from gpuscale.hpa.normalize import normalized_steps, verdicts
from gpuscale.hpa.replicas.calculator import SyncContext
from gpuscale.hpa.replicas.numbers import (
    least_replicas,
    limits_of,
    memory_of,
    recommendations_with,
    scale_events,
)
from gpuscale.hpa.replicas.tolerances import tolerances_for_hpa
from gpuscale.hpa.selectors import SelectorFailure, selector_failure
from gpuscale.hpa.terms.conditions import (
    NOT_SCALED_TO_ZERO,
    SCALED_TO_ZERO,
    SCALED_TO_ZERO_BY_CONTROLLER,
    SCALING_DISABLED,
    SUCCEEDED_GET_SCALE,
    failed_get_scale,
    failed_update_scale,
    is_true,
    remove_condition,
    set_condition,
    set_conditions,
    succeeded_rescale,
)
from gpuscale.hpa.types import (
    DEFAULT_SETTINGS,
    Condition,
    ControllerSettings,
    Decision,
    Event,
    HpaState,
    MetricStatus,
    Observation,
    Outcome,
    PodInfo,
    Recommendation,
    Scale,
)

ABOVE_MAX_TEXT = "Current number of replicas above Spec.MaxReplicas"
BELOW_MIN_TEXT = "Current number of replicas below Spec.MinReplicas"
ALL_BELOW_TARGET_TEXT = "All metrics below target"


@dataclass(frozen=True, slots=True)
class _Zero:
    """What an HPA may do about 0 replicas."""

    hpa: HorizontalPodAutoscaler
    conditions: tuple[Condition, ...]
    settings: ControllerSettings

    @property
    def _has_object_or_external_metrics(self) -> bool:
        return any(isinstance(spec, ObjectMetric | ExternalMetric) for spec in self.hpa.metrics)

    @property
    def may_be_reached(self) -> bool:
        return least_replicas(self.hpa) == 0 and self._has_object_or_external_metrics

    @property
    def may_be_left(self) -> bool:
        """Whether it was this controller that took the target to zero, and there is a way back."""
        least = least_replicas(self.hpa)
        if not self.settings.marks_zero:
            return least == 0
        is_own = self.settings.scale_to_zero and is_true(self.conditions, SCALED_TO_ZERO)
        return is_own and (least != 0 or self._has_object_or_external_metrics)

    @property
    def has_condition(self) -> bool:
        """Whether the controller keeps the condition ScaledToZero."""
        return self.settings.scale_to_zero and self.settings.marks_zero


@dataclass(frozen=True, slots=True)
class _Sync:
    """One sync, once the scale was read."""

    hpa: HorizontalPodAutoscaler
    scale: Scale
    state: HpaState
    settings: ControllerSettings
    now_ms: int
    kernel: Kernel
    limits: Limits
    memory: Cells
    zero: _Zero

    @property
    def current_replicas(self) -> int:
        return self.scale.spec_replicas


def decide(
    hpa: HorizontalPodAutoscaler,
    scale: Scale,
    pods: Sequence[PodInfo],
    observations: Sequence[Observation],
    state: HpaState,
    now_ms: int,
    settings: ControllerSettings = DEFAULT_SETTINGS,
    *,
    selecting_hpas: Sequence[str] = (),
    kernel: Kernel = PLAIN,
) -> Decision:
    """Return what Kubernetes' HPA controller would do now.

    Args:
        hpa: with the API server's defaults filled in.
        scale: of the target, as just read.
        pods: those that the scale's selector finds.
        observations: one per metric of the HPA, in its order; not looked at where this sync looks
            at no metric.
        state: what the last sync of this HPA left; an empty one for the first.
        now_ms: milliseconds since the epoch.
        settings: the controller's flags.
        selecting_hpas: keys of all HPAs whose selector finds one of the pods; more than one stops
            each of them.
        kernel: the arithmetic, interpreted or compiled; both give the same.

    Raises:
        BugError: the observations do not go with the metrics.
    """
    limits, memory = limits_of(hpa, settings, kernel), memory_of(state, kernel)
    current = scale.spec_replicas
    kernel.begin(memory, current, now_ms)
    begun, zero = _begun(state, scale, now_ms), _Zero(hpa, state.conditions, settings)
    sync = _Sync(hpa, scale, begun, settings, now_ms, kernel, limits, memory, zero)
    step = kernel.phase(limits.least, limits.most, current, int(zero.may_be_left))
    if step == PAUSED:
        return _paused(sync)
    if step == ABOVE_MAX:
        return _repaired(sync, limits.most, ABOVE_MAX_TEXT, "maxReplicas")
    if step == BELOW_MIN:
        return _repaired(sync, limits.least, BELOW_MIN_TEXT, "minReplicas")
    failure = selector_failure(scale.selector, selecting_hpas, settings)
    if failure is not None:
        return _refused(sync, failure)
    return _from_metrics(sync, pods, observations)


def needs_metrics(
    hpa: HorizontalPodAutoscaler,
    scale: Scale,
    state: HpaState,
    settings: ControllerSettings = DEFAULT_SETTINGS,
) -> bool:
    """Return whether this sync will look at metrics; if not, there is nothing to fetch."""
    may_leave = _Zero(hpa, state.conditions, settings).may_be_left
    least, most = least_replicas(hpa), hpa.max_replicas
    return PLAIN.phase(least, most, scale.spec_replicas, int(may_leave)) == MEASURED


def _begun(state: HpaState, scale: Scale, now_ms: int) -> HpaState:
    """Return the state once the scale was read; the history of a first sync starts with its count."""
    conditions = set_condition(state.conditions, SUCCEEDED_GET_SCALE, now_ms)
    recommendations = state.recommendations or (Recommendation(scale.spec_replicas, now_ms),)
    return replace(state, conditions=conditions, recommendations=recommendations)


def _paused(sync: _Sync) -> Decision:
    conditions = set_condition(sync.state.conditions, SCALING_DISABLED, sync.now_ms)
    if not sync.zero.has_condition:
        conditions = remove_condition(conditions, SCALED_TO_ZERO)
    state = replace(sync.state, conditions=conditions)
    step = "The target has 0 replicas and this controller did not put it there: scaling is paused."
    return _settled(sync, state, (step,))


def _repaired(sync: _Sync, bound: int, reason: str, field: str) -> Decision:
    step = (
        f"{sync.current_replicas} replicas lie outside {field}, {bound}; "
        "that is repaired at once, without a look at metrics, stabilization or policies."
    )
    return _rescaled(sync, sync.state, bound, reason, (), (), (step,))


def _refused(sync: _Sync, failure: SelectorFailure) -> Decision:
    conditions = set_condition(sync.state.conditions, failure.verdict, sync.now_ms)
    compute = Event("Warning", "FailedComputeMetricsReplicas", failure.text)
    return _unscaled(
        sync,
        replace(sync.state, conditions=conditions),
        (failure.event, compute),
        (),
        (f"Nothing is scaled: {failure.text}.",),
    )


def _from_metrics(
    sync: _Sync, pods: Sequence[PodInfo], observations: Sequence[Observation]
) -> Decision:
    context = SyncContext(
        current_replicas=sync.current_replicas,
        status_replicas=sync.scale.status_replicas,
        pods=pods,
        tolerances=tolerances_for_hpa(sync.hpa, sync.settings),
        settings=sync.settings,
        now_ms=sync.now_ms,
        kernel=sync.kernel,
    )
    computed = compute_replicas_for_metrics(sync.hpa, observations, context)
    conditions = set_condition(sync.state.conditions, computed.verdict, sync.now_ms)
    state = replace(sync.state, conditions=conditions)
    if computed.replicas is None:
        return _unscaled(sync, state, computed.warnings, computed.statuses, computed.explanation)
    return _normalized(sync, state, computed.replicas, computed)


def _normalized(sync: _Sync, state: HpaState, asked: int, computed: MetricsReplicas) -> Decision:
    current = sync.current_replicas
    normalized = sync.kernel.normalized(sync.limits, sync.memory, current, asked, sync.now_ms)
    new = Recommendation(normalized.asked, sync.now_ms)
    state = replace(
        state,
        conditions=set_conditions(state.conditions, verdicts(normalized), sync.now_ms),
        recommendations=recommendations_with(state.recommendations, normalized.place, new),
    )
    reason = _rescale_reason(current, normalized.asked, computed.metric)
    if normalized.replicas != normalized.bounded:
        reason = reason or BELOW_MIN_TEXT
    steps = normalized_steps(normalized, sync.limits, sync.hpa)
    explanation = (*computed.explanation, *steps)
    if normalized.replicas == current:
        return _settled(sync, state, explanation, computed.warnings, computed.statuses)
    return _rescaled(
        sync,
        state,
        normalized.replicas,
        reason,
        computed.warnings,
        computed.statuses,
        explanation,
    )


def _rescale_reason(current_replicas: int, desired_replicas: int, metric: str) -> str:
    """Return the words for a raw proposal; empty for one that equals the current count."""
    if desired_replicas > current_replicas:
        return f"{metric} above target"
    if desired_replicas < current_replicas:
        return ALL_BELOW_TARGET_TEXT
    return ""


def _settled(
    sync: _Sync,
    state: HpaState,
    explanation: tuple[str, ...],
    warnings: tuple[Event, ...] = (),
    metrics: tuple[MetricStatus, ...] = (),
) -> Decision:
    """Return a decision for the count that there is."""
    state = replace(state, desired_replicas=sync.current_replicas)
    return _unscaled(sync, state, warnings, metrics, explanation)


def _unscaled(
    sync: _Sync,
    state: HpaState,
    warnings: tuple[Event, ...],
    metrics: tuple[MetricStatus, ...],
    explanation: tuple[str, ...],
) -> Decision:
    return Decision(
        current_replicas=sync.current_replicas,
        desired_replicas=sync.current_replicas,
        reason="",
        event=None,
        warnings=warnings,
        metrics=metrics,
        explanation=(*explanation, f"The count stays at {sync.current_replicas}."),
        next_state=state,
        state_before_write=state,
    )


def _rescaled(
    sync: _Sync,
    state: HpaState,
    replicas: int,
    reason: str,
    warnings: tuple[Event, ...],
    metrics: tuple[MetricStatus, ...],
    explanation: tuple[str, ...],
) -> Decision:
    return Decision(
        current_replicas=sync.current_replicas,
        desired_replicas=replicas,
        reason=reason,
        event=Event("Normal", "SuccessfulRescale", _new_size(replicas, reason)),
        warnings=warnings,
        metrics=metrics,
        explanation=(*explanation, f"Scale from {sync.current_replicas} to {replicas}."),
        next_state=_written(sync, state, replicas),
        state_before_write=state,
    )


def _new_size(replicas: int, reason: str) -> str:
    return f"New size: {replicas}; reason: {reason}"


def _written(sync: _Sync, state: HpaState, replicas: int) -> HpaState:
    """Return the state once the scale was written."""
    conditions = set_condition(state.conditions, succeeded_rescale(replicas), sync.now_ms)
    if sync.zero.has_condition:
        is_own_zero = replicas == 0 and sync.zero.may_be_reached
        verdict = SCALED_TO_ZERO_BY_CONTROLLER if is_own_zero else NOT_SCALED_TO_ZERO
        conditions = set_condition(conditions, verdict, sync.now_ms)
    else:
        conditions = remove_condition(conditions, SCALED_TO_ZERO)
    state = replace(
        state, conditions=conditions, desired_replicas=replicas, last_scale_ms=sync.now_ms
    )
    limits, memory, current = sync.limits, sync.memory, sync.current_replicas
    if not limits.has_behavior:
        return state
    sync.kernel.record_change(memory, limits, current, replicas, sync.now_ms)
    if replicas > current:
        return replace(state, scale_up_events=scale_events(memory, UPS))
    return replace(state, scale_down_events=scale_events(memory, DOWNS))


def succeeded(decision: Decision) -> Outcome:
    """Return what holds once the scale was written, or where there was nothing to write."""
    return Outcome(decision.next_state, decision.event)


def failed(decision: Decision, error: str, now_ms: int) -> Outcome:
    """Return what holds once writing the scale failed: the count is not taken as reached."""
    state = decision.state_before_write
    conditions = set_condition(state.conditions, failed_update_scale(error), now_ms)
    message = f"{_new_size(decision.desired_replicas, decision.reason)}; error: {error}"
    event = Event("Warning", "FailedRescale", message)
    return Outcome(replace(state, conditions=conditions), event)


def scale_unreadable(state: HpaState, error: str, now_ms: int) -> Outcome:
    """Return what holds where the scale of the target could not be read; the sync ends there."""
    conditions = set_condition(state.conditions, failed_get_scale(error), now_ms)
    event = Event("Warning", "FailedGetScale", error)
    return Outcome(replace(state, conditions=conditions), event)
