"""The server's status in the JSON form of Prometheus' API: build, settings, targets, store size.

Source: prometheus web/api/v1/api.go (v3.0.0), tsdb/index/postings.go (Stats).
"""

import asyncio
import os
import threading
from collections import Counter
from typing import Any

from yarl import URL

from gpuscale import __version__
from gpuscale.base.documents.documents import dump_documents
from gpuscale.base.golang.durations import format_duration
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.promapi.parameters import Parameters
from gpuscale.series.promapi.rules import timestamp
from gpuscale.series.promapi.server_view import ServerView, TargetView
from gpuscale.series.promapi.shapes import TimeAxis
from gpuscale.series.storage.store import SeriesStore

API_LEVEL = "3.0.0"
"""The Prometheus release whose language is spoken here; clients choose features by it."""
_SHOWN = 10
_SLICE = 2_000
"""Series that are counted before others get their turn."""


def build() -> dict[str, str]:
    """Return the build information."""
    return {
        "version": API_LEVEL,
        "revision": f"gpuscale {__version__}",
        "branch": "",
        "buildUser": "",
        "buildDate": "",
        "goVersion": "",
    }


def runtime(
    view: ServerView, store: SeriesStore, started_ms: int, axis: TimeAxis
) -> dict[str, Any]:
    """Return facts about the process; those only Go has are empty."""
    return {
        "startTime": timestamp(started_ms, axis),
        "CWD": "",
        "reloadConfigSuccess": view.is_reloaded(),
        "lastConfigTime": timestamp(started_ms, axis),
        "corruptionCount": 0,
        "goroutineCount": threading.active_count(),
        "GOMAXPROCS": os.cpu_count() or 1,
        "GOGC": "",
        "GODEBUG": "",
        "storageRetention": format_duration(store.retention_ms),
    }


def config(view: ServerView) -> dict[str, str]:
    """Return the configuration as YAML."""
    return {"yaml": dump_documents([view.config()])}


def targets(view: ServerView, parameters: Parameters, axis: TimeAxis) -> dict[str, Any]:
    """Return the targets that a request selects; there are no dropped ones."""
    state, pool = parameters.text("state").lower(), parameters.text("scrapePool")
    active = [
        _target(each, axis)
        for each in (view.targets() if state in {"", "any", "active"} else ())
        if not pool or each.labels.get("job") == pool
    ]
    return {
        "activeTargets": sorted(active, key=lambda each: (each["scrapePool"], each["scrapeUrl"])),
        "droppedTargets": [],
        "droppedTargetCounts": {},
    }


def alertmanagers(view: ServerView) -> dict[str, Any]:
    """Return the Alertmanagers' URLs."""
    return {
        "activeAlertmanagers": [{"url": url} for url in view.alertmanagers],
        "droppedAlertmanagers": [],
    }


async def head(store: SeriesStore, parameters: Parameters) -> dict[str, Any]:
    """Return the number of series, and the names and labels with the most series.

    Raises:
        ApiError: the limit is no number.
    """
    top = parameters.limit() or _SHOWN
    by_pair: Counter[tuple[str, str]] = Counter()
    for number, each in enumerate(store.select(()), start=1):
        by_pair.update(each.labels.items())
        if not number % _SLICE:
            await asyncio.sleep(0)
    values: Counter[str] = Counter()
    chars: Counter[str] = Counter()
    for name, value in by_pair:
        values[name] += 1
        chars[name] += len(value.encode(errors="replace"))
    stats = store.stats()
    names = {value: count for (name, value), count in by_pair.items() if name == METRIC_NAME}
    pairs = {f"{name}={value}": count for (name, value), count in by_pair.items()}
    return {
        "headStats": {
            "numSeries": stats.series,
            "numLabelPairs": len(by_pair),
            "chunkCount": stats.series,
            "minTime": 0 if stats.now_ms is None else stats.now_ms - stats.covered_ms,
            "maxTime": stats.now_ms or 0,
        },
        "seriesCountByMetricName": _top(Counter(names), top),
        "labelValueCountByLabelName": _top(values, top),
        "memoryInBytesByLabelName": _top(chars, top),
        "seriesCountByLabelValuePair": _top(Counter(pairs), top),
    }


def _top(counts: Counter[str], number: int) -> list[dict[str, Any]]:
    found = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:number]
    return [{"name": name, "value": value} for name, value in found]


def _target(target: TargetView, axis: TimeAxis) -> dict[str, Any]:
    url = URL(target.url)
    interval, timeout = (
        format_duration(round(seconds * 1000)) for seconds in (target.interval_s, target.timeout_s)
    )
    job = target.labels.get("job", "")
    return {
        "discoveredLabels": {
            "__address__": target.labels.get("instance", url.authority),
            "__metrics_path__": url.path,
            "__scheme__": url.scheme,
            "__scrape_interval__": interval,
            "__scrape_timeout__": timeout,
            "job": job,
        },
        "labels": dict(target.labels),
        "scrapePool": job,
        "scrapeUrl": target.url,
        "globalUrl": target.url,
        "lastError": target.error,
        "lastScrape": timestamp(target.last_ms, axis),
        "lastScrapeDuration": target.duration_s,
        "health": target.health,
        "scrapeInterval": interval,
        "scrapeTimeout": timeout,
    }
