"""Which call gives which field: the table of everything that is read with one plain call.

Source: NVIDIA DCGM 4, modules and dcgmlib (which NVML call stands behind a field, and its conversion);
    NVIDIA nvml.h 13.0 (the calls).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from gpuscale.agent.nvml.library import Answer
from gpuscale.agent.nvml.values.sources import Value

MIB = 1024 * 1024
HOTTEST_C = 200
"""Above it a temperature is a fault of the sensor, as in DCGM."""

Pace = Literal["read", "second", "counters", "limits", "once"]
"""At every read; once a second at most; with the counters; with the limits; when the GPU is opened."""
Convert = Callable[[Answer], Value | None]
"""A call's result to the value of a field; None for what can't be."""


@dataclass(frozen=True, slots=True)
class NvmlCall:
    """One call and the fields that its result gives."""

    source: str
    """Under which name the call is counted."""
    pace: Pace
    function: str
    arguments: tuple[int | str, ...]
    """After the GPU's handle; a name is one of the library's constants."""
    values: Mapping[str, Convert]
    is_of_gpu: bool = True
    """Whether the first argument is the GPU's handle."""
    is_on_split: bool = True
    """Whether there is a value while the GPU is split with MIG."""


def _same(result: Answer) -> Answer:
    return result


def _first(result: Answer) -> Answer:
    return result[0]


def _second(result: Answer) -> Answer:
    return result[1]


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000


def _celsius(result: int) -> int | None:
    return result if result <= HOTTEST_C else None


def _percent(result: Answer) -> int | None:
    return int(result[0]) if result[0] <= 100 else None


def _mib_of(member: str) -> Convert:
    def convert(result: Answer) -> int:
        return int(getattr(result, member)) // MIB

    return convert


def _used_ratio(memory: Answer) -> float | None:
    usable = memory.total - memory.reserved
    return memory.used / usable if usable > 0 else None


def _licence(features: Answer) -> int:
    if not features.isGridLicenseSupported:
        return 0
    listed = features.gridLicensableFeatures[: features.licensableFeaturesCount]
    return int(any(feature.featureState for feature in listed))


_BRANDS = (
    "Unknown",
    "Quadro",
    "Tesla",
    "NVS",
    "Grid",
    "GeForce",
    "Titan",
    "NvidiaVApps",
    "NvidiaVPC",
    "NvidiaVCS",
    "NvidiaVWS",
    "NvidiaCloudGaming",
    "QuadroRTX",
    "NvidiaRTX",
    "Nvidia",
    "GeForceRTX",
    "TitanRTX",
)


def _brand(number: int) -> str:
    return _BRANDS[number] if 0 <= number < len(_BRANDS) else _BRANDS[0]


def pci_bus_id(info: Answer) -> str:
    """Return the bus id with the domain in eight digits."""
    domain, _, rest = str(info.busId).partition(":")
    return f"{domain.zfill(8)}:{rest}".upper()


def _one(
    source: str,
    pace: Pace,
    field: str,
    function: str,
    *arguments: int | str,
    convert: Convert = _same,
    is_on_split: bool = True,
) -> NvmlCall:
    values = {f"DCGM_FI_DEV_{field}": convert}
    return NvmlCall(
        source, pace, f"nvmlDeviceGet{function}", arguments, values, is_on_split=is_on_split
    )


MEMORY = NvmlCall(
    "memory",
    "read",
    "nvmlDeviceGetMemoryInfo",
    ("nvmlMemory_v2",),
    {
        "DCGM_FI_DEV_FB_TOTAL": _mib_of("total"),
        "DCGM_FI_DEV_FB_FREE": _mib_of("free"),
        "DCGM_FI_DEV_FB_USED": _mib_of("used"),
        "DCGM_FI_DEV_FB_RESERVED": _mib_of("reserved"),
        "DCGM_FI_DEV_FB_USED_PERCENT": _used_ratio,
    },
)
"""Of a GPU or a MIG instance. Drivers from 510 on; older ones count the reserved part as used."""

