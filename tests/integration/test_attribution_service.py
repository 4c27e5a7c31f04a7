# mypy: disable-error-code="arg-type, assignment, attr-defined"
"""Who owns the GPUs, with a real kubelet socket, an API server over HTTP and a proc tree on disk."""

import asyncio
import importlib.util
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import grpc
import grpc.aio
import pytest

from gpuscale.agent.attribution.proto import podresources_pb2 as pb
from gpuscale.agent.attribution.reasons import REASONS
from gpuscale.agent.attribution.resources import NodeGpuResources
from gpuscale.agent.attribution.service import NodeAttribution
from gpuscale.agent.attribution.settings import AttributionSettings, KubeletSettings, NodeSettings
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.readings import GpuIdentity, GpuInstance, GpuReading, ProcessReading
from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import UsageError
from gpuscale.kube.client.settings import KubeSettings

TESTS = Path(__file__).parents[1]
TREES = TESTS / "data" / "cgroups"
CONTAINER = "3f4a1c0b9d2e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f30"
SERVE_PID, DAEMON_PID = 4242, 977


def _load(name):
    path = TESTS / "unit" / "kube" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_of_service", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fake = _load("fake_api_server")
WHOLE = GpuIdentity(0, "GPU-a", "00000000:1A:00.0", "NVIDIA H200")
SLICE = GpuIdentity(
    1, "GPU-b", "00000000:C1:00.0", "NVIDIA H200", GpuInstance(7, "1g.18gb", "MIG-b7")
)


def reading(gpu=WHOLE, *pids):
    processes = tuple(ProcessReading(pid, "python", 10, 0, 0, 0, 100) for pid in pids)
    return GpuReading(gpu, 0, {"DCGM_FI_DEV_GPU_UTIL": 10}, {}, processes)


def container(pod, *ids, claims=()):
    devices = [pb.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=[i]) for i in ids]
    resources = [pb.DynamicResource(claim_name="c", claim_resources=claims)] if claims else []
    main = pb.ContainerResources(name="main", devices=devices, dynamic_resources=resources)
    return pb.PodResources(name=pod, namespace="ml", containers=[main])


class Kubelet:
    def __init__(self, path) -> None:
        self.path = path
        self.pods = []
        self._server = None

    async def start(self) -> None:
        handlers = {
            "List": grpc.unary_unary_rpc_method_handler(self._list),
            "GetAllocatableResources": grpc.unary_unary_rpc_method_handler(self._allocatable),
        }
        self._server = grpc.aio.server()
        service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix://{self.path}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)

    async def _list(self, _request, _context):
        return pb.ListPodResourcesResponse(pod_resources=self.pods).SerializeToString()

    async def _allocatable(self, _request, _context):
        devices = [
            pb.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-a", "GPU-b"])
        ]
        return pb.AllocatableResourcesResponse(devices=devices).SerializeToString()


