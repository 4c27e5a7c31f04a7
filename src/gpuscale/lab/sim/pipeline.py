"""From GPU readings to HPA observations in virtual time, by the same code as on a cluster.

The node agents' text is rendered, parsed, labelled, stored, recorded, discovered and queried exactly as
the servers do it; only the sockets between the hops are missing. A live node agent serves everything;
in virtual time nothing else looks, and days have to pass in seconds: only series that
rules can ask for are stored.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from gpuscale.agent.formats import FamilyOptions, agent_families
from gpuscale.agent.gpu import GpuReading
from gpuscale.base.errors import QueryError
from gpuscale.base.exposition.write import render_text, six_decimals
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.meta import OwnerReference
from gpuscale.base.streams import stream
from gpuscale.hpa import Observation
from gpuscale.hpa.controller import observe
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.cluster import ClusterDirectory
from gpuscale.lab.sim.engine import EventStage
from gpuscale.lab.sim.keda import FIRST_POLL_MS, ExternalOfRun, KedaOperator, MetricsOfHpas
from gpuscale.lab.sim.load.pod_metrics import PodTargets
from gpuscale.lab.sim.load.requests import RequestTarget
from gpuscale.lab.sim.metrics_client import VirtualMetricsClient, immediately
from gpuscale.lab.sim.needs import UTILIZATION, Needs, needs_of
from gpuscale.lab.sim.scenario.setup import ServiceSetup, Setup
from gpuscale.lab.sim.site import Site
from gpuscale.lab.sim.triggers import LOOK_MS, SimulatedTriggers
from gpuscale.lab.sim.world import World
from gpuscale.series import Value
from gpuscale.series.promql import Samples
from gpuscale.series.scraping import ScrapeTarget
from gpuscale.series.storage import SeriesStore
from gpuscale.server.rules import Catalogue, QueryFailure, SeriesAnswer
from gpuscale.server.sources import EmbeddedSource
from gpuscale.triggers.keda import Sources

FIRST_LOOK_MS = 1_000
"""When every hop looks once as it starts, before it falls into its own pace."""


def common_labels(setup: Setup) -> dict[str, str]:
    """Return the labels that a ServiceMonitor gives all node agents."""
    pipeline = setup.pipeline
    return {
        "job": pipeline.agent_service,
        "service": pipeline.agent_service,
        "namespace": pipeline.agent_namespace,
        "container": "exporter",
        "endpoint": "metrics",
    }


def target_labels(world: Site, node: str) -> dict[str, str]:
    """Return the labels that a ServiceMonitor gives the node agent of a node."""
    owner = OwnerReference("DaemonSet", world.setup.pipeline.agent_service)
    agent = next(pod for pod in world.cluster.pods_on(node) if pod.metadata.owner == owner)
    return {
        **common_labels(world.setup),
        "pod": agent.metadata.name,
        "instance": f"{node}:9400",
    }


def percent_of(reading: GpuReading) -> float | None:
    """Return a reading's GPU utilization in percent."""
    value = reading.values.get(UTILIZATION)
    return float(value) if isinstance(value, (int, float)) else None


def utilization(
    world: Site, node: str, readings: tuple[GpuReading, ...]
) -> dict[str, float | None]:
    """Return utilization in percent by series: `gpu/NODE/INDEX`, and `pod/NAMESPACE/POD`."""
    values: dict[str, float | None] = {}
    by_pod: dict[str, list[float]] = {}
    holders = world.cluster.devices.holders(node)
    for reading in readings:
        known = percent_of(reading)
        values[f"gpu/{node}/{reading.gpu.index}"] = known
        if known is not None:
            for key in holders[reading.gpu.index]:
                by_pod.setdefault(key, []).append(known)
    return values | {f"pod/{key}": sum(found) / len(found) for key, found in by_pod.items()}


