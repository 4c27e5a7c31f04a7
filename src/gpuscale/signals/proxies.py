"""Signals of plain HTTP: requests in flight and requests each second, as proxies and gateways count them.

Where a proxy has no gauge of requests in flight, the seconds of all requests that end within a second are
their mean number (Little's law). That follows what ends, so it is late by the time that a request takes.

Sources, where each name and label was read:
    Istio 1.30: the standard metrics (istio_requests_total, istio_request_duration_milliseconds).
    Envoy: cluster statistics (upstream_rq_active, upstream_rq_pending_active, upstream_rq_total).
    ingress-nginx v1.15 internal/ingress/metric/collectors/socket.go.
    Traefik v3.7 pkg/observability/metrics/prometheus.go.
"""

from gpuscale.signals.signal import WINDOW, Signal, SignalFamily

_MEASURE = "a place to begin: three quarters of what one pod carries within your latency"
ISTIO = SignalFamily(
    "istio", "Istio", "1.30", needs="Prometheus scrapes the proxies", names="the Service"
)
ENVOY = SignalFamily(
    "envoy",
    "Envoy",
    "cluster statistics",
    needs="Prometheus scrapes Envoy",
    names="Envoy's cluster",
)
NGINX = SignalFamily(
    "nginx",
    "ingress-nginx",
    "v1.15",
    needs="Prometheus scrapes the controller",
    names="the Ingress",
)
TRAEFIK = SignalFamily(
    "traefik",
    "Traefik",
    "v3.7",
    needs="Prometheus scrapes Traefik, with addServicesLabels",
    names="Traefik's service, such as ml-bert-80@kubernetes",
)


def _rate(family: SignalFamily, series: str, query: str) -> Signal:
    what = "requests each second"
    metric = f"{family.name}_requests_per_second"
    return Signal(
        metric,
        series,
        "requests/s",
        10,
        "sum",
        family=family,
        kind="external",
        how="rate",
        query=query,
        what=what,
        why=_MEASURE,
    )


def _in_flight(family: SignalFamily, series: str, query: str) -> Signal:
    metric = f"{family.name}_requests_in_flight"
    return Signal(
        metric,
        series,
        "requests",
        10,
        "sum",
        family=family,
        kind="external",
        query=query,
        what="requests in flight",
        why="rate times latency: 10 are 20 requests a second of half a second each",
    )


def _of_service(series: str) -> str:
    """Return Istio's request rate of a Service; client and server side may both report it, one counts."""
    matchers = 'destination_service_name="$name",destination_service_namespace="$namespace"'
    return f"max(sum by (reporter) (rate({series}{{{matchers}}}[{WINDOW}])))"


def _of_ingress(series: str) -> str:
    """Return ingress-nginx' rate of an Ingress, whose namespace the scrape may have renamed."""
    found = (
        f'sum(rate({series}{{ingress="$name",{label}="$namespace"}}[{WINDOW}]))'
        for label in ("exported_namespace", "namespace")
    )
    return " or ".join(found)


def _of_traefik(series: str) -> str:
    return f'sum(rate({series}{{service="$name"}}[{WINDOW}]))'


def _of_cluster(series: str) -> str:
    return f'sum({series}{{envoy_cluster_name="$name"}})'


PROXY_SIGNALS = {
    "istio-in-flight": _in_flight(
        ISTIO,
        "istio_request_duration_milliseconds_sum",
        f"{_of_service('istio_request_duration_milliseconds_sum')} / 1000",
    ),
    "istio-rate": _rate(ISTIO, "istio_requests_total", _of_service("istio_requests_total")),
    "envoy-in-flight": _in_flight(
        ENVOY,
        "envoy_cluster_upstream_rq_active",
        f"{_of_cluster('envoy_cluster_upstream_rq_active')}"
        f" + {_of_cluster('envoy_cluster_upstream_rq_pending_active')}",
    ),
    "envoy-rate": _rate(
        ENVOY,
        "envoy_cluster_upstream_rq_total",
        f'sum(rate(envoy_cluster_upstream_rq_total{{envoy_cluster_name="$name"}}[{WINDOW}]))',
    ),
    "nginx-in-flight": _in_flight(
        NGINX,
        "nginx_ingress_controller_request_duration_seconds_sum",
        _of_ingress("nginx_ingress_controller_request_duration_seconds_sum"),
    ),
    "nginx-rate": _rate(
        NGINX, "nginx_ingress_controller_requests", _of_ingress("nginx_ingress_controller_requests")
    ),
    "traefik-in-flight": _in_flight(
        TRAEFIK,
        "traefik_service_request_duration_seconds_sum",
        _of_traefik("traefik_service_request_duration_seconds_sum"),
    ),
    "traefik-rate": _rate(
        TRAEFIK, "traefik_service_requests_total", _of_traefik("traefik_service_requests_total")
    ),
}
