"""GPU resources: which names mean whole GPUs, parts of GPUs, or amounts of one.

| who hands GPUs out | a pod asks for |
| --- | --- |
| device plugins of vendors | `nvidia.com/gpu`, `amd.com/gpu`, `gpu.intel.com/xe` and others |
| MIG, strategy mixed; AMD's compute partitions | `nvidia.com/mig-1g.5gb`, `amd.com/cpx_nps4` |
| time-slicing and MPS | `nvidia.com/gpu`, or `nvidia.com/gpu.shared` where `renameByDefault` is on |
| HAMi | `nvidia.com/gpu` with `nvidia.com/gpumem`, `gpumem-percentage`, `gpucores`, `priority` |
| Volcano vGPU | `volcano.sh/vgpu-number` with `vgpu-memory`, `vgpu-cores` |
| ACK gpushare, cGPU | `aliyun.com/gpu-mem`, with `gpu-core.percentage` and `gpu-count` |
| Koordinator, Tencent | hundredths: `koordinator.sh/gpu-core`, `tencent.com/vcuda-core` |
| KAI, Run:ai | annotation `gpu-fraction` or `gpu-memory`; Run:ai's label of older releases too |
| dynamic resource allocation | `resourceClaims`, or any resource that a DeviceClass names |

Source: NVIDIA k8s-device-plugin 0.20 (README, internal/rm), ROCm k8s-device-plugin, intel-device-plugins
    gpu_plugin, HAMi 2.7 pkg/device/nvidia, volcano-vgpu-device-plugin pkg/plugin/vgpu, gpushare-device-plugin
    pkg/gpu/nvidia, koordinator apis/extension/resource.go, KAI-Scheduler pkg/common/constants,
    cluster-autoscaler utils/gpu, resource.k8s.io/v1 DeviceClass (extendedResourceName, 1.37).
"""

import re
from collections.abc import Mapping
from enum import Enum, auto


class GpuKind(Enum):
    """The meaning of one unit of a resource."""

    WHOLE = auto()
    """A GPU; under time-slicing, MPS and HAMi a turn on one, which the name does not say."""
    PARTITION = auto()
    """A part of a GPU with memory and cores of its own."""
    SHARE = auto()
    """A turn on a GPU, by a name of its own."""
    UNITS = auto()
    """A unit of a GPU's memory or time; a pod that asks for some has part of a GPU."""
    QUALIFIER = auto()
    """How much of the GPUs that are asked for beside it; no scheduler of Kubernetes' own counts it."""


WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu")
"""What simulated nodes offer."""
_COUNTED = (GpuKind.WHOLE, GpuKind.PARTITION, GpuKind.SHARE)
_EXACT = {
    **dict.fromkeys(WHOLE_GPUS, GpuKind.WHOLE),
    **dict.fromkeys(
        (
            *("aliyun.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi"),
            *("microsoft.com/directx", "metax-tech.com/gpu", "iluvatar.ai/gpu", "mthreads.com/gpu"),
        ),
        GpuKind.WHOLE,
    ),
    **dict.fromkeys(("volcano.sh/vgpu-number", "volcano.sh/gpu-number"), GpuKind.SHARE),
    **dict.fromkeys(
        (
            *("aliyun.com/gpu-mem", "volcano.sh/gpu-memory", "tencent.com/vcuda-core"),
            *("tke.cloud.tencent.com/qgpu-core", "koordinator.sh/gpu", "koordinator.sh/gpu-core"),
        ),
        GpuKind.UNITS,
    ),
    **dict.fromkeys(
        (
            *("aliyun.com/gpu-core.percentage", "aliyun.com/gpu-count", "nvidia.com/priority"),
            *("nvidia.com/gpucores", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage"),
            *(
                "volcano.sh/vgpu-cores",
                "volcano.sh/vgpu-memory",
                "volcano.sh/vgpu-memory-percentage",
            ),
            *("tencent.com/vcuda-memory", "tke.cloud.tencent.com/qgpu-memory"),
            *("koordinator.sh/gpu-memory", "koordinator.sh/gpu-memory-ratio"),
            *("gpu.intel.com/millicores", "gpu.intel.com/memory.max", "gpu.intel.com/tiles"),
        ),
        GpuKind.QUALIFIER,
    ),
}
_BY_FORM: tuple[tuple[str, GpuKind | None], ...] = (
    (
        r"gpu\.intel\.com/\w+_monitoring",
        None,
    ),  # access to all GPUs of a node, without owning one
    (r".+/.+\.shared", GpuKind.SHARE),
    (r"nvidia\.com/mig-.+|amd\.com/[sdtqc]px_.+", GpuKind.PARTITION),
    # Plug-ins may rename resources: `nvidia.com/gpu-a100`, `nvidia.com/vgpu`.
    (r"(nvidia|amd)\.com/.*gpu.*|.+/(.*\W)?[vp]?gpus?([\W_].*)?", GpuKind.WHOLE),
)
_NAMES = "|".join(
    [
        *map(re.escape, _EXACT),
        *(form for form, kind in _BY_FORM if kind not in (None, GpuKind.SHARE)),
    ]
)
GPU_PATTERN = rf"({_NAMES})(\.shared)?"
"""A regular expression, RE2's too, for the names that `gpu_kind` knows."""
_IMPLICIT_CLASS = "deviceclass.resource.kubernetes.io/"
_FRACTION_KEYS = ("gpu-fraction", "gpu-memory", "runai-gpu-group", "runai/gpu-fraction")


def gpu_kind(resource: str) -> GpuKind | None:
    """Return the meaning of one unit of a resource; None if it is unrelated to GPUs."""
    if resource in _EXACT:
        return _EXACT[resource]
    found = next((kind for form, kind in _BY_FORM if re.fullmatch(form, resource)), None)
    if found is GpuKind.SHARE:
        return found if gpu_kind(resource.removesuffix(".shared")) is not None else None
    return found


def counts_gpus(resource: str) -> bool:
    """Return whether a resource counts GPUs, partitions or shares of them; amounts of memory do not."""
    return gpu_kind(resource) in _COUNTED


def has_fraction(annotations: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether a pod asks for a part of a GPU by KAI's and Run:ai's annotations, or their labels."""
    return any(key in annotations or key in labels for key in _FRACTION_KEYS)


def class_resources(name: str, extended: str) -> tuple[str, ...]:
    """Return the resources that a DeviceClass serves by claims, without a device plugin.

    Args:
        name: of the class.
        extended: its `spec.extendedResourceName`; empty for none.
    """
    return (f"{_IMPLICIT_CLASS}{name}", *((extended,) if extended else ()))


def shares_by(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """Return whether a node counts one GPU as several or in parts, according to its labels."""
    if any(key.startswith("hami.io/node-") for key in annotations):
        return True
    return any(_says_shared(key, value) for key, value in labels.items())


def _says_shared(key: str, value: str) -> bool:
    match key:
        case "nvidia.com/gpu.sharing-strategy" | "cloud.google.com/gke-gpu-sharing-strategy":
            return value not in ("", "none")
        case "nvidia.com/gpu.replicas" | "cloud.google.com/gke-max-shared-clients-per-gpu":
            return value not in ("", "0", "1")
        case "ack.node.gpu.schedule" | "gpushare":
            return value not in ("", "default", "topology", "false")
        case "nvidia.com/mig.config":
            return value not in ("", "all-disabled")
    # For a split GPU, NVIDIA's discovery counts its instances (strategy mixed) or the slices of
    # each (single).
    return key.startswith(
        ("nvidia.com/mig-", "nvidia.com/gpu.slices.", "cloud.google.com/gke-gpu-partition-size")
    )
