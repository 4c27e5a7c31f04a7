# mypy: disable-error-code="arg-type"
"""The exporter's output as Prometheus' own tools and curl see it."""

import asyncio
import os
import shutil

import pytest

from gpuscale.agent.exporter.agent import NodeAgent
from gpuscale.agent.exporter.collector import Collector
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.simulated import GpuWork, SimulatedReader
from gpuscale.base.clock import ManualClock, WallClock
from gpuscale.signals import DEFAULT_COUNTERS

BERT = ContainerRef("ml", 'bert "0"', "main\\1")
LINTED = 3
"""promtool's exit code for text that parses and breaks a naming rule."""


def reader(model):
    work = (GpuWork(101, "python", 0.23, 0.1, 4000), GpuWork(7, "Xorg", 0.01, 0.0, 50))
    return SimulatedReader("n1", MODELS[model], 2, 1, lambda gpu, *_: () if gpu else work)


def program(name, package):
    path = shutil.which(name)
    if path is None:
        missing = f"{name} is not installed; get it with: apt-get install {package}"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return path


async def run(*command, stdin=b""):
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(stdin)
    return process.returncode, out.decode(), err.decode()


@pytest.mark.prometheus
@pytest.mark.parametrize("model", ["Tesla K80", "Tesla T4", "NVIDIA H200"])
@pytest.mark.parametrize("styles", [("dcgm",), ("ack",), ("dcgm", "ack")], ids="+".join)
async def test_promtool_accepts_the_output(model: str, styles: tuple[str, ...]) -> None:
    promtool = program("promtool", "prometheus")
    source = reader(model)
    owners = Attribution({source.gpus()[0].uuid: (BERT,)}, {101: BERT})
    collector = Collector(
        source,
        lambda _: owners,
        DEFAULT_COUNTERS,
        FamilyOptions("n1"),
        ManualClock(60_000),
        frozenset(styles),
    )
    snapshot = collector.publish(collector.read())
    code, _, complaints = await run(promtool, "check", "metrics", stdin=snapshot.text)
    # The names are NVIDIA's and Alibaba's, and break rules of style; our own must not.
    assert code in (0, LINTED), complaints
    named = {line.split(" ")[0] for line in complaints.splitlines()}
    assert not {name for name in named if not name.startswith("DCGM_")}, complaints


async def test_curl_scrapes_the_agent() -> None:
    curl = program("curl", "curl")
    source = reader("Tesla K80")
    agent = NodeAgent(
        source,
        lambda _: Attribution(),
        DEFAULT_COUNTERS,
        FamilyOptions("n1"),
        WallClock(),
        60.0,
        reader_blocks=False,
    )
    await agent.collect()
    port = await agent.start("127.0.0.1", 0)
    try:
        url = f"http://127.0.0.1:{port}/metrics"
        code, out, err = await run(curl, "--silent", "--fail", "--compressed", "--include", url)
    finally:
        await agent.stop()
    assert code == 0, err
    head, _, body = out.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK")
    assert "Content-Encoding: gzip" in head
    (first, _second) = [
        line for line in body.splitlines() if line.startswith("DCGM_FI_DEV_GPU_UTIL{")
    ]
    assert first.startswith(
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{source.gpus()[0].uuid}",pci_bus_id='
    )
    # 23 % of one process and 1 % of the other.
    assert first.endswith(
        'device="nvidia0",modelName="Tesla K80",Hostname="n1",DCGM_FI_DRIVER_VERSION="570.86.15"} 24'
    )
