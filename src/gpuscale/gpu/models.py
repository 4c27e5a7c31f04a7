"""GPU models that can be simulated.

Power limits, top clocks, memory generation and PCIe generation are meant to be those of NVIDIA's public
data sheets for the Tesla K80, Tesla V100 (SXM2, 16 GB), T4, A10, A100 (SXM4, 80 GB), L4, H100 (SXM5) and
H200. A K80 board holds two GPUs; its figures here are per GPU, as the driver shows them. Memory sizes are
what drivers report, in MiB.

Data sheets do not give what is reserved by the driver, idle draw, idle clocks, temperatures in a server
or how fast a heat sink warms up. Those are typical values, to be read as orders of magnitude. So is the
reserved memory, except for the H200's, which was measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """What a simulated GPU needs to know of its hardware."""

    name: str
    """Marketing name, as NVML gives it."""
    memory_mib: int
    """Framebuffer, the reserved part included."""
    reserved_mib: int
    """Kept by the driver; changes from one driver release to the next."""
    idle_power_w: float
    max_power_w: float
    idle_sm_clock_mhz: int
    max_sm_clock_mhz: int
    idle_memory_clock_mhz: int
    """HBM keeps its clock when idle, GDDR drops it."""
    memory_clock_mhz: int
    idle_temp_c: float
    max_temp_c: float
    """Where the core settles at full power."""
    thermal_time_constant_s: float
    """Time to get 63 % of the way to a new temperature."""
    pcie_bytes_per_s: float
    """What the slot carries in one direction."""
    has_profiling: bool = True
    """Has the counters behind `DCGM_FI_PROF_*` (Volta and newer)."""
    has_energy_counter: bool = True
    """Adds up its energy in hardware (Volta and newer)."""
    has_memory_sensor: bool = False
    """Reports the memory's temperature (HBM)."""
    has_nvlink: bool = False
    has_row_remapping: bool = False
    """Remaps bad memory rows (Ampere and newer); older GPUs retire pages instead."""


_PCIE_3 = 15.75e9
_PCIE_4 = 31.5e9
_PCIE_5 = 63.0e9

_ALL = (
    GpuModel(
        name="Tesla K80",
        memory_mib=11_441,
        reserved_mib=0,
        idle_power_w=27,
        max_power_w=149,
        idle_sm_clock_mhz=324,
        max_sm_clock_mhz=875,
        idle_memory_clock_mhz=324,
        memory_clock_mhz=2505,
        idle_temp_c=32,
        max_temp_c=78,
        thermal_time_constant_s=60,
        pcie_bytes_per_s=_PCIE_3,
        has_profiling=False,
        has_energy_counter=False,
    ),
    GpuModel(
        name="Tesla V100-SXM2-16GB",
        memory_mib=16_384,
        reserved_mib=224,
        idle_power_w=40,
        max_power_w=300,
        idle_sm_clock_mhz=135,
        max_sm_clock_mhz=1530,
        idle_memory_clock_mhz=877,
        memory_clock_mhz=877,
        idle_temp_c=33,
        max_temp_c=70,
        thermal_time_constant_s=40,
        pcie_bytes_per_s=_PCIE_3,
        has_memory_sensor=True,
        has_nvlink=True,
    ),
    GpuModel(
        name="Tesla T4",
        memory_mib=15_360,
        reserved_mib=256,
        idle_power_w=9,
        max_power_w=70,
        idle_sm_clock_mhz=300,
        max_sm_clock_mhz=1590,
        idle_memory_clock_mhz=405,
        memory_clock_mhz=5001,
        idle_temp_c=34,
        max_temp_c=78,
        thermal_time_constant_s=50,
        pcie_bytes_per_s=_PCIE_3,
    ),
    GpuModel(
        name="NVIDIA A10",
        memory_mib=23_028,
        reserved_mib=512,
        idle_power_w=16,
        max_power_w=150,
        idle_sm_clock_mhz=210,
        max_sm_clock_mhz=1695,
        idle_memory_clock_mhz=405,
        memory_clock_mhz=6251,
        idle_temp_c=32,
        max_temp_c=74,
        thermal_time_constant_s=50,
        pcie_bytes_per_s=_PCIE_4,
        has_row_remapping=True,
    ),
    GpuModel(
        name="NVIDIA A100-SXM4-80GB",
        memory_mib=81_920,
        reserved_mib=640,
        idle_power_w=60,
        max_power_w=400,
        idle_sm_clock_mhz=210,
        max_sm_clock_mhz=1410,
        idle_memory_clock_mhz=1593,
        memory_clock_mhz=1593,
        idle_temp_c=32,
        max_temp_c=68,
        thermal_time_constant_s=40,
        pcie_bytes_per_s=_PCIE_4,
        has_memory_sensor=True,
        has_nvlink=True,
        has_row_remapping=True,
    ),
    GpuModel(
        name="NVIDIA L4",
        memory_mib=23_034,
        reserved_mib=512,
        idle_power_w=12,
        max_power_w=72,
        idle_sm_clock_mhz=210,
        max_sm_clock_mhz=2040,
        idle_memory_clock_mhz=405,
        memory_clock_mhz=6251,
        idle_temp_c=34,
        max_temp_c=78,
        thermal_time_constant_s=50,
        pcie_bytes_per_s=_PCIE_4,
        has_row_remapping=True,
    ),
    GpuModel(
        name="NVIDIA H100 80GB HBM3",
        memory_mib=81_559,
        reserved_mib=560,
        idle_power_w=70,
        max_power_w=700,
        idle_sm_clock_mhz=345,
        max_sm_clock_mhz=1980,
        idle_memory_clock_mhz=2619,
        memory_clock_mhz=2619,
        idle_temp_c=30,
        max_temp_c=72,
        thermal_time_constant_s=35,
        pcie_bytes_per_s=_PCIE_5,
        has_memory_sensor=True,
        has_nvlink=True,
        has_row_remapping=True,
    ),
    GpuModel(
        name="NVIDIA H200",
        memory_mib=143_771,
        reserved_mib=615,
        idle_power_w=75,
        max_power_w=700,
        idle_sm_clock_mhz=345,
        max_sm_clock_mhz=1980,
        idle_memory_clock_mhz=3201,
        memory_clock_mhz=3201,
        idle_temp_c=30,
        max_temp_c=72,
        thermal_time_constant_s=35,
        pcie_bytes_per_s=_PCIE_5,
        has_memory_sensor=True,
        has_nvlink=True,
        has_row_remapping=True,
    ),
)

MODELS: Mapping[str, GpuModel] = MappingProxyType({model.name: model for model in _ALL})
"""Every model that can be simulated, by marketing name."""
