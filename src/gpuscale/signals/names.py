"""Names and units of DCGM fields from dcgm-exporter 4.9 on.

Some fields only changed their name; others also went to base units: hertz, joules, bytes, ratios. A field
that is not listed keeps its name and its unit.

Source: NVIDIA DCGM 4.7, Field Identifiers (base-unit fields 1600 to 1650) and dcgm_fields.h; dcgm-exporter
    4.7.0-4.9.0, which put 23 of these names into its default list.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

Names = Literal["4.8", "4.9", "both"]
"""`4.8` for the names up to dcgm-exporter 4.8, `4.9` for the newer ones."""


@dataclass(frozen=True, slots=True)
class NewName:
    """A field's newer name and unit."""

    name: str
    multiply: int = 1
    divide: int = 1
    is_whole: bool | None = None
    """Whether values are whole numbers; None where that stays as it was."""
    unit: str = ""
    """The newer unit, where it is another one."""
    type: str = ""
    """The newer Prometheus type, where the older one was wrong."""

    def value(self, old: float) -> int | float:
        if self.is_whole is None:
            return old
        if self.is_whole:
            return int(old) * self.multiply // self.divide
        return old * self.multiply / self.divide


_MIB = 1024 * 1024
_MHZ = 1_000_000
_NVLINK_UNIT = 1000 * 1024
"""The older value is KiB/s divided by 1000."""

_RENAMED = {
    "DEV_MEMORY_TEMP": "DEV_MEMORY_TEMP_CELSIUS",
    "DEV_GPU_TEMP": "DEV_GPU_TEMP_CELSIUS",
    "DEV_POWER_USAGE": "DEV_BOARD_POWER_WATTS",
    "DEV_POWER_USAGE_INSTANT": "DEV_BOARD_POWER_RAW_WATTS",
    "DEV_PCIE_REPLAY_COUNTER": "DEV_PCIE_REPLAY_TOTAL",
    "DEV_XID_ERRORS": "DEV_XID_ERROR",
    "DEV_FB_USED_PERCENT": "DEV_FB_USED_RATIO",
    "DEV_RETIRED_SBE": "DEV_PAGE_RETIRED_SBE_TOTAL",
    "DEV_RETIRED_DBE": "DEV_PAGE_RETIRED_DBE_TOTAL",
    "DEV_RETIRED_PENDING": "DEV_PAGE_RETIRED_PENDING",
    "DEV_UNCORRECTABLE_REMAPPED_ROWS": "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL",
    "DEV_CORRECTABLE_REMAPPED_ROWS": "DEV_ROW_REMAP_CORRECTABLE_TOTAL",
    "DEV_ROW_REMAP_FAILURE": "DEV_ROW_REMAP_FAILED",
    "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": "DEV_NVLINK_CRC_FLIT_ERROR_TOTAL",
    "DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": "DEV_NVLINK_CRC_DATA_ERROR_TOTAL",
    "DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": "DEV_NVLINK_REPLAY_ERROR_TOTAL",
    "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": "DEV_NVLINK_RECOVERY_ERROR_TOTAL",
    "PROF_GR_ENGINE_ACTIVE": "PROF_GR_ENGINE_UTIL_RATIO",
    "PROF_SM_ACTIVE": "PROF_SM_UTIL_RATIO",
    "PROF_SM_OCCUPANCY": "PROF_SM_OCCUPANCY_RATIO",
    "PROF_PIPE_TENSOR_ACTIVE": "PROF_TENSOR_UTIL_RATIO",
    "PROF_DRAM_ACTIVE": "PROF_DRAM_UTIL_RATIO",
    "PROF_PIPE_FP64_ACTIVE": "PROF_FP64_UTIL_RATIO",
    "PROF_PIPE_FP32_ACTIVE": "PROF_FP32_UTIL_RATIO",
    "PROF_PIPE_FP16_ACTIVE": "PROF_FP16_UTIL_RATIO",
    "PROF_PIPE_INT_ACTIVE": "PROF_INT_UTIL_RATIO",
    "PROF_PIPE_TENSOR_IMMA_ACTIVE": "PROF_IMMA_UTIL_RATIO",
    "PROF_PIPE_TENSOR_HMMA_ACTIVE": "PROF_HMMA_UTIL_RATIO",
    "PROF_PIPE_TENSOR_DFMA_ACTIVE": "PROF_DFMA_UTIL_RATIO",
    "DRIVER_VERSION": "SYSTEM_DRIVER_VERSION",
}

