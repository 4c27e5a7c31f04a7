"""The DCGM fields that a counters file may name: id, meaning, unit and kind of value.

Names and units are those of dcgm-exporter up to 4.8.2, which dashboards, alerts and scaling rules use.

Source: NVIDIA DCGM 4, dcgmlib/dcgm_fields.h (names and ids); NVIDIA dcgm-exporter 4.8.2,
    internal/pkg/counters (the `DCGM_EXP_*` names; their ids only order the families here).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

ValueKind = Literal["int", "double", "string"]
Scope = Literal["system", "gpu", "gpu_instance", "compute_instance"]

_PROFILING_IDS = range(1000, 1100)
_FIRST_DERIVED_ID = 9001
NVLINK_LINKS = 18
"""Links of a Hopper GPU, the most that DCGM has per-link fields for."""


@dataclass(frozen=True, slots=True)
class Field:
    """A quantity that can be read from a GPU."""

    name: str
    id: int
    """DCGM's number; families are served in this order."""
    meaning: str
    unit: str
    """Empty for counts, states and text."""
    kind: ValueKind
    scope: Scope = "gpu"
    """The smallest part that has a value of its own when a GPU is split with MIG."""

    @property
    def is_profiling(self) -> bool:
        """Return whether the value comes from hardware profiling counters."""
        return self.id in _PROFILING_IDS

    @property
    def is_derived(self) -> bool:
        """Return whether an exporter computes the value from other fields over time."""
        return self.id >= _FIRST_DERIVED_ID


def _int(id_: int, name: str, unit: str, meaning: str, scope: Scope = "gpu") -> Field:
    return Field(f"DCGM_FI_DEV_{name}", id_, meaning, unit, "int", scope)


def _double(id_: int, name: str, unit: str, meaning: str, scope: Scope = "gpu") -> Field:
    return Field(f"DCGM_FI_DEV_{name}", id_, meaning, unit, "double", scope)


def _text(id_: int, name: str, meaning: str) -> Field:
    return Field(f"DCGM_FI_DEV_{name}", id_, meaning, "", "string")


def _ratio(id_: int, name: str, meaning: str, scope: Scope = "compute_instance") -> Field:
    return Field(f"DCGM_FI_PROF_{name}", id_, meaning, "ratio", "double", scope)


def _rate(id_: int, name: str, meaning: str) -> Field:
    return Field(f"DCGM_FI_PROF_{name}", id_, meaning, "bytes/s", "int")


def _derived(id_: int, name: str, meaning: str) -> Field:
    return Field(f"DCGM_EXP_{name}", id_, meaning, "", "int")


_IDENTITY = (
    Field("DCGM_FI_DRIVER_VERSION", 1, "driver version", "", "string", "system"),
    Field("DCGM_FI_NVML_VERSION", 2, "NVML version", "", "string", "system"),
    Field("DCGM_FI_DEV_COUNT", 4, "GPUs on the node", "", "int", "system"),
    Field("DCGM_FI_CUDA_DRIVER_VERSION", 5, "CUDA driver version", "", "int", "system"),
    _text(50, "NAME", "marketing name"),
    _text(51, "BRAND", "brand"),
    _int(52, "NVML_INDEX", "", "NVML index"),
    _text(53, "SERIAL", "serial number of the board"),
    _text(54, "UUID", "UUID"),
    _int(55, "MINOR_NUMBER", "", "number of the device file"),
    _text(56, "OEM_INFOROM_VER", "version of the InfoROM's OEM object"),
    _text(57, "PCI_BUSID", "PCI bus id"),
    _int(65, "COMPUTE_MODE", "", "compute mode"),
    _int(66, "PERSISTENCE_MODE", "", "1 if persistence mode is on"),
    _int(67, "MIG_MODE", "", "1 if MIG is on"),
    _int(69, "MIG_MAX_SLICES", "", "MIG slices that the GPU can be split into"),
    _int(74, "CC_MODE", "", "1 if confidential computing is on"),
    _text(80, "ECC_INFOROM_VER", "version of the InfoROM's ECC object"),
    _text(81, "POWER_INFOROM_VER", "version of the InfoROM's power object"),
    _text(82, "INFOROM_IMAGE_VER", "version of the InfoROM's image"),
    _int(83, "INFOROM_CONFIG_CHECK", "", "checksum of the InfoROM's configuration"),
    _int(84, "INFOROM_CONFIG_VALID", "", "1 if the InfoROM's checksums hold"),
    _text(85, "VBIOS_VERSION", "version of the video BIOS"),
    _int(90, "BAR1_TOTAL", "MiB", "size of BAR1"),
    _int(92, "BAR1_USED", "MiB", "used part of BAR1"),
    _int(93, "BAR1_FREE", "MiB", "free part of BAR1"),
)

