"""Which AMD SMI call gives which value, and which DCGM fields mean the same.

Every value has a key of its own (`amd:...`) in `GpuReading.values`, in the unit of this table. The fields
in `DCGM_SOURCES` are served under their DCGM names too, because they mean the same in the same unit.

- AMD SMI calls its framebuffer sizes MB; the library divides bytes by 1024 * 1024, so they are MiB.
- `GPU_TEMP` is the junction sensor, which slows the GPU down and is the only one of an MI300; the edge
  sensor stands in where there is no junction. `MEMORY_TEMP` is the hottest of the memory's sensors.
- Power, energy and temperatures of exactly 0 are no measurement: that is how partitions and missing sensors
  answer. They count as absent.
- Power limits are left out: their unit differs between releases of the library.
- `GR_ENGINE_ACTIVE` and its kin are left out: AMD SMI samples busy percentages, it does not count cycles.

Source: ROCm amdsmi 7.0.2, amdsmi_interface.py (functions, keys), and 6.3, amd_smi.cc and amdsmi.h (units);
    ROCm device-metrics-exporter 1.5, docs/configuration/metricslist.md (names and units of the families).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gpuscale.signals.fields import FIELDS

_U16 = 0xFFFF
_U32 = 0xFFFF_FFFF
_U64 = 0xFFFF_FFFF_FFFF_FFFF
_MOST_PERCENT = 100
_MOST_CELSIUS = 200
"""A sensor beyond is broken, as DCGM has it."""
HBM_STACKS = 4
"""As many as AMD SMI has sensors for."""

NOT_AVAILABLE = "AMD SMI says N/A"
OUT_OF_RANGE = "AMD SMI gives a number that stands for no value"
ZERO_IS_NONE = "AMD SMI gives 0, which is no measurement"
NOT_GIVEN = "this amdsmi does not give it"


class NoValueError(Exception):
    """A response has no value at this place, with the reason."""


@dataclass(frozen=True, slots=True)
class AmdValue:
    """A value in a response."""

    key: str
    """In `GpuReading.values`."""
    take: Callable[[Any], object]
    """The value out of the answer, in `unit`."""
    unit: str
    family: str
    """What ROCm's device-metrics-exporter calls it."""
    meaning: str
    most: float
    """A number above it means no value."""
    labels: tuple[tuple[str, str], ...] = ()
    """That the family has beside the usual ones."""
    zero_is_none: bool = False

    def read(self, answer: object) -> int | float:
        """Return the value.

        Raises:
            NoValueError: there is none.
        """
        try:
            found = self.take(answer)
        except (KeyError, TypeError, ValueError, OverflowError):
            raise NoValueError(NOT_AVAILABLE if _says_so(answer) else NOT_GIVEN) from None
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise NoValueError(NOT_AVAILABLE)
        if not 0 <= found <= self.most:
            raise NoValueError(OUT_OF_RANGE)
        if self.zero_is_none and found == 0:
            raise NoValueError(ZERO_IS_NONE)
        return found


@dataclass(frozen=True, slots=True)
class AmdCall:
    """A call for each GPU and reading, with the values in its response."""

    function: str
    values: tuple[AmdValue, ...]
    arguments: tuple[tuple[str, str], ...] = ()
    """Enum and member of every argument after the GPU's handle."""


@dataclass(frozen=True, slots=True)
class DcgmSource:
    """The source of a DCGM field's value."""

    keys: tuple[str, ...]
    """Of `AmdValue`s, the best first."""
    combine: Callable[[Sequence[int | float]], int | float]
    """Of those that have a value."""


def _at(*path: str) -> Callable[[Any], object]:
    *parts, last = path

    def take(answer: Mapping[str, Any]) -> object:
        for part in parts:
            answer = answer[part]
        return answer[last]

    return take


def _itself(answer: object) -> object:
    return answer


def _percent(name: str, family: str, meaning: str) -> AmdValue:
    return AmdValue(f"amd:{name}", _at(name), "%", family, meaning, _MOST_PERCENT)


def _watts(name: str, family: str, meaning: str) -> AmdValue:
    return AmdValue(f"amd:{name}", _at(name), "W", family, meaning, _U16 - 1, zero_is_none=True)


def _energy_uj(answer: Mapping[str, Any]) -> int:
    microjoules: float = answer["energy_accumulator"] * answer["counter_resolution"]
    return round(microjoules)


def _mib(key: str, take: Callable[[Any], object], family: str, meaning: str) -> AmdValue:
    return AmdValue(f"amd:{key}", take, "MiB", family, meaning, _U32 - 1)


