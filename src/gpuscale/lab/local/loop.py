"""`gpuscale up`: all hops of the loop, live in one process, connected over HTTP.

Node agents are scraped over HTTP into the series store, the store is served as Prometheus, the rules are
served as the metrics APIs, and the HPA controller asks those APIs as it would in a cluster. Pods, nodes
and load move on the event engine, which follows the clock. All tasks belong to one group: a fault that
nothing expected ends the loop instead of leaving it half alive.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from aiohttp import web

from gpuscale.base.clock import PacedClock
from gpuscale.base.exposition.write import CONTENT_TYPE, render_text
from gpuscale.lab.kube_api.kubeconfig import written_kubeconfig
from gpuscale.lab.kube_api.objects.cluster import WorldObjects
from gpuscale.lab.kube_api.routes import KubeApi
from gpuscale.lab.local.external import LiveExternal
from gpuscale.lab.local.faults import LiveFaults
from gpuscale.lab.local.pace import Pace
from gpuscale.lab.local.present import LiveHpas, every, paced
from gpuscale.lab.local.prometheus_process import refusing
from gpuscale.lab.local.prometheus_view import live_view
from gpuscale.lab.local.runner import OnEvent, Runner
from gpuscale.lab.local.services.servers import ServiceServers
from gpuscale.lab.local.view import LiveView
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.cluster import ClusterDirectory
from gpuscale.lab.sim.engine import EventStage
from gpuscale.lab.sim.keda import FIRST_POLL_MS, ExternalOfRun, KedaOperator, MetricsOfHpas
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.triggers import LOOK_MS, SimulatedTriggers
from gpuscale.lab.sim.world import World
from gpuscale.series.promapi import TimeAxis
from gpuscale.series.promapi import add_routes as add_prometheus_api
from gpuscale.server.collector import store_families
from gpuscale.server.metricsapi import MetricsApiRoutes, MetricsProvider
from gpuscale.server.page import Front, add_page, only_host, openable_hosts, own_host, url_host
from gpuscale.server.sources.http import HttpMetricsClient, HttpSession
from gpuscale.server.sources.remote_write import RemoteWriteEndpoint, RemoteWriter
from gpuscale.server.sources.ruler import PrometheusRuleFiles, ruler_families
from gpuscale.triggers.keda import Sources

_RECORD_MS = 5_000
"""Time between two points of the page's charts, in scenario time."""
_FIRST_LOOK_S = 2.0
"""Scenario time until the first scrape; the agents have read their GPUs by then."""


@dataclass(frozen=True, slots=True)
class LiveOptions:
    """The address and speed of the live loop."""

    host: str
    port: int
    """0 takes any free port."""
    speed: float
    """Seconds of scenario time per second."""
    prometheus_rules: tuple[Path, ...] = ()
    """Rule files, and folders with such files, beside the scenario's own."""
    remote_write: tuple[RemoteWriteEndpoint, ...] = ()
    """Who gets a copy of all samples."""
    next_steps: Callable[[], tuple[tuple[str, str], ...]] = tuple
    """Returns what the page offers once the scenario's time is over, as texts and commands."""


