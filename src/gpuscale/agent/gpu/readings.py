"""What a reader found: one `GpuReading` per GPU, in DCGM's field names and units."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """A MIG instance: one part of a GPU that is used as a GPU of its own."""

    id: int
    """NVML's GPU-instance id, the label `GPU_I_ID`; no ordinal."""
    profile: str
    """Such as `1g.10gb`, the label `GPU_I_PROFILE`."""
    uuid: str
    """`MIG-...`, by which the kubelet allocates it."""


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """Which GPU, or which MIG instance of it: the parts of its labels that never change."""

    index: int
    """NVML's number on this node, from 0."""
    uuid: str
    pci_bus_id: str
    """With the domain in eight digits, such as `00000000:1A:00.0`."""
    model: str
    """Marketing name, such as `NVIDIA H200`."""
    instance: GpuInstance | None = None
    """The MIG instance that is meant; None for the whole GPU."""

    @property
    def allocated_as(self) -> str:
        """Return the UUID under which a GPU is allocated: the instance's own, or the GPU's."""
        return self.uuid if self.instance is None else self.instance.uuid

    @property
    def device(self) -> str:
        """Return the device name that DCGM labels it with."""
        return f"nvidia{self.index}"


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """One process on one GPU. Utilisations are percent of the time, 0 to 100.

    They are None where the driver does not report them, as on a GPU that is split with MIG; idle is 0.
    """

    pid: int
    """In the host's PID namespace."""
    name: str
    sm_util: int | None
    mem_copy_util: int | None
    encode_util: int | None
    decode_util: int | None
    memory_used_mib: int | None
    """None where the driver does not report it, as under vGPU or WSL."""
    looks: int | None = None
    """Of how many looks of the driver the utilisations are the mean, where it only samples who runs. Such a
    mean is about a longer time than the GPU's own values. None where they are about the same time."""


@dataclass(frozen=True, slots=True)
class EventCount:
    """How often one kind of event has come: one sample of a `DCGM_EXP_*` family."""

    field: str
    """Name of the family."""
    labels: tuple[tuple[str, str], ...]
    """What the family adds to the GPU's labels, such as the XID or the clock event."""
    value: int


@dataclass(frozen=True, slots=True)
class GpuReading:
    """The reading of one GPU at one time."""

    gpu: GpuIdentity
    measured_ms: int
    """End of the time that the values are about."""
    values: Mapping[str, int | float | str]
    """DCGM field name to value, in DCGM's unit."""
    absent: Mapping[str, str]
    """DCGM field name to the reason why there is no value."""
    processes: tuple[ProcessReading, ...] = ()
    """Every process that holds the GPU, idle ones too; each PID once."""
    events: tuple[EventCount, ...] = ()
    """Counts of events, where they are asked for; a lost GPU may have some, which may say why."""

    @property
    def is_lost(self) -> bool:
        """Return whether nothing at all could be read."""
        return not self.values
