"""Which rule answers an API metric, and with which query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import merge

from gpuscale.base.errors import NotFoundError
from gpuscale.base.words import closest
from gpuscale.ops.lint.rule_inputs import PlacedRule
from gpuscale.series import Matcher, MatchOp
from gpuscale.series.promql import parse_matchers
from gpuscale.server.rules import (
    NAMESPACES,
    AdapterRule,
    ResourceType,
)
from gpuscale.server.rules.queries import (
    api_names,
    candidates,
    contradiction,
    fixed_name,
    named_series,
)


@dataclass(frozen=True, slots=True)
class Serving:
    """A rule that gives a metric, with the series it is computed from."""

    placed: PlacedRule
    series: str | None
    """None where it is unknown which."""
    certain: bool
    """Whether the rule names the series; otherwise there may be none of that name."""

    @property
    def rule(self) -> AdapterRule:
        return self.placed.rule


class RuleIndex:
    """Rules by the metrics they give.

    Args:
        rules: in the order of the files.
    """

    def __init__(self, rules: Sequence[PlacedRule] = ()) -> None:
        self._rules = rules
        self._by_name: dict[str, list[int]] = {}
        self._of_any_name: list[int] = []
        self._servings: dict[str, tuple[Serving, ...]] = {}
        self._closest: dict[tuple[str, float], str | None] = {}
        for place in reversed(range(len(rules))):
            rule = rules[place].rule
            fixed = fixed_name(rule)
            if named_series(rule) is not None:
                names = {name for _, name in api_names(rule)}
            elif fixed is not None:
                names = {fixed}
            else:
                self._of_any_name.append(place)
                continue
            for name in names:
                self._by_name.setdefault(name, []).append(place)

    def __len__(self) -> int:
        return len(self._rules)

    def servings(self, metric: str) -> tuple[Serving, ...]:
        """Return the rules that give or may give a metric, last in the files first."""
        if metric not in self._servings:
            places = merge(self._by_name.get(metric, ()), self._of_any_name, reverse=True)
            rules = (self._rules[place] for place in places)
            self._servings[metric] = tuple(
                Serving(placed, found.series, found.certain)
                for placed in rules
                for found in candidates(placed.rule, metric)
            )
        return self._servings[metric]

    @cached_property
    def named(self) -> Mapping[str, str]:
        """Return the metric names that rules state, each with its rule's place."""
        named: dict[str, str] = {}
        for placed in self._rules:
            names = [name for _, name in api_names(placed.rule)]
            if (fixed := fixed_name(placed.rule)) is not None:
                names.append(fixed)
            named.update(dict.fromkeys(names, str(placed.place())))
        return named

    def closest(self, metric: str, cutoff: float) -> str | None:
        """Return the stated metric name most similar to this one; None if none is similar."""
        key = metric, cutoff
        if key not in self._closest:
            self._closest[key] = closest(metric, self.named, cutoff)
        return self._closest[key]


def mapped_resources(rule: AdapterRule) -> tuple[ResourceType, ...]:
    """Return the resources named in overrides, each once."""
    return tuple(dict.fromkeys(rule.labels.overrides.values()))


def has_namespaces(rule: AdapterRule) -> bool:
    """Return whether a rule maps a label to namespaces, which requests in a namespace need."""
    try:
        rule.labels.label_for(NAMESPACES)
    except NotFoundError:
        return False
    return True


def selector_of_series(rule: AdapterRule) -> tuple[Matcher, ...]:
    """Return the matchers of a rule's series query."""
    return parse_matchers(rule.series_query)


def contradicting_label(rule: AdapterRule, label: str) -> tuple[Matcher, Matcher] | None:
    """Return the matcher in a rule's series query that excludes a label."""
    there = Matcher(label, MatchOp.NOT_EQUAL, "")
    return contradiction((*selector_of_series(rule), there))
