"""The GPU series that a scenario's queries read, and why some have no formula.

What has one gives the same document either way, to the byte; what might not is refused here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from gpuscale.base.errors import NotFoundError, QueryError
from gpuscale.base.objects.hpa import ExternalMetric, ObjectMetric, PodsMetric
from gpuscale.base.objects.selectors import Selector
from gpuscale.lab.sim.formula.formulas import Formulas, takes_shape_with_a_request
from gpuscale.lab.sim.load.requests import SERIES as REQUESTS
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.series import METRIC_NAME, MatchOp
from gpuscale.series.promql import (
    Aggregate,
    Node,
    children,
    metric_names,
    parse_matchers,
    parse_query,
)
from gpuscale.server.rules import (
    KUBERNETES,
    PODS,
    AdapterRule,
    UnknownResourceError,
    custom_query,
    external_query,
)
from gpuscale.triggers.keda import prometheus_queries, trigger_queries, triggers_of

_ALERTS = frozenset({"ALERTS", "ALERTS_FOR_STATE"})
_TAKE_FIRST = frozenset({"topk", "bottomk", "limitk"})
"""Of rows that are equal they take those that come first."""


@dataclass(frozen=True, slots=True)
class _Query:
    """A PromQL query that does not depend on a request."""

    by: str
    root: Node
    looks_back: bool = False
    """Whether it is asked for another time than that of the question."""


@dataclass(frozen=True, slots=True)
class _Metric:
    """A metric that is requested from the metrics API."""

    by: str
    name: str
    spec: PodsMetric | ObjectMetric | ExternalMetric | None
    """None asks for a metric of pods."""
    namespace: str

    @property
    def selector(self) -> Selector:
        return (self.spec and self.spec.selector) or Selector()


def why_not(setup: Setup) -> tuple[str, ...]:
    """Return why a scenario can't run by formula, a sentence for each reason; empty if it can."""
    return tuple(dict.fromkeys(ScenarioQueries(setup).reasons()))


