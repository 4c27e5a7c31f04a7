"""Readings of AMD GPUs as the metric families that ROCm's device-metrics-exporter serves.

Names, units and labels are its own; all families are gauges there, counters too. A label that has nothing
to say is there, and empty. A GPU that several pods share names none of them, as in `agent.formats.dcgm`.

Differences: `clock_index` counts the two clocks that are read, where upstream counts every clock domain;
no computed health; only the families of `sources` and the three that are made here.

Source: ROCm device-metrics-exporter 1.5, pkg/amdgpu/gpuagent/gpuagent_gpu_metrics.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gpuscale.base.exposition.families import Family, Sample
from gpuscale.signals.amd import (
    AMD_FAMILIES,
    NODES_FAMILY,
    OTHER_MEANINGS,
    POWER_FAMILY,
    POWER_KEYS,
    PROCESS_FAMILY,
    PROCESS_PREFIX,
    AmdValue,
    family_meaning,
)

if TYPE_CHECKING:
    from gpuscale.agent.formats.labels import FamilyOptions
    from gpuscale.agent.gpu.owners import Attribution
    from gpuscale.agent.gpu.readings import GpuReading

_DEPLOYMENT_MODES = {"HOST": "hypervisor", "GUEST": "vm_vf", "PASSTHROUGH": "vm_pf"}
_Labelled = tuple["GpuReading", Mapping[str, str]]


def amd_families(
    readings: Sequence["GpuReading"], attribution: "Attribution", options: "FamilyOptions"
) -> tuple[Family, ...]:
    """Return AMD's own families that have a value; none for readings of other GPUs."""
    devices = [
        (reading, _labels(reading, attribution, options))
        for reading in readings
        if any(key.startswith("amd:") for key in reading.values)
    ]
    if not devices:
        return ()
    node = Sample((("hostname", options.hostname),), len(readings))
    families = (
        Family(NODES_FAMILY, "gauge", OTHER_MEANINGS[NODES_FAMILY], (node,)),
        *(_family(name, values, devices) for name, values in AMD_FAMILIES.items()),
        Family(POWER_FAMILY, "gauge", OTHER_MEANINGS[POWER_FAMILY], tuple(_power(devices))),
        Family(PROCESS_FAMILY, "gauge", OTHER_MEANINGS[PROCESS_FAMILY], tuple(_processes(devices))),
    )
    return tuple(sorted((each for each in families if each.samples), key=lambda each: each.name))


def _family(name: str, values: Sequence[AmdValue], devices: Iterable[_Labelled]) -> Family:
    samples = tuple(
        Sample(_pairs(labels, value.labels), number)
        for reading, labels in devices
        for value in values
        if (number := _number(reading, value.key)) is not None
    )
    return Family(name, "gauge", family_meaning(values[0]), samples)


def _power(devices: Iterable[_Labelled]) -> Iterable[Sample]:
    for reading, labels in devices:
        found = (_number(reading, key) for key in POWER_KEYS)
        watts = next((value for value in found if value is not None), None)
        if watts is not None:
            yield Sample(_pairs(labels), watts)


def _processes(devices: Iterable[_Labelled]) -> Iterable[Sample]:
    for reading, labels in devices:
        for key in sorted(key for key in reading.values if key.startswith(PROCESS_PREFIX)):
            number = _number(reading, key)
            if number is not None:
                process = (("process_id", key.removeprefix(PROCESS_PREFIX)),)
                yield Sample(_pairs(labels, process), number)


def _number(reading: "GpuReading", key: str) -> int | float | None:
    value = reading.values.get(key)
    return None if isinstance(value, str) else value


def _labels(
    reading: "GpuReading", attribution: "Attribution", options: "FamilyOptions"
) -> dict[str, str]:
    # `series_facts` needs the families' names only, and should not load readings and owners.
    from gpuscale.agent.formats.dcgm import sole_owner

    owner = sole_owner(reading, attribution)
    mode = _text(reading, "amd:virtualization_mode")
    labels = {
        "card_model": _text(reading, "amd:card_model") or reading.gpu.model,
        "container": owner.container if owner else "",
        "deployment_mode": _DEPLOYMENT_MODES.get(mode, "baremetal"),
        "gpu_compute_partition_type": _text(reading, "amd:compute_partition").lower() or "none",
        "gpu_id": str(reading.gpu.index),
        "gpu_memory_partition_type": _text(reading, "amd:memory_partition").lower() or "none",
        "gpu_partition_id": _text(reading, "amd:partition_id") or "NA",
        "gpu_uuid": reading.gpu.uuid,
        "hostname": options.hostname,
        **dict.fromkeys(("job_id", "job_partition", "job_user"), ""),
        "namespace": owner.namespace if owner else "",
        "pod": owner.pod if owner else "",
        "serial_number": _text(reading, "amd:serial_number"),
    }
    if options.pod_uid and owner:
        labels["pod_uuid"] = owner.pod_uid
    return labels


def _text(reading: "GpuReading", key: str) -> str:
    return str(reading.values.get(key, ""))


def _pairs(
    labels: Mapping[str, str], more: Iterable[tuple[str, str]] = ()
) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({**labels, **dict(more)}.items()))
