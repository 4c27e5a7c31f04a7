"""Ids of devices that are parts of GPUs.

| from | id |
| --- | --- |
| ACK gpushare | `GPU-<uuid>-_-<number>`, one for each GiB or MiB of the GPU's memory |
| HAMi and Volcano vGPU | `GPU-<uuid>-<number>` |

Source: AliyunContainerService gpushare-device-plugin (pkg/gpu/nvidia), HAMi and volcano-vgpu-device-plugin
    (pkg/device-plugin, pkg/plugin/vgpu).
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from gpuscale.agent.attribution.kubelet.allocations import KubeletDevice

ACK_RESOURCE: Final = "aliyun.com/gpu-mem"
VOLCANO_RESOURCE: Final = "volcano.sh/vgpu-number"
_ACK_ID = re.compile("(GPU-[0-9A-Za-z-]{1,200}?)-_-[0-9]{1,7}")
_HYPHEN_ID = re.compile("(GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[0-9]{1,6}")


def part_of_gpu(resource: str, id: str) -> str | None:  # noqa: A002 - the kubelet's own word
    """Return the UUID in the id of a part of a GPU; None for any other id."""
    if resource == ACK_RESOURCE:
        match = _ACK_ID.fullmatch(id)
    elif resource == VOLCANO_RESOURCE or resource.startswith("nvidia.com/"):
        match = _HYPHEN_ID.fullmatch(id)
    else:
        match = None
    return match[1] if match else None


def gathered_parts(
    devices: Iterable[KubeletDevice],
) -> tuple[tuple[KubeletDevice, ...], tuple[KubeletDevice, ...]]:
    """Return the whole devices, and the parts, counted by resource and UUID."""
    whole: list[KubeletDevice] = []
    counts: Counter[tuple[str, str]] = Counter()
    for device in devices:
        uuid = part_of_gpu(device.resource, device.id)
        if uuid is None:
            whole.append(device)
        else:
            counts[device.resource, uuid] += 1
    parts = tuple(
        KubeletDevice(resource, uuid, count) for (resource, uuid), count in counts.items()
    )
    return tuple(whole), parts