_CLOCKS_HEAT_POWER = (
    _int(100, "SM_CLOCK", "MHz", "current SM clock"),
    _int(101, "MEM_CLOCK", "MHz", "current memory clock"),
    _int(102, "VIDEO_CLOCK", "MHz", "current clock of encoder and decoder"),
    _int(110, "APP_SM_CLOCK", "MHz", "SM application clock"),
    _int(111, "APP_MEM_CLOCK", "MHz", "memory application clock"),
    _int(112, "CLOCKS_EVENT_REASONS", "", "bits that say why the clocks are where they are"),
    _int(112, "CLOCK_THROTTLE_REASONS", "", "older name of CLOCKS_EVENT_REASONS"),
    _int(113, "MAX_SM_CLOCK", "MHz", "highest SM clock"),
    _int(114, "MAX_MEM_CLOCK", "MHz", "highest memory clock"),
    _int(115, "MAX_VIDEO_CLOCK", "MHz", "highest clock of encoder and decoder"),
    _int(120, "AUTOBOOST", "", "1 if auto boost is on"),
    _int(140, "MEMORY_TEMP", "°C", "memory temperature"),
    _int(150, "GPU_TEMP", "°C", "core temperature"),
    _int(151, "MEM_MAX_OP_TEMP", "°C", "memory temperature above which the GPU slows down"),
    _int(152, "GPU_MAX_OP_TEMP", "°C", "highest core temperature for operation"),
    _int(153, "GPU_TEMP_LIMIT", "°C", "margin to the nearest slowdown temperature"),
    _double(155, "POWER_USAGE", "W", "board power draw"),
    _int(156, "TOTAL_ENERGY_CONSUMPTION", "mJ", "energy since the driver was loaded"),
    _double(157, "POWER_USAGE_INSTANT", "W", "momentary board power draw"),
    _int(158, "SLOWDOWN_TEMP", "°C", "core temperature at which the hardware slows down"),
    _int(159, "SHUTDOWN_TEMP", "°C", "core temperature at which the hardware shuts down"),
    _double(160, "POWER_MGMT_LIMIT", "W", "power limit that is set"),
    _double(161, "POWER_MGMT_LIMIT_MIN", "W", "lowest power limit that can be set"),
    _double(162, "POWER_MGMT_LIMIT_MAX", "W", "highest power limit that can be set"),
    _double(163, "POWER_MGMT_LIMIT_DEF", "W", "power limit after a reset"),
    _double(164, "ENFORCED_POWER_LIMIT", "W", "power limit in force, all limiters considered"),
    _int(190, "PSTATE", "", "performance state, 0 is the fastest"),
    _int(191, "FAN_SPEED", "%", "fan speed"),
)

_WORK_AND_FAULTS = (
    _int(200, "PCIE_TX_THROUGHPUT", "", "PCIe sending; no GPU supports this field any more"),
    _int(201, "PCIE_RX_THROUGHPUT", "", "PCIe receiving; no GPU supports this field any more"),
    _int(202, "PCIE_REPLAY_COUNTER", "", "PCIe retries"),
    _int(203, "GPU_UTIL", "%", "part of the time in which a kernel was running"),
    _int(204, "MEM_COPY_UTIL", "%", "part of the time in which the memory interface was busy"),
    _int(206, "ENC_UTIL", "%", "use of the video encoder"),
    _int(207, "DEC_UTIL", "%", "use of the video decoder"),
    _int(230, "XID_ERRORS", "", "number of the latest XID, 0 for none", "gpu_instance"),
    _int(235, "PCIE_MAX_LINK_GEN", "", "highest PCIe generation"),
    _int(236, "PCIE_MAX_LINK_WIDTH", "", "highest PCIe link width"),
    _int(237, "PCIE_LINK_GEN", "", "current PCIe generation"),
    _int(238, "PCIE_LINK_WIDTH", "", "current PCIe link width"),
    _int(240, "POWER_VIOLATION", "ns", "time slowed down by the power limit"),
    _int(241, "THERMAL_VIOLATION", "ns", "time slowed down by heat"),
    _int(242, "SYNC_BOOST_VIOLATION", "ns", "time slowed down by sync boost"),
    _int(243, "BOARD_LIMIT_VIOLATION", "ns", "time slowed down by the board's limit"),
    _int(244, "LOW_UTIL_VIOLATION", "ns", "time slowed down for want of work"),
    _int(245, "RELIABILITY_VIOLATION", "ns", "time slowed down by the reliability limit"),
    _int(246, "TOTAL_APP_CLOCKS_VIOLATION", "ns", "time below the application clocks"),
    _int(247, "TOTAL_BASE_CLOCKS_VIOLATION", "ns", "time below the base clocks"),
)

