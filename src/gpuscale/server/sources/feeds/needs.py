"""The names of the series that adapter rules can ever read.

A query takes shape with a request, and a template may have parts that an example does not show. So every word
of a template's text counts as a name as well; most are none, and cost nothing. Where a name could come about
in any other way, everything is wanted.
"""

import re
from collections.abc import Iterator

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.golang.template import Template
from gpuscale.base.golang.template.nodes import (
    Branch,
    Dot,
    FunctionCall,
    Literal,
    Node,
    Operand,
    PlainText,
    Print,
    TemplatePipeline,
    Variable,
)
from gpuscale.series import EVERYTHING, METRIC_NAME, WantedNames, wanted_by
from gpuscale.series.promql import parse_query
from gpuscale.server.rules.config import AdapterConfig, AdapterRule

_OWN = WantedNames(frozenset({"gpuscale_exporter_newest_reading_timestamp_seconds"}))
"""What the server itself asks for: when agents measured."""
_WORD = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_QUOTED = re.compile(r"\"((?:[^\"\\]|\\.)*)\"")
_IN_NAMES = re.compile(r"[a-zA-Z0-9_:]")
_SERIES = Print(TemplatePipeline((Dot(("Series",)),)))
_ANY_NAME = "gpuscale_any_series"
"""In place of a name that only a pattern is known of."""


def wanted_by_rules(config: AdapterConfig) -> WantedNames:
    """Return the names of all series that the rules can ever read."""
    rules = (*config.rules, *config.external_rules)
    parts = [_OWN, *(_wanted_by_rule(rule) for rule in rules)]
    if config.resource_rules is not None:
        resources = config.resource_rules.cpu, config.resource_rules.memory
        parts += [_words(each.container_query) for each in resources]
        parts += [_words(each.node_query) for each in resources]
    return WantedNames.joined(parts)


def _wanted_by_rule(rule: AdapterRule) -> WantedNames:
    try:
        found = wanted_by(parse_query(rule.series_query))
        parts = [found, _words(rule.metrics_query)]
        if rule.metrics_query.plain_fields() is None:
            return WantedNames.joined(parts)
        for series in found.names or {_ANY_NAME}:
            asked = wanted_by(parse_query(rule.example(series)))
            if series == _ANY_NAME and any(
                _ANY_NAME in text and text != _ANY_NAME for text in (*asked.names, *asked.patterns)
            ):
                return EVERYTHING
            parts.append(asked)
    except GpuscaleError:
        return EVERYTHING
    return WantedNames.joined(parts)


def _words(template: Template) -> WantedNames:
    """Return the words of a template's text; everything if a name may be built otherwise."""
    if _makes_names(template.nodes):
        return EVERYTHING
    texts = list(_texts(template.nodes))
    if template.plain_fields() is None and any(METRIC_NAME in text for text in texts):
        return EVERYTHING
    words = {word for text in texts for word in _WORD.findall(text)}
    words |= {quoted for text in texts for quoted in _QUOTED.findall(text)}
    return WantedNames(frozenset(words))


def _texts(nodes: tuple[Node, ...]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, PlainText):
            yield node.text
        elif isinstance(node, Branch):
            yield from _texts(node.body)
            yield from _texts(node.otherwise)


def _makes_names(nodes: tuple[Node, ...]) -> bool:
    """Return whether a template can join text and a value into one name."""
    for node, follower in zip(nodes, (*nodes[1:], PlainText("")), strict=False):
        if isinstance(node, PlainText):
            if not isinstance(follower, PlainText) and _IN_NAMES.fullmatch(node.text[-1:]):
                return True
        elif isinstance(follower, PlainText):
            after = follower.text[:1]
            if _IN_NAMES.fullmatch(after) or (after == "{" and node != _SERIES):
                return True
        if isinstance(node, Print) and not _is_plain(node.pipeline):
            return True
        if isinstance(node, Branch) and (_makes_names(node.body) or _makes_names(node.otherwise)):
            return True
    return False


def _is_plain(pipeline: TemplatePipeline) -> bool:
    """Return whether a template action prints a value unchanged or quoted."""
    return bool(pipeline.variables) or all(map(_is_value, pipeline.commands))


def _is_value(operand: Operand) -> bool:
    match operand:
        case (
            Dot()
            | Variable()
            | FunctionCall("index", _)
            | FunctionCall("printf", (Literal("%q"), *_))
        ):
            return True
    return False
