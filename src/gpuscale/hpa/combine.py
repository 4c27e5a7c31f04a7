"""All metrics of an HPA: the highest count wins, unless failed metrics could hide a higher one.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (computeReplicasForMetrics).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.base.errors import BugError
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler, MetricSpec
from gpuscale.hpa.kernel.proposals import NO_CHOICE, NOT_FETCHED, Choice, failure
from gpuscale.hpa.replicas import words
from gpuscale.hpa.replicas.calculator import MetricProposal, SyncContext
from gpuscale.hpa.replicas.metrics import MetricFailure, replicas_for_metric
from gpuscale.hpa.terms.conditions import Verdict, unable_to_compute, valid_metric_found
from gpuscale.hpa.terms.names import metric_text
from gpuscale.hpa.terms.targets import target_text
from gpuscale.hpa.types import Event, MetricStatus, Observation

_Outcomes = tuple[MetricProposal | MetricFailure, ...]
_FAILED = failure(NOT_FETCHED)


@dataclass(frozen=True, slots=True)
class MetricsReplicas:
    """What the metrics ask for together."""

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
    if len(observations) != len(hpa.metrics):
        raise BugError(f"{len(observations)} observations for {len(hpa.metrics)} metrics")
    outcomes = tuple(
        replicas_for_metric(spec, observation, hpa.metadata.namespace, sync)
        for spec, observation in zip(hpa.metrics, observations, strict=True)
    )
    choice = _choice(outcomes, sync)
    metric = "" if choice.metric < 0 else metric_text(hpa.metrics[choice.metric])
    failures = [outcome for outcome in outcomes if isinstance(outcome, MetricFailure)]
    statuses = tuple(
        _status(index, spec, outcome)
        for index, (spec, outcome) in enumerate(zip(hpa.metrics, outcomes, strict=True))
    )
    warnings = tuple(Event("Warning", failure.reason, failure.text) for failure in failures)
    explanation = _explanation(hpa.metrics, outcomes, metric, sync)
    if sync.kernel.is_blocked(choice, sync.current_replicas):
        return MetricsReplicas(
            None,
            "",
            statuses,
            (*warnings, _failed_compute(failures, len(outcomes))),
            _failed_verdict(failures),
            (*explanation, _blocked(len(failures), len(outcomes))),
        )
    return MetricsReplicas(
        choice.replicas, metric, statuses, warnings, valid_metric_found(metric), explanation
    )


def _choice(outcomes: _Outcomes, sync: SyncContext) -> Choice:
    choice = NO_CHOICE
    for outcome in outcomes:
        proposal = _FAILED if isinstance(outcome, MetricFailure) else outcome.proposal
        choice = sync.kernel.chosen(choice, proposal)
    return choice


def _status(index: int, spec: MetricSpec, outcome: MetricProposal | MetricFailure) -> MetricStatus:
    name, target = metric_text(spec), target_text(spec)
    if isinstance(outcome, MetricFailure):
        return MetricStatus(index, name, target, error=outcome.text)
    return words.metric_status(index, name, target, outcome)


def _failed_verdict(failures: Sequence[MetricFailure]) -> Verdict:
    if not failures:
        return unable_to_compute("InvalidMetricSourceType", "the HPA lists no metric")
    return unable_to_compute(failures[0].reason, failures[0].text)


def _failed_compute(failures: Sequence[MetricFailure], total: int) -> Event:
    first = failures[0].full_text if failures else "the HPA lists no metric"
    text = f"invalid metrics ({len(failures)} invalid out of {total}), first error is: {first}"
    return Event("Warning", "FailedComputeMetricsReplicas", text)


def _explanation(
    specs: Sequence[MetricSpec], outcomes: _Outcomes, chosen: str, sync: SyncContext
) -> tuple[str, ...]:
    sentences: list[str] = []
    for spec, outcome in zip(specs, outcomes, strict=True):
        name = metric_text(spec)
        if isinstance(outcome, MetricFailure):
            sentences.append(f"{name} failed: {outcome.text}.")
            continue
        sentences.extend(f"{name}: {sentence}" for sentence in words.explanation(outcome, sync))
    if len(outcomes) > 1 and chosen:
        sentences.append(f"The highest count wins: {chosen}.")
    return tuple(sentences)


def _blocked(failed: int, total: int) -> str:
    if failed == total:
        return "No metric gave a count, so nothing is scaled."
    return (
        f"{failed} of {total} metrics failed and the rest ask for fewer replicas; "
        "nothing is scaled, since a failed one might ask for more."
    )
