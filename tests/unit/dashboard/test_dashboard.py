"""What the page gets of pictures: the state, the points of its charts, the events, each once."""

from dataclasses import replace
from typing import Any

from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import UnavailableError
from gpuscale.base.pages.timeline import SeriesRecorder
from gpuscale.ops.dashboard import Dashboard
from gpuscale.ops.dashboard.state import chart_row, page_state
from gpuscale.ops.top.picture import EventRow, GpuRow, JobRow, NodeRow, Picture, WorkloadRow

NOW_MS = 1_800_000_000_000
CHAT = WorkloadRow(
    *("prod", "chat", "Deployment/chat", "11500m/20, 43%/80%", 0.575, 1, 9, 3, 4, 2, 1, "waits"),
    signal="queue",
    value=11.5,
    target_value=20.0,
    use_percent=48.0,
)
GPU = GpuRow(
    "gpu-a", "0", "GPU-0", "NVIDIA L4", 96.0, 1024.0, 24576.0, 70.5, 61.0, ("a/b", "c/d"), ()
)
RESCALE = EventRow(
    NOW_MS, "Normal", "SuccessfulRescale", "hpa/prod/chat", "New size: 4; reason: x", 1
)
PICTURE = Picture(
    NOW_MS,
    "cluster test",
    (GPU, replace(GPU, index="1", use_percent=None, owners=(), faults=("Xid 79",))),
    (
        NodeRow("gpu-a", "", "pool", "Ready", 8, 2, 96.0, 60.0, ()),
        NodeRow("gpu-b", "", "pool", "NotReady", 8, 0, None, 60.0, ()),
    ),
    (CHAT,),
    (JobRow("prod", "train", 1, 1, 2, 0, 4, 60.0, "Running"),),
    (RESCALE,),
)


def test_the_state_has_the_numbers_of_the_picture() -> None:
    state: Any = page_state(PICTURE, lambda *_: None)
    assert state["t"] == 1_800_000_000.0
    assert state["workloads"] == [
        {"name": "prod/chat", "rate": None, "ready": 2, "pending": 1, "steps": []}
    ]
    (hpa,) = state["hpas"]
    metric = {"name": "queue", "value": 11.5, "target": 20.0, "ratio": 0.575, "unit": ""}
    assert hpa["metrics"] == [{**metric, "decides": True}]
    assert (hpa["targets"], hpa["desired"], hpa["reason"]) == ("11500m/20, 43%/80%", 4, "waits")
    first, second = state["nodes"]
    assert [each["pod"] for each in first["gpus"]] == ["a/b, c/d", None]
    assert [each["util"] for each in first["gpus"]] == [96.0, None]
    assert first["gpus"][1]["faults"] == ["Xid 79"]
    assert (second["ready"], second["gpus"]) == (False, [])
    assert state["jobs"]["active"] == state["jobs"]["total"] == 1


def test_gpus_without_a_node_are_shown_too() -> None:
    machine = Picture(NOW_MS, "GPUs of here", (replace(GPU, node=""),))
    state: Any = page_state(machine, lambda *_: None)
    (node,) = state["nodes"]
    assert chart_row(machine) == {"use/all GPUs": 96.0, "gpu/GPU/0": 96.0}
    assert (node["name"], len(node["gpus"])) == ("GPUs of here", 1)


def test_a_point_of_the_charts() -> None:
    assert chart_row(PICTURE) == {
        "use/all GPUs": 96.0,
        "use/prod/chat": 48.0,
        "hpa/prod/chat/value": 11.5,
        "hpa/prod/chat/target": 20.0,
        "hpa/prod/chat/desired": 4,
        "hpa/prod/chat/current": 3,
        "replicas/prod/chat/ready": 2,
        "replicas/prod/chat/pending": 1,
        "nodes/pool/ready": 1,
        "nodes/pool/total": 2,
    }


def test_old_rows_go_where_bytes_are_bounded() -> None:
    record = SeriesRecorder(most_bytes=32 * 3 * 10)  # ten rows of a time and two values
    for t in range(25):
        record.add(float(t), {"a": t, "b": t})
    first, times, series = record.series()
    assert len(times) <= 10
    assert (times[0], times[-1], series["b"][0]) == (float(first), 24.0, first)


class Pictures:
    """Gives one picture after the other; None is a cluster that does not answer."""

    def __init__(self, *pictures: Picture | None) -> None:
        self._left = list(pictures)

    async def look(self) -> Picture:
        picture = self._left.pop(0)
        if picture is None:
            raise UnavailableError("10.0.0.1 does not answer")
        return picture


async def test_an_event_is_told_once_and_again_after_ten_minutes() -> None:
    again = replace(RESCALE, at_ms=NOW_MS + 60_000, count=2)
    later = replace(RESCALE, at_ms=NOW_MS + 600_000, count=3)
    reader = Pictures(PICTURE, replace(PICTURE, events=(again,)), replace(PICTURE, events=(later,)))
    board = Dashboard(reader, ManualClock(NOW_MS), 5)
    for _ in range(3):
        await board.look()
    told: Any = board.since(0, 0)
    assert [each["t"] - NOW_MS / 1000 for each in told["events"]] == [0, 600]
    assert [each["to"] for each in told["events"]] == [4, 4]
    assert told["totals"] == {"points": 3, "events": 2}
    assert board.since(3, 1)["events"] == told["events"][1:]
    assert board.since(3, 1)["t"] == []


async def test_a_cluster_that_does_not_answer_leaves_the_last_picture() -> None:
    board = Dashboard(Pictures(PICTURE, None, PICTURE), ManualClock(NOW_MS), 5)
    await board.look()
    before = board.state()
    assert board.state() is before
    await board.look_again()
    assert board.state() == {**before, "fault": "10.0.0.1 does not answer"}
    await board.look_again()
    assert board.state() == before
