# mypy: disable-error-code="arg-type"
"""What is read out of the API server's refusals."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.kube.client.errors import Refusal, read_refusal

# As kube-apiserver 1.36 answers an apply that changes a Job's completions and image, with a shorter template.
JOB = {
    "kind": "Status",
    "status": "Failure",
    "message": 'Job.batch "train" is invalid: [spec.completions: Invalid value: 3: field is immutable, ...]',
    "reason": "Invalid",
    "details": {
        "name": "train",
        "group": "batch",
        "kind": "Job",
        "causes": [
            {
                "reason": "FieldValueInvalid",
                "message": "Invalid value: 3: field is immutable",
                "field": "spec.completions",
            },
            {
                "reason": "FieldValueInvalid",
                "message": 'Invalid value: {"spec": {}}: field is immutable',
                "field": "spec.template",
            },
            {
                "reason": "FieldValueInvalid",
                "message": "Invalid value: -1: must be greater than or equal to 0",
                "field": "spec.parallelism",
            },
        ],
    },
    "code": 422,
}
KEYS = st.sampled_from(("message", "details", "causes", "field", "code"))
LEAVES = st.one_of(st.none(), st.integers(), st.text(max_size=5), st.just("field is immutable"))
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
)


def test_only_fields_that_can_not_be_changed_are_named() -> None:
    found = read_refusal(json.dumps(JOB).encode())
    assert found == Refusal(JOB["message"], ("spec.completions", "spec.template"))


def test_a_long_message_is_cut() -> None:
    assert read_refusal(json.dumps({"message": "x" * 1000}).encode()).message == "x" * 300


@given(st.one_of(st.binary(max_size=20), JSON.map(lambda body: json.dumps(body).encode())))
def test_whatever_is_answered_there_is_a_message(body) -> None:
    found = read_refusal(body)
    assert 0 < len(found.message) <= 300
    assert all(found.immutable_fields)
