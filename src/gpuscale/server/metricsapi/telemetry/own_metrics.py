"""The metrics API server's own metrics."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale import __version__
from gpuscale.base.byte_cache import ACCOUNTANT
from gpuscale.base.clock import Clock
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.server.metricsapi.telemetry.histograms import Histogram, Labels, histograms
from gpuscale.server.metricsapi.telemetry.request_metrics import RequestMetrics, group_label
from gpuscale.server.metricsapi.wire.paths import CUSTOM_GROUP, EXTERNAL_GROUP

if TYPE_CHECKING:
    # The collector process has its own metrics, and no provider.
    from gpuscale.server.metricsapi.provider import MetricsProvider
    from gpuscale.server.metricsapi.rulebook.rule_file import RuleState

PREFIX = "gpuscale_metrics_api"
_MAX_METRICS = 2_000
"""Metrics whose age is shown; those asked for longest ago go first."""

MetricKey = tuple[str, str]
"""API group and metric."""


@dataclass(frozen=True, slots=True)
class ServedValues:
    """The times of values that were served: when they were measured, and how long the answer took."""

    group: str
    metric: str
    measured_ms: int
    """When the oldest of them was measured, as far as the source reports it."""
    seconds: float
    """From the request, once it was let through, to the values."""


@dataclass(frozen=True, slots=True)
class SourceLag:
    """How late samples reach the source and how old they are there, in seconds; None if unknown."""

    scrape_s: float | None = None
    store_s: float | None = None


class ServerMetrics:
    """Counters of the server."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._as_apiserver = RequestMetrics()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._durations: dict[str, Histogram] = {}
        self._asked: dict[str, Histogram] = {}
        self._failed: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()
        self._answers: OrderedDict[MetricKey, ServedValues] = OrderedDict()
        self._source_lags: dict[MetricKey, SourceLag] = {}
        self._answered: dict[MetricKey, None] = {}
        """Since they were last taken, in the order of their first answer since."""

    def begins(self) -> None:
        self._as_apiserver.begins()

    def ends(self, method: str, path: str, code: int, seconds: float) -> None:
        self._as_apiserver.ends(method, path, code, seconds)
        group = group_label(path)
        self._requests[group, code] += 1
        self._durations.setdefault(group, Histogram()).add(seconds)

    def rejected(self, reason: str) -> None:
        self._rejected[reason] += 1

    def answered(self, answer: ServedValues) -> None:
        key = (answer.group, answer.metric)
        self._answers[key] = answer
        self._answers.move_to_end(key)
        self._answered[key] = None
        if len(self._answers) > _MAX_METRICS:
            oldest, _ = self._answers.popitem(last=False)
            self._source_lags.pop(oldest, None)
            self._answered.pop(oldest, None)

    def take_answered(self, at_most: int) -> tuple[MetricKey, ...]:
        """Return the metrics answered since the last call, those that waited longest first."""
        taken = tuple(self._answered)[:at_most]
        for key in taken:
            del self._answered[key]
        return taken

    def source_lag(self, key: MetricKey, lag: SourceLag) -> None:
        """Record the lag of a metric's samples in the source."""
        if key in self._answers:
            self._source_lags[key] = lag

    def source_request(self, endpoint: str, seconds: float, *, failed: bool) -> None:
        """Count a request to the source."""
        self._asked.setdefault(endpoint, Histogram()).add(seconds)
        self._failed[endpoint] += failed

    def families(self) -> tuple[Family, ...]:
        now_ms = self._clock.now_ms()
        return (
            family(
                "build_info", "gauge", "Version of the server.", {(("version", __version__),): 1}
            ),
            family(
                "requests_total",
                "counter",
                "Requests by API group, or by path outside the groups, and by status code.",
                {(("group", g), ("code", str(c))): n for (g, c), n in self._requests.items()},
            ),
            _histograms("request_duration_seconds", "Time to answer.", "group", self._durations),
            family(
                "rejected_requests_total",
                "counter",
                "Requests that were turned away, by reason.",
                {(("reason", reason),): n for reason, n in self._rejected.items()},
            ),
            family(
                "value_age_seconds",
                "gauge",
                "Age of the oldest value in the latest answer for a metric.",
                {
                    (("group", group), ("metric", metric)): (now_ms - answer.measured_ms) / 1000
                    for (group, metric), answer in self._answers.items()
                },
            ),
            family(
                "hop_lag_seconds",
                "gauge",
                "Time that a metric's values take for each hop, as far as it is known, and for all of these.",
                {
                    (("group", group), ("metric", metric), ("hop", hop)): seconds
                    for (group, metric), answer in self._answers.items()
                    for hop, seconds in self._hops((group, metric), answer)
                },
            ),
            _histograms(
                "source_request_duration_seconds",
                "Time that the source of values took.",
                "endpoint",
                self._asked,
            ),
            family(
                "source_failures_total",
                "counter",
                "Questions that the source of values did not answer.",
                {(("endpoint", endpoint),): n for endpoint, n in self._failed.items()},
            ),
            *self._as_apiserver.families(),
        )

    def _hops(self, key: MetricKey, answer: ServedValues) -> Iterable[tuple[str, float]]:
        lag = self._source_lags.get(key, SourceLag())
        hops = {"scrape": lag.scrape_s, "store": lag.store_s, "answer": answer.seconds}
        known = [(hop, seconds) for hop, seconds in hops.items() if seconds is not None]
        return (*known, ("total", sum(seconds for _, seconds in known)))


