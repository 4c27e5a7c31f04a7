"""Load on a real NVIDIA GPU: busy for a share of the time, with memory held, through the driver alone."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.load.gpu.counted import open_counter
    from gpuscale.load.gpu.driver import CudaDriver
    from gpuscale.load.gpu.holding import HeldGpu, hold
    from gpuscale.load.gpu.plan import ChosenGpu, GpuPlan, choose
    from gpuscale.load.gpu.result import gpu_document, gpu_text, gpu_timeline, gpu_totals
else:
    __getattr__ = door(__name__)

__all__ = [
    "ChosenGpu",
    "CudaDriver",
    "GpuPlan",
    "HeldGpu",
    "choose",
    "gpu_document",
    "gpu_text",
    "gpu_timeline",
    "gpu_totals",
    "hold",
    "open_counter",
]