def _temperature(
    sensor: str, key: str, family: str, meaning: str, labels: tuple[tuple[str, str], ...] = ()
) -> AmdCall:
    value = AmdValue(
        f"amd:{key}", _itself, "°C", family, meaning, _MOST_CELSIUS, labels, zero_is_none=True
    )
    arguments = (("AmdSmiTemperatureType", sensor), ("AmdSmiTemperatureMetric", "CURRENT"))
    return AmdCall("amdsmi_get_temp_metric", (value,), arguments)


def _clocks(member: str, index: str, type_: str) -> AmdCall:
    labels = (("clock_index", index), ("clock_type", type_))
    values = tuple(
        AmdValue(
            f"amd:{type_}_{key}",
            _at(key),
            "MHz",
            family,
            f"{meaning} {type_} clock",
            _U32 - 1,
            labels,
        )
        for key, family, meaning in (
            ("clk", "gpu_clock", "current"),
            ("min_clk", "gpu_min_clock", "lowest"),
            ("max_clk", "gpu_max_clock", "highest"),
        )
    )
    return AmdCall("amdsmi_get_clock_info", values, (("AmdSmiClkType", member),))


def _pcie_speed(part: str, key: str, family: str, meaning: str) -> AmdValue:
    def take(answer: Mapping[str, Any]) -> object:
        mega_transfers = answer[part][key]
        return mega_transfers / 1000 if isinstance(mega_transfers, int) else mega_transfers

    return AmdValue(f"amd:{key}", take, "GT/s", family, meaning, _U16 - 1)


def _count(key: str, take: Callable[[Any], object], family: str, meaning: str) -> AmdValue:
    return AmdValue(f"amd:{key}", take, "", family, meaning, _U64 - 1)


AMD_CALLS: tuple[AmdCall, ...] = (
    AmdCall(
        "amdsmi_get_gpu_activity",
        (
            _percent("gfx_activity", "gpu_gfx_activity", "use of the graphics and compute engine"),
            _percent("umc_activity", "gpu_umc_activity", "use of the memory controller"),
        ),
    ),
    AmdCall(
        "amdsmi_get_power_info",
        (
            _watts("current_socket_power", "gpu_package_power", "momentary power draw"),
            _watts("average_socket_power", "gpu_average_package_power", "mean power draw"),
        ),
    ),
    AmdCall(
        "amdsmi_get_energy_count",
        (
            AmdValue(
                "amd:energy",
                _energy_uj,
                "µJ",
                "gpu_energy_consumed",
                "energy since the driver was loaded",
                _U64 - 1,
                zero_is_none=True,
            ),
        ),
    ),
    AmdCall(
        "amdsmi_get_gpu_vram_usage",
        (
            _mib("vram_total", _at("vram_total"), "gpu_total_vram", "size of the memory"),
            _mib("vram_used", _at("vram_used"), "gpu_used_vram", "used memory"),
            _mib(
                "vram_free",
                lambda answer: answer["vram_total"] - answer["vram_used"],
                "gpu_free_vram",
                "free memory",
            ),
        ),
    ),
    _temperature("EDGE", "edge_temperature", "gpu_edge_temperature", "temperature at the edge"),
    _temperature(
        "HOTSPOT",
        "junction_temperature",
        "gpu_junction_temperature",
        "temperature of the hottest spot",
    ),
    _temperature("VRAM", "memory_temperature", "gpu_memory_temperature", "memory temperature"),
    *(
        _temperature(
            f"HBM_{stack}",
            f"hbm_{stack}_temperature",
            "gpu_hbm_temperature",
            "temperature of one stack of memory",
            (("hbm_index", str(stack)),),
        )
        for stack in range(HBM_STACKS)
    ),
    _clocks("GFX", "0", "system"),
    _clocks("MEM", "1", "memory"),
    AmdCall(
        "amdsmi_get_pcie_info",
        (
            _pcie_speed("pcie_metric", "pcie_speed", "pcie_speed", "current PCIe speed"),
            _pcie_speed("pcie_static", "max_pcie_speed", "pcie_max_speed", "highest PCIe speed"),
            AmdValue(
                "amd:pcie_bandwidth",
                _at("pcie_metric", "pcie_bandwidth"),
                "Mb/s",
                "pcie_bandwidth",
                "momentary PCIe traffic",
                _U32 - 1,
            ),
            _count(
                "pcie_replay_count",
                _at("pcie_metric", "pcie_replay_count"),
                "pcie_replay_count",
                "PCIe retries",
            ),
        ),
    ),
    AmdCall(
        "amdsmi_get_gpu_total_ecc_count",
        (
            _count(
                "ecc_correctable",
                _at("correctable_count"),
                "gpu_ecc_correct_total",
                "correctable ECC errors",
            ),
            _count(
                "ecc_uncorrectable",
                _at("uncorrectable_count"),
                "gpu_ecc_uncorrect_total",
                "uncorrectable ECC errors",
            ),
            _count(
                "ecc_deferred",
                _at("deferred_count"),
                "gpu_ecc_deferred_total",
                "deferred ECC errors",
            ),
        ),
    ),
)
"""In the order that they are made in; the first one says whether the GPU answers at all."""

