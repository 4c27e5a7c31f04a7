"""One sync of one HPA: how many replicas its target should have, and why.

Fetching and writing are the caller's. It reads the scale, the pods and the metrics, calls `decide`,
writes the scale if the decision says so, and keeps the state that `succeeded` or `failed` gives.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (reconcileAutoscaler).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuscale.hpa.combine import MetricsReplicas, compute_replicas_for_metrics
from gpuscale.hpa.conditions import (
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
from gpuscale.hpa.normalize import NormalizationArg, normalize_desired_replicas
from gpuscale.hpa.policies import with_scale_event
from gpuscale.hpa.replicas.calculator import SyncContext
from gpuscale.hpa.replicas.tolerances import tolerances_for_hpa
from gpuscale.hpa.selectors import SelectorFailure, selector_failure
from gpuscale.hpa.types import (
    DEFAULT_SETTINGS,
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
from gpuscale.objects.hpa import ExternalMetric, HorizontalPodAutoscaler, ObjectMetric

ABOVE_MAX = "Current number of replicas above Spec.MaxReplicas"
BELOW_MIN = "Current number of replicas below Spec.MinReplicas"
ALL_BELOW_TARGET = "All metrics below target"


@dataclass(frozen=True, slots=True)
class _Sync:
    """One sync, once the scale was read."""

    hpa: HorizontalPodAutoscaler
    scale: Scale
    state: HpaState
    settings: ControllerSettings
    now_ms: int

    @property
    def current_replicas(self) -> int:
        return self.scale.spec_replicas

    @property
    def min_replicas(self) -> int:
        return 1 if self.hpa.min_replicas is None else self.hpa.min_replicas

    @property
    def was_scaled_to_zero(self) -> bool:
        """Whether it was this controller that took the target to zero."""
        if not self.settings.marks_zero:
            return self.min_replicas == 0
        return self.settings.scale_to_zero and is_true(self.state.conditions, SCALED_TO_ZERO)

    @property
    def has_object_or_external_metrics(self) -> bool:
        return any(isinstance(spec, ObjectMetric | ExternalMetric) for spec in self.hpa.metrics)

    @property
    def may_reach_zero(self) -> bool:
        return self.min_replicas == 0 and self.has_object_or_external_metrics

    @property
    def may_leave_zero(self) -> bool:
        has_way = self.min_replicas != 0 or self.has_object_or_external_metrics
        return self.was_scaled_to_zero and (has_way or not self.settings.marks_zero)

    @property
    def has_condition(self) -> bool:
        """Whether the controller keeps the condition ScaledToZero."""
        return self.settings.scale_to_zero and self.settings.marks_zero


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

    Raises:
        BugError: the observations do not go with the metrics.
    """
    sync = _Sync(hpa, scale, _begun(state, scale, now_ms), settings, now_ms)
    current = sync.current_replicas
    if current == 0 and not sync.may_leave_zero:
        return _paused(sync)
    if current > hpa.max_replicas:
        return _repaired(sync, hpa.max_replicas, ABOVE_MAX, "maxReplicas")
    if 0 < current < sync.min_replicas:
        return _repaired(sync, sync.min_replicas, BELOW_MIN, "minReplicas")
    failure = selector_failure(scale.selector, selecting_hpas)
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
    sync = _Sync(hpa, scale, state, settings, 0)
    if sync.current_replicas == 0:
        return sync.may_leave_zero
    return sync.min_replicas <= sync.current_replicas <= hpa.max_replicas


def _begun(state: HpaState, scale: Scale, now_ms: int) -> HpaState:
    """Return the state once the scale was read; the history of a first sync starts with its count."""
    conditions = set_condition(state.conditions, SUCCEEDED_GET_SCALE, now_ms)
    recommendations = state.recommendations or (Recommendation(scale.spec_replicas, now_ms),)
    return replace(state, conditions=conditions, recommendations=recommendations)


def _paused(sync: _Sync) -> Decision:
    conditions = set_condition(sync.state.conditions, SCALING_DISABLED, sync.now_ms)
    if not sync.has_condition:
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
    )
    computed = compute_replicas_for_metrics(sync.hpa, observations, context)
    conditions = set_condition(sync.state.conditions, computed.verdict, sync.now_ms)
    state = replace(sync.state, conditions=conditions)
    if computed.replicas is None:
        return _unscaled(sync, state, computed.warnings, computed.statuses, computed.explanation)
    return _normalized(sync, state, max(0, computed.replicas), computed)


def _normalized(
    sync: _Sync, state: HpaState, desired_replicas: int, computed: MetricsReplicas
) -> Decision:
    arg = NormalizationArg(
        hpa=sync.hpa,
        min_replicas=sync.min_replicas,
        current_replicas=sync.current_replicas,
        desired_replicas=desired_replicas,
        state=state,
        settings=sync.settings,
        now_ms=sync.now_ms,
    )
    normalized = normalize_desired_replicas(arg)
    conditions = set_conditions(state.conditions, normalized.verdicts, sync.now_ms)
    state = replace(state, conditions=conditions, recommendations=normalized.recommendations)
    reason = _rescale_reason(sync.current_replicas, desired_replicas, computed.metric)
    explanation = (*computed.explanation, *normalized.explanation)
    replicas = normalized.replicas
    if sync.current_replicas == 0 and replicas < sync.min_replicas:
        replicas, reason = sync.min_replicas, reason or BELOW_MIN
        explanation = (*explanation, f"Raised from zero to minReplicas, {replicas}.")
    if replicas == sync.current_replicas:
        return _settled(sync, state, explanation, computed.warnings, computed.statuses)
    return _rescaled(
        sync, state, replicas, reason, computed.warnings, computed.statuses, explanation
    )


def _rescale_reason(current_replicas: int, desired_replicas: int, metric: str) -> str:
    """Return the words for a raw proposal; empty for one that equals the current count."""
    if desired_replicas > current_replicas:
        return f"{metric} above target"
    if desired_replicas < current_replicas:
        return ALL_BELOW_TARGET
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
    if sync.has_condition:
        is_own_zero = replicas == 0 and sync.may_reach_zero
        verdict = SCALED_TO_ZERO_BY_CONTROLLER if is_own_zero else NOT_SCALED_TO_ZERO
        conditions = set_condition(conditions, verdict, sync.now_ms)
    else:
        conditions = remove_condition(conditions, SCALED_TO_ZERO)
    state = with_scale_event(state, sync.hpa.behavior, sync.current_replicas, replicas, sync.now_ms)
    return replace(
        state, conditions=conditions, desired_replicas=replicas, last_scale_ms=sync.now_ms
    )


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
