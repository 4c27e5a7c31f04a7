"""A recording's tables, its demand with gaps and lower bounds, and what a replay is held against."""

import contextlib
import json
import re
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.errors import ConfigError, GpuscaleError, UsageError
from gpuscale.lab.sim.history.comparison import compared, text
from gpuscale.lab.sim.history.demand import demand_of
from gpuscale.lab.sim.history.hpa_changes import hpa_history
from gpuscale.lab.sim.history.questions import DeploymentQueries, facts_of, manifests_of
from gpuscale.lab.sim.history.recording import (
    RecordedColumns,
    Recording,
    RecordingFacts,
    from_answers,
    trimmed,
)
from gpuscale.lab.sim.history.tables import MAX_STEPS, read_recording
from gpuscale.lab.sim.history.writing import files, objects_of
from gpuscale.series.values import Vector, VectorSample
from gpuscale.server.sources.prometheus.client import MAX_QUERY_CHARS

FACTS = RecordingFacts(1, 8, "Tesla T4", 60_000, 120_000)


def recording(replicas, ready=None, utilization=None, rate=None, nodes=None, step_ms=15_000):
    nothing = (None,) * len(replicas)
    columns = (
        replicas,
        ready or replicas,
        utilization or nothing,
        rate or nothing,
        nodes or nothing,
    )
    return Recording(0, step_ms, RecordedColumns(*map(tuple, columns)))


def vector(*rows):
    return Vector(tuple(VectorSample(labels, value, 0) for labels, value in rows))


# Tables


def test_a_csv_and_json_lines_with_the_same_moments_are_the_same_recording() -> None:
    table = "time,replicas,ready,utilization,other\n10,1,1,50,x\n20,2,,,\n30,2,2,0,\n"
    rows = [
        {"time": 10, "replicas": 1, "ready": 1, "utilization": 50},
        {"time": "1970-01-01T00:00:20Z", "replicas": 2},
        {"time": 30, "replicas": 2, "ready": 2, "utilization": 0, "rate": None},
    ]
    found = read_recording(table, "a.csv")
    assert found == read_recording("\n".join(map(json.dumps, rows)), "a.jsonl")
    assert (found.start_ms, found.step_ms) == (10_000, 10_000)
    assert found.columns.utilization == (50.0, None, 0.0)
    assert found.columns.rate == (None, None, None)


def test_a_missing_row_is_a_gap_in_all_columns() -> None:
    found = read_recording("time,replicas,ready\n0,1,1\n15,1,1\n45,3,3\n60,3,3\n", "a.csv")
    assert found.columns.replicas == (1, 1, None, 3, 3)
    assert found.columns.ready == (1, 1, None, 3, 3)


def test_a_spreadsheets_byte_order_mark_is_no_part_of_a_name() -> None:
    assert len(read_recording("\ufefftime,replicas\n0,1\n15,1\n", "a.csv")) == 2


def test_every_bad_line_is_named() -> None:
    table = "time,replicas,utilization\nsoon,1,1\n1,-1,1\n2,1,101\n3,1\n4,nan,1\n5,1,1\n5,1,1\n"
    with pytest.raises(ConfigError) as caught:
        read_recording(table, "a.csv")
    assert [problem.line for problem in caught.value.problems] == [2, 3, 4, 5, 6, 8]


