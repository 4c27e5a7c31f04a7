"""Tables of pictures, on terminals of every width."""

from typing import Any

import pytest

from gpuscale.ops.top.picture import EventRow, GpuRow, JobRow, NodeRow, Picture, WorkloadRow
from gpuscale.ops.top.tables import GPUS, TABLES, WORKLOADS, age_text, overview, picture_lines

WHY = "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient nvidia.com/gpu."


def gpu(index: str, use: float | None, **given: object) -> GpuRow:
    fields: dict[str, Any] = {
        "node": "ip-10-0-113-7.eu-west-1.compute.internal",
        "uuid": f"GPU-{index}",
        "model": "NVIDIA H200",
        "memory_used_mib": 70000.0,
        "memory_total_mib": 143771.0,
        "power_watts": 412.0,
        "temperature_celsius": 51.0,
        "owners": ("inference/chat-7c9d8f6b5-x2v4q",),
        "faults": (),
    }
    return GpuRow(index=index, use_percent=use, **{**fields, **given})


def workload(**given: object) -> WorkloadRow:
    fields: dict[str, Any] = {
        "namespace": "inference",
        "name": "chat",
        "target": "Deployment/chat",
        "metrics": "9/5, 43%/80%",
        "times_target": 1.8,
        "least": 1,
        "most": 20,
        "replicas": 4,
        "wanted": 6,
        "running": 3,
        "pending": 2,
        "reason": WHY,
    }
    return WorkloadRow(**{**fields, **given})


PICTURE = Picture(
    at_ms=1_800_000_000_000,
    source="cluster https://10.0.0.1, context prod",
    gpus=(gpu("0", 96.0), gpu("1", 0.0, owners=()), gpu("2", None, faults=("Xid 79",))),
    nodes=(
        NodeRow(
            "ip-10-0-113-7.eu-west-1.compute.internal",
            "p5en.48xlarge",
            "gpu",
            "Ready",
            8,
            3,
            48.0,
            7300.0,
            (),
        ),
    ),
    workloads=(
        workload(),
        workload(name="speech", pending=0, times_target=None, metrics="<unknown>/5"),
    ),
    jobs=(JobRow("train", "nightly", 1, 2, 5, 0, 8, 90.0, "Running"),),
    events=(
        EventRow(1_799_999_940_000, "Warning", "FailedScheduling", "pod/inference/chat-1", WHY, 3),
    ),
)


@pytest.mark.parametrize("width", [20, 40, 57, 80, 120, 200])
def test_no_line_of_a_table_is_wider_than_the_terminal(width: int) -> None:
    for table in TABLES:
        for line in table.lines(table.rows(PICTURE), width):
            assert len(line) <= width, line


def test_a_narrow_terminal_keeps_what_matters_most() -> None:
    heads = WORKLOADS.lines(PICTURE.workloads, 40)[0].split()
    assert heads == ["HPA", "TARGETS", "WANTED", "READY"]


def test_a_wide_terminal_shortens_nothing() -> None:
    text = "\n".join(picture_lines(PICTURE, 400, 10))
    assert WHY in text
    assert "inference/chat-7c9d8f6b5-x2v4q" in text
    assert "…" not in text


def test_a_column_that_nobody_fills_is_left_out() -> None:
    rows = (gpu("0", 96.0), gpu("1", 3.0))
    assert "FAULTS" not in GPUS.lines(rows, 200)[0]
    assert "FAULTS" in GPUS.lines(PICTURE.gpus, 200)[0]


def test_rows_without_a_value_come_last_whichever_way() -> None:
    use = next(at for at, column in enumerate(GPUS.columns) if column.head == "USE")
    assert [row.index for row in GPUS.sorted_rows(PICTURE, use)] == ["0", "1", "2"]


def test_rows_are_found_by_any_of_their_words() -> None:
    assert [row.index for row in GPUS.sorted_rows(PICTURE, None, "xid")] == ["2"]
    assert [row.name for row in WORKLOADS.sorted_rows(PICTURE, None, "SPEECH")] == ["speech"]


def test_the_overview_counts() -> None:
    # 8 allocatable; the mean of 96 and 0; one below 1 %; 2 pods of a workload and 1 of a Job wait.
    assert overview(PICTURE) == (
        "8 GPUs; 48% in use, 1 idle; 1 of 1 node ready; 3 pods pending; 1 GPU with faults"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172800, "2d")],
)
def test_ages_are_short(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


def test_nothing_steers_the_terminal() -> None:
    evil = workload(reason="\x1b[2Jgone\nsecond line")
    (_, line) = WORKLOADS.lines((evil,), 400)
    assert "\x1b" not in line
    assert "\n" not in line
