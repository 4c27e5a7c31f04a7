"""From a request to its query, and from the query's result to the answer. No I/O.

Source: prometheus-adapter v0.12.0 pkg/custom-provider (provider.go), pkg/external-provider
(provider.go, metric_converter.go); custom-metrics-apiserver v1.30.0 pkg/provider (errors.go). Known
differences: a row that is NaN or infinite is left out, where upstream makes 0 or the smallest integer
of it (a rule may choose 0 for NaN); the time of a value is when it was measured, where upstream gives the
time of the request.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.byte_cache import MAX_TEXT, ByteCache, deep_bytes
from gpuscale.base.errors import NotFoundError, QueryError, UpstreamError
from gpuscale.base.golang.template import Template
from gpuscale.base.objects.metric_values import ExternalValue, MetricValue
from gpuscale.base.objects.selectors import Selector
from gpuscale.series import Scalar, Value, Vector, VectorSample
from gpuscale.server.rules.catalogue import Catalogue, Entry
from gpuscale.server.rules.query import custom_query, external_query
from gpuscale.server.rules.resources import ResourceMapper, ResourceType, UnknownResourceError

_MAX_INT64 = (1 << 63) - 1
_SAFE_FLOAT = float(1 << 62)


class MetricNotFoundError(NotFoundError):
    """The API does not serve the metric, or not for this object."""

    def __init__(self, metric: str, resource: str, name: str | None = None) -> None:
        self.metric = metric
        self.resource = resource
        self.name = name
        of_object = f" {name}" if name is not None else ""
        super().__init__(f"the server could not find the metric {metric} for {resource}{of_object}")


class MetricFetchError(UpstreamError):
    """A served metric's values could not be fetched; the cause goes to the log only."""

    def __init__(self) -> None:
        super().__init__("unable to fetch metrics")


class UnexpectedResultError(UpstreamError):
    """A query's result is of a type that gives no external metric."""

    def __init__(self) -> None:
        super().__init__("encountered an unexpected query result type")


@dataclass(frozen=True, slots=True)
class Scope:
    """The inputs of a query, kept for building another query on the same objects."""

    entry: Entry
    namespace: str | None
    selector: Selector


@dataclass(frozen=True, slots=True)
class CustomPlan:
    """The query for a metric of some objects, and which rows belong to which object."""

    promql: str
    metric: str
    resource: ResourceType
    names: tuple[str, ...]
    label: str
    """The label whose value is an object's name."""
    asked_for: str
    """The resource as the request named it, for messages."""
    scope: Scope

    def query(self, template: Template, selector: Selector | None = None) -> str:
        """Return another template's query for the same objects.

        Args:
            template: refers to what `metricsQuery` can refer to.
            selector: conditions on the labels of the series; None for those of the request.

        Raises:
            QueryError: the template fails or gives nothing.
        """
        scope = self.scope
        return custom_query(
            template,
            scope.entry.series,
            scope.entry.rule.labels,
            self.resource,
            scope.namespace,
            self.names,
            scope.selector if selector is None else selector,
        )

    def answer(self, value: Value) -> tuple[MetricValue, ...]:
        """Return the objects' values in the order of their names; an object without one is left out.

        Of several rows for one object the last counts, as upstream; `remarks` reports them.

        Raises:
            MetricFetchError: the query gave no vector.
        """
        return self.answer_of(self.rows(value))

    def answer_of(self, rows: Mapping[str, VectorSample]) -> tuple[MetricValue, ...]:
        """Return the same as `answer`, for rows that may include other objects'."""
        found = [(name, rows[name]) for name in self.names if name in rows]
        return tuple(
            [MetricValue(name, to_milli(row.value), row.measured_ms) for name, row in found]
        )

    def answer_one(self, value: Value) -> MetricValue:
        """Return the value of the only object asked for.

        Raises:
            MetricNotFoundError: there is none.
            MetricFetchError: the query gave no vector.
        """
        found = self.answer(value)
        if not found:
            raise MetricNotFoundError(self.metric, self.asked_for, self.names[0])
        return found[0]

    def remarks(self, value: Value) -> tuple[str, ...]:
        """Return a sentence for each row without object and object without row."""
        samples = value.samples if isinstance(value, Vector) else ()
        usable = [sample for sample in samples if math.isfinite(sample.value)]
        rows = Counter(sample.labels.get(self.label, "") for sample in usable)
        known = set(self.names)
        foreign = sorted(name for name in rows if name and name not in known)
        twice = sorted(name for name in rows if name in known and rows[name] > 1)
        counts = (
            (len(samples) - len(usable), "rows are NaN or infinite and were left out"),
            (rows[""], f"rows have no label {self.label!r}; group the query by it"),
            (len(foreign), f"rows are of other objects, such as {foreign[:1]}"),
            (len(twice), f"objects have several rows, such as {twice[:1]}; the last counts"),
            (len(known - set(rows)), f"of {len(known)} objects have no row"),
        )
        return tuple(f"{count} {text}" for count, text in counts if count)

    def rows(self, value: Value) -> dict[str, VectorSample]:
        """Return the rows of a vector by the name of their object.

        Raises:
            MetricFetchError: the query gave no vector.
        """
        if not isinstance(value, Vector):
            raise MetricFetchError
        label = self.label
        return {
            sample.labels.get(label, ""): sample
            for sample in value.samples
            if math.isfinite(sample.value)
        }


