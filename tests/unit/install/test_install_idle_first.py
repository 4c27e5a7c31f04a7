"""Workloads whose idle pods go first: the server's flags, and rights where they are, and nowhere else."""

import pytest
from install_values import container, one, rendered, scale, values
from pydantic import ValidationError

from gpuscale.server.metricsapi.settings import read_settings

CHAT = {"namespace": "prod", "workload": "chat", "metric": "vllm_num_requests_running"}
OTHERS = [
    {"namespace": "prod", "workload": "embed", "metric": "gpu_utilization"},
    {"namespace": "team-a", "workload": "chat", "metric": "vllm_num_requests_running"},
]


def test_the_server_gets_a_flag_for_each_and_rights_in_their_namespaces() -> None:
    found = rendered(values(metricsApi={"idleFirst": [CHAT, *OTHERS]}))
    flags = [
        each.removeprefix("--idle-first=")
        for each in container(one(found, "Deployment", "metrics-api"))["args"]
        if each.startswith("--idle-first=")
    ]
    read = read_settings({"idle-first": flags}).idle_first
    assert [(each.namespace, each.workload, each.metric) for each in read] == [
        tuple(each.values()) for each in (CHAT, *OTHERS)
    ]
    patching = [
        (each["kind"], each["metadata"].get("namespace"))
        for each in found
        for rule in each.get("rules") or ()
        if "patch" in rule.get("verbs", ()) and "pods" in rule.get("resources", ())
    ]
    assert patching == [("Role", "prod"), ("Role", "team-a")]
    bound = [each for each in found if each["metadata"]["name"].endswith("-idle-first")]
    assert sorted((each["kind"], each["metadata"]["namespace"]) for each in bound) == [
        ("Role", "prod"),
        ("Role", "team-a"),
        ("RoleBinding", "prod"),
        ("RoleBinding", "team-a"),
    ]


def test_without_any_there_is_nothing_of_it() -> None:
    assert "idle-first" not in str(rendered(values()))


@pytest.mark.parametrize(
    "wrong", [{"metric": "a b"}, {"metric": "*"}, {"workload": "Chat"}, {"namespace": "a/b"}]
)
def test_names_that_no_object_can_have_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=f"idleFirst.0.{next(iter(wrong))}"):
        values(metricsApi={"idleFirst": [{**CHAT, **wrong}]})


def test_a_stateful_set_chooses_by_ordinals_and_is_refused() -> None:
    workload = {"kind": "StatefulSet", "name": "chat", "namespace": "prod"}
    with pytest.raises(ValidationError, match="always loses its highest ordinal"):
        values(metricsApi={"idleFirst": [CHAT]}, scale=[scale(workload=workload)])
