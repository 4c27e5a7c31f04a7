"""How an HPA's metric aggregates GPU utilization, judged by the rule and query that serve it."""

from collections.abc import Iterator, Mapping

from gpuscale.base.errors import NotFoundError, QueryError
from gpuscale.base.objects.hpa import ObjectMetric, PodsMetric
from gpuscale.base.objects.selectors import Selector
from gpuscale.lab.sim.formula.fields import owner_labels
from gpuscale.lab.sim.needs import UTILIZATION
from gpuscale.lab.sim.pipeline import common_labels
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.series import METRIC_NAME
from gpuscale.series.promql import parse_matchers, parse_query, tree
from gpuscale.server.rules import (
    KUBERNETES,
    NAMESPACES,
    PODS,
    Catalogue,
    ResourceType,
    UnknownResourceError,
    custom_query,
)

_OF_PROCESSES = "DCGM_CUSTOM_PROCESS_SM_UTIL"
_OPERATORS = frozenset({"sum", "avg", "min", "max"})
_POD = "a"
"""The name of a pod of the workload, made up."""
_OF_GPUS = ("gpu", "UUID", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION")


def gpu_operator(setup: Setup, namespace: str, metric: PodsMetric | ObjectMetric) -> str | None:
    """Return `sum`, `avg`, `min` or `max`: the aggregation of GPU utilization in a metric.

    A Pods metric is of the GPUs of one pod of the namespace, an Object metric of all GPUs whose series name
    the object. None: it is of something else, of a form that is not known, or nothing serves it.
    """
    labels = _labels(setup, namespace)
    recorded = dict(_recorded(setup, labels))
    series = [{METRIC_NAME: name, **labels} for name in _percentages(setup)]
    for name, (_, by) in recorded.items():
        series.append({METRIC_NAME: name, **{each: labels[each] for each in by}})
    answers = {query: _found(query, series) for query in setup.rules.series_queries()}
    kind: ResourceType = PODS
    names: tuple[str, ...] = (_POD, "b")
    try:
        if isinstance(metric, ObjectMetric):
            described = metric.described_object
            kind, names = (
                KUBERNETES.find_kind(described.kind, described.api_version),
                (described.name,),
            )
        within = namespace if kind.namespaced else None
        catalogue = Catalogue.build(setup.rules, answers)
        entry = catalogue.custom_entry(kind, metric.name, within, names[0])
        if entry is None or entry.rule.parts:
            return None
        of = entry.rule.labels
        label = of.label_for(kind)
        # With other values in the labels, series are the exporter's own, and none matches a pod.
        known = {label: names[0]} | ({of.label_for(NAMESPACES): within} if within else {})
        selector = metric.selector or Selector()
        text = custom_query(
            entry.rule.metrics_query, entry.series, of, kind, within, names, selector
        )
        aggregation = _aggregation(parse_query(text).root)
    except (NotFoundError, QueryError, UnknownResourceError):
        return None  # the metrics API has no value for it either
    if aggregation is None or any(labels.get(key) != value for key, value in known.items()):
        return None
    operator, name, chosen, by = aggregation
    if name != entry.series or by != {label} or not chosen <= known.keys():
        return None
    if name not in recorded:
        return operator
    # One series for each object: the rule's operator leaves it unchanged.
    operator, by = recorded[name]
    one_each = known.keys() <= by <= known.keys() | common_labels(setup).keys()
    return operator if one_each else None


def _percentages(setup: Setup) -> Iterator[str]:
    """Yield the series of each GPU's utilization in percent; a simulated pod has one process on each GPU."""
    if any(row.name == UTILIZATION for row in setup.counters):
        yield UTILIZATION
    if setup.pipeline.style == "ack":
        yield _OF_PROCESSES


def _labels(setup: Setup, namespace: str) -> Mapping[str, str]:
    """Return the labels on GPU series of a pod in a namespace."""
    of_namespace, of_pod = owner_labels(setup)
    if setup.pipeline.honor_labels:
        of_namespace = of_namespace.removeprefix("exported_")
        of_pod = of_pod.removeprefix("exported_")
    agent = {**common_labels(setup), "pod": "exporter", "instance": "node:9400"}
    return {**dict.fromkeys(_OF_GPUS, "x"), **agent, of_namespace: namespace, of_pod: _POD}


def _recorded(
    setup: Setup, labels: Mapping[str, str]
) -> Iterator[tuple[str, tuple[str, frozenset[str]]]]:
    """Yield the recorded series that aggregate over GPUs: operator, and grouping labels."""
    percentages = {*_percentages(setup)}
    for rule in setup.prometheus_rules.rules():
        aggregation = _aggregation(rule.query.root)
        if aggregation is None:
            continue
        operator, name, chosen, by = aggregation
        if name in percentages and not chosen and by <= labels.keys():
            yield rule.name, (operator, by)


def _found(query: str, series: list[dict[str, str]]) -> list[Mapping[str, str]]:
    try:
        matchers = parse_matchers(query)
    except QueryError:
        return []
    takes = [(each.name, each.predicate()) for each in matchers]
    return [each for each in series if all(take(each.get(name, "")) for name, take in takes)]


def _aggregation(root: tree.Node) -> tuple[str, str, frozenset[str], frozenset[str]] | None:
    """Return operator, series, matchers and grouping labels of an aggregation over a plain series."""
    match root:
        case tree.Aggregate(operator, tree.Select(matchers, moment), None, True, by):
            names = [each.value for each in matchers if each.name == METRIC_NAME]
            if operator in _OPERATORS and moment == tree.Moment() and len(names) == 1:
                chosen = frozenset(each.name for each in matchers) - {METRIC_NAME}
                return operator, names[0], chosen, frozenset(by)
    return None
