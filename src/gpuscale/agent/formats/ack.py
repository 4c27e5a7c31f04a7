"""Readings as the metric families of Alibaba Cloud's ACK: who was given how much, who uses how much.

`DCGM_CUSTOM_*` splits a GPU by process and by allocation, which the device's own fields cannot.

- A process that holds the GPU without using it has utilisation 0, which is measured. A container that was
  given a GPU but has no process on it has no process series at all: there is nothing to measure. Its
  allocation is served, so that "given but not used" can be asked for.
- A process is illegal when it reached the GPU without asking the scheduler: its PID belongs to no
  container, or to one that the GPU was not given to.
- What a container was granted of a GPU that is handed out in parts is what its scheduler wrote: memory, and
  compute where that is apportioned. Elsewhere memory grants are served for exclusive GPUs only, and compute
  that is not apportioned is 0, as ACK writes it.
- A container with a part of a GPU is on it by right, also where it is not known which GPU that is.

Source: Alibaba Cloud, "Introduction to metrics" (GPU Monitoring 2.0, ACK user guide); label sets from a
    public mock of an ACK scrape.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from gpuscale.agent.formats.dcgm import (
    ack_node_labels,
    ack_owner_labels,
    device_families,
    owners_of,
    sole_owner,
)
from gpuscale.agent.formats.labels import DeviceLabels, FamilyOptions, LabelPairs, model_name
from gpuscale.agent.formats.repeated import DeviceSeries
from gpuscale.agent.gpu.owners import Attribution, ContainerRef, Grant
from gpuscale.agent.gpu.readings import GpuReading, ProcessReading
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.signals import Counter

ACK_FIELDS = frozenset({"DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DRIVER_VERSION"})
"""What a reader has to read for these families, whatever the counters file says."""
_COMPUTE_PROCESS = "C"
_PREFIX = "DCGM_CUSTOM_"
_PROCESS, _ILLEGAL_PROCESS = "PROCESS", "ILLEGAL_PROCESS"
_ALLOCATE_MODE = f"{_PREFIX}ALLOCATE_MODE"
_CONTAINER_NAMES = frozenset(
    {f"{_PREFIX}CONTAINER_CP_ALLOCATED", f"{_PREFIX}CONTAINER_MEM_ALLOCATED"}
)
_FRAMEBUFFER_NAMES = frozenset({f"{_PREFIX}DEV_FB_ALLOCATED", f"{_PREFIX}DEV_FB_TOTAL"})


class AllocateMode(Enum):
    """How a GPU, or the GPUs of a node, are handed out: the label's text and the metric's value."""

    NONE = ("none", 0)
    EXCLUSIVE = ("exclusive", 1)
    SHARE = ("share", 2)

    @property
    def text(self) -> str:
        """Return the value of the label `AllocateMode`."""
        return self.value[0]

    @property
    def number(self) -> int:
        """Return the value of `DCGM_CUSTOM_ALLOCATE_MODE`."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class _Device:
    """One GPU with its owners."""

    reading: GpuReading
    owners: tuple[ContainerRef, ...]
    grants: Mapping[ContainerRef, Grant]

    @property
    def mode(self) -> AllocateMode:
        return AllocateMode.SHARE if self.grants else _mode(len(self.owners))


@dataclass(frozen=True, slots=True)
class _Process:
    """One process on one GPU, with its container if it has one."""

    device: _Device
    process: ProcessReading
    owner: ContainerRef | None
    is_legal: bool


def ack_families(
    readings: Sequence[GpuReading],
    attribution: Attribution,
    options: FamilyOptions,
    names: frozenset[str] | None = None,
) -> tuple[Family, ...]:
    """Return the `DCGM_CUSTOM_*` families that have a value, in name order.

    A process whose container could not be found out is left out: it is neither known to be legal nor not.

    Args:
        readings: of one node.
        attribution: who owns its GPUs.
        options: how to label.
        names: the only families to make; None is all.
    """
    wanted = ALL_NAMES if names is None else ALL_NAMES & names
    devices = [
        _Device(
            each,
            owners_of(each, attribution),
            attribution.grants.get(each.gpu.allocated_as, {}),
        )
        for each in readings
        if not each.is_lost
    ]
    processes = [
        _attributed(device, process, attribution)
        for device in devices
        for process in device.reading.processes
        if process.pid not in attribution.unknown_pids
    ]
    illegal = [each for each in processes if not each.is_legal]
    legal = [each for each in processes if each.is_legal]
    families: list[Family] = []
    if _ALLOCATE_MODE in wanted:
        families.append(_allocate_mode(attribution, options))
    if wanted & _CONTAINER_NAMES:
        families += _container_families(devices, options)
    if wanted & _FRAMEBUFFER_NAMES:
        families += _framebuffer_families(devices, options)
    families += _process_families(_ILLEGAL_PROCESS, illegal, options, wanted)
    families += _process_families(_PROCESS, legal, options, wanted)
    return tuple(each for each in families if each.samples and each.name in wanted)


