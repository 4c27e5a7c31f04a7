"""Which rule answers for a metric of the API, as far as the files tell.

A rule whose series query names its series is certain. Of others the name of the series is worked out
backwards from the name of the metric; whether there is such a series, only a Prometheus knows.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuscale.core.errors import NotFoundError, QueryError
from gpuscale.lint.inputs import PlacedRule
from gpuscale.lint.promql_facts import contradiction, named_series
from gpuscale.objects.selectors import Selector
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.parse import parse_matchers, parse_query
from gpuscale.series.tree import Node
from gpuscale.sources.query import custom_query, external_query
from gpuscale.sources.resources import NAMESPACES, ResourceType
from gpuscale.sources.rules import Rule

_ONE_GROUP = re.compile(r"\^?([\w:]*)\([^()]*\)([\w:]*)\$?")
"""An expression of one group with plain text around it."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A rule that gives a metric, and the series that it gives it of."""

    placed: PlacedRule
    series: str | None
    """None where it can't be told which."""
    certain: bool
    """Whether the rule names the series; otherwise there may be none of that name."""

    @property
    def rule(self) -> Rule:
        """Return the rule."""
        return self.placed.rule


def servings(rules: Sequence[PlacedRule], metric: str) -> tuple[Serving, ...]:
    """Return the rules that give, or may give, a metric; of the last ones in the files first."""
    return tuple(found for placed in reversed(rules) for found in _of_rule(placed, metric))


def api_names(placed: PlacedRule) -> tuple[tuple[str, str], ...]:
    """Return series and API name of what a rule names outright, sorted; nothing of an open rule."""
    names = sorted(named_series(placed.rule.series_query) or ())
    given = ((series, placed.rule.api_name(series)) for series in names)
    return tuple((series, name) for series, name in given if name is not None)


def _of_rule(placed: PlacedRule, metric: str) -> Iterator[Serving]:
    rule = placed.rule
    if named_series(rule.series_query) is not None:
        yield from (
            Serving(placed, series, certain=True)
            for series, name in api_names(placed)
            if name == metric
        )
        return
    behind = _series_behind(rule, metric)
    if behind is None:
        if _can_be_anything(rule, metric):
            yield Serving(placed, None, certain=False)
    elif rule.api_name(behind) == metric and _takes_name(rule, behind):
        yield Serving(placed, behind, certain=False)


def _series_behind(rule: Rule, metric: str) -> str | None:
    """Return the series whose API name is `metric`; None where the rule can't be read backwards."""
    parts = rule.naming.expansion.parts
    groups = [index for index, part in enumerate(parts) if isinstance(part, int)]
    if len(groups) != 1:
        return None
    before, after = _literal(parts[: groups[0]]), _literal(parts[groups[0] + 1 :])
    if not (metric.startswith(before) and metric.endswith(after)):
        return metric
    inside = metric[len(before) : len(metric) - len(after)]
    if parts[groups[0]] == 0:
        return inside
    form = _ONE_GROUP.fullmatch(rule.naming.pattern.pattern)
    return None if form is None else f"{form[1]}{inside}{form[2]}"


def _literal(parts: Sequence[str | int]) -> str:
    return "".join(part for part in parts if isinstance(part, str))


def _can_be_anything(rule: Rule, metric: str) -> bool:
    """Return whether a rule that can't be read backwards may give the name; the plain text has to fit."""
    parts = rule.naming.expansion.parts
    text = "".join(re.escape(part) if isinstance(part, str) else ".*" for part in parts)
    return re.fullmatch(text, metric, re.DOTALL) is not None


def _takes_name(rule: Rule, series: str) -> bool:
    matchers = parse_matchers(rule.series_query)
    return all(matcher.predicate()(series) for matcher in matchers if matcher.name == METRIC_NAME)


def maps(rule: Rule, resource: ResourceType) -> bool:
    """Return whether a rule can find a resource among the labels of its series.

    A template may make a label name that it does not read back: with `kube_<<.Group>>_<<.Resource>>` pods,
    which have no group, become `kube__pod`, and nothing is ever found under that name.
    """
    try:
        label = rule.labels.label_for(resource)
    except NotFoundError:
        return False
    return rule.labels.resource_for(label) == resource


def mapped_resources(rule: Rule) -> tuple[ResourceType, ...]:
    """Return the resources that overrides name, each once."""
    return tuple(dict.fromkeys(rule.labels.overrides.values()))


def has_namespaces(rule: Rule) -> bool:
    """Return whether a rule has a label for namespaces."""
    return maps(rule, NAMESPACES)


def custom_node(
    rule: Rule, series: str, resource: ResourceType, namespace: str, selector: Selector
) -> Node | None:
    """Return the query for one object, as a tree; None where there is none or it is no PromQL."""
    within = namespace if resource.namespaced else None
    try:
        text = custom_query(
            rule.metrics_query, series, rule.labels, resource, within, ("object",), selector
        )
        return parse_query(text).root
    except (NotFoundError, QueryError):
        return None


def external_node(rule: Rule, series: str, namespace: str, selector: Selector) -> Node | None:
    """Return the query of an external metric, as a tree; None where there is none or it is no PromQL."""
    within = namespace if rule.namespaced else None
    try:
        text = external_query(rule.metrics_query, series, rule.labels, within, selector)
        return parse_query(text).root
    except (NotFoundError, QueryError):
        return None


def selector_of_series(rule: Rule) -> tuple[Matcher, ...]:
    """Return the matchers of a rule's series query."""
    return parse_matchers(rule.series_query)


def contradicting_label(rule: Rule, label: str) -> tuple[Matcher, Matcher] | None:
    """Return what in a rule's series query keeps a label from ever being there."""
    there = Matcher(label, MatchOp.NOT_EQUAL, "")
    return contradiction((*selector_of_series(rule), there))
