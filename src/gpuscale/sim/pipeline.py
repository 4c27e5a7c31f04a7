"""From GPU readings to HPA observations in virtual time, through the same code as on a cluster.

The node agents' text is rendered, parsed, labelled, stored, recorded, discovered and queried exactly as
the servers do it; only the sockets between the hops are missing.
"""

from gpuscale.core.errors import GpuscaleError, QueryError
from gpuscale.core.streams import stream
from gpuscale.exposition.write import render_text, six_decimals
from gpuscale.gpu.families import FamilyOptions
from gpuscale.gpu.readings import GpuReading
from gpuscale.gpu.styles import agent_families
from gpuscale.hpa.types import (
    ExternalValues,
    FetchError,
    ObjectValue,
    Observation,
    PodValue,
    PodValues,
)
from gpuscale.objects.hpa import (
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
)
from gpuscale.objects.selectors import Selector, parse_selector
from gpuscale.series.scrape import ScrapeTarget
from gpuscale.series.store import SeriesStore
from gpuscale.sim.autoscaler import HpaController
from gpuscale.sim.directory import ClusterDirectory
from gpuscale.sim.engine import Stage
from gpuscale.sim.needs import UTILIZATION, needs_of
from gpuscale.sim.site import Site
from gpuscale.sim.world import World
from gpuscale.sources.catalogue import Catalogue, QueryFailure, SeriesAnswer
from gpuscale.sources.embedded import EmbeddedSource
from gpuscale.sources.plan import plan_custom, plan_external
from gpuscale.sources.resources import KUBERNETES

FIRST_LOOK_MS = 1_000
"""When every hop looks once as it starts, before it falls into its own pace."""


def target_labels(world: Site, node: str) -> dict[str, str]:
    """Return the labels that a ServiceMonitor gives the node agent of a node."""
    pipeline = world.setup.pipeline
    pods = world.cluster.pods_on(node)
    agent = next(
        pod for pod in pods if pod.metadata.owner and pod.metadata.owner.kind == "DaemonSet"
    )
    return {
        "job": pipeline.agent_service,
        "service": pipeline.agent_service,
        "namespace": pipeline.agent_namespace,
        "pod": agent.metadata.name,
        "container": "exporter",
        "endpoint": "metrics",
        "instance": f"{node}:9400",
    }


def utilization(
    world: Site, node: str, readings: tuple[GpuReading, ...]
) -> dict[str, float | None]:
    """Return percent by series name: `gpu/NODE/INDEX`, and `pod/NAMESPACE/POD` for pods with GPUs."""
    values: dict[str, float | None] = {}
    by_pod: dict[str, list[float]] = {}
    for reading, key in zip(readings, world.cluster.devices[node], strict=True):
        value = reading.values.get(UTILIZATION)
        known = float(value) if isinstance(value, (int, float)) else None
        values[f"gpu/{node}/{reading.gpu.index}"] = known
        if key is not None and known is not None:
            by_pod.setdefault(key, []).append(known)
    return values | {f"pod/{key}": sum(found) / len(found) for key, found in by_pod.items()}


