"""Metric families about each container's use of each GPU.

The samples of one GPU add up to its device value, over the same time. A sample without pod labels is what no
container is known to have used.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.agent.attribution.processes.shares import ContainerShare
from gpuscale.agent.formats.labels import FamilyOptions, LabelPairs, leading_labels, pod_attributes
from gpuscale.agent.gpu.owners import Attribution, ContainerRef, Grant
from gpuscale.agent.gpu.readings import GpuReading
from gpuscale.base.exposition.families import Family, Sample

SharesOf = Callable[[GpuReading, Attribution], Sequence[ContainerShare]]

UTILIZATION = "gpuscale_container_gpu_utilization_percent"
UTILIZATION_ERROR = "gpuscale_container_gpu_utilization_standard_error_percent"
MEMORY_USED = "gpuscale_container_gpu_memory_used_bytes"
ERROR_HELP = "Standard error of that part where the driver samples who runs (%)."
SWITCHING = "gpuscale_container_gpu_switching_percent"
SWITCHING_HELP = "Estimate of what of that part goes to switching between processes (%)."
MEMORY_GRANTED = "gpuscale_container_gpu_memory_granted_bytes"
MEMORY_USE = "gpuscale_container_gpu_memory_used_of_granted_ratio"
CORES_GRANTED = "gpuscale_container_gpu_cores_granted_percent"
CORES_USE = "gpuscale_container_gpu_utilization_of_granted_ratio"
_GRANT_HELPS: Mapping[str, str] = {
    MEMORY_GRANTED: "Memory that the container was given of a GPU that is handed out in parts (bytes).",
    MEMORY_USE: "Used memory, as part of the memory that was given (ratio).",
    CORES_GRANTED: "Part of the GPU's cores or time that the container was given (%).",
    CORES_USE: "Utilization, as part of the cores or time that were given (ratio).",
}
_TOTAL_FIELD = "DCGM_FI_DEV_FB_TOTAL"
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class GpuShares:
    """A GPU with its containers' use and grants."""

    reading: GpuReading
    shares: tuple[ContainerShare, ...]
    grants: Mapping[ContainerRef, Grant] = field(default_factory=dict)
    """Of containers that have a part of the GPU."""


def shares_of(
    readings: Sequence[GpuReading], attribution: Attribution, split: SharesOf
) -> tuple[GpuShares, ...]:
    """Return the shares of every GPU that was read."""
    present = (reading for reading in readings if not reading.is_lost)
    return tuple(
        GpuShares(
            each,
            tuple(split(each, attribution)),
            attribution.grants.get(each.gpu.allocated_as, {}),
        )
        for each in present
    )


def container_families(gpus: Sequence[GpuShares], options: FamilyOptions) -> tuple[Family, ...]:
    """Return the families of containers, those without a sample left out."""
    rows = [
        (share, _labels(gpu.reading, share.container, options))
        for gpu in gpus
        for share in gpu.shares
    ]
    util = tuple(Sample(labels, share.sm_util) for share, labels in rows)
    errors = tuple(
        Sample(labels, round(share.standard_error, 1))
        for share, labels in rows
        if share.standard_error is not None
    )
    switching = tuple(
        Sample(labels, round(share.switching_percent, 1))
        for share, labels in rows
        if share.switching_percent is not None
    )
    memory = tuple(
        Sample(labels, share.memory_used_mib * _MIB)
        for share, labels in rows
        if share.memory_used_mib is not None
    )
    families = (
        Family(UTILIZATION, "gauge", "Part of the GPU's utilization (%).", util),
        Family(UTILIZATION_ERROR, "gauge", ERROR_HELP, errors),
        Family(SWITCHING, "gauge", SWITCHING_HELP, switching),
        Family(MEMORY_USED, "gauge", "Part of the GPU's used memory (bytes).", memory),
    )
    return tuple(
        family for family in (*families, *_grant_families(gpus, options)) if family.samples
    )


def _grant_families(gpus: Sequence[GpuShares], options: FamilyOptions) -> tuple[Family, ...]:
    """Return the families of containers' parts of shared GPUs, and their use of them."""
    samples: dict[str, list[Sample]] = {name: [] for name in _GRANT_HELPS}
    for gpu in gpus:
        used = {share.container: share for share in gpu.shares}
        total_mib = gpu.reading.values.get(_TOTAL_FIELD)
        for ref, grant in gpu.grants.items():
            labels = _labels(gpu.reading, ref, options)
            share = used.get(ref)
            memory_mib = grant.memory_of(None if total_mib is None else int(total_mib))
            if memory_mib is not None:
                samples[MEMORY_GRANTED].append(Sample(labels, memory_mib * _MIB))
            if memory_mib and share is not None and share.memory_used_mib is not None:
                ratio = share.memory_used_mib / memory_mib
                samples[MEMORY_USE].append(Sample(labels, round(ratio, 4)))
            if grant.cores_percent is not None:
                samples[CORES_GRANTED].append(Sample(labels, grant.cores_percent))
            if grant.cores_percent and share is not None:
                ratio = share.sm_util / grant.cores_percent
                samples[CORES_USE].append(Sample(labels, round(ratio, 4)))
    return tuple(
        Family(name, "gauge", help_, tuple(samples[name])) for name, help_ in _GRANT_HELPS.items()
    )


def _labels(
    reading: GpuReading, container: ContainerRef | None, options: FamilyOptions
) -> LabelPairs:
    attributes = pod_attributes(container, options)
    names = options.hostname_labels or (("hostname",) if options.names == "4.9" else ("Hostname",))
    return (*leading_labels(reading, options, names), *sorted(attributes.items()))
