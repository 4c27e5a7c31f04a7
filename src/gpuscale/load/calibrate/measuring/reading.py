"""Reads signals while a level runs: from a metrics page, or from Prometheus."""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import aiohttp
from yarl import URL

from gpuscale.base.errors import GpuscaleError, QueryError, UnavailableError, UpstreamError
from gpuscale.base.unreachable import reason_of
from gpuscale.series import Scalar, Value, Vector
from gpuscale.series.promql import parse_query
from gpuscale.series.scraping import ScrapeTarget
from gpuscale.series.storage import SeriesStore
from gpuscale.server.sources import EmbeddedSource
from gpuscale.server.sources.http import HttpSession
from gpuscale.server.sources.prometheus import PrometheusSettings, PrometheusSource
from gpuscale.signals import range_of

_MOST_BYTES = 16 * 1024 * 1024
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class SignalCandidate:
    """A candidate to scale on."""

    name: str
    query: str
    """PromQL; the values of all series that it gives are added."""


class SignalReader(Protocol):
    """Reads all signals at once."""

    problem: str
    """Why the last reading brought nothing; empty where it brought something."""

    async def read(self) -> Mapping[str, float]:
        """Return the value of each signal that has one now."""
        ...

    async def close(self) -> None:
        """Close what is open."""
        ...


def read_signal(text: str) -> SignalCandidate:
    """Parse `NAME=QUERY`, or a query, which is then its own name.

    Raises:
        ValueError: it is no PromQL.
    """
    name, equals, query = text.partition("=")
    if not equals or not name.strip().replace("_", "").replace("-", "").replace(" ", "").isalnum():
        name = query = text
    try:
        parse_query(query.strip())
    except QueryError as error:
        raise ValueError(f"found {text!r}, expected PromQL, or NAME=PROMQL: {error}") from None
    return SignalCandidate(name.strip(), query.strip())


def added(value: Value) -> float | None:
    """Return the sum of a result's values; None if it has none."""
    match value:
        case Scalar():
            total = value.value
        case Vector() if value.samples:
            total = sum(each.value for each in value.samples)
        case _:
            return None
    return total if math.isfinite(total) else None


class PageReader:
    """Signals of a page in Prometheus' text format, such as a pod's /metrics or the node agent's.

    Args:
        url: of the page.
        signals: asked of the samples that were read, so `rate(...[10s])` works.
    """

    def __init__(self, url: str, signals: Sequence[SignalCandidate]) -> None:
        self.problem = ""
        self._url, self._signals = URL(url), signals
        self._http = HttpSession(_TIMEOUT_S, _MOST_BYTES)
        self._store = SeriesStore(range_of=range_of)
        self._source = EmbeddedSource(self._store)
        self._scraped = ScrapeTarget(self._store, {}, honor_labels=True, source=url)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._http.close()

    async def read(self) -> Mapping[str, float]:
        """Scrape the page, and return the value of each signal that has one now."""
        self.problem = ""
        try:
            status, body = await self._http.fetch("GET", self._url)
        except (aiohttp.ClientError, TimeoutError, OSError, GpuscaleError) as error:
            self.problem = f"{self._url}: {reason_of(error)}"
            return {}
        if status != 200:
            self.problem = f"{self._url}: found status {status}, expected 200"
            return {}
        now_ms = time.time_ns() // 1_000_000
        return await asyncio.to_thread(self._values, body.decode(errors="replace"), now_ms)

    def _values(self, text: str, now_ms: int) -> Mapping[str, float]:
        result = self._scraped.ingest(text, now_ms)
        if result.problem is not None:
            self.problem = str(result.problem)
            return {}
        found = {}
        for signal in self._signals:
            try:
                value = added(self._source.query_now(signal.query, now_ms))
            except QueryError as error:
                self.problem = f"{signal.name}: {error}"
                continue
            if value is not None:
                found[signal.name] = value
        return found


class PrometheusSignals:
    """Signals that a Prometheus has.

    Args:
        url: of the Prometheus.
        signals: asked one by one.
    """

    def __init__(self, url: str, signals: Sequence[SignalCandidate]) -> None:
        self.problem = ""
        self._signals = signals
        self._source = PrometheusSource(PrometheusSettings(url, timeout_s=_TIMEOUT_S))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._source.close()

    async def read(self) -> Mapping[str, float]:
        """Return the value of each signal that has one now."""
        self.problem = ""
        now_ms = time.time_ns() // 1_000_000
        found = {}
        for signal in self._signals:
            try:
                value = added(await self._source.query(signal.query, now_ms))
            except (UnavailableError, UpstreamError, QueryError) as error:
                self.problem = str(error)
                continue
            if value is not None:
                found[signal.name] = value
        return found
