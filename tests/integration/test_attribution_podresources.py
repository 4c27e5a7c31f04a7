# mypy: disable-error-code="assignment, attr-defined"
"""The pod-resources client against a real gRPC server on a Unix socket."""

import asyncio
import contextlib
import socket
from pathlib import Path

import grpc
import grpc.aio
import pytest

from gpuscale.agent.attribution.kubelet.allocations import (
    ClaimDevice,
    ContainerDevices,
    KubeletDevice,
    KubeletError,
)
from gpuscale.agent.attribution.kubelet.podresources import PodResourcesClient
from gpuscale.agent.attribution.proto import podresources_pb2 as pb
from gpuscale.agent.attribution.settings import KubeletSettings


def pods(*names, resource="nvidia.com/gpu", device_id="GPU-a"):
    return pb.ListPodResourcesResponse(
        pod_resources=[
            pb.PodResources(
                name=name,
                namespace="ml",
                containers=[
                    pb.ContainerResources(
                        name="main",
                        devices=[
                            pb.ContainerDevices(resource_name=resource, device_ids=[device_id]),
                            pb.ContainerDevices(resource_name="cpu-like", device_ids=["7"]),
                        ],
                    )
                ],
            )
            for name in names
        ]
    )


class Kubelet:
    """The service itself; what it answers can be changed while it runs."""

    def __init__(self, path) -> None:
        self.path = path
        self.listed = pods("bert-0").SerializeToString()
        self.allocatable = pb.AllocatableResourcesResponse(
            devices=[
                pb.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=["GPU-a", "GPU-b"]),
                pb.ContainerDevices(resource_name="example.com/nic", device_ids=["n0"]),
            ]
        ).SerializeToString()
        self.delay_s = 0.0
        self.refusal = None
        self.calls = 0
        self._server = None

    async def start(self) -> None:
        methods = {"List": self._list}
        if self.allocatable is not None:
            methods["GetAllocatableResources"] = self._allocatable
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
        }
        self._server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
        service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix://{self.path}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop(None)

    async def _list(self, request, context):
        pb.ListPodResourcesRequest.FromString(request)
        self.calls += 1
        await asyncio.sleep(self.delay_s)
        if self.refusal is not None:
            await context.abort(*self.refusal)
        return self.listed

    async def _allocatable(self, request, _context):
        pb.AllocatableResourcesRequest.FromString(request)
        return self.allocatable


@pytest.fixture
async def kubelet(tmp_path: Path):
    server = Kubelet(tmp_path / "kubelet.sock")
    yield server
    await server.stop()


@pytest.fixture
async def client(kubelet):
    return PodResourcesClient(KubeletSettings(kubelet.path, timeout_s=2.0))


async def reason_of(client):
    with pytest.raises(KubeletError) as caught:
        await client.allocations()
    return caught.value.reason, str(caught.value)


async def test_containers_come_with_their_gpus_and_nothing_else(kubelet, client) -> None:
    await kubelet.start()
    found = await client.allocations()
    gpu = KubeletDevice("nvidia.com/gpu", "GPU-a")
    assert found.containers == (ContainerDevices("ml", "bert-0", "main", (gpu,)),)
    assert found.allocatable == (gpu, KubeletDevice("nvidia.com/gpu", "GPU-b"))


async def test_container_without_gpu_is_left_out(kubelet, client) -> None:
    kubelet.listed = pods("web-0", resource="example.com/nic").SerializeToString()
    await kubelet.start()
    assert (await client.allocations()).containers == ()


async def test_resource_of_another_name_counts_when_named(kubelet) -> None:
    kubelet.listed = pods("bert-0", resource="example.com/accel", device_id="0").SerializeToString()
    await kubelet.start()
    settings = KubeletSettings(kubelet.path, resource_names=("example.com/accel",))
    found = await PodResourcesClient(settings).allocations()
    assert found.containers[0].devices == (KubeletDevice("example.com/accel", "0"),)


async def test_claims_are_kept_and_those_of_gpu_drivers_are_marked(kubelet, client) -> None:
    def claim(driver):
        return pb.ClaimResource(
            driver_name=driver,
            pool_name="n1",
            device_name="gpu-0",
            cdi_devices=[pb.CDIDevice(name="k8s.gpu.nvidia.com/device=claim-1")],
        )

    kubelet.listed = pb.ListPodResourcesResponse(
        pod_resources=[
            pb.PodResources(
                name="bert-0",
                namespace="ml",
                containers=[
                    pb.ContainerResources(
                        name="main",
                        dynamic_resources=[
                            pb.DynamicResource(
                                claim_name="c",
                                claim_namespace="ml",
                                claim_resources=[claim("gpu.nvidia.com"), claim("net.example.com")],
                            )
                        ],
                    )
                ],
            )
        ]
    ).SerializeToString()
    await kubelet.start()
    (found,) = (await client.allocations()).containers
    assert found.claims == (
        ClaimDevice(
            "gpu.nvidia.com", "n1", "gpu-0", ("k8s.gpu.nvidia.com/device=claim-1",), "c", "ml"
        ),
        ClaimDevice(
            "net.example.com",
            "n1",
            "gpu-0",
            ("k8s.gpu.nvidia.com/device=claim-1",),
            "c",
            "ml",
            is_named_gpu=False,
        ),
    )


