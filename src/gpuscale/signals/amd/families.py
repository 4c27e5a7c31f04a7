"""The families that ROCm's device-metrics-exporter serves of AMD GPUs: names, help texts, keys of readings.

Source: ROCm device-metrics-exporter 1.5, pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from gpuscale.signals.amd.values import (
    AMD_CALLS,
    POWER_FAMILY,
    POWER_KEYS,
    PROCESS_FAMILY,
    AmdValue,
)

NODES_FAMILY = "gpu_nodes_total"
OTHER_MEANINGS = {
    NODES_FAMILY: "GPUs on the node.",
    POWER_FAMILY: "Power draw of the GPU (W).",
    PROCESS_FAMILY: "Part of the GPU's compute units that a process occupies (%).",
}
"""Of the families that are not one value each."""

_CLOCK_MEANINGS = {
    "gpu_clock": "current clock",
    "gpu_min_clock": "lowest clock",
    "gpu_max_clock": "highest clock",
}


def _by_family() -> Mapping[str, Sequence[AmdValue]]:
    values: dict[str, list[AmdValue]] = {}
    for call in AMD_CALLS:
        for value in call.values:
            values.setdefault(value.family, []).append(value)
    return values


AMD_FAMILIES = _by_family()


def amd_family_meanings() -> Mapping[str, str]:
    """Return all families' help texts, by name."""
    texts = {name: family_meaning(values[0]) for name, values in AMD_FAMILIES.items()}
    return dict(sorted({**texts, **OTHER_MEANINGS}.items()))


@lru_cache(maxsize=1)
def amd_families_of_keys() -> Mapping[str, str]:
    """Return the family for each AMD key in `GpuReading.values`."""
    keys = {value.key: value.family for call in AMD_CALLS for value in call.values}
    return MappingProxyType({**keys, **dict.fromkeys(POWER_KEYS, POWER_FAMILY)})


def family_meaning(value: AmdValue) -> str:
    """Return the help text of a value's family."""
    meaning = _CLOCK_MEANINGS.get(value.family, value.meaning)
    unit = f" ({value.unit})" if value.unit else ""
    return f"{meaning[0].upper()}{meaning[1:]}{unit}."
