"""Questions of `kubectl auth can-i`, in both forms that clients send."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.lab.kube_api.kinds import KINDS
from gpuscale.lab.kube_api.reviews import answer, is_allowed, read_review


def field(number, content):
    """Return a protobuf field with a length, which is below 128 here."""
    return bytes([number << 3 | 2, len(content)]) + content


def protobuf(**attributes):
    numbers = {"namespace": 1, "verb": 2, "group": 3, "resource": 5, "subresource": 6}
    asked = b"".join(field(numbers[key], text.encode()) for key, text in attributes.items())
    kind = field(1, field(1, b"authorization.k8s.io/v1") + field(2, b"SelfSubjectAccessReview"))
    review = field(2, field(1, asked))
    return b"k8s\0" + kind + field(2, review) + field(3, b"") + field(4, b"")


def in_json(**attributes):
    return json.dumps({"spec": {"resourceAttributes": attributes}}).encode()


@pytest.mark.parametrize("form", [protobuf, in_json])
@pytest.mark.parametrize(
    ("attributes", "allowed"),
    [
        ({"verb": "list", "resource": "pods"}, True),
        ({"verb": "get", "resource": "deployments", "group": "apps"}, True),
        ({"verb": "get", "resource": "deployments", "group": "apps", "subresource": "scale"}, True),
        ({"verb": "watch", "resource": "*", "group": "*"}, True),
        ({"verb": "get", "resource": "pods", "subresource": "log"}, False),
        ({"verb": "get", "resource": "secrets"}, False),
        ({"verb": "delete", "resource": "pods", "namespace": "default"}, False),
        ({"verb": "*", "resource": "*", "group": "*"}, False),
    ],
)
def test_everything_may_be_read_and_nothing_else(form, attributes, allowed) -> None:
    assert is_allowed(read_review(form(**attributes)), KINDS) is allowed


def test_paths_may_be_read() -> None:
    body = json.dumps({"spec": {"nonResourceAttributes": {"path": "/healthz", "verb": "get"}}})
    assert is_allowed(read_review(body.encode()), KINDS)


def test_the_rules_of_a_client_are_what_single_questions_say() -> None:
    status = answer("SelfSubjectRulesReview", b"", KINDS)["status"]
    rules = [rule for rule in status["resourceRules"] if rule["verbs"] != ["create"]]
    listed = {
        (group, each) for rule in rules for group in rule["apiGroups"] for each in rule["resources"]
    }
    assert {
        ("", "pods"),
        ("apps", "deployments/scale"),
        ("autoscaling", "horizontalpodautoscalers"),
    } <= listed
    for rule in rules:
        for resource in rule["resources"]:
            name, _, below = resource.partition("/")
            (group,) = rule["apiGroups"]
            asked = {"group": group, "resource": name, "subresource": below}
            for verb in rule["verbs"]:
                assert is_allowed({"resourceAttributes": {**asked, "verb": verb}}, KINDS)


def test_a_client_is_whom_an_api_server_takes_for_anonymous() -> None:
    user = answer("SelfSubjectReview", b"", KINDS)["status"]["userInfo"]
    assert user == {"username": "system:anonymous", "groups": ["system:unauthenticated"]}


@given(st.binary() | st.binary().map(lambda raw: b"k8s\0" + raw))
def test_any_bytes_are_a_review_or_a_fault(body) -> None:
    try:
        spec = read_review(body)
    except ValueError:
        return
    is_allowed(spec, KINDS)
