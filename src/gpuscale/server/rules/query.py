"""The PromQL of a request: the rule's template, filled with matchers.

Source: prometheus-adapter v0.12.0 pkg/naming (metrics_query.go). Known differences:

- Joined object names are escaped, so that `a.b` does not also ask for `axb`. A special character is put
  into brackets, because a template may use the joined names inside a PromQL string, where a backslash
  would be an escape of its own.
- In `.LabelValuesByName`, quotes and backslashes are escaped, so that a value can't end the PromQL string
  that a template puts it into.
- Where the names of very many objects would make a query longer than some servers take, the query asks
  for all objects; rows of others are passed over anyway.

Selector values pass through as expressions, as upstream offers it.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpuscale.base.errors import QueryError
from gpuscale.base.golang.durations import go_quote
from gpuscale.base.golang.template import Template
from gpuscale.base.objects.selectors import Operator, Requirement, Selector
from gpuscale.server.rules.resources import NAMESPACES, ResourceType

FIELDS = frozenset({"Series", "LabelMatchers", "LabelValuesByName", "GroupBy", "GroupBySlice"})
"""What `metricsQuery` can refer to."""
MAX_JOINED_NAMES = 6 * 1024
"""Characters. A template may use its matchers twice, and VictoriaMetrics takes 16 KiB of query."""
_ANY_NAME = ".+"
_SPECIAL = frozenset(".+*?()|[]{}$")
_BACKSLASHED = frozenset("\\^")
_IN_STRING = str.maketrans({"\\": "\\\\", '"': "\\x22", "'": "\\x27", "`": "\\x60", "\n": "\\n"})
"""Escapes in both kinds of quotes; a raw string can't be ended either, though they are no escapes there."""
_COMPARISON = {
    Operator.EQUALS: "=",
    Operator.NOT_EQUALS: "!=",
    Operator.IN: "=~",
    Operator.NOT_IN: "!~",
    Operator.EXISTS: "!=",
    Operator.DOES_NOT_EXIST: "=",
}


class LabelNaming(Protocol):
    """The mapping from resources to labels."""

    def label_for(self, resource: ResourceType) -> str: ...


def custom_query(
    template: Template,
    series: str,
    labels: LabelNaming,
    resource: ResourceType,
    namespace: str | None,
    names: Sequence[str],
    selector: Selector,
    extra_group_by: Sequence[str] = (),
    most_joined: int = MAX_JOINED_NAMES,
) -> str:
    """Return the query for a metric of these objects.

    Where the joined names have more than `most_joined` characters, it asks for all objects.

    Raises:
        NotFoundError: no label names the resource or its namespace.
        QueryError: the selector can't be expressed, or the template fails or gives nothing.
    """
    matchers, values = _selected(selector)
    if namespace is not None:
        _add_namespace(matchers, values, labels, namespace)
    label = labels.label_for(resource)
    joined = _joined(names, most_joined)
    matchers.append(f"{label}{'=~' if len(names) > 1 else '='}{go_quote(joined)}")
    values[label] = joined
    return _rendered(template, series, matchers, values, (label, *extra_group_by))


def external_query(
    template: Template,
    series: str,
    labels: LabelNaming,
    namespace: str | None,
    selector: Selector,
    group_by: Sequence[str] = (),
) -> str:
    """Return the query for an external metric; `namespace` is None where the rule is not namespaced.

    Raises:
        NotFoundError: no label names the namespace.
        QueryError: the selector can't be expressed, or the template fails or gives nothing.
    """
    matchers, values = _selected(selector)
    if namespace is not None:
        _add_namespace(matchers, values, labels, namespace)
    return _rendered(template, series, matchers, values, tuple(group_by))


def wide_query(
    template: Template,
    series: str,
    labels: Mapping[str, Sequence[str]],
    selector: Selector,
) -> str:
    """Return the query for objects of several namespaces, grouped by all of `labels`.

    Args:
        template: of the rule.
        series: the metric's name in the source.
        labels: that of the namespace, where there is one, and that of the resource, each with the names
            that are asked for; none are all.
        selector: conditions on the labels of the series.

    Raises:
        QueryError: the selector can't be expressed, or the template fails or gives nothing.
    """
    matchers, values = _selected(selector)
    matchers += [_matcher(label, names) for label, names in labels.items()]
    return _rendered(template, series, matchers, values, tuple(labels))


def _matcher(label: str, names: Sequence[str]) -> str:
    if not names:
        return f'{label}!=""'
    if len(names) == 1:
        return f"{label}={go_quote(names[0])}"
    return f"{label}=~{go_quote('|'.join(map(escape_name, names)))}"


def are_joined(names: Sequence[str]) -> bool:
    """Return whether `custom_query` selects just these objects, rather than all."""
    return len(names) < 2 or _joined(names, MAX_JOINED_NAMES) != _ANY_NAME


def _joined(names: Sequence[str], most: int) -> str:
    if len(names) == 1:
        return names[0]
    if sum(map(len, names)) + len(names) - 1 > most:
        return _ANY_NAME
    joined = "|".join(map(escape_name, names))
    return joined if len(joined) <= most else _ANY_NAME


def escape_name(name: str) -> str:
    """Return an RE2 expression for exactly this object name."""
    if not _SPECIAL.isdisjoint(name) or not _BACKSLASHED.isdisjoint(name):
        return "".join(map(_escaped, name))
    return name


def _escaped(character: str) -> str:
    if character in _SPECIAL:
        return f"[{character}]"
    return f"\\{character}" if character in _BACKSLASHED else character


def _selected(selector: Selector) -> tuple[list[str], dict[str, str]]:
    matchers: list[str] = []
    values: dict[str, str] = {}
    for requirement in selector.requirements:
        joined = "|".join(requirement.values)
        matchers.append(f"{requirement.key}{_comparison(requirement)}{go_quote(joined)}")
        values[requirement.key] = joined
    return matchers, values


def _comparison(requirement: Requirement) -> str:
    comparison = _COMPARISON.get(requirement.operator)
    if comparison is None:
        raise QueryError(f"operator not supported by query builder: {requirement}")
    return comparison


def _add_namespace(
    matchers: list[str], values: dict[str, str], labels: LabelNaming, namespace: str
) -> None:
    label = labels.label_for(NAMESPACES)
    matchers.append(f"{label}={go_quote(namespace)}")
    values[label] = namespace


def _rendered(
    template: Template,
    series: str,
    matchers: Sequence[str],
    values: Mapping[str, str],
    group_by: tuple[str, ...],
) -> str:
    text = template.render(
        {
            "Series": series,
            "LabelMatchers": ",".join(matchers),
            "LabelValuesByName": {
                label: value.translate(_IN_STRING) for label, value in values.items()
            },
            "GroupBy": ",".join(group_by),
            "GroupBySlice": group_by,
        }
    )
    if not text:
        raise QueryError("empty query produced by metrics query template")
    return text
