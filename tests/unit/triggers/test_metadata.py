"""Triggers as users write them: what is read, and every fault at once with the name that was meant."""

import re
from dataclasses import replace

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.triggers.metadata import read_metadata, read_triggers
from gpuscale.triggers.policies.naming import policy_faults
from gpuscale.triggers.trigger import (
    Credit,
    PodLoad,
    ServedPolicy,
    Trigger,
    WakeQuery,
    WakeSchedule,
    WorkloadRef,
)

FULL = {
    "scalerAddress": "gpuscale-scaler.gpuscale:6000",
    "workload": "deployment/vllm",
    "signal": "gpu-utilization",
    "aggregation": "max",
    "target": "60",
    "activationTarget": "5",
    "window": "30s",
    "wakeQuery": "sum(queue_length)",
    "wakeThreshold": "2",
    "wakeStart": "0 8 * * 1-5",
    "wakeEnd": "0 18 * * 1-5",
    "timezone": "Europe/Berlin",
    "wakeReplicas": "2",
    "wakeDeadline": "20m",
    "hold": "5m",
    "fallbackReplicas": "3",
}


def test_all_keys_are_read():
    assert read_metadata(FULL, "team-a") == Trigger(
        "team-a",
        "vllm-gpu-utilization",
        WorkloadRef("Deployment", "vllm"),
        PodLoad("DCGM_FI_DEV_GPU_UTIL", "", "max", 30.0),
        60.0,
        5.0,
        (WakeQuery("sum(queue_length)", 2.0, "query"),),
        WakeSchedule("0 8 * * 1-5", "0 18 * * 1-5", "Europe/Berlin"),
        2,
        1200.0,
        300.0,
        3,
    )


def test_defaults():
    found = read_metadata(
        {"workload": "statefulset/db", "metric": "queue", "target": "600m"}, "team-a"
    )
    assert found == Trigger(
        "team-a", "db-queue", WorkloadRef("StatefulSet", "db"), PodLoad("queue"), 0.6
    )


@pytest.mark.parametrize(
    ("text", "workload"),
    [
        ("rollout.argoproj.io/web", WorkloadRef("rollout", "web", "argoproj.io")),
        (
            "leaderworkerset.v1.leaderworkerset.x-k8s.io/llm",
            WorkloadRef("leaderworkerset", "llm", "leaderworkerset.x-k8s.io/v1"),
        ),
        ("Deployment/web", WorkloadRef("Deployment", "web")),
        ("deployment.apps/web", WorkloadRef("Deployment", "web")),
    ],
)
def test_workloads_of_any_kind(text, workload):
    assert read_metadata({"workload": text, "metric": "q", "target": "1"}, "a").workload == workload


def test_a_query_needs_no_workload():
    found = read_metadata({"query": "sum(jobs)", "target": "10"}, "team-a")
    assert (found.workload, found.load) == (None, PodLoad(query="sum(jobs)"))


def test_a_trigger_may_only_wake():
    found = read_metadata({"wake": "kafka, rabbitmq", "wakeName": "jobs"}, "team-a")
    assert found.load is None
    assert [wake.source for wake in found.wakes] == ["kafka", "rabbitmq"]
    assert all('"jobs"' in wake.query for wake in found.wakes)


def test_values_from_the_environment_count():
    values = {"workload": "deployment/web", "metric": "q", "targetFromEnv": "7"}
    assert read_metadata(values, "a").target == 7.0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"activationTraget": "5"}, "activationTraget: a key of a trigger; write activationTarget"),
        ({"signal": "gpu-utilisation"}, "write gpu-utilization"),
        ({"wake": "rabbitmqq", "wakeName": "q"}, "write rabbitmq"),
        ({"aggregation": "average"}, "found 'average', expected one of mean, max, sum"),
        ({"workload": "deploymnt/vllm"}, "write deployment/vllm"),
        ({"target": "600m"}, "Write 60, if 60 % is meant"),
        ({"target": "0"}, "more than 0"),
        ({"target": "1e400"}, "target"),
        ({"target": "-1"}, "more than 0"),
        ({"hold": "soon"}, "found 'soon', expected a duration"),
        ({"fallbackReplicas": "0"}, "found '0', expected a whole number from 1"),
        ({"wakeQuery": "sum("}, "wakeQuery"),
        ({"wakeEnd": ""}, "wakeEnd: found none, expected a cron expression"),
        ({"wakeStart": "0 18 * * 1-5"}, "another expression"),
        ({"wakeStart": "0 8 * * 7"}, "0 to 6"),
        ({"timezone": "Europe/Berln"}, "a time zone"),
        ({"timezone": "../../etc/passwd"}, "a time zone"),
        ({"wake": "kafka"}, "the name of the consumer group, for kafka"),
        ({"query": "up"}, "one of signal, metric and query"),
        ({"workload": ""}, "for signal"),
        ({"metricName": "a/b"}, "metricName"),
    ],
)
def test_faults_name_their_key(changed, words):
    with pytest.raises(ConfigError) as caught:
        read_metadata({**FULL, **changed}, "team-a")
    assert words in str(caught.value)


def test_all_faults_come_at_once():
    with pytest.raises(ConfigError) as caught:
        read_metadata({**FULL, "target": "x", "hold": "y", "window": "z", "new": ""}, "team-a")
    assert [problem.field for problem in caught.value.problems] == [
        *("new", "window", "target", "hold")
    ]


def test_files_have_the_same_keys():
    text = """
triggers:
- namespace: team-a
  workload: deployment/vllm
  signal: gpu-utilization
  target: 60
  fallbackReplicas: 2
- namespace: team-b
  wakeStart: 0 8 * * *
  wakeEnd: 0 18 * * *
"""
    first, second = read_triggers(text, "triggers.yaml")
    assert (first.namespace, first.name, first.target) == ("team-a", "vllm-gpu-utilization", 60.0)
    assert (first.fallback_replicas, second.name) == (2, "gpuscale-schedule")


