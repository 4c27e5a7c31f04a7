"""Plans of requests that come again and again: an HPA asks for the same all day."""

from collections import OrderedDict

from gpuscale.objects.selectors import Selector
from gpuscale.sources.catalogue import Catalogue
from gpuscale.sources.plan import CustomPlan, plan_custom
from gpuscale.sources.resources import ResourceMapper

_MAX_PLANS = 2048
_MAX_QUERY_CHARS = 4 * 1024
"""Of a plan that is kept."""

_Request = tuple[str, str | None, tuple[str, ...], str, Selector]


class Plans:
    """Plans as `plan_custom` makes them, each made once for as long as the same metrics are served."""

    def __init__(self) -> None:
        self._plans: OrderedDict[_Request, CustomPlan] = OrderedDict()
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
        if len(plan.promql) <= _MAX_QUERY_CHARS:
            self._plans[request] = plan
            if len(self._plans) > _MAX_PLANS:
                self._plans.popitem(last=False)