MEMORY_BEFORE_510 = NvmlCall(
    "memory",
    "read",
    "nvmlDeviceGetMemoryInfo",
    (),
    {
        "DCGM_FI_DEV_FB_TOTAL": _mib_of("total"),
        "DCGM_FI_DEV_FB_FREE": _mib_of("free"),
        "DCGM_FI_DEV_FB_USED": _mib_of("used"),
    },
)

_OFTEN = (
    _one("power", "read", "POWER_USAGE", "PowerUsage", convert=_watts),
    _one("clocks", "read", "SM_CLOCK", "ClockInfo", "NVML_CLOCK_SM"),
    _one("clocks", "read", "MEM_CLOCK", "ClockInfo", "NVML_CLOCK_MEM"),
    _one("clocks", "read", "VIDEO_CLOCK", "ClockInfo", "NVML_CLOCK_VIDEO"),
    _one(
        "temperature",
        "second",
        "GPU_TEMP",
        "Temperature",
        "NVML_TEMPERATURE_GPU",
        convert=_celsius,
    ),
    _one("codecs", "read", "ENC_UTIL", "EncoderUtilization", convert=_percent, is_on_split=False),
    _one("codecs", "read", "DEC_UTIL", "DecoderUtilization", convert=_percent, is_on_split=False),
    _one("pstate", "read", "PSTATE", "PowerState"),
    NvmlCall(
        "clock_events",
        "read",
        "nvmlDeviceGetCurrentClocksEventReasons",
        (),
        {
            "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": _same,
            "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": _same,
        },
    ),
)

_COUNTERS = (
    _one("pcie", "counters", "PCIE_REPLAY_COUNTER", "PcieReplayCounter"),
    _one("pcie", "counters", "PCIE_LINK_GEN", "CurrPcieLinkGeneration"),
    _one("pcie", "counters", "PCIE_LINK_WIDTH", "CurrPcieLinkWidth"),
    NvmlCall(
        "remapped_rows",
        "counters",
        "nvmlDeviceGetRemappedRows",
        (),
        {
            "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": _first,
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": _second,
            "DCGM_FI_DEV_ROW_REMAP_PENDING": lambda result: result[2],
            "DCGM_FI_DEV_ROW_REMAP_FAILURE": lambda result: result[3],
        },
    ),
    NvmlCall(
        "remapped_rows",
        "counters",
        "nvmlDeviceGetRowRemapperHistogram",
        (),
        {
            "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_MAX": lambda result: result.max,
            "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_HIGH": lambda result: result.high,
            "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_PARTIAL": lambda result: result.partial,
            "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_LOW": lambda result: result.low,
            "DCGM_FI_DEV_BANKS_REMAP_ROWS_AVAIL_NONE": lambda result: result.none,
        },
    ),
    NvmlCall(
        "bar1",
        "counters",
        "nvmlDeviceGetBAR1MemoryInfo",
        (),
        {
            "DCGM_FI_DEV_BAR1_TOTAL": _mib_of("bar1Total"),
            "DCGM_FI_DEV_BAR1_USED": _mib_of("bar1Used"),
            "DCGM_FI_DEV_BAR1_FREE": _mib_of("bar1Free"),
        },
    ),
    _one("temperature", "counters", "GPU_TEMP_LIMIT", "MarginTemperature"),
    _one("fan", "counters", "FAN_SPEED", "FanSpeed"),
)

