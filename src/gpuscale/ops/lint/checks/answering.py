"""Which rule answers an autoscaler's metric, and why if none does."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from gpuscale.base.errors import NotFoundError
from gpuscale.base.findings import Checks, Severity
from gpuscale.base.objects.hpa import ExternalMetric, ObjectMetric, PodsMetric
from gpuscale.base.objects.selectors import Selector
from gpuscale.ops.lint.checks.hpas import described_resource
from gpuscale.ops.lint.checks.rules import (
    GROUPED,
    IMPOSSIBLE_LABEL,
    NO_GROUP_BY,
    gpu_name_findings,
    resources_without_rows,
)
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.hpa_places import PlacedMetric
from gpuscale.ops.lint.inputs import Inputs
from gpuscale.ops.lint.rule_inputs import PlacedRule
from gpuscale.ops.lint.serving import (
    RuleIndex,
    Serving,
    mapped_resources,
)
from gpuscale.series import Matcher, MatchOp
from gpuscale.series.promql import Node, selectors
from gpuscale.server.rules import PODS, ResourceType
from gpuscale.server.rules.queries import ANY_NAME, contradiction, custom_node, external_node, maps
from gpuscale.signals import SIGNALS, closest_series, facts_of, is_unknown_gpu_name, recorded_from

ANSWERING_CHECKS = Checks()
UNKNOWN_METRIC = ANSWERING_CHECKS.add(
    "unknown-metric",
    Severity.ERROR,
    "A metric that no rule names.",
    "Correct the name, or add a rule that gives the metric.",
)
MISSPELLED_METRIC = ANSWERING_CHECKS.add(
    "misspelled-metric",
    Severity.WARNING,
    "A metric that only rules for any series can give, and that is nearly another.",
    "Ask for the known name, if that is what is meant.",
)
METRIC_ELSEWHERE = ANSWERING_CHECKS.add(
    "metric-elsewhere",
    Severity.NOTE,
    "An external metric that another server may have: these files say nothing about it.",
    "Add an external rule for it, if gpuscale or prometheus-adapter is to serve it.",
)
METRIC_NOT_FOR_RESOURCE = ANSWERING_CHECKS.add(
    "metric-not-for-resource",
    Severity.ERROR,
    "A metric that is there, but not for such objects.",
    "Map the label that names such objects, or ask for a metric that is there for them.",
)
IMPOSSIBLE_KEY = ANSWERING_CHECKS.add(
    "impossible-selector-key",
    Severity.ERROR,
    "A metric selector with a key that no label of Prometheus can have.",
    "Name the label as Prometheus has it.",
)

_SHOWN = 5
_SERIES_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
AskedMetric = PodsMetric | ObjectMetric | ExternalMetric
"""What rules answer; the others are for the resource metrics API."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A metric with its rule and its query."""

    metric: PlacedMetric
    spec: AskedMetric
    serving: Serving
    series: str
    node: Node


def answer_of(
    inputs: Inputs, metric: PlacedMetric, spec: AskedMetric, found: list[LintFinding]
) -> Answered | None:
    """Return the rule and query that answer a metric; add the reason to `found` if there is none."""
    resource = resource_of(spec)
    if resource is None and not isinstance(spec, ExternalMetric):
        return None
    if resource is not None and not (resource.namespaced or resource.plural == "namespaces"):
        return None
    rules = inputs.external if isinstance(spec, ExternalMetric) else inputs.custom
    may = rules.servings(spec.name)
    if not may:
        if inputs.has_all_rules:
            found.append(_unknown(inputs, metric, spec, rules))
        return None
    fitting = [each for each in may if resource is None or maps(each.rule, resource)]
    if resource is not None and not fitting:
        if inputs.has_all_rules:
            found.append(_not_for(metric, spec, resource, may))
        return None
    # A metric of another server may have that server's selectors: Stackdriver's keys contain dots.
    found.extend(_impossible_keys(metric, spec))
    serving = max(fitting, key=lambda each: _likelihood(inputs, spec.name, each))
    if serving.series is None:
        return None
    if not any(each.certain for each in fitting):
        found.extend(_doubtful(inputs, metric, spec, serving.series))
    found.extend(_ungrouped(metric, spec, serving, resource))
    node = _node(metric, spec, serving, serving.series, resource)
    if node is None:
        return None
    answered = Answered(metric, spec, serving, serving.series, node)
    found.extend(_contradicted(answered))
    return answered


def _likelihood(inputs: Inputs, metric: str, serving: Serving) -> int:
    """Return how likely a rule's series exists; of equals, the last rule in the files ranks first."""
    series = serving.series
    if serving.certain:
        return 5
    if series is None:
        return 0
    if series in inputs.recorded or (
        facts_of(series) is not None and not series.endswith("_total")
    ):
        return 4
    if recorded_from(series) is not None:
        return 3
    return 2 if series == metric else 1


def resource_of(spec: AskedMetric) -> ResourceType | None:
    """Return what a metric is of; None for an external one, and for a kind that is not built in."""
    if isinstance(spec, PodsMetric):
        return PODS
    return described_resource(spec) if isinstance(spec, ObjectMetric) else None


def _node(
    metric: PlacedMetric,
    spec: AskedMetric,
    serving: Serving,
    series: str,
    resource: ResourceType | None,
) -> Node | None:
    namespace = metric.placed.hpa.metadata.namespace
    selector = spec.selector or Selector()
    if resource is None:
        return external_node(serving.rule, series, namespace, selector)
    name = spec.described_object.name if isinstance(spec, ObjectMetric) else ANY_NAME
    return custom_node(serving.rule, series, resource, namespace, selector, name)


