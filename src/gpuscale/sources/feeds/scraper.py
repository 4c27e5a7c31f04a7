"""Scrapes one target at a steady pace."""

import logging

import aiohttp
from yarl import URL

from gpuscale.core.clock import Clock
from gpuscale.core.errors import GpuscaleError, UpstreamError
from gpuscale.series.limits import ScrapeLimits
from gpuscale.series.scrape import DEFAULT_LIMITS, ScrapeTarget
from gpuscale.series.store import SeriesStore
from gpuscale.sources.feeds.states import FeedState
from gpuscale.sources.feeds.targets import Target
from gpuscale.sources.http import HttpSession, TooLargeError

_LOG = logging.getLogger(__name__)
_LONGEST_S = 10.0
"""How long a scrape may take, in the machine's seconds."""
_ACCEPT = [("Accept", "text/plain;version=0.0.4")]
SCRAPE_FAULTS = (aiohttp.ClientError, OSError, TimeoutError, ValueError, GpuscaleError)
"""What `scrape_once` raises."""


class BeyondLimitError(UpstreamError):
    """A scrape brought more than a target may.

    Args:
        limit: which one, as `ScrapeResult.limit`.
        reason: where, how much, and what may be.
    """

    def __init__(self, limit: str, reason: str) -> None:
        super().__init__(reason)
        self.limit = limit


async def scrape_once(
    http: HttpSession, url: URL, series: ScrapeTarget, clock: Clock, timeout_s: float
) -> int:
    """Scrape a target, and return how many samples were stored.

    A scrape that fails ends the target's series before the error is raised.

    Raises:
        BeyondLimitError: the target answered with more than it may.
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
    if result.problem is not None and result.limit is not None:
        raise BeyondLimitError(result.limit, str(result.problem))
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
        limits: what a scrape may bring.
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
        limits: ScrapeLimits = DEFAULT_LIMITS,
    ) -> None:
        self.state = FeedState("scrape", target.instance)
        self._url = URL(target.url, encoded=True)
        self._http = http
        self._clock = clock
        self._interval_s = interval_s
        self._series = ScrapeTarget(
            store,
            dict(target.labels),
            honor_labels=honor_labels,
            own_labels=target.own_labels,
            limits=limits,
            source=target.url,
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
            limit = _limit_of(error)
            if limit is not None:
                state.limited[limit] = state.limited.get(limit, 0) + 1
            return
        state.up, state.error, state.series = True, None, added
        state.samples += added
        state.measured_ms = started_ms
        state.arrival_lag_s = (self._clock.now_ms() - started_ms) / 1000


def _limit_of(error: Exception) -> str | None:
    """Return which limit a scrape failed by."""
    if isinstance(error, BeyondLimitError):
        return error.limit
    return "body_size" if isinstance(error, TooLargeError) else None