_HERTZ = {
    "DEV_SM_CLOCK": "DEV_SM_CLOCK_HERTZ",
    "DEV_MEM_CLOCK": "DEV_MEMORY_CLOCK_HERTZ",
    "DEV_VIDEO_CLOCK": "DEV_VIDEO_CLOCK_HERTZ",
    "DEV_APP_SM_CLOCK": "DEV_SM_APP_CLOCK_HERTZ",
    "DEV_APP_MEM_CLOCK": "DEV_MEMORY_APP_CLOCK_HERTZ",
    "DEV_MAX_SM_CLOCK": "DEV_SM_MAX_CLOCK_HERTZ",
    "DEV_MAX_MEM_CLOCK": "DEV_MEMORY_MAX_CLOCK_HERTZ",
    "DEV_MAX_VIDEO_CLOCK": "DEV_VIDEO_MAX_CLOCK_HERTZ",
}

_BYTES = {
    "DEV_FB_TOTAL": "DEV_FB_CAPACITY_BYTES",
    "DEV_FB_FREE": "DEV_FB_FREE_BYTES",
    "DEV_FB_USED": "DEV_FB_USED_BYTES",
    "DEV_FB_RESERVED": "DEV_FB_RESERVED_BYTES",
    "DEV_BAR1_TOTAL": "DEV_BAR1_CAPACITY_BYTES",
    "DEV_BAR1_USED": "DEV_BAR1_USED_BYTES",
    "DEV_BAR1_FREE": "DEV_BAR1_FREE_BYTES",
}

_RATIOS = {
    "DEV_GPU_UTIL": "DEV_GPU_UTIL_RATIO",
    "DEV_MEM_COPY_UTIL": "DEV_MEMORY_UTIL_RATIO",
    "DEV_ENC_UTIL": "DEV_ENC_UTIL_RATIO",
    "DEV_DEC_UTIL": "DEV_DEC_UTIL_RATIO",
    "DEV_FAN_SPEED": "DEV_FAN_SPEED_RATIO",
}

_SECONDS = {
    "DEV_POWER_VIOLATION": "DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL",
    "DEV_THERMAL_VIOLATION": "DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL",
}

_PREFIX = "DCGM_FI_"

NEW_NAMES: Mapping[str, NewName] = MappingProxyType(
    {
        _PREFIX + old: NewName(_PREFIX + new, *how)
        for table, how in (
            (_RENAMED, ()),
            (_HERTZ, (_MHZ, 1, True, "Hz")),
            (_BYTES, (_MIB, 1, True, "bytes")),
            (_RATIOS, (1, 100, False, "ratio")),
            (_SECONDS, (1, 1_000_000_000, False, "s")),
            (
                {"DEV_TOTAL_ENERGY_CONSUMPTION": "DEV_GPU_ENERGY_JOULES_TOTAL"},
                (1, 1000, True, "J"),
            ),
            (
                {"DEV_NVLINK_BANDWIDTH_TOTAL": "DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND"},
                (_NVLINK_UNIT, 1, True, "bytes/s", "gauge"),
            ),
        )
        for old, new in table.items()
    }
)
"""Older field name to how it is served from 4.9 on."""


NEWER_NAMES: Mapping[str, NewName] = MappingProxyType({new.name: new for new in NEW_NAMES.values()})
"""The same by the newer name, for a counters file that is written in them."""


def new_name(field: str) -> str:
    """Return what a field is called from 4.9 on."""
    renamed = NEW_NAMES.get(field)
    return field if renamed is None else renamed.name
