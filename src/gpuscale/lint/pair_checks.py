"""What is wrong between an autoscaler and the rules that answer it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuscale.core.errors import NotFoundError
from gpuscale.core.spelling import closest
from gpuscale.hpa.tolerances import tolerances_for_hpa
from gpuscale.hpa.types import DEFAULT_SETTINGS
from gpuscale.lint.findings import CHECKS, Finding
from gpuscale.lint.hpa_checks import described_resource
from gpuscale.lint.hpa_places import PlacedMetric, placed_metrics
from gpuscale.lint.inputs import Inputs, PlacedHpa, PlacedRule
from gpuscale.lint.promql_facts import contradiction, is_one_row, summed_share, values_of
from gpuscale.lint.query_checks import query_findings
from gpuscale.lint.rule_checks import (
    GROUPED,
    gpu_name_findings,
    resources_without_rows,
    sum_finding,
)
from gpuscale.lint.series_facts import (
    closest_series,
    facts_of,
    is_of_gpu,
    is_unknown_gpu_name,
    recorded_from,
)
from gpuscale.lint.serving import (
    Serving,
    custom_node,
    external_node,
    mapped_resources,
    servings,
)
from gpuscale.objects.hpa import ExternalMetric, ObjectMetric, PodsMetric, TargetType
from gpuscale.objects.selectors import Selector
from gpuscale.scheduling.resources import gpu_count
from gpuscale.series.parse import selectors
from gpuscale.series.tree import Node
from gpuscale.sources.backwards import api_names, maps
from gpuscale.sources.resources import KUBERNETES, PODS, ResourceType

_SHOWN = 5
_JOBS = KUBERNETES.find("jobs")
AskedMetric = PodsMetric | ObjectMetric | ExternalMetric


@dataclass(frozen=True, slots=True)
class _Answered:
    """A metric with the rule that answers it and the query that is asked then."""

    metric: PlacedMetric
    spec: AskedMetric
    serving: Serving
    series: str
    node: Node

    @property
    def namespace(self) -> str:
        return self.metric.placed.hpa.metadata.namespace


def pair_findings(inputs: Inputs) -> tuple[list[Finding], set[str]]:
    """Return what is wrong, and the origins of the rules that an autoscaler asks for."""
    found: list[Finding] = []
    used: set[str] = set()
    asked = [metric for placed in inputs.hpas for metric in placed_metrics(placed)]
    for metric in asked:
        if isinstance(metric.spec, PodsMetric | ObjectMetric | ExternalMetric):
            if inputs.rule_files == 0 and not found:
                found.append(_no_rules(metric))
            answered = _answered(inputs, metric, metric.spec, found)
            if answered is not None:
                used.add(answered.serving.rule.origin)
                found.extend(_judged(inputs, answered))
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


# Who answers


def _answered(
    inputs: Inputs, metric: PlacedMetric, spec: AskedMetric, found: list[Finding]
) -> _Answered | None:
    resource = _resource(spec)
    if resource is None and not isinstance(spec, ExternalMetric):
        return None
    if resource is not None and not (resource.namespaced or resource.plural == "namespaces"):
        return None
    rules = inputs.external_rules if isinstance(spec, ExternalMetric) else inputs.rules
    may = servings(rules, spec.name)
    if not may:
        if inputs.has_all_rules:
            found.append(_unknown(inputs, metric, spec, rules))
        return None
    fitting = [each for each in may if resource is None or maps(each.rule, resource)]
    if resource is not None and not fitting:
        if inputs.has_all_rules:
            found.append(_not_for(metric, spec, resource, may))
        return None
    serving = max(fitting, key=lambda each: _likelihood(inputs, spec.name, each))
    if serving.series is None:
        return None
    if not any(each.certain for each in fitting):
        found.extend(_doubtful(inputs, metric, spec, serving.series))
    found.extend(_contradicted(metric, spec, serving, serving.series, resource))
    found.extend(_ungrouped(metric, spec, serving, resource))
    node = _node(metric, spec, serving, serving.series, resource)
    return None if node is None else _Answered(metric, spec, serving, serving.series, node)


def _likelihood(inputs: Inputs, metric: str, serving: Serving) -> int:
    """Return how likely it is that a rule's series is there; of equals the first is the last in the files."""
    series = serving.series
    if series is None:
        return 0
    if serving.certain:
        return 5
    if series in inputs.recorded or (
        facts_of(series) is not None and not series.endswith("_total")
    ):
        return 4
    if recorded_from(series) is not None:
        return 3
    return 2 if series == metric else 1


def _resource(spec: AskedMetric) -> ResourceType | None:
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
    return custom_node(serving.rule, series, resource, namespace, selector)


