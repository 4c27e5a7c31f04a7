"""The kubelet's pod-resources API over its Unix socket.

Each call looks at the socket file first, so that a missing socket is distinguished from a kubelet that does
not answer, and has a connection of its own: a kubelet that has restarted is found at once.

Source: kubernetes/kubelet pkg/apis/podresources/v1 (GA in 1.28; claims since 1.34 by default).
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeVar

from gpuscale.agent.attribution import reasons
from gpuscale.agent.attribution.kubelet.allocations import (
    ClaimDevice,
    ContainerDevices,
    KubeletDevice,
    KubeletError,
    NodeAllocations,
)
from gpuscale.agent.attribution.kubelet.device_ids import is_gpu, names_gpu, without_unknown
from gpuscale.agent.attribution.kubelet.device_parts import ACK_RESOURCE, gathered_parts
from gpuscale.agent.attribution.kubelet.messages import (
    ContainerResources,
    DeviceGroup,
    allocatable_groups,
    listed_containers,
)
from gpuscale.agent.attribution.kubelet.unary import CallStatus, StatusError, call
from gpuscale.agent.attribution.settings import KubeletSettings

_SERVICE = "/v1.PodResourcesLister"
_NOTHING = b""
"""Both requests are messages without fields."""
Answer = TypeVar("Answer")


class PodResourcesClient:
    """A client of the kubelet's pod-resources API."""

    def __init__(self, settings: KubeletSettings) -> None:
        self._settings = settings

    async def allocations(self) -> NodeAllocations:
        """Return the devices of each container, and the allocatable ones.

        Raises:
            KubeletError: no usable answer.
        """
        containers = await self._call("List", self._containers)
        try:
            groups = await self._call("GetAllocatableResources", allocatable_groups)
        except _UnsupportedError:
            return NodeAllocations(containers, None, ())
        devices = self._gpus(groups)
        # GPUs that are cut up are handed out as units of their memory.
        units = gathered_parts(each for each in devices if each.resource == ACK_RESOURCE)[1]
        others = (each for each in devices if each.resource != ACK_RESOURCE)
        allocatable = without_unknown(others, self._settings.resource_names)[0]
        return NodeAllocations(containers, allocatable, units)

    async def _call(self, method: str, read: Callable[[bytes], Answer]) -> Answer:
        settings, path = self._settings, self._settings.socket
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise KubeletError(
                reasons.SOCKET_MISSING,
                f"there is no socket {path}; mount the kubelet's pod-resources folder, not the file",
            ) from None
        except OSError as error:
            raise self._unreachable(error.strerror or str(error)) from error
        if not path.is_socket():
            raise self._unreachable("it is no socket")
        try:
            body = await call(
                path.absolute(),
                f"{_SERVICE}/{method}",
                _NOTHING,
                settings.timeout_s,
                settings.max_message_bytes,
            )
        except StatusError as error:
            raise self._error(method, error) from error
        try:
            return read(body)
        except ValueError as error:
            raise KubeletError(
                reasons.KUBELET_ERROR,
                f"the kubelet's answer to {method} is no pod-resources message ({len(body)} bytes)",
            ) from error

    def _unreachable(self, why: str) -> KubeletError:
        text = f"can't use the kubelet's socket {self._settings.socket}: {why}"
        return KubeletError(reasons.SOCKET_UNREACHABLE, text)

    def _error(self, method: str, error: StatusError) -> KubeletError:
        status, details = error.status, error.details or "no details"
        if status is CallStatus.UNIMPLEMENTED:
            return _UnsupportedError(
                reasons.KUBELET_ERROR, f"the kubelet has no {method} of pod-resources v1"
            )
        if status is CallStatus.UNAVAILABLE:
            return self._unreachable(details)
        if status is CallStatus.DEADLINE_EXCEEDED:
            text = f"no answer from the kubelet to {method} for {self._settings.timeout_s:g} s"
            return KubeletError(reasons.KUBELET_ERROR, text)
        text = f"the kubelet answered {method} with {status.name}: {details}"
        return KubeletError(reasons.KUBELET_ERROR, text)

    def _containers(self, message: bytes) -> tuple[ContainerDevices, ...]:
        found = map(self._container, listed_containers(message))
        return tuple(
            each for each in found if each.devices or each.claims or each.parts or each.unknown
        )

    def _container(self, given: ContainerResources) -> ContainerDevices:
        others, parts = gathered_parts(self._gpus(given.groups))
        whole, unknown = without_unknown(others, self._settings.resource_names)
        claims = tuple(
            replace(each, is_named_gpu=self._is_named_gpu(each)) for each in given.claims
        )
        return ContainerDevices(
            given.namespace, given.pod, given.name, whole, claims, parts, unknown
        )

    def _gpus(self, groups: Iterable[DeviceGroup]) -> tuple[KubeletDevice, ...]:
        extra = self._settings.resource_names
        devices = (KubeletDevice(group.resource, each) for group in groups for each in group.ids)
        return tuple(dict.fromkeys(each for each in devices if is_gpu(each, extra)))

    def _is_named_gpu(self, claimed: ClaimDevice) -> bool:
        """Return whether a claimed device is a GPU, by the name of its driver or CDI devices."""
        driver = claimed.driver.lower()
        if claimed.driver in self._settings.dra_drivers or "gpu" in driver:
            return True
        return driver.startswith("mig.") or any(map(names_gpu, claimed.cdi_names))


class _UnsupportedError(KubeletError):
    """The kubelet is too old for this call."""
