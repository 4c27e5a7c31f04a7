"""`gpuscale top` as users run it: one look, the live screen, and what it refuses."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import DataTable, Input, Static

from gpuscale.base.errors import UnavailableError
from gpuscale.cli.top_screen import TopApp
from gpuscale.ops.top.picture import GpuRow, JobRow, NodeRow, Picture, WorkloadRow
from live_loop import Loop

GPUSCALE = Path(sys.executable).parent / "gpuscale"


def top(*arguments: str, columns: int = 160) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [GPUSCALE, "top", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "COLUMNS": str(columns)},
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--url=gpu-1:9400"], "--url: found 'gpu-1:9400', expected http://"),
        (["--prometheus-url=p"], "--prometheus-url: found 'p', expected http://"),
        (["--url=http://a", "--gpu=nvml"], "--url, --gpu: expected one of them"),
        (["--gpu=nvml", "-n", "prod"], "--namespace: it is about a cluster, and --gpu is instead"),
        (["--prometheus-token-file=t"], "--prometheus-token-file: expected --prometheus-url"),
        (["--gpu=simulated:NVIDIA A99"], "NVIDIA A99"),
        (["--kubeconfig=gone.yaml"], "gone.yaml"),
        (["--url=http://127.0.0.1:1"], "does not answer"),
    ],
)
def test_what_it_refuses(arguments: list[str], told: str) -> None:
    done = top(*arguments)
    assert told in done.stderr
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_this_machines_gpus_once() -> None:
    done = top("--gpu=simulated:NVIDIA H200:3", "-o", "json")
    document = json.loads(done.stdout)
    assert [each["index"] for each in document["gpus"]] == ["0", "1", "2"]
    assert {each["memory_total_mib"] for each in document["gpus"]} == {143771.0}
    assert done.returncode == 0


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    running = Loop(tmp_path_factory.mktemp("loop"), "ack-bert", "--speed", "60")
    try:
        running.wait("SuccessfulRescale", 60)
        yield running
    finally:
        running.kill()


def test_a_cluster_by_its_kubeconfig_alone(loop: Loop) -> None:
    kubeconfig = loop.wait(r"KUBECONFIG=(\S+)", 1)[1]
    done = top(f"--kubeconfig={kubeconfig}", "-o", "json")
    document = json.loads(done.stdout)
    assert document["unseen"] == []
    (row,) = document["workloads"]
    assert (row["target"], row["least"], row["most"]) == ("Deployment/bert-intent-detection", 1, 10)
    first = document["gpus"][0]
    assert first["model"] == "Tesla V100-SXM2-16GB"
    assert first["owners"][0].startswith("default/bert-intent-detection-")
    assert {"SuccessfulRescale", "FailedScheduling"} <= {
        each["reason"] for each in document["events"]
    }


def test_its_values_from_prometheus_and_from_a_page_are_the_same(loop: Loop) -> None:
    kubeconfig = loop.wait(r"KUBECONFIG=(\S+)", 1)[1]
    page = loop.wait(r"node agent +(\S+)", 1)[1]
    of_pages = json.loads(top(f"--url={page}", "-o", "json").stdout)["gpus"]
    of_prometheus = json.loads(
        top(f"--kubeconfig={kubeconfig}", f"--prometheus-url={loop.url}", "-o", "json").stdout
    )["gpus"]
    steady = ("node", "index", "uuid", "model", "memory_total_mib")
    assert [of_pages[0][key] for key in steady] in [
        [each[key] for key in steady] for each in of_prometheus
    ]


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_printed_lines_fit_the_terminal(loop: Loop, columns: int) -> None:
    kubeconfig = loop.wait(r"KUBECONFIG=(\S+)", 1)[1]
    lines = top(f"--kubeconfig={kubeconfig}", "--once", columns=columns).stdout.splitlines()
    tables = [line for line in lines[1:] if line]
    assert len(tables) > 5
    assert max(map(len, tables)) <= columns


# The live screen


def gpu(index: int, use: float) -> GpuRow:
    return GpuRow("gpu-a", str(index), f"GPU-{index}", "NVIDIA L4", use, 1, 2, 3, 4, (), ())


class Reader:
    """Takes pictures of a cluster that gets a GPU more at each look."""

    def __init__(self) -> None:
        self.looks = 0
        self.fault = ""

    async def look(self) -> Picture:
        if self.fault:
            raise UnavailableError(self.fault)
        self.looks += 1
        workload = WorkloadRow(
            *("prod", "chat", "Deployment/chat", "9/5", 1.8, 1, 9, 2, 4, 2, 2),
            reason="0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        )
        return Picture(
            at_ms=1_800_000_000_000 + self.looks,
            source="cluster test",
            gpus=tuple(gpu(index, 10.0 * index) for index in range(self.looks)),
            nodes=(NodeRow("gpu-a", "", "", "Ready", 8, 2, 5.0, 60.0, ()),),
            workloads=(workload, replace(workload, name="speech", reason="fine")),
            jobs=(JobRow("prod", "train", 0, 1, 0, 0, 4, 60.0, "Running"),),
        )


def cells(app: TopApp, table: str) -> list[list[str]]:
    widget = app.screen_stack[0].query_one(f"#table-{table}", DataTable)
    return [[str(cell) for cell in widget.get_row_at(row)] for row in range(widget.row_count)]


def overview_of(app: TopApp) -> str:
    return str(app.screen_stack[0].query_one("#overview", Static).content)


@pytest.mark.parametrize("size", [(40, 24), (80, 24), (200, 60)])
async def test_the_screen_at_each_size(size: tuple[int, int]) -> None:
    app = TopApp(Reader(), every_s=3600)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        names = [row[0] for row in cells(app, "Workloads")]
        assert [name[:5] for name in names] == ["prod/", "prod/"]
        for table in ("Workloads", "GPUs", "Nodes", "Jobs", "Events"):
            widget = app.query_one(f"#table-{table}", DataTable)
            assert widget.virtual_size.width <= size[0], table
        assert "1 of 1 node ready; 4 pods pending" in overview_of(app)
        assert app.focused is app.query_one("#table-Workloads", DataTable)


async def test_it_looks_again_until_it_is_paused() -> None:
    reader = Reader()
    app = TopApp(reader, every_s=0.05)
    async with app.run_test() as pilot:
        await pilot.pause(0.5)
        assert reader.looks > 2
        await pilot.press("space")
        await pilot.pause(0.2)
        held = reader.looks
        await pilot.pause(0.3)
        assert reader.looks == held
        assert "paused" in overview_of(app)
        assert len(cells(app, "GPUs")) == held


async def test_a_look_that_takes_longer_than_the_pace_still_ends() -> None:
    class Slow(Reader):
        async def look(self) -> Picture:
            await asyncio.sleep(0.3)
            return await super().look()

    reader = Slow()
    app = TopApp(reader, every_s=0.05)
    async with app.run_test() as pilot:
        await pilot.pause(1.5)
        assert reader.looks > 1
        assert len(cells(app, "Workloads")) == 2


async def test_a_cluster_that_goes_away_leaves_the_last_picture_and_the_reason() -> None:
    reader = Reader()
    app = TopApp(reader, every_s=0.05)
    async with app.run_test() as pilot:
        await pilot.pause(0.3)
        reader.fault = "the API server does not answer"
        await pilot.pause(0.3)
        assert "no new picture: the API server does not answer" in overview_of(app)
        assert len(cells(app, "Workloads")) == 2
        reader.fault = ""
        await pilot.pause(0.3)
        assert "no new picture" not in overview_of(app)


async def test_rows_are_filtered_sorted_and_turned_around() -> None:
    reader = Reader()
    reader.looks = 2
    app = TopApp(reader, every_s=3600)
    async with app.run_test(size=(120, 30)) as pilot:
        await pilot.pause()
        await pilot.press("2")
        assert [row[1] for row in cells(app, "GPUs")] == ["0", "1", "2"]
        await pilot.press("s", "s", "s")  # node, number, use: the highest first
        assert [row[1] for row in cells(app, "GPUs")] == ["2", "1", "0"]
        await pilot.press("r")
        assert [row[1] for row in cells(app, "GPUs")] == ["0", "1", "2"]
        await pilot.press("1", "slash", *"SPEECH", "enter")
        await pilot.pause()
        assert [row[0] for row in cells(app, "Workloads")] == ["prod/speech"]
        assert "only rows with" in overview_of(app)
        await pilot.press("slash", "escape")
        await pilot.pause()
        assert len(cells(app, "Workloads")) == 2
        assert not app.query_one("#filter", Input).display


async def test_enter_looks_into_a_row_and_asks_more_of_a_workload() -> None:
    asked: list[str] = []

    async def explain(row: WorkloadRow) -> list[str]:
        asked.append(row.name)
        return ["Goes from 2 to 4."]

    app = TopApp(Reader(), every_s=3600, explain=explain)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause()
        await pilot.press("down", "enter")
        await pilot.pause()
        words = str(app.screen.query_one("#words", Static).content)
        assert "WHY      fine" in words
        assert "Goes from 2 to 4." in words
        assert asked == ["speech"]
        await pilot.press("escape", "3", "enter")
        await pilot.pause()
        assert "STATUS  Ready" in str(app.screen.query_one("#words", Static).content)
        await pilot.press("q")
        await pilot.pause()
        assert asked == ["speech"]