@pytest.mark.parametrize(
    "line", ["[]", "{", '{"time": 1}', "1", '{"time": null, "replicas": 1}', "[" * 100_000]
)
def test_a_line_that_is_no_object_is_named(line: str) -> None:
    with pytest.raises(ConfigError, match=r"a\.jsonl:2: a JSON object with time and replicas"):
        read_recording(f'{{"time": 0, "replicas": 1}}\n{line}\n', "a.jsonl")


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ("time,replicas\n0,1\n", "t.csv: found 1 row, expected at least two"),
        (
            "time,replicas,replicas\n0,1,1\n60,1,1\n",
            "t.csv:1: found 2 columns named replicas, expected one",
        ),
        (
            "time,replicas\n0,1\n60,1e9\n",
            "t.csv:3: replicas: found '1e9', expected a number from 0 to 100000, or nothing",
        ),
    ],
)
def test_what_is_no_recording_is_named(table: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_recording(table, "t.csv")
    assert str(caught.value) == fault


def test_a_table_is_bounded_in_rows_and_in_steps() -> None:
    rows = "".join(f"{second},1\n" for second in range(MAX_STEPS + 1))
    with pytest.raises(ConfigError, match=f"at most {MAX_STEPS}"):
        read_recording(f"time,replicas\n{rows}", "a.csv")
    with pytest.raises(ConfigError, match="10000001 steps of 1 s"):
        read_recording("time,replicas\n0,1\n1,1\n2,1\n10000000,1\n", "a.csv")


@given(st.text(), st.sampled_from(["a.csv", "a.jsonl"]))
def test_any_text_is_a_recording_or_one_of_our_errors(table: str, source: str) -> None:
    for body in (table, f"time,replicas\n{table}"):
        with contextlib.suppress(GpuscaleError):
            read_recording(body, source)


# Demand


def test_demand_is_what_the_ready_pods_did() -> None:
    """Three ready pods of two GPUs, half busy, are three GPUs of work: 3 x 2 x 50 %."""
    demand = demand_of(recording((4, 4), (3, 3), (50.0, 100.0)), 2)
    assert demand.rates == (3.0, 6.0)
    assert demand.lower_bounds == (False, True)
    assert demand.gpu_seconds_per_request == 1.0
    assert demand.lower_bound_ratio == 0.5


def test_a_gap_is_no_zero_and_a_workload_without_pods_has_a_lower_bound() -> None:
    demand = demand_of(recording((1, 1, 0, 1), (1, None, 0, 1), (0.0, 80.0, None, None)), 1)
    assert demand.rates == (0.0, None, 0.0, None)
    assert demand.lower_bounds == (False, False, True, False)
    assert demand.missing_ratio == 0.5


def test_recorded_requests_are_the_demand_and_cost_what_the_gpus_did_below_saturation() -> None:
    """(0.5 + 1.0) GPUs of work for (5 + 10) requests/s; the saturated moment says nothing of the cost."""
    found = recording((1, 2, 1), utilization=(50.0, 50.0, 100.0), rate=(5.0, 10.0, 100.0))
    demand = demand_of(found, 1)
    assert demand.rates == (5.0, 10.0, 100.0)
    assert demand.gpu_seconds_per_request == pytest.approx(0.1)
    assert not any(demand.lower_bounds)


@pytest.mark.parametrize("rate", [None, (5.0, 5.0)])
def test_without_utilisation_there_is_no_demand(rate: tuple[float, ...] | None) -> None:
    with pytest.raises(UsageError, match="found"):
        demand_of(recording((1, 1), rate=rate), 1)


def answers(busy, seen, ready):
    columns = {"busy": busy, "seen": seen, "ready": ready, "replicas": ready}
    nothing = (None,) * len(ready)
    return {**columns, "rate": nothing, "nodes": nothing}


def test_idle_gpus_of_starting_pods_do_not_dilute_the_utilisation() -> None:
    """One ready pod at 90 %, one that starts: the mean of both is 45 %, the ready pod's is 90 %."""
    found = from_answers(answers((90.0,), (2,), (1,)), 0, 15_000, 1)
    assert found.columns.utilization == (90.0,)


def test_gpus_that_are_not_reported_for_long_are_taken_to_be_as_busy_as_the_others() -> None:
    """Of four GPUs two are reported, at 60 % each. Just after a scale-out from two they are all that work."""
    steady = from_answers(answers((120.0,) * 4, (2,) * 4, (4,) * 4), 0, 15_000, 1)
    assert steady.columns.utilization[-1] == pytest.approx(60.0)
    fresh = from_answers(answers((120.0,) * 4, (2,) * 4, (2, 2, 2, 4)), 0, 15_000, 1)
    assert fresh.columns.utilization[-1] == pytest.approx(30.0)  # of four GPUs, two were busy


def test_moments_without_replicas_at_either_end_are_cut() -> None:
    found = trimmed(recording((None, 1, None, 2, None)))
    assert (found.start_ms, found.columns.replicas) == (15_000, (1, None, 2))
    with pytest.raises(UsageError, match="no replicas"):
        trimmed(recording((None, None)))


# Questions


def test_names_are_quoted_in_queries() -> None:
    columns = DeploymentQueries("a", 'x"} or vector(1) #').columns
    assert 'deployment="x\\"} or vector(1) #"' in columns["replicas"]


LONG = "a" * 55


@pytest.mark.parametrize(
    ("answers", "pods", "others"),
    [
        # Without owners the name decides, and a Job's pods look like a Deployment's.
        ({}, ["web-7d9f6c-x2k4p", "web-worker-x2k4p"], ["web-x2k4p", "webs-7d9f6c-x2k4p"]),
        (
            {"replicaSets": vector(({"replicaset": "web-7d9f6c"}, 1.0))},
            ["web-7d9f6c-x2k4p"],
            ["web-worker-x2k4p", "web-7d9f6c-x2k4", "web-5b8c44-x2k4p"],
        ),
        (
            {"podOwners": vector(*(({"owner_name": f"web-{each}"}, 1.0) for each in "ab"))},
            ["web-a-x2k4p", "web-b-x2k4p"],
            ["web-c-x2k4p"],
        ),
        # Names of ReplicaSets go before those that pods say.
        (
            {
                "replicaSets": vector(({"replicaset": "web.v1-a"}, 1.0)),
                "podOwners": vector(({"owner_name": "web-b"}, 1.0)),
            },
            ["web.v1-a-x2k4p"],
            ["web-b-x2k4p", "webxv1-a-x2k4p"],
        ),
        # generate.go: of 63 characters 58 are the owner's, so a long name loses its end.
        (
            {"replicaSets": vector(({"replicaset": f"{LONG}-7d9f6c"}, 1.0))},
            [f"{LONG}-7dx2k4p"],
            [f"{LONG}-7d9f6c-x2k4p"],
        ),
        # More than a query should name.
        (
            {"replicaSets": vector(*(({"replicaset": f"web-{n}"}, 1.0) for n in range(400)))},
            ["web-7d9f6c-x2k4p"],
            [],
        ),
    ],
)
def test_pods_are_those_of_the_deployments_replica_sets(answers, pods, others) -> None:
    asked = DeploymentQueries("default", "web").owned_by(answers).columns["busy"]
    patterns = {json.loads(each) for each in re.findall(r'pod=~("(?:[^"\\]|\\.)*")', asked)}
    (pattern,) = patterns
    assert [pod for pod in (*pods, *others) if re.fullmatch(pattern, pod)] == pods


def test_queries_with_many_replica_sets_are_not_too_long_to_ask() -> None:
    """MAX_QUERY_CHARS of the client, which a POST may have."""
    rows = vector(*(({"replicaset": f"chat-{number:010d}"}, 1.0) for number in range(110)))
    asked = DeploymentQueries("llm", "chat").owned_by({"replicaSets": rows})
    assert len(asked.replica_sets) == 110
    queries = {**asked.columns, **asked.facts(86_400)}
    assert max(map(len, queries.values())) < MAX_QUERY_CHARS["POST"]


def test_what_is_not_known_is_assumed_and_said() -> None:
    facts = facts_of({}, 2)
    assert (facts.gpus_per_pod, facts.gpus_per_node, len(facts.notes)) == (2, 2, 4)
    with pytest.raises(UsageError, match="GPU limits"):
        facts_of({})


def test_an_hpa_whose_metric_is_not_of_pods_is_refused() -> None:
    name = {"horizontalpodautoscaler": "web"}
    metric = {**name, "metric_name": "cpu", "metric_target_type": "utilization"}
    found = {
        "hpa": vector((name, 1.0)),
        "hpaMax": vector((name, 5.0)),
        "hpaMetric": vector((metric, 80.0)),
    }
    with pytest.raises(UsageError, match="'utilization', expected an average of pods"):
        manifests_of(DeploymentQueries("default", "web"), found, FACTS)
    with pytest.raises(UsageError, match="kube_horizontalpodautoscaler_info: none"):
        manifests_of(DeploymentQueries("default", "web"), {}, FACTS)


# Files


DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "uid": "1"},
    "spec": {"replicas": 9, "template": {"spec": {"nodeSelector": {"pool": "gpu"}}}},
    "status": {"replicas": 9},
}


