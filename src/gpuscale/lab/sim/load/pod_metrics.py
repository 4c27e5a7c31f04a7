"""Metrics of a service's pods about its requests, and of the proxy in front of them.

Names are the scenario's, or those of a server. All ready pods share the load evenly, so each has its part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuscale.agent.formats import LabelPairs
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.exposition.write import render_text
from gpuscale.base.objects.pods import Pod
from gpuscale.lab.queueing.tally import Latencies, Spread
from gpuscale.lab.sim.load.service import SimulatedService
from gpuscale.lab.sim.load.signal_series import (
    BUCKETS_S,
    Exposed,
    Quantity,
    exposed_families,
    histogram_samples,
)
from gpuscale.series.scraping import ScrapeTarget
from gpuscale.series.storage import SeriesStore

Figure = Literal["requests", "inFlight", "queue", "kvCache", "latency"]
HELPS: Mapping[Figure, str] = {
    "requests": "Requests that have come.",
    "inFlight": "Requests that are being served.",
    "queue": "Requests that wait.",
    "kvCache": "Used part of the KV cache, 0 to 1.",
    "latency": "Seconds from a request's coming to its answer.",
}


@dataclass(frozen=True, slots=True)
class RequestProxy:
    """A proxy in front of the pods that exposes metrics of their requests."""

    labels: Mapping[str, str]
    """Of its scrape."""
    series: tuple[Exposed, ...]


@dataclass(frozen=True, slots=True)
class ServedMetrics:
    """The exposed metrics of a Deployment's requests."""

    names: Mapping[Figure, str]
    interval_ms: int
    """Between two scrapes."""
    kv_cache_requests: float | None = None
    """Requests in flight with which a pod's KV cache is full; None: there is no such cache."""
    of_pods: tuple[Exposed, ...] = ()
    """What the pods expose beside `names`."""
    fronts: tuple[RequestProxy, ...] = ()
    first_token_s: float | None = None
    """From when a pod takes a request to its first token; None: that is not known."""
    tokens_per_request: float | None = None
    """That a request generates; None: that is not known."""

    def series(self) -> frozenset[str]:
        """Return the names of the exposed series."""
        found = set(self.names.values())
        if "latency" in self.names:
            found |= {f"{self.names['latency']}_{end}" for end in ("bucket", "sum", "count")}
        in_front = (each for front in self.fronts for each in front.series)
        return frozenset(found.union(*(each.names for each in (*self.of_pods, *in_front))))


class _Target:
    """A scraped address; where text is not needed, only new series are scraped as text."""

    def __init__(
        self, store: SeriesStore, labels: Mapping[str, str], *, always_as_text: bool
    ) -> None:
        self._scraped = ScrapeTarget(store, labels)
        self._always_as_text = always_as_text
        self._series: list[tuple[str, str, LabelPairs]] = []

    def take(self, families: Sequence[Family], now_ms: int) -> None:
        """Store the address' current samples."""
        if self._always_as_text:
            self._scraped.ingest(render_text(families), now_ms)
            return
        samples = [(family.name, each) for family in families for each in family.samples]
        series = [(name, each.suffix, each.labels) for name, each in samples]
        if series == self._series:
            self._scraped.repeat([float(each.value) for _, each in samples], now_ms)
        else:
            self._scraped.ingest(render_text(families), now_ms)
        self._series = series

    def gone(self, now_ms: int) -> None:
        self._scraped.gone(now_ms)


@dataclass(slots=True)
class _Pod:
    """One pod's share of a service's counters."""

    target: _Target
    counted: dict[str, list[float]]


