"""Rules of a team, which read and serve a single namespace.

Every selector of what a rule asks gets a matcher for the namespace, whatever else it says, after its
template was filled. The label is one that the operator trusts to distinguish namespaces, never one that the
rule names. A query that is not understood is not sent.
"""

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

from gpuscale.base.byte_cache import MAX_TEXT, ByteCache, deep_bytes
from gpuscale.base.errors import ConfigError, Problem, QueryError
from gpuscale.base.golang.template import Template, TemplateError
from gpuscale.base.golang.template.render import Data
from gpuscale.series import Matcher, MatchOp
from gpuscale.series.promql import Node, Select, parse_query, promql_text
from gpuscale.server.rules.budget import DEFAULT_BUDGET, check_range
from gpuscale.server.rules.config import AdapterConfig, AdapterRule
from gpuscale.server.rules.resource_labels import NoLabelError
from gpuscale.server.rules.resources import NAMESPACES


class ConfinedTemplate(Template):
    """A query template whose text is confined to one namespace once it is filled."""

    def __init__(self, template: Template, matcher: Matcher, longest_ms: int) -> None:
        super().__init__(template.nodes, template.dialect)
        self._matcher = matcher
        self._longest_ms = longest_ms

    def plain_fields(self) -> None:
        """Return None: the filled query reads more than the template shows."""
        return

    def render(self, data: Data) -> str:
        """Return the confined query; empty if the template gives none.

        Raises:
            TemplateError: the template can't be filled.
            QueryError: its text is no PromQL, as far as it is understood here, or looks too far back.
        """
        text = super().render(data)
        return confined_query(text, self._matcher, self._longest_ms) if text else text


_CONFINED: ByteCache[tuple[str, Matcher, int], str] = ByteCache("confined queries", 4 * 1024 * 1024)


def confined_query(
    promql: str, matcher: Matcher, longest_ms: int = DEFAULT_BUDGET.longest_range_ms
) -> str:
    """Return the query with the matcher added to each of its selectors.

    Raises:
        QueryError: not PromQL, as far as it is understood here, or it looks further back than that.
    """
    key = (promql, matcher, longest_ms)
    found = _CONFINED.get(key)
    if found is None:
        root = parse_query(promql).root
        check_range(root, longest_ms)
        found = promql_text(_confined(root, matcher))
        if len(promql) <= MAX_TEXT:
            _CONFINED.put(key, found, deep_bytes((key, found)))
    return found


def confined_config(
    config: AdapterConfig,
    namespace: str,
    labels: Collection[str],
    source: str,
    longest_ms: int = DEFAULT_BUDGET.longest_range_ms,
) -> AdapterConfig:
    """Return the rules of a team, confined to its namespace.

    Args:
        config: what its file says.
        namespace: its own.
        labels: the labels that are trusted to distinguish namespaces.
        source: the name of the file, for messages.
        longest_ms: how far back its queries may look.

    Raises:
        ConfigError: with every rule that can't be confined.
    """
    problems: list[Problem] = []
    if config.resource_rules is not None:
        expected = "rules and externalRules only: metrics.k8s.io is one for the whole cluster"
        problems.append(Problem(source, None, "resourceRules", "resourceRules", expected))
    place = (namespace, labels, longest_ms)
    rules = [_rule(rule, *place, problems) for rule in config.rules]
    external = [_rule(rule, *place, problems) for rule in config.external_rules]
    if problems:
        raise ConfigError(*problems)
    disabled = tuple(replace(rule, only_in=namespace) for rule in config.disabled)
    return replace(config, rules=tuple(rules), external_rules=tuple(external), disabled=disabled)


def _rule(
    rule: AdapterRule,
    namespace: str,
    labels: Collection[str],
    longest_ms: int,
    problems: list[Problem],
) -> AdapterRule:
    try:
        label = rule.labels.label_for(NAMESPACES)
    except NoLabelError:
        label = ""
    if label not in labels:
        known = " or ".join(labels)
        found = f"the label {label!r} for namespaces" if label else "no label for namespaces"
        problems.append(Problem(rule.origin, None, "resources", found, f"the label {known}"))
        return rule
    matcher = Matcher(label, MatchOp.EQUAL, namespace)
    confined = replace(
        rule,
        series_query=confined_query(rule.series_query, matcher),
        metrics_query=ConfinedTemplate(rule.metrics_query, matcher, longest_ms),
        parts=tuple(
            replace(part, query=ConfinedTemplate(part.query, matcher, longest_ms))
            for part in rule.parts
        ),
        only_in=namespace,
    )
    try:
        confined.example("series_of_the_rule")
    except (QueryError, TemplateError) as error:
        expected = f"a query that can be confined to the namespace {namespace}: {error}"
        problems.append(Problem(rule.origin, None, "metricsQuery", None, expected))
    return confined


def _confined(node: Node, matcher: Matcher) -> Node:
    if isinstance(node, Select):
        return replace(node, matchers=(*node.matchers, matcher))
    changed: dict[str, Any] = {}
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Node):
            changed[field.name] = _confined(value, matcher)
        elif isinstance(value, tuple) and any(isinstance(each, Node) for each in value):
            changed[field.name] = tuple(_confined(each, matcher) for each in value)
    return replace(node, **changed)
