"""What is wrong with a rule's query, whatever the data: in the words of `lint` and of `?why` alike."""

from dataclasses import dataclass

from gpuscale.base.errors import NotFoundError, QueryError
from gpuscale.base.objects.selectors import Selector
from gpuscale.series.promql import Node, parse_query, selectors
from gpuscale.server.rules.config import AdapterRule
from gpuscale.server.rules.queries.backwards import maps
from gpuscale.server.rules.queries.facts import carries, is_same_for_all
from gpuscale.server.rules.query import custom_query, external_query
from gpuscale.server.rules.resource_labels import NoLabelError
from gpuscale.server.rules.resources import NAMESPACES, PODS, ResourceType

ANY_NAME = "object"
"""Stands for the name of an object that is not known, such as a pod's."""
_NAMESPACE = "default"
_TWO = ("one-namespace", "another-namespace")


@dataclass(frozen=True, slots=True)
class QueryFault:
    """A fault of a query."""

    id: str
    """Of lint's check."""
    what: str
    fix: str


def custom_node(
    rule: AdapterRule,
    series: str,
    resource: ResourceType,
    namespace: str,
    selector: Selector,
    name: str = ANY_NAME,
) -> Node | None:
    """Return the syntax tree of the query for one object; None if there is none or it is no PromQL."""
    within = namespace if resource.namespaced else None
    try:
        text = custom_query(
            rule.metrics_query, series, rule.labels, resource, within, (name,), selector
        )
        return parse_query(text).root
    except (NotFoundError, QueryError):
        return None


def external_node(
    rule: AdapterRule, series: str, namespace: str, selector: Selector
) -> Node | None:
    """Return the syntax tree of an external metric's query; None if there is none or it is no PromQL."""
    within = namespace if rule.namespaced else None
    try:
        text = external_query(rule.metrics_query, series, rule.labels, within, selector)
        return parse_query(text).root
    except (NotFoundError, QueryError):
        return None


def selector_fault(
    rule: AdapterRule,
    series: str,
    resource: ResourceType | None,
    selector: Selector,
    name: str = ANY_NAME,
) -> QueryFault | None:
    """Return that conditions on labels of series reach no matcher of the query; None where they do.

    Args:
        rule: answers.
        series: that it reads.
        resource: what is asked for; None for an external metric.
        selector: the conditions.
        name: of the object.
    """
    if not selector:
        return None
    chosen, all_of_it = (
        external_node(rule, series, _NAMESPACE, each)
        if resource is None
        else custom_node(rule, series, resource, _NAMESPACE, each, name)
        for each in (selector, Selector())
    )
    if chosen is None or chosen != all_of_it:
        return None
    return QueryFault(
        "selector-without-effect",
        f"The query is the same with the selector and without it: {selector}.",
        "Put <<.LabelMatchers>> between the braces of each series of the query.",
    )


def mixed_fault(rule: AdapterRule, series: str, resource: ResourceType) -> QueryFault | None:
    """Return that a query gives each namespace the same rows, and does not tell them apart.

    Source: prometheus-adapter v0.12 pkg/custom-provider/provider.go (getMetrics: rows are found by the label
        of the object's name alone).
    """
    if rule.external or not resource.namespaced:
        return None
    try:
        label = rule.labels.label_for(NAMESPACES)
    except NoLabelError:
        return None
    here, there = (custom_node(rule, series, resource, each, Selector()) for each in _TWO)
    if here is None or here != there:
        return None
    if all(any(each.name == label for each in select.matchers) for select in selectors(here)):
        return None  # It is of one namespace alone, as written.
    return QueryFault(
        "namespaces-mixed",
        f"Whatever is asked for, the query is the same: {resource.plural} of all namespaces are among "
        "its rows, of one name the last counts, and a selector is without effect.",
        "Put <<.LabelMatchers>> between the braces of each series.",
    )


def one_number_fault(rule: AdapterRule, series: str) -> QueryFault | None:
    """Return that all pods' rows have one value; None where each may have its own.

    Source: kubernetes pkg/controller/podautoscaler/replica_calculator.go (calcPlainMetricReplicas: the mean
        of equal numbers is the number, however many pods there are).
    """
    if rule.external or not maps(rule, PODS):
        return None
    node = custom_node(rule, series, PODS, _NAMESPACE, Selector())
    if node is None or not carries(node, rule.labels.label_for(PODS)) or not is_same_for_all(node):
        return None
    return QueryFault(
        "one-number-for-all",
        "Every pod gets the same number. An HPA compares the mean of the pods with its target, and more "
        "pods don't lower it: above the target it goes to maxReplicas.",
        "Ask for it as an External or Object metric with averageValue, which divides it by the pods.",
    )
