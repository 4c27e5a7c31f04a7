"""Faults of rules, whichever HPA uses them."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

from gpuscale.base.findings import Checks, Severity
from gpuscale.base.golang.template import TemplateError
from gpuscale.base.golang.template.render import Data
from gpuscale.base.objects.selectors import Selector
from gpuscale.ops.lint.checks.queries import QUERY_CHECKS, query_findings
from gpuscale.ops.lint.findings import LintFinding, Place
from gpuscale.ops.lint.inputs import FileJudge, Inputs
from gpuscale.ops.lint.rule_inputs import FOREIGN, PlacedRule
from gpuscale.ops.lint.serving import (
    contradicting_label,
    has_namespaces,
    mapped_resources,
    selector_of_series,
)
from gpuscale.series.promql import Node
from gpuscale.server.rules import (
    KUBERNETES,
    NAMESPACES,
    PODS,
    AdapterRule,
    NoLabelError,
    ResourceType,
)
from gpuscale.server.rules.queries import (
    api_names,
    calls,
    carries,
    contradiction,
    custom_node,
    external_node,
    maps,
    mixed_fault,
    named_series,
    one_number_fault,
    summed_share,
)
from gpuscale.signals import closest_series, is_unknown_gpu_name, recorded_from

_CHECKS = Checks(including=(QUERY_CHECKS,))
UNQUOTED_NAME = _CHECKS.add(
    "unquoted-name",
    Severity.WARNING,
    "A value of `.LabelValuesByName` outside of quotes: requests write PromQL.",
    "Use <<.LabelMatchers>>, or put the value into double quotes.",
)
NO_NAMESPACE_LABEL = _CHECKS.add(
    "no-namespace-label",
    Severity.ERROR,
    "A rule for objects in namespaces that maps no label to them.",
    "Map the label of the namespace, such as namespace: {resource: namespace}.",
)
NO_GROUP_BY = _CHECKS.add(
    "no-group-by",
    Severity.ERROR,
    "A query whose rows don't carry the label of the object.",
    "Group by it: by (<<.GroupBy>>).",
)
FOREIGN_DELIMITERS = _CHECKS.add(
    "foreign-delimiters",
    Severity.ERROR,
    "A template with `{{` and `}}`: rule files have `<<` and `>>`, and take the others for text.",
    "Write <<.Series>>, <<.LabelMatchers>> and <<.GroupBy>>.",
)
NAMESPACES_MIXED = _CHECKS.add(
    "namespaces-mixed",
    Severity.NOTE,  # Names of a Deployment's pods hardly come twice, those of a StatefulSet's do.
    "A query that takes nothing from the request, so that objects of all namespaces are among its rows.",
    "Put <<.LabelMatchers>> between the braces of each series.",
)
ONE_NUMBER = _CHECKS.add(
    "one-number-for-all",
    Severity.WARNING,
    "A query that gives every pod the same number, such as the length of the one queue.",
    "Ask for it as an External or Object metric with averageValue, which divides it by the pods.",
)
IMPOSSIBLE_LABEL = _CHECKS.add(
    "impossible-label",
    Severity.ERROR,
    "A label that no series can have, or not with such a value.",
    "Leave one of the two conditions out, or map the label as Prometheus has it.",
)
SHADOWED_RULE = _CHECKS.add(
    "shadowed-rule",
    Severity.WARNING,
    "Two rules that give one metric; the last has it.",
    "Give one of them another name with name.as, or leave it out.",
)
SUM_OF_PERCENTAGES = _CHECKS.add(
    "sum-of-percentages",
    Severity.WARNING,
    "A sum over several GPUs of what is a percentage or a ratio.",
    "Take avg or max instead of sum, or choose the target for the sum.",
)
NAN_WITHOUT_TRAFFIC = _CHECKS.add(
    "nan-without-traffic",
    Severity.NOTE,
    "A quantile of a histogram: NaN, and so absent, without traffic.",
    "Say `nan: zero` in the rule where it should scale in; prometheus-adapter does not know the key.",
)
UNKNOWN_GPU_SERIES = _CHECKS.add(
    "unknown-gpu-series",
    Severity.WARNING,
    "A name that looks like a GPU metric's and is none.",
    "Use the nearest name; docs/metrics.md has those that there are.",
)
RECORDED_GPU_SERIES = _CHECKS.add(
    "recorded-gpu-series",
    Severity.NOTE,
    "A GPU series that only a recording rule can make.",
    "Let Prometheus record it; a PrometheusRule among the files counts as that.",
)

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLACEHOLDER = "some_series"
"""Placeholder for a series name that the rule leaves open."""
_NAME = "some_object"
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|`[^`]*`', re.DOTALL)
"""A string of PromQL."""
_NAMESPACE = "default"
GROUPED = "by (<<.GroupBy>>)"
"""What a query has to end with for its rows to belong to objects."""


def rule_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the faults of the user's rules."""
    for placed in (*inputs.rules, *inputs.external_rules):
        if placed.document is None:
            continue
        yield from _label_findings(placed)
        yield from _namespace_findings(placed)
        foreign = FOREIGN.search(placed.text("metricsQuery") or "")
        if foreign is not None:
            yield FOREIGN_DELIMITERS.found(
                placed.place("metricsQuery"),
                f"{foreign[0]} stays in the query as it is: templates of rules stand between << and >>.",
                placed.text("metricsQuery"),
                f"Write <<{foreign[1]}>>; the request's namespace, names and selector come with "
                "<<.LabelMatchers>>.",
            )
            continue
        yield from _grouping_findings(placed)
        yield from _fault_findings(placed)
        for series in sorted((named_series(placed.rule) or set()) - inputs.recorded):
            yield from gpu_name_findings(series, placed.place("seriesQuery"))
        yield from _query_findings(inputs, placed)
        yield from _unquoted_findings(placed)
    yield from _shadowed(inputs.rules, external=False)
    yield from _shadowed(inputs.external_rules, external=True)


