# mypy: disable-error-code="arg-type, method-assign"
"""The cluster's resources, from discovery documents of new and old API servers."""

import pytest

from gpuscale.base.errors import UpstreamError
from gpuscale.base.objects.selectors import Selector
from gpuscale.kube.client.errors import ApiStatusError
from gpuscale.kube.informers.directory import ObjectsUnavailableError
from gpuscale.server.metricsapi.cluster import ClusterObjects, NoObjects, read_mapper
from gpuscale.server.metricsapi.wire.statuses import ListError, status_of
from gpuscale.server.rules.resources import KUBERNETES, ResourceType

LISTED = ["get", "list", "watch"]


def aggregated(*groups):
    return {
        "kind": "APIGroupDiscoveryList",
        "items": [
            {
                "metadata": {"name": name},
                "versions": [
                    {
                        "version": version,
                        "resources": [
                            {
                                "resource": plural,
                                "singularResource": singular,
                                "responseKind": {"kind": kind},
                                "scope": scope,
                                "verbs": verbs,
                            }
                            for plural, singular, kind, scope, verbs in resources
                        ],
                    }
                    for version, resources in versions
                ],
            }
            for name, versions in groups
        ],
    }


POD = ("pods", "", "Pod", "Namespaced", LISTED)
NEW = {
    "/api": aggregated(
        ("", [("v1", [POD, ("bindings", "binding", "Binding", "Namespaced", ["create"])])])
    ),
    "/apis": aggregated(
        ("metrics.k8s.io", [("v1beta1", [POD])]),
        (
            "ml.example.com",
            [
                ("v2", [("trainings", "training", "Training", "Cluster", LISTED)]),
                (
                    "v1",
                    [
                        ("trainings", "training", "Training", "Namespaced", LISTED),
                        ("olds", "old", "Old", "Namespaced", LISTED),
                    ],
                ),
            ],
        ),
    ),
}


def legacy(plural, kind, verbs=LISTED, **more):
    return {"name": plural, "kind": kind, "verbs": verbs, "namespaced": True, **more}


OLD = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {
        "resources": [legacy("pods", "Pod"), legacy("pods/log", "Pod"), legacy("x", "X", ["get"])]
    },
    "/apis": {
        "kind": "APIGroupList",
        "groups": [
            {"name": "metrics.k8s.io", "versions": [{"version": "v1beta1"}]},
            {
                "name": "ml.example.com",
                "versions": [{"version": "v1"}, {"version": "v2"}, {"version": "v3"}],
                "preferredVersion": {"version": "v2"},
            },
        ],
    },
    "/apis/ml.example.com/v2": {
        "resources": [legacy("trainings", "Training", singularName="training", namespaced=False)]
    },
    "/apis/ml.example.com/v1": {
        "resources": [legacy("trainings", "Training"), legacy("olds", "Old", singularName="old")]
    },
}


class Connection:
    def __init__(self, answers) -> None:
        self.answers = answers

    async def get(self, path, params=None, accept="application/json"):
        if path not in self.answers:
            raise ApiStatusError(503, f"{path} is not available")
        return self.answers[path]


@pytest.mark.parametrize("answers", [NEW, OLD], ids=["aggregated", "in pieces"])
async def test_resources_come_in_the_servers_order_by_preferred_version(answers) -> None:
    mapper = await read_mapper(Connection(answers))
    group = "ml.example.com"
    assert mapper.types == (
        ResourceType("pods", "pod", "Pod"),
        ResourceType("trainings", "training", "Training", group, "v2", namespaced=False),
        ResourceType("olds", "old", "Old", group, "v1"),
    )
    assert mapper.parse("training.ml") == mapper.types[1]


async def test_an_answer_without_resources_is_not_taken_for_an_empty_cluster() -> None:
    with pytest.raises(UpstreamError, match="names no resource"):
        await read_mapper(Connection({"/api": {}, "/apis": {"kind": "APIGroupList"}}))


class Copies:
    async def ready(self, collection) -> None:
        raise ObjectsUnavailableError(f"no {collection.path}")

    def names(self, collection, namespace, selector) -> None:
        raise ObjectsUnavailableError(f"no {collection.path}")


async def test_unknown_objects_are_an_internal_error_in_upstreams_words() -> None:
    objects = ClusterObjects(Copies())
    pods = KUBERNETES.find("pods")
    with pytest.raises(ListError) as caught:
        await objects.ready(pods)
    with pytest.raises(ListError):
        objects.names(pods, "ml", Selector())
    with pytest.raises(ListError):
        NoObjects().names(pods, "ml", Selector())
    status = status_of(caught.value)
    assert (status.code, status.reason) == (500, "InternalError")
    assert status.message == "Internal error occurred: unable to list matching resources"


async def test_objects_that_are_not_known_are_logged_once_until_they_are_known_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Three requests and one for names are refused; what fails after that is another matter."""
    caplog.set_level("INFO", logger="gpuscale.server.metricsapi.cluster")
    copies = Copies()
    objects, pods = ClusterObjects(copies), KUBERNETES.find("pods")
    for _ in range(3):
        with pytest.raises(ListError):
            await objects.ready(pods)
    with pytest.raises(ListError):
        objects.names(pods, "ml", Selector())
    with pytest.raises(ListError):
        await objects.ready(KUBERNETES.find("nodes"))

    async def known(collection):
        return None

    copies.ready, not_known = known, copies.ready
    await objects.ready(pods)
    await objects.ready(pods)
    copies.ready = not_known
    with pytest.raises(ListError):
        await objects.ready(pods)
    unable = "unable to list matching resources: no /api/v1/"
    assert caplog.messages == [
        f"{unable}pods",
        f"{unable}nodes",
        "pods are known again; requests refused meanwhile: 4",
        f"{unable}pods",
    ]