_LIMITS = (
    _one("limits", "limits", "POWER_MGMT_LIMIT", "PowerManagementLimit", convert=_watts),
    NvmlCall(
        "limits",
        "limits",
        "nvmlDeviceGetPowerManagementLimitConstraints",
        (),
        {
            "DCGM_FI_DEV_POWER_MGMT_LIMIT_MIN": lambda result: _watts(result[0]),
            "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX": lambda result: _watts(result[1]),
        },
    ),
    _one(
        "limits",
        "limits",
        "POWER_MGMT_LIMIT_DEF",
        "PowerManagementDefaultLimit",
        convert=_watts,
    ),
    _one("limits", "limits", "ENFORCED_POWER_LIMIT", "EnforcedPowerLimit", convert=_watts),
    _one("limits", "limits", "APP_SM_CLOCK", "ApplicationsClock", "NVML_CLOCK_SM"),
    _one("limits", "limits", "APP_MEM_CLOCK", "ApplicationsClock", "NVML_CLOCK_MEM"),
    _one("limits", "limits", "MAX_SM_CLOCK", "MaxClockInfo", "NVML_CLOCK_SM"),
    _one("limits", "limits", "MAX_MEM_CLOCK", "MaxClockInfo", "NVML_CLOCK_MEM"),
    _one("limits", "limits", "MAX_VIDEO_CLOCK", "MaxClockInfo", "NVML_CLOCK_VIDEO"),
    _one("limits", "limits", "AUTOBOOST", "AutoBoostedClocksEnabled", convert=_first),
    _one(
        "limits",
        "limits",
        "SHUTDOWN_TEMP",
        "TemperatureThreshold",
        "NVML_TEMPERATURE_THRESHOLD_SHUTDOWN",
    ),
    _one(
        "limits",
        "limits",
        "SLOWDOWN_TEMP",
        "TemperatureThreshold",
        "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN",
    ),
    _one(
        "limits",
        "limits",
        "MEM_MAX_OP_TEMP",
        "TemperatureThreshold",
        "NVML_TEMPERATURE_THRESHOLD_MEM_MAX",
    ),
    _one(
        "limits",
        "limits",
        "GPU_MAX_OP_TEMP",
        "TemperatureThreshold",
        "NVML_TEMPERATURE_THRESHOLD_GPU_MAX",
    ),
    _one("limits", "limits", "PCIE_MAX_LINK_GEN", "MaxPcieLinkGeneration"),
    _one("limits", "limits", "PCIE_MAX_LINK_WIDTH", "MaxPcieLinkWidth"),
    _one("modes", "limits", "COMPUTE_MODE", "ComputeMode"),
    _one("modes", "limits", "PERSISTENCE_MODE", "PersistenceMode"),
    _one("modes", "limits", "VIRTUAL_MODE", "VirtualizationMode"),
    _one("modes", "limits", "MIG_MODE", "MigMode", convert=_first),
    _one("modes", "limits", "MIG_MAX_SLICES", "MaxMigDeviceCount"),
    _one("licence", "limits", "VGPU_LICENSE_STATUS", "GridLicensableFeatures_v4", convert=_licence),
)

_ONCE = (
    _one("identity", "once", "NAME", "Name"),
    _one("identity", "once", "BRAND", "Brand", convert=_brand),
    _one("identity", "once", "NVML_INDEX", "Index"),
    _one("identity", "once", "SERIAL", "Serial"),
    _one("identity", "once", "UUID", "UUID"),
    _one("identity", "once", "MINOR_NUMBER", "MinorNumber"),
    _one("identity", "once", "PCI_BUSID", "PciInfo_v3", convert=pci_bus_id),
    _one("identity", "once", "VBIOS_VERSION", "VbiosVersion"),
    _one("identity", "once", "INFOROM_IMAGE_VER", "InforomImageVersion"),
    _one("identity", "once", "OEM_INFOROM_VER", "InforomVersion", "NVML_INFOROM_OEM"),
    _one("identity", "once", "ECC_INFOROM_VER", "InforomVersion", "NVML_INFOROM_ECC"),
    _one("identity", "once", "POWER_INFOROM_VER", "InforomVersion", "NVML_INFOROM_POWER"),
    _one("identity", "once", "INFOROM_CONFIG_CHECK", "InforomConfigurationChecksum"),
    NvmlCall(
        "identity",
        "once",
        "nvmlDeviceValidateInforom",
        (),
        {"DCGM_FI_DEV_INFOROM_CONFIG_VALID": lambda _: 1},
    ),
    *(
        NvmlCall("identity", "once", f"nvmlSystemGet{call}", (), {f"DCGM_FI_{field}": _same}, False)
        for field, call in (
            ("DRIVER_VERSION", "DriverVersion"),
            ("NVML_VERSION", "NVMLVersion"),
            ("CUDA_DRIVER_VERSION", "CudaDriverVersion_v2"),
        )
    ),
    NvmlCall("identity", "once", "nvmlDeviceGetCount", (), {"DCGM_FI_DEV_COUNT": _same}, False),
)

ROWS = (MEMORY, *_OFTEN, *_COUNTERS, *_LIMITS, *_ONCE)
"""Every plain call, in the order they are made."""
