"""A metric source that counts, times and optionally logs its queries."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from gpuscale.base.errors import QueryError, UnavailableError, UpstreamError
from gpuscale.series import Value
from gpuscale.server.metricsapi.telemetry.own_metrics import ServerMetrics
from gpuscale.server.sources.source import MetricSource, NamingSource

_LOG = logging.getLogger(__name__)


class TimedSource:
    """Forwards queries to the inner source.

    Args:
        source: gets them.
        metrics: counts them.
        timer: returns seconds of any origin.
    """

    def __init__(
        self,
        source: MetricSource,
        metrics: ServerMetrics,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._source = source
        self._metrics = metrics
        self._timer = timer

    async def series(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        """Return the inner source's label sets; see `MetricSource`."""
        with self._timed("series", selector):
            return await self._source.series(selector, start_ms)

    async def names(
        self, selector: str, start_ms: int, *, of_metrics: bool
    ) -> frozenset[str] | None:
        """Return the inner source's names; see `NamingSource`."""
        if not isinstance(self._source, NamingSource):
            return None
        with self._timed("names", selector):
            return await self._source.names(selector, start_ms, of_metrics=of_metrics)

    async def query(self, promql: str, at_ms: int) -> Value:
        """Return the inner source's result; see `MetricSource`."""
        with self._timed("query", promql):
            return await self._source.query(promql, at_ms)

    @contextmanager
    def _timed(self, endpoint: str, text: str) -> Iterator[None]:
        started = self._timer()
        failed = False
        try:
            yield
        except (QueryError, UnavailableError, UpstreamError):
            failed = True
            raise
        finally:
            seconds = self._timer() - started
            self._metrics.source_request(endpoint, seconds, failed=failed)
            _LOG.debug("%s took %.3f s: %.2000s", endpoint, seconds, text)
