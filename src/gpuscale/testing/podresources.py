"""A kubelet's pod-resources API on a Unix socket: which GPU was given to which container, as a test says.

    with PodResources(folder / "kubelet.sock", gpus=["GPU-1"]) as kubelet:
        kubelet.allocate("ml", "bert-0", "GPU-1")

Source: k8s.io/kubelet pkg/apis/podresources/v1 (api.proto).
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from gpuscale.agent.attribution.proto import podresources_pb2 as pb

__all__ = ["PodResources"]

_THREADS = 2


class PodResources:
    """The API of one node. Use it in `with`.

    Args:
        socket: where it is served; a path of 100 characters at most.
        gpus: the node's device ids.
        resource: the name that GPUs are asked for by.
    """

    def __init__(self, socket: Path, gpus: Sequence[str], resource: str = "nvidia.com/gpu") -> None:
        self.socket = socket
        self._gpus = tuple(gpus)
        self._resource = resource
        self._given: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}

    def __enter__(self) -> Self:
        methods = {"List": self._list, "GetAllocatableResources": self._allocatable}
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
        }
        service = grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)
        self._server = grpc.server(ThreadPoolExecutor(_THREADS, "pod-resources"))
        self._server.add_generic_rpc_handlers((service,))
        self._server.add_insecure_port(f"unix://{self.socket}")
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.stop(None).wait()

    def allocate(self, namespace: str, pod: str, *gpus: str, container: str = "main") -> None:
        """Give GPUs to a pod's container, instead of those that it had."""
        self._given = {**self._given, (namespace, pod): (container, gpus)}

    def free(self, namespace: str, pod: str) -> None:
        """Take a pod's GPUs back; of a pod that has none, do nothing."""
        self._given = {key: given for key, given in self._given.items() if key != (namespace, pod)}

    @property
    def allocated(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return the GPUs of each pod, by namespace and name."""
        return {key: gpus for key, (_, gpus) in self._given.items()}

    def _list(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        pods = [
            pb.PodResources(
                namespace=namespace,
                name=pod,
                containers=[pb.ContainerResources(name=container, devices=[self._devices(gpus)])],
            )
            for (namespace, pod), (container, gpus) in self._given.items()
        ]
        return pb.ListPodResourcesResponse(pod_resources=pods).SerializeToString()

    def _allocatable(self, _request: bytes, _context: grpc.ServicerContext) -> bytes:
        devices = [self._devices(self._gpus)]
        return pb.AllocatableResourcesResponse(devices=devices).SerializeToString()

    def _devices(self, gpus: Sequence[str]) -> pb.ContainerDevices:
        return pb.ContainerDevices(resource_name=self._resource, device_ids=gpus)