_MEMORY = (
    _int(250, "FB_TOTAL", "MiB", "framebuffer size", "gpu_instance"),
    _int(251, "FB_FREE", "MiB", "free framebuffer", "gpu_instance"),
    _int(252, "FB_USED", "MiB", "used framebuffer", "gpu_instance"),
    _int(253, "FB_RESERVED", "MiB", "framebuffer kept by the driver", "gpu_instance"),
    _double(254, "FB_USED_PERCENT", "ratio", "used / (total - reserved)", "gpu_instance"),
    _int(300, "ECC_CURRENT", "", "1 if ECC is on"),
    _int(301, "ECC_PENDING", "", "1 if ECC is on after the next reset"),
    _int(310, "ECC_SBE_VOL_TOTAL", "", "single-bit ECC errors since the driver was loaded"),
    _int(311, "ECC_DBE_VOL_TOTAL", "", "double-bit ECC errors since the driver was loaded"),
    _int(312, "ECC_SBE_AGG_TOTAL", "", "single-bit ECC errors in the GPU's life"),
    _int(313, "ECC_DBE_AGG_TOTAL", "", "double-bit ECC errors in the GPU's life"),
    _int(390, "RETIRED_SBE", "", "pages retired for single-bit errors"),
    _int(391, "RETIRED_DBE", "", "pages retired for double-bit errors"),
    _int(392, "RETIRED_PENDING", "", "pages waiting for retirement"),
    _int(393, "UNCORRECTABLE_REMAPPED_ROWS", "", "rows remapped for uncorrectable errors"),
    _int(394, "CORRECTABLE_REMAPPED_ROWS", "", "rows remapped for correctable errors"),
    _int(395, "ROW_REMAP_FAILURE", "", "1 if remapping a row has failed"),
    _int(396, "ROW_REMAP_PENDING", "", "1 if rows wait for remapping"),
)

_ECC_PLACES = (
    (314, "VOL", ("L1", "L2", "DEV", "REG", "TEX")),
    (324, "AGG", ("L1", "L2", "DEV", "REG", "TEX")),
    (334, "VOL", ("SHM", "CBU")),
    (338, "AGG", ("SHM", "CBU")),
    (342, "VOL", ("SRM",)),
    (344, "AGG", ("SRM",)),
)
"""First id, life span and places of a run of ids that go single-bit, double-bit by place."""

_ECC_BY_PLACE = tuple(
    _int(first + 2 * n + bit, f"ECC_{kind}_{span}_{place}", "", f"ECC errors, {place}")
    for first, span, places in _ECC_PLACES
    for n, place in enumerate(places)
    for bit, kind in ((0, "SBE"), (1, "DBE"))
)

_SPARE_ROWS = tuple(
    _int(385 + n, f"BANKS_REMAP_ROWS_AVAIL_{name}", "", "memory banks by spare rows left")
    for n, name in enumerate(("MAX", "HIGH", "PARTIAL", "LOW", "NONE"))
)

_PER_LINK_RUNS = (
    (400, 451, "CRC_FLIT_ERROR_COUNT", ""),
    (410, 457, "CRC_DATA_ERROR_COUNT", ""),
    (420, 463, "REPLAY_ERROR_COUNT", ""),
    (430, 469, "RECOVERY_ERROR_COUNT", ""),
    (440, 475, "BANDWIDTH", "MB/s"),
)
"""Id of link 0, id of link 6, name and unit; six ids each."""

_PER_LINK = tuple(
    _int(first + n, f"NVLINK_{name}_L{link + n}", unit, f"{name} of NVLink {link + n}")
    for low, high, name, unit in _PER_LINK_RUNS
    for first, link in ((low, 0), (high, 6))
    for n in range(6)
)

