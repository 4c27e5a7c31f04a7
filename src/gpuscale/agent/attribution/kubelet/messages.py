"""Decodes the kubelet's pod-resources messages from protobuf.

The messages nest four levels deep, and a node agent needs a dozen of their fields. The protobuf library
would take 4 MiB of it for those.

Source: protobuf.dev/programming-guides/encoding; kubernetes/kubelet pkg/apis/podresources/v1/api.proto,
whose fields have these numbers. `podresources.proto` beside this has the messages whole, for tests.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuscale.agent.attribution.kubelet.allocations import ClaimDevice

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MOST_SHIFT = 63
"""Bits before the last byte of a number; it has ten bytes at most."""

Field = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """Devices of one resource (`ContainerDevices`)."""

    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContainerResources:
    """One container with its devices (`ContainerResources`)."""

    namespace: str
    pod: str
    name: str
    groups: tuple[DeviceGroup, ...]
    claims: tuple[ClaimDevice, ...]


def listed_containers(message: bytes) -> Iterator[ContainerResources]:
    """Yield the containers of a `ListPodResourcesResponse`.

    Raises:
        ValueError: it is none.
    """
    for pod in _all(message, 1):
        fields = tuple(_fields(pod))
        name, namespace = _text(fields, 1), _text(fields, 2)
        for each in _of(fields, 3):
            container = tuple(_fields(each))
            yield ContainerResources(
                namespace,
                name,
                _text(container, 1),
                tuple(map(_group, _of(container, 2))),
                tuple(each for claim in _of(container, 5) for each in _claimed(claim)),
            )


def allocatable_groups(message: bytes) -> tuple[DeviceGroup, ...]:
    """Return the devices of an `AllocatableResourcesResponse`.

    Raises:
        ValueError: it is none.
    """
    return tuple(map(_group, _all(message, 1)))


def _group(message: bytes) -> DeviceGroup:
    fields = tuple(_fields(message))
    return DeviceGroup(_text(fields, 1), tuple(each.decode() for each in _of(fields, 2)))


def _claimed(message: bytes) -> Iterator[ClaimDevice]:
    fields = tuple(_fields(message))
    for resource in _of(fields, 4):
        device = tuple(_fields(resource))
        yield ClaimDevice(
            driver=_text(device, 2),
            pool=_text(device, 3),
            device=_text(device, 4),
            cdi_names=tuple(_text(tuple(_fields(cdi)), 1) for cdi in _of(device, 1)),
            claim=_text(fields, 2),
            namespace=_text(fields, 3),
        )


def _all(message: bytes, number: int) -> Iterator[bytes]:
    return _of(_fields(message), number)


def _of(fields: "Iterator[Field] | tuple[Field, ...]", number: int) -> Iterator[bytes]:
    return (value for each, value in fields if each == number)


def _text(fields: tuple[Field, ...], number: int) -> str:
    """Return a text field; empty if missing, the last one if repeated."""
    found = b""
    for found in _of(fields, number):  # noqa: B007 - the last one
        pass
    return found.decode()


def _fields(message: bytes) -> Iterator[Field]:
    """Yield number and bytes of a message's length-delimited fields.

    Raises:
        ValueError: this is no message.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        if kind == _VARINT:
            _, at = _varint(message, at)
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind == _FIXED64:
            size = 8
        elif kind == _FIXED32:
            size = 4
        else:
            raise ValueError(f"a field is of kind {kind}")
        if size > end - at:
            raise ValueError("a field ends after its message")
        if kind == _BYTES:
            yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a varint at an offset, and the offset behind it."""
    number = 0
    for shift in range(0, _MOST_SHIFT + 1, 7):
        if at >= len(message):
            raise ValueError("a number ends after its message")
        byte = message[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise ValueError("a number has more than ten bytes")
