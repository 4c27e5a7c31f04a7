"""Rules read backwards: from a metric's API name to the series it may come from.

A rule whose series query names its series is certain, and so is one that gives whatever it finds under one
fixed name. Of others the name of the series is worked out from the name of the metric; whether there is such
a series, only a Prometheus knows.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuscale.base.errors import NotFoundError
from gpuscale.series import METRIC_NAME, MatchOp
from gpuscale.series.promql import metric_names, parse_matchers, parse_query
from gpuscale.server.rules.config import AdapterRule
from gpuscale.server.rules.resources import ResourceType

_ONE_GROUP = re.compile(r"\^?([\w:]*)\([^()]*\)([\w:]*)\$?")
"""An expression of one group with plain text around it."""
_LITERAL = re.compile(r"\^?([\w:]+)\$?")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A series from which a rule may give the metric."""

    series: str | None
    """None where it is not clear which."""
    certain: bool
    """Whether the rule names the series or the metric; otherwise there may be none of that name."""


def named_series(rule: AdapterRule) -> frozenset[str] | None:
    """Return the series names in a rule's series query; None if it doesn't name them."""
    names = metric_names(parse_query(rule.series_query))
    if names is not None:
        return names
    for matcher in parse_matchers(rule.series_query):
        if matcher.name == METRIC_NAME and matcher.op is MatchOp.REGEX:
            literal = _LITERAL.fullmatch(matcher.value)
            if literal is not None:
                return frozenset({literal[1]})
    return None


def fixed_name(rule: AdapterRule) -> str | None:
    """Return a rule's constant API name; None if it depends on the series name."""
    parts = rule.naming.expansion.parts
    return None if any(isinstance(part, int) for part in parts) else _literal(parts) or None


def api_names(rule: AdapterRule) -> tuple[tuple[str, str], ...]:
    """Return pairs of series and API name that a rule states, sorted; none for an open rule."""
    given = ((series, rule.api_name(series)) for series in sorted(named_series(rule) or ()))
    return tuple((series, name) for series, name in given if name is not None)


def candidates(rule: AdapterRule, metric: str) -> Iterator[Candidate]:
    """Return the series from which a rule gives a metric, certainly or possibly."""
    if named_series(rule) is not None:
        yield from (
            Candidate(series, certain=True) for series, name in api_names(rule) if name == metric
        )
        return
    behind = _series_behind(rule, metric)
    if (fixed := fixed_name(rule)) is not None:
        if fixed == metric and (behind is None or _takes_name(rule, behind)):
            yield Candidate(behind, certain=True)
    elif behind is None:
        if _can_be_anything(rule, metric):
            yield Candidate(None, certain=False)
    elif rule.api_name(behind) == metric and _takes_name(rule, behind):
        yield Candidate(behind, certain=False)


def _series_behind(rule: AdapterRule, metric: str) -> str | None:
    """Return the series whose API name is `metric`; None if the naming can't be reversed."""
    parts = rule.naming.expansion.parts
    groups = [index for index, part in enumerate(parts) if isinstance(part, int)]
    if not groups:
        literal = _LITERAL.fullmatch(rule.naming.pattern.pattern)
        return literal[1] if literal is not None else None
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


def _can_be_anything(rule: AdapterRule, metric: str) -> bool:
    """Return whether a rule that can't be reversed may give the name, judged by its literal text."""
    parts = rule.naming.expansion.parts
    text = "".join(re.escape(part) if isinstance(part, str) else ".*" for part in parts)
    return re.fullmatch(text, metric, re.DOTALL) is not None


def _takes_name(rule: AdapterRule, series: str) -> bool:
    matchers = parse_matchers(rule.series_query)
    return all(matcher.predicate()(series) for matcher in matchers if matcher.name == METRIC_NAME)


def maps(rule: AdapterRule, resource: ResourceType) -> bool:
    """Return whether a rule can map a resource to one of its series' labels.

    A template may make a label name that it does not read back: with `kube_<<.Group>>_<<.Resource>>` pods,
    which have no group, become `kube__pod`, and nothing is ever found under that name.
    """
    try:
        label = rule.labels.label_for(resource)
    except NotFoundError:
        return False
    return rule.labels.resource_for(label) == resource