def test_a_list_of_kubectl_is_opened_and_other_objects_are_left_out() -> None:
    hpa = {"kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"}}
    hpa["spec"] = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}}
    other = {"kind": "ConfigMap", "metadata": {"name": "c"}}
    listed = yaml.safe_dump({"kind": "List", "items": [DEPLOYMENT, other, hpa]})
    assert objects_of({"a": listed}, ("default", "web")) == [DEPLOYMENT, hpa]
    with pytest.raises(UsageError, match="expected Deployment llm/web"):
        objects_of({"a": listed}, ("llm", "web"))


def test_the_files_begin_as_the_recording_did() -> None:
    found = recording((3, None, 2), utilization=(10.0, None, 30.0), nodes=(2, None, 1))
    written = files(found, demand_of(found, 1), FACTS, ("default", "web"), [DEPLOYMENT], None)
    deployment = yaml.safe_load(written["manifests.yaml"])
    assert deployment["spec"]["replicas"] == 3
    assert "status" not in deployment
    assert "uid" not in deployment["metadata"]
    pool = yaml.safe_load(written["scenario.yaml"])["spec"]["nodePools"][0]
    assert (pool["min"], pool["max"], pool["labels"]) == (1, 2, {"pool": "gpu"})
    # Pods waited 120 s, of which the autoscaler lets pass 30 s, and half a scan interval of 10 s in the mean.
    assert pool["provisioningTime"] == "1m25s"
    assert written["demand.csv"] == "second,rate,lower_bound\n0,0.3,0\n30,0.6,0\n"
    assert read_recording(written["recorded.csv"], "recorded.csv") == found


