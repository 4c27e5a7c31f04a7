# mypy: disable-error-code="arg-type"
"""What a request wants to do, and the API server's words for no.

The table is k8s.io/apiserver's reading of request paths (requestinfo.go), for the paths of metrics.
"""

import pytest

from gpuscale.base.errors import UnavailableError
from gpuscale.server.metricsapi.security.authorization import (
    Authorizer,
    attributes_of,
    forbidden_message,
    named_by_fields,
)
from gpuscale.server.metricsapi.security.reviews import AccessDecision, Attributes, User

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("namespaces/ns/pods/web-0/m", ("get", "pods", "m", "web-0", "ns")),
        ("namespaces/ns/pods/%2A/m", ("get", "pods", "m", "*", "ns")),
        ("namespaces/ns/metrics/m", ("get", "metrics", "", "m", "ns")),
        ("nodes/n1/m", ("get", "nodes", "m", "n1", "")),
        ("namespaces/ns", ("get", "namespaces", "", "ns", "ns")),
        ("namespaces/ns/status/x/m", ("get", "namespaces", "status", "ns", "ns")),
        ("namespaces", ("list", "namespaces", "", "", "")),
    ],
)
def test_custom_metrics_are_gets_of_an_objects_subresource(
    path: str, expected: tuple[str, ...]
) -> None:
    found = attributes_of("GET", f"/apis/{CUSTOM}/v1beta1/{path}", "decoded")
    shown = (found.verb, found.resource, found.subresource, found.name, found.namespace)
    assert shown == expected
    assert (found.is_resource, found.group, found.version) == (True, CUSTOM, "v1beta1")


def test_an_external_metric_is_a_list_of_itself() -> None:
    path = f"/apis/{EXTERNAL}/v1beta1/namespaces/ns/queue_depth"
    found = attributes_of("GET", path, path)
    assert (found.verb, found.resource, found.name, found.namespace) == (
        "list",
        "queue_depth",
        "",
        "ns",
    )
    assert attributes_of("GET", path, path, watches=True).verb == "watch"
    assert attributes_of("HEAD", path, path).verb == "list"


@pytest.mark.parametrize(
    ("method", "verb"),
    [("POST", "create"), ("PUT", "update"), ("PATCH", "patch"), ("DELETE", "delete")],
)
def test_other_methods_have_their_verbs(method: str, verb: str) -> None:
    assert attributes_of(method, f"/apis/{CUSTOM}/v1beta1/nodes/n1/m", "").verb == verb


@pytest.mark.parametrize(
    "path",
    ["/apis", f"/apis/{CUSTOM}", f"/apis/{CUSTOM}/v1beta1", "/metrics", "/openapi/v2", "//a", "/"],
)
def test_discovery_and_the_rest_go_by_their_path(path: str) -> None:
    assert attributes_of("GET", path, path) == Attributes("get", path)


class Reviews:
    def __init__(self, allowed=False) -> None:
        self.allowed, self.asked = allowed, []

    async def review(self, user, attributes):
        self.asked.append((user, attributes))
        if user.name == "down":
            raise UnavailableError("connection refused")
        return AccessDecision(self.allowed, "RBAC says so")


PATHS = ("/healthz", "readyz", "/public/*")


async def test_masters_are_not_asked_about() -> None:
    reviews = Reviews()
    found = await Authorizer(reviews, PATHS).decide(
        User("probe", ("system:masters",)), Attributes("get", "/x")
    )
    assert found == AccessDecision(allowed=True)
    assert reviews.asked == []


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/healthz", True),
        ("/readyz", True),
        ("/public/a/b", True),
        ("/healthz/", False),
        ("/healthz/ping", False),
        ("/public", False),
    ],
)
async def test_paths_are_allowed_exactly_or_by_their_beginning(path: str, allowed: bool) -> None:
    found = await Authorizer(Reviews(), PATHS).decide(User("joe"), Attributes("get", path))
    assert found.allowed is allowed


async def test_a_resource_is_not_allowed_by_its_path() -> None:
    resource = Attributes("get", "/healthz", is_resource=True, resource="x")
    assert not (await Authorizer(Reviews(), PATHS).decide(User("joe"), resource)).allowed


async def test_without_an_api_server_to_ask_the_answer_is_no() -> None:
    found = await Authorizer(None, PATHS).decide(User("joe"), Attributes("get", "/metrics"))
    assert found == AccessDecision(allowed=False, reason="there is no API server to ask")


async def test_a_failing_review_is_no_permission() -> None:
    with pytest.raises(UnavailableError):
        await Authorizer(Reviews(allowed=True), PATHS).decide(
            User("down"), Attributes("get", "/metrics")
        )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (
            f"/apis/{CUSTOM}/v1beta1/namespaces/ns/pods/%2A/m",
            'pods.custom.metrics.k8s.io "*" is forbidden: User "u" cannot get resource "pods/m" '
            'in API group "custom.metrics.k8s.io" in the namespace "ns"',
        ),
        (
            f"/apis/{CUSTOM}/v1beta1/nodes/n1/m",
            'nodes.custom.metrics.k8s.io "n1" is forbidden: User "u" cannot get resource "nodes/m" '
            'in API group "custom.metrics.k8s.io" at the cluster scope',
        ),
        (
            f"/apis/{EXTERNAL}/v1beta1/namespaces/ns/q",
            'q.external.metrics.k8s.io is forbidden: User "u" cannot list resource "q" '
            'in API group "external.metrics.k8s.io" in the namespace "ns"',
        ),
        ("/metrics", 'forbidden: User "u" cannot get path "/metrics"'),
        ("/<b>&", 'forbidden: User "u" cannot get path "/&lt;b&gt;&amp;"'),
    ],
)
def test_a_refusal_has_the_api_servers_words(path: str, message: str) -> None:
    assert forbidden_message(User("u"), attributes_of("GET", path, path)) == message


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ("metadata.name=web-0", "web-0"),
        ("metadata.namespace==ml,metadata.name==web-0", "web-0"),
        ("metadata.name!=web-0", ""),
        ("metadata.namespace=ml", ""),
        ("status.phase=Running", ""),
    ],
)
def test_a_list_by_name_is_of_one_object(fields: str, name: str) -> None:
    path = "/apis/metrics.k8s.io/v1beta1/namespaces/ml/pods"
    found = named_by_fields(attributes_of("GET", path, path), fields)
    assert (found.verb, found.resource, found.name) == ("list", "pods", name)
    single = attributes_of("GET", f"{path}/a", f"{path}/a")
    assert named_by_fields(single, fields) == single
