"""One query instead of many, for the objects of several requests, if its rows would be the same.

The widened query asks for every object of the rule, or for those of some requests, and groups by namespace
and object; an answer to one request is cut out of it. `locality` decides where the cut is equal to the exact
query; elsewhere there is no widened query.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.base.errors import NotFoundError, QueryError
from gpuscale.base.golang.template import Template
from gpuscale.series import Matcher, MatchOp, Vector, VectorSample
from gpuscale.series.promql import parse_query
from gpuscale.server.rules.queries.locality import Keys, is_local
from gpuscale.server.rules.queries.plan import CustomPlan, Scope
from gpuscale.server.rules.query import custom_query, wide_query
from gpuscale.server.rules.resources import NAMESPACES

_PLAIN_FIELDS = frozenset({"Series", "LabelMatchers", "GroupBy"})
_SOMEWHERE, _SOME = "gpuscale:some-namespace", ("gpuscale:one", "gpuscale:other")
"""No objects are called so, hence no matcher of a rule or a request is taken for one of ours."""


@dataclass(frozen=True, slots=True)
class WideQuery:
    """A query for the objects of several namespaces."""

    promql: str
    """For all objects of all namespaces."""
    label: str
    namespace_label: str | None
    scope: Scope
    """What it was made of."""

    def among(
        self, namespaces: Sequence[str], names: Sequence[str], template: Template | None = None
    ) -> str:
        """Return the query for objects of these names in these namespaces, all combinations of both.

        Args:
            namespaces: none are all.
            names: none are all.
            template: of the query; None is the rule's.

        Raises:
            QueryError: the template fails.
        """
        return _wide(self.scope, self.label, names, self.namespace_label, namespaces, template)


class WideRows:
    """The rows of a widened query, by namespace and object."""

    def __init__(self, query: WideQuery) -> None:
        self._namespace_label = query.namespace_label or ""
        self._label = query.label
        self._rows: dict[str, dict[str, VectorSample]] = {}
        self._several: set[tuple[str, str]] = set()

    def add(self, samples: Sequence[VectorSample]) -> None:
        for sample in samples:
            namespace = sample.labels.get(self._namespace_label, "")
            name = sample.labels.get(self._label, "")
            place = self._rows.setdefault(namespace, {})
            if name in place:
                self._several.add((namespace, name))
            place[name] = sample

    @property
    def count(self) -> int:
        return sum(map(len, self._rows.values()))

    def cut(self, namespace: str | None, names: Sequence[str]) -> Vector | None:
        """Return the rows of these objects; None if an object has several rows, whose order would matter."""
        place = namespace or ""
        if self._several and any((place, name) in self._several for name in names):
            return None
        rows = self._rows.get(place, {})
        return Vector(tuple([rows[name] for name in names if name in rows]))


def widen(plan: CustomPlan) -> WideQuery | None:
    """Return a query whose result includes the plan's, for any namespace and names."""
    scope = plan.scope
    template = scope.entry.rule.metrics_query
    fields = template.plain_fields()
    if fields is None or not fields <= _PLAIN_FIELDS:
        return None
    rule_labels = scope.entry.rule.labels
    try:
        is_namespaced = scope.namespace is not None
        namespace_label = rule_labels.label_for(NAMESPACES) if is_namespaced else None
        keys = _keys(plan.label, namespace_label)
        exact = custom_query(
            template,
            scope.entry.series,
            rule_labels,
            plan.resource,
            _SOMEWHERE if is_namespaced else None,
            _SOME,
            scope.selector,
        )
        wide = _wide(scope, plan.label, (), namespace_label, ())
        if not is_local(parse_query(exact).root, parse_query(wide).root, keys):
            return None
    except (NotFoundError, QueryError):
        return None
    return WideQuery(wide, plan.label, namespace_label, scope)


def _wide(
    scope: Scope,
    label: str,
    names: Sequence[str],
    namespace_label: str | None,
    namespaces: Sequence[str],
    template: Template | None = None,
) -> str:
    labels = {} if namespace_label is None else {namespace_label: namespaces}
    labels[label] = names
    template = template or scope.entry.rule.metrics_query
    return wide_query(template, scope.entry.series, labels, scope.selector)


def _keys(label: str, namespace_label: str | None) -> Keys:
    exact = [Matcher(label, MatchOp.REGEX, "|".join(_SOME))]
    if namespace_label is not None:
        exact.append(Matcher(namespace_label, MatchOp.EQUAL, _SOMEWHERE))
    wide = (Matcher(each.name, MatchOp.NOT_EQUAL, "") for each in exact)
    return Keys(label, namespace_label, tuple(exact), tuple(wide))
