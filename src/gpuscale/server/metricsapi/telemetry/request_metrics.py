"""What is counted of requests: by our own names, and by those of every Kubernetes API server.

The API server's names let existing dashboards and alerts show this server beside others. Labels come from a
fixed set, whatever is asked for.

Source: k8s.io/apiserver v0.30.0 pkg/endpoints/metrics (metrics.go): names, labels and buckets. Labels that
would be empty are left out, which means the same to Prometheus.
"""

from collections import Counter
from functools import lru_cache

from gpuscale.base.exposition.families import Family, Sample
from gpuscale.server.metricsapi.telemetry.histograms import Histogram, Labels, histograms
from gpuscale.server.metricsapi.wire.paths import GROUPS, NoRouteError, split_path, versions_of

_BUCKETS = (
    *(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0),
    *(3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0),
)
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_VERBS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "CONNECT", "OPTIONS"})
_KNOWN = ("apis", "openapi", "prometheus", "version", "metrics", "healthz", "livez", "readyz")
_MOST_CHARS = 512
"""Of a path whose labels are remembered."""
_VALUES_FROM = 4
"""Parts of a path that asks for values: `apis`, group, version, and more."""


class RequestMetrics:
    """Counters of requests by group, resource and code."""

    def __init__(self) -> None:
        self._answered: Counter[tuple[Labels, int]] = Counter()
        self._durations: dict[Labels, Histogram] = {}
        self._in_flight = 0

    def begins(self) -> None:
        self._in_flight += 1

    def ends(self, method: str, path: str, code: int, seconds: float) -> None:
        self._in_flight -= 1
        label = _labels if len(path) <= _MOST_CHARS else _labels.__wrapped__
        labels = label(method if method in _VERBS else "other", path)
        self._answered[labels, code] += 1
        found = self._durations.get(labels)
        if found is None:
            found = self._durations[labels] = Histogram(_BUCKETS)
        found.add(seconds)

    def families(self) -> tuple[Family, ...]:
        return (
            Family(
                "apiserver_request_total",
                "counter",
                "Requests by verb, group, version, resource, scope and code.",
                tuple(
                    Sample((*labels, ("code", str(code))), count)
                    for (labels, code), count in sorted(self._answered.items())
                ),
            ),
            histograms(
                "apiserver_request_duration_seconds",
                "Time to answer by verb, group, version, resource and scope.",
                self._durations,
            ),
            Family(
                "apiserver_current_inflight_requests",
                "gauge",
                "Requests that are being answered; all of them only read.",
                (Sample((("request_kind", "readOnly"),), self._in_flight),),
            ),
        )


def group_label(path: str) -> str:
    """Return the API group of a path, or its first part where that is one of ours; `other` otherwise."""
    first, *rest = path.strip("/").split("/")
    if first == "apis" and rest:
        return rest[0] if rest[0] in GROUPS else "other"
    return first if first in _KNOWN else "other"


@lru_cache(maxsize=512)
def _labels(verb: str, path: str) -> Labels:
    """Return the labels of a request; one for values is a list of any resource, as upstream has it."""
    try:
        _, *parts = split_path(path)
    except NoRouteError:
        parts = []
    group = group_label(path)
    if group not in GROUPS or len(parts) < 2 or parts[1] not in versions_of(group):
        return (("verb", verb),)
    labels = (("group", group), ("version", parts[1]))
    if len(parts) + 1 < _VALUES_FROM:
        return (("verb", verb), *labels)
    scope = "namespace" if parts[2] == "namespaces" and len(parts) > 4 else "cluster"
    listed = "LIST" if verb in _READING else verb
    return (("verb", listed), *labels, ("resource", "*"), ("scope", scope))
