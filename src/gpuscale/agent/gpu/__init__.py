"""GPU fields, counters files, readings, readers, and readings as metric families."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.agent.gpu.model_table import MODELS
    from gpuscale.agent.gpu.models import PCIE_4, GpuModel, expected_models, find_model
    from gpuscale.agent.gpu.owners import Attribution, ContainerRef
    from gpuscale.agent.gpu.reader import CallStats, GpuReader
    from gpuscale.agent.gpu.readings import (
        EventCount,
        GpuIdentity,
        GpuInstance,
        GpuReading,
        ProcessReading,
    )
    from gpuscale.agent.gpu.simulated import GpuWork, SimulatedReader, mean_power_w
else:
    __getattr__ = door(__name__)

__all__ = [
    "MODELS",
    "PCIE_4",
    "Attribution",
    "CallStats",
    "ContainerRef",
    "EventCount",
    "GpuIdentity",
    "GpuInstance",
    "GpuModel",
    "GpuReader",
    "GpuReading",
    "GpuWork",
    "ProcessReading",
    "SimulatedReader",
    "expected_models",
    "find_model",
    "mean_power_w",
]
