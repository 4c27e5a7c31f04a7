"""One ScaledObject under KEDA's operator: polls, pushes, and metrics for its HPA.

A poll asks every trigger and then may change the count; the HPA's questions ask one trigger. Both count
failures, so both bring a fallback closer. The caller has the time, the scale target and the pace, and writes
what is decided.

Source: KEDA v2.21 pkg/scaling/scale_handler.go (checkScalers, getScaledObjectState, getScalerState,
    observeMetric, GetScaledObjectMetrics).
Known difference: metrics of a scalingModifiers formula are not known here; `unsupported` says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuscale.base.errors import GpuscaleError, NotFoundError, UpstreamError
from gpuscale.base.objects.hpa import ExternalMetric
from gpuscale.base.objects.scaled_object import FallbackBehavior, ScaledObject
from gpuscale.hpa import Event
from gpuscale.triggers.keda.activation import (
    ActivationStep,
    ActivationTimes,
    Activity,
    request_scale,
)
from gpuscale.triggers.keda.fallback import Health, fallback_milli
from gpuscale.triggers.keda.scalers import Scaler

FALLBACK_BEGINS = Event(
    "Normal", "ScaledObjectFallbackActivated", "ScaledObject fallback is active"
)
FALLBACK_ENDS = Event(
    "Normal", "ScaledObjectFallbackDeactivated", "ScaledObject fallback is no longer active"
)
PAUSED = Event("Normal", "ScaledObjectPaused", "ScaledObject is paused")
_FAILED = "KEDAScalerFailed"


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """The workload, as it stands."""

    replicas: int
    """Of its spec."""
    ready_pods: int


@dataclass(frozen=True, slots=True)
class PollResult:
    """The result of a poll or push."""

    step: ActivationStep
    events: tuple[Event, ...]
    """Beside the step's own, before it."""


@dataclass(frozen=True, slots=True)
class _Record:
    """A metric's value after the fallback."""

    value_milli: int | None
    is_active: bool
    is_fallback: bool = False
    error: str = ""