def with_ack_labels(
    readings: Sequence[GpuReading],
    counters: Iterable[Counter],
    attribution: Attribution,
    options: FamilyOptions,
) -> tuple[Family, ...]:
    """Return the `DCGM_FI_*` families with the labels that ACK's exporter gives them."""

    def series_of(reading: GpuReading) -> DeviceSeries:
        labels = {
            "Hostname": options.hostname,
            **_gpu_labels(reading, options),
            **ack_node_labels(options),
            **ack_owner_labels(sole_owner(reading, attribution)),
        }
        return DeviceSeries((DeviceLabels((), labels, {}),))

    return device_families(readings, counters, series_of, with_xid_message=False)


def _mode(owners: int) -> AllocateMode:
    if owners == 0:
        return AllocateMode.NONE
    return AllocateMode.EXCLUSIVE if owners == 1 else AllocateMode.SHARE


def _attributed(device: _Device, process: ProcessReading, attribution: Attribution) -> _Process:
    owner = attribution.by_pid.get(process.pid)
    return _Process(device, process, owner, _is_legal(owner, device, attribution))


def _is_legal(owner: ContainerRef | None, device: _Device, attribution: Attribution) -> bool:
    """Return whether a process may be on this GPU. Where no allocation is known, its container may."""
    if owner is None:
        return False
    if not attribution.by_gpu:
        return True
    return any(_may_be(owner, each) for each in (*device.owners, *attribution.unplaced))


def _may_be(owner: ContainerRef, holder: ContainerRef) -> bool:
    """Return whether two references can mean one container; one without a name means any of its pod."""
    same_pod = (owner.namespace, owner.pod) == (holder.namespace, holder.pod)
    return same_pod and (not owner.container or owner.container == holder.container)


def _gpu_labels(reading: GpuReading, options: FamilyOptions) -> dict[str, str]:
    gpu = reading.gpu
    return {
        "UUID": gpu.uuid,
        "device": gpu.device,
        "gpu": str(gpu.index),
        "modelName": model_name(reading, options),
    }


def _sorted_pairs(labels: dict[str, str]) -> LabelPairs:
    return tuple(sorted(labels.items()))


def _gauge(name: str, help_: str, samples: Iterable[Sample]) -> Family:
    return Family(f"{_PREFIX}{name}", "gauge", help_, tuple(samples))


def _allocate_mode(attribution: Attribution, options: FamilyOptions) -> Family:
    most = max((len(set(owners)) for owners in attribution.by_gpu.values()), default=0)
    has_parts = bool(attribution.grants or attribution.unplaced)
    mode = AllocateMode.SHARE if has_parts else _mode(most)
    sample = Sample((("NodeName", options.node),), mode.number)
    help_ = "How the node's GPUs are allocated: 0 not at all, 1 exclusively, 2 shared."
    return _gauge("ALLOCATE_MODE", help_, (sample,))


def _framebuffer_families(devices: Sequence[_Device], options: FamilyOptions) -> tuple[Family, ...]:
    total, allocated = [], []
    for device in devices:
        pairs = _sorted_pairs(_device_labels(device.reading, options))
        if device.grants:
            granted = _granted_part(device)
            if granted is not None:
                allocated.append(Sample(pairs, granted))
        elif device.mode is not AllocateMode.SHARE:
            allocated.append(Sample(pairs, float(device.mode is AllocateMode.EXCLUSIVE)))
        memory_mib = _total_mib(device.reading)
        if memory_mib is not None:
            total.append(Sample(pairs, memory_mib))
    return (
        _gauge("DEV_FB_ALLOCATED", "Share of the GPU's memory handed out (ratio).", allocated),
        _gauge("DEV_FB_TOTAL", "Framebuffer memory of the GPU (MiB).", total),
    )