# Comparison


def test_only_moments_that_are_known_are_compared() -> None:
    """Known are the first and the last: 1 and 3 recorded, 1 and 4 replayed; a GPU for 15 s each."""
    found = recording((1, 2, None, 3), utilization=(50.0, None, 50.0, 50.0))
    run = {
        "series": {
            "t": [0.0, 15.0, 30.0, 45.0],
            "hpa/web/current": [1, 9, 9, 4],
            "hpa/web/value": [None, None, None, None],
            "nodes/gpu/ready": [1, 1, 1, 1],
        }
    }
    replay = compared(run, found, demand_of(found, 1), FACTS, "web")
    hours = replay["podGpuHours"]
    assert hours["recorded"] == round(4 * 15 / 3600, 4)
    assert hours["differencePercent"] == 25.0
    assert (replay["replicasDifferPercent"], replay["nodeGpuHours"]) == (50.0, None)
    assert replay["metricSeen"] is False
    assert "no value of its first metric" in text(replay)


def test_what_a_shorter_run_with_other_settings_did_not_reach_is_not_compared() -> None:
    found = recording((1, 1, 1, 5), utilization=(50.0,) * 4)
    series = {"t": [0.0, 15.0], "hpa/web/current": [1, 1], "nodes/gpu/ready": [1, 1]}
    demand = demand_of(found, 1)
    replay = compared({"series": series}, found, demand, FACTS, "web", ["spec.duration=30s"])
    assert replay["replicasDifferPercent"] == 0.0
    assert replay["podGpuHours"]["recorded"] == round(2 * 15 / 3600, 4)
    assert "replay with spec.duration=30s: GPU-hours" in text(replay)
    # It has no row of values at all, as fluid runs, so nothing is said of the metric.
    assert replay["metricSeen"] is None


