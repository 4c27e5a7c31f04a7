"""What the pods of a service serve of its requests, as a model server does: queue, in-flight, latency.

Names are the scenario's, or those of a server. All ready pods share the load evenly, so each has its part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuscale.exposition.families import Family, Sample
from gpuscale.exposition.write import render_text
from gpuscale.objects.pods import Pod
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.storage.store import SeriesStore
from gpuscale.sim.load.service import Service

Figure = Literal["requests", "inFlight", "queue", "kvCache", "latency"]
HELPS: Mapping[Figure, str] = {
    "requests": "Requests that have come.",
    "inFlight": "Requests that are being served.",
    "queue": "Requests that wait.",
    "kvCache": "Used part of the KV cache, 0 to 1.",
    "latency": "Seconds from a request's coming to its answer.",
}
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the histogram; the usual ones of client libraries, and two for language models."""


@dataclass(frozen=True, slots=True)
class ServedMetrics:
    """What the pods of a Deployment serve."""

    names: Mapping[Figure, str]
    interval_ms: int
    """Between two scrapes."""
    kv_cache_requests: float | None = None
    """Requests in flight with which a pod's KV cache is full; None: there is no such cache."""

    def series(self) -> frozenset[str]:
        """Return the names of the series that this makes."""
        found = set(self.names.values())
        if "latency" in self.names:
            found |= {f"{self.names['latency']}_{end}" for end in ("bucket", "sum", "count")}
        return frozenset(found)


@dataclass(slots=True)
class _Counted:
    """The part of a service's counters that one pod has."""

    target: ScrapeTarget
    requests: float
    answered: list[float]
    """Up to each bound, and in all."""
    seconds: float


class PodTargets:
    """The series of one Deployment's pods in a store.

    Args:
        store: where samples go.
        deployment: name of the Deployment, which becomes the job.
        metrics: what is served.
    """

    def __init__(self, store: SeriesStore, deployment: str, metrics: ServedMetrics) -> None:
        self._store = store
        self._job = deployment
        self._metrics = metrics
        self._pods: dict[str, _Counted] = {}
        self._requests = 0.0
        self._answered = [0.0] * (len(BUCKETS_S) + 1)
        self._seconds = 0.0

    def scrape(
        self, service: Service, pods: Sequence[Pod], service_name: str | None, now_ms: int
    ) -> None:
        """Take in what each ready pod serves now.

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
        for key, pod in ready.items():
            counted = self._pods[key] if key in self._pods else self._new(pod, service_name)
            self._pods[key] = counted
            counted.target.ingest(render_text(self._families(service, counted, len(ready))), now_ms)

    def _new(self, pod: Pod, service_name: str | None) -> _Counted:
        labels = {
            "job": self._job,
            "namespace": pod.metadata.namespace,
            "pod": pod.metadata.name,
            "container": pod.spec.containers[0].name,
            "instance": pod.metadata.name,
        }
        if service_name is not None:
            labels["service"] = service_name
        return _Counted(ScrapeTarget(self._store, labels), 0.0, [0.0] * len(self._answered), 0.0)

    def _count(self, service: Service, ready: int) -> None:
        """Give each pod its part of what came since the last scrape."""
        came = service.arrived - self._requests
        self._requests = service.arrived
        more, seconds = self._more_answered(service)
        for counted in self._pods.values() if ready else ():
            counted.requests += came / ready
            counted.seconds += seconds / ready
            counted.answered = [
                old + new / ready for old, new in zip(counted.answered, more, strict=True)
            ]

    def _more_answered(self, service: Service) -> tuple[list[float], float]:
        """Return how many more were answered within each bound, and their seconds."""
        if "latency" not in self._metrics.names:
            return [0.0] * len(self._answered), 0.0
        latencies, count = service.latencies, service.waits.count
        now = [count * (1 - latencies.exceeding(bound)) for bound in BUCKETS_S] + [count]
        # Shares are computed from all requests so far at each scrape: rounding may take a little back.
        more = [max(0.0, new - old) for new, old in zip(now, self._answered, strict=True)]
        seconds = service.answered_s
        longer = max(0.0, seconds - self._seconds)
        self._answered, self._seconds = now, seconds
        return more, longer

    def _families(self, service: Service, counted: _Counted, ready: int) -> tuple[Family, ...]:
        in_flight = service.in_service / ready
        values: dict[Figure, float] = {"inFlight": in_flight, "queue": service.waiting / ready}
        used = service.kv_used
        if used is not None:
            values["kvCache"] = used
        elif self._metrics.kv_cache_requests is not None:
            values["kvCache"] = min(1.0, in_flight / self._metrics.kv_cache_requests)
        names = self._metrics.names
        found = [
            Family(names[figure], "gauge", HELPS[figure], (Sample((), value),))
            for figure, value in values.items()
            if figure in names
        ]
        if "requests" in names:
            samples = (Sample((), counted.requests),)
            found.append(Family(names["requests"], "counter", HELPS["requests"], samples))
        if "latency" in names:
            found.append(_histogram(names["latency"], counted))
        return tuple(found)


def _histogram(name: str, counted: _Counted) -> Family:
    bounds = [*(f"{bound:g}" for bound in BUCKETS_S), "+Inf"]
    buckets = [
        Sample((("le", bound),), count, "_bucket")
        for bound, count in zip(bounds, counted.answered, strict=True)
    ]
    ends = (Sample((), counted.seconds, "_sum"), Sample((), counted.answered[-1], "_count"))
    return Family(name, "histogram", HELPS["latency"], (*buckets, *ends))
