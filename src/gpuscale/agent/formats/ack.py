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
    """A GPU with its owners."""

    reading: GpuReading
    owners: tuple[ContainerRef, ...]
    grants: Mapping[ContainerRef, Grant]

    @property
    def mode(self) -> AllocateMode:
        return AllocateMode.SHARE if self.grants else _mode(len(self.owners))


@dataclass(frozen=True, slots=True)
class _Process:
    """A process on a GPU, with its container if known."""

    device: _Device
    process: ProcessReading
    owner: ContainerRef | None


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
    legal: list[_Process] = []
    illegal: list[_Process] = []
    for device in devices:
        for process in device.reading.processes:
            if process.pid in attribution.unknown_pids:
                continue
            owner = attribution.by_pid.get(process.pid)
            is_legal = _is_legal(owner, device, attribution)
            (legal if is_legal else illegal).append(_Process(device, process, owner))
    families: list[Family] = []
    if _ALLOCATE_MODE in wanted:
        most = max((len(set(owners)) for owners in attribution.by_gpu.values()), default=0)
        has_parts = bool(attribution.grants or attribution.unplaced)
        mode = AllocateMode.SHARE if has_parts else _mode(most)
        help_ = "How the node's GPUs are allocated: 0 not at all, 1 exclusively, 2 shared."
        sample = Sample((("NodeName", options.node),), mode.number)
        families.append(_gauge("ALLOCATE_MODE", help_, (sample,)))
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


def _is_legal(owner: ContainerRef | None, device: _Device, attribution: Attribution) -> bool:
    """Return whether a process may use this GPU; without a known allocation, its container may."""
    if owner is None:
        return False
    if not attribution.by_gpu:
        return True
    return any(_may_be(owner, each) for each in (*device.owners, *attribution.unplaced))


def _may_be(owner: ContainerRef, holder: ContainerRef) -> bool:
    """Return whether two references may mean the same container; one without a name means any of its pod."""
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


def _framebuffer_families(devices: Sequence[_Device], options: FamilyOptions) -> tuple[Family, ...]:
    total, allocated = [], []
    for device in devices:
        driver = device.reading.values.get("DCGM_FI_DRIVER_VERSION", "")
        pairs = _sorted_pairs(
            {
                **_gpu_labels(device.reading, options),
                **ack_node_labels(options),
                "DriverVersion": str(driver),
                "SupportDCGM": "Yes",
            }
        )
        memory_mib = _total_mib(device.reading)
        if device.grants:
            granted = [grant.memory_of(memory_mib) for grant in device.grants.values()]
            known = [each for each in granted if each is not None]
            if memory_mib and len(known) == len(granted):
                allocated.append(Sample(pairs, sum(known) / memory_mib))
        elif device.mode is not AllocateMode.SHARE:
            allocated.append(Sample(pairs, float(device.mode is AllocateMode.EXCLUSIVE)))
        if memory_mib is not None:
            total.append(Sample(pairs, memory_mib))
    return (
        _gauge("DEV_FB_ALLOCATED", "Share of the GPU's memory handed out (ratio).", allocated),
        _gauge("DEV_FB_TOTAL", "Framebuffer memory of the GPU (MiB).", total),
    )


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
    labelled = []
    for each in processes:
        labels = {
            **_container_labels(each.device, each.owner, options),
            "ProcessId": str(each.process.pid),
            "ProcessName": each.process.name,
            "ProcessType": _COMPUTE_PROCESS,
        }
        labelled.append((_sorted_pairs(labels), each.process))
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
