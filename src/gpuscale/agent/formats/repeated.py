"""Series of one GPU that dcgm-exporter serves several times: for each job, and for each pod of a shared GPU.

With `--kubernetes-virtual-gpus` a GPU's series are repeated for each container that holds a share of it. Only
GPU_UTIL and FB_USED are split: the device's own sample stays without a pod, and beside it each container's
sample has what its pod's processes use, and its pod's UID.

Source: NVIDIA dcgm-exporter 4.8.2, internal/pkg/transformation (hpc.go, kubernetes.go). Difference: where the
    processes' pods can't be found out, a GPU has no samples by pod, rather than zeros.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuscale.agent.formats.labels import DeviceLabels, FamilyOptions, pod_attributes
from gpuscale.agent.gpu.owners import Attribution, ContainerRef, Holding
from gpuscale.agent.gpu.readings import GpuReading

GPU_UTIL, FB_USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"
BY_POD = frozenset({GPU_UTIL, FB_USED})
"""The fields that are split by pod."""


@dataclass(frozen=True, slots=True)
class DeviceSeries:
    """The label sets of one GPU's samples."""

    labels: tuple[DeviceLabels, ...]
    """Each sample of the GPU is served under each of them."""
    whole: tuple[DeviceLabels, ...] = ()
    """The same for the fields that are split by pod, where they are."""
    pods: tuple[tuple[DeviceLabels, Mapping[str, int]], ...] = ()
    """Label set of a container with its pod's values."""

    def of_field(self, field: str) -> tuple[DeviceLabels, ...]:
        """Return the label sets for a field of the device."""
        return self.whole if self.pods and field in BY_POD else self.labels


def device_series(
    reading: GpuReading,
    owned: DeviceLabels,
    bare: DeviceLabels,
    attribution: Attribution,
    options: FamilyOptions,
) -> DeviceSeries:
    """Return the label sets of a GPU.

    Args:
        reading: of the GPU.
        owned: its labels with its owner, where it has a single one.
        bare: its labels without one.
        attribution: who holds it, and whose its processes are.
        options: what to repeat.
    """
    jobs = options.jobs.get(job_key(reading), ())
    holdings = attribution.holdings.get(reading.gpu.allocated_as, ())
    if not options.virtual_gpus or not holdings:
        return DeviceSeries(_by_job((owned,), jobs))
    held = [(each, bare.with_attributes(_attributes(each, options))) for each in holdings]
    labels = _by_job(tuple(each for _, each in held), jobs)
    values = _values_by_pod(reading, attribution)
    if values is None:
        return DeviceSeries(labels)
    pods = tuple(
        (one, values.get(_pod(holding.container), _IDLE))
        for holding, each in held
        for one in _by_job((each.with_attributes(_uid(holding)),), jobs)
    )
    return DeviceSeries(labels, _by_job((bare,), jobs), pods)


_IDLE: Mapping[str, int] = {GPU_UTIL: 0, FB_USED: 0}


def job_key(reading: GpuReading) -> str:
    """Return the name of the file with a GPU's jobs."""
    gpu = reading.gpu
    return str(gpu.index) if gpu.instance is None else f"{gpu.index}.{gpu.instance.id}"


def _by_job(labels: tuple[DeviceLabels, ...], jobs: tuple[str, ...]) -> tuple[DeviceLabels, ...]:
    if not jobs:
        return labels
    return tuple(each.with_attributes({"hpc_job": job}) for each in labels for job in jobs)


def _attributes(holding: Holding, options: FamilyOptions) -> dict[str, str]:
    attributes = pod_attributes(holding.container, options)
    if holding.replica:
        attributes["vgpu"] = holding.replica
    return attributes


def _uid(holding: Holding) -> dict[str, str]:
    uid = holding.container.pod_uid
    return {"pod_uid": uid} if uid else {}


def _pod(container: ContainerRef) -> tuple[str, str]:
    return container.namespace, container.pod


def _values_by_pod(
    reading: GpuReading, attribution: Attribution
) -> dict[tuple[str, str], dict[str, int]] | None:
    """Return each pod's use; None if a process may belong to any pod."""
    values: dict[tuple[str, str], dict[str, int]] = {}
    for process in reading.processes:
        if process.pid in attribution.unknown_pids:
            return None
        owner = attribution.by_pid.get(process.pid)
        if owner is not None:
            of_pod = values.setdefault(_pod(owner), dict(_IDLE))
            of_pod[GPU_UTIL] += process.sm_util or 0
            of_pod[FB_USED] += process.memory_used_mib or 0
    return values
