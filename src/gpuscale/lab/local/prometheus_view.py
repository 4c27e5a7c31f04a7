"""Rules, targets and settings of a live run, as Prometheus' HTTP API shows them."""

from collections.abc import Iterator

from gpuscale.base.clock import PacedClock
from gpuscale.base.golang.durations import format_duration
from gpuscale.lab.sim.scenario.model import Pipeline
from gpuscale.series import Vector
from gpuscale.series.promapi import ServerView, TargetView
from gpuscale.series.promql import LOOKBACK_MS, instant
from gpuscale.series.storage import SeriesStore
from gpuscale.server.sources.ruler import PrometheusRuleFiles, Ruler


def live_view(
    store: SeriesStore,
    ruler: Ruler,
    files: PrometheusRuleFiles,
    pipeline: Pipeline,
    clock: PacedClock,
) -> ServerView:
    """Return a live run's rules, targets and settings; durations are in the caller's time scale."""

    def caller_ms(length_ms: int) -> int:
        return max(1, round(length_ms / clock.speed))

    def config() -> dict[str, object]:
        return {
            "global": {
                "scrape_interval": format_duration(caller_ms(pipeline.scrape_interval)),
                "evaluation_interval": format_duration(caller_ms(ruler.interval_ms)),
            },
            "rule_files": sorted({group.file for group in ruler.groups.groups}),
        }

    flags = {
        "query.lookback-delta": format_duration(LOOKBACK_MS),
        "storage.tsdb.retention.time": format_duration(store.retention_ms),
        "web.enable-admin-api": "false",
        "web.enable-remote-write-receiver": "false",
    }
    return ServerView(
        ruler,
        lambda: _targets(store, caller_ms(pipeline.scrape_interval) / 1000),
        flags,
        config,
        lambda: not files.faults,
    )


def _targets(store: SeriesStore, interval_s: float) -> Iterator[TargetView]:
    """Return the scrape targets: those with a series `up` in the store."""
    at_ms = store.stats().now_ms
    if at_ms is None:
        return
    durations = _newest(store, "scrape_duration_seconds", at_ms)
    for key, (labels, value, measured_ms) in _newest(store, "up", at_ms).items():
        yield TargetView(
            url=f"http://{labels.get('instance', '')}/metrics",
            labels=labels,
            health="up" if value else "down",
            error="" if value else "the scrape failed",
            last_ms=measured_ms,
            duration_s=durations[key][1] if key in durations else 0.0,
            interval_s=interval_s,
            timeout_s=interval_s,
        )


def _newest(
    store: SeriesStore, name: str, at_ms: int
) -> dict[tuple[tuple[str, str], ...], tuple[dict[str, str], float, int]]:
    """Return labels, value and time of each series of a name; the key is its labels without the name."""
    value = instant(store, name, at_ms)
    found = {}
    for sample in value.samples if isinstance(value, Vector) else ():
        labels = {key: text for key, text in sample.labels.items() if key != "__name__"}
        found[tuple(sorted(labels.items()))] = (labels, sample.value, sample.measured_ms)
    return found
