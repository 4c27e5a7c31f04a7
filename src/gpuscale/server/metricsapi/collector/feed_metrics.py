"""The server's own metrics about its source: queries, refused values, the collector process."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuscale.base.exposition.families import Family
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.telemetry.own_metrics import family

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.collector.process import CollectorProcess


def value_families(provider: MetricsProvider, impossible: Mapping[str, int]) -> tuple[Family, ...]:
    """Return metrics of how queries were answered, and of values that were too old or impossible.

    Args:
        provider: answers them.
        impossible: how many values a Prometheus had that their series can't have, by its name.
    """
    counts = provider.questions.counts
    return (
        family(
            "questions_total",
            "counter",
            "Questions for values: asked of the source, shared with others that asked the same, "
            "cut out of a query for many, or split into parts.",
            {(("how", how),): getattr(counts, how) for how in ("asked", "shared", "cut", "split")},
        ),
        family(
            "stale_values_total",
            "counter",
            "Values that were left out because they were measured too long ago.",
            {
                (("group", group), ("metric", metric)): count
                for (group, metric), count in provider.age_limit.stale.items()
            },
        ),
        family(
            "future_values_total",
            "counter",
            "Values that were left out because their time is in the future.",
            {
                (("group", group), ("metric", metric)): count
                for (group, metric), count in provider.age_limit.ahead.items()
            },
        ),
        family(
            "impossible_values_total",
            "counter",
            "Series of the Prometheus that were left out because they had a value that they can't have, "
            "counted once a minute, or less often where that takes the Prometheus long.",
            {(("series", series),): count for series, count in impossible.items()},
        ),
    )


def collector_families(process: "CollectorProcess") -> tuple[Family, ...]:
    """Return metrics of the collector process: up, starts, and the like."""
    return (
        family(
            "collector_up",
            "gauge",
            "1 if the process that follows the targets answers.",
            {(): int(process.is_up)},
        ),
        family(
            "collector_restarts_total",
            "counter",
            "Times that the process that follows the targets ended and was started again.",
            {(): process.restarts},
        ),
    )
