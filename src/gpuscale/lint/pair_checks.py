"""What is wrong between autoscalers and the rules that answer them."""

from collections.abc import Iterator

from gpuscale.lint.answer_checks import answer_findings
from gpuscale.lint.answering import AskedMetric, answer_of
from gpuscale.lint.findings import CHECKS, Finding
from gpuscale.lint.hpa_places import PlacedMetric, placed_metrics
from gpuscale.lint.inputs import Inputs, PlacedHpa
from gpuscale.lint.series_facts import is_of_gpu
from gpuscale.lint.serving import servings
from gpuscale.objects.hpa import ExternalMetric, ObjectMetric


def pair_findings(inputs: Inputs) -> tuple[list[Finding], set[str]]:
    """Return what is wrong, and the origins of the rules that an autoscaler asks for."""
    found: list[Finding] = []
    used: set[str] = set()
    asked = [metric for placed in inputs.hpas for metric in placed_metrics(placed)]
    for metric in asked:
        if isinstance(metric.spec, AskedMetric):
            if inputs.rule_files == 0 and not found:
                found.append(_no_rules(metric))
            answered = answer_of(inputs, metric, metric.spec, found)
            if answered is not None:
                used.add(answered.serving.rule.origin)
                found.extend(answer_findings(inputs, answered))
    for placed in inputs.hpas:
        found.extend(_waking(inputs, placed))
    return found, used


def _no_rules(metric: PlacedMetric) -> Finding:
    return Finding(
        CHECKS["no-rules"],
        metric.name,
        "There is no rule file among the files: metrics are held against gpuscale's preset, and one "
        "that it does not know may be there all the same.",
        "",
        "Name the rule file too, where there is one.",
    )


def _waking(inputs: Inputs, placed: PlacedHpa) -> Iterator[Finding]:
    if placed.hpa.min_replicas != 0:
        return
    wakers = [
        each
        for each in placed_metrics(placed)
        if isinstance(each.spec, ObjectMetric | ExternalMetric)
    ]
    behind = [_series_behind(inputs, each) for each in wakers]
    if wakers and all(series is not None and is_of_gpu(series) for series in behind):
        yield Finding(
            CHECKS["cannot-wake"],
            placed.place("spec", "minReplicas"),
            "From 0 replicas nothing wakes the target: without a pod no GPU is at work.",
            f"The metrics come from {', '.join(series or '' for series in behind)}.",
            "Add a metric of the load itself, such as the length of a queue.",
        )


def _series_behind(inputs: Inputs, metric: PlacedMetric) -> str | None:
    spec = metric.spec
    if not isinstance(spec, ObjectMetric | ExternalMetric):
        return None
    rules = inputs.external_rules if isinstance(spec, ExternalMetric) else inputs.rules
    return next((each.series for each in servings(rules, spec.name)), None)
