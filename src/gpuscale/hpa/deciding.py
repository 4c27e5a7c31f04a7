"""One sync of one HPA: how many replicas its target should have, and why.

Fetching and writing are the caller's. It reads the scale, the pods and the metrics, calls `decide`,
writes the scale if the decision says so, and keeps the state that `succeeded` or `failed` gives.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (reconcileAutoscaler).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuscale.base.objects.hpa import ExternalMetric, HorizontalPodAutoscaler, ObjectMetric
from gpuscale.hpa.combine import compute_replicas_for_metrics
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
from gpuscale.hpa.selectors import selector_failure
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
    """An HPA's rules about 0 replicas."""

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
        """Whether this controller scaled the target to zero, and may scale it up again."""
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
    settings: ControllerSettings
    now_ms: int
    kernel: Kernel
    limits: Limits
    memory: Cells
    zero: _Zero
    measured_replicas: int
    """That the metrics are of."""

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
    measured_replicas: int | None = None,
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
        measured_replicas: the target's real count where the scale is one that is only imagined: pods and
            their values are of those replicas.
        kernel: the arithmetic, interpreted or compiled; both give the same.

    Raises:
        BugError: the observations do not go with the metrics.
    """
    limits, memory = limits_of(hpa, settings, kernel), memory_of(state, kernel)
    current = scale.spec_replicas
    kernel.begin(memory, current, now_ms)
    zero = _Zero(hpa, state.conditions, settings)
    measured = current if measured_replicas is None else measured_replicas
    sync = _Sync(hpa, scale, settings, now_ms, kernel, limits, memory, zero, measured)
    state = replace(
        state,
        conditions=set_condition(state.conditions, SUCCEEDED_GET_SCALE, now_ms),
        # At a first sync, the history starts with the current count.
        recommendations=state.recommendations or (Recommendation(current, now_ms),),
    )
    phase = kernel.phase(limits.least, limits.most, current, int(zero.may_be_left))
    if phase == PAUSED:
        conditions = set_condition(state.conditions, SCALING_DISABLED, now_ms)
        if not zero.has_condition:
            conditions = remove_condition(conditions, SCALED_TO_ZERO)
        why = (
            "The target has 0 replicas and this controller did not put it there: scaling is paused."
        )
        return _settled(sync, replace(state, conditions=conditions), (why,))
    if phase in (ABOVE_MAX, BELOW_MIN):
        bound, reason, field = limits.least, BELOW_MIN_TEXT, "minReplicas"
        if phase == ABOVE_MAX:
            bound, reason, field = limits.most, ABOVE_MAX_TEXT, "maxReplicas"
        why = (
            f"{current} replicas lie outside {field}, {bound}; "
            "that is repaired at once, without a look at metrics, stabilization or policies."
        )
        return _rescaled(sync, state, bound, reason, (), (), (why,))
    failure = selector_failure(scale.selector, selecting_hpas, settings)
    if failure is not None:
        conditions = set_condition(state.conditions, failure.verdict, now_ms)
        compute = Event("Warning", "FailedComputeMetricsReplicas", failure.text)
        state, why = replace(state, conditions=conditions), f"Nothing is scaled: {failure.text}."
        return _unscaled(sync, state, (failure.event, compute), (), (why,))
    return _from_metrics(sync, state, pods, observations)


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


def _from_metrics(
    sync: _Sync, state: HpaState, pods: Sequence[PodInfo], observations: Sequence[Observation]
) -> Decision:
    current, now_ms = sync.current_replicas, sync.now_ms
    context = SyncContext(
        current_replicas=sync.measured_replicas,
        status_replicas=sync.scale.status_replicas,
        pods=pods,
        tolerances=tolerances_for_hpa(sync.hpa, sync.settings),
        settings=sync.settings,
        now_ms=now_ms,
        kernel=sync.kernel,
    )
    computed = compute_replicas_for_metrics(sync.hpa, observations, context)
    state = replace(state, conditions=set_condition(state.conditions, computed.verdict, now_ms))
    if computed.replicas is None:
        return _unscaled(sync, state, computed.warnings, computed.statuses, computed.explanation)
    normalized = sync.kernel.normalized(
        sync.limits, sync.memory, current, computed.replicas, now_ms
    )
    new = Recommendation(normalized.asked, now_ms)
    state = replace(
        state,
        conditions=set_conditions(state.conditions, verdicts(normalized), now_ms),
        recommendations=recommendations_with(state.recommendations, normalized.place, new),
    )
    # The rescale reason comes from the metrics' proposal, even if windows, rates or bounds change
    # it.
    reason = ""
    if normalized.asked > current:
        reason = f"{computed.metric} above target"
    elif normalized.asked < current:
        reason = ALL_BELOW_TARGET_TEXT
    elif normalized.replicas != normalized.bounded:
        reason = BELOW_MIN_TEXT
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


def _settled(
    sync: _Sync,
    state: HpaState,
    explanation: tuple[str, ...],
    warnings: tuple[Event, ...] = (),
    metrics: tuple[MetricStatus, ...] = (),
) -> Decision:
    """Return a decision to keep the current count."""
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
    current, now_ms, zero = sync.current_replicas, sync.now_ms, sync.zero
    conditions = set_condition(state.conditions, succeeded_rescale(replicas), now_ms)
    if zero.has_condition:
        is_own_zero = replicas == 0 and zero.may_be_reached
        verdict = SCALED_TO_ZERO_BY_CONTROLLER if is_own_zero else NOT_SCALED_TO_ZERO
        conditions = set_condition(conditions, verdict, now_ms)
    else:
        conditions = remove_condition(conditions, SCALED_TO_ZERO)
    written = replace(state, conditions=conditions, desired_replicas=replicas, last_scale_ms=now_ms)
    if sync.limits.has_behavior:
        sync.kernel.record_change(sync.memory, sync.limits, current, replicas, now_ms)
        if replicas > current:
            written = replace(written, scale_up_events=scale_events(sync.memory, UPS))
        else:
            written = replace(written, scale_down_events=scale_events(sync.memory, DOWNS))
    return Decision(
        current_replicas=current,
        desired_replicas=replicas,
        reason=reason,
        event=Event("Normal", "SuccessfulRescale", _new_size(replicas, reason)),
        warnings=warnings,
        metrics=metrics,
        explanation=(*explanation, f"Scale from {current} to {replicas}."),
        next_state=written,
        state_before_write=state,
    )


def _new_size(replicas: int, reason: str) -> str:
    return f"New size: {replicas}; reason: {reason}"


def succeeded(decision: Decision) -> Outcome:
    """Return the result after the scale was written, or needed no write."""
    return Outcome(decision.next_state, decision.event)


def failed(decision: Decision, error: str, now_ms: int) -> Outcome:
    """Return the result after writing the scale failed: the new count is not assumed."""
    state = decision.state_before_write
    conditions = set_condition(state.conditions, failed_update_scale(error), now_ms)
    message = f"{_new_size(decision.desired_replicas, decision.reason)}; error: {error}"
    event = Event("Warning", "FailedRescale", message)
    return Outcome(replace(state, conditions=conditions), event)


def scale_unreadable(state: HpaState, error: str, now_ms: int) -> Outcome:
    """Return the result if the target's scale can't be read, which ends the sync."""
    conditions = set_condition(state.conditions, failed_get_scale(error), now_ms)
    event = Event("Warning", "FailedGetScale", error)
    return Outcome(replace(state, conditions=conditions), event)
