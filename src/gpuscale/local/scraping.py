"""Prometheus' part of the live loop: scrape every node agent over HTTP, evaluate recording rules."""

import asyncio
import logging

import aiohttp

from gpuscale.core.clock import Clock
from gpuscale.local.agents import NodeAgents
from gpuscale.local.present import Present
from gpuscale.series.scrape import ScrapeTarget
from gpuscale.series.store import SeriesStore
from gpuscale.sim.pipeline import target_labels

_log = logging.getLogger(__name__)
_TIMEOUT = aiohttp.ClientTimeout(total=5)


class Scraper:
    """One target per node agent; a scrape that fails makes the target's series stale."""

    def __init__(
        self, present: Present, agents: NodeAgents, store: SeriesStore, clock: Clock
    ) -> None:
        self._present = present
        self._agents = agents
        self._store = store
        self._clock = clock
        self._targets: dict[str, ScrapeTarget] = {}

    async def scrape_all(self, session: aiohttp.ClientSession) -> None:
        """Scrape every node that is there, and end the series of those that left."""
        for node in self._targets.keys() - self._agents.ports.keys():
            self._targets.pop(node).gone(self._clock.now_ms())
        await asyncio.gather(*(self._scrape(session, node) for node in tuple(self._agents.ports)))

    async def _scrape(self, session: aiohttp.ClientSession, node: str) -> None:
        target = self._target(node)
        started_ms = self._clock.now_ms()
        try:
            async with session.get(self._agents.url(node), timeout=_TIMEOUT) as response:
                response.raise_for_status()
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError, KeyError):
            target.failed(started_ms)
            return
        result = target.ingest(text, started_ms)
        if result.problem is not None:
            _log.warning("scraping %s failed: %s", self._agents.url(node), result.problem)

    def _target(self, node: str) -> ScrapeTarget:
        if node not in self._targets:
            pipeline = self._present.world.setup.pipeline
            labels = target_labels(self._present.world, node)
            labels["instance"] = f"127.0.0.1:{self._agents.ports[node]}"
            honor = pipeline.honor_labels
            self._targets[node] = ScrapeTarget(self._store, labels, honor_labels=honor)
        return self._targets[node]