def sum_finding(
    place: Place, placed: PlacedRule, series: str, share: float, why: str
) -> LintFinding:
    """Return the finding about a sum of percentages.

    Args:
        place: of the finding.
        placed: the rule with the sum.
        series: what is summed.
        share: the most that one row brings.
        why: what is known of the number of rows.
    """
    return SUM_OF_PERCENTAGES.found(
        place,
        f"The query sums {series}, of which one GPU alone gives up to {share:g}: {why}.",
        _query_evidence(placed),
    )


def _query_evidence(placed: PlacedRule) -> str:
    text = placed.text("metricsQuery")
    return f"{placed.place('metricsQuery')}: {text}" if text else f"rule {placed.rule.origin}"


# Labels


def _label_findings(placed: PlacedRule) -> Iterator[LintFinding]:
    pair = contradiction(selector_of_series(placed.rule))
    if pair is not None:
        yield IMPOSSIBLE_LABEL.found(
            placed.place("seriesQuery"),
            f"No series can match the series query: {pair[0]} and {pair[1]}.",
            placed.rule.series_query,
            "Leave one of the two conditions out.",
        )
        return
    for label, resource in placed.rule.labels.overrides.items():
        place = placed.place("resources", "overrides", label)
        if not _LABEL.fullmatch(label):
            yield IMPOSSIBLE_LABEL.found(
                place,
                f"{label!r} can't be a label of a series that a query asks for by name.",
                "Prometheus' label names are letters, digits and underscores.",
                f"Map the label as Prometheus has it, such as {re.sub(r'[^A-Za-z0-9_]', '_', label)}.",
            )
        elif contradicting_label(placed.rule, label) is not None:
            yield IMPOSSIBLE_LABEL.found(
                place,
                f"The series query takes only series without the label {label!r}, "
                f"which is to name the {resource.singular}.",
                placed.rule.series_query,
                f'Ask for {label}!="" in the series query.',
            )


