"""What the pipeline between GPUs and HPAs would show, by formula: no text, no store, no PromQL.

A value of a pod is what its GPUs read at the latest scrape: a mean over the collect interval that ends there,
rounded as the field is. It is served from the first look for new series that found one, for as long as looks
find one, and until it is older than PromQL looks back. Scrapes and looks have the phases that `sim.pipeline`
gives them, so an HPA sees the same numbers at the same moments. Only GPUs that a pod holds are read.

This holds for metrics of pods, by rules that are one aggregation of one field of whole numbers. `why_not`
says what else a scenario has; such a scenario has to be simulated exactly.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from gpuscale.core.errors import NotFoundError, QueryError
from gpuscale.gpu.readings import GpuReading, ProcessReading
from gpuscale.hpa.client import observe
from gpuscale.hpa.types import Observation
from gpuscale.objects.hpa import (
    CrossVersionObjectReference,
    ExternalMetric,
    HorizontalPodAutoscaler,
    ObjectMetric,
    PodsMetric,
)
from gpuscale.objects.metric_values import ExternalValue, MetricValue
from gpuscale.objects.selectors import Selector, parse_selector
from gpuscale.rules.catalogue import Catalogue
from gpuscale.rules.config import Rule
from gpuscale.rules.queries.plan import CustomPlan, plan_custom, to_milli
from gpuscale.rules.query import custom_query
from gpuscale.rules.resources import KUBERNETES, PODS
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.promql import tree
from gpuscale.series.promql.evaluate import LOOKBACK_MS
from gpuscale.series.promql.functions.statistics import largest, mean, smallest, total
from gpuscale.series.promql.parse import metric_names, parse_matchers, parse_query
from gpuscale.series.storage.store import SeriesStore
from gpuscale.sim.autoscaler import HpaController
from gpuscale.sim.cluster import ClusterDirectory
from gpuscale.sim.engine import Stage
from gpuscale.sim.load.shared_readings import Shared, SharedReadings
from gpuscale.sim.metrics_client import immediately
from gpuscale.sim.pipeline import FIRST_LOOK_MS, UTILIZATION, phase_ms
from gpuscale.sim.scenario.setup import Setup
from gpuscale.sim.world import World

FIELDS = frozenset(
    {UTILIZATION, "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"}
)
"""Device fields in whole numbers that depend on nothing but the work of their window."""
_OF_PROCESSES: dict[str, Callable[[ProcessReading], int | None]] = {
    "DCGM_CUSTOM_PROCESS_SM_UTIL": lambda process: process.sm_util,
    "DCGM_CUSTOM_PROCESS_MEM_COPY_UTIL": lambda process: process.mem_copy_util,
    "DCGM_CUSTOM_PROCESS_MEM_USED": lambda process: process.memory_used_mib,
}
_AGGREGATIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "avg": mean,
    "sum": total,
    "min": smallest,
    "max": largest,
}
_OWNER_LABELS = {
    "dcgm": ("exported_namespace", "exported_pod"),
    "ack": ("NamespaceName", "PodName"),
}
"""By style: the labels of a sample that say which pod holds the GPU."""
_EXACTLY = "simulate it with --fidelity exact"


def why_not(setup: Setup) -> tuple[str, ...]:
    """Return what of a scenario has no formula, a sentence each; empty where `LaggedPipeline` can run it."""
    found: list[str] = []
    if setup.scaled_objects:
        names = ", ".join(each.metadata.name for each in setup.scaled_objects)
        found.append(f"KEDA's triggers ask the store (ScaledObject {names})")
    if setup.triggers:
        names = ", ".join(each.name for each in setup.triggers)
        found.append(f"triggers ask the store ({names})")
    if setup.prometheus_rules.groups:
        names = ", ".join(group.name for group in setup.prometheus_rules.groups)
        found.append(f"Prometheus rules are evaluated on the store (group {names})")
    if setup.pipeline.honor_labels:
        found.append("honorLabels gives idle GPUs the labels of pods")
    serving = [each.deployment for each in setup.workloads if each.metrics is not None]
    if serving:
        found.append(
            f"pods serve metrics of their own, which are scraped (of {', '.join(serving)})"
        )
    for hpa in setup.hpas:
        for spec in hpa.metrics:
            about = f"HorizontalPodAutoscaler {hpa.metadata.name}, metric {spec.name}"
            if isinstance(spec, ObjectMetric | ExternalMetric):
                found.append(f"{about}: only metrics of pods have a formula")
            elif isinstance(spec, PodsMetric):
                found += (f"{about}: {fault}" for fault in _faults(setup, spec))
    return tuple(dict.fromkeys(found))


def _faults(setup: Setup, spec: PodsMetric) -> Iterator[str]:
    if spec.selector:
        yield "its selector chooses among series"
    for rule in setup.rules.rules:
        series = _series_of(rule)
        if series is None:
            yield f"the rule at {rule.origin} leaves open which series it reads"
        elif rule.only_in:
            yield f"the rule at {rule.origin} is of one namespace"
        else:
            for name in sorted(series):
                if rule.api_name(name) == spec.name and not _has_formula(setup, rule, name):
                    yield f"the rule at {rule.origin} is not one aggregation of one known field"


def _series_of(rule: Rule) -> frozenset[str] | None:
    try:
        return metric_names(parse_query(rule.series_query))
    except QueryError:
        return frozenset()  # it finds nothing, in the store neither


def _has_formula(setup: Setup, rule: Rule, series: str) -> bool:
    """Return whether a rule asks for one aggregation, by pod, of a field of the GPUs that a pod holds."""
    style = setup.pipeline.style
    is_known = series in _OF_PROCESSES and style == "ack"
    if series in FIELDS:
        served = {(row.field, row.name) for row in setup.counters if row.type != "label"}
        is_known = (series, series) in served
    owner = _OWNER_LABELS[style]
    chosen = [each for each in parse_matchers(rule.series_query) if each.name != METRIC_NAME]
    by_owner = all(
        each.name in owner and (each.op, each.value) == (MatchOp.NOT_EQUAL, "") for each in chosen
    )
    return is_known and by_owner and _aggregation(rule, series, owner) is not None


def _aggregation(rule: Rule, series: str, owner: tuple[str, str]) -> str | None:
    """Return the operator of a rule that is one aggregation over a series by pod; None for any other rule."""
    fields = rule.metrics_query.plain_fields()
    if rule.parts or fields is None or not fields <= {"Series", "LabelMatchers", "GroupBy"}:
        return None
    try:
        text = custom_query(
            rule.metrics_query, series, rule.labels, PODS, "x", ("a", "b"), Selector()
        )
        root = parse_query(text).root
    except (NotFoundError, QueryError):
        return None
    namespace, pod = owner
    wanted = {
        Matcher(METRIC_NAME, MatchOp.EQUAL, series),
        Matcher(namespace, MatchOp.EQUAL, "x"),
        Matcher(pod, MatchOp.REGEX, "a|b"),
    }
    match root:
        case tree.Aggregate(operator, tree.Select(matchers, moment), None, True, labels):
            is_plain = moment == tree.Moment() and set(matchers) == wanted and labels == (pod,)
            return operator if is_plain and operator in _AGGREGATIONS else None
    return None


@dataclass(frozen=True, slots=True)
class _Scrape:
    """What the latest scrape brought."""

    at_ms: int
    series: frozenset[str] = frozenset()
    """Those that had a sample."""
    pods: Mapping[str, Shared] = field(default_factory=dict)
    """Pod key to the values of its GPUs."""


class LaggedPipeline:
    """The hops between GPUs and HPAs as formulas, on the world's engine.

    Args:
        world: whose GPUs are read and whose HPAs are served; nothing in it may be against `why_not`.
        controller: gets the metrics of each HPA.
    """

    def __init__(self, world: World, controller: HpaController) -> None:
        self.utilization: dict[str, float | None] = {}
        """As read at the latest scrape, of GPUs that a pod holds."""
        self._world = world
        self._controller = controller
        self._series = _needed_series(world.setup)
        self.shows_gpus = True
        """Whether anyone looks at that."""
        self._readings = SharedReadings(
            world.cluster,
            world.gpus,
            world.containers.processes,
            world.setup.pipeline.collect_interval,
            self._series,
            _values,
            _percent,
        )
        self._scrape = _Scrape(world.start_ms)
        self._touched_ms: dict[str, int] = {}
        """Series to the latest scrape that had a sample of it, or an end of one."""
        self._client = LaggedClient(ClusterDirectory(world.cluster), world.setup)
        self._catalogues: dict[frozenset[str], Catalogue] = {}
        """By the series that a look found."""
        self._schedule()

    def observe(self, hpa: HorizontalPodAutoscaler, now_ms: int) -> tuple[Observation, ...]:
        """Return what the metrics API would answer for each metric of an HPA."""
        is_old = now_ms - self._scrape.at_ms >= LOOKBACK_MS
        self._client.scrape = _Scrape(self._scrape.at_ms) if is_old else self._scrape
        selector = self._controller.target(hpa).scale.selector
        return immediately(observe(self._client, hpa, selector))

    def _schedule(self) -> None:
        engine, start = self._world.engine, self._world.start_ms
        pipeline, seed = self._world.setup.pipeline, self._world.setup.seed
        scrape_ms, relist_ms = pipeline.scrape_interval, pipeline.relist_interval
        engine.at(start + FIRST_LOOK_MS, Stage.SCRAPE, self._look_once)
        first_ms = start + phase_ms(seed, "scrape", scrape_ms)
        engine.every(scrape_ms, Stage.SCRAPE, self._read, first_ms=first_ms)
        relist_at = start + phase_ms(seed, "relist", relist_ms)
        engine.every(relist_ms, Stage.DISCOVERY, self._discover, first_ms=relist_at)
        for key in self._world.cluster.hpas:
            self._schedule_hpa(key, start + pipeline.hpa_sync_period)

    def _look_once(self, now_ms: int) -> None:
        self._read(now_ms)
        self._discover(now_ms)

    def _schedule_hpa(self, key: str, first_ms: int) -> None:
        def sync(now_ms: int) -> None:
            hpa = self._world.cluster.hpas[key]
            self._controller.sync(key, self.observe(hpa, now_ms), now_ms)

        period_ms = self._world.setup.pipeline.hpa_sync_period
        self._world.engine.every(period_ms, Stage.HPA, sync, first_ms=first_ms)

    def _read(self, now_ms: int) -> None:
        """Read the GPUs that pods hold, as a scrape of all nodes would."""
        self._world.advance_load(now_ms)
        series = self._readings.read(now_ms)
        for name in series | self._scrape.series:
            self._touched_ms[name] = now_ms
        self._scrape = _Scrape(now_ms, series, self._readings.by_pod)
        if self.shows_gpus:
            self.utilization = self._readings.utilization()

    def _discover(self, now_ms: int) -> None:
        oldest_ms = now_ms - self._world.setup.pipeline.relist_interval
        since_ms = max(oldest_ms, self._scrape.at_ms - _RETENTION_MS)
        found = frozenset(name for name, at_ms in self._touched_ms.items() if at_ms >= since_ms)
        if found not in self._catalogues:
            self._catalogues[found] = _catalogue(self._world.setup, found)
        self._client.catalogue = self._catalogues[found]


_RETENTION_MS = SeriesStore().retention_ms


class LaggedClient:
    """A `hpa.client.MetricsClient` that knows the values of pods at the latest scrape.

    Args:
        directory: which objects there are.
        setup: whose rules say what is asked for.
    """

    def __init__(self, directory: ClusterDirectory, setup: Setup) -> None:
        self.catalogue = Catalogue()
        """The series found at the latest look."""
        self.scrape = _Scrape(0)
        self._directory = directory
        self._owner = _OWNER_LABELS[setup.pipeline.style]
        self._operators: dict[tuple[Rule, str], str | None] = {}

    async def pod_values(
        self, namespace: str, selector: str, metric: str, _metric_selector: Selector | None
    ) -> Sequence[MetricValue]:
        """Return a metric of the selected pods; a pod without one is left out."""
        names = self._directory.names(PODS, namespace, parse_selector(selector))
        # One name is enough for the errors that a plan may raise.
        plan = plan_custom(
            self.catalogue, KUBERNETES, "pods", namespace, names[:1], metric, Selector()
        )
        operator, series = self._operator(plan), plan.scope.entry.series
        pods, at_ms = self.scrape.pods, self.scrape.at_ms
        return tuple(
            [
                MetricValue(name, _milli(shared, series, operator), at_ms)
                for name in names
                if (shared := pods.get(f"{namespace}/{name}")) and series in shared.values
            ]
        )

    def _operator(self, plan: CustomPlan) -> str:
        key = plan.scope.entry.rule, plan.scope.entry.series
        if key not in self._operators:
            self._operators[key] = _aggregation(*key, self._owner)
        operator = self._operators[key]
        if operator is None:
            raise NotFoundError(f"{plan.metric} has no formula; {_EXACTLY}")
        return operator

    async def object_value(
        self,
        _namespace: str,
        _described: CrossVersionObjectReference,
        metric: str,
        _metric_selector: Selector | None,
    ) -> MetricValue:
        raise NotFoundError(f"{metric} of an object has no formula; {_EXACTLY}")

    async def external_values(
        self, _namespace: str, metric: str, _selector: Selector | None
    ) -> Sequence[ExternalValue]:
        raise NotFoundError(f"external metric {metric} has no formula; {_EXACTLY}")

    async def resource_usages(self, _namespace: str, _selector: str, _resource: str) -> NoReturn:
        """Raise: a simulation has no resource metrics."""
        raise NotFoundError("no metrics returned from resource metrics API")


def _milli(shared: Shared, series: str, operator: str) -> int:
    """Return what a rule makes of the values of a pod's GPUs."""
    name = f"{operator} {series}"
    if name not in shared.results:
        shared.results[name] = to_milli(_AGGREGATIONS[operator](shared.values[series]))
    return shared.results[name]


