"""A live run's machines under a clock, with scrapes, rules and recording.

Node agents are scraped over HTTP, rules are evaluated over what was scraped, and points of the run are
recorded. What controls the pods is not in here: `lab.local.loop` has the simulator's controllers and its own
HPA controller, `lab.rehearse.rehearsal` those of a cluster.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from gpuscale.agent.gpu import GpuReading
from gpuscale.base.clock import Clock
from gpuscale.base.pages.timeline import SeriesRecorder
from gpuscale.lab.local.agents import AGENT_DOWN, NodeAgents
from gpuscale.lab.local.present import Present
from gpuscale.lab.local.prometheus_process import StoppableSource
from gpuscale.lab.local.scraping import AgentScraper
from gpuscale.lab.sim.autoscaler import SyncFigures
from gpuscale.lab.sim.document.document import events, row
from gpuscale.lab.sim.events import SimulationEvent
from gpuscale.lab.sim.load.requests import RequestTarget
from gpuscale.lab.sim.pipeline import utilization
from gpuscale.lab.sim.site import Site
from gpuscale.series.promapi import QueryPool
from gpuscale.series.rules import RuleGroups
from gpuscale.series.storage import SeriesStore
from gpuscale.server.sources import EmbeddedSource
from gpuscale.server.sources.http import HttpSession
from gpuscale.server.sources.ruler import Ruler
from gpuscale.signals import range_of

_PUMP_S = 0.05
"""How often, in real seconds, the machines are brought up to the clock without requests."""
OnEvent = Callable[[dict[str, object]], None]


class Runner:
    """One run of a scenario.

    Args:
        site: the machines.
        clock: which they follow.
        rules: recording and alerting rules.
        host: address for the node agents to listen on.
        on_event: called with every event as plain data, as it happens.
    """

    def __init__(
        self, site: Site, clock: Clock, rules: RuleGroups, host: str, on_event: OnEvent
    ) -> None:
        self.present = Present(site, clock)
        self.store = SeriesStore(range_of=range_of)
        pool = QueryPool()
        self.source = StoppableSource(EmbeddedSource(self.store, pool))
        self.ruler = Ruler(rules, self.store, pool, clock, site.setup.pipeline.rule_interval)
        self.agents = NodeAgents(self.present, clock, host)
        self.recorder = SeriesRecorder()
        self.readings: dict[str, tuple[GpuReading, ...]] = {}
        """Node to what its GPUs showed when they were recorded last."""
        self._site = site
        self._clock = clock
        self._requests = RequestTarget(self.store)
        self._scraper = AgentScraper(self.present, self.agents, self.store, clock)

        def pass_on(event: SimulationEvent) -> None:
            on_event(events(site, [event])[0])

        site.cluster.events.listen(pass_on)

    async def scrape(self, session: HttpSession) -> None:
        """Scrape all node agents once, and update the series of services' requests."""
        if self.source.is_stopped:
            return
        now_ms = self.present.catch_up()
        self._site.advance_load(now_ms)
        self._requests.scrape(self._site.services, now_ms)
        await self._scraper.scrape_all(session)
        self._site.scale_outs.scraped_ms = self._clock.now_ms()

    async def evaluate_rules(self) -> None:
        """Evaluate the rules that are due."""
        if not self.source.is_stopped:
            await self.ruler.evaluate(self._clock.now_ms())

    def record(self, figures: Mapping[str, SyncFigures]) -> None:
        """Record a point of the run's series.

        Args:
            figures: HPA key to what its status shows.
        """
        now_ms = self.present.catch_up()
        self._site.advance_load(now_ms)
        self.readings = {node: self._readings(node, now_ms) for node in self._site.gpus.readers}
        values: dict[str, float | None] = {}
        for node, readings in self.readings.items():
            values |= utilization(self._site, node, readings)
        self.recorder.add(self._site.seconds(now_ms), row(self._site, figures, values))

    def _readings(self, node: str, now_ms: int) -> tuple[GpuReading, ...]:
        if node not in self.agents.killed:
            return self._site.gpus.read(node, now_ms)
        gpus = self._site.gpus.readers[node].gpus()
        return tuple(
            GpuReading(gpu, now_ms, {}, {"DCGM_FI_DEV_GPU_UTIL": AGENT_DOWN}) for gpu in gpus
        )

    async def keep_up(self, on_turn: Callable[[int], Awaitable[None]]) -> None:
        """Advance the machines with the clock until cancelled.

        Args:
            on_turn: called after each step with the time, for what has to follow the machines.
        """
        while True:
            await on_turn(self.present.catch_up())
            await asyncio.sleep(_PUMP_S)