class PodTargets:
    """The series of a Deployment's pods and of the proxy in front, written to a store.

    Args:
        store: where samples go.
        deployment: name of the Deployment, which becomes the job.
        metrics: what is served.
        as_text: whether each scrape goes through text, rather than only those that bring new series.
    """

    def __init__(
        self,
        store: SeriesStore,
        deployment: str,
        metrics: ServedMetrics,
        *,
        as_text: bool = True,
    ) -> None:
        self._store = store
        self._as_text = as_text
        self._job = deployment
        self._metrics = metrics
        self._pods: dict[str, _Pod] = {}
        self._fronts = [
            (_Target(store, front.labels, always_as_text=as_text), front.series)
            for front in metrics.fronts
        ]
        self._counted: dict[str, list[float]] = {}

    def scrape(
        self, service: SimulatedService, pods: Sequence[Pod], service_name: str | None, now_ms: int
    ) -> None:
        """Store the current samples of each ready pod.

        Args:
            service: the Deployment's requests.
            pods: its ready ones.
            service_name: the Kubernetes Service in front of them, for the label `service`.
            now_ms: the time.
        """
        ready = {pod.metadata.key: pod for pod in pods}
        for key in self._pods.keys() - ready.keys():
            self._pods.pop(key).target.gone(now_ms)
        self._count(service, len(ready))
        gauges = self._gauges(service, len(ready))
        for target, series in self._fronts:
            target.take(tuple(exposed_families(series, gauges, self._counted)), now_ms)
        for quantity in _SHARED if ready else ():
            gauges[quantity] /= len(ready)
        for key, pod in ready.items():
            known = self._pods[key] if key in self._pods else self._new(pod, service_name)
            self._pods[key] = known
            known.target.take(self._families(gauges, known.counted), now_ms)

    def _new(self, pod: Pod, service_name: str | None) -> _Pod:
        labels = {
            "job": self._job,
            "namespace": pod.metadata.namespace,
            "pod": pod.metadata.name,
            "container": pod.spec.containers[0].name,
            "instance": pod.metadata.name,
        }
        if service_name is not None:
            labels["service"] = service_name
        nothing = {name: [0.0] * len(values) for name, values in self._counted.items()}
        return _Pod(_Target(self._store, labels, always_as_text=self._as_text), nothing)

    def _count(self, service: SimulatedService, ready: int) -> None:
        """Add each pod's share of the requests since the last scrape."""
        for name, values in self._counts(service).items():
            before = self._counted.get(name, [0.0] * len(values))
            # Shares are recomputed from all requests at each scrape, so rounding may lower one
            # slightly.
            more = [max(0.0, new - old) for new, old in zip(values, before, strict=True)]
            self._counted[name] = [old + new for old, new in zip(before, more, strict=True)]
            for pod in self._pods.values() if ready else ():
                pod.counted[name] = [
                    old + new / ready for old, new in zip(pod.counted[name], more, strict=True)
                ]

    def _counts(self, service: SimulatedService) -> dict[str, list[float]]:
        """Return a service's counters so far."""
        metrics, waits = self._metrics, service.waits
        waited_s = waits.count * (waits.mean_s or 0.0)
        found = {
            "requests": [service.arrived],
            "answered": [service.served],
            "waitedSeconds": [waited_s],
            "answeredSeconds": [service.answered_s],
        }
        if "latency" in metrics.names:
            found["latency"] = _histogram(service.latencies, waits.count, service.answered_s)
        if metrics.tokens_per_request is not None:
            found["tokens"] = [service.served * metrics.tokens_per_request]
        if metrics.first_token_s is not None:
            seconds = waited_s + waits.count * metrics.first_token_s
            spread = Latencies(waits, [metrics.first_token_s])
            found["firstToken"] = _histogram(spread, waits.count, seconds)
        return found

    def _gauges(self, service: SimulatedService, ready: int) -> dict[Quantity, float]:
        """Return a service's gauges: totals, and a pod's mean KV cache usage."""
        queue, in_flight = service.waiting, service.in_service
        found: dict[Quantity, float] = {
            "queue": queue,
            "inFlight": in_flight,
            "unanswered": queue + in_flight,
            "pods": ready,
        }
        used, full = service.kv_used, self._metrics.kv_cache_requests
        if used is None and full is not None and ready:
            used = min(1.0, in_flight / ready / full)
        if used is not None and ready:
            batching = service.model.batching
            size = (batching and batching.kv_tokens) or full or 1.0
            found |= {"kvCache": used, "kvUsed": used * size, "kvSize": size}
        return found

    def _families(
        self, gauges: dict[Quantity, float], counted: Mapping[str, Sequence[float]]
    ) -> tuple[Family, ...]:
        names = self._metrics.names
        shown: tuple[Figure, ...] = ("inFlight", "queue", "kvCache")
        found = [
            Family(names[figure], "gauge", HELPS[figure], (Sample((), gauges[figure]),))
            for figure in shown
            if figure in names and figure in gauges
        ]
        if "requests" in names:
            samples = (Sample((), counted["requests"][0]),)
            found.append(Family(names["requests"], "counter", HELPS["requests"], samples))
        if "latency" in names:
            buckets = tuple(histogram_samples((), counted["latency"]))
            found.append(Family(names["latency"], "histogram", HELPS["latency"], buckets))
        return (*found, *exposed_families(self._metrics.of_pods, gauges, counted))


_SHARED: tuple[Quantity, ...] = ("queue", "inFlight", "unanswered")
"""What all pods have together, each the same part of it."""


def _histogram(times: Spread, count: float, seconds: float) -> list[float]:
    """Return the counts up to each bound, the total count, and the sum of seconds."""
    up_to = [count * (1 - times.exceeding(bound)) for bound in BUCKETS_S]
    return [*up_to, float(count), seconds]
