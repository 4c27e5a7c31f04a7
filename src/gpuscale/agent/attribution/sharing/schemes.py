"""The schemes that share GPUs. A new scheme is an entry in `SCHEMES`.

| scheme | what a pod asks for | what says which GPU, and how much of it |
| --- | --- | --- |
| ACK gpushare, cGPU | `aliyun.com/gpu-mem`, `gpu-core.percentage` | annotations: container, GPU, units |
| HAMi | `nvidia.com/gpu` with `gpumem`, `gpucores` | annotation by container: UUID, MiB, cores |
| Volcano vGPU | `volcano.sh/vgpu-number` with `vgpu-memory`, `vgpu-cores` | the same in another annotation |
| KAI, Run:ai | annotation `gpu-fraction` or `gpu-memory` | label of a group with a reservation pod |

The ids that the kubelet hands out for such parts name a GPU too, but the device plugins of the first three
give the container the GPU of the annotation, whatever id the kubelet took.

Source: AliyunContainerService gpushare-device-plugin, koordinator pkg/scheduler/plugins/ack (annotations and
    their JSON); HAMi 2.7 pkg/device/devices.go, volcano-vgpu-device-plugin pkg/plugin/vgpu/util;
    KAI-Scheduler pkg/common/constants.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.agent.attribution.kubelet.device_parts import ACK_RESOURCE, VOLCANO_RESOURCE
from gpuscale.agent.gpu.owners import Grant
from gpuscale.kube.informers import PodRecord

_ACK_MEMORY = "scheduler.framework.gpushare.allocation"
_ACK_CORES = "gpushare.alibabacloud.com/core-percentage"
_ACK_V1_INDEX, _ACK_V1_MEMORY = "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_POD"
_HAMI = "hami.io/vgpu-devices-allocated"
_VOLCANO = "volcano.sh/vgpu-ids-new"
_FRACTION, _FRACTION_MEMORY = "gpu-fraction", "gpu-memory"
_FRACTION_CONTAINER = "gpu-fraction-container-name"
_GROUP = "runai-gpu-group"
_GROUPS = f"{_GROUP}/"
RESERVATION_NAMESPACES = frozenset({"kai-resource-reservation", "runai-reservation"})
"""Where the pods are that hold GPUs for groups of pods with fractions."""

_MOST_PARTS = 256
"""More than a pod can have; a guard."""


@dataclass(frozen=True, slots=True)
class GpuPart:
    """One container's part of one GPU. The GPU is named by one of UUID, number or group."""

    container: str
    grant: Grant
    uuid: str = ""
    index: int | None = None
    group: str = ""
    memory_units: int = 0
    """Memory in the units that the device plugin counts in, where it is not in MiB."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme for sharing GPUs."""

    name: str
    keys: tuple[str, ...]
    """Annotations and labels that it reads; one that ends in `/` is the beginning of others."""
    read: Callable[[PodRecord], Sequence[GpuPart]]
    """Returns the parts of a pod; raises ValueError where its annotation is no such text."""


def _read_ack(pod: PodRecord) -> Sequence[GpuPart]:
    if _ACK_MEMORY not in pod.sharing:
        index = _number(pod.sharing.get(_ACK_V1_INDEX, ""), "a GPU's number")
        units = _number(pod.sharing.get(_ACK_V1_MEMORY, ""), "an amount of memory")
        named = [name for name, limits in pod.limits.items() if ACK_RESOURCE in limits]
        container = named[0] if len(named) == 1 else ""
        return [GpuPart(container, Grant(), index=index, memory_units=units)]
    memory = _by_container(pod.sharing[_ACK_MEMORY], pod)
    cores = _by_container(pod.sharing[_ACK_CORES], pod) if _ACK_CORES in pod.sharing else {}
    return [
        GpuPart(container, Grant(cores_percent=cores.get((container, index))), "", index, "", units)
        for (container, index), units in memory.items()
    ]