class LiveLoop:
    """The live loop of one scenario.

    Args:
        setup: what to run.
        options: where and how fast.
        on_event: called with every event as plain data, as it happens.
        on_end: called once, when the scenario's time is over and the loop goes on.
    """

    def __init__(
        self,
        setup: Setup,
        options: LiveOptions,
        on_event: OnEvent,
        on_end: Callable[[], None],
    ) -> None:
        self._setup = setup
        self._options = options
        self._clock = PacedClock(options.speed)
        self._world = World(setup, self._clock.now_ms())
        self._controller = HpaController(self._world)
        self._rule_files = PrometheusRuleFiles(
            options.prometheus_rules, beside=self._world.prometheus_rules
        )
        self._runner = Runner(
            self._world, self._clock, self._rule_files.groups, options.host, on_event
        )
        self._services = ServiceServers(self._runner.present, self._clock, options.host)
        self._axis = TimeAxis(self._world.start_ms, options.speed)
        self._pace = Pace(self._runner.present, self._clock, self._axis)
        self._faults = LiveFaults(self._world, self._runner)
        self._writers = tuple(
            # In the machine's time, as clients of the Prometheus API see it.
            RemoteWriter(self._runner.store, endpoint, self._clock, self._axis.to_caller_ms)
            for endpoint in options.remote_write
        )
        self._provider = MetricsProvider(
            setup.rules,
            self._runner.source,
            ClusterDirectory(self._world.cluster),
            self._clock,
            setup.pipeline.relist_interval / 1000,
        )
        self._objects = WorldObjects(self._world, self._controller, self._axis)
        self._external = LiveExternal(setup)
        self._kube_api = KubeApi(
            self._world,
            self._objects,
            MetricsApiRoutes(
                self._provider, own=None if self._external.is_empty else self._external
            ),
            self._runner.present.catch_up,
            self._runner.agents.url_of,
        )
        self._next_record_ms = self._world.start_ms
        self.port = options.port
        """Of the page and the APIs; the real one once they answer."""
        self.kubeconfig: Path | None = None
        """Leads kubectl here while the loop runs."""
        self.view = LiveView(
            self._world,
            self._controller,
            self._runner.recorder,
            lambda node: self._runner.readings.get(node, ()),
            self._clock,
            datetime.fromtimestamp(self._world.start_ms / 1000, UTC).isoformat(),
            self.addresses,
            self._faults.broken,
            options.next_steps,
        )
        end_ms = self._world.start_ms + setup.duration_ms
        self._world.engine.at(end_ms, EventStage.RECORD, lambda _: on_end())

    @property
    def url(self) -> str:
        """Return the server's URL for local programs."""
        return f"http://{url_host(own_host(self._options.host))}:{self.port}"

    def addresses(self) -> dict[str, object]:
        agents = self._runner.agents
        hosts = openable_hosts(self._options.host)
        return {
            "page": f"{self.url}/",
            "otherPages": [f"http://{url_host(host)}:{self.port}/" for host in hosts[1:]],
            "prometheus": self.url,
            "metricsApi": f"{self.url}/apis",
            "services": dict(self._services.urls),
            "nodeAgents": {node: agents.url(node) for node in sorted(agents.ports)},
        }

    async def run(self, stop: asyncio.Event, on_ready: Callable[[], None]) -> None:
        """Run until `stop` is set; `on_ready` is called once the page answers.

        Raises:
            PortTakenError: another program has the port.
            UnavailableError: the host is none to listen on.
        """
        front = await self._serve()
        try:
            await self._runner.agents.follow_nodes()
            await self._services.open(after=self.port if self._options.port else 0)
            with written_kubeconfig(self.url) as self.kubeconfig:
                on_ready()
                async with HttpSession() as session, HttpMetricsClient(self.url) as client:
                    await self._run_tasks(front, session, client, stop)
        finally:
            await self._services.close()
            await self._runner.agents.stop()
            await asyncio.gather(*(writer.close() for writer in self._writers))
            await front.close()

    async def _run_tasks(
        self,
        front: Front,
        session: HttpSession,
        client: HttpMetricsClient,
        stop: asyncio.Event,
    ) -> None:
        present, start_ms = self._runner.present, self._world.start_ms
        ask = self._runner.source.query
        triggers = SimulatedTriggers(self._world, client, ask)
        keda = KedaOperator(self._world, self._controller, Sources(ask, triggers))
        self._objects.scaled_statuses = keda.statuses
        self._external.answers = ExternalOfRun(keda, triggers, present.catch_up)
        metrics = MetricsOfHpas(client, keda)

        async def look_at_triggers() -> None:
            await triggers.look(present.catch_up())
            await keda.push(present.catch_up())

        def poll(scaled: str) -> Callable[[], Awaitable[None]]:
            return lambda: keda.poll(scaled, present.catch_up())

        hpas = LiveHpas(present, self._controller, metrics)
        pipeline = self._setup.pipeline
        paces: list[tuple[str, int, Callable[[], Awaitable[None]]]] = [
            ("scrape", pipeline.scrape_interval, lambda: self._runner.scrape(session)),
            ("rules", pipeline.rule_interval, self._runner.evaluate_rules),
            ("relist", pipeline.relist_interval, self._provider.relist),
        ]
        polls = [
            every(self._clock, self._world.start_ms + FIRST_POLL_MS, period_ms, poll(key))
            for key, period_ms in keda.polled
        ]
        if polls or self._setup.triggers:
            polls.append(every(self._clock, self._world.start_ms, LOOK_MS, look_at_triggers))
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._runner.keep_up(self._follow), name="engine"),
                group.create_task(front.run(), name="connections"),
                group.create_task(
                    self._runner.ruler.follow_files(self._rule_files), name="rule files"
                ),
                *(group.create_task(each.run(), name="remote write") for each in self._writers),
            ]
            # Every hop runs once at the start, before its periodic runs.
            await self._clock.sleep(_FIRST_LOOK_S)
            for _, _, look in paces:
                await look()
            if polls:
                # `gpuscale scaler` holds KEDA's first call until the first evaluation.
                await look_at_triggers()
            tasks += [
                group.create_task(paced(self._clock, self._world, hop, period_ms, action), name=hop)
                for hop, period_ms, action in paces
            ]
            is_at_once = self._controller.settings.syncs_at_once
            sync_ms = pipeline.hpa_sync_period
            first_ms = self._clock.now_ms() if is_at_once else start_ms + sync_ms
            tasks.append(
                group.create_task(every(self._clock, first_ms, sync_ms, hpas.sync_all), name="hpa")
            )
            tasks += [group.create_task(each, name="KEDA") for each in polls]
            tasks += [group.create_task(each, name="services") for each in self._services.tasks()]
            await stop.wait()
            for task in tasks:
                task.cancel()

    async def _serve(self) -> Front:
        app = web.Application(middlewares=[only_host(self._options.host)])
        add_page(
            app,
            self.view,
            self.view.set_load,
            orders={"pace": self._pace.order, "fault": self._faults.order},
            report=self.view.report,
        )
        self._kube_api.add_routes(app)
        view = live_view(
            self._runner.store,
            self._runner.ruler,
            self._rule_files,
            self._setup.pipeline,
            self._clock,
        )
        app.middlewares.append(refusing(app, self._runner.source))
        add_prometheus_api(app, self._runner.store, self._clock, self._axis, view=view)
        app.router.add_get("/metrics", self._metrics)
        front = Front(app, self._options.host)
        self.port = await front.open(self._options.port)
        return front

    async def _metrics(self, _request: web.Request) -> web.Response:
        families = (
            *store_families(self._runner.store),
            *ruler_families(self._runner.ruler, self._rule_files),
        )
        text = render_text(family for family in families if family.samples)
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})

    async def _follow(self, now_ms: int) -> None:
        """Start and stop agents as nodes come and go, and record the run."""
        await self._runner.agents.follow_nodes()
        self._kube_api.look()
        late_ms = now_ms - self._next_record_ms
        if late_ms >= 0:
            self._runner.record(self._controller.figures())
            self._next_record_ms += _RECORD_MS * (1 + late_ms // _RECORD_MS)
