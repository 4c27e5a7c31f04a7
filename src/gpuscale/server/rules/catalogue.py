"""The discovered metrics: which rule and series stand behind each name that the API offers.

A new series query that fails leaves its metrics as they were, and all others are brought up to date;
upstream keeps the whole old table instead.

Source: prometheus-adapter v0.12.0 pkg/custom-provider (series_registry.go), pkg/external-provider
(external_series_registry.go). Known difference: a metric is namespaced where its resource is, so that
metrics of cluster-scoped resources can be asked for; upstream goes by the labels of the series, which
makes all but namespaces, nodes and persistentvolumes namespaced.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.base.byte_cache import deep_bytes
from gpuscale.base.errors import QueryError
from gpuscale.base.golang.template import TemplateError
from gpuscale.series import METRIC_NAME
from gpuscale.series.promql import metric_names, parse_query
from gpuscale.server.rules.budget import DEFAULT_BUDGET
from gpuscale.server.rules.config import AdapterConfig, AdapterRule
from gpuscale.server.rules.resources import NAMESPACES, ResourceType

_SAMPLED_SHAPES = 100
_ENTRY_BYTES = 300
"""Of an entry with its key and its place in a table."""


@dataclass(frozen=True, slots=True)
class QueryFailure:
    """A series query that failed, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class SeriesShape:
    """The name and label names of a series, which decide what metrics it gives."""

    name: str
    labels: frozenset[str]
    """Label names, without `__name__`."""
    series: int = field(default=0, compare=False)
    """How many there are of this name, whatever their labels."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The rule and series behind one metric."""

    rule: AdapterRule
    series: str
    rows: int = field(default=0, compare=False)
    """How many series of the name were found; 0 where that is not known."""


@dataclass(frozen=True, slots=True, order=True)
class DiscoveredMetric:
    """One line of the custom metrics API's resource list."""

    name: str
    """`pods/gpu_util`, `jobs.batch/gpu_util`."""
    namespaced: bool


