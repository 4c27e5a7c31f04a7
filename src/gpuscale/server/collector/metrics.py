"""The collector's own metrics about its targets and its store, and the same in words."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuscale.base.exposition.families import Family
from gpuscale.series.storage import SeriesStore
from gpuscale.server.metricsapi.telemetry.histograms import Labels
from gpuscale.server.metricsapi.telemetry.own_metrics import family
from gpuscale.server.sources.feeds.targets import FeedState

if TYPE_CHECKING:
    from gpuscale.server.sources.feeds.collector import FeedCollector

_SHOWN = 3
"""Targets that are named where many have the same trouble."""


def feed_families(feeds: "FeedCollector") -> tuple[Family, ...]:
    """Return the metrics of each target and of the store as a whole."""
    states = feeds.states()
    return (
        family("feed_up", "gauge", "1 if a target answers.", _by_target(states, "up")),
        family(
            "feed_series",
            "gauge",
            "Series that a target has now.",
            _by_target(states, "series"),
        ),
        family(
            "feed_unwanted_series",
            "gauge",
            "Series that a target offers and that are not kept, because no rule asks for them.",
            _by_target(states, "unwanted"),
        ),
        family(
            "feed_samples_total",
            "counter",
            "Samples of a target that were stored.",
            _by_target(states, "samples"),
        ),
        family(
            "feed_failures_total",
            "counter",
            "Connections and scrapes of a target that failed.",
            _by_target(states, "failures"),
        ),
        family(
            "feed_limit_exceeded_total",
            "counter",
            "Scrapes of a target that failed because they brought too much or what is not "
            "supported, by limit.",
            {
                (*_labels(state), ("limit", limit)): count
                for state in states
                for limit, count in state.limited.items()
            },
        ),
        family(
            "feed_last_sample_timestamp_seconds",
            "gauge",
            "When a target's newest samples were measured, in seconds since the epoch.",
            {
                _labels(state): state.measured_ms / 1000
                for state in states
                if state.measured_ms is not None
            },
        ),
        family("feed_lag_seconds", "gauge", "Time that samples take for each hop.", _lags(states)),
        family(
            "feed_watch_up",
            "gauge",
            "1 if the list of targets is kept up to date.",
            {
                (("resource", name),): int(state.listed and state.error is None)
                for name, state in feeds.watches().items()
            },
        ),
        *store_families(feeds.store),
    )


def store_families(series: SeriesStore) -> tuple[Family, ...]:
    """Return how many series and samples the store holds, and how many it refused."""
    store = series.stats()
    return (
        family("store_series", "gauge", "Series in the store.", {(): store.series}),
        family("store_samples", "gauge", "Samples in the store.", {(): store.samples}),
        family(
            "store_retention_seconds",
            "gauge",
            "How far back samples are kept; less than the setting while the store is full.",
            {(): store.covered_ms / 1000},
        ),
        family(
            "store_cut_samples_total",
            "counter",
            "Samples that were dropped early because the store was full.",
            {(): store.cut},
        ),
        family(
            "store_refused_samples_total",
            "counter",
            "Samples that the store did not take, by reason.",
            {(("reason", reason),): count for reason, count in store.refused.items()},
        ),
        family(
            "store_metadata_bytes",
            "gauge",
            "What types, help and units of metrics take.",
            {(): series.metadata.size_bytes},
        ),
    )


def feed_remark(feeds: "FeedCollector") -> str:
    """Return how many targets answer and the first faults, in words."""
    states = feeds.states()
    remarks = [f"{sum(state.up for state in states)} of {len(states)} targets answer"]
    errors = {state.instance: state.error for state in states if state.error}
    remarks += [f"{instance}: {errors[instance]}" for instance in list(errors)[:_SHOWN]]
    if len(errors) > _SHOWN:
        remarks.append(f"and {len(errors) - _SHOWN} more")
    covered_ms, retention_ms = feeds.store.stats().covered_ms, feeds.store.retention_ms
    if covered_ms < retention_ms:
        remarks.append(
            f"the store is full: it covers {covered_ms // 1000} s of {retention_ms // 1000} s"
        )
    for name, state in feeds.watches().items():
        if state.error is not None:
            remarks.append(f"{name} are not followed: {state.error}")
    if feeds.saver is not None and feeds.saver.state.fault is not None:
        remarks.append(f"samples are not saved: {feeds.saver.state.fault}")
    remarks += [
        f"{writer.state.url} does not take samples: {writer.state.fault}"
        for writer in feeds.writers
        if writer.state.fault is not None
    ]
    return "; ".join(remarks)


def _by_target(states: tuple[FeedState, ...], field: str) -> Mapping[Labels, float]:
    """Sum a counter of the targets by their labels; targets of one address share a sum."""
    found: Counter[Labels] = Counter()
    for state in states:
        found[_labels(state)] += int(getattr(state, field))
    return found


def _lags(states: tuple[FeedState, ...]) -> dict[Labels, float]:
    found: dict[Labels, float] = {}
    for state in states:
        hops = (("arrival", state.arrival_lag_s), ("store", state.store_lag_s))
        for hop, seconds in hops:
            if seconds is not None:
                found[(*_labels(state), ("hop", hop))] = seconds
    return found


def _labels(state: FeedState) -> Labels:
    return (("instance", state.instance), ("kind", state.kind))