def _unknown(
    inputs: Inputs, metric: PlacedMetric, spec: AskedMetric, rules: Sequence[PlacedRule]
) -> Finding:
    named = _named(rules)
    others = _named(inputs.rules if rules is inputs.external_rules else inputs.external_rules)
    close = closest(spec.name, named, cutoff=0.6)
    shown = ", ".join(f"{name} ({place})" for name, place in list(named.items())[:_SHOWN])
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    evidence = f"The rules name {shown}{more}." if named else "The rules name none."
    fix = (
        f"Ask for {close}." if close else "Write a rule for it, or ask for a metric that is there."
    )
    if spec.name in others:
        other = "external" if not isinstance(spec, ExternalMetric) else "custom"
        evidence = f"{others[spec.name]} gives it as {_article(other)} metric."
        fix = f"Use {'an External' if other == 'external' else 'a Pods or Object'} metric."
    kind = "external" if isinstance(spec, ExternalMetric) else "custom"
    return Finding(
        CHECKS["unknown-metric"],
        metric.name,
        f"No rule gives {_article(kind)} metric {spec.name!r}.",
        evidence,
        fix,
    )


def _article(kind: str) -> str:
    return f"{'an' if kind == 'external' else 'a'} {kind}"


def _named(rules: Sequence[PlacedRule]) -> dict[str, str]:
    """Return the names that rules give outright, each with the place of its rule."""
    return {name: str(placed.place()) for placed in rules for _, name in api_names(placed.rule)}


def _not_for(
    metric: PlacedMetric, spec: AskedMetric, resource: ResourceType, may: Sequence[Serving]
) -> Finding:
    return Finding(
        CHECKS["metric-not-for-resource"],
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
) -> Iterator[Finding]:
    """Tell of a name that only rules for series of any name can give, where it is hardly a series."""
    if series in inputs.recorded:
        return
    if is_unknown_gpu_name(series):
        yield from gpu_name_findings(series, metric.name)
        return
    if facts_of(series) is not None or recorded_from(series) is not None:
        return
    close = closest(spec.name, _named(inputs.rules), cutoff=0.85) or closest_series(series)
    if close is not None:
        yield Finding(
            CHECKS["misspelled-metric"],
            metric.name,
            f"No rule names {spec.name!r}; it is there only if Prometheus has a series {series}.",
            f"{close} is known.",
            f"Ask for {close}, if that is what is meant.",
        )


def _contradicted(
    metric: PlacedMetric,
    spec: AskedMetric,
    serving: Serving,
    series: str,
    resource: ResourceType | None,
) -> Iterator[Finding]:
    node = _node(metric, spec, serving, series, resource)
    for select in selectors(node) if node is not None else ():
        pair = contradiction(select.matchers)
        if pair is not None:
            yield Finding(
                CHECKS["impossible-label"],
                metric.selector if spec.selector else metric.name,
                f"The query can't match a series: it asks for {pair[0]} and {pair[1]}.",
                f"{serving.placed.place('metricsQuery')}: {serving.placed.text('metricsQuery')}",
                "Leave one of the two conditions out, in the rule or in the HPA.",
            )
            return


def _ungrouped(
    metric: PlacedMetric, spec: AskedMetric, serving: Serving, resource: ResourceType | None
) -> Iterator[Finding]:
    """Tell of a query that has rows for some resources, and none for the one that is asked for."""
    if resource is None or resource not in resources_without_rows(serving.rule):
        return
    label = serving.rule.labels.label_for(resource)
    yield Finding(
        CHECKS["no-group-by"],
        metric.name,
        f"The rows of the query don't carry the label {label}, so that {spec.name!r} has no value "
        f"for {resource.name}.",
        f"{serving.placed.place('metricsQuery')}: {serving.placed.text('metricsQuery')}",
        f"Group by it: {GROUPED}, or ask for it of a resource that is in the rows.",
    )


# What the answer is good for


def _judged(inputs: Inputs, answered: _Answered) -> Iterator[Finding]:
    if not answered.serving.certain:
        yield from query_findings(
            answered.node, answered.metric.name, f"rule {answered.serving.rule.origin}"
        )
    yield from _labels(inputs, answered)
    yield from _sum(inputs, answered)
    yield from _rows(answered)
    yield from _reach(answered)


def _labels(inputs: Inputs, answered: _Answered) -> Iterator[Finding]:
    rule = answered.serving.rule
    spec = answered.spec
    is_pod_label = isinstance(spec, PodsMetric) and rule.labels.label_for(PODS) == "pod"
    if is_pod_label and answered.series.startswith("DCGM_FI_") and not inputs.honors_labels:
        yield Finding(
            CHECKS["exporter-pod"],
            answered.metric.name,
            f"The label pod of {answered.series} is the exporter's own pod, unless the exporter is "
            "scraped with honorLabels: true.",
            f"{answered.serving.placed.place()} takes it for the pod that uses the GPU.",
            "Scrape with honorLabels: true, or map exported_pod and exported_namespace.",
        )
    is_job = isinstance(spec, ObjectMetric) and described_resource(spec) == _JOBS
    if is_job and rule.labels.label_for(_JOBS) == "job":
        yield Finding(
            CHECKS["scrape-job-label"],
            answered.metric.described,
            "The label job is the name of Prometheus' scrape job on most series, "
            "not that of a Kubernetes Job.",
            f"{answered.serving.placed.place()} takes it for the Job.",
            "Map the label that names the Job, such as job_name, in an override of its own.",
        )


