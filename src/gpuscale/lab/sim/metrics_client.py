"""The metrics API in virtual time: the server's plans and queries, evaluated on the store.

A query that would name more pods than fit asks for all pods of the namespace, and is evaluated once for all
HPAs of a moment. Otherwise an exact run would read all pods for each HPA.
"""

from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

from gpuscale.base.errors import BugError, NotFoundError
from gpuscale.base.objects.hpa import CrossVersionObjectReference
from gpuscale.base.objects.metric_values import ExternalValue, MetricValue
from gpuscale.base.objects.selectors import Selector, parse_selector
from gpuscale.lab.sim.cluster import ClusterDirectory
from gpuscale.series import Value, Vector, VectorSample
from gpuscale.server.rules import KUBERNETES, Catalogue, are_joined
from gpuscale.server.rules.queries import CustomPlan, plan_custom, plan_external

T = TypeVar("T")


class QuerySource(Protocol):
    """Evaluates PromQL at once."""

    def query_now(self, promql: str, at_ms: int) -> Value: ...


class VirtualMetricsClient:
    """A `hpa.controller.client.MetricsClient` that never waits.

    Args:
        directory: which objects there are.
        source: answers queries.
    """

    def __init__(self, directory: ClusterDirectory, source: QuerySource) -> None:
        self.catalogue = Catalogue()
        """The series found at the latest look."""
        self.now_ms = 0
        """When queries are evaluated."""
        self.directory = directory
        """Which objects there are."""
        self._source = source
        self._shared: tuple[tuple[str, str, int], Mapping[str, VectorSample]] | None = None
        """The rows of the latest query for all objects: by query, label and time."""

    async def pod_values(
        self, namespace: str, selector: str, metric: str, metric_selector: Selector | None
    ) -> Sequence[MetricValue]:
        """Return a metric of the selected pods; a pod without a value is left out."""
        pods = parse_selector(selector)
        names = self.directory.names(KUBERNETES.find("pods"), namespace, pods)
        chosen = metric_selector or Selector()
        plan = plan_custom(self.catalogue, KUBERNETES, "pods", namespace, names, metric, chosen)
        if are_joined(names):
            return plan.answer(self._ask(plan))
        return plan.answer_of(self._rows_of_all(plan))

    def _rows_of_all(self, plan: CustomPlan) -> Mapping[str, VectorSample]:
        """Return the rows of a query for all objects, evaluated once for all HPAs of a namespace.

        Nothing is stored between the HPAs of one moment: scrapes and rules are earlier stages of it.
        """
        key = (plan.promql, plan.label, self.now_ms)
        if self._shared is None or self._shared[0] != key:
            self._shared = key, plan.rows(self._ask(plan))
        return self._shared[1]

    def _ask(self, plan: CustomPlan) -> Value:
        """Return the rows of a plan's query, sorted if an object has several, as the last one counts.

        Prometheus leaves their order open; a run must not hang on which series came first.
        """
        value = self._source.query_now(plan.promql, self.now_ms)
        if not isinstance(value, Vector):
            return value
        objects = {each.labels.get(plan.label) for each in value.samples}
        if len(objects) == len(value.samples):
            return value
        return Vector(tuple(sorted(value.samples, key=lambda each: tuple(each.labels.items()))))

    async def object_value(
        self,
        namespace: str,
        described: CrossVersionObjectReference,
        metric: str,
        metric_selector: Selector | None,
    ) -> MetricValue:
        resource = KUBERNETES.find_kind(described.kind, described.api_version)
        plan = plan_custom(
            self.catalogue,
            KUBERNETES,
            resource.name,
            namespace if resource.namespaced else None,
            (described.name,),
            metric,
            metric_selector or Selector(),
        )
        return plan.answer_one(self._ask(plan))

    async def external_values(
        self, namespace: str, metric: str, selector: Selector | None
    ) -> Sequence[ExternalValue]:
        plan = plan_external(self.catalogue, namespace, metric, selector or Selector())
        return plan.answer(self._source.query_now(plan.promql, self.now_ms), self.now_ms)

    async def resource_usages(self, _namespace: str, _selector: str, _resource: str) -> NoReturn:
        """Raise: a simulation has no resource metrics."""
        raise NotFoundError("no metrics returned from resource metrics API")


def immediately(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits.

    Raises:
        BugError: it waits.
    """
    try:
        coroutine.send(None)
    except StopIteration as result:
        value: T = result.value
        return value
    coroutine.close()
    raise BugError("something waits in virtual time")