def test_faults_of_files_name_their_line():
    text = """
triggers:
- namespace: team-a
  metric: load
  workload: deployment/web
  target: 0
- namespace: Team
  metric: load
  workload: deployment/web
  targt: 3
"""
    with pytest.raises(ConfigError) as caught:
        read_triggers(text, "t.yaml")
    lines = {(problem.line, problem.field) for problem in caught.value.problems}
    assert lines == {
        (6, "triggers[0].target"),
        (7, "triggers[1].namespace"),
        (7, "triggers[1].target"),
        (10, "triggers[1].targt"),
    }


def test_a_name_counts_once_in_a_namespace():
    entry = "{namespace: a, metricName: one, query: up, target: 1}"
    with pytest.raises(ConfigError, match="stands on line 3 already"):
        read_triggers(f"triggers:\n\n- {entry}\n- {entry}\n", "t.yaml")


CREDITED = {
    "workload": "deployment/vllm",
    "query": "sum(in_flight)",
    "target": "24",
    "waiting": "sum(waiting)",
    "throughput": "sum(rate(finished_total[1m]))",
}


def test_credit_is_read_with_what_it_takes():
    assert read_metadata(CREDITED, "ml").credit == Credit(
        "sum(waiting)", "sum(rate(finished_total[1m]))", None, 120.0
    )
    stated = read_metadata({**CREDITED, "startTime": "2m15s", "drain": "5m"}, "ml").credit
    assert stated is not None
    assert (stated.start_s, stated.drain_s) == (135.0, 300.0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"throughput": ""}, "throughput: found none, expected PromQL, with waiting"),
        ({"waiting": ""}, "waiting: found none, expected PromQL, with throughput"),
        ({"waiting": "", "throughput": "", "drain": "1m"}, "drain with waiting and throughput"),
        ({"query": "", "metric": "m"}, "expected query with it"),
        ({"workload": ""}, "for waiting"),
        ({"window": "1m"}, "expected no window with waiting"),
        ({"waiting": "sum("}, "waiting: found 'sum(', expected PromQL"),
        ({"drain": "0s"}, "drain: found 0s, expected a duration of at least 1s"),
        ({"startTime": "0s"}, "startTime: found 0s, expected a duration of at least 1s"),
    ],
)
def test_credit_that_lacks_something_is_refused(change, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_metadata({**CREDITED, **change}, "ml")


WITH_POLICY = {
    "workload": "deployment/vllm",
    "query": "sum(in_flight)",
    "policy": "{name: trend, settings: {headroom: 1.3}}",
    "podLoad": "16",
    "startTime": "3m",
    "maxReplicas": "20",
}


def test_a_policy_is_read_with_its_defaults():
    found = read_metadata(WITH_POLICY, "ml", check=policy_faults)
    policy = ServedPolicy("trend", (("headroom", 1.3),), 16.0, 180.0, 1, 20, 30.0, 604_800.0)
    assert (found.policy, found.target, found.name) == (policy, 1.0, "vllm-wanted-replicas")
    assert found.credit is None
    by_name = read_metadata({**WITH_POLICY, "policy": "trend"}, "ml", check=policy_faults)
    assert by_name.policy == replace(policy, settings=())


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        ({"policy": "tren"}, {("policy", "write trend")}),
        ({"policy": ""}, {("policy", None)}),
        ({"policy": "{nam: trend}"}, {("policy.nam", "write name"), ("policy.name", None)}),
        (
            {"policy": "{name: trend, settings: {headrom: 2, spare: 99, hold_s: x}}"},
            {
                ("policy.settings.headrom", "write headroom"),
                ("policy.settings.spare", None),
                ("policy.settings.hold_s", None),
            },
        ),
        ({"policy": "{name: [}"}, {("policy", None)}),
        ({"policy": "{name: trend, settings: 5}"}, {("policy.settings", None)}),
        ({"target": "16", "window": "1m"}, {("target", None), ("window", None)}),
        ({"query": "", "signal": "gpu-utilization"}, {("query", None)}),
        ({"podLoad": "0"}, {("podLoad", None)}),
        ({"startTime": "auto"}, {("startTime", None)}),
        ({"startTime": ""}, {("startTime", None)}),
        ({"minReplicas": "30"}, {("maxReplicas", None)}),
        ({"minReplicas": "0"}, {("minReplicas", None)}),
        ({"learn": "1h", "lag": "1h"}, {("learn", None), ("lag", None)}),
    ],
)
def test_faults_of_policies_are_found_together(change, faults):
    with pytest.raises(ConfigError) as error:
        read_metadata({**WITH_POLICY, **change}, "ml", check=policy_faults)
    assert {(each.field, each.fix) for each in error.value.problems} == faults


def test_faults_of_policies_in_files_have_their_lines():
    text = """triggers:
- namespace: ml
  query: sum(in_flight)
  policy:
    name: trend
    settings:
      headroom: 9
  podLoad: 16
  startTime: 3m
  maxReplicas: 20
"""
    with pytest.raises(ConfigError) as error:
        read_triggers(text, "t.yaml", policy_faults)
    assert str(error.value).startswith("t.yaml:7: ")
    assert "found 9, expected 1 to 3" in str(error.value)


def test_keys_of_a_policy_need_one():
    with pytest.raises(ConfigError, match="podLoad: found none, expected policy with podLoad"):
        read_metadata({"query": "q", "target": "1", "podLoad": "3"}, "ml")
