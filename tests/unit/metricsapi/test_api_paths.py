"""What a path asks for."""

import pytest

from gpuscale.metricsapi.paths import (
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
def test_custom_paths(path, target):
    assert custom(path) == target


@pytest.mark.parametrize(
    "path", ["blah", "nodes/foo", "namespaces/ns/pods/bar", "a/b/c/d/e/f", "a//b", "/"]
)
def test_other_custom_paths_have_no_route(path):
    with pytest.raises(NoRouteError):
        custom(path)


def test_a_namespace_and_one_word_is_a_bad_path():
    with pytest.raises(BadPathError, match=r"^invalid request path$"):
        custom("namespaces/ns/foo")


def test_external_paths():
    assert external_target(split_path("namespaces/ns/m")) == ExternalTarget("ns", "m")
    for path in ("namespaces/foo", "namespaces/foo/group/metric", "m"):
        with pytest.raises(NoRouteError):
            external_target(split_path(path))


def test_a_path_is_bounded():
    with pytest.raises(NoRouteError):
        split_path("a" * 10_000)