def phase_ms(seed: int, hop: str, period_ms: int) -> int:
    """Return the time of a periodic hop's first run, after the scenario's start.

    Hops of a cluster run beside each other, not in step; the seed says how they are offset.
    """
    step_ms = min(1000, period_ms)
    steps = stream(seed, "phase", hop).randrange(period_ms // step_ms)
    return FIRST_LOOK_MS + (steps + 1) * step_ms


class GpuHops(Protocol):
    """How GPU readings reach queries: as text in a store, or by formula."""

    is_text: bool
    """Whether all that is scraped goes through text."""
    store: SeriesStore
    """Where all other series go."""
    utilization: dict[str, float | None]
    """As read at the latest scrape, by the names of series in a run's document."""
    shows_gpus: bool
    """Whether anyone looks at that."""

    def client(self, directory: ClusterDirectory) -> VirtualMetricsClient:
        """Return the metrics client for HPAs."""
        ...

    def samples(self) -> Samples:
        """Return the samples that Prometheus rules read."""
        ...

    def scrape(self, now_ms: int) -> None:
        """Read all GPUs under the current load."""
        ...

    def series_now(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        """Return the label sets of the series with a sample since `start_ms`."""
        ...

    async def query(self, promql: str, at_ms: int) -> Value:
        """Return what a query evaluates to."""
        ...


class GpusAsText:
    """GPU readings as text, scraped into a store.

    Args:
        world: whose GPUs are scraped.
        needs: the series worth storing.
    """

    def __init__(self, world: World, needs: Needs) -> None:
        self.is_text = True
        self.store = SeriesStore()
        self.utilization: dict[str, float | None] = {}
        self.shows_gpus = True
        self._world = world
        self._needs = needs
        self._counters = needs.counters(world.setup.counters)
        self._targets: dict[str, ScrapeTarget] = {}
        self._source = EmbeddedSource(self.store)
        self.series_now = self._source.series_now
        self.query = self._source.query

    def client(self, directory: ClusterDirectory) -> VirtualMetricsClient:
        return VirtualMetricsClient(directory, self._source)

    def samples(self) -> Samples:
        return self.store

    def scrape(self, now_ms: int) -> None:
        shown: dict[str, float | None] = {}
        world, pipeline = self._world, self._world.setup.pipeline
        nodes = world.gpus.readers
        for node in self._targets.keys() - nodes.keys():
            self._targets.pop(node).gone(now_ms)
        for node in nodes:
            if node not in self._targets:
                self._targets[node] = ScrapeTarget(
                    self.store, target_labels(world, node), honor_labels=pipeline.honor_labels
                )
            readings = world.gpus.read(node, now_ms)
            if self.shows_gpus:
                shown |= utilization(world, node, readings)
            families = agent_families(
                readings,
                self._counters,
                world.gpus.attribution(node),
                FamilyOptions(hostname=node, node_pool=world.cloud.pool_of(node).pool.name),
                frozenset({pipeline.style}),
                self._needs.names,
            )
            text = render_text(families, float_text=six_decimals)
            self._targets[node].ingest(text, now_ms)
        self.utilization = shown


class VirtualPipeline:
    """The hops between GPUs and HPAs, as events of the simulation's engine.

    Args:
        world: whose GPUs are scraped and whose HPAs are served.
        controller: gets the metrics of each HPA.
        gpus: carry what GPUs read; None has it go as text into a store.
    """

    def __init__(
        self, world: World, controller: HpaController, gpus: GpuHops | None = None
    ) -> None:
        self._world = world
        self._controller = controller
        self._setup = world.setup
        self._needs = needs_of(world.setup)
        self.gpus = gpus or GpusAsText(world, self._needs)
        self._store = self.gpus.store
        self._requests = RequestTarget(self._store) if self._needs.requests() else None
        self._client = self.gpus.client(ClusterDirectory(world.cluster))
        self._triggers = SimulatedTriggers(world, self._client, self.gpus.query)
        sources = Sources(self.gpus.query, self._triggers)
        self._keda = KedaOperator(world, controller, sources)
        external = ExternalOfRun(self._keda, self._triggers, lambda: world.engine.now_ms)
        self._with_keda = MetricsOfHpas(self._client, self._keda, external)
        self._schedule()

    def observe(self, hpa: HorizontalPodAutoscaler, now_ms: int) -> tuple[Observation, ...]:
        """Return the metrics API's answer for each metric of an HPA."""
        self._client.now_ms = now_ms
        selector = self._controller.target(hpa).scale.selector
        return immediately(observe(self._with_keda, hpa, selector))

    def _schedule(self) -> None:
        engine, start = self._world.engine, self._world.start_ms
        pipeline, seed = self._setup.pipeline, self._setup.seed
        for workload in self._setup.workloads:
            self._schedule_pods(workload)

        def look_once(now_ms: int) -> None:
            self._scrape(now_ms)
            self._record(now_ms)
            self._discover(now_ms)

        engine.at(start + FIRST_LOOK_MS, EventStage.SCRAPE, look_once)
        paces = (
            ("scrape", pipeline.scrape_interval, EventStage.SCRAPE, self._scrape),
            ("rules", pipeline.rule_interval, EventStage.RULES, self._record),
            ("relist", pipeline.relist_interval, EventStage.DISCOVERY, self._discover),
        )
        for hop, period_ms, stage, look in paces:
            engine.every(period_ms, stage, look, first_ms=start + phase_ms(seed, hop, period_ms))
        # HPAs sync only after every hop has run once; earlier their metrics would only be missing.
        is_at_once = self._controller.settings.syncs_at_once
        sync_ms = pipeline.hpa_sync_period
        first_ms = start + (FIRST_LOOK_MS if is_at_once else sync_ms)
        for key in self._world.cluster.hpas:
            engine.every(sync_ms, EventStage.HPA, partial(self._sync, key), first_ms=first_ms)
        if self._keda.polled or self._setup.triggers:
            engine.every(LOOK_MS, EventStage.KEDA, self._look_at_triggers, first_ms=start)
        for key, period_ms in self._keda.polled:
            poll, first_ms = partial(self._poll, key), start + FIRST_POLL_MS
            engine.every(period_ms, EventStage.KEDA, poll, first_ms=first_ms)

    def _schedule_pods(self, workload: ServiceSetup) -> None:
        """Schedule scrapes of a workload's pods, if any query reads their series."""
        metrics, key = workload.metrics, workload.deployment
        if metrics is None or not self._needs.any_of(metrics.series()):
            return
        name = key.partition("/")[2]
        targets = PodTargets(self._store, name, metrics, as_text=self.gpus.is_text)

        def scrape(now_ms: int) -> None:
            self._world.advance_load(now_ms)
            pods = self._world.serving_pods(key)
            name = self._world.service_of(pods[0]) if pods else None
            targets.scrape(self._world.services[key], pods, name, now_ms)

        first_ms = phase_ms(self._setup.seed, f"scrape {key}", metrics.interval_ms)
        engine, start = self._world.engine, self._world.start_ms
        engine.at(start + FIRST_LOOK_MS, EventStage.SCRAPE, scrape)
        engine.every(metrics.interval_ms, EventStage.SCRAPE, scrape, first_ms=start + first_ms)

    def _sync(self, key: str, now_ms: int) -> None:
        hpa = self._world.cluster.hpas[key]
        self._controller.sync(key, self.observe(hpa, now_ms), now_ms)

    def _poll(self, key: str, now_ms: int) -> None:
        immediately(self._keda.poll(key, now_ms))

    def _look_at_triggers(self, now_ms: int) -> None:
        self._client.now_ms = now_ms
        immediately(self._triggers.look(now_ms))
        immediately(self._keda.push(now_ms))

    def _scrape(self, now_ms: int) -> None:
        self._world.advance_load(now_ms)
        if self._requests is not None:
            self._requests.scrape(self._world.services, now_ms)
        self.gpus.scrape(now_ms)

    def _record(self, now_ms: int) -> None:
        self._world.prometheus_rules.evaluate(self._store, now_ms, self.gpus.samples())

    def _discover(self, now_ms: int) -> None:
        since_ms = now_ms - self._setup.pipeline.relist_interval
        config = self._setup.rules
        answers: dict[str, SeriesAnswer] = {}
        for query in config.series_queries():
            try:
                answers[query] = self.gpus.series_now(query, since_ms)
            except QueryError as error:
                answers[query] = QueryFailure(str(error))
        self._client.catalogue = Catalogue.build(config, answers, self._client.catalogue)
