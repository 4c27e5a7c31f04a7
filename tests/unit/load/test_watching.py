"""What is noted of a cluster under load: values as they change, states, and what is never made up."""

import pytest

from gpuscale.load.timeline.types import Span, TimelineMark, Track
from gpuscale.load.watching import notes as noted
from gpuscale.load.watching.cluster import served_value
from gpuscale.load.watching.notes import Notes
from gpuscale.load.watching.objects import (
    MetricFigures,
    NodeFigures,
    read_event,
    read_hpa_figures,
    read_node_state,
    read_pod_state,
)

START_MS = 1_750_000_000_500


def test_a_value_has_a_point_where_it_changes_and_at_the_end() -> None:
    notes = Notes(START_MS)
    for second, value in enumerate([1, 1, 1, 2, 2]):
        notes.value("replicas", "pods", "ready", START_MS + 1000 * second, value)
    (track,) = notes.finish(START_MS + 9000).tracks
    points = ((START_MS, 1), (START_MS + 3000, 2), (START_MS + 9000, 2))
    assert track == Track("ready", "pods", "replicas", points)


def test_a_line_that_slopes_keeps_the_end_of_a_flat_stretch() -> None:
    notes = Notes(START_MS)
    for second, value in enumerate([5.0, 5.0, 5.0, 90.0]):
        notes.value("gpu", "%", "0", START_MS + 1000 * second, value)
    (track,) = notes.finish(START_MS + 3000).tracks
    assert track.points == ((START_MS, 5), (START_MS + 2000, 5), (START_MS + 3000, 90))


def test_what_is_lost_is_a_gap_and_no_zero() -> None:
    notes = Notes(START_MS)
    notes.value("nodes", "nodes", "ready", START_MS, 3)
    notes.value("hpa", "m", "m", START_MS, None)  # it never had a value: no line
    notes.lost("nodes", START_MS + 1000)
    (track,) = notes.finish(START_MS + 5000).tracks
    assert track.points == ((START_MS, 3), (START_MS + 1000, None))


def test_states_are_spans_from_the_start_to_the_end() -> None:
    notes = Notes(START_MS)
    notes.state("a", "running", START_MS - 60_000)
    notes.state("b", "pending", START_MS + 1000)
    notes.state("b", "pending", START_MS + 2000)
    notes.state("b", "running", START_MS + 3000)
    notes.only({"b"}, START_MS + 4000)
    assert notes.finish(START_MS + 5000).spans == (
        Span("a", "running", START_MS, START_MS + 4000),
        Span("b", "pending", START_MS + 1000, START_MS + 3000),
        Span("b", "running", START_MS + 3000, START_MS + 5000),
    )


def test_events_count_once_and_from_the_second_of_the_start_on() -> None:
    notes = Notes(START_MS)
    second_ms = START_MS // 1000 * 1000
    for at_ms in (second_ms - 1000, second_ms, second_ms + 2000, second_ms + 2000):
        notes.mark(at_ms, "Scheduled", "Pod/a", "")
    assert [mark.at_ms for mark in notes.finish(START_MS).marks] == [START_MS, second_ms + 2000]


@pytest.mark.parametrize(
    ("flood", "bound", "said"),
    [
        (lambda n, i: n.value("gpu", "%", str(i), START_MS, 1), noted.MAX_TRACKS, "lines"),
        (lambda n, i: n.mark(START_MS + i, "K", "o", ""), noted.MAX_MARKS, "events"),
        (lambda n, i: n.state(str(i), "pending", START_MS), noted.MAX_LANES, "pods"),
        (lambda n, i: n.value("hpa", "m", "m", START_MS + i, i), noted.MAX_POINTS, "values"),
    ],
)
def test_a_flood_ends_at_its_bound_and_is_named(flood, bound, said) -> None:
    notes = Notes(START_MS)
    for index in range(bound + 100):
        flood(notes, index)
    seen = notes.finish(START_MS + 10**9)
    sizes = [
        len(seen.tracks),
        len(seen.marks),
        len(seen.spans),
        *(len(t.points) for t in seen.tracks),
    ]
    assert max(sizes) in (bound, bound - 1)
    assert len(seen.notes) == 1
    assert said in seen.notes[0]