class ScaleLoop:
    """KEDA's state of one ScaledObject.

    Args:
        scaled: the ScaledObject; it stays as it is.
        scalers: one for each trigger, in their order.
        created_ms: when the ScaledObject was created, milliseconds since the epoch.
    """

    def __init__(self, scaled: ScaledObject, scalers: Sequence[Scaler], created_ms: int) -> None:
        self.scaled = scaled
        self.health = Health(scaled.fallback)
        self.status = ActivationTimes(created_ms // 1000 * 1000)
        self._scalers = tuple(scalers)
        self._records: dict[str, _Record] = {}
        """By metric: of the latest poll where triggers are cached; of the HPA's questions where those stand
        in for polls."""

    async def poll(
        self, now_ms: int, target: ScaleTarget, *, hpa_is_asking: bool = False
    ) -> PollResult:
        """Ask every trigger and decide.

        Args:
            now_ms: milliseconds since the epoch.
            target: what is scaled.
            hpa_is_asking: whether the HPA's condition ScalingActive is true.
        """
        was_falling_back = self.health.is_falling_back
        reuses = hpa_is_asking and not self.scaled.polls_matter
        active: list[str] = []
        events: list[Event] = []
        fresh: dict[str, _Record] = {}
        is_error = is_fallback = is_active = False
        for index, scaler in enumerate(self._scalers):
            metrics, failure = _external(scaler)
            if failure:
                is_error = True
                events.append(Event("Warning", _FAILED, failure))
            for metric in metrics:
                record = self._records.get(metric.name) if reuses else None
                record = record or await self._observe(scaler, metric, now_ms, target)
                if self.scaled.triggers[index].uses_cached_metrics:
                    fresh[metric.name] = record
                is_fallback |= record.is_fallback
                if record.error:
                    is_error = True
                    events.append(Event("Warning", _FAILED, record.error))
                elif record.is_active or record.is_fallback:
                    is_active = True
                    active.append(metric.name)
        if not is_error and all(trigger.is_resource for trigger in self.scaled.triggers):
            is_active = True
        if is_fallback and not was_falling_back:
            events.append(FALLBACK_BEGINS)
        elif was_falling_back and not is_fallback:
            events.append(FALLBACK_ENDS)
        step = self._request(Activity(is_active, is_error, active), now_ms, target)
        self._records |= fresh
        return PollResult(step, tuple(events))

    async def says_active(self, index: int, now_ms: int) -> bool:
        """Return whether a trigger's scaler reports it as active."""
        try:
            return (await self._scalers[index].read(now_ms)).is_active
        except GpuscaleError:
            return False

    def push(self, index: int, now_ms: int, target: ScaleTarget) -> PollResult:
        """Handle an external scaler's push that a trigger is active.

        Args:
            index: of the trigger.
            now_ms: milliseconds since the epoch.
            target: what is scaled.
        """
        names = [metric.name for metric in _external(self._scalers[index])[0]]
        return PollResult(self._request(Activity(True, False, names[:1]), now_ms, target), ())

    async def answer(self, name: str, now_ms: int, target: ScaleTarget) -> int:
        """Return a metric's value for the HPA, in thousandths.

        Args:
            name: of the metric, as the HPA has it.
            now_ms: milliseconds since the epoch.
            target: what is scaled.

        Raises:
            UpstreamError: the trigger failed and no fallback stands in, or another one can't be asked at all.
            NotFoundError: no trigger has such a metric.
        """
        found: _Record | None = None
        is_error = False
        for index, scaler in enumerate(self._scalers):
            metrics, failure = _external(scaler)
            is_error |= bool(failure)
            for metric in metrics:
                if metric.name == name:
                    found = await self._for_hpa(index, scaler, metric, now_ms, target)
        is_error |= found is not None and bool(found.error)
        if is_error and not (found is not None and found.is_fallback):
            raise UpstreamError(f"metric:{name} encountered error")
        if found is None or found.value_milli is None:
            raise NotFoundError(f"no matching metrics found for {name}")
        return found.value_milli

    async def _for_hpa(
        self, index: int, scaler: Scaler, metric: ExternalMetric, now_ms: int, target: ScaleTarget
    ) -> _Record:
        kept = self._records.get(metric.name)
        if kept is not None and self.scaled.triggers[index].uses_cached_metrics:
            return self._judged(metric, kept, target)
        record = await self._observe(scaler, metric, now_ms, target)
        if not self.scaled.polls_matter:
            self._records[metric.name] = record
        return record

    def _request(self, activity: Activity, now_ms: int, target: ScaleTarget) -> ActivationStep:
        step = request_scale(self.scaled, self.status, target.replicas, activity, now_ms)
        self.status = ActivationTimes(self.status.created_ms, step.last_active_ms)
        return step

    async def _observe(
        self, scaler: Scaler, metric: ExternalMetric, now_ms: int, target: ScaleTarget
    ) -> _Record:
        try:
            reading = await scaler.read(now_ms)
            raw = _Record(reading.value_milli, reading.is_active)
        except GpuscaleError as error:
            raw = _Record(None, False, error=str(error) or "no reason given")
        return self._judged(metric, raw, target)

    def _judged(self, metric: ExternalMetric, raw: _Record, target: ScaleTarget) -> _Record:
        """Return a raw result, or the fallback in its place."""
        if not raw.error:
            self.health.succeeded(metric.name)
            return _Record(raw.value_milli, raw.is_active)
        fallback = self.scaled.fallback
        if fallback is None or not self.health.failed(metric.name):
            return _Record(None, raw.is_active, error=raw.error)
        milli = fallback_milli(fallback, metric.target, target.replicas, target.ready_pods)
        if milli is None:
            return _Record(None, raw.is_active, error="error performing fallback")
        return _Record(milli, raw.is_active, is_fallback=True)


def unsupported(scaled: ScaledObject) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield unsupported parts of a ScaledObject: the path below `spec`, and a name."""
    if scaled.modifiers is not None:
        yield ("advanced", "scalingModifiers"), "scalingModifiers"
    fallback = scaled.fallback
    if fallback is not None and fallback.behavior is FallbackBehavior.SCALING_MODIFIERS:
        yield ("fallback", "behavior"), "scalingModifiers"


def _external(scaler: Scaler) -> tuple[tuple[ExternalMetric, ...], str]:
    """Return a scaler's external metrics, or none and why it can't be asked."""
    try:
        metrics = scaler.metrics
    except GpuscaleError as error:
        return (), str(error)
    return tuple(each for each in metrics if isinstance(each, ExternalMetric)), ""
