"""Metrics of how long samples take to reach the source and the API, measured in the background.

A Prometheus answers a query with the time of the query, so how old the samples behind it are takes a
question of its own: `timestamp()`. When they were measured is known of gpuscale's node agents, which say so.
Both are asked of the series that the rule of a metric was found by, for the metrics that somebody asked for.
"""

import json
import logging
import math
from collections.abc import Iterable, Mapping

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.series import Scalar, Vector
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.telemetry.own_metrics import MetricKey, ServerMetrics, SourceLag
from gpuscale.server.metricsapi.wire.paths import CUSTOM_GROUP, EXTERNAL_GROUP
from gpuscale.server.rules.catalogue import Catalogue
from gpuscale.server.sources.source import MetricSource

_LOG = logging.getLogger(__name__)
_MAX_METRICS = 100
"""Looked at in one round, so that the questions stay few beside those of HPAs; the rest has its turn next."""
_MOST_OF_A_CORE = 0.0005
"""Of Prometheus, for the questions about one metric; one of many series is asked about less often."""
_QUERY_S, _ROW_S = 0.0026, 0.000018
"""What a query and a series cost a Prometheus 2.42 in CPU; see `server.sources.asking`."""
_AGENT_TIME = "gpuscale_exporter_newest_reading_timestamp_seconds"
_AGENT_TARGET = "job, instance"
"""The labels that identify a scraped target."""


class HopLag:
    """Measures the age of the samples behind each metric.

    Args:
        provider: knows the series of a metric.
        source: is asked.
        metrics: know which metrics are asked for, and get the lags.
        clock: times the pauses.
        interval_s: from the end of one round to the start of the next.
    """

    def __init__(
        self,
        provider: MetricsProvider,
        source: MetricSource,
        metrics: ServerMetrics,
        clock: Clock,
        interval_s: float,
    ) -> None:
        self._provider = provider
        self._source = source
        self._metrics = metrics
        self._clock = clock
        self._interval_s = interval_s
        self._not_before_ms: dict[MetricKey, int] = {}

    async def run(self) -> None:
        """Measure in rounds until cancelled."""
        while True:
            await self._clock.sleep(self._interval_s)
            await self.look()

    async def look(self) -> None:
        """Measure the metrics that were answered since the last round; one without a result is left out."""
        catalogue = self._provider.catalogue
        series, rows = series_by_metric(catalogue), rows_by_metric(catalogue)
        now_ms = self._clock.now_ms()
        self._not_before_ms = {key: ms for key, ms in self._not_before_ms.items() if ms > now_ms}
        answered = self._metrics.take_answered(_MAX_METRICS)
        due = [key for key in answered if key not in self._not_before_ms]
        has_agents = bool(due) and await self._has_agents()
        for key in due:
            query_s = _QUERY_S + rows.get(key, 0) * _ROW_S
            pause_s = (1 + has_agents) * query_s / _MOST_OF_A_CORE
            if pause_s > self._interval_s:
                self._not_before_ms[key] = now_ms + round(1000 * pause_s)
            lag = SourceLag()
            if key in series:
                selector = _selector(series[key])
                lag = SourceLag(
                    scrape_s=await self._ask(scrape_query(selector)) if has_agents else None,
                    store_s=await self._ask(store_query(selector)),
                )
            self._metrics.source_lag(key, lag)

    async def _has_agents(self) -> bool:
        """Return whether any target is a gpuscale agent; without one, the agents' part is not queried."""
        return bool(await self._ask(f"count({_AGENT_TIME})"))

    async def _ask(self, promql: str) -> float | None:
        try:
            value = await self._source.query(promql, self._clock.now_ms())
        except GpuscaleError as error:
            _LOG.debug("the lag of values is not known: %s (query %.2000s)", error, promql)
            return None
        found = [value.value] if isinstance(value, Scalar) else []
        if isinstance(value, Vector):
            found = [sample.value for sample in value.samples]
        finite = [seconds for seconds in found if math.isfinite(seconds)]
        # Clocks of two machines differ slightly, and a negative lag would be confusing.
        return max(0.0, *finite) if finite else None


def series_by_metric(catalogue: Catalogue) -> Mapping[MetricKey, tuple[str, ...]]:
    """Return the names of each metric's series, sorted."""
    found: dict[MetricKey, set[str]] = {}
    for (_, metric), entry in catalogue.custom.items():
        found.setdefault((CUSTOM_GROUP, metric), set()).add(entry.series)
    for metric, entry in catalogue.external.items():
        found.setdefault((EXTERNAL_GROUP, metric), set()).add(entry.series)
    return {key: tuple(sorted(names)) for key, names in found.items()}


def rows_by_metric(catalogue: Catalogue) -> Mapping[MetricKey, int]:
    """Return the number of each metric's series."""
    found: dict[MetricKey, int] = {}
    for (_, metric), entry in catalogue.custom.items():
        key = (CUSTOM_GROUP, metric)
        found[key] = max(found.get(key, 0), entry.rows)
    for metric, entry in catalogue.external.items():
        found[EXTERNAL_GROUP, metric] = entry.rows
    return found


def store_query(selector: str) -> str:
    """Return the query for the age of the oldest sample that a query would use now, in seconds."""
    return f"time() - min(timestamp({selector}))"


def scrape_query(selector: str) -> str:
    """Return the query for the longest time from a measurement to its scrape, in seconds.

    Only of targets that are gpuscale's node agents and have such a series.
    """
    lag = f"timestamp({_AGENT_TIME}) - {_AGENT_TIME}"
    return f"max(({lag}) and on ({_AGENT_TARGET}) {selector})"


def _selector(names: Iterable[str]) -> str:
    """Return a selector of the series of any of these names, which may hold what no identifier can."""
    pattern = "|".join(_escaped(name) for name in names)
    return f"{{__name__=~{json.dumps(pattern)}}}"


def _escaped(name: str) -> str:
    return "".join(c if c.isalnum() or c in "_:" else f"\\x{{{ord(c):x}}}" for c in name)