def phase_ms(seed: int, hop: str, period_ms: int) -> int:
    """Return when a hop first looks at its own pace, after the scenario's start.

    Hops of a cluster run beside each other, not in step; the seed says how they are offset.
    """
    step_ms = min(1000, period_ms)
    steps = stream(seed, "phase", hop).randrange(period_ms // step_ms)
    return FIRST_LOOK_MS + (steps + 1) * step_ms


class VirtualPipeline:
    """The hops between GPUs and HPAs, on the world's engine.

    Args:
        world: whose GPUs are scraped and whose HPAs are served.
        controller: told what each HPA's metrics say.
    """

    def __init__(self, world: World, controller: HpaController) -> None:
        self.store = SeriesStore()
        self.utilization: dict[str, float | None] = {}
        """As read at the latest scrape."""
        self._world = world
        self._controller = controller
        self._setup = world.setup
        self._needs = needs_of(world.setup)
        self._counters = self._needs.counters(world.setup.counters)
        self._targets: dict[str, ScrapeTarget] = {}
        self._mapper = KUBERNETES
        self._directory = ClusterDirectory(world.cluster)
        self._source = EmbeddedSource(self.store)
        self._catalogue = Catalogue()
        self._schedule()

    def observe(self, hpa: HorizontalPodAutoscaler, now_ms: int) -> tuple[Observation, ...]:
        """Return what the metrics API would answer for each metric of an HPA."""
        pods = parse_selector(self._controller.target(hpa).scale.selector)
        return tuple(
            self._observe(hpa.metadata.namespace, spec, pods, now_ms) for spec in hpa.metrics
        )

    def _schedule(self) -> None:
        engine, start = self._world.engine, self._world.start_ms
        pipeline, seed = self._setup.pipeline, self._setup.seed
        scrape_ms = pipeline.scrape_interval
        engine.at(start + FIRST_LOOK_MS, Stage.SCRAPE, self._look_once)
        first_ms = start + phase_ms(seed, "scrape", scrape_ms)
        engine.every(scrape_ms, Stage.SCRAPE, self._scrape, first_ms=first_ms)
        rule_ms, relist_ms = pipeline.rule_interval, pipeline.relist_interval
        rules_at = start + phase_ms(seed, "rules", rule_ms)
        engine.every(rule_ms, Stage.RULES, self._record, first_ms=rules_at)
        relist_at = start + phase_ms(seed, "relist", relist_ms)
        engine.every(relist_ms, Stage.DISCOVERY, self._discover, first_ms=relist_at)
        for key in self._world.cluster.hpas:
            self._schedule_hpa(key, start + pipeline.hpa_sync_period)

    def _look_once(self, now_ms: int) -> None:
        """Every hop looks once as it starts, before it falls into its own pace."""
        self._scrape(now_ms)
        self._record(now_ms)
        self._discover(now_ms)

    def _schedule_hpa(self, key: str, first_ms: int) -> None:
        def sync(now_ms: int) -> None:
            hpa = self._world.cluster.hpas[key]
            self._controller.sync(key, self.observe(hpa, now_ms), now_ms)

        period_ms = self._setup.pipeline.hpa_sync_period
        self._world.engine.every(period_ms, Stage.HPA, sync, first_ms=first_ms)

    def _scrape(self, now_ms: int) -> None:
        self._world.advance_load(now_ms)
        self.utilization = {}
        nodes = self._world.gpus.readers
        for node in self._targets.keys() - nodes.keys():
            self._targets.pop(node).gone(now_ms)
        for node in nodes:
            readings = self._world.gpus.read(node, now_ms)
            self.utilization |= utilization(self._world, node, readings)
            self._target(node).ingest(self._text(node, readings), now_ms)

    def _target(self, node: str) -> ScrapeTarget:
        if node not in self._targets:
            labels = target_labels(self._world, node)
            honor = self._setup.pipeline.honor_labels
            self._targets[node] = ScrapeTarget(self.store, labels, honor_labels=honor)
        return self._targets[node]

    def _text(self, node: str, readings: tuple[GpuReading, ...]) -> str:
        options = FamilyOptions(hostname=node, node_pool=self._world.cloud.pool_of(node).pool.name)
        attribution = self._world.gpus.attribution(node)
        style = frozenset({self._setup.pipeline.style})
        families = agent_families(
            readings, self._counters, attribution, options, style, self._needs.names
        )
        return render_text(families, float_text=six_decimals)

    def _record(self, now_ms: int) -> None:
        self._world.prometheus_rules.evaluate(self.store, now_ms)

    def _discover(self, now_ms: int) -> None:
        since_ms = now_ms - self._setup.pipeline.relist_interval
        config = self._setup.rules
        answers = {query: self._series(query, since_ms) for query in config.series_queries()}
        self._catalogue = Catalogue.build(config, answers, self._catalogue)

    def _series(self, query: str, since_ms: int) -> SeriesAnswer:
        try:
            return self._source.series_now(query, since_ms)
        except QueryError as error:
            return QueryFailure(str(error))

    def _observe(
        self, namespace: str, spec: MetricSpec, pods: Selector, now_ms: int
    ) -> Observation:
        try:
            match spec:
                case PodsMetric():
                    return self._pods(namespace, spec, pods, now_ms)
                case ObjectMetric():
                    return self._object(namespace, spec, now_ms)
                case ExternalMetric():
                    return self._external(namespace, spec, now_ms)
                case _:
                    return FetchError("no metrics returned from resource metrics API")
        except GpuscaleError as error:
            return FetchError(str(error))

    def _pods(self, namespace: str, spec: PodsMetric, pods: Selector, now_ms: int) -> Observation:
        names = self._directory.names(self._mapper.find("pods"), namespace, pods)
        metric_selector = spec.selector or Selector()
        plan = plan_custom(
            self._catalogue, self._mapper, "pods", namespace, names, spec.name, metric_selector
        )
        values = plan.answer(self._source.query_now(plan.promql, now_ms))
        samples = tuple(PodValue(v.object_name, v.value_milli, v.measured_ms) for v in values)
        return PodValues(samples)

    def _object(self, namespace: str, spec: ObjectMetric, now_ms: int) -> Observation:
        described = spec.described_object
        resource = self._mapper.find_kind(described.kind, described.api_version)
        scope = namespace if resource.namespaced else None
        plan = plan_custom(
            self._catalogue,
            self._mapper,
            resource.name,
            scope,
            (described.name,),
            spec.name,
            spec.selector or Selector(),
        )
        value = plan.answer_one(self._source.query_now(plan.promql, now_ms))
        return ObjectValue(value.value_milli, value.measured_ms)

    def _external(self, namespace: str, spec: ExternalMetric, now_ms: int) -> Observation:
        plan = plan_external(self._catalogue, namespace, spec.name, spec.selector or Selector())
        values = plan.answer(self._source.query_now(plan.promql, now_ms), now_ms)
        measured = min((value.measured_ms for value in values), default=now_ms)
        return ExternalValues(tuple(value.value_milli for value in values), measured)
