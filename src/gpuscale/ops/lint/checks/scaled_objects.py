"""Faults in the queries and thresholds of KEDA's prometheus triggers.

Source: KEDA v2.21 pkg/scalers/prometheus_scaler.go (one row; what an empty answer is).
"""

from collections.abc import Iterator

from gpuscale.base.errors import QueryError
from gpuscale.base.findings import Checks, Severity
from gpuscale.base.objects.scaled_object import PROMETHEUS, RESOURCE_TRIGGERS, ScaleTrigger
from gpuscale.base.quantity import Quantity
from gpuscale.hpa.controller import DEFAULT_SETTINGS
from gpuscale.hpa.terms import unit_fault, unit_of_query
from gpuscale.ops.lint.checks.answers import AVERAGE_OF_A_MEAN
from gpuscale.ops.lint.checks.pairs import CANNOT_WAKE, why_asleep
from gpuscale.ops.lint.checks.queries import query_findings
from gpuscale.ops.lint.checks.reach import Aim, reach_findings
from gpuscale.ops.lint.checks.rules import gpu_name_findings
from gpuscale.ops.lint.checks.server_options import Load, server_findings
from gpuscale.ops.lint.checks.targets import unit_finding
from gpuscale.ops.lint.findings import LintFinding, Place
from gpuscale.ops.lint.inputs import FileJudge, Inputs, PlacedScaledObject
from gpuscale.ops.lint.problems import QUERY_NOT_PROMQL, sentence
from gpuscale.ops.lint.workloads import found_kind
from gpuscale.series.promql import Node, parse_query
from gpuscale.server.rules.queries import (
    does_not_grow,
    is_one_row,
    may_be_empty,
    reads,
    values_of,
)
from gpuscale.signals import facts_of, is_of_pods

_CHECKS = Checks()
SEVERAL_ROWS = _CHECKS.add(
    "several-rows",
    Severity.WARNING,
    "A KEDA query that may give more rows than the one that it takes.",
    "Aggregate to one row, with avg(...), max(...) or sum(...).",
)
NULL_IS_ZERO = _CHECKS.add(
    "null-is-zero",
    Severity.WARNING,
    "A fallback beside a query whose empty answer counts as 0, so that the fallback never comes.",
    'Write ignoreNullValues: "false" beside the query.',
)
THRESHOLD_NOT_POSITIVE = _CHECKS.add(
    "threshold-not-positive",
    Severity.ERROR,
    "A threshold that is no number above 0.",
    "Write what one replica can take.",
)
COOLDOWN_WITHOUT_EFFECT = _CHECKS.add(
    "cooldown-without-effect",
    Severity.NOTE,
    "A cooldownPeriod where nothing is scaled to 0 or to the idle count: KEDA waits for it only then.",
    "Leave it out; scale-down is slowed by advanced.horizontalPodAutoscalerConfig.behavior.",
)
CHAIN_CHECKS = Checks("autoscaler")
ZERO_WITHOUT_SOURCE = CHAIN_CHECKS.add(
    "zero-without-source",
    Severity.ERROR,
    "minReplicaCount 0 with cpu and memory triggers alone, which nothing can wake.",
    "Add a trigger that has a value without pods, or set minReplicaCount to 1.",
)


def scaled_object_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the faults of the files' ScaledObjects."""
    for each in inputs.scaled_objects:
        yield from _findings(inputs, each)


def _findings(inputs: Inputs, placed: PlacedScaledObject) -> Iterator[LintFinding]:
    scaled = placed.scaled
    series: list[str | None] = []
    target = scaled.metadata.namespace, found_kind(scaled.target_kind), scaled.target_name
    workload = inputs.workloads.get(target)
    yield from _cooldown(placed)
    for index, trigger in enumerate(scaled.triggers):
        if trigger.kind == PROMETHEUS:
            yield from _threshold(placed, index, trigger)
        if trigger.kind in RESOURCE_TRIGGERS:
            continue  # Their value is never 0, so they never deactivate.
        if trigger.kind != PROMETHEUS:
            series.append(None)
            continue
        place = placed.place("spec", "triggers", index, "metadata", "query")
        try:
            node = parse_query(trigger.query).root
        except QueryError as error:
            series.append(None)
            yield QUERY_NOT_PROMQL.found(
                place,
                sentence(str(error)),
                trigger.query,
                "Correct the query.",
            )
            continue
        names = [read.series for read in reads(node)]
        series.extend(names or [None])
        for name in dict.fromkeys(names):
            if name is not None and name not in inputs.recorded:
                yield from gpu_name_findings(name, place)
        yield from query_findings(inputs, node, place, trigger.query, workload)
        load = Load(
            node,
            place,
            placed.place("spec", "triggers", index, "metadata", "threshold"),
            trigger.threshold,
            is_divided=trigger.is_average,
            is_of_each=False,
        )
        yield from server_findings(workload, load)
        yield from _null(placed, index, trigger, node)
        yield from _rows(trigger, node, place)
        if scaled.modifiers is not None:
            continue  # What counts is the formula's target, not the thresholds.
        in_another_unit = tuple(_unit(placed, index, trigger, node))
        yield from (
            in_another_unit
            or tuple(_reach(placed, index, trigger, node))
            or _mean(placed, index, trigger, node)
        )
    if scaled.least > 0 or not scaled.triggers:
        return
    if not series:
        yield _only_resources(placed)
    elif all(each is not None and is_of_pods(each) for each in series):
        yield _never_wakes(placed, [str(each) for each in series])


