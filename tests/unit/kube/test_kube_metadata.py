"""Lists of metadata, as the API server writes them."""

import json

import pytest

from gpuscale.kube.client.metadata import metadata_list

POD = {
    "metadata": {
        "name": "web-0",
        "namespace": "ml",
        "uid": "1b6c",
        "resourceVersion": "7",
        "creationTimestamp": "2026-11-22T15:00:00Z",
        "labels": {"app": "web"},
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:metadata": {}}}],
    }
}
NODE = {"metadata": {"name": "n1"}}


def listed(items, kind="PartialObjectMetadataList", **metadata):
    """Return a list as k8s.io/apimachinery encodes one."""
    body = {"kind": kind, "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items}
    return json.dumps(body, separators=(",", ":")).encode()


def test_names_and_labels_are_kept() -> None:
    body = listed([POD, NODE], **{"resourceVersion": "9", "continue": "x", "remainingItemCount": 3})
    kept = {"name": "web-0", "namespace": "ml", "labels": {"app": "web"}}
    assert metadata_list(body) == {
        "metadata": {"resourceVersion": "9", "continue": "x"},
        "items": [{"metadata": kept}, {"metadata": {"name": "n1"}}],
    }


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(listed([POD], kind="PodList"), id="whole objects"),
        pytest.param(listed(None), id="no items"),
        pytest.param(listed([{"metadata": {"name": 3}}]), id="a number for a name"),
        pytest.param(listed([POD])[:-2], id="cut off"),
        pytest.param(listed([POD]).replace(b"web-0", b"\xff"), id="no UTF-8"),
        pytest.param(listed([POD]).replace(b'"1b6c"', b"[" * 100_000), id="deep"),
        pytest.param(b"", id="empty"),
    ],
)
def test_other_bodies_are_left_to_others(body) -> None:
    assert metadata_list(body) is None
