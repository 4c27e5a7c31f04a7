"""All metrics of an HPA: the highest count wins, unless failed metrics could hide a higher one.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (computeReplicasForMetrics).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.base.errors import BugError
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.hpa.kernel.proposals import NO_CHOICE, NOT_FETCHED, failure
from gpuscale.hpa.replicas import words
from gpuscale.hpa.replicas.calculator import SyncContext
from gpuscale.hpa.replicas.metrics import MetricFailure, replicas_for_metric
from gpuscale.hpa.terms.conditions import Verdict, unable_to_compute, valid_metric_found
from gpuscale.hpa.terms.names import metric_text
from gpuscale.hpa.terms.targets import target_text
from gpuscale.hpa.types import Event, MetricStatus, Observation

_FAILED = failure(NOT_FETCHED)


@dataclass(frozen=True, slots=True)
class MetricsReplicas:
    """The combined result of an HPA's metrics."""

    replicas: int | None
    """None where nothing may be scaled."""
    metric: str
    """The metric that gave the count, in words."""
    statuses: tuple[MetricStatus, ...]
    warnings: tuple[Event, ...]
    verdict: Verdict
    explanation: tuple[str, ...]


def compute_replicas_for_metrics(
    hpa: HorizontalPodAutoscaler, observations: Sequence[Observation], sync: SyncContext
) -> MetricsReplicas:
    """Return the highest proposal, or none where failed metrics forbid to follow it.

    Raises:
        BugError: the observations do not go with the metrics.
    """
    total = len(hpa.metrics)
    if len(observations) != total:
        raise BugError(f"{len(observations)} observations for {total} metrics")
    choice = NO_CHOICE
    failures: list[MetricFailure] = []
    statuses: list[MetricStatus] = []
    explanation: list[str] = []
    for index, (spec, observation) in enumerate(zip(hpa.metrics, observations, strict=True)):
        name, target = metric_text(spec), target_text(spec)
        outcome = replicas_for_metric(spec, observation, hpa.metadata.namespace, sync)
        if isinstance(outcome, MetricFailure):
            choice = sync.kernel.chosen(choice, _FAILED)
            failures.append(outcome)
            statuses.append(MetricStatus(index, name, target, error=outcome.text))
            explanation.append(f"{name} failed: {outcome.text}.")
        else:
            choice = sync.kernel.chosen(choice, outcome.proposal)
            statuses.append(words.metric_status(index, name, target, outcome))
            explanation += [f"{name}: {sentence}" for sentence in words.explanation(outcome, sync)]
    metric = "" if choice.metric < 0 else metric_text(hpa.metrics[choice.metric])
    if total > 1 and metric:
        explanation.append(f"The highest count wins: {metric}.")
    warnings = [Event("Warning", failure.reason, failure.text) for failure in failures]
    if not sync.kernel.is_blocked(choice, sync.current_replicas):
        return MetricsReplicas(
            choice.replicas,
            metric,
            tuple(statuses),
            tuple(warnings),
            valid_metric_found(metric),
            tuple(explanation),
        )
    if failures:
        first, verdict = failures[0].full_text, (failures[0].reason, failures[0].text)
    else:
        first = "the HPA lists no metric"
        verdict = "InvalidMetricSourceType", first
    text = f"invalid metrics ({len(failures)} invalid out of {total}), first error is: {first}"
    warnings.append(Event("Warning", "FailedComputeMetricsReplicas", text))
    explanation.append(
        "No metric gave a count, so nothing is scaled."
        if len(failures) == total
        else f"{len(failures)} of {total} metrics failed and the rest ask for fewer replicas; "
        "nothing is scaled, since a failed one might ask for more."
    )
    return MetricsReplicas(
        None, "", tuple(statuses), tuple(warnings), unable_to_compute(*verdict), tuple(explanation)
    )
