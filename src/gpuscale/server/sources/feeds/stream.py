"""A connection to one node agent's stream, kept up while the agent exists.

A connection that breaks is opened again, after a wait that doubles up to ten seconds. For a short grace the
agent's series stay as they are, with the times they were measured at; then they end. A connection that stays
open in silence counts as broken: an agent sends a line with each collect, so three times its longest pause is
long enough.
"""

import asyncio
import logging
import math
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import aiohttp
from yarl import URL

from gpuscale.base.backoff import Backoff
from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError, UpstreamError
from gpuscale.base.exposition.stream import MAX_LINE_BYTES, StreamError
from gpuscale.series import KEEP_ALL, WantedSeries
from gpuscale.series.scraping import StreamedTarget, TargetSeries
from gpuscale.series.storage import (
    DEFAULT_LIMITS,
    RESOLUTION_MS,
    ScrapeLimitError,
    ScrapeLimits,
    SeriesStore,
)
from gpuscale.server.sources.feeds.refusals import agent_fault, refusal
from gpuscale.server.sources.feeds.targets import FeedState, FeedTarget
from gpuscale.server.sources.http.session import HttpSession

_LOG = logging.getLogger(__name__)
GRACE_S = 5.0
"""How long series of a broken connection stay, in the machine's seconds."""
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 10.0
_SILENCE_S = (10.0, 95.0)
"""How long a connection may be silent, at least and at most; agents collect every 30 s by default."""
_SILENT_PAUSES = 3.0
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
_RENEWAL_S = 2.0
"""Within which a stream is begun again because other series are wanted."""
_ANSWER_S = 10.0
"""How long the agent may take to begin to answer."""
_FAULTS = (aiohttp.ClientError, OSError, TimeoutError, ValueError, StreamError, GpuscaleError)


@dataclass(slots=True, eq=False)
class Seat:
    """An agent's place in the store: its series, filled by one origin at a time."""

    series: StreamedTarget
    feeder: object | None = None
    """Whose lines go there: a `StreamFollower`'s, or those of another replica that relays the agent."""


def new_seat(
    target: FeedTarget,
    store: SeriesStore,
    *,
    honor_labels: bool = True,
    resolution_ms: int = RESOLUTION_MS,
    wanted: WantedSeries = KEEP_ALL,
    limits: ScrapeLimits = DEFAULT_LIMITS,
) -> Seat:
    """Return a new agent's place in a store; arguments as for `StreamFollower`."""
    labels = TargetSeries(store, dict(target.labels), honor_labels=honor_labels)
    return Seat(
        StreamedTarget(
            store, labels, resolution_ms, limits=limits, source=target.instance, wanted=wanted
        )
    )