def _sum(inputs: Inputs, answered: _Answered) -> Iterator[Finding]:
    share = summed_share(answered.node)
    target = _target(answered.spec)
    if share is None or target is None or target > share:
        return
    if not isinstance(answered.spec, PodsMetric) and _is_average(answered.spec):
        return
    gpus = _gpus_per_pod(inputs, answered.metric.placed)
    if gpus == 1 and isinstance(answered.spec, PodsMetric):
        return
    why = f"two make {2 * share:g}, held against a target of {target:g}"
    if gpus is not None and gpus > 1 and isinstance(answered.spec, PodsMetric):
        why = f"the {gpus} of a pod make {gpus * share:g}, held against a target of {target:g}"
    place = answered.metric.name
    yield sum_finding(place, answered.serving.placed, answered.series, share, why)


def _gpus_per_pod(inputs: Inputs, placed: PlacedHpa) -> int | None:
    """Return how many GPUs each pod of the target has; None where the files don't tell."""
    target = placed.hpa.target
    for deployment in inputs.deployments:
        key = (deployment.metadata.namespace, "Deployment", deployment.metadata.name)
        if key == (placed.hpa.metadata.namespace, target.kind, target.name):
            return gpu_count(deployment.template.spec)
    return None


def _rows(answered: _Answered) -> Iterator[Finding]:
    spec = answered.spec
    if not isinstance(spec, ExternalMetric) or _is_average(spec) or is_one_row(answered.node):
        return
    values = values_of(answered.node)
    target = _target(spec)
    if values is None or not values.is_bounded or target is None or target > values.high:
        return
    yield Finding(
        CHECKS["external-rows-summed"],
        answered.metric.name,
        f"The controller adds up all rows of an external metric, and a row of this one is up to "
        f"{values.high:g}: with more rows a target of {target:g} is passed without any load.",
        _evidence(answered),
        "Aggregate to one row, such as avg(<<.Series>>{<<.LabelMatchers>>}), or use an "
        "averageValue target.",
    )


def _reach(answered: _Answered) -> Iterator[Finding]:
    values, target = values_of(answered.node), _target(answered.spec)
    if values is None or not values.is_bounded or values.high <= 0 or not target:
        return
    spec, hpa = answered.spec, answered.metric.placed.hpa
    if isinstance(spec, ExternalMetric) and not is_one_row(answered.node):
        return
    start = 1
    if not isinstance(spec, PodsMetric) and _is_average(spec):
        start = max(1, hpa.min_replicas or 1)
    tolerance = tolerances_for_hpa(hpa, DEFAULT_SETTINGS).scale_up
    if values.high / (target * start) <= 1 + tolerance:
        yield _unreachable(answered, values.high, target, start, tolerance)
    elif not isinstance(spec, PodsMetric) and _is_average(spec):
        most = math.ceil(values.high / target)
        if most < hpa.max_replicas:
            yield _capped(answered, values.high, target, most)


def _unreachable(
    answered: _Answered, high: float, target: float, start: int, tolerance: float
) -> Finding:
    each = f" over {start} replicas" if start > 1 else ""
    if target * start > high:
        what = f"The metric never gets to the target of {target:g}{each}: it is at most {high:g}."
    else:
        what = (
            f"The HPA never scales up: the metric is at most {high:g}, and {high:g} / "
            f"{target * start:g} = {high / (target * start):.3g} is within the tolerance, "
            f"{1 + tolerance:g}."
        )
    fix = f"Choose a target below {high / (1 + tolerance) / start:.3g}."
    if high == 1 and 1 < target <= 100:
        fix = (
            f"The metric is a ratio: write {round(target * 10)}m for {target:g} %, or multiply the "
            "query by 100."
        )
    place = answered.metric.target("averageValue" if _is_average(answered.spec) else "value")
    return Finding(CHECKS["unreachable-target"], place, what, _evidence(answered), fix)


def _capped(answered: _Answered, high: float, target: float, most: int) -> Finding:
    return Finding(
        CHECKS["capped-replicas"],
        answered.metric.target("averageValue"),
        f"The metric never asks for more than {most} replicas: it is at most {high:g}, and an "
        f"averageValue target asks for value / {target:g}, whatever the count is now.",
        _evidence(answered),
        "Use type: Value, which multiplies the count, or a Pods metric.",
    )


def _evidence(answered: _Answered) -> str:
    facts = facts_of(answered.series)
    unit = {"%": "a percentage", "ratio": "a ratio"}.get(facts.unit if facts else "", "")
    placed = answered.serving.placed
    query = placed.text("metricsQuery")
    where = f"{placed.place('metricsQuery')}: {query}" if query else f"rule {placed.rule.origin}"
    return f"{answered.series} is {unit}; {where}" if unit else where


def _target(spec: AskedMetric) -> float | None:
    target = spec.target
    quantity = target.average_value if _is_average(spec) else target.value
    return None if quantity is None else float(quantity)


def _is_average(spec: AskedMetric) -> bool:
    """Return whether averageValue is the field that counts."""
    if isinstance(spec, ObjectMetric):
        return spec.target.type is TargetType.AVERAGE_VALUE
    return spec.target.average_value is not None


# Waking


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