_LINK_COUNTS = tuple(
    _int(id_, f"NVLINK_{name}", unit, meaning)
    for id_, name, unit, meaning in (
        (497, "ERROR_DL_CRC", "", "NVLink CRC errors, all links"),
        (498, "ERROR_DL_RECOVERY", "", "NVLink recoveries, all links"),
        (499, "ERROR_DL_REPLAY", "", "NVLink replays, all links"),
        (1200, "COUNT_TX_PACKETS", "", "packets sent, all links"),
        (1201, "COUNT_TX_BYTES", "bytes", "bytes sent, all links"),
        (1202, "COUNT_RX_PACKETS", "", "packets received, all links"),
        (1203, "COUNT_RX_BYTES", "bytes", "bytes received, all links"),
        (1204, "COUNT_RX_MALFORMED_PACKET_ERRORS", "", "malformed packets received, all links"),
        (1205, "COUNT_RX_BUFFER_OVERRUN_ERRORS", "", "packets dropped for want of room, all links"),
        (1206, "COUNT_RX_ERRORS", "", "packets received with an error, all links"),
        (1207, "COUNT_RX_REMOTE_ERRORS", "", "packets that the sender marked as bad, all links"),
        (1208, "COUNT_RX_GENERAL_ERRORS", "", "packets with a header mismatch, all links"),
        (1209, "COUNT_LOCAL_LINK_INTEGRITY_ERRORS", "", "link integrity errors, all links"),
        (1210, "COUNT_TX_DISCARDS", "", "packets discarded before sending, all links"),
        (1211, "COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS", "", "links that came up again"),
        (1212, "COUNT_LINK_RECOVERY_FAILED_EVENTS", "", "links that did not come up again"),
        (1213, "COUNT_LINK_RECOVERY_EVENTS", "", "link recoveries, all links"),
        (1214, "COUNT_RX_SYMBOL_ERRORS", "", "symbol errors received, all links"),
        (1219, "COUNT_EFFECTIVE_ERRORS", "", "errors left after correction, all links"),
    )
)

_FABRIC = (
    _int(170, "FABRIC_MANAGER_STATUS", "", "NVLink fabric: 0 none, 3 set up, 4 failed"),
    _int(171, "FABRIC_MANAGER_ERROR_CODE", "", "NVML's code for how setting up the fabric ended"),
    _text(172, "FABRIC_CLUSTER_UUID", "UUID of the NVLink fabric"),
    _int(173, "FABRIC_CLIQUE_ID", "", "number of the GPU's clique in the NVLink fabric"),
    _int(174, "FABRIC_HEALTH_MASK", "", "bits that say what is wrong with the NVLink fabric"),
    _int(175, "FABRIC_HEALTH_SUMMARY", "", "NVLink fabric: 1 healthy, 2 unhealthy, 3 limited"),
)

_NEEDS_AND_CAUSES = (
    _int(285, "C2C_LINK_COUNT", "", "links between CPU and GPU"),
    _int(1400, "C2C_LINK_ERROR_INTR", "", "errors on the links between CPU and GPU"),
    _int(1401, "C2C_LINK_ERROR_REPLAY", "", "replays on the links between CPU and GPU"),
    _int(1402, "C2C_LINK_ERROR_REPLAY_B2B", "", "replays one after the other, CPU and GPU"),
    *(
        _int(1420 + n, f"CLOCKS_EVENT_REASON_{name}_NS", "ns", f"time slowed down by {cause}")
        for n, (name, cause) in enumerate(
            (
                ("SW_POWER_CAP", "the power limit"),
                ("SYNC_BOOST", "sync boost"),
                ("SW_THERM_SLOWDOWN", "heat, in the driver"),
                ("HW_THERM_SLOWDOWN", "heat, in hardware"),
                ("HW_POWER_BRAKE_SLOWDOWN", "the power brake"),
            )
        )
    ),
    _int(1501, "PCIE_COUNT_CORRECTABLE_ERRORS", "", "PCIe errors that were corrected"),
    _int(
        1523,
        "GET_GPU_RECOVERY_ACTION",
        "",
        "what brings the GPU back: 0 nothing, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset",
    ),
)