@dataclass(frozen=True, slots=True)
class ExternalPlan:
    """The query for an external metric."""

    promql: str
    metric: str
    entry: Entry
    namespace: str | None
    """None where the rule asks for none."""
    selector: Selector

    def query(self, template: Template) -> str:
        """Return another template's query for the same series.

        Raises:
            QueryError: the template fails or gives nothing.
        """
        entry = self.entry
        return external_query(
            template, entry.series, entry.rule.labels, self.namespace, self.selector
        )

    def answer(self, value: Value, at_ms: int) -> tuple[ExternalValue, ...]:
        """Return one value per row of a vector, or the scalar; rows that are no number are left out.

        Args:
            value: what the query gave.
            at_ms: when it was evaluated, which is when a scalar was measured.

        Raises:
            UnexpectedResultError: the query gave neither a vector nor a scalar.
        """
        if isinstance(value, Scalar):
            rows: tuple[tuple[Mapping[str, str] | None, float, int], ...]
            rows = ((None, value.value, at_ms),)
        elif isinstance(value, Vector):
            rows = tuple((row.labels, row.value, row.measured_ms) for row in value.samples)
        else:
            raise UnexpectedResultError
        return tuple(
            ExternalValue(labels, to_milli(number), measured_ms)
            for labels, number, measured_ms in rows
            if math.isfinite(number)
        )


def plan_custom(
    catalogue: Catalogue,
    mapper: ResourceMapper,
    resource: str,
    namespace: str | None,
    names: Sequence[str],
    metric: str,
    selector: Selector,
) -> CustomPlan:
    """Return the plan for a metric of the objects called `names`.

    Args:
        catalogue: what is served.
        mapper: what `resource` may be called.
        resource: `pods`, `pod`, `deployments.apps`.
        namespace: None for objects that have none.
        names: the objects; an empty list finds nothing, as upstream.
        metric: the API's name of the metric.
        selector: conditions on the labels of the series.

    Raises:
        MetricNotFoundError: the metric is not served for the resource, no object was named, or the
            rule has no query for such a request.
    """
    found = _find(catalogue, mapper, resource, namespace, names, metric) if names else None
    if found is None:
        raise MetricNotFoundError(metric, resource)
    known, entry = found
    rule = entry.rule
    try:
        promql = custom_query(
            rule.metrics_query, entry.series, rule.labels, known, namespace, names, selector
        )
        label = rule.labels.label_for(known)
    except (NotFoundError, QueryError) as error:
        raise MetricNotFoundError(metric, resource) from error
    scope = Scope(entry, namespace, selector)
    return CustomPlan(promql, metric, known, tuple(names), label, resource, scope)


def _find(
    catalogue: Catalogue,
    mapper: ResourceMapper,
    resource: str,
    namespace: str | None,
    names: Sequence[str],
    metric: str,
) -> tuple[ResourceType, Entry] | None:
    try:
        known = mapper.parse(resource)
    except UnknownResourceError:
        return None
    name = names[0] if len(names) == 1 else None
    entry = catalogue.custom_entry(known, metric, namespace, name)
    if entry is None or known.namespaced != (namespace is not None):
        return None
    return known, entry


def plan_external(
    catalogue: Catalogue, namespace: str, metric: str, selector: Selector
) -> ExternalPlan:
    """Return the plan for an external metric.

    Raises:
        MetricNotFoundError: the metric is not served; the text is upstream's, which names no resource
            except in the namespace called default.
        MetricFetchError: the rule has no query for such a request.
    """
    entry = catalogue.external_entry(metric, namespace)
    if entry is None:
        raise MetricNotFoundError(metric, "namespaces" if namespace == "default" else "")
    rule = entry.rule
    within = namespace if rule.namespaced else None
    try:
        promql = external_query(rule.metrics_query, entry.series, rule.labels, within, selector)
    except (NotFoundError, QueryError) as error:
        raise MetricFetchError from error
    return ExternalPlan(promql, metric, entry, within, selector)


def to_milli(value: float) -> int:
    """Return a finite number in thousandths, cut off towards zero after the product in float64.

    1.001 is 1000 and 1.005 is 1004, because the products are 1000.999... and 1004.999...; what does not
    fit a quantity's 64 bits becomes the largest that does.
    """
    product = value * 1000.0
    if -_SAFE_FLOAT < product < _SAFE_FLOAT:
        return int(product)
    if math.isinf(product):
        return _MAX_INT64 if product > 0 else -_MAX_INT64
    return max(-_MAX_INT64, min(_MAX_INT64, int(product)))


_MAX_BYTES = 8 * 1024 * 1024
"""Of all plans; one for ten pods takes about 2 KiB."""

_Request = tuple[str, str | None, tuple[str, ...], str, Selector]


class Plans:
    """A cache of `plan_custom`'s plans, emptied when the served metrics change."""

    def __init__(self) -> None:
        self._plans: ByteCache[_Request, CustomPlan] = ByteCache("plans", _MAX_BYTES)
        self._made_of: tuple[Catalogue, ResourceMapper] | None = None

    def custom(
        self,
        catalogue: Catalogue,
        mapper: ResourceMapper,
        resource: str,
        namespace: str | None,
        names: tuple[str, ...],
        metric: str,
        selector: Selector,
    ) -> CustomPlan:
        """Return the plan of a request; see `plan_custom`.

        Raises:
            MetricNotFoundError: as `plan_custom` does.
        """
        if (
            self._made_of is None
            or self._made_of[0] is not catalogue
            or self._made_of[1] is not mapper
        ):
            self._plans.clear()
            self._made_of = (catalogue, mapper)
        request = (resource, namespace, names, metric, selector)
        plan = self._plans.get(request)
        if plan is None:
            plan = plan_custom(catalogue, mapper, resource, namespace, names, metric, selector)
            self._keep(request, plan)
        return plan

    def _keep(self, request: _Request, plan: CustomPlan) -> None:
        if len(plan.promql) <= MAX_TEXT:
            self._plans.put(request, plan, deep_bytes(request) + deep_bytes(plan.promql))