class Site:
    """One node: its kubelet, its processes, and, when asked for, its API server."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.kubelet = Kubelet(folder / "k.sock")
        self.proc = Path(shutil.copytree(TREES / "host", folder / "proc"))
        self.api = fake.FakeApiServer()
        self.clock = ManualClock(1_000_000)
        self.attribution = None
        self.task = None

    def open(self, *, api=False, **more):
        kubernetes = None
        if api:
            config = self.api.kubeconfig(self.folder)
            server = KubeSettings(config, timeout_s=2, retry_s=0.02, max_retry_s=0.05)
            kubernetes = NodeSettings("n1", server)
        settings = {
            "kubelet": KubeletSettings(self.kubelet.path, timeout_s=2.0),
            "proc_root": self.proc,
            "own_proc_root": self.proc,
            "kubernetes": kubernetes,
            **more,
        }
        self.attribution = NodeAttribution(AttributionSettings(**settings), self.clock)
        return self.attribution

    async def close(self) -> None:
        if self.attribution is not None:
            await self.attribution.close()
        if self.task is not None:
            await self.task
        await self.kubelet.stop()
        await self.api.stop()


@pytest.fixture
async def site(tmp_path: Path):
    site = Site(tmp_path)
    yield site
    await site.close()


def reasons(attribution: Attribution):
    found = [each.reason for each in attribution.missing]
    assert REASONS.issuperset(found)
    return found


async def test_gpu_and_process_of_one_pod_without_an_api_server(site) -> None:
    site.kubelet.pods = [container("bert-0", "GPU-a"), container("mig-0", "MIG-b7::1")]
    await site.kubelet.start()
    attribution = site.open()
    assert reasons(attribution((reading(),))) == ["starting"]
    assert not attribution((reading(),)).is_known
    await attribution.refresh()
    found = attribution((reading(WHOLE, SERVE_PID), reading(SLICE)))
    bert = ContainerRef("ml", "bert-0", "main")
    assert found == Attribution(
        {"GPU-a": (bert,), "MIG-b7": (ContainerRef("ml", "mig-0", "main"),)}, {SERVE_PID: bert}
    )


async def test_host_process_belongs_to_nobody(site) -> None:
    site.kubelet.pods = [container("bert-0", "GPU-a")]
    await site.kubelet.start()
    attribution = site.open()
    await attribution.refresh()
    found = attribution((reading(WHOLE, DAEMON_PID),))
    assert found.by_pid == {}
    assert reasons(found) == ["process_not_in_pod"]


async def test_answers_are_joined_again_only_when_something_changed(site) -> None:
    site.kubelet.pods = [container("bert-0", "GPU-a")]
    await site.kubelet.start()
    attribution = site.open()
    await attribution.refresh()
    first = attribution((reading(),))
    await attribution.refresh()
    assert attribution((reading(),)).by_gpu is first.by_gpu
    site.kubelet.pods = [container("tune-0", "GPU-a")]
    await attribution.refresh()
    assert attribution((reading(),)).by_gpu["GPU-a"][0].pod == "tune-0"
    assert attribution((reading(SLICE),)).by_gpu == {}


async def test_last_allocation_holds_while_the_kubelet_restarts_and_not_for_ever(site) -> None:
    site.kubelet.pods = [container("bert-0", "GPU-a")]
    await site.kubelet.start()
    attribution = site.open(keep_s=60.0)
    await attribution.refresh()
    await site.kubelet.stop()
    await attribution.refresh()
    site.clock.advance(59)
    found = attribution((reading(),))
    assert found.by_gpu["GPU-a"][0].pod == "bert-0"
    assert reasons(found) == ["socket_missing"]
    assert found.missing[0].subject == str(site.kubelet.path)
    assert found.missing[0].detail.endswith("not the file (for 59 s)")
    site.clock.advance(2)
    assert attribution((reading(),)).by_gpu == {}
    await site.kubelet.start()
    await attribution.refresh()
    found = attribution((reading(),))
    assert (reasons(found), len(found.by_gpu)) == ([], 1)


async def test_lasting_fault_is_logged_once(site, caplog: pytest.LogCaptureFixture) -> None:
    attribution = site.open()
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            await attribution.refresh()
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    await site.kubelet.start()
    with caplog.at_level(logging.INFO):
        await attribution.refresh()
    assert caplog.messages[-1] == "the kubelet reports again which pods have which GPUs"


@pytest.mark.parametrize("tree", ["pod", "shared-pod"])
async def test_missing_host_pid_namespace_is_told_once(
    site, caplog: pytest.LogCaptureFixture, tree: str
) -> None:
    attribution = site.open(proc_root=TREES / tree, own_proc_root=TREES / tree)
    for _ in range(3):
        found = attribution((reading(WHOLE, 1, SERVE_PID),))
    assert found.by_pid == {}
    assert reasons(found) == ["starting", "host_pid_off"]
    assert [each.message for each in caplog.records] == [
        f"{TREES / tree}: other containers' processes can't be seen; set hostPID: true on the exporter's "
        "pod (or --pid=host), so that GPU processes can be tied to pods"
    ]


async def test_mounted_host_proc_is_not_enough_where_the_driver_names_no_process(site) -> None:
    attribution = site.open(own_proc_root=TREES / "pod")
    assert reasons(attribution((reading(),))) == ["starting", "host_pid_off"]
    assert reasons(attribution((reading(WHOLE, DAEMON_PID),))) == ["starting", "process_not_in_pod"]


async def test_process_that_ends_and_whose_number_comes_back_is_looked_at_again(site) -> None:
    site.kubelet.pods = [container("bert-0", "GPU-a")]
    await site.kubelet.start()
    attribution = site.open()
    await attribution.refresh()
    assert SERVE_PID in attribution((reading(WHOLE, SERVE_PID),)).by_pid
    stat = site.proc / str(SERVE_PID) / "stat"
    stat.write_text(stat.read_text().replace("918273", "918999"))
    (site.proc / str(SERVE_PID) / "cgroup").write_text("0::/system.slice/cron.service\n")
    await attribution.refresh()
    assert reasons(attribution((reading(WHOLE, SERVE_PID),))) == ["process_not_in_pod"]


async def settle(condition, seconds=30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - it waits for whatever an answer shows
            await asyncio.sleep(0.005)


async def test_api_server_adds_uid_labels_owner_and_tells_sharing_pods_apart(site) -> None:
    controller = {"kind": "StatefulSet", "name": "bert", "uid": "u-set"}
    await site.api.start()
    await site.api.put(
        fake.POD, fake.pod("bert-0", controller=controller, container_id=CONTAINER, gpus=1)
    )
    await site.api.put(fake.POD, fake.pod("tune-0", container_id="e" * 64, gpus=1))
    await site.api.put(fake.NODE, fake.node({"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "7"}))
    site.kubelet.pods = [container("bert-0", "GPU-a::0"), container("tune-0", "GPU-a::1")]
    await site.kubelet.start()
    attribution = site.open(api=True)
    assert reasons(attribution(())) == ["starting", "starting"]
    site.task = asyncio.create_task(attribution.run())
    await settle(lambda: attribution.gpu_resources().capacity)
    await settle(lambda: attribution((reading(),)).by_gpu)
    found = attribution((reading(WHOLE, SERVE_PID),))
    labels = {"owner_kind": "StatefulSet", "owner_name": "bert"}
    bert = ContainerRef("ml", "bert-0", "main", "uid-bert-0", labels)
    tune = ContainerRef("ml", "tune-0", "main", "uid-tune-0")
    assert found == Attribution({"GPU-a": (bert, tune)}, {SERVE_PID: bert})
    assert attribution.gpu_resources() == NodeGpuResources(8, 7, {bert: 1, tune: 1})


async def test_requests_come_from_the_api_server_while_the_kubelet_is_silent(site) -> None:
    await site.api.start()
    await site.api.put(fake.POD, fake.pod("bert-0", gpus=2))
    await site.api.put(fake.POD, fake.pod("done-0", gpus=2, phase="Succeeded"))
    attribution = site.open(api=True)
    site.task = asyncio.create_task(attribution.run())
    await settle(lambda: attribution.gpu_resources().containers)
    bert = ContainerRef("ml", "bert-0", "main", "uid-bert-0")
    assert attribution.gpu_resources().containers == {bert: 2}


async def test_resources_without_an_api_server(site) -> None:
    site.kubelet.pods = [container("bert-0", "GPU-a")]
    await site.kubelet.start()
    attribution = site.open()
    assert attribution.gpu_resources() == NodeGpuResources()
    await attribution.refresh()
    assert attribution.gpu_resources() == NodeGpuResources(
        None, 2, {ContainerRef("ml", "bert-0", "main"): 1}
    )


async def test_api_server_that_goes_away_is_told_and_its_pods_kept(site) -> None:
    await site.api.start()
    await site.api.put(fake.POD, fake.pod("bert-0", container_id=CONTAINER))
    attribution = site.open(api=True, keep_s=10.0**9)
    site.task = asyncio.create_task(attribution.run())
    probe = (reading(WHOLE, SERVE_PID),)
    await settle(lambda: attribution(probe).by_pid)
    await site.api.stop()
    await settle(lambda: "api_unreachable" in reasons(attribution(probe)))
    assert attribution(probe).by_pid[SERVE_PID].pod == "bert-0"


async def test_pods_of_the_api_server_are_dropped_when_too_old(site) -> None:
    await site.api.start()
    await site.api.put(fake.POD, fake.pod("bert-0", container_id=CONTAINER))
    attribution = site.open(api=True, keep_s=0.0)
    site.task = asyncio.create_task(attribution.run())
    probe = (reading(WHOLE, SERVE_PID),)
    await settle(lambda: attribution(probe).by_pid)
    await site.api.stop()
    await settle(lambda: not attribution(probe).by_pid)


async def test_forbidden_api_server_is_reported(site) -> None:
    await site.api.start()
    site.api.refusals[fake.POD] = (403, "forbidden")
    attribution = site.open(api=True)
    site.task = asyncio.create_task(attribution.run())
    await settle(lambda: "api_forbidden" in reasons(attribution(())))


async def test_claims_are_resolved_through_resource_slices(site) -> None:
    await site.api.start()
    site.api.others["/apis/resource.k8s.io"] = {"versions": [{"version": "v1"}]}
    device = {"name": "gpu-0", "attributes": {"uuid": {"string": "GPU-a"}}}
    spec = {"driver": "gpu.nvidia.com", "pool": {"name": "n1"}, "devices": [device]}
    await site.api.put(fake.SLICES, {"metadata": {"name": "s"}, "spec": spec})
    claim = pb.ClaimResource(driver_name="gpu.nvidia.com", pool_name="n1", device_name="gpu-0")
    site.kubelet.pods = [container("bert-0", claims=[claim])]
    await site.kubelet.start()
    attribution = site.open(api=True)
    site.task = asyncio.create_task(attribution.run())
    await settle(lambda: attribution((reading(),)).by_gpu)
    assert attribution((reading(),)).by_gpu["GPU-a"][0].pod == "bert-0"


async def test_claim_without_a_cluster_is_reported(site) -> None:
    claim = pb.ClaimResource(driver_name="gpu.nvidia.com", pool_name="n1", device_name="gpu-0")
    site.kubelet.pods = [container("bert-0", claims=[claim])]
    await site.kubelet.start()
    attribution = site.open()
    await attribution.refresh()
    found = attribution((reading(),))
    assert found.by_gpu == {}
    assert reasons(found) == ["dra_unresolved"]


async def test_close_ends_run_and_may_come_twice(site) -> None:
    await site.kubelet.start()
    attribution = site.open()
    site.task = asyncio.create_task(attribution.run())
    await asyncio.sleep(0.01)
    await attribution.close()
    await attribution.close()
    async with asyncio.timeout(30):
        await site.task


async def test_cancelled_run_lets_go_of_everything(site) -> None:
    await site.kubelet.start()
    attribution = site.open()
    task = asyncio.create_task(attribution.run())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_missing_kubeconfig_is_reported(tmp_path: Path) -> None:
    settings = AttributionSettings(kubernetes=NodeSettings("n1", KubeSettings(tmp_path / "none")))
    with pytest.raises(UsageError, match="no usable kubeconfig"):
        NodeAttribution(settings)


@pytest.mark.parametrize(
    ("package", "kubernetes", "who"),
    [("h2", "None", "the kubelet"), ("lightkube", "NodeSettings('n1')", "the API server")],
)
def test_missing_package_is_reported(package: str, kubernetes: str, who: str) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from gpuscale.agent.attribution.service import NodeAttribution\n"
        "from gpuscale.agent.attribution.settings import AttributionSettings, NodeSettings\n"
        f"NodeAttribution(AttributionSettings(kubernetes={kubernetes}))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.stderr.splitlines()[-1] == (
        f"gpuscale.base.errors.UsageError: asking {who} needs the package {package}; "
        "install gpuscale[kubernetes]"
    )


def test_service_loads_no_vendor_library() -> None:
    program = (
        "import sys, gpuscale.agent.attribution.service\n"
        "sys.exit(bool({'grpc', 'google.protobuf', 'lightkube', 'httpx2'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
