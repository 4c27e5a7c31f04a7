"""Scrapes one target at a steady pace."""

import logging

import aiohttp
from yarl import URL

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError, UpstreamError
from gpuscale.base.exposition.reading.entries import UnsupportedFormatError
from gpuscale.base.exposition.reading.formats import ACCEPT, TIMEOUT_HEADER, format_of
from gpuscale.base.exposition.write import positional
from gpuscale.base.unreachable import reason_of
from gpuscale.series import KEEP_ALL, WantedSeries
from gpuscale.series.scraping import ScrapeTarget
from gpuscale.series.storage import DEFAULT_LIMITS, ScrapeLimits, SeriesStore
from gpuscale.server.sources.feeds.targets import FeedState, FeedTarget
from gpuscale.server.sources.http.session import HttpSession, TooLargeError

_LOG = logging.getLogger(__name__)
_LONGEST_S = 10.0
"""How long a scrape may take, in the machine's seconds."""
SCRAPE_FAULTS = (aiohttp.ClientError, OSError, TimeoutError, ValueError, GpuscaleError)
"""What `scrape_once` raises."""


class BeyondLimitError(UpstreamError):
    """A scrape has more samples or bytes than allowed, or an unsupported format.

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
        BeyondLimitError: the target answered with more than it may, or with native histograms.
        UnsupportedFormatError: the target answered in a format that is not read.
        UpstreamError: the target answered with something else than metrics.
        UnavailableError, aiohttp.ClientError, OSError, TimeoutError: no answer.
    """
    started_ms = clock.now_ms()
    try:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        headers = [("Accept", ACCEPT), (TIMEOUT_HEADER, positional(timeout_s))]
        status, content_type, body = await http.fetch_typed(
            "GET", url, headers=headers, timeout=timeout
        )
        if status != 200:
            raise UpstreamError(f"answered {status}")
        format_ = format_of(content_type)
    except SCRAPE_FAULTS:
        series.failed(started_ms, (clock.now_ms() - started_ms) / 1000)
        raise
    text = body.decode(errors="surrogateescape")
    result = series.ingest(text, started_ms, (clock.now_ms() - started_ms) / 1000, format_)
    if result.problem is not None and result.limit is not None:
        raise BeyondLimitError(result.limit, str(result.problem))
    if result.problem is not None:
        raise UpstreamError(str(result.problem))
    return result.added


def timeout_s(interval_s: float) -> float:
    """Return the time limit of a scrape in seconds."""
    return min(interval_s, _LONGEST_S)


class Scraper:
    """A scrape loop for one target.

    Args:
        target: to scrape.
        http: goes there.
        store: gets the series.
        clock: gives samples their times, and times the scrapes.
        interval_s: from one scrape to the next.
        honor_labels: whether exposed labels win over the target's.
        limits: what a scrape may bring.
        wanted: decides which series are kept.
    """

    def __init__(
        self,
        target: FeedTarget,
        http: HttpSession,
        store: SeriesStore,
        clock: Clock,
        interval_s: float,
        *,
        honor_labels: bool = True,
        limits: ScrapeLimits = DEFAULT_LIMITS,
        wanted: WantedSeries = KEEP_ALL,
    ) -> None:
        self.state = FeedState("scrape", target.instance)
        self._url = URL(target.url, encoded=True)
        self._http = http
        self._clock = clock
        self._interval_s = interval_s
        self.ends_series = True
        """Whether the series end with `run`."""
        self._series = ScrapeTarget(
            store,
            dict(target.labels),
            honor_labels=honor_labels,
            own_labels=target.own_labels,
            limits=limits,
            source=target.url,
            wanted=wanted,
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
            if self.ends_series:
                self._series.gone(self._clock.now_ms())

    async def _scrape(self) -> None:
        state = self.state
        started_ms = self._clock.now_ms()
        limit_s = timeout_s(self._interval_s)
        try:
            added = await scrape_once(self._http, self._url, self._series, self._clock, limit_s)
        except SCRAPE_FAULTS as error:
            reason = reason_of(error)
            if state.error is None:
                _LOG.warning("scraping %s failed: %s", self._url, reason)
            state.up, state.error, state.series = False, reason, 0
            state.failures += 1
            limit = _limit_of(error)
            if limit is not None:
                state.limited[limit] = state.limited.get(limit, 0) + 1
            return
        state.up, state.error, state.series = True, None, added
        state.unwanted = self._series.unwanted
        state.samples += added
        state.measured_ms = started_ms
        state.arrival_lag_s = (self._clock.now_ms() - started_ms) / 1000


def _limit_of(error: Exception) -> str | None:
    """Return the limit that a failed scrape exceeded."""
    if isinstance(error, BeyondLimitError):
        return error.limit
    if isinstance(error, UnsupportedFormatError):
        return "format"
    return "body_size" if isinstance(error, TooLargeError) else None
