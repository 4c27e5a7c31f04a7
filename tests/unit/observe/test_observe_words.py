"""The words of the controller's client, as NewGenericServerResponse of k8s.io/apimachinery has them."""

import pytest

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import read_hpa
from gpuscale.kube.client.errors import ApiStatusError, ApiUnreachableError
from gpuscale.ops.observe.metrics import forbidden_text
from gpuscale.ops.observe.words import refusal_text

PODS = "pods.custom.metrics.k8s.io *"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            ApiStatusError(404, "", said="the server could not find the metric x for pods"),
            "the server could not find the metric x for pods",
        ),
        (ApiStatusError(404, ""), f"the server could not find the requested resource (get {PODS})"),
        (
            ApiUnreachableError("", 503),
            f"the server is currently unable to handle the request (get {PODS})",
        ),
        (
            ApiUnreachableError("no answer in time"),
            "the server was unable to return a response in the time allotted, but may still be "
            f"processing the request (get {PODS})",
        ),
        (
            ApiUnreachableError("", 502),
            f'an error on the server ("unknown") has prevented the request from succeeding (get {PODS})',
        ),
        (
            ApiStatusError(418, ""),
            f"the server responded with the status code 418 but did not return more information (get {PODS})",
        ),
    ],
)
def test_a_refusal(error, text: str) -> None:
    assert refusal_text(error, PODS) == text


def test_what_the_api_server_says_to_a_controller_without_rights() -> None:
    source = "{type: External, external: {metric: {name: queue}, target: {type: Value, value: 1}}}"
    text = (
        "metadata: {name: web}\n"
        "spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, maxReplicas: 2,\n"
        f"  metrics: [{source}]}}\n"
    )
    (document,) = load_documents(text, "hpa.yaml")
    (spec,) = read_hpa(Fields(document, document.data)).metrics
    account = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
    assert forbidden_text(spec, "prod") == (
        f'queue.external.metrics.k8s.io is forbidden: User "{account}" cannot list resource "queue" '
        'in API group "external.metrics.k8s.io" in the namespace "prod"'
    )
