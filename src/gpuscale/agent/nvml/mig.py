"""Which MIG instances a GPU is split into.

Source: NVIDIA go-nvlib, pkg/nvlib/device/mig_profile.go (how a profile gets its name).
"""

import math
import re
from dataclasses import dataclass

from gpuscale.agent.gpu.readings import GpuInstance
from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.faults import CallFailedError
from gpuscale.agent.nvml.library import Answer, Handle

_NAME_END = re.compile(r"\bMIG (\S+)$")
_MEMORY_PARTS = 8
_GIB = 1024**3
_MIB = 1024**2
_ON = 1


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A MIG instance with its NVML handle."""

    instance: GpuInstance
    handle: Handle


def is_split(caller: Caller, gpu: Handle) -> bool:
    """Return whether MIG is on."""
    try:
        current, _pending = caller.call("mig", "nvmlDeviceGetMigMode", gpu)
    except CallFailedError:
        return False
    return bool(current == _ON)


def mig_devices(caller: Caller, gpu: Handle) -> tuple[MigDevice, ...]:
    """Return the instances of a GPU on which MIG is on, by id.

    Raises:
        CallFailedError: they can't be listed.
    """
    total_bytes = int(caller.call("mig", "nvmlDeviceGetMemoryInfo", gpu).total)
    found = []
    for index in range(caller.call("mig", "nvmlDeviceGetMaxMigDeviceCount", gpu)):
        try:
            handle = caller.call("mig", "nvmlDeviceGetMigDeviceHandleByIndex", gpu, index)
        except CallFailedError:  # indexes without an instance
            continue
        found.append(MigDevice(_instance(caller, handle, total_bytes), handle))
    return tuple(sorted(found, key=lambda device: (device.instance.id, device.instance.uuid)))


def _instance(caller: Caller, handle: Handle, total_bytes: int) -> GpuInstance:
    return GpuInstance(
        int(caller.call("mig", "nvmlDeviceGetGpuInstanceId", handle)),
        _profile(caller, handle, total_bytes),
        str(caller.call("mig", "nvmlDeviceGetUUID", handle)),
    )


def _profile(caller: Caller, handle: Handle, total_bytes: int) -> str:
    """Return the profile's name from the driver, or built from its attributes."""
    try:
        named = _NAME_END.search(str(caller.call("mig", "nvmlDeviceGetName", handle)))
    except CallFailedError:
        named = None
    if named is not None:
        return named[1]
    attributes = caller.call("mig", "nvmlDeviceGetAttributes_v2", handle)
    return profile_name(attributes, total_bytes)


def profile_name(attributes: Answer, total_bytes: int) -> str:
    """Return such as `1g.10gb`, or `1c.2g.20gb` for a compute instance that is part of its GPU instance.

    The memory is the part of the whole GPU's, in eighths, for which the instance's own counts.
    """
    part = attributes.memorySizeMB * _MIB / total_bytes
    eighths = math.ceil(part * _MEMORY_PARTS) / _MEMORY_PARTS
    gigabytes = round(eighths * math.ceil(total_bytes / _GIB))
    slices = attributes.gpuInstanceSliceCount
    compute = attributes.computeInstanceSliceCount
    prefix = "" if compute == slices else f"{compute}c."
    return f"{prefix}{slices}g.{gigabytes}gb"
