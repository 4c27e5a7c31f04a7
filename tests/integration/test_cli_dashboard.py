"""`gpuscale dashboard` as users run it: of a cluster, with the numbers of its API; and what it refuses."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuscale.base.clock import WallClock
from gpuscale.kube.client import KubeClient, KubeSettings
from gpuscale.ops.dashboard import Decider, deciding
from gpuscale.ops.history import History
from gpuscale.ops.observe import read_request
from live_loop import Loop

GPUSCALE = Path(sys.executable).parent / "gpuscale"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--url=http://127.0.0.1:1"], "does not answer"),
        (["--kubeconfig=gone.yaml"], "gone.yaml"),
        (["--gpu=simulated:NVIDIA L4", "--host=192.0.2.1"], "--host takes an address"),
    ],
)
def test_what_it_refuses(arguments: list[str], told: str) -> None:
    done = subprocess.run(
        [GPUSCALE, "dashboard", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.returncode == 2


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    running = Loop(tmp_path, "ack-bert", "--speed", "20")
    try:
        yield running
    finally:
        running.kill()


def test_a_cluster_by_its_kubeconfig(loop: Loop, tmp_path: Path) -> None:
    kubeconfig = loop.wait(r"KUBECONFIG=(\S+)", 10)[1]
    loop.wait("SuccessfulRescale", 60)
    out = tmp_path / "page.txt"
    with out.open("w") as written:
        board = subprocess.Popen(
            [GPUSCALE, "dashboard", "--port=0", "--every=1"],
            stdout=written,
            stderr=subprocess.STDOUT,
            env={**os.environ, "KUBECONFIG": kubeconfig},
        )
    try:
        while not (found := re.search(r"page  (http://\S+)\n", out.read_text())):
            assert board.poll() is None, out.read_text()
            time.sleep(0.05)
        with urllib.request.urlopen(f"{found[1]}/ui/document", timeout=30) as response:
            document = json.load(response)
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
        with urllib.request.urlopen(f"{found[1]}/ui/state", timeout=30) as response:
            state = json.load(response)
        (listed,) = loop.json("/apis/autoscaling/v2/horizontalpodautoscalers")["items"]
        (hpa,) = state["hpas"]
        assert hpa["name"] == "default/gpu-hpa"
        assert (hpa["min"], hpa["max"]) == (1, listed["spec"]["maxReplicas"])
        assert hpa["metrics"][0]["target"] == 20.0
        assert hpa["explanation"]
        assert "SuccessfulRescale" in {each["kind"] for each in document["events"]}
        owners = [gpu["pod"] for node in state["nodes"] for gpu in node["gpus"]]
        assert any(owner and owner.startswith("default/bert") for owner in owners)
    finally:
        board.send_signal(signal.SIGINT)
        assert board.wait(30) == 0


async def test_many_who_ask_at_once_make_one_read(loop: Loop, monkeypatch) -> None:
    kubeconfig = Path((await asyncio.to_thread(loop.wait, r"KUBECONFIG=(\S+)", 10))[1])
    reads: list[tuple[object, ...]] = []

    async def counted(*asked):
        reads.append(asked[2:])
        return await read_request(*asked)

    monkeypatch.setattr(deciding, "read_request", counted)
    async with KubeClient(KubeSettings(kubeconfig=kubeconfig)) as client:
        decider = Decider(client, WallClock())
        found = await asyncio.gather(*(decider.request("default", "gpu-hpa") for _ in range(50)))
    assert reads == [("default", "gpu-hpa")]
    assert {request.hpa.metadata.name for request in found} == {"gpu-hpa"}


def test_a_history_that_is_kept_is_there_when_it_is_started_again(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    words = ["--gpu=simulated:NVIDIA L4:2", "--port=0", "--every=1", f"--history={kept}"]

    def shown(name: str) -> dict[str, object]:
        """Run a dashboard until its page is there, and return the page's document."""
        out = tmp_path / name
        with out.open("w") as written:
            board = subprocess.Popen(
                [GPUSCALE, "dashboard", *words], stdout=written, stderr=subprocess.STDOUT
            )
        while not (found := re.search(r"page  (http://\S+)\n", out.read_text())):
            assert board.poll() is None, out.read_text()
            time.sleep(0.05)
        with urllib.request.urlopen(f"{found[1]}/ui/document", timeout=30) as response:
            document: dict[str, object] = json.load(response)
        board.send_signal(signal.SIGTERM)
        assert board.wait(60) == 0, out.read_text()
        return document

    first, second = shown("first")["series"], shown("second")["series"]
    assert isinstance(first, dict)
    assert isinstance(second, dict)
    with History(str(kept)) as history, history.ask("SELECT count(*) FROM gpus") as answer:
        ((rows,),) = answer.rows
    assert rows >= 4  # two GPUs in a minute or two of each run
    assert len(first["t"]) < len(second["t"])
    assert second["t"][0] <= first["t"][0]
