"""KEDA's external triggers, as `gpuscale scaler` answers them.

Source: KEDA v2.21 pkg/scalers/external_scaler.go.
Known difference: a scaler of somebody else is not known; its metadata is refused as ours would refuse it.
"""

from dataclasses import dataclass

from gpuscale.base.errors import ConfigError, UnavailableError
from gpuscale.base.objects.hpa import MetricSpec
from gpuscale.triggers.answer import TriggerAnswers
from gpuscale.triggers.keda.metadata import TriggerMetadata
from gpuscale.triggers.keda.scalers import ScalerReading, external_metric, quantity
from gpuscale.triggers.metadata import read_metadata
from gpuscale.triggers.policy_keys import PolicyCheck, any_policy
from gpuscale.triggers.trigger import Trigger

PUSH = "external-push"


@dataclass(frozen=True, slots=True)
class MetricsApiScaler:
    """One trigger of `gpuscale scaler`."""

    metrics: tuple[MetricSpec, ...]
    trigger: Trigger | None
    """None where its metadata has faults."""
    answers: TriggerAnswers | None

    async def read(self, now_ms: int) -> ScalerReading:
        answer = None
        if self.trigger is not None and self.answers is not None:
            answer = self.answers.answer(self.trigger)
        if answer is None:
            raise UnavailableError("it is being evaluated for the first time; ask again")
        if answer.value is None or answer.is_active is None:
            raise UnavailableError(answer.reason)
        return ScalerReading(quantity(answer.value).milli_value(), answer.is_active)


def external_scaler(
    metadata: TriggerMetadata,
    namespace: str,
    answers: TriggerAnswers | None,
    check: PolicyCheck = any_policy,
) -> MetricsApiScaler:
    """Return a trigger's scaler; faults are collected.

    Args:
        metadata: of the trigger.
        namespace: of the ScaledObject.
        answers: knows the answers; None only describes.
        check: judges a policy's name and settings.
    """
    metadata.text("scalerAddress")
    try:
        trigger = read_metadata(metadata.values, namespace, check=check)
    except ConfigError as error:
        for problem in error.problems:
            path = ("metadata", problem.field) if problem.field else ("metadata",)
            metadata.note(path, problem.expected, problem.found, problem.fix)
        return MetricsApiScaler((), None, answers)
    if answers is not None:
        answers.answer(
            trigger
        )  # KEDA asks for the metric's name first, which starts the watch of the trigger
    name = f"s{metadata.index}-{trigger.name}"
    metric = external_metric(name, metadata.trigger.metric_type, quantity(trigger.target))
    return MetricsApiScaler((metric,), trigger, answers)