def _by_container(text: str, pod: PodRecord) -> dict[tuple[str, int], int]:
    """Parse `{"CONTAINER": {"GPU": AMOUNT}}` to an amount by container and GPU number."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ValueError(f"expected JSON: {error}") from error
    if not isinstance(data, dict) or not all(isinstance(each, dict) for each in data.values()):
        raise ValueError("expected an object of objects")
    found = {}
    for position, gpus in data.items():
        n = _number(position, "a container's position")
        name = pod.containers[n] if n < len(pod.containers) else ""
        for index, amount in gpus.items():
            found[name, _number(index, "a GPU's number")] = _number(str(amount), "an amount")
    return found


def _read_devices(key: str, resources: tuple[str, ...]) -> Callable[[PodRecord], Sequence[GpuPart]]:
    """Return a parser of `UUID,TYPE,MIB,CORES:` for each device with `;` after each container."""

    def read(pod: PodRecord) -> Sequence[GpuPart]:
        texts = pod.sharing[key].split(";")
        if len(texts) - 1 == len(
            pod.containers
        ):  # a separator after each container, and an empty rest after the last
            named = dict(zip(pod.containers, texts, strict=False))
        else:
            wanting = [
                name for name, limits in pod.limits.items() if any(map(limits.get, resources))
            ]
            full = [text for text in texts if text]
            names = wanting if len(wanting) == len(full) else [""] * len(full)
            named = dict(zip(names, full, strict=True))
        return [
            _device(name, text) for name, held in named.items() for text in held.split(":") if text
        ]

    return read


def _device(container: str, text: str) -> GpuPart:
    items = text.split(",")
    if len(items) != 4:
        raise ValueError(f"found {text[:80]!r}, expected UUID,TYPE,MIB,CORES")
    uuid, _, memory, cores = items
    memory_mib, percent = _number(memory, "MiB"), _number(cores, "a percentage of cores")
    return GpuPart(container, Grant(memory_mib or None, cores_percent=percent or None), uuid)


def _read_fraction(pod: PodRecord) -> Sequence[GpuPart]:
    groups = [pod.sharing[_GROUP]] if _GROUP in pod.sharing else []
    groups += [key.removeprefix(_GROUPS) for key in pod.sharing if key.startswith(_GROUPS)]
    if _FRACTION in pod.sharing:
        grant = Grant(memory_part=_fraction(pod.sharing[_FRACTION]))
    elif _FRACTION_MEMORY in pod.sharing:
        grant = Grant(_number(pod.sharing[_FRACTION_MEMORY], "MiB"))
    else:
        return ()  # of the scheduler's own placeholder pods
    first = pod.containers[0] if pod.containers else ""
    container = pod.sharing.get(_FRACTION_CONTAINER, first)
    if not groups:
        raise ValueError(f"found no label {_GROUP}, which says on which GPU its fraction is")
    return [GpuPart(container, grant, group=group) for group in groups]


def _fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ValueError(f"found {text[:80]!r}, expected a fraction of a GPU") from error
    if not math.isfinite(value) or not 0 < value <= 1:
        raise ValueError(f"found {text[:80]!r}, expected a fraction above 0, at most 1")
    return value


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ValueError(f"found {text[:80]!r}, expected {what}")
    return int(text)


SCHEMES: tuple[Scheme, ...] = (
    Scheme("ACK gpushare", (_ACK_MEMORY, _ACK_CORES, _ACK_V1_INDEX, _ACK_V1_MEMORY), _read_ack),
    Scheme("HAMi", (_HAMI,), _read_devices(_HAMI, ("nvidia.com/gpu", "nvidia.com/gpumem"))),
    Scheme("Volcano vGPU", (_VOLCANO,), _read_devices(_VOLCANO, (VOLCANO_RESOURCE,))),
    Scheme(
        "KAI or Run:ai",
        (_FRACTION, _FRACTION_MEMORY, _FRACTION_CONTAINER, _GROUP, _GROUPS),
        _read_fraction,
    ),
)


def reads_key(key: str) -> bool:
    """Return whether any scheme reads this annotation or label."""
    return key in _EXACT or key.startswith(_BEGINNINGS)


def parts_of(pod: PodRecord) -> tuple[tuple[GpuPart, ...], str]:
    """Return a pod's parts of GPUs, and an error if they can't be parsed."""
    for scheme in SCHEMES:
        if any(key in pod.sharing for key in scheme.keys) or _has_group(scheme, pod.sharing):
            try:
                parts = tuple(scheme.read(pod))
            except ValueError as error:
                return (), f"its annotations of {scheme.name} can't be read: {error}"
            return parts[:_MOST_PARTS], ""
    return (), ""


def _has_group(scheme: Scheme, sharing: Mapping[str, str]) -> bool:
    beginnings = tuple(key for key in scheme.keys if key.endswith("/"))
    return bool(beginnings) and any(key.startswith(beginnings) for key in sharing)


_EXACT = frozenset(key for scheme in SCHEMES for key in scheme.keys)
_BEGINNINGS = tuple(key for key in _EXACT if key.endswith("/"))