# Facts in a file


def test_what_was_seen_is_kept_with_the_recording_and_read_again() -> None:
    answers = {
        "gpusPerNode": vector(({}, 8.0)),
        "model": vector(({"modelName": "Tesla T4"}, 1.0)),
        "startup": vector(({}, 74.0)),
    }
    live = facts_of(answers, 1)
    one = recording([2, 3, 3], utilization=[50, 60, 60], nodes=[2, 2, 2])
    texts = files(one, demand_of(one, 1), live, ("default", "web"), [DEPLOYMENT], None)
    kept = read_recording(texts["recorded.csv"], "recorded.csv")
    again = facts_of({}, 1, kept.stated)
    assert again == live
    assert (again.gpus_per_node, again.startup_ms) == (8, 74_000)
    # No pod was seen that waited for a node: that is assumed, and no fact of the file.
    assert [each.partition(":")[0] for each in again.notes] == ["120 s until a node is there"]


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("gpusPerNode", "0"),
        ("gpusPerNode", "2.5"),
        ("gpusPerNode", "73"),
        ("startupSeconds", "-1"),
        ("provisioningSeconds", "soon"),
    ],
)
def test_a_fact_that_can_not_be_is_named(name: str, cell: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}: found '{cell}', expected"):
        read_recording(f"time,replicas,{name}\n0,1,{cell}\n15,1,\n", "a.csv")


# An HPA that changed


HPA = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 8,
        "metrics": [
            {
                "type": "Pods",
                "pods": {
                    "metric": {"name": "m"},
                    "target": {"type": "AverageValue", "averageValue": "80"},
                },
            }
        ],
    },
}
MINUTE_S = 60


def changed(**columns):
    length = len(next(iter(columns.values())))
    one = recording([1] * length, utilization=[50] * length, step_ms=MINUTE_S * 1000)
    return replace(one, hpa={name.replace("__", "/"): column for name, column in columns.items()})


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        # What stayed as it was, is as the manifests have it.
        ({"minReplicas": (1, 1, 1), "maxReplicas": (8, 8, 8), "target__m": (60, 60, 60)}, []),
        (
            {"minReplicas": (1, 1, 2), "maxReplicas": (8, 9, 9)},
            [
                {"at": "0s", "hpa": "default/web", "minReplicas": 1, "maxReplicas": 8},
                {"at": "1m", "hpa": "default/web", "maxReplicas": 9},
                {"at": "2m", "hpa": "default/web", "minReplicas": 2},
            ],
        ),
        # A gap is no change, and what it hides is seen at its end; a change back is one.
        (
            {"target__m": (None, 60.5, None, 60.5, None, 80.0, 60.5)},
            [
                {"at": "0s", "hpa": "default/web", "targets": {"m": 60.5}},
                {"at": "5m", "hpa": "default/web", "targets": {"m": 80}},
                {"at": "6m", "hpa": "default/web", "targets": {"m": 60.5}},
            ],
        ),
    ],
)
def test_an_hpa_changes_when_its_columns_do(columns, expected) -> None:
    floats = {
        name: tuple(None if value is None else float(value) for value in column)
        for name, column in columns.items()
    }
    found = hpa_history(changed(**floats), [DEPLOYMENT, HPA])
    assert list(found.changes) == expected
    assert found.notes == ()