def _needed_series(setup: Setup) -> tuple[str, ...]:
    """Return the series that HPAs can ask for."""
    asked = {
        spec.name for hpa in setup.hpas for spec in hpa.metrics if isinstance(spec, PodsMetric)
    }
    return tuple(
        dict.fromkeys(
            name
            for rule in setup.rules.rules
            for name in sorted(_series_of(rule) or ())
            if rule.api_name(name) in asked
        )
    )


def _catalogue(setup: Setup, found: frozenset[str]) -> Catalogue:
    """Return the metrics that are served while these series are found."""
    namespace, pod = _OWNER_LABELS[setup.pipeline.style]
    answers = {
        rule.series_query: [
            {METRIC_NAME: name, namespace: "x", pod: "x"}
            for name in sorted(found & (_series_of(rule) or frozenset()))
        ]
        for rule in (*setup.rules.rules, *setup.rules.external_rules)
    }
    return Catalogue.build(setup.rules, answers)


def _percent(reading: GpuReading) -> float | None:
    value = reading.values.get(UTILIZATION)
    return float(value) if isinstance(value, (int, float)) else None


def _values(reading: GpuReading, series: str) -> Iterator[float]:
    """Return the samples of a series that one GPU gives."""
    of_process = _OF_PROCESSES.get(series)
    if of_process is not None:
        found = (of_process(process) for process in reading.processes)
        yield from (float(value) for value in found if value is not None)
    elif series in reading.values:
        yield float(int(reading.values[series]))