def _granted_part(device: _Device) -> float | None:
    """Return which part of a GPU's memory is handed out; None where a grant is not known."""
    total_mib = _total_mib(device.reading)
    granted = [grant.memory_of(total_mib) for grant in device.grants.values()]
    known = [each for each in granted if each is not None]
    if not total_mib or len(known) < len(granted):
        return None
    return sum(known) / total_mib


def _device_labels(reading: GpuReading, options: FamilyOptions) -> dict[str, str]:
    return {
        **_gpu_labels(reading, options),
        **ack_node_labels(options),
        "DriverVersion": str(reading.values.get("DCGM_FI_DRIVER_VERSION", "")),
        "SupportDCGM": "Yes",
    }


def _total_mib(reading: GpuReading) -> int | None:
    total = reading.values.get("DCGM_FI_DEV_FB_TOTAL")
    return None if total is None else int(total)


def _container_families(devices: Sequence[_Device], options: FamilyOptions) -> tuple[Family, ...]:
    compute, memory = [], []
    for device in devices:
        is_exclusive = device.mode is AllocateMode.EXCLUSIVE
        memory_mib = _total_mib(device.reading)
        for owner in device.owners:
            pairs = _sorted_pairs(_container_labels(device, owner, options))
            grant = device.grants.get(owner)
            if grant is None:
                compute.append(Sample(pairs, float(is_exclusive)))
                granted_mib = memory_mib if is_exclusive else None
            else:
                compute.append(Sample(pairs, (grant.cores_percent or 0.0) / 100))
                granted_mib = grant.memory_of(memory_mib)
            if granted_mib is not None:
                memory.append(Sample(pairs, granted_mib))
    return (
        _gauge("CONTAINER_CP_ALLOCATED", "Share of the GPU's compute granted (ratio).", compute),
        _gauge("CONTAINER_MEM_ALLOCATED", "GPU memory granted to the container (MiB).", memory),
    )


def _container_labels(
    device: _Device, owner: ContainerRef | None, options: FamilyOptions
) -> dict[str, str]:
    return {
        **_gpu_labels(device.reading, options),
        **ack_node_labels(options),
        "AllocateMode": device.mode.text,
        "ContainerName": owner.container if owner else "",
        "NamespaceName": owner.namespace if owner else "",
        "PodName": owner.pod if owner else "",
    }


_PROCESS_VALUES: tuple[tuple[str, str, Callable[[ProcessReading], int | None]], ...] = (
    ("DECODE_UTIL", "Use of the video decoder (%)", lambda process: process.decode_util),
    ("ENCODE_UTIL", "Use of the video encoder (%)", lambda process: process.encode_util),
    ("MEM_COPY_UTIL", "Use of the memory interface (%)", lambda process: process.mem_copy_util),
    ("MEM_USED", "GPU memory held (MiB)", lambda process: process.memory_used_mib),
    ("SM_UTIL", "Use of the streaming multiprocessors (%)", lambda process: process.sm_util),
)


def _process_names(prefix: str) -> frozenset[str]:
    return frozenset(f"{_PREFIX}{prefix}_{name}" for name, _, _ in _PROCESS_VALUES)


ALL_NAMES = (
    frozenset({_ALLOCATE_MODE})
    | _CONTAINER_NAMES
    | _FRAMEBUFFER_NAMES
    | _process_names(_PROCESS)
    | _process_names(_ILLEGAL_PROCESS)
)


def _process_families(
    prefix: str, processes: Sequence[_Process], options: FamilyOptions, wanted: frozenset[str]
) -> tuple[Family, ...]:
    if not processes or wanted.isdisjoint(_process_names(prefix)):
        return ()
    whose = "a process" if prefix == _PROCESS else "a process that did not ask the scheduler"
    labelled = [(_process_labels(each, options), each.process) for each in processes]
    return tuple(
        _gauge(
            f"{prefix}_{name}",
            f"{meaning} of {whose}.",
            (
                Sample(pairs, value)
                for pairs, process in labelled
                if (value := value_of(process)) is not None
            ),
        )
        for name, meaning, value_of in _PROCESS_VALUES
        if f"{_PREFIX}{prefix}_{name}" in wanted
    )


def _process_labels(each: _Process, options: FamilyOptions) -> LabelPairs:
    return _sorted_pairs(
        {
            **_container_labels(each.device, each.owner, options),
            "ProcessId": str(each.process.pid),
            "ProcessName": each.process.name,
            "ProcessType": _COMPUTE_PROCESS,
        }
    )
