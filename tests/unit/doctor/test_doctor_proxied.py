"""Where requests go that the API server passes on, and whose refusal an answer is."""

import pytest
from yarl import URL

from gpuscale.kube.client.errors import ApiStatusError
from gpuscale.ops.doctor.direct import PODS, SERVICES, missing_right, pod_path, service_path
from gpuscale.ops.doctor.prometheus import _full

FORBIDDEN = (
    "the API server at https://a answered /api/v1/namespaces/m/pods/p:9400/proxy/metrics with 403: pods "
    '"p:9400" is forbidden: User "u" cannot get resource "pods/proxy" in API group "" in the namespace "m"'
)


def test_a_pod_is_named_with_its_port() -> None:
    assert pod_path("m", "p", 9400, "/metrics") == "/api/v1/namespaces/m/pods/p:9400/proxy/metrics"


def test_a_pod_with_tls_is_named_with_its_scheme() -> None:
    # As docs/tasks/access-application-cluster of Kubernetes has it for Services: https:NAME:PORT.
    found = pod_path("m", "p", 9400, "/metrics", has_tls=True)
    assert found == "/api/v1/namespaces/m/pods/https:p:9400/proxy/metrics"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://p.m.svc:9090", "p:9090/proxy/api/v1/query"),
        ("http://p.m.svc:9090/", "p:9090/proxy/api/v1/query"),
        (
            "http://p.m.svc:9090/select/0/prometheus",
            "p:9090/proxy/select/0/prometheus/api/v1/query",
        ),
        ("https://p.m.svc:9090", "https:p:9090/proxy/api/v1/query"),
    ],
)
def test_a_service_keeps_the_scheme_and_path_of_what_is_behind_it(
    address: str, expected: str
) -> None:
    found = service_path(URL(address), "m", "p", 9090, "/api/v1/query")
    assert found == f"/api/v1/namespaces/m/services/{expected}"


def test_only_the_clusters_own_refusal_is_about_a_right() -> None:
    assert missing_right(ApiStatusError(403, FORBIDDEN), PODS) == PODS
    assert missing_right(ApiStatusError(403, FORBIDDEN), SERVICES) == ""
    behind = "the API server at https://a answered /api/v1/namespaces/m/pods/p:9400/proxy/metrics with 403"
    assert missing_right(ApiStatusError(403, f"{behind}: no reason given"), PODS) == ""


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("http://prometheus:9090", "http://prometheus.m.svc:9090"),
        ("http://prometheus/p", "http://prometheus.m.svc/p"),
        ("http://prometheus.other.svc:9090", "http://prometheus.other.svc:9090"),
        ("http://10.0.0.1:9090", "http://10.0.0.1:9090"),
        ("http://[", "http://["),
        ("", ""),
    ],
)
def test_a_services_own_name_is_one_of_its_namespace(address: str, expected: str) -> None:
    assert _full(address, "m") == expected
