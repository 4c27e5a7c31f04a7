"""The known kinds of triggers, and their scalers."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gpuscale.base.errors import BugError
from gpuscale.base.objects.hpa import MetricSpec
from gpuscale.base.objects.scaled_object import ScaledObject
from gpuscale.series import Value
from gpuscale.triggers.answer import TriggerAnswers
from gpuscale.triggers.keda.cron import cron_scaler
from gpuscale.triggers.keda.external import PUSH, MetricsApiScaler, external_scaler
from gpuscale.triggers.keda.metadata import TriggerFault, TriggerMetadata
from gpuscale.triggers.keda.scalers import (
    Ask,
    PrometheusScaler,
    Scaler,
    prometheus_scaler,
    resource_scaler,
)
from gpuscale.triggers.policy_keys import PolicyCheck, any_policy
from gpuscale.triggers.trigger import Trigger


@dataclass(frozen=True, slots=True)
class Sources:
    """The sources that scalers ask."""

    ask: Ask
    """PromQL, whatever server a trigger names."""
    answers: TriggerAnswers | None = None
    """The triggers of `gpuscale scaler`, whatever address they name; None leaves them unanswered."""
    check: PolicyCheck = any_policy
    """Judges the policies that these triggers name."""


def make_scalers(
    scaled: ScaledObject, sources: Sources
) -> tuple[tuple[Scaler, ...], tuple[TriggerFault, ...]]:
    """Return a scaler for each trigger, in order, and the triggers' faults."""
    scalers: list[Scaler] = []
    faults: list[TriggerFault] = []
    for index, trigger in enumerate(scaled.triggers):
        metadata = TriggerMetadata(trigger, index)
        maker = _MAKERS.get(trigger.kind)
        if maker is None:
            metadata.note(("type",), f"one of {', '.join(_MAKERS)}", repr(trigger.kind))
        else:
            scalers.append(maker(metadata, scaled, sources))
        faults += metadata.faults
    return tuple(scalers), tuple(faults)


def known_metrics(scaled: ScaledObject) -> tuple[tuple[MetricSpec, ...], ...]:
    """Return the HPA's metrics for each trigger."""
    return tuple(scaler.metrics for scaler in make_scalers(scaled, _DESCRIBING)[0])


def trigger_faults(
    scaled: ScaledObject, check: PolicyCheck = any_policy
) -> tuple[TriggerFault, ...]:
    """Return the triggers' faults; `check` judges policies."""
    return make_scalers(scaled, Sources(_unasked, check=check))[1]


def queries_of(scaled: ScaledObject) -> Iterator[str]:
    """Yield the triggers' PromQL; metrics of pods come from rules instead."""
    yield from prometheus_queries(scaled)
    for trigger in triggers_of(scaled):
        yield from trigger_queries(trigger)


def prometheus_queries(scaled: ScaledObject) -> Iterator[str]:
    """Yield the PromQL of KEDA's own prometheus triggers."""
    for scaler in make_scalers(scaled, _DESCRIBING)[0]:
        if isinstance(scaler, PrometheusScaler):
            yield scaler.query


def triggers_of(scaled: ScaledObject) -> Iterator[Trigger]:
    """Yield the triggers that gpuscale's scaler serves."""
    for scaler in make_scalers(scaled, _DESCRIBING)[0]:
        if isinstance(scaler, MetricsApiScaler) and scaler.trigger is not None:
            yield scaler.trigger


def trigger_queries(trigger: Trigger) -> Iterator[str]:
    """Yield the PromQL of a trigger that gpuscale's scaler serves."""
    yield from (wake.query for wake in trigger.wakes)
    if trigger.load is not None and trigger.load.query:
        yield trigger.load.query
    if trigger.credit is not None:
        yield from (trigger.credit.waiting, trigger.credit.throughput)


async def _unasked(_query: str, _at_ms: int) -> Value:
    raise BugError("a trigger was asked that was to be described")


_DESCRIBING = Sources(_unasked)
_MAKERS: Mapping[str, Callable[[TriggerMetadata, ScaledObject, Sources], Scaler]] = {
    "prometheus": lambda metadata, _, sources: prometheus_scaler(metadata, sources.ask),
    "external": lambda metadata, scaled, sources: external_scaler(
        metadata, scaled.metadata.namespace, sources.answers, sources.check
    ),
    PUSH: lambda metadata, scaled, sources: external_scaler(
        metadata, scaled.metadata.namespace, sources.answers, sources.check
    ),
    "cron": lambda metadata, _, __: cron_scaler(metadata),
    "cpu": lambda metadata, _, __: resource_scaler(metadata),
    "memory": lambda metadata, _, __: resource_scaler(metadata),
}