@pytest.mark.parametrize(
    ("columns", "objects", "note"),
    [
        ({"target__m": (60.0, 80.0)}, [DEPLOYMENT], "1 change .* and the manifests have 0 HPAs"),
        ({"target__other": (60.0, 80.0)}, [DEPLOYMENT, HPA], "target of other: .* has 0 metrics"),
        (
            {"maxReplicas": (8.0, 8.0), "target__m": (None, 80.0)},
            [DEPLOYMENT, HPA],
            "recorded was m for a part of the time only",
        ),
    ],
)
def test_what_changed_and_can_not_be_replayed_is_said(columns, objects, note) -> None:
    found = hpa_history(changed(**columns), objects)
    assert found.changes == ()
    assert len(found.notes) == 1
    assert re.search(note, found.notes[0])


def test_what_an_hpa_said_is_kept_to_the_last_byte_and_read_again() -> None:
    of_hpa = {"minReplicas": (1.0, 2.0), "target__m": (17_179_869_185.0, None)}
    one = changed(**of_hpa)
    history = hpa_history(one, [DEPLOYMENT, HPA])
    texts = files(
        one, demand_of(one, 1), FACTS, ("default", "web"), [DEPLOYMENT, HPA], None, history
    )
    again = read_recording(texts["recorded.csv"], "recorded.csv")
    assert again.hpa == one.hpa
    spec = yaml.safe_load(texts["scenario.yaml"])["spec"]
    assert [(each["at"], each["minReplicas"]) for each in spec["hpaChanges"]] == [
        ("0s", 1),
        ("1m", 2),
    ]


def test_a_table_has_a_bounded_number_of_targets() -> None:
    row = {"time": 0, "replicas": 1} | {f"target/{number}": 1 for number in range(33)}
    lines = "\n".join(map(json.dumps, (row, {"time": 60, "replicas": 1})))
    with pytest.raises(ConfigError, match="found 33 columns of targets, expected at most 32"):
        read_recording(lines, "a.jsonl")


def test_only_the_one_hpa_of_the_workload_is_asked_for() -> None:
    name = {"horizontalpodautoscaler": 'we"b'}
    metric = {**name, "metric_name": "m", "metric_target_type": "average"}
    other = {**metric, "horizontalpodautoscaler": "other", "metric_name": "n"}
    questions = DeploymentQueries("default", "web")
    found = {"hpa": vector((name, 1.0)), "hpaMetric": vector((metric, 60.0), (other, 1.0))}
    asked = questions.of_hpa(found)
    assert list(asked) == ["minReplicas", "maxReplicas", "target/m"]
    assert all('horizontalpodautoscaler="we\\"b"' in each for each in asked.values())
    # Of a metric whose target had two types no one can say which number is which.
    value = {**metric, "metric_target_type": "value"}
    two = {**found, "hpaMetric": vector((metric, 60.0), (value, 80.0))}
    assert list(questions.of_hpa(two)) == ["minReplicas", "maxReplicas"]
    assert "targets of the types average, value" in facts_of(two, 1).notes[-1]
    hpas = {"hpa": vector((name, 1.0), ({"horizontalpodautoscaler": "late"}, 1.0))}
    assert questions.of_hpa(hpas) == {}
    assert 'recorded were late, we"b' in facts_of(hpas, 1).notes[-1]


def test_the_words_of_a_replay_name_at_most_five_changes() -> None:
    of_change = [
        {"at": f"{number}h", "hpa": "default/web", "minReplicas": number + 1} for number in range(7)
    ]
    one = recording((1, 1), utilization=(50.0, 50.0))
    run = {"series": {"t": [0.0, 15.0], "hpa/web/current": [1, 1], "nodes/gpu/ready": [1, 1]}}
    found = compared(run, one, demand_of(one, 1), FACTS, "web", hpa_changes=of_change)
    said = text(found)
    assert "from 0h on minReplicas 1; " in said
    assert "from 4h on minReplicas 5; and 2 changes more" in said
