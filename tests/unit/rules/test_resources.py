import pytest

from gpuscale.server.rules.resources import KUBERNETES, ResourceType, UnknownResourceError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("pod", "pods"),
        ("pods", "pods"),
        ("Pod", "pods"),
        ("job", "jobs.batch"),
        ("deployments", "deployments.apps"),
        ("deployment.apps", "deployments.apps"),
        ("ingress.networking.k8s.io", "ingresses.networking.k8s.io"),
        ("ingress.networking", "ingresses.networking.k8s.io"),
        ("storageclass.storage", "storageclasses.storage.k8s.io"),
    ],
)
def test_resources_are_found_by_singular_plural_and_group_prefix(text: str, name: str) -> None:
    assert KUBERNETES.parse(text).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("po", "unknown resource 'po'"),
        ("deployments.batch", "unknown resource 'deployments.batch'"),
        ("", "unknown resource ''"),
    ],
)
def test_unknown_resources_are_named(text: str, message: str) -> None:
    with pytest.raises(UnknownResourceError) as caught:
        KUBERNETES.parse(text)
    assert str(caught.value) == message


def test_kinds_are_found_with_their_group() -> None:
    assert KUBERNETES.find_kind("Deployment", "apps/v1").name == "deployments.apps"
    assert KUBERNETES.find_kind("Service", "v1").name == "services"
    with pytest.raises(UnknownResourceError):
        KUBERNETES.find_kind("Deployment", "v1")


def test_api_version_of_core_objects_keeps_the_slash() -> None:
    assert KUBERNETES.find("pods").api_version == "/v1"
    assert KUBERNETES.find("deployments").api_version == "apps/v1"


def test_a_cluster_may_have_more_resources() -> None:
    brands = ResourceType("brands", "brand", "Brand", "cheese.io")
    mapper = KUBERNETES.extended(brands)
    assert mapper.find("brand") is brands
    assert mapper.find("pod").name == "pods"