class ScenarioQueries:
    """All queries of a scenario.

    Args:
        setup: the scenario.
    """

    def __init__(self, setup: Setup) -> None:
        self.formulas = Formulas(setup)
        self._setup = setup
        recorded = {rule.name for rule in setup.prometheus_rules.rules()}
        metrics = [each.metrics for each in setup.workloads if each.metrics is not None]
        served = frozenset(chain.from_iterable(each.series() for each in metrics))
        self._stored = recorded | served | REQUESTS | _ALERTS
        self._triggers = (
            *setup.triggers,
            *chain.from_iterable(map(triggers_of, setup.scaled_objects)),
        )

    @cached_property
    def fields(self) -> frozenset[str]:
        """Return the fields that the queries read."""
        found: set[str] = set()
        for query in self._queries():
            found |= self.formulas.fields_of(query.root)
        for metric in self._metrics():
            for rule in self._rules_for(metric):
                for series in self._candidates(rule, metric.name):
                    root = _root(rule, series, metric)
                    found |= {series} & self.formulas.fields
                    found |= self.formulas.fields_of(root) if root is not None else set()
        return frozenset(found)

    def reasons(self) -> Iterator[str]:
        """Yield the reasons why queries have no formula."""
        if self._setup.pipeline.honor_labels:
            yield "honorLabels gives idle GPUs the labels of pods"
        for each in self._setup.pools:
            if any(machine.is_shared for machine in each.machines):
                yield f"pods share the GPUs of node pool {each.pool.name}"
        for name in sorted(self._stored & self.formulas.of_agents):
            yield f"{name} is a series of the node agents, and others have the same name"
        for query in self._queries():
            if self._is_open(query.root):
                yield f"{query.by} asks for more of GPUs than one aggregation of one known field"
            elif query.looks_back and self.formulas.fields_of(query.root):
                yield f"{query.by} asks for what GPUs read some time ago"
        for metric in self._metrics():
            for rule in self._rules_for(metric):
                faults = self._faults(rule, metric)
                yield from (f"{metric.by}, metric {metric.name}: {fault}" for fault in faults)

    def _queries(self) -> Iterator[_Query]:
        for group in self._setup.prometheus_rules.groups:
            for rule in group.rules:
                by = f"the Prometheus rule {rule.name} (group {group.name})"
                yield _Query(by, rule.query.root, looks_back=group.offset_ms != 0)
        for scaled in self._setup.scaled_objects:
            by = f"ScaledObject {scaled.metadata.name}"
            # KEDA queries at the last whole second, which may be before the latest scrape.
            looks_back = self._setup.pipeline.scrape_interval % 1000 != 0
            yield from _parsed(by, prometheus_queries(scaled), looks_back=looks_back)
        for trigger in self._triggers:
            by = f"trigger {trigger.name}"
            yield from _parsed(by, trigger_queries(trigger), looks_back=trigger.policy is not None)

    def _metrics(self) -> Iterator[_Metric]:
        for hpa in self._setup.hpas:
            by = f"HorizontalPodAutoscaler {hpa.metadata.name}"
            for spec in hpa.metrics:
                if isinstance(spec, PodsMetric | ObjectMetric | ExternalMetric):
                    yield _Metric(by, spec.name, spec, hpa.metadata.namespace)
        for trigger in self._triggers:
            if trigger.load is not None and trigger.load.metric:
                by = f"trigger {trigger.name}"
                yield _Metric(by, trigger.load.metric, None, trigger.namespace)

    def _rules_for(self, metric: _Metric) -> tuple[AdapterRule, ...]:
        rules = self._setup.rules
        is_external = isinstance(metric.spec, ExternalMetric)
        return rules.external_rules if is_external else rules.rules

    def _candidates(self, rule: AdapterRule, metric: str) -> set[str]:
        """Return the series that may give a metric by a rule."""
        try:
            matchers = parse_matchers(rule.series_query)
        except QueryError:
            return set()  # it finds nothing in a store either
        takes = [each.predicate() for each in matchers if each.name == METRIC_NAME]
        return {
            name
            for name in self._stored | self.formulas.of_agents
            if all(each(name) for each in takes) and rule.api_name(name) == metric
        }

    def _faults(self, rule: AdapterRule, metric: _Metric) -> Iterator[str]:
        about = f"the rule at {rule.origin}"
        names = self._candidates(rule, metric.name)
        is_open = names and metric_names(parse_query(rule.series_query)) is None
        if is_open and names & self.formulas.of_agents:
            yield f"{about} leaves open which series it reads"
            return
        for name in sorted(names):
            root = _root(rule, name, metric)
            if name in self.formulas.fields and rule.only_in:
                yield f"{about} is of one namespace"
            elif root is None and takes_shape_with_a_request(rule):
                yield f"{about} takes shape with a request"
            elif (root is not None and self._is_open(root)) or (
                name in self.formulas.of_agents and not self._is_found_alike(rule, name)
            ):
                yield f"{about} is not one aggregation of one known field"

    def _is_open(self, root: Node) -> bool:
        """Return whether a query might give another result by formula."""
        takes_first = any(
            isinstance(each, Aggregate) and each.operator in _TAKE_FIRST for each in _nodes(root)
        )
        # Recorded results of formulas may be in another order than recorded results of the store.
        hangs_on_order = takes_first and bool(self.fields)
        return hangs_on_order or self.formulas.is_open(root)

    def _is_found_alike(self, rule: AdapterRule, name: str) -> bool:
        """Return whether discovery finds a field's series as `ReadGpus.found` gives them."""
        known = {*self.formulas.constants, *self.formulas.owner}
        return (
            name in self.formulas.fields
            and not rule.labels.has_template
            and all(
                each.name in self.formulas.constants
                or (each.name in known and (each.op, each.value) == (MatchOp.NOT_EQUAL, ""))
                for each in parse_matchers(rule.series_query)
                if each.name != METRIC_NAME
            )
        )


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in children(node):
        yield from _nodes(child)


def _parsed(by: str, texts: Iterator[str], *, looks_back: bool = False) -> Iterator[_Query]:
    for text in texts:
        try:
            yield _Query(by, parse_query(text).root, looks_back)
        except QueryError:
            continue  # KEDA gets the error at each poll


def _root(rule: AdapterRule, series: str, metric: _Metric) -> Node | None:
    """Return the syntax tree of a rule's query for a metric; None if there is none."""
    if takes_shape_with_a_request(rule):
        return None
    template, spec, namespace = rule.metrics_query, metric.spec, metric.namespace
    try:
        if isinstance(spec, ExternalMetric):
            within = namespace if rule.namespaced else None
            text = external_query(template, series, rule.labels, within, metric.selector)
        elif isinstance(spec, ObjectMetric):
            described = spec.described_object
            kind = KUBERNETES.find_kind(described.kind, described.api_version)
            names, within = (described.name,), namespace if kind.namespaced else None
            text = custom_query(template, series, rule.labels, kind, within, names, metric.selector)
        else:
            pods = ("a", "b")
            text = custom_query(
                template, series, rule.labels, PODS, namespace, pods, metric.selector
            )
        return parse_query(text).root
    except (NotFoundError, QueryError, UnknownResourceError):
        return None  # the metrics API has no value for it either