def discovery_families(provider: "MetricsProvider") -> tuple[Family, ...]:
    """Return the metrics about discovery."""
    catalogue = provider.catalogue
    ended: Mapping[Labels, float] = (
        {} if provider.relisted_ms is None else {(): provider.relisted_ms / 1000}
    )
    return (
        family(
            "discovered_metrics",
            "gauge",
            "Metrics that are listed.",
            {
                (("group", CUSTOM_GROUP),): len(catalogue.custom_resources()),
                (("group", EXTERNAL_GROUP),): len(catalogue.external_metrics()),
            },
        ),
        family(
            "series_queries",
            "gauge",
            "Distinct series queries of the rules.",
            {(): len(provider.config.series_queries())},
        ),
        family(
            "failing_series_queries",
            "gauge",
            "Series queries that were not answered in the latest discovery.",
            {(): len(catalogue.failures)},
        ),
        family(
            "last_discovery_timestamp_seconds",
            "gauge",
            "When discovery last ended, in seconds since the epoch.",
            ended,
        ),
    )


def rule_families(state: "RuleState", sources: Mapping[str, "RuleState"]) -> tuple[Family, ...]:
    """Return the metrics of the rule files together, and of each file and ConfigMap."""
    good: Mapping[Labels, float] = {} if state.good_ms is None else {(): state.good_ms / 1000}
    return (
        family(
            "config_last_reload_successful",
            "gauge",
            "1 if the rule files as they are now are served.",
            {(): int(state.fault is None)},
        ),
        family(
            "config_last_reload_success_timestamp_seconds",
            "gauge",
            "When the rules that are served were read, in seconds since the epoch.",
            good,
        ),
        family(
            "config_reload_failures_total",
            "counter",
            "Changes of the rule files that were not taken.",
            {(): state.failures},
        ),
        family(
            "rule_source_last_reload_successful",
            "gauge",
            "1 if a rule file, or a team's ConfigMap, as it is now is served.",
            {(("source", name),): int(each.fault is None) for name, each in sources.items()},
        ),
        family(
            "rules_disabled",
            "gauge",
            "Rules of a rule file, or a team's ConfigMap, that can give nothing and are left out.",
            {(("source", name),): len(each.disabled) for name, each in sources.items()},
        ),
    )


def cache_family(counts: Mapping[str, tuple[int, int]]) -> Family:
    """Return how often each cache could answer; hits, then misses."""
    return family(
        "cache_lookups_total",
        "counter",
        "Questions to a cache, by whether it knew the answer.",
        {
            (("cache", name), ("result", result)): count
            for name, pair in counts.items()
            for result, count in zip(("hit", "miss"), pair, strict=True)
        },
    )


def object_families(copies: Mapping[str, tuple[int, bool, float]]) -> tuple[Family, ...]:
    """Return how many objects of each resource are known, and whether their watches work."""
    return (
        family(
            "watched_objects",
            "gauge",
            "Objects that are known, by resource.",
            {(("resource", name),): count for name, (count, _, _) in copies.items()},
        ),
        family(
            "watch_up",
            "gauge",
            "1 if the objects of a resource are kept up to date.",
            {(("resource", name),): int(is_up) for name, (_, is_up, _) in copies.items()},
        ),
        family(
            "watch_age_seconds",
            "gauge",
            "Time since the API server last said something of the objects of a resource.",
            {(("resource", name),): age_s for name, (_, _, age_s) in copies.items()},
        ),
    )


def with_samples(*groups: Iterable[Family]) -> tuple[Family, ...]:
    """Return the families that have samples."""
    return tuple(family for group in groups for family in group if family.samples)


Families = Callable[[], tuple[Family, ...]]


def family(name: str, type_: str, help_: str, values: Mapping[Labels, float]) -> Family:
    """Return a family with the server's name prefix, its samples sorted by labels."""
    samples = tuple(Sample(labels, value) for labels, value in sorted(values.items()))
    return Family(f"{PREFIX}_{name}", type_, help_, samples)


def _histograms(name: str, help_: str, label: str, found: Mapping[str, Histogram]) -> Family:
    by_labels: dict[Labels, Histogram] = {((label, value),): each for value, each in found.items()}
    return histograms(f"{PREFIX}_{name}", help_, by_labels)


def cache_families() -> tuple[Family, ...]:
    """Return the bytes of each cache, and how many all of them may have together."""
    sizes = ACCOUNTANT.bytes_by_name()
    return (
        family(
            "cache_bytes",
            "gauge",
            "Bytes that a cache holds, as far as they are known.",
            {(("cache", name),): size for name, size in sizes.items()},
        ),
        family(
            "cache_limit_bytes",
            "gauge",
            "Bytes that all caches may hold together.",
            {(): ACCOUNTANT.most_bytes},
        ),
    )
