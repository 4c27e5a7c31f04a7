"""Scrapes one target at a steady pace."""

import logging

import aiohttp
from yarl import URL

from gpuscale.core.clock import Clock
from gpuscale.core.errors import GpuscaleError, UpstreamError
from gpuscale.series.scrape import ScrapeTarget
from gpuscale.series.store import SeriesStore
from gpuscale.sources.feeds.states import FeedState
from gpuscale.sources.feeds.targets import Target
from gpuscale.sources.http import HttpSession

_LOG = logging.getLogger(__name__)
_LONGEST_S = 10.0
"""How long a scrape may take, in the machine's seconds."""
_ACCEPT = [("Accept", "text/plain;version=0.0.4")]
SCRAPE_FAULTS = (aiohttp.ClientError, OSError, TimeoutError, ValueError, GpuscaleError)
"""What `scrape_once` raises."""


async def scrape_once(
    http: HttpSession, url: URL, series: ScrapeTarget, clock: Clock, timeout_s: float
) -> int:
    """Scrape a target, and return how many samples were stored.

    A scrape that fails ends the target's series before the error is raised.

    Raises:
        UpstreamError: the target answered with something else than metrics.
        UnavailableError, aiohttp.ClientError, OSError, TimeoutError: no answer.
    """
    started_ms = clock.now_ms()
    try:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        status, body = await http.fetch("GET", url, headers=_ACCEPT, timeout=timeout)
        if status != 200:
            raise UpstreamError(f"answered {status}")
        text = body.decode()
    except SCRAPE_FAULTS:
        series.failed(started_ms, (clock.now_ms() - started_ms) / 1000)
        raise
    result = series.ingest(text, started_ms, (clock.now_ms() - started_ms) / 1000)
    if result.problem is not None:
        raise UpstreamError(str(result.problem))
    return result.added


class Scraper:
    """One target.

    Args:
        target: to scrape.
        http: goes there.
        store: gets the series.
        clock: of the samples and the pace.
        interval_s: from one scrape to the next.
        honor_labels: whether exposed labels win over the target's.
    """

    def __init__(
        self,
        target: Target,
        http: HttpSession,
        store: SeriesStore,
        clock: Clock,
        interval_s: float,
        *,
        honor_labels: bool = True,
    ) -> None:
        self.state = FeedState("scrape", target.instance)
        self._url = URL(target.url, encoded=True)
        self._http = http
        self._clock = clock
        self._interval_s = interval_s
        self._series = ScrapeTarget(
            store, dict(target.labels), honor_labels=honor_labels, source=target.url
        )

    async def run(self) -> None:
        """Scrape until cancelled; then the target's series end."""
        try:
            due_ms = self._clock.now_ms()
            while True:
                await self._scrape()
                due_ms = max(due_ms + round(self._interval_s * 1000), self._clock.now_ms())
                await self._clock.sleep((due_ms - self._clock.now_ms()) / 1000)
        finally:
            self._series.gone(self._clock.now_ms())

    async def _scrape(self) -> None:
        state = self.state
        started_ms = self._clock.now_ms()
        limit_s = min(self._interval_s, _LONGEST_S)
        try:
            added = await scrape_once(self._http, self._url, self._series, self._clock, limit_s)
        except SCRAPE_FAULTS as error:
            reason = str(error) or type(error).__name__
            if state.error is None:
                _LOG.warning("scraping %s failed: %s", self._url, reason)
            state.up, state.error, state.series = False, reason, 0
            state.failures += 1
            return
        state.up, state.error, state.series = True, None, added
        state.samples += added
        state.measured_ms = started_ms
        state.arrival_lag_s = (self._clock.now_ms() - started_ms) / 1000
