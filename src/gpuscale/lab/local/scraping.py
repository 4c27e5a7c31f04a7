"""Prometheus' part of the live loop: scraping node agents over HTTP, evaluating recording rules."""

import asyncio
import logging

from yarl import URL

from gpuscale.base.clock import Clock
from gpuscale.base.errors import UpstreamError
from gpuscale.lab.local.agents import NodeAgents
from gpuscale.lab.local.present import Present
from gpuscale.lab.sim.pipeline import target_labels
from gpuscale.series.scraping import ScrapeTarget
from gpuscale.series.storage import SeriesStore
from gpuscale.server.sources.feeds import SCRAPE_FAULTS, scrape_once
from gpuscale.server.sources.http import HttpSession

_log = logging.getLogger(__name__)
_TIMEOUT_S = 5.0
"""In the machine's seconds."""


class AgentScraper:
    """Scrapes node agents; after a failed scrape the target's series are stale."""

    def __init__(
        self, present: Present, agents: NodeAgents, store: SeriesStore, clock: Clock
    ) -> None:
        self._present = present
        self._agents = agents
        self._store = store
        self._clock = clock
        self._targets: dict[str, ScrapeTarget] = {}

    async def scrape_all(self, session: HttpSession) -> None:
        """Scrape every current node, and end the series of removed ones."""
        for node in self._targets.keys() - self._agents.ports.keys():
            self._targets.pop(node).gone(self._clock.now_ms())
        await asyncio.gather(*(self._scrape(session, node) for node in tuple(self._agents.ports)))

    async def _scrape(self, session: HttpSession, node: str) -> None:
        if node not in self._agents.ports:
            return  # the node left during this round; the next round ends its series
        if node not in self._targets:
            world = self._present.world
            labels = target_labels(world, node)
            labels["instance"] = f"127.0.0.1:{self._agents.ports[node]}"
            honor = world.setup.pipeline.honor_labels
            self._targets[node] = ScrapeTarget(self._store, labels, honor_labels=honor)
        target, url = self._targets[node], URL(self._agents.url(node))
        try:
            await scrape_once(session, url, target, self._clock, _TIMEOUT_S)
        except UpstreamError as error:
            _log.warning("scraping %s failed: %s", url, error)
        except SCRAPE_FAULTS as error:
            _log.debug("scraping %s failed: %s", url, error)
