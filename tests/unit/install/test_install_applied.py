# mypy: disable-error-code="dict-item"
"""What a manager applied is read back from managed fields."""

import pytest

from gpuscale.ops.install.cluster.apply import applied

BODY = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {
        "name": "a",
        "namespace": "n",
        "labels": {"ours": "1", "theirs": "2"},
        "finalizers": ["x/a", "x/b"],
        "uid": "u",
    },
    "spec": {
        "clusterIP": "10.0.0.1",
        "ports": [
            {"port": 80, "protocol": "TCP", "name": "http", "nodePort": 30000},
            {"port": 81, "protocol": "TCP", "name": "other"},
        ],
        "selector": {"app": "a"},
    },
}
# As the API server writes it, for one label, one finalizer, one port and a selector taken whole.
FIELDS = {
    "f:metadata": {"f:labels": {"f:ours": {}}, "f:finalizers": {'v:"x/b"': {}}},
    "f:spec": {
        "f:ports": {
            'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:name": {}},
        },
        "f:selector": {},
    },
}


def managed(**entry):
    given = {"manager": "gpuscale", "operation": "Apply", "fieldsV1": FIELDS, **entry}
    return {**BODY, "metadata": {**BODY["metadata"], "managedFields": [given]}}


def test_only_what_was_applied_comes_back() -> None:
    assert applied(managed(), "gpuscale") == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "a",
            "namespace": "n",
            "labels": {"ours": "1"},
            "finalizers": ["x/b"],
        },
        "spec": {"ports": [{"port": 80, "name": "http"}], "selector": {"app": "a"}},
    }


@pytest.mark.parametrize("entry", [{"manager": "kubectl"}, {"operation": "Update"}])
def test_who_never_applied_has_nothing(entry) -> None:
    assert applied(managed(**entry), "gpuscale") is None