HPA = {
    "spec": {
        "metrics": [
            {
                "type": "Pods",
                "pods": {"metric": {"name": "queue"}, "target": {"averageValue": "1500m"}},
            },
            {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 60}}},
            {"type": "External", "external": {"metric": {"name": "new"}, "target": {"value": "7"}}},
        ]
    },
    "status": {
        "currentReplicas": 2,
        "desiredReplicas": 3,
        "conditions": [{"type": "AbleToScale"}],
        "currentMetrics": [
            {
                "type": "Pods",
                "pods": {"metric": {"name": "queue"}, "current": {"averageValue": "2"}},
            },
            {
                "type": "Resource",
                "resource": {
                    "name": "cpu",
                    "current": {"averageUtilization": 0, "averageValue": "0"},
                },
            },
            {"type": ""},
        ],
    },
}


def test_figures_of_an_hpa_are_those_of_its_targets_kind() -> None:
    figures = read_hpa_figures(HPA)
    assert (figures.current, figures.wanted) == (2, 3)
    assert figures.metrics == (
        MetricFigures("queue", "queue", 2.0, 1.5),
        MetricFigures("cpu", "%", 0.0, 60.0),
        MetricFigures("new", "new", None, 7.0),
    )


def test_an_hpa_before_its_first_sync_has_no_replicas_rather_than_none() -> None:
    figures = read_hpa_figures({"spec": {}, "status": {"desiredReplicas": 0}})
    assert (figures.current, figures.wanted) == (None, None)


@pytest.mark.parametrize(
    ("body", "state"),
    [
        ({"status": {"phase": "Pending"}}, "pending"),
        ({"status": {"phase": "Pending"}, "spec": {"nodeName": "n"}}, "starting"),
        ({"status": {"phase": "Running"}}, "starting"),
        (
            {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
            "running",
        ),
        (
            {
                "status": {"phase": "Running"},
                "metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"},
            },
            "ending",
        ),
        ({"status": {"phase": "Failed"}}, "failed"),
        ({"status": {"phase": "Succeeded"}}, "done"),
        ({"status": 7, "spec": None}, "pending"),
    ],
)
def test_states_of_pods(body, state) -> None:
    assert read_pod_state(body) == state


def test_nodes_count_by_whether_they_are_ready_and_have_gpus() -> None:
    ready = [{"type": "Ready", "status": "True"}]
    body = {"status": {"conditions": ready, "capacity": {"nvidia.com/gpu": "8", "cpu": "4"}}}
    assert read_node_state(body) == NodeFigures(is_ready=True, has_gpus=True)
    body = {"status": {"capacity": {"nvidia.com/gpu": "0", "cpu": "4"}}}
    assert read_node_state(body) == NodeFigures(is_ready=False, has_gpus=False)


def test_an_event_has_the_time_of_its_last_repeat() -> None:
    about = {"involvedObject": {"kind": "Pod", "name": "a"}, "reason": "BackOff", "message": "m"}
    old, new = "2026-01-01T00:00:00Z", "2026-01-01T00:00:02.500000Z"
    at_ms = 1_767_225_602_500  # 2026-01-01T00:00:02.5Z
    mark = TimelineMark(at_ms, "BackOff", "Pod/a", "m")
    assert read_event({**about, "lastTimestamp": old, "series": {"lastObservedTime": new}}) == mark
    assert read_event({**about, "lastTimestamp": None, "eventTime": new}) == mark
    assert read_event(about) is None


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ({"pods": [{"value": "10"}, {"value": "500m"}]}, 5.25),
        ({"pods": [{"containers": {"a": "1", "b": "2"}}, {"containers": {"a": None}}]}, 3),
        ({"pods": []}, None),
        ({"value": "1k"}, 1000),
        ({"samples": ["1", "2"]}, 3),
        ({"samples": []}, None),
        ({"error": "no metrics known"}, None),
    ],
)
def test_an_answer_of_a_metrics_api_as_one_number(entry, value) -> None:
    assert served_value(entry) == value
