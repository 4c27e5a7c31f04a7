"""What each container used of each GPU, as families.

The samples of one GPU add up to its device value, over the same time. A sample without pod labels is what no
container is known to have used.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuscale.attribution.processes.shares import Share
from gpuscale.exposition.families import Family, Sample
from gpuscale.formats.labels import FamilyOptions, LabelPairs, leading_labels, pod_attributes
from gpuscale.gpu.owners import Attribution
from gpuscale.gpu.readings import GpuReading

SharesOf = Callable[[GpuReading, Attribution], Sequence[Share]]

UTILIZATION = "gpuscale_container_gpu_utilization_percent"
UTILIZATION_ERROR = "gpuscale_container_gpu_utilization_standard_error_percent"
MEMORY_USED = "gpuscale_container_gpu_memory_used_bytes"
ERROR_HELP = "Standard error of that part where the driver samples who runs (%)."
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class GpuShares:
    """One GPU with what its containers used of it."""

    reading: GpuReading
    shares: tuple[Share, ...]


def shares_of(
    readings: Sequence[GpuReading], attribution: Attribution, split: SharesOf
) -> tuple[GpuShares, ...]:
    """Return the shares of every GPU that was read."""
    present = (reading for reading in readings if not reading.is_lost)
    return tuple(GpuShares(each, tuple(split(each, attribution))) for each in present)


def container_families(gpus: Sequence[GpuShares], options: FamilyOptions) -> tuple[Family, ...]:
    """Return the families of containers, those without a sample left out."""
    rows = [(share, _labels(gpu.reading, share, options)) for gpu in gpus for share in gpu.shares]
    util = tuple(Sample(labels, share.sm_util) for share, labels in rows)
    errors = tuple(
        Sample(labels, round(share.standard_error, 1))
        for share, labels in rows
        if share.standard_error is not None
    )
    memory = tuple(
        Sample(labels, share.memory_used_mib * _MIB)
        for share, labels in rows
        if share.memory_used_mib is not None
    )
    families = (
        Family(UTILIZATION, "gauge", "Part of the GPU's utilization (%).", util),
        Family(UTILIZATION_ERROR, "gauge", ERROR_HELP, errors),
        Family(MEMORY_USED, "gauge", "Part of the GPU's used memory (bytes).", memory),
    )
    return tuple(family for family in families if family.samples)


def _labels(reading: GpuReading, share: Share, options: FamilyOptions) -> LabelPairs:
    attributes = pod_attributes(share.container, options)
    names = options.hostname_labels or (("hostname",) if options.names == "4.9" else ("Hostname",))
    return (*leading_labels(reading, options, names), *sorted(attributes.items()))