_LINKS = (
    _int(409, "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "", "NVLink flow-control CRC errors"),
    _int(419, "NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "", "NVLink data CRC errors"),
    _int(429, "NVLINK_REPLAY_ERROR_COUNT_TOTAL", "", "NVLink replays"),
    _int(439, "NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "", "NVLink recoveries"),
    _int(449, "NVLINK_BANDWIDTH_TOTAL", "MB/s", "NVLink traffic of all links"),
    _int(500, "VIRTUAL_MODE", "", "virtualization mode"),
    _int(526, "VGPU_LICENSE_STATUS", "", "1 if the vGPU is licensed"),
    _int(843, "NVLINK_TX_BANDWIDTH_TOTAL", "MB/s", "NVLink sending of all links"),
    _int(897, "NVLINK_RX_BANDWIDTH_TOTAL", "MB/s", "NVLink receiving of all links"),
)

_PROFILING = (
    _ratio(1001, "GR_ENGINE_ACTIVE", "time in which the graphics or compute engine was busy"),
    _ratio(1002, "SM_ACTIVE", "cycles in which an SM had a warp, mean over SMs"),
    _ratio(1003, "SM_OCCUPANCY", "resident warps / most possible"),
    _ratio(1004, "PIPE_TENSOR_ACTIVE", "cycles in which a tensor pipe was busy"),
    _ratio(1005, "DRAM_ACTIVE", "cycles in which the memory interface was busy", "gpu_instance"),
    _ratio(1006, "PIPE_FP64_ACTIVE", "cycles in which the FP64 pipe was busy"),
    _ratio(1007, "PIPE_FP32_ACTIVE", "cycles in which the FP32 pipe was busy"),
    _ratio(1008, "PIPE_FP16_ACTIVE", "cycles in which the FP16 pipe was busy, without HMMA"),
    _rate(1009, "PCIE_TX_BYTES", "PCIe sending, headers included"),
    _rate(1010, "PCIE_RX_BYTES", "PCIe receiving, headers included"),
    _rate(1011, "NVLINK_TX_BYTES", "NVLink sending, headers included"),
    _rate(1012, "NVLINK_RX_BYTES", "NVLink receiving, headers included"),
    _ratio(1013, "PIPE_TENSOR_IMMA_ACTIVE", "cycles in which the integer tensor pipe was busy"),
    _ratio(1014, "PIPE_TENSOR_HMMA_ACTIVE", "cycles in which the half tensor pipe was busy"),
    _ratio(1015, "PIPE_TENSOR_DFMA_ACTIVE", "cycles in which the double tensor pipe was busy"),
    _ratio(1016, "PIPE_INT_ACTIVE", "cycles in which the integer pipe was busy"),
    *(
        _ratio(1017 + n, f"NVDEC{n}_ACTIVE", f"cycles in which NVDEC {n} was busy")
        for n in range(8)
    ),
    *(
        _ratio(1025 + n, f"NVJPG{n}_ACTIVE", f"cycles in which NVJPG {n} was busy")
        for n in range(8)
    ),
    *(
        _ratio(1033 + n, f"NVOFA{n}_ACTIVE", f"cycles in which NVOFA {n} was busy")
        for n in range(2)
    ),
    *(
        _rate(1040 + 2 * link + offset, f"NVLINK_L{link}_{way}_BYTES", f"NVLink {link}, {verb}")
        for link in range(NVLINK_LINKS)
        for offset, way, verb in ((0, "TX", "sending"), (1, "RX", "receiving"))
    ),
    _rate(1076, "C2C_TX_ALL_BYTES", "chip-to-chip sending, headers included"),
    _rate(1077, "C2C_TX_DATA_BYTES", "chip-to-chip sending, data only"),
    _rate(1078, "C2C_RX_ALL_BYTES", "chip-to-chip receiving, headers included"),
    _rate(1079, "C2C_RX_DATA_BYTES", "chip-to-chip receiving, data only"),
    _ratio(1080, "HOSTMEM_CACHE_HIT", "host memory requests served from cache", "gpu"),
    _ratio(1081, "HOSTMEM_CACHE_MISS", "host memory requests that missed the cache", "gpu"),
    _ratio(1082, "PEERMEM_CACHE_HIT", "peer memory requests served from cache", "gpu"),
    _ratio(1083, "PEERMEM_CACHE_MISS", "peer memory requests that missed the cache", "gpu"),
)

_DERIVED = (
    _derived(9001, "XID_ERRORS_COUNT", "XID events in a sliding window"),
    _derived(9002, "CLOCK_EVENTS_COUNT", "samples in a sliding window, by clock event"),
    _derived(9003, "GPU_HEALTH_STATUS", "health by subsystem: 0 pass, 10 warn, 20 fail"),
    _derived(9004, "P2P_STATUS", "peer-to-peer state by peer"),
    _derived(9005, "XID_ERRORS_TOTAL", "XID events since the exporter started"),
    _derived(9006, "CLOCK_EVENTS_TOTAL", "clock events since the exporter started"),
)

_ALL = (
    *_IDENTITY,
    *_CLOCKS_HEAT_POWER,
    *_WORK_AND_FAULTS,
    *_MEMORY,
    *_ECC_BY_PLACE,
    *_SPARE_ROWS,
    *_PER_LINK,
    *_LINK_COUNTS,
    *_FABRIC,
    *_NEEDS_AND_CAUSES,
    *_LINKS,
    *_PROFILING,
    *_DERIVED,
)

FIELDS: Mapping[str, Field] = MappingProxyType(
    {field.name: field for field in sorted(_ALL, key=lambda field: field.id)}
)
"""Every field that a counters file may name, by name, in id order."""
