"""What a simulated GPU needs to know of its hardware, and how a model is found by the name somebody types.

The models that are known without being described are in `agent.gpu.model_table`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gpuscale.base.words import closest

Vendor = Literal["NVIDIA", "AMD"]

_VENDOR_WORDS = re.compile(r"^(nvidia|amd)?(tesla|instinct)?")
_SURNAME = re.compile(r"^(NVIDIA |Tesla |AMD Instinct )")
"""What users leave out before a model's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """What a simulated GPU needs to know of its hardware."""

    name: str
    """Marketing name, as NVML or AMD SMI gives it."""
    aliases: tuple[str, ...] = ()
    """What people type instead, beside the name without its vendor."""
    vendor: Vendor = "NVIDIA"
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
    mig_slices: int = 0
    """Into how many instances MIG splits it at most; 0 where it has no MIG."""
    has_profiling: bool = True
    """Has the counters behind `DCGM_FI_PROF_*` (Volta and newer)."""
    has_energy_counter: bool = True
    """Adds up its energy in hardware (Volta and newer)."""
    has_memory_sensor: bool = False
    """Reports the memory's temperature (HBM)."""
    has_nvlink: bool = False
    """Cards that NVLink joins only through a bridge between two count as having none."""
    has_row_remapping: bool = False
    """Remaps bad memory rows (Ampere and newer); older GPUs retire pages instead."""

    @property
    def resource(self) -> str:
        """Return the resource that its device plugin offers pods."""
        return "amd.com/gpu" if self.vendor == "AMD" else "nvidia.com/gpu"


PCIE_3 = 15.75e9
PCIE_4 = 31.5e9
PCIE_5 = 63.0e9
PCIE_6 = 121.0e9
"""Bytes per second of 16 lanes in one direction."""


def find_model(name: str, models: Iterable[GpuModel]) -> GpuModel | None:
    """Return the model of a name or alias; case, blanks, dashes and the vendor's words don't matter.

    Where two share a name, the first counts.
    """
    key = _key(name)
    return next((model for model in models if key in map(_key, _names(model))), None)


def expected_models(name: str, models: Iterable[GpuModel]) -> str:
    """Return the likely models for an unknown name."""
    key = _key(name)
    by_key = {_key(each): model.name for model in models for each in _names(model)}
    names = list(dict.fromkeys(by_key.values()))
    begin = [each for each in names if key and _key(each).startswith(key)]
    if len(begin) > 1:
        return f"one of {', '.join(begin)}"
    close = begin[0] if begin else by_key.get(closest(key, by_key) or "")
    if close:
        return f"a GPU model; did you mean {close}?"
    return f"one of {', '.join(sorted(_SURNAME.sub('', each) for each in names))}"


def _names(model: GpuModel) -> tuple[str, ...]:
    return (model.name, *model.aliases)


def _key(name: str) -> str:
    """Return a name reduced to letters and digits, without the vendor's words."""
    return _VENDOR_WORDS.sub("", re.sub(r"[^a-z0-9]", "", name.lower()))
