"""The metrics API of a run by formula: pods' GPU metrics by formula, all others by queries."""

from collections.abc import Sequence

from gpuscale.base.errors import NotFoundError, QueryError
from gpuscale.base.objects.metric_values import MetricValue
from gpuscale.base.objects.selectors import Selector, parse_selector
from gpuscale.lab.sim.cluster import ClusterDirectory
from gpuscale.lab.sim.formula.formulas import AGGREGATIONS, Formulas, takes_shape_with_a_request
from gpuscale.lab.sim.formula.gpus import ReadGpus
from gpuscale.lab.sim.formula.samples import FormulaSamples
from gpuscale.lab.sim.load.shared_readings import AlikeReadings
from gpuscale.lab.sim.metrics_client import VirtualMetricsClient
from gpuscale.series import Matcher, MatchOp
from gpuscale.series.promql import LOOKBACK_MS, parse_query
from gpuscale.server.rules import KUBERNETES, PODS, AdapterRule, custom_query
from gpuscale.server.rules.queries import CustomPlan, plan_custom, to_milli


class FormulaClient(VirtualMetricsClient):
    """A `hpa.controller.MetricsClient` that never waits, and runs no query for pods' GPU metrics.

    Args:
        directory: which objects there are.
        samples: answer queries.
        formulas: say which rules need none.
        gpus: what pods' GPUs read.
    """

    def __init__(
        self,
        directory: ClusterDirectory,
        samples: FormulaSamples,
        formulas: Formulas,
        gpus: ReadGpus,
    ) -> None:
        super().__init__(directory, samples)
        self._formulas = formulas
        self._gpus = gpus
        self._operators: dict[tuple[AdapterRule, str], str | None] = {}

    async def pod_values(
        self, namespace: str, selector: str, metric: str, metric_selector: Selector | None
    ) -> Sequence[MetricValue]:
        """Return a metric of the selected pods; a pod without a value is left out."""
        names = self.directory.names(PODS, namespace, parse_selector(selector))
        # One name is enough for a plan's possible errors.
        plan = plan_custom(
            self.catalogue, KUBERNETES, "pods", namespace, names[:1], metric, Selector()
        )
        chooses = metric_selector is not None and bool(metric_selector.requirements)
        operator = None if chooses else self._operator(plan)
        if operator is None:
            return await super().pod_values(namespace, selector, metric, metric_selector)
        series, scrape = plan.scope.entry.series, self._gpus.latest
        if self.now_ms - scrape.at_ms >= LOOKBACK_MS:
            return ()
        return tuple(
            [
                MetricValue(name, _milli(shared, series, operator), scrape.at_ms)
                for name in names
                if (shared := scrape.pods.get(f"{namespace}/{name}")) and series in shared.values
            ]
        )

    def _operator(self, plan: CustomPlan) -> str | None:
        key = plan.scope.entry.rule, plan.scope.entry.series
        if key not in self._operators:
            self._operators[key] = operator_of(*key, self._formulas)
        return self._operators[key]


def operator_of(rule: AdapterRule, series: str, formulas: Formulas) -> str | None:
    """Return the operator of a rule that aggregates one field by pod; None for any other rule."""
    if series not in formulas.fields or takes_shape_with_a_request(rule):
        return None
    try:
        text = custom_query(
            rule.metrics_query, series, rule.labels, PODS, "x", ("a", "b"), Selector()
        )
        formula = formulas.of(parse_query(text).root)
    except (NotFoundError, QueryError):
        return None
    namespace, pod = formulas.owner
    wanted = {Matcher(namespace, MatchOp.EQUAL, "x"), Matcher(pod, MatchOp.REGEX, "a|b")}
    if formula is None or {*formula.matchers} != wanted or formula.labels != (pod,):
        return None
    return formula.operator


def _milli(shared: AlikeReadings, series: str, operator: str) -> int:
    """Return a rule's result for the values of a pod's GPUs, in thousandths."""
    name = f"{operator} {series}"
    if name not in shared.results:
        shared.results[name] = to_milli(AGGREGATIONS[operator](shared.values[series]))
    return shared.results[name]
