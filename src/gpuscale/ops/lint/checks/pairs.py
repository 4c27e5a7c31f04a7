"""Faults between autoscalers and the rules that answer them."""

from collections.abc import Iterable, Iterator

from gpuscale.base.findings import Checks, Severity
from gpuscale.base.objects.hpa import ExternalMetric, ObjectMetric
from gpuscale.hpa.controller import DEFAULT_SETTINGS
from gpuscale.ops.lint.checks.answering import ANSWERING_CHECKS, AskedMetric, answer_of
from gpuscale.ops.lint.checks.answers import (
    ANSWER_CHECKS,
    answer_findings,
    server_metric_findings,
    workload_of,
)
from gpuscale.ops.lint.checks.policies import POLICY_CHECKS, policy_findings
from gpuscale.ops.lint.checks.queries import query_findings
from gpuscale.ops.lint.checks.reach import REACH_CHECKS, signal_findings
from gpuscale.ops.lint.checks.rules import unused_sum_findings
from gpuscale.ops.lint.checks.server_options import SERVER_CHECKS
from gpuscale.ops.lint.checks.targets import TARGET_CHECKS, unit_findings
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.hpa_places import PlacedMetric, placed_metrics
from gpuscale.ops.lint.inputs import FileJudge, Inputs, PlacedHpa
from gpuscale.series.promql import parse_query
from gpuscale.signals import SIGNALS, is_of_gpu, is_of_pods
from gpuscale.triggers import Trigger

_CHECKS = Checks(
    including=(
        ANSWERING_CHECKS,
        ANSWER_CHECKS,
        SERVER_CHECKS,
        TARGET_CHECKS,
        REACH_CHECKS,
        POLICY_CHECKS,
    )
)
NO_RULES = _CHECKS.add(
    "no-rules",
    Severity.NOTE,
    "Autoscalers without a rule file to hold them against.",
    "Name the rule file too, where there is one.",
)
CANNOT_WAKE = _CHECKS.add(
    "cannot-wake",
    Severity.WARNING,
    "Scaling from zero on what only running pods can show.",
    "Add a metric of the load itself, such as the length of a queue.",
)


def pair_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return these faults, and rules with sums of percentages that no autoscaler uses."""
    found: list[LintFinding] = []
    used: set[str] = set()
    asked = [metric for placed in inputs.hpas for metric in placed_metrics(placed)]
    for metric in asked:
        if not isinstance(metric.spec, AskedMetric):
            found.extend(unit_findings(metric, None))
            continue
        if inputs.rule_files == 0 and not found:
            found.append(_no_rules(metric))
        trigger = _served(inputs, metric)
        if trigger is not None:
            most, place = metric.placed.hpa.max_replicas, metric.target("averageValue")
            found.extend(signal_findings(trigger, place, most, DEFAULT_SETTINGS.tolerance))
            if trigger.policy is not None:
                tolerance = DEFAULT_SETTINGS.tolerance
                found.extend(policy_findings(metric, trigger.policy, tolerance))
            if trigger.load is not None and trigger.load.query:
                query, node = trigger.load.query, parse_query(trigger.load.query).root
                workload = workload_of(inputs, metric.placed)
                found.extend(query_findings(inputs, node, metric.name, query, workload))
            continue
        answered = answer_of(inputs, metric, metric.spec, found)
        if answered is None:
            found.extend(unit_findings(metric, None))
            # Of other servers' rules, the usual name says which series it is.
            for each in SIGNALS.values():
                if metric.spec.name in (each.metric, each.series):
                    node = parse_query(each.series).root
                    found.extend(server_metric_findings(inputs, metric, node))
                    break
        else:
            used.add(answered.serving.rule.origin)
            found.extend(answer_findings(inputs, answered))
    yield from unused_sum_findings(inputs, used)
    yield from found
    for placed in inputs.hpas:
        yield from _waking(inputs, placed)


def _no_rules(metric: PlacedMetric) -> LintFinding:
    return NO_RULES.found(
        metric.name,
        "There is no rule file among the files: metrics are held against gpuscale's preset, and one "
        "that it does not know may be there all the same.",
    )


def _waking(inputs: Inputs, placed: PlacedHpa) -> Iterator[LintFinding]:
    if placed.hpa.min_replicas != 0:
        return
    wakers = [
        each
        for each in placed_metrics(placed)
        if isinstance(each.spec, ObjectMetric | ExternalMetric)
    ]
    behind = [_series_behind(inputs, each) for each in wakers]
    if wakers and all(series is not None and is_of_pods(series) for series in behind):
        yield CANNOT_WAKE.found(
            wakers[0].name,
            f"From 0 replicas nothing wakes the target: {why_asleep(map(str, behind))}.",
            f"The metrics come from {', '.join(map(str, behind))}.",
        )


def why_asleep(series: Iterable[str]) -> str:
    """Return why series of a workload's own pods can't bring the first one."""
    if all(map(is_of_gpu, series)):
        return "without a pod no GPU is at work"
    return "the series are its own pods', and without a pod nobody gives them"


def _served(inputs: Inputs, metric: PlacedMetric) -> Trigger | None:
    """Return the trigger that serves a metric."""
    if not isinstance(metric.spec, ExternalMetric):
        return None
    return inputs.served.get((metric.placed.hpa.metadata.namespace, metric.spec.name))


def _series_behind(inputs: Inputs, metric: PlacedMetric) -> str | None:
    spec = metric.spec
    if not isinstance(spec, ObjectMetric | ExternalMetric):
        return None
    if _served(inputs, metric) is not None:
        return None
    rules = inputs.external if isinstance(spec, ExternalMetric) else inputs.custom
    return next((each.series for each in rules.servings(spec.name)), None)


JUDGE = FileJudge("pairs", _CHECKS, pair_findings)