class StreamFollower:
    """Follows the stream of one agent.

    Args:
        target: the agent.
        http: goes there.
        store: gets the series.
        clock: gives the samples their times.
        honor_labels: whether the agent's labels win over the target's.
        resolution_ms: the step of time of which the newest sample is kept.
        wanted: decides which series are kept.
        grace_s: how long series of a broken connection stay.
        limits: what the agent may bring.
        seat: the agent's place in the store, where others may fill it too; it has the settings above.
    """

    def __init__(
        self,
        target: FeedTarget,
        http: HttpSession,
        store: SeriesStore,
        clock: Clock,
        *,
        honor_labels: bool = True,
        resolution_ms: int = RESOLUTION_MS,
        wanted: WantedSeries = KEEP_ALL,
        grace_s: float = GRACE_S,
        limits: ScrapeLimits = DEFAULT_LIMITS,
        seat: Seat | None = None,
    ) -> None:
        self.state = FeedState("stream", target.instance)
        self._url = URL(target.url)
        self._http = http
        self._clock = clock
        self._grace_s = grace_s
        self.ends_series = True
        """Whether the series end with `run`."""
        self.on_lost: Callable[[], None] | None = None
        """Called when the series end because the agent can't be followed."""
        self._seat = seat or new_seat(
            target,
            store,
            honor_labels=honor_labels,
            resolution_ms=resolution_ms,
            wanted=wanted,
            limits=limits,
        )
        self._series = self._seat.series
        self._waits = Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        self._expiry: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Follow until cancelled; then the agent's series end."""
        try:
            while True:
                await self._follow_once()
                await asyncio.sleep(self._waits.jittered())
        finally:
            self._keep()
            if self.ends_series and self._seat.feeder in {self, None}:
                self._series.gone(self._clock.now_ms())

    async def _follow_once(self) -> None:
        try:
            async with asyncio.timeout(_ANSWER_S) as limit:
                async with self._http.stream("GET", self._url, timeout=_TIMEOUT) as response:
                    if response.status != 200:
                        raise UpstreamError(refusal(response.status))
                    await self._read(response, limit)
            if self._series.is_outdated or self._seat.feeder is not self:
                return
            reason = self._series.ended or "the stream ended"
        except TimeoutError:
            reason = "no line in time"
        except _FAULTS as error:
            reason = agent_fault(error)
            if isinstance(error, ScrapeLimitError):
                limited = self.state.limited
                limited[error.limit] = limited.get(error.limit, 0) + 1
        self._broke(reason)

    async def _read(self, response: aiohttp.ClientResponse, limit: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        self._seat.feeder = self
        self._series.connected()
        longest_s, last = 0.0, loop.time()
        renewed_at = math.inf
        limit.reschedule(last + _SILENCE_S[1])
        async for line in lines(response.content):
            if self._seat.feeder is not self:  # another replica delivers the agent now
                return
            arrived = loop.time()
            is_first = self._series.measured_ms is None
            longest_s = 0.0 if is_first else max(longest_s, arrived - last)
            last = arrived
            self._take(line)
            if self._series.ended is not None or last >= renewed_at:
                return
            if self._series.is_outdated and renewed_at == math.inf:
                # So that not all agents are asked at once.
                renewed_at = last + random.uniform(0, _RENEWAL_S)  # noqa: S311 - no secret
            silence_s = _SILENCE_S[1] if is_first else _SILENT_PAUSES * longest_s
            limit.reschedule(last + min(max(silence_s, _SILENCE_S[0]), _SILENCE_S[1]))

    def _take(self, line: bytes) -> None:
        state, series = self.state, self._series
        now_ms = self._clock.now_ms()
        state.samples += series.feed(line, now_ms)
        if series.ended is not None or series.measured_ms is None:
            return
        if not state.up:
            _LOG.info("following the stream of %s", state.instance)
        self._keep()
        self._waits.reset()
        state.up, state.error, state.series = True, series.error, series.series
        state.unwanted, state.measured_ms = series.unwanted, series.measured_ms
        state.arrival_lag_s = (now_ms - series.measured_ms) / 1000
        state.store_lag_s = (self._clock.now_ms() - now_ms) / 1000

    def _broke(self, reason: str) -> None:
        state = self.state
        if state.up or state.error != reason:
            _LOG.warning("the stream of %s broke off: %s", state.instance, reason)
        state.up, state.error = False, reason
        state.failures += 1
        if self._seat.feeder is self:
            self._seat.feeder = None
        if self._expiry is None and self._series.series:
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(self._grace_s, self._expire)

    def _expire(self) -> None:
        """End the series of an agent that stayed away past its grace period."""
        self._expiry = None
        if self._seat.feeder is not None:
            return
        self._series.lost(self._clock.now_ms())
        if self.on_lost is not None:
            self.on_lost()
        self.state.series = self.state.unwanted = 0

    def _keep(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None


async def lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield the lines of a response as they arrive.

    Raises:
        StreamError: a line is longer than a stream's may be.
    """
    parts: list[bytes] = []
    size = 0
    async for chunk in content.iter_any():
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join((*parts, line))
            parts, size = [], 0
        parts.append(rest)
        size += len(rest)
        if size > MAX_LINE_BYTES:
            raise StreamError(f"found a line of more than {MAX_LINE_BYTES} bytes")