CustomKey = tuple[ResourceType, str]
"""Resource and API name."""
CustomTable = Mapping[CustomKey, Entry]
ExternalTable = Mapping[str, Entry]
SeriesAnswer = Sequence[Mapping[str, str]] | QueryFailure


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The discovered metrics of one moment. If two rules or series give one name, the last one wins.

    In a team's namespace its own rules come before those of the cluster.
    """

    custom: CustomTable = field(default_factory=dict)
    """Of the cluster's rules."""
    external: ExternalTable = field(default_factory=dict)
    custom_in: Mapping[str, CustomTable] = field(default_factory=dict)
    """Of the teams' rules, by namespace."""
    external_in: Mapping[str, ExternalTable] = field(default_factory=dict)
    shapes: Mapping[str, tuple[SeriesShape, ...]] = field(default_factory=dict)
    """By series query; of a query that failed, those it gave before."""
    failures: Mapping[str, QueryFailure] = field(default_factory=dict)
    """By series query; those that were not answered this time."""
    over_budget: Mapping[str, str] = field(default_factory=dict)
    """Why the rules of a team give no metrics, by namespace."""

    @staticmethod
    def build(
        config: AdapterConfig,
        series_of: Mapping[str, SeriesAnswer],
        previous: "Catalogue | None" = None,
    ) -> "Catalogue":
        """Return the catalogue of these series.

        Args:
            config: the rules.
            series_of: the answer to each series query; one that is not there was not asked again, and
                counts as failed if it never was.
            previous: where the metrics of queries without an answer are kept from.
        """
        before = previous or Catalogue()
        shapes: dict[str, tuple[SeriesShape, ...]] = {}
        failures: dict[str, QueryFailure] = {}
        for query in config.series_queries():
            answer = series_of.get(query)
            if answer is None or isinstance(answer, QueryFailure):
                shapes[query] = before.shapes.get(query, ())
            else:
                shapes[query] = _shapes(answer)
            if isinstance(answer, QueryFailure):
                failures[query] = answer
            elif answer is None and query not in before.answered:
                failures[query] = before.failures.get(query, QueryFailure("not asked"))
        rules, external = _by_namespace(config.rules), _by_namespace(config.external_rules)
        over = _over_budget(rules, external, shapes)
        for place in over:
            rules.pop(place, None)
            external.pop(place, None)
        return Catalogue(
            _custom_table(rules.pop("", ()), shapes),
            _external_table(external.pop("", ()), shapes),
            {place: _custom_table(found, shapes) for place, found in rules.items()},
            {place: _external_table(found, shapes) for place, found in external.items()},
            shapes,
            failures,
            over,
        )

    @property
    def answered(self) -> frozenset[str]:
        """Return the series queries whose latest run succeeded."""
        return frozenset(self.shapes.keys() - self.failures.keys())

    def custom_entry(
        self, resource: ResourceType, metric: str, namespace: str | None, name: str | None = None
    ) -> Entry | None:
        """Return the rule and series of an object metric in a namespace; None if it is not served.

        Args:
            resource: of the objects.
            metric: its name.
            namespace: None for objects that are in none.
            name: of the only object that is asked for.
        """
        team = name if resource == NAMESPACES else namespace
        own = self.custom_in.get(team or "", {}).get((resource, metric))
        return own or self.custom.get((resource, metric))

    def external_entry(self, metric: str, namespace: str) -> Entry | None:
        """Return the rule and series of an external metric, as seen from a namespace."""
        own = self.external_in.get(namespace, {}).get(metric)
        return own or self.external.get(metric)

    def shapes_of(self, rule: AdapterRule) -> tuple[SeriesShape, ...]:
        """Return the shapes of the series that a rule's series query found."""
        return self.shapes.get(rule.series_query, ())

    def bytes(self) -> int:
        """Return roughly how many bytes the catalogue takes, estimated from a few series."""
        shapes = [each for found in self.shapes.values() for each in found]
        sampled = shapes[:: len(shapes) // _SAMPLED_SHAPES + 1]
        a_shape = sum(map(deep_bytes, sampled)) // max(1, len(sampled))
        entries = len(self.custom) + len(self.external)
        entries += sum(map(len, self.custom_in.values())) + sum(map(len, self.external_in.values()))
        return a_shape * len(shapes) + _ENTRY_BYTES * entries

    def custom_resources(self) -> tuple[DiscoveredMetric, ...]:
        """Return the custom metrics, sorted by name, those of all teams among them."""
        found = {
            DiscoveredMetric(f"{resource.name}/{metric}", resource.namespaced)
            for table in (self.custom, *self.custom_in.values())
            for resource, metric in table
        }
        return tuple(sorted(found))

    def external_metrics(self) -> tuple[str, ...]:
        """Return the names of the external metrics, sorted, those of all teams among them."""
        return tuple(sorted({*self.external, *(n for t in self.external_in.values() for n in t)}))


def needed_metric_names(config: AdapterConfig) -> frozenset[str] | None:
    """Return the names of all series that the rules may ever read; None if they can't be told.

    It can't where a series query or a filled-in query does not name its series outright, or where a
    query only takes shape with a request.
    """
    needed: set[str] = set()
    for rule in (*config.rules, *config.external_rules):
        names = _needed_by(rule)
        if names is None:
            return None
        needed |= names
    return frozenset(needed)


def _needed_by(rule: AdapterRule) -> frozenset[str] | None:
    try:
        discovered = metric_names(parse_query(rule.series_query))
        if discovered is None:
            return None
        needed = set(discovered)
        for series in discovered:
            asked = metric_names(parse_query(rule.example(series)))
            if asked is None:
                return None
            needed |= asked
    except (QueryError, TemplateError):
        return None
    return frozenset(needed)


def _shapes(series: Sequence[Mapping[str, str]]) -> tuple[SeriesShape, ...]:
    """Return the distinct shapes, in the order of first appearance."""
    # Thousands of series share a few lists of label names, which are quick to compare.
    lists = Counter(
        (labels[METRIC_NAME], tuple(labels)) for labels in series if METRIC_NAME in labels
    )
    counts: Counter[str] = Counter()
    for (name, _), count in lists.items():
        counts[name] += count
    found = {
        SeriesShape(name, frozenset(names) - {METRIC_NAME}, counts[name]): None
        for name, names in lists
    }
    return tuple(found)


def _named(
    rules: Sequence[AdapterRule], shapes: Mapping[str, tuple[SeriesShape, ...]]
) -> Iterator[tuple[AdapterRule, SeriesShape, str]]:
    for rule in rules:
        names: dict[str, str | None] = {}
        # Sorted by name, so that of two series with one API name always the same wins.
        for shape in sorted(shapes[rule.series_query], key=lambda each: each.name):
            if shape.name not in names:
                names[shape.name] = rule.api_name(shape.name)
            name = names[shape.name]
            if name is not None:
                yield rule, shape, name


def _by_namespace(rules: Sequence[AdapterRule]) -> dict[str, list[AdapterRule]]:
    found: dict[str, list[AdapterRule]] = {}
    for rule in rules:
        found.setdefault(rule.only_in, []).append(rule)
    return found


def _over_budget(
    rules: Mapping[str, Sequence[AdapterRule]],
    external: Mapping[str, Sequence[AdapterRule]],
    shapes: Mapping[str, tuple[SeriesShape, ...]],
) -> dict[str, str]:
    """Return, by namespace, why its rules are ignored: their series queries find too many series."""
    over: dict[str, str] = {}
    for place in (rules.keys() | external.keys()) - {""}:
        queries = {rule.series_query for rule in (*rules.get(place, ()), *external.get(place, ()))}
        found = sum(
            sum({shape.name: shape.series for shape in shapes[query]}.values()) for query in queries
        )
        if found > DEFAULT_BUDGET.series:
            over[place] = (
                f"the series queries of the rules in {place} find {found} series, expected at most "
                f"{DEFAULT_BUDGET.series}; narrow them"
            )
    return over


def _custom_table(
    rules: Sequence[AdapterRule], shapes: Mapping[str, tuple[SeriesShape, ...]]
) -> dict[CustomKey, Entry]:
    table: dict[CustomKey, Entry] = {}
    for rule, shape, name in _named(rules, shapes):
        for resource in rule.labels.resources_of(sorted(shape.labels)):
            # Cluster-wide objects such as nodes belong to no team; a namespace belongs to its
            # team.
            if not rule.only_in or resource.namespaced or resource == NAMESPACES:
                table[resource, name] = Entry(rule, shape.name, shape.series)
    return table


def _external_table(
    rules: Sequence[AdapterRule], shapes: Mapping[str, tuple[SeriesShape, ...]]
) -> dict[str, Entry]:
    return {
        name: Entry(rule, shape.name, shape.series) for rule, shape, name in _named(rules, shapes)
    }
