"""What a path asks for."""

import pytest

from gpuscale.server.metricsapi.wire.paths import (
    BadPathError,
    CustomTarget,
    ExternalTarget,
    NoRouteError,
    custom_target,
    external_target,
    split_path,
)


def custom(path: str) -> CustomTarget:
    return custom_target(split_path(path))


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("namespaces/ns/pods/web-0/m", CustomTarget("pods", "ns", "web-0", "m")),
        ("namespaces/ns/pods/*/m", CustomTarget("pods", "ns", "*", "m")),
        ("namespaces/ns/pods/%2A/m", CustomTarget("pods", "ns", "*", "m")),
        ("namespaces/ns/pods/%2a/vllm%3Awaiting", CustomTarget("pods", "ns", "*", "vllm:waiting")),
        ("namespaces/ns/jobs.batch/j/m/", CustomTarget("jobs.batch", "ns", "j", "m")),
        ("namespaces/ns/metrics/m", CustomTarget("namespaces", None, "ns", "m")),
        ("namespaces/*/metrics/m", CustomTarget("namespaces", None, "*", "m")),
        ("nodes/*/m", CustomTarget("nodes", None, "*", "m")),
    ],
)
def test_custom_paths(path: str, target) -> None:
    assert custom(path) == target


@pytest.mark.parametrize(
    "path", ["blah", "nodes/foo", "namespaces/ns/pods/bar", "a/b/c/d/e/f", "a//b", "/"]
)
def test_other_custom_paths_have_no_route(path: str) -> None:
    with pytest.raises(NoRouteError):
        custom(path)


@pytest.mark.parametrize(
    "name",
    [
        'z"} or vector(1) or y{a="',
        "a b",
        "a\\",
        "a`b",
        "a'b",
        "a{b",
        "a\n",
        "a/b",
        "a%b",
        "..",
        ".a",
        "a.",
        "-a",
        "**",
        "\udcff",
        "\u00e9",
        "x" * 254,
    ],
)
def test_names_that_no_object_can_have_have_no_route(name: str) -> None:
    """Names of Kubernetes: an RFC 1123 subdomain; for a few kinds a path segment, without / and %."""
    for parts in (
        ("namespaces", "ns", "pods", name, "m"),
        ("namespaces", name, "pods", "a", "m"),
        ("namespaces", name, "metrics", "m"),
        ("nodes", name, "m"),
    ):
        with pytest.raises(NoRouteError):
            custom_target(parts)
    with pytest.raises(NoRouteError):
        external_target(("namespaces", name, "m"))


@pytest.mark.parametrize("name", ["web-0", "a.b", "system:node", "x" * 253, "Ab_c", "user@example"])
def test_names_that_some_object_can_have_have_one(name: str) -> None:
    assert custom_target(("nodes", name, "m")).name == name


def test_a_namespace_and_one_word_is_a_bad_path() -> None:
    with pytest.raises(BadPathError, match=r"^invalid request path$"):
        custom("namespaces/ns/foo")


def test_external_paths() -> None:
    assert external_target(split_path("namespaces/ns/m")) == ExternalTarget("ns", "m")
    for path in ("namespaces/foo", "namespaces/foo/group/metric", "m"):
        with pytest.raises(NoRouteError):
            external_target(split_path(path))


def test_external_metrics_of_any_namespace_have_a_route() -> None:
    assert external_target(("namespaces", "*", "m")) == ExternalTarget("*", "m")


def test_a_path_is_bounded() -> None:
    with pytest.raises(NoRouteError):
        split_path("a" * 10_000)
