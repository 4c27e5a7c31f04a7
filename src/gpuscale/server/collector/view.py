"""The collector's rules, targets and settings, as Prometheus' HTTP API shows them."""

from collections.abc import Iterator

from gpuscale.base.golang.durations import format_duration
from gpuscale.series.promapi import AT_ONCE, TIMEOUT_S, ServerView, TargetView
from gpuscale.series.promql import LOOKBACK_MS
from gpuscale.server.sources.feeds.collector import FeedCollector
from gpuscale.server.sources.feeds.messages import CollectorSettings
from gpuscale.server.sources.feeds.scraper import timeout_s
from gpuscale.server.sources.feeds.targets import FeedState, FeedTarget
from gpuscale.server.sources.ruler.files import PrometheusRuleFiles
from gpuscale.server.sources.ruler.ruler import Ruler


def collector_view(
    settings: CollectorSettings,
    feeds: FeedCollector,
    ruler: Ruler,
    files: PrometheusRuleFiles,
    alertmanagers: tuple[str, ...],
) -> ServerView:
    """Return the rules, targets and settings of a collector; settings hold no secrets."""
    interval_s = settings.feeds.scrape_interval_s
    flags = {
        "query.lookback-delta": format_duration(LOOKBACK_MS),
        "query.max-concurrency": str(AT_ONCE),
        "query.timeout": format_duration(round(TIMEOUT_S * 1000)),
        "storage.tsdb.retention.time": format_duration(feeds.store.retention_ms),
        "web.enable-admin-api": "false",
        "web.enable-lifecycle": "false",
        "web.enable-remote-write-receiver": "false",
    }

    def config() -> dict[str, object]:
        return {
            "global": {
                "scrape_interval": format_duration(round(interval_s * 1000)),
                "scrape_timeout": format_duration(round(timeout_s(interval_s) * 1000)),
                "evaluation_interval": format_duration(ruler.interval_ms),
            },
            "rule_files": [str(path) for path in settings.rules.paths],
        }

    def targets() -> Iterator[TargetView]:
        return (_target(target, state, interval_s) for target, state in feeds.targets())

    return ServerView(ruler, targets, flags, config, lambda: not files.faults, alertmanagers)


def _target(target: FeedTarget, state: FeedState, interval_s: float) -> TargetView:
    is_known = state.up or state.error is not None
    return TargetView(
        url=target.url,
        labels=dict(target.labels),
        health=("up" if state.up else "down") if is_known else "unknown",
        error=state.error or "",
        last_ms=state.measured_ms,
        duration_s=max(0.0, state.arrival_lag_s or 0.0),
        interval_s=interval_s,
        timeout_s=timeout_s(interval_s),
    )