def _namespace_findings(placed: PlacedRule) -> Iterator[LintFinding]:
    rule = placed.rule
    if has_namespaces(rule):
        return
    if rule.external:
        if rule.namespaced:
            yield NO_NAMESPACE_LABEL.found(
                placed.place("resources"),
                "No label stands for the namespace, and every request for the metric asks for one.",
                "Each request ends with the error 500.",
                "Map the label of the namespace, such as namespace: {resource: namespace}, or say "
                "`namespaced: false`.",
            )
        return
    inside = [each for each in mapped_resources(rule) if each.namespaced]
    if inside:
        names = ", ".join(each.name for each in inside)
        yield NO_NAMESPACE_LABEL.found(
            placed.place("resources", "overrides"),
            f"No label stands for the namespace, and every request for {names} asks for one.",
            "Each request ends with the error 404.",
        )


# Grouping


def _grouping_findings(placed: PlacedRule) -> Iterator[LintFinding]:
    """Report a query without rows for any resource; one with some is checked with each HPA."""
    rule = placed.rule
    carried = _carried(rule)
    if not rule.external and carried and not any(carried.values()):
        named = [each for each in carried if each != NAMESPACES] or carried
        labels = ", ".join(rule.labels.label_for(each) for each in named)
        yield NO_GROUP_BY.found(
            placed.place("metricsQuery"),
            f"The rows of the query don't carry the label {labels}, so that none of them "
            "belongs to an object.",
            placed.text("metricsQuery"),
            f"Group by it: {GROUPED}.",
        )


def resources_without_rows(rule: AdapterRule) -> list[ResourceType]:
    """Return the mapped resources whose label is missing from the rows of a rule's query."""
    return [each for each, is_carried in _carried(rule).items() if not is_carried]


def _carried(rule: AdapterRule) -> dict[ResourceType, bool]:
    """Return of each resource that a rule maps whether the rows of its query carry the label."""
    series = min(named_series(rule) or (_PLACEHOLDER,))
    # A template maps resources without naming any: rows are checked for pods.
    mapped = mapped_resources(rule) or ([PODS] if maps(rule, PODS) else [])
    nodes = {each: custom_node(rule, series, each, _NAMESPACE, Selector()) for each in mapped}
    return {
        each: carries(node, rule.labels.label_for(each))
        for each, node in nodes.items()
        if node is not None
    }


def _fault_findings(placed: PlacedRule) -> Iterator[LintFinding]:
    """Report what is wrong with the query for all who ask."""
    rule = placed.rule
    series = min(named_series(rule) or (_PLACEHOLDER,))
    mixed = (mixed_fault(rule, series, each) for each in mapped_resources(rule))
    faults = (next(filter(None, mixed), None), one_number_fault(rule, series))
    for check, fault in zip((NAMESPACES_MIXED, ONE_NUMBER), faults, strict=True):
        if fault is not None:
            place, query = placed.place("metricsQuery"), placed.text("metricsQuery")
            yield check.found(place, fault.what, query, fault.fix)


# Names


def gpu_name_findings(series: str, place: Place) -> Iterator[LintFinding]:
    """Report a series name that resembles a GPU metric's but is none."""
    if not is_unknown_gpu_name(series):
        return
    field = recorded_from(series)
    if field is not None:
        yield RECORDED_GPU_SERIES.found(
            place,
            f"No exporter serves {series}: a recording rule has to make it.",
            f"{field} is what exporters serve.",
            f"Let Prometheus record it (record: {series}); a PrometheusRule among the files "
            "counts as that.",
        )
        return
    close = closest_series(series)
    yield UNKNOWN_GPU_SERIES.found(
        place,
        f"No exporter that is known serves {series}.",
        f"{close} is the nearest name." if close else "",
        f"Use {close}." if close else "See docs/metrics.md for the names that there are.",
    )


