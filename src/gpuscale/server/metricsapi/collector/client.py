"""Queries the collector process, both for metric values and for the collector's own metrics."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from yarl import URL

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.unreachable import reason_of
from gpuscale.series import Value
from gpuscale.series.promql import MAX_QUERY_CHARS
from gpuscale.server.metricsapi.collector.process import CollectorProcess
from gpuscale.server.sources.http.session import HttpSession
from gpuscale.server.sources.prometheus.client import PrometheusSettings, PrometheusSource

_LOG = logging.getLogger(__name__)
_FIRST_START_S = 10.0
"""How long questions wait for the first collector, in the machine's seconds."""
_RESTART_S = 2.0
"""How long they wait for one that is started again; long enough for most, short enough to hold nothing up."""
_METRICS_S = 2.0
HOST = URL("http://collector")
"""Of every request over the socket; it names nothing."""


@dataclass(frozen=True, slots=True)
class _Connections:
    """The open connections to one collector process."""

    socket: Path
    source: PrometheusSource
    http: HttpSession

    @staticmethod
    def to(socket: Path) -> "_Connections":
        """Return connections to the collector on this socket; they open at the first request."""
        settings = PrometheusSettings(
            str(HOST / "measured"),
            max_query_chars=MAX_QUERY_CHARS,
            unix_socket=socket,
            name="the collector",
        )
        return _Connections(socket, PrometheusSource(settings), HttpSession(unix_socket=socket))

    async def close(self) -> None:
        await self.source.close()
        await self.http.close()


class CollectorClient:
    """A `MetricSource` over the collector's socket.

    Values carry the times they were measured at, as from a store in this process.
    """

    def __init__(self, process: CollectorProcess) -> None:
        self._process = process
        self._connections: _Connections | None = None

    async def close(self) -> None:
        """Close the connections that are kept open between requests."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    def takes(self, promql: str) -> bool:
        """Return whether a query is short enough for the collector to accept."""
        return len(promql) <= MAX_QUERY_CHARS

    async def series(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        """Return the label sets that the collector finds; see `MetricSource`."""
        return await (await self._connected()).source.series(selector, start_ms)

    async def query(self, promql: str, at_ms: int) -> Value:
        """Return the query's result from the collector; see `MetricSource`."""
        return await (await self._connected()).source.query(promql, at_ms)

    async def metrics(self) -> bytes:
        """Return the collector's own metrics as text; empty while it does not answer."""
        if not self._process.is_up:
            return b""
        try:
            http = await self.http()
            timeout = aiohttp.ClientTimeout(total=_METRICS_S)
            status, body = await http.fetch("GET", HOST / "metrics", timeout=timeout)
        except (aiohttp.ClientError, OSError, TimeoutError, GpuscaleError) as error:
            _LOG.warning("the metrics of the collector are left out: %s", reason_of(error))
            return b""
        return body if status == 200 else b""

    async def http(self) -> HttpSession:
        """Return a session whose requests all go to the collector's socket, whatever the URL's host.

        Raises:
            UnavailableError: it does not run.
        """
        return (await self._connected()).http

    async def _connected(self) -> _Connections:
        """Return connections to the current collector process.

        Raises:
            UnavailableError: none does.
        """
        process = self._process
        await process.ready(_RESTART_S if process.starts else _FIRST_START_S)
        connections = self._connections
        if connections is None or connections.socket != process.socket:
            # Stored before any await, so that concurrent requests share it.
            self._connections, before = _Connections.to(process.socket), connections
            connections = self._connections
            if before is not None:
                await before.close()
        return connections
