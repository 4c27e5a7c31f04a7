"""NVIDIA GPUs through NVML, the driver's management library: cheap calls often, slow calls seldom."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.agent.nvml.library import Answer, Handle, load_library
    from gpuscale.agent.nvml.reader import NvmlReader
    from gpuscale.agent.nvml.settings import NvmlSettings
else:
    __getattr__ = door(__name__)

__all__ = ["Answer", "Handle", "NvmlReader", "NvmlSettings", "load_library"]
