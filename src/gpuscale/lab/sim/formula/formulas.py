"""The parts of queries that have a formula: an aggregation of one field by known labels.

A query that has such parts is rewritten: each becomes a selector of the formula's result, and all around it
is evaluated as it stands.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from gpuscale.lab.sim.formula.fields import agent_names, known_fields, owner_labels
from gpuscale.lab.sim.pipeline import common_labels
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.series import METRIC_NAME, Matcher, MatchOp
from gpuscale.series.promql import selectors, tree
from gpuscale.series.promql.functions import largest, mean, smallest, total
from gpuscale.series.storage import Selector
from gpuscale.server.rules import AdapterRule

AGGREGATIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "avg": mean,
    "sum": total,
    "min": smallest,
    "max": largest,
    "count": lambda values: float(len(values)),
}
_PLAIN = frozenset({"Series", "LabelMatchers", "GroupBy"})
_MOST_QUERIES = 1_000
"""Those that are remembered: names of pods make ever new ones."""


@dataclass(frozen=True, slots=True)
class Formula:
    """An aggregation of one field."""

    operator: str
    series: str
    matchers: tuple[Matcher, ...]
    """Without that of the name."""
    labels: tuple[str, ...]
    """What it groups by."""


class Formulas:
    """The formulas in a scenario's queries.

    Args:
        setup: which agents are scraped, and what they serve.
    """

    def __init__(self, setup: Setup) -> None:
        self.fields = known_fields(setup)
        self.owner = owner_labels(setup)
        self.constants = common_labels(setup)
        self.of_agents = agent_names(setup)
        """The names of all series that are not in the store here."""
        self._labels = {*self.owner, *self.constants}
        self._by_selector: dict[Selector, Formula] = {}
        self._selectors: dict[Formula, tree.Select] = {}
        self._rewritten: dict[tree.Node, tree.Node] = {}

    def find(self, selector: Selector) -> Formula | None:
        """Return the formula behind a selector in a rewritten query; None for a selector of the store."""
        return self._by_selector.get(selector)

    def field_of(self, selector: Selector) -> str | None:
        """Return the field whose series a selector reads; None for series of the store."""
        name = _name(tree.Select(selector, tree.Moment()))
        return name if name in self.fields else None

    def rewritten(self, root: tree.Node) -> tree.Node:
        """Return a query with selectors of formula results in place of the parts that have a formula."""
        if root not in self._rewritten:
            if len(self._rewritten) >= _MOST_QUERIES:
                for remembered in (self._rewritten, self._by_selector, self._selectors):
                    remembered.clear()
            self._rewritten[root] = self._with_formulas(root)
        return self._rewritten[root]

    def is_open(self, root: tree.Node) -> bool:
        """Return whether a query reads, or may read, agents' series outside of formulas."""
        left = selectors(self.rewritten(root))
        names = [_name(each) for each in left if each.matchers not in self._by_selector]
        return any(name is None or name in self.of_agents for name in names)

    def fields_of(self, root: tree.Node) -> set[str]:
        """Return the fields that a query reads."""
        return {name for each in selectors(root) if (name := _name(each)) in self.fields and name}

    def _with_formulas(self, node: tree.Node) -> tree.Node:
        formula = self.of(node)
        if formula is not None:
            return self._selector(formula)
        if isinstance(node, tree.Subquery | tree.SelectRange):
            return node  # it reads past samples, and a formula knows only the latest scrape
        if (
            isinstance(node, tree.Call)
            and node.function == "timestamp"
            and self.of(node.arguments[0])
        ):
            return node  # for a selector it is the sample's time, for an expression the query's
        changed: dict[str, Any] = {}
        for field in fields(node):
            value = getattr(node, field.name)
            if isinstance(value, tree.Node):
                changed[field.name] = self._with_formulas(value)
            elif isinstance(value, tuple) and any(isinstance(each, tree.Node) for each in value):
                changed[field.name] = tuple(map(self._with_formulas, value))
        return replace(node, **changed) if changed else node

    def _selector(self, formula: Formula) -> tree.Select:
        if formula not in self._selectors:
            # A name that no query's text can contain.
            name = f"\0formula {len(self._selectors)}"
            matchers = (Matcher(METRIC_NAME, MatchOp.EQUAL, name),)
            self._by_selector[matchers] = formula
            self._selectors[formula] = tree.Select(matchers, tree.Moment())
        return self._selectors[formula]

    def of(self, node: tree.Node) -> Formula | None:
        """Return the formula of an expression, if it is one aggregation of one field."""
        match node:
            case tree.Aggregate(operator, tree.Select(matchers, moment), None, True, labels):
                series = _name(tree.Select(matchers, moment))
                others = tuple(each for each in matchers if each.name != METRIC_NAME)
                names = {*labels, *(each.name for each in others)}
                if (
                    operator in AGGREGATIONS
                    and series in self.fields
                    and len(others) == len(matchers) - 1
                    and moment == tree.Moment()
                    and names <= self._labels
                ):
                    return Formula(operator, series, others, labels)
        return None


def takes_shape_with_a_request(rule: AdapterRule) -> bool:
    """Return whether a rule's query depends on more of a request than a formula knows."""
    used = rule.metrics_query.plain_fields()
    return bool(rule.parts) or used is None or not used <= _PLAIN


def _name(selector: tree.Select) -> str | None:
    """Return the only metric name that a selector allows; None if it allows several."""
    for matcher in selector.matchers:
        if matcher.name == METRIC_NAME and matcher.op is MatchOp.EQUAL and matcher.value:
            return matcher.value
    return None
