"""Signals of GPUs, from the node agent or dcgm-exporter, and in Alibaba Cloud's words."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from gpuscale.signals.signal import Signal

SignalName = Literal[
    "gpu-utilization",
    "gpu-memory",
    "graphics-engine",
    "gpu-share",
    "ack-sm-utilization",
    "ack-memory-ratio",
]

_GPU_SIGNALS: dict[SignalName, Signal] = {
    "gpu-utilization": Signal(
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_DEV_GPU_UTIL",
        "%",
        60,
        what="share of the time in which the GPU ran anything",
        why="leaves room for the load that comes while a pod starts",
    ),
    "gpu-memory": Signal(
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_FB_USED",
        "MiB",
        12_000,
        what="memory in use of the GPU",
        why="three quarters of a GPU with 16 GiB",
    ),
    "graphics-engine": Signal(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "ratio",
        0.6,
        what="activity of the GPU's engines, also of MIG instances",
        why="as of GPU utilization",
    ),
    "gpu-share": Signal(
        "gpuscale_container_gpu_utilization_percent",
        "gpuscale_container_gpu_utilization_percent",
        "%",
        40,
        aggregate="sum",
        of_processes=True,
        what="what a container uses of a shared GPU",
        why="two pods on a GPU leave it a fifth of its time",
    ),
    "ack-sm-utilization": Signal(
        "DCGM_CUSTOM_PROCESS_SM_UTIL",
        "DCGM_CUSTOM_PROCESS_SM_UTIL",
        "%",
        20,
        of_processes=True,
        is_alibabas=True,
        what="GPU use of a container, in Alibaba's words",
        why="the target of Alibaba Cloud's guide",
    ),
    "ack-memory-ratio": Signal(
        "DCGM_CUSTOM_PROCESS_GPU_MEM_USED_RATIO",
        "DCGM_CUSTOM_PROCESS_MEM_USED",
        "ratio",
        0.7,
        aggregate="sum",
        divisor="DCGM_CUSTOM_CONTAINER_MEM_ALLOCATED",
        of_processes=True,
        is_alibabas=True,
        what="used part of the GPU memory that a container was given, in Alibaba's words",
        why="leaves room for a batch that is larger than usual",
    ),
}
GPU_SIGNALS: Mapping[SignalName, Signal] = MappingProxyType(_GPU_SIGNALS)


def pod_labels(signal: Signal, *, honor_labels: bool) -> tuple[str, str]:
    """Return the labels that say namespace and pod of the workload, as Prometheus stores them."""
    if signal.is_alibabas:
        return "NamespaceName", "PodName"
    # A pod's own metrics have no such labels, so that those of the scrape are kept.
    is_kept = honor_labels or not signal.is_of_gpus
    return ("namespace", "pod") if is_kept else ("exported_namespace", "exported_pod")