async def test_resource_that_shares_gpus_in_an_unknown_way_is_kept_once(kubelet, client) -> None:
    # Its `0` may be a GPU's number, or a share's: nothing is concluded from it.
    devices = [
        pb.ContainerDevices(resource_name="example.com/vgpu-memory-gib", device_ids=["0", "1"]),
        pb.ContainerDevices(resource_name="example.com/vgpu", device_ids=["0"]),
        pb.ContainerDevices(resource_name="example.com/nic", device_ids=["0"]),
    ]
    main = pb.ContainerResources(name="main", devices=devices)
    pod = pb.PodResources(name="bert-0", namespace="ml", containers=[main])
    kubelet.listed = pb.ListPodResourcesResponse(pod_resources=[pod]).SerializeToString()
    await kubelet.start()
    assert (await client.allocations()).containers == (
        ContainerDevices(
            "ml",
            "bert-0",
            "main",
            unknown=(
                KubeletDevice("example.com/vgpu-memory-gib", "0"),
                KubeletDevice("example.com/vgpu", "0"),
            ),
        ),
    )


async def test_missing_socket_is_reported(kubelet, client) -> None:
    assert await reason_of(client) == (
        "socket_missing",
        f"there is no socket {kubelet.path}; mount the kubelet's pod-resources folder, not the file",
    )


async def test_kubelet_that_starts_later_is_found(kubelet, client) -> None:
    await reason_of(client)
    await kubelet.start()
    assert (await client.allocations()).containers


async def test_restarted_kubelet_is_found_at_the_next_call(kubelet, client) -> None:
    await kubelet.start()
    await client.allocations()
    await kubelet.stop()
    reason, _ = await reason_of(client)
    assert reason in ("socket_missing", "socket_unreachable")
    kubelet.listed = pods("tune-0").SerializeToString()
    await kubelet.start()
    assert [each.pod for each in (await client.allocations()).containers] == ["tune-0"]


async def test_replaced_socket_is_followed_while_the_old_server_still_answers(
    kubelet, client, tmp_path: Path
) -> None:
    await kubelet.start()
    await client.allocations()
    kubelet.path.rename(tmp_path / "old.sock")
    newer = Kubelet(kubelet.path)
    newer.listed = pods("tune-0").SerializeToString()
    await newer.start()
    try:
        assert [each.pod for each in (await client.allocations()).containers] == ["tune-0"]
    finally:
        await newer.stop()


async def test_socket_that_nobody_listens_on_is_reported(kubelet, client) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(kubelet.path))
    reason, text = await reason_of(client)
    assert reason == "socket_unreachable"
    assert text.startswith(f"can't use the kubelet's socket {kubelet.path}: ")


async def test_plain_file_is_no_socket(kubelet, client) -> None:
    kubelet.path.write_text("")
    assert await reason_of(client) == (
        "socket_unreachable",
        f"can't use the kubelet's socket {kubelet.path}: it is no socket",
    )


async def test_socket_that_can_not_be_looked_at_is_reported(kubelet, client) -> None:
    kubelet.path.symlink_to(kubelet.path)
    assert await reason_of(client) == (
        "socket_unreachable",
        f"can't use the kubelet's socket {kubelet.path}: Too many levels of symbolic links",
    )


async def test_hanging_kubelet_is_given_up_on_in_time(kubelet) -> None:
    kubelet.delay_s = 30
    await kubelet.start()
    client = PodResourcesClient(KubeletSettings(kubelet.path, timeout_s=1.5))
    assert await reason_of(client) == (
        "kubelet_error",
        "no answer from the kubelet to List for 1.5 s",
    )
    kubelet.delay_s = 0
    assert (await client.allocations()).containers


async def test_slow_kubelet_is_waited_for(kubelet, client) -> None:
    kubelet.delay_s = 0.3
    await kubelet.start()
    assert (await client.allocations()).containers


async def test_answer_of_five_megabytes_is_read(kubelet, client) -> None:
    names = tuple(f"{'p' * 200}-{number}" for number in range(20_000))
    kubelet.listed = pods(*names).SerializeToString()
    assert len(kubelet.listed) > 5_000_000
    await kubelet.start()
    assert len((await client.allocations()).containers) == 20_000


async def test_answer_beyond_the_bound_is_refused(kubelet) -> None:
    kubelet.listed = pods("p" * 5000).SerializeToString()
    await kubelet.start()
    client = PodResourcesClient(KubeletSettings(kubelet.path, max_message_bytes=4000))
    reason, text = await reason_of(client)
    assert reason == "kubelet_error"
    assert text.startswith("the kubelet answered List with RESOURCE_EXHAUSTED: ")


async def test_answer_that_is_no_message_is_reported(kubelet, client) -> None:
    kubelet.listed = b"\xff\xff\xff\xff"
    await kubelet.start()
    assert await reason_of(client) == (
        "kubelet_error",
        "the kubelet's answer to List is no pod-resources message (4 bytes)",
    )


async def test_server_that_speaks_another_protocol_is_reported(kubelet, client) -> None:
    async def answer(_reader, writer) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, kubelet.path)
    async with server:
        reason, _ = await reason_of(client)
    assert reason in ("socket_unreachable", "kubelet_error")


async def test_rate_limited_answer_is_reported(kubelet, client) -> None:
    kubelet.refusal = (grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
    await kubelet.start()
    assert await reason_of(client) == (
        "kubelet_error",
        "the kubelet answered List with RESOURCE_EXHAUSTED: rejected by rate limit",
    )


async def test_kubelet_without_allocatable_resources_leaves_them_unknown(kubelet, client) -> None:
    kubelet.allocatable = None
    await kubelet.start()
    found = await client.allocations()
    assert found.containers
    assert found.allocatable is None


async def test_socket_in_the_current_folder_can_be_named_relatively(
    kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kubelet.start()
    monkeypatch.chdir(kubelet.path.parent)
    client = PodResourcesClient(KubeletSettings(kubelet.path.relative_to(kubelet.path.parent)))
    assert (await client.allocations()).containers
