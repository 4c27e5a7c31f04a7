"""Two runs of one scenario side by side."""

from gpuscale.lab.rehearse.comparison import (
    NODES,
    REPLICAS,
    CountChange,
    changes,
    paired,
    table_rows,
)


def event(seconds, kind, name, before, after):
    return {"t": seconds, "kind": kind, "object": name, "from": before, "to": after, "reason": ""}


VIRTUAL = {
    "events": [
        event(10.0, "SuccessfulRescale", "HorizontalPodAutoscaler/h", 1, 2),
        event(12.0, "Scheduled", "Pod/p", None, None),
        event(40.0, "TriggeredScaleUp", "NodePool/gpu", 1, 2),
        event(80.0, "ScaleDown", "Node/gpu-x", 2, 1),
    ]
}
REAL = {
    "events": [
        event(10.2, "SuccessfulRescale", "HorizontalPodAutoscaler/h", 1, 2),
        event(42.0, "TriggeredScaleUp", "NodePool/gpu", 1, 2),
    ]
}


def test_changes_are_those_of_a_kind_and_nodes_have_no_names() -> None:
    assert changes(VIRTUAL, REPLICAS) == (CountChange("HorizontalPodAutoscaler/h", 1, 2, 10.0),)
    assert [each.what for each in changes(VIRTUAL, NODES)] == [
        ("NodePool/gpu", 1, 2),
        ("Node", 2, 1),
    ]


def test_a_change_that_one_run_does_not_have_stands_alone() -> None:
    pairs = paired(changes(VIRTUAL, NODES), changes(REAL, NODES))
    assert pairs[1] == (CountChange("Node", 2, 1, 80.0), None)


def test_the_table_has_a_row_per_change() -> None:
    assert table_rows("demo", VIRTUAL, REAL) == [
        "| demo | HorizontalPodAutoscaler/h | 1 → 2 | 10.0 s | 10.2 s | +0.2 s |",
        "| demo | NodePool/gpu | 1 → 2 | 40.0 s | 42.0 s | +2.0 s |",
        "| demo | Node | 2 → 1 | 80.0 s | - | - |",
    ]