def _unknown(
    inputs: Inputs, metric: PlacedMetric, spec: AskedMetric, rules: RuleIndex
) -> LintFinding:
    named = rules.named
    others = (inputs.custom if rules is inputs.external else inputs.external).named
    close = rules.closest(spec.name, cutoff=0.6)
    shown = ", ".join(f"{name} ({place})" for name, place in islice(named.items(), _SHOWN))
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    evidence = f"The rules name {shown}{more}." if named else "The rules name none."
    fix = "Write a rule for it, or ask for a metric that is there."
    for name, signal in SIGNALS.items():
        if spec.name in (signal.metric, signal.series, *signal.older):
            fix = f"Ask for {signal.metric}, with the signal {name} among gpuscale's; or write a rule for it."
            break
    if close:
        fix = f"Ask for {close}."
    if spec.name in others:
        other = "external" if not isinstance(spec, ExternalMetric) else "custom"
        evidence = f"{others[spec.name]} gives it as {_article(other)} metric."
        fix = f"Use {'an External' if other == 'external' else 'a Pods or Object'} metric."
    elif isinstance(spec, ExternalMetric) and not (
        inputs.triggers or (rules and _SERIES_NAME.fullmatch(spec.name))
    ):
        return METRIC_ELSEWHERE.found(
            metric.name,
            f"No rule gives the external metric {spec.name!r}; whichever server serves "
            "external.metrics.k8s.io in the cluster may have it.",
            evidence if rules else "There is no external rule among the files.",
        )
    kind = "external" if isinstance(spec, ExternalMetric) else "custom"
    return UNKNOWN_METRIC.found(
        metric.name,
        f"No rule gives {_article(kind)} metric {spec.name!r}.",
        evidence,
        fix,
    )


def _article(kind: str) -> str:
    return f"{'an' if kind == 'external' else 'a'} {kind}"


def _impossible_keys(metric: PlacedMetric, spec: AskedMetric) -> Iterator[LintFinding]:
    for requirement in spec.selector.requirements if spec.selector is not None else ():
        if not _LABEL_NAME.fullmatch(requirement.key):
            yield IMPOSSIBLE_KEY.found(
                metric.selector,
                f"No series has a label {requirement.key!r}: Prometheus' label names are letters, "
                "digits and underscores.",
                f"{requirement}",
            )


def _not_for(
    metric: PlacedMetric, spec: AskedMetric, resource: ResourceType, may: Sequence[Serving]
) -> LintFinding:
    return METRIC_NOT_FOR_RESOURCE.found(
        metric.name,
        f"The metric {spec.name!r} is not there for {resource.name}.",
        _why_not_for(may[0].placed, resource),
        f"Map the label that names the {resource.singular}, such as "
        f"{resource.singular}: {{resource: {resource.singular}}}, or ask for a metric that is "
        f"there for {resource.name}.",
    )


def _why_not_for(placed: PlacedRule, resource: ResourceType) -> str:
    there = ", ".join(each.name for each in mapped_resources(placed.rule)) or "no resource"
    try:
        label = placed.rule.labels.label_for(resource)
    except NotFoundError:
        return f"{placed.place()} maps labels to {there}."
    return (
        f"{placed.place()} makes {label} of its template, and does not read {resource.name} back "
        "from that."
    )


def _doubtful(
    inputs: Inputs, metric: PlacedMetric, spec: AskedMetric, series: str
) -> Iterator[LintFinding]:
    """Report a metric name that only open rules can give and that is unlikely to be a series."""
    if series in inputs.recorded:
        return
    if is_unknown_gpu_name(series):
        yield from gpu_name_findings(series, metric.name)
        return
    if facts_of(series) is not None or recorded_from(series) is not None:
        return
    close = inputs.custom.closest(spec.name, cutoff=0.85) or closest_series(series)
    if close not in (None, spec.name):
        yield MISSPELLED_METRIC.found(
            metric.name,
            f"No rule names {spec.name!r}; it is there only if Prometheus has a series {series}.",
            f"{close} is known.",
            f"Ask for {close}, if that is what is meant.",
        )


def _contradicted(answered: Answered) -> Iterator[LintFinding]:
    metric, placed = answered.metric, answered.serving.placed
    for select in selectors(answered.node):
        pair = contradiction([_of_any_name(each) for each in select.matchers])
        if pair is not None:
            yield IMPOSSIBLE_LABEL.found(
                metric.selector if answered.spec.selector else metric.name,
                f"The query can't match a series: it asks for {pair[0]} and {pair[1]}.",
                f"{placed.place('metricsQuery')}: {placed.text('metricsQuery')}",
                "Leave one of the two conditions out, in the rule or in the HPA.",
            )
            return


def _of_any_name(matcher: Matcher) -> Matcher:
    """Return a matcher of a name that the files don't give as one of any name."""
    if matcher.value != ANY_NAME:
        return matcher
    return Matcher(matcher.name, MatchOp.NOT_EQUAL, "")


def _ungrouped(
    metric: PlacedMetric, spec: AskedMetric, serving: Serving, resource: ResourceType | None
) -> Iterator[LintFinding]:
    """Report a query whose rows carry labels of some resources, but not of the requested one."""
    without = resources_without_rows(serving.rule)
    if resource is None or resource not in without:
        return
    if serving.placed.document is not None and set(mapped_resources(serving.rule)) <= set(without):
        return  # None has rows, which is said of the rule.
    label = serving.rule.labels.label_for(resource)
    yield NO_GROUP_BY.found(
        metric.name,
        f"The rows of the query don't carry the label {label}, so that {spec.name!r} has no value "
        f"for {resource.name}.",
        f"{serving.placed.place('metricsQuery')}: {serving.placed.text('metricsQuery')}",
        f"Group by it: {GROUPED}, or ask for it of a resource that is in the rows.",
    )
