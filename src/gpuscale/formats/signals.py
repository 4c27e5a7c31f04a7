"""What a workload can be scaled on: the series behind each signal, and what is a sensible target for it."""

from dataclasses import dataclass
from typing import Literal

SignalName = Literal[
    "gpu-utilization",
    "gpu-memory",
    "graphics-engine",
    "gpu-share",
    "ack-sm-utilization",
    "ack-memory-ratio",
]


@dataclass(frozen=True, slots=True)
class Signal:
    """One signal."""

    metric: str
    """What the custom metrics API calls it."""
    series: str
    unit: str
    target: float
    """Per pod, where the user gives none."""
    aggregate: Literal["avg", "sum"] = "avg"
    """The value of a pod with several GPUs: their mean, or their sum."""
    divisor: str | None = None
    """Series that the sum is divided by."""
    of_processes: bool = False
    """Whether it takes the host's processes to know it."""
    is_alibabas: bool = False
    """Whether it has Alibaba's labels, and takes the node agent's style `ack`."""

    @property
    def is_sum(self) -> bool:
        """Whether a pod's value adds up over its GPUs, without a bound."""
        return self.aggregate == "sum" and self.divisor is None


SIGNALS: dict[SignalName, Signal] = {
    "gpu-utilization": Signal("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL", "%", 60),
    "gpu-memory": Signal("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_USED", "MiB", 12_000),
    "graphics-engine": Signal(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "ratio", 0.6
    ),
    "gpu-share": Signal(
        "gpuscale_container_gpu_utilization_percent",
        "gpuscale_container_gpu_utilization_percent",
        "%",
        40,
        aggregate="sum",
        of_processes=True,
    ),
    "ack-sm-utilization": Signal(
        "DCGM_CUSTOM_PROCESS_SM_UTIL",
        "DCGM_CUSTOM_PROCESS_SM_UTIL",
        "%",
        20,
        of_processes=True,
        is_alibabas=True,
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
    ),
}


def pod_labels(signal: Signal, *, honor_labels: bool) -> tuple[str, str]:
    """Return the labels that say namespace and pod of the workload, as Prometheus stores them."""
    if signal.is_alibabas:
        return "NamespaceName", "PodName"
    return ("namespace", "pod") if honor_labels else ("exported_namespace", "exported_pod")