PROCESS_FUNCTION = "amdsmi_get_gpu_process_list"
PROCESS_FAMILY = "gpu_process_cu_occupancy"
PROCESS_PREFIX = "amd:process_cu_occupancy:"
"""What follows is the PID; the value is percent of the GPU's compute units."""
POWER_KEYS = ("amd:current_socket_power", "amd:average_socket_power")
POWER_FAMILY = "gpu_power_usage"


def _first(values: Sequence[int | float]) -> int | float:
    return values[0]


def _from(*keys: str) -> DcgmSource:
    return DcgmSource(keys, _first)


DCGM_SOURCES: Mapping[str, DcgmSource] = MappingProxyType(
    {
        "DCGM_FI_DEV_GPU_UTIL": _from("amd:gfx_activity"),
        "DCGM_FI_DEV_MEM_COPY_UTIL": _from("amd:umc_activity"),
        "DCGM_FI_DEV_POWER_USAGE": _from(*POWER_KEYS),
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": DcgmSource(
            ("amd:energy",), lambda values: values[0] // 1000
        ),
        "DCGM_FI_DEV_FB_TOTAL": _from("amd:vram_total"),
        "DCGM_FI_DEV_FB_USED": _from("amd:vram_used"),
        "DCGM_FI_DEV_FB_FREE": _from("amd:vram_free"),
        "DCGM_FI_DEV_GPU_TEMP": _from("amd:junction_temperature", "amd:edge_temperature"),
        "DCGM_FI_DEV_MEMORY_TEMP": DcgmSource(
            (
                "amd:memory_temperature",
                *(f"amd:hbm_{stack}_temperature" for stack in range(HBM_STACKS)),
            ),
            max,
        ),
        "DCGM_FI_DEV_SM_CLOCK": _from("amd:system_clk"),
        "DCGM_FI_DEV_MAX_SM_CLOCK": _from("amd:system_max_clk"),
        "DCGM_FI_DEV_MEM_CLOCK": _from("amd:memory_clk"),
        "DCGM_FI_DEV_MAX_MEM_CLOCK": _from("amd:memory_max_clk"),
        "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": _from("amd:pcie_replay_count"),
        "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": _from("amd:ecc_correctable"),
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _from("amd:ecc_uncorrectable"),
    }
)
"""DCGM fields that are measured."""

DCGM_FIXED: Mapping[str, str] = MappingProxyType(
    {
        "DCGM_FI_DRIVER_VERSION": "amdsmi_get_gpu_driver_info",
        "DCGM_FI_DEV_COUNT": "amdsmi_get_processor_handles",
        "DCGM_FI_DEV_NAME": "amdsmi_get_gpu_asic_info",
        "DCGM_FI_DEV_SERIAL": "amdsmi_get_gpu_board_info",
        "DCGM_FI_DEV_UUID": "amdsmi_get_gpu_device_uuid",
        "DCGM_FI_DEV_PCI_BUSID": "amdsmi_get_gpu_device_bdf",
    }
)
"""DCGM fields that are read once, with the call that gives them."""


def amd_call_of(field: str) -> str | None:
    """Return the AMD SMI call behind a DCGM field, as text; None if there is none."""
    if field in DCGM_FIXED:
        return DCGM_FIXED[field]
    source = DCGM_SOURCES.get(field)
    if source is None:
        return None
    calls = [_CALL_BY_KEY[key] for key in source.keys]
    members = " or ".join(call.arguments[0][1] for call in calls if call.arguments)
    return f"{calls[0].function}({members})" if members else calls[0].function


def dcgm_value(field: str, values: Mapping[str, int | float | str]) -> int | float | None:
    """Return a DCGM field's value from AMD's values; None if all its sources are absent."""
    source = DCGM_SOURCES[field]
    found = [value for key in source.keys if not isinstance(value := values.get(key, ""), str)]
    if not found:
        return None
    value = source.combine(found)
    return float(value) if FIELDS[field].kind == "double" else int(value)


def _says_so(answer: object) -> bool:
    return answer == "N/A"


_CALL_BY_KEY = {value.key: call for call in AMD_CALLS for value in call.values}
