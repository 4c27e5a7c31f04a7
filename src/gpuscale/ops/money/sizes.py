"""Whole GPUs of which pods never use more than a part: by the highest memory and SMs that were recorded."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpuscale.hpa.cluster.catalogue import ListedType

_MOST_SMS = 1 / 3
"""Share of the SMs, above which a part of a GPU is not advised."""
_FULL = 0.9
"""Of a smaller memory, that the highest use may fill."""
_PROFILES = {7: {"1g": (1, 1 / 8), "2g": (2, 2 / 8), "3g": (3, 4 / 8)}, 4: {"1g": (1, 1 / 4)}}
"""By a GPU's slices: those of a profile, and its share of the memory. Source: NVIDIA MIG User Guide."""


@dataclass(frozen=True, slots=True)
class GpuSize:
    """What a GPU model has."""

    memory_mib: float
    mig_slices: int
    """0 where it has no MIG."""


@dataclass(slots=True)
class Peak:
    """The most that pods of a workload used, with whole GPUs of one model."""

    memory_mib: float = 0.0
    """Of a GPU."""
    sms: float | None = None
    """Share of a GPU's SMs that were busy; None where nothing recorded it."""
    gpus: int = 0
    """Of a pod."""
    types: set[str] = field(default_factory=set)
    """Instance types of their nodes."""


@dataclass(frozen=True, slots=True)
class Smaller:
    """Something smaller that would hold what a workload uses."""

    namespace: str
    workload: str
    gpu: str
    peak: Peak
    to: str
    """A MIG profile such as `1g`, or an instance type."""
    is_mig: bool
    memory_mib: float
    """That a GPU, or a part of one, has there."""
    says: str


def smaller(
    peaks: Mapping[tuple[str, str, str], Peak],
    sizes: Mapping[str, GpuSize],
    types: Mapping[str, ListedType],
) -> Iterator[Smaller]:
    """Yield what would do with less: a MIG profile, or a cheaper type with less GPU memory.

    Args:
        peaks: by namespace, workload and GPU model.
        sizes: by GPU model; what is not there is passed over.
        types: with prices, by name.
    """
    for (namespace, workload, gpu), peak in sorted(peaks.items()):
        size = sizes.get(gpu)
        if size is None or not peak.memory_mib:
            continue
        used = f"at most {peak.memory_mib / 1024:.1f} of {size.memory_mib / 1024:.0f} GiB"
        if peak.sms is not None:
            used += f" and {peak.sms:.0%} of the SMs"
        if (part := _profile(peak, size)) is not None:
            name, memory_mib = part
            says = f"{used} of a whole {gpu}: MIG {name} has {memory_mib / 1024:.0f} GiB"
            yield Smaller(namespace, workload, gpu, peak, name, True, memory_mib, says)
        if (kind := _type(peak, size, sizes, types)) is not None:
            memory_mib = sizes[kind.gpu_model].memory_mib
            says = (
                f"{used} of {gpu}: {kind.name} has {kind.gpu_model} with {memory_mib / 1024:.0f} GiB for "
                "less a GPU; it may be slower, so measure the latency first"
            )
            yield Smaller(namespace, workload, gpu, peak, kind.name, False, memory_mib, says)


def _profile(peak: Peak, size: GpuSize) -> tuple[str, float] | None:
    """Return the smallest MIG profile with the SMs and the memory; pods with several GPUs can't have any."""
    if peak.gpus != 1 or peak.sms is None or peak.sms > _MOST_SMS:
        return None
    for name, (slices, share) in _PROFILES.get(size.mig_slices, {}).items():
        memory_mib = size.memory_mib * share
        if peak.sms <= slices / size.mig_slices and peak.memory_mib <= _FULL * memory_mib:
            return name, memory_mib
    return None


def _type(
    peak: Peak, size: GpuSize, sizes: Mapping[str, GpuSize], types: Mapping[str, ListedType]
) -> ListedType | None:
    """Return the type with the cheapest GPU that holds the memory, in the same region and currency."""
    now = [types[each] for each in peak.types if each in types]
    if len(now) != 1 or now[0].price.per_hour is None or not now[0].whole_gpus:
        return None
    price = now[0].price
    found = [
        (each.price.per_hour / each.whole_gpus, each.name)
        for each in types.values()
        if (each.price.region, each.price.currency) == (price.region, price.currency)
        and each.price.per_hour is not None
        and each.whole_gpus >= max(1, peak.gpus)
        and each.gpu_model in sizes
        and peak.memory_mib <= _FULL * sizes[each.gpu_model].memory_mib < size.memory_mib * _FULL
    ]
    cheapest = min(found, default=None)
    if cheapest is None or cheapest[0] >= now[0].price.per_hour / now[0].whole_gpus:
        return None
    return types[cheapest[1]]