def _cooldown(placed: PlacedScaledObject) -> Iterator[LintFinding]:
    """Source: KEDA v2.21 pkg/scaling/executor/scale_scaledobjects.go (scaleToZeroOrIdle)."""
    spec = placed.written("spec")
    if "cooldownPeriod" in spec and placed.scaled.least > 0 and "idleReplicaCount" not in spec:
        yield COOLDOWN_WITHOUT_EFFECT.found(
            placed.place("spec", "cooldownPeriod"),
            f"It never goes below {placed.scaled.least}, and has no idleReplicaCount: nothing waits for the "
            "cooldownPeriod.",
            f"cooldownPeriod: {spec['cooldownPeriod']}",
        )


def _threshold(
    placed: PlacedScaledObject, index: int, trigger: ScaleTrigger
) -> Iterator[LintFinding]:
    """Source: KEDA v2.21 pkg/scalers/scaler.go (GetMetricTargetMili); HPAs want targets above 0."""
    text = str(trigger.metadata.get("threshold", "")).strip()
    is_reference = not text or "$" in text or "(" in text
    if is_reference or (trigger.threshold is not None and trigger.threshold > 0):
        return
    unread = trigger.threshold is None
    found = "KEDA can't read it" if unread else "the HPA would have no target above 0"
    yield THRESHOLD_NOT_POSITIVE.found(
        placed.place("spec", "triggers", index, "metadata", "threshold"),
        f"Found {text!r}, expected a number above 0: {found}.",
        trigger.query,
    )


def _null(
    placed: PlacedScaledObject, index: int, trigger: ScaleTrigger, node: Node
) -> Iterator[LintFinding]:
    given = str(trigger.metadata.get("ignoreNullValues", "true")).lower()
    ignores = given not in ("false", "f", "0")
    if "fallback" in placed.written("spec") and ignores and may_be_empty(node):
        yield NULL_IS_ZERO.found(
            placed.place("spec", "fallback"),
            "Where the query answers nothing, KEDA takes that for 0; the fallback is for errors alone.",
            f"{placed.place('spec', 'triggers', index, 'metadata', 'query')}: {trigger.query}",
        )


def _rows(trigger: ScaleTrigger, node: Node, place: Place) -> Iterator[LintFinding]:
    if not is_one_row(node):
        yield SEVERAL_ROWS.found(
            place,
            "The query may give several rows; KEDA takes one alone and fails on more.",
            trigger.query,
        )


def _unit(
    placed: PlacedScaledObject, index: int, trigger: ScaleTrigger, node: Node
) -> Iterator[LintFinding]:
    unit, series = unit_of_query(node), next((read.series for read in reads(node)), None)
    if unit is None or not trigger.threshold:
        return
    threshold = Quantity(round(trigger.threshold * 1e9))
    fault = unit_fault(series or "the query", threshold, unit)
    if fault is not None:
        place = placed.place("spec", "triggers", index, "metadata", "threshold")
        yield unit_finding(fault, place, trigger.query, fault.fix(as_number=True))


def _reach(
    placed: PlacedScaledObject, index: int, trigger: ScaleTrigger, node: Node
) -> Iterator[LintFinding]:
    values = values_of(node)
    if values is None or not values.is_bounded or values.high <= 0:
        return
    if not trigger.threshold or trigger.threshold <= 0 or not is_one_row(node):
        return
    units = {known.unit for read in reads(node) if read.series and (known := facts_of(read.series))}
    unit = {"%": "a percentage", "ratio": "a ratio"}.get(units.pop() if len(units) == 1 else "", "")
    yield from reach_findings(
        Aim(
            place=placed.place("spec", "triggers", index, "metadata", "threshold"),
            high=values.high,
            target=trigger.threshold,
            is_divided=trigger.is_average,
            least=max(1, placed.scaled.least),
            most=placed.scaled.most,
            tolerance=DEFAULT_SETTINGS.tolerance,
            evidence=f"{trigger.query} is {unit}" if unit else trigger.query,
            way_out="Write metricType: Value beside the trigger, which multiplies the count.",
        )
    )


def _mean(
    placed: PlacedScaledObject, index: int, trigger: ScaleTrigger, node: Node
) -> Iterator[LintFinding]:
    """Report an average over pods or GPUs: KEDA's HPA divides by the target, whatever the pod count."""
    what = does_not_grow(node)
    if what is None or not trigger.is_average or not trigger.threshold:
        return
    has_type = "metricType" in placed.written("spec", "triggers", index)
    place = ("metricType",) if has_type else ("metadata", "query")
    yield AVERAGE_OF_A_MEAN.found(
        placed.place("spec", "triggers", index, *place),
        f"AverageValue, KEDA's default, asks for value / threshold pods; {what} does not grow with the pods, "
        f"so at {2 * trigger.threshold:g} it asks for 2, whether there is 1 pod or 50.",
        trigger.query,
    )


def _only_resources(placed: PlacedScaledObject) -> LintFinding:
    kinds = ", ".join(each.kind for each in placed.scaled.triggers)
    return ZERO_WITHOUT_SOURCE.found(
        placed.place("spec", "minReplicaCount"),
        "It may go to 0, and no trigger of it has a value without pods: KEDA refuses it.",
        f"minReplicaCount: {placed.scaled.least}; triggers: {kinds}",
    )


def _never_wakes(placed: PlacedScaledObject, series: list[str]) -> LintFinding:
    first = next(
        index for index, each in enumerate(placed.scaled.triggers) if each.kind == PROMETHEUS
    )
    return CANNOT_WAKE.found(
        placed.place("spec", "triggers", first, "metadata", "query"),
        f"From 0 replicas nothing wakes the target: {why_asleep(series)}.",
        f"The triggers read {', '.join(dict.fromkeys(series))}.",
        "Add a trigger on the load itself, such as the length of a queue, or write "
        "minReplicaCount: 1.",
    )


JUDGE = FileJudge(
    "scaled-objects", Checks(including=(_CHECKS, CHAIN_CHECKS)), scaled_object_findings
)