# Queries of known series


def _query_findings(inputs: Inputs, placed: PlacedRule) -> Iterator[LintFinding]:
    rule = placed.rule
    place = placed.place("metricsQuery")
    for series, _ in api_names(placed.rule)[:1]:
        node = _filled(rule, series)
        if node is not None:
            yield from query_findings(inputs, node, place, placed.text("metricsQuery"))
            if not rule.nan_is_zero and calls(node, "histogram_quantile"):
                yield NAN_WITHOUT_TRAFFIC.found(
                    place,
                    "Without traffic the quantile is NaN, which is no value here: the HPA keeps its "
                    "replicas. prometheus-adapter answers 0, and the HPA scales in.",
                    placed.text("metricsQuery"),
                )


def _filled(rule: AdapterRule, series: str) -> Node | None:
    if rule.external:
        return external_node(rule, series, _NAMESPACE, Selector())
    mapped = mapped_resources(rule)
    asked = next((each for each in mapped if each != NAMESPACES), (*mapped, PODS)[0])
    return custom_node(rule, series, asked, _NAMESPACE, Selector())


def _unquoted_findings(placed: PlacedRule) -> Iterator[LintFinding]:
    """Report a template that inserts request values outside of quoted strings."""
    labels = []
    for resource in KUBERNETES.types:
        with suppress(NoLabelError):
            labels.append(placed.rule.labels.label_for(resource))
    data: Data = {
        "Series": _PLACEHOLDER,
        "LabelMatchers": "",
        "LabelValuesByName": dict.fromkeys(labels, _NAME),
        "GroupBy": "",
        "GroupBySlice": (),
    }
    try:
        text = placed.rule.metrics_query.render(data)
    except TemplateError:
        return
    if _NAME in _STRING.sub("", text):
        yield UNQUOTED_NAME.found(
            placed.place("metricsQuery"),
            "The query takes a value of .LabelValuesByName outside of quotes, where it is PromQL: "
            "with the name of an object or of a namespace, a request writes a part of the query.",
            _query_evidence(placed),
        )


def unused_sum_findings(inputs: Inputs, used: set[str]) -> Iterator[LintFinding]:
    """Return rules with sums of percentages that no autoscaler of the files uses.

    Args:
        inputs: the files.
        used: origins of the rules that one asks for, whose sums are judged by its target.
    """
    for placed in inputs.rules:
        if placed.document is None or placed.rule.origin in used:
            continue
        for series, _ in api_names(placed.rule)[:1]:
            node = _filled(placed.rule, series)
            share = summed_share(node) if node is not None else None
            if share is not None:
                place = placed.place("metricsQuery")
                yield sum_finding(place, placed, series, share, f"two of a pod give {2 * share:g}")


# Rules over rules


def _shadowed(rules: Sequence[PlacedRule], *, external: bool) -> Iterator[LintFinding]:
    """Return rules that never win; one for another label may, for series that have only that label."""
    last: dict[tuple[str, str, str], PlacedRule] = {}
    for placed in reversed(rules):
        rule = placed.rule
        # The resources that the rule certainly finds, each with its label.
        listed = (
            [("", "")]
            if external
            else [
                (each.name, rule.labels.label_for(each))
                for each in mapped_resources(rule)
                if each != NAMESPACES
            ]
        )
        hidden: dict[str, PlacedRule] = {}
        for _, name in api_names(rule):
            for resource, label in listed:
                other = last.setdefault((resource, label, name), placed)
                if other is not placed:
                    hidden.setdefault(name, other)
        if placed.document is None:
            continue
        for name, other in hidden.items():
            yield SHADOWED_RULE.found(
                placed.place("seriesQuery"),
                f"A later rule gives the metric {name!r} too, and the last one has it.",
                f"{other.place()}: {other.rule.series_query}",
            )


JUDGE = FileJudge("rules", _CHECKS, rule_findings)
