"""Whose an object is, what is said of it, and the way back to what was there."""

import pytest

from gpuscale.ops.install.cluster.ownership import (
    creatable,
    described,
    essence,
    owner,
    replaced,
    with_way_back,
)

LABEL = {"gpuscale.dev/install": "prod"}
HELM = {"meta.helm.sh/release-name": "gpu"}
SERVICE = {"spec": {"service": {"namespace": "monitoring", "name": "prometheus-adapter"}}}


def body(kind="Service", **changes):
    metadata = {"name": "a", "uid": "u", "resourceVersion": "7", **changes.pop("metadata", {})}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **changes}


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        ({"labels": LABEL}, "prod"),
        ({}, None),
        ({"labels": None, "annotations": None}, None),
        pytest.param({"labels": LABEL, "annotations": HELM}, None, id="the chart's, so Helm's"),
    ],
)
def test_an_object_is_the_installations_by_its_label(metadata, name: str | None) -> None:
    assert owner(body(metadata=metadata)) == name


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (body("APIService", **SERVICE), "served by Service monitoring/prometheus-adapter"),
        (body(metadata={"annotations": HELM}), "of Helm's release gpu"),
        (body(metadata={"labels": {"app": "x"}}), "labelled app=x"),
        (body(metadata={"managedFields": [{"manager": "kubectl"}]}), "made by kubectl"),
        (body(), "not ours"),
    ],
)
def test_who_else_it_belongs_to_is_reported(given, told: str) -> None:
    assert described(given) == told


def test_what_was_replaced_is_remembered_without_what_the_server_adds() -> None:
    before = body("APIService", **SERVICE, status={"x": 1})
    new = with_way_back(body("APIService", metadata={"annotations": {"k": "v"}}), before)
    assert replaced(new) == essence(before)
    assert new["metadata"]["annotations"]["k"] == "v"
    assert essence(before)["metadata"] == {"name": "a"}
    assert "status" not in essence(before)
    assert replaced(before) is None


JOB_LABELS = {"batch.kubernetes.io/controller-uid": "u", "job-name": "a", "controller-uid": "u"}


def job(**spec):
    labels = {**LABEL, **JOB_LABELS}
    template = {"metadata": {"labels": labels}, "spec": {"containers": []}}
    metadata = {"labels": labels}
    return body("Job", metadata=metadata, spec={"template": template, "selector": {}, **spec})


def test_a_job_can_be_made_again_without_what_its_controller_added() -> None:
    found = creatable(essence(job()))
    assert found["metadata"] == {"name": "a", "labels": LABEL}
    template = {"metadata": {"labels": LABEL}, "spec": {"containers": []}}
    assert found["spec"] == {"template": template}


@pytest.mark.parametrize("given", [job(manualSelector=True), body(), body("APIService", **SERVICE)])
def test_what_needs_nothing_taken_off_is_made_again_as_it_was(given) -> None:
    assert creatable(given) == given
