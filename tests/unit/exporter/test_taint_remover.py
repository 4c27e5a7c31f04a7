"""The start-up taint of a node, against an API server over real HTTP."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gpuscale.agent.attribution.settings import KubeletSettings
from gpuscale.agent.exporter.families.own_metrics import CollectStatus, GpuStatus
from gpuscale.agent.exporter.settings import ReadyTaint
from gpuscale.agent.exporter.taint_remover import TaintRemover
from gpuscale.agent.gpu.readings import GpuIdentity
from gpuscale.base.clock import WallClock
from gpuscale.kube.client.settings import KubeSettings
from node_server import NodeServer

KEY = "startup-taint.cluster-autoscaler.kubernetes.io/gpuscale"
OURS = {"key": KEY, "value": "true", "effect": "NoSchedule"}
POOLS = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
LATER = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
QUICK = 500.0
"""Times as fast as the wall clock: five seconds are 10 ms."""


@pytest.fixture
async def server() -> AsyncIterator[NodeServer]:
    found = NodeServer()
    found.taints = [POOLS, OURS]
    await found.start()
    yield found
    await found.stop()


@contextlib.asynccontextmanager
async def removing(
    server: NodeServer, folder: Path, gpu_fault: Callable[[], str | None] = lambda: None
) -> AsyncIterator[tuple[TaintRemover, asyncio.Task[None]]]:
    settings = KubeSettings(kubeconfig=server.kubeconfig(folder), timeout_s=5.0)
    taint = ReadyTaint(KEY, "n1")
    remover = TaintRemover(taint, settings, KubeletSettings(), gpu_fault, WallClock(QUICK))
    task = asyncio.create_task(remover.run())
    try:
        yield remover, task
    finally:
        task.cancel()
        await asyncio.wait({task})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - it waits for whatever the server shows
            await asyncio.sleep(0.005)


@pytest.mark.parametrize(
    "resource",
    [
        pytest.param("nvidia.com/gpu", id="whole"),
        pytest.param("amd.com/gpu", id="another vendor"),
        pytest.param("nvidia.com/mig-1g.5gb", id="MIG"),
        pytest.param("nvidia.com/gpu.shared", id="time-slicing by its own name"),
        pytest.param("aliyun.com/gpu-mem", id="memory of shared GPUs"),
    ],
)
async def test_the_taint_goes_when_the_plugin_has_registered_gpus(
    server: NodeServer, tmp_path: Path, resource: str
) -> None:
    server.allocatable[resource] = "0"
    async with removing(server, tmp_path) as (remover, task):
        await until(lambda: server.gets >= 2)
        assert (server.taints, remover.status.is_there) == ([POOLS, OURS], True)
        assert "registered no GPU" in remover.status.waits_for
        server.allocatable[resource] = "8"
        await until(task.done)
    assert server.taints == [POOLS]
    assert (remover.status.is_there, remover.status.waits_for) == (False, "")
    assert len(server.patches) == 1


async def test_what_is_no_gpu_does_not_count(server: NodeServer, tmp_path: Path) -> None:
    server.allocatable |= {
        "nvidia.com/gpucores": "100",
        "ephemeral-storage": "9",
        "smarter.io/x": "1",
    }
    async with removing(server, tmp_path):
        await until(lambda: server.gets >= 3)
    assert server.taints == [POOLS, OURS]


async def test_the_gpus_have_to_answer_too(server: NodeServer, tmp_path: Path) -> None:
    server.allocatable["nvidia.com/gpu"] = "8"
    faults: list[str | None] = ["GPU 3: GPU is lost"]
    async with removing(server, tmp_path, lambda: faults[0]) as (remover, task):
        await until(lambda: server.gets >= 2)
        assert remover.status.waits_for == "GPU 3: GPU is lost"
        faults[0] = None
        await until(task.done)
    assert server.taints == [POOLS]


async def test_devices_of_claims_count_where_there_is_no_plugin(
    server: NodeServer, tmp_path: Path
) -> None:
    nic = {"spec": {"driver": "dranet.example", "devices": [{"name": "eth0"}]}}
    counters = {"spec": {"driver": "gpu.nvidia.com", "sharedCounters": [{}]}}
    server.slices = [nic, counters]
    async with removing(server, tmp_path) as (remover, task):
        await until(lambda: "nor a driver for claims" in remover.status.waits_for)
        server.slices.append({"spec": {"driver": "gpu.nvidia.com", "devices": [{"name": "gpu-0"}]}})
        await until(task.done)
    assert server.taints == [POOLS]


async def test_the_last_taint_leaves_no_empty_list(server: NodeServer, tmp_path: Path) -> None:
    server.taints, server.allocatable["nvidia.com/gpu"] = [OURS], "1"
    async with removing(server, tmp_path) as (_, task):
        await until(task.done)
    assert server.patches == [
        [
            {"op": "test", "path": "/spec/taints", "value": [OURS]},
            {"op": "remove", "path": "/spec/taints"},
        ]
    ]


async def test_a_taint_that_others_add_meanwhile_stays(server: NodeServer, tmp_path: Path) -> None:
    server.allocatable["nvidia.com/gpu"], server.before_patch = "1", LATER
    async with removing(server, tmp_path) as (remover, task):
        await until(task.done)
    assert server.taints == [POOLS, LATER]
    assert remover.status.errors == {"changed": 1}


async def test_it_is_taken_off_once(server: NodeServer, tmp_path: Path) -> None:
    """Who puts it back means it; an agent that starts anew takes it off again."""
    server.allocatable["nvidia.com/gpu"] = "1"
    async with removing(server, tmp_path) as (_, task):
        await until(task.done)
        server.taints.append(OURS)
        gets = server.gets
        await asyncio.sleep(0.2)
        assert server.gets == gets
    async with removing(server, tmp_path) as (_, task):
        await until(task.done)
    assert server.taints == [POOLS]


async def test_a_taint_may_come_after_the_node(server: NodeServer, tmp_path: Path) -> None:
    server.taints, server.allocatable["nvidia.com/gpu"] = [], "1"
    async with removing(server, tmp_path) as (remover, task):
        await until(lambda: remover.status.is_there is False)
        server.taints = [OURS]
        await until(task.done)
    assert server.taints == []


async def test_a_node_without_the_taint_is_left_alone(server: NodeServer, tmp_path: Path) -> None:
    server.taints, server.allocatable["nvidia.com/gpu"] = [POOLS], "1"
    async with removing(server, tmp_path) as (_, task):
        await until(task.done)
    assert (server.taints, server.patches, server.gets) == ([POOLS], [], 20)


@pytest.mark.parametrize(
    ("method", "code", "reason"),
    [
        ("PATCH", 403, "forbidden"),
        ("GET", 403, "forbidden"),
        ("GET", 404, "no_node"),
        ("GET", 503, "unreachable"),
        ("PATCH", 400, "refused"),
    ],
)
async def test_a_refusal_is_counted_told_once_and_tried_again(
    server: NodeServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    method: str,
    code: int,
    reason: str,
) -> None:
    server.allocatable["nvidia.com/gpu"] = "1"
    server.refusals[method] = code
    async with removing(server, tmp_path) as (remover, task):
        await until(lambda: remover.status.errors.get(reason, 0) >= 2)
        told = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
        assert len(told) == 1
        assert f"can't see to the taint {KEY} of node n1" in told[0]
        assert f"no {method} for you" in told[0]
        assert ("install with agent.readyTaint" in told[0]) is (code == 403)
        assert remover.status.waits_for in told[0]
        server.refusals.clear()
        await until(task.done)
    assert server.taints == [POOLS]


async def test_a_server_that_is_away_is_waited_for(server: NodeServer, tmp_path: Path) -> None:
    server.allocatable["nvidia.com/gpu"] = "1"
    await server.stop()
    async with removing(server, tmp_path) as (remover, task):
        await until(lambda: remover.status.errors.get("unreachable", 0) >= 2)
        assert remover.status.is_there is None
        await server.start()
        await until(task.done)
    assert server.taints == [POOLS]


@pytest.mark.parametrize("taints", [[None, 7, OURS], "x", {"key": KEY}])
async def test_an_odd_list_is_survived(server: NodeServer, tmp_path: Path, taints: object) -> None:
    server.allocatable["nvidia.com/gpu"] = "1"
    server.taints = taints  # type: ignore[assignment]
    async with removing(server, tmp_path) as (remover, _):
        await until(lambda: remover.status.is_there is False)
    assert server.taints in ([None, 7], taints)


def test_settings_know_neither_the_remover_nor_the_client_of_the_api_server() -> None:
    """Agents without the setting don't pay for it."""
    import subprocess

    code = (
        "import sys; from gpuscale.agent.exporter.settings import read_settings; read_settings({}, {}, 'n'); "
        "print([each for each in sys.modules if each.endswith(('taint_remover', 'client.client'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


GPU_0 = GpuStatus(GpuIdentity(0, "GPU-0", "00000000:1A:00.0", "NVIDIA H200"), None)
GPU_1 = GpuStatus(GpuIdentity(1, "GPU-1", "00000000:1B:00.0", "NVIDIA H200"), "GPU is lost")


@pytest.mark.parametrize(
    ("status", "fault"),
    [
        pytest.param(CollectStatus(), "no GPU was read yet", id="before the first collect"),
        pytest.param(CollectStatus(collects=1), "no GPU was read yet", id="no GPU"),
        pytest.param(
            CollectStatus(collects=2, error="no driver", gpus=(GPU_0,)), "no driver", id="no driver"
        ),
        pytest.param(
            CollectStatus(collects=1, gpus=(GPU_0, GPU_1)), "GPU 1: GPU is lost", id="one is lost"
        ),
        pytest.param(CollectStatus(collects=1, gpus=(GPU_0,)), None, id="all answer"),
    ],
)
def test_gpus_answer_when_the_latest_collect_read_each(
    status: CollectStatus, fault: str | None
) -> None:
    assert status.gpu_fault == fault
