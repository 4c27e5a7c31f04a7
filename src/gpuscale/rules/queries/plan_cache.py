"""Plans of requests that come again and again: an HPA asks for the same all day."""

from gpuscale.core.byte_cache import MAX_TEXT, ByteCache, deep_bytes
from gpuscale.objects.selectors import Selector
from gpuscale.rules.catalogue import Catalogue
from gpuscale.rules.queries.plan import CustomPlan, plan_custom
from gpuscale.rules.resources import ResourceMapper

_MAX_BYTES = 8 * 1024 * 1024
"""Of all plans; one for ten pods takes about 2 KiB."""

_Request = tuple[str, str | None, tuple[str, ...], str, Selector]


class Plans:
    """Plans as `plan_custom` makes them, each made once for as long as the same metrics are served."""

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
