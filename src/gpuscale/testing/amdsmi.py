"""A stand-in for the module `amdsmi`: the same names, signatures, keys and errors, over GPUs made of numbers.

Source: ROCm amdsmi 7.0.2, amdsmi_interface.py, amdsmi_exception.py and amdsmi_wrapper.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

INVAL, NOT_SUPPORTED, TIMEOUT, RETRY = 1, 2, 8, 9
NOT_FOUND, NOT_INIT, DRIVER_NOT_LOADED = 31, 32, 34

_TEXTS = {
    1: "AMDSMI_STATUS_INVAL - Invalid parameters",
    2: "AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported",
    6: "AMDSMI_STATUS_DRM_ERROR - Error when called libdrm",
    8: "AMDSMI_STATUS_TIMEOUT - Timeout in API call",
    9: "AMDSMI_STATUS_RETRY - Retry operation",
    10: "AMDSMI_STATUS_NO_PERM - Permission Denied",
    12: "AMDSMI_STATUS_IO - I/O Error",
    18: "AMDSMI_STATUS_INIT_ERROR - Initialization error",
    31: "AMDSMI_STATUS_NOT_FOUND - Device Not found",
    32: "AMDSMI_STATUS_NOT_INIT - Device not initialized",
    34: "AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded",
    40: "AMDSMI_STATUS_NO_DATA - No data was found for given input",
    54: "AMDSMI_STATUS_AMDGPU_RESTART_ERR - AMDGPU restart failed, please check dmsg for errors",
}
_UNKNOWN = "AMDSMI_STATUS_UNKNOWN_ERROR - An unknown error occurred"


class AmdSmiException(Exception):
    """Base of the module's errors."""


class AmdSmiLibraryException(AmdSmiException):
    """The native library answered with a status other than success."""

    def __init__(self, err_code: int) -> None:
        self.err_code = abs(err_code)
        self.err_info = _TEXTS.get(self.err_code, _UNKNOWN)
        super().__init__(self.err_code)

    def __str__(self) -> str:
        return f"Error code:\n\t{self.err_code} | {self.err_info}"

    def get_error_info(self, detailed: bool = True) -> str:
        """Return the status in words, or its name alone."""
        return self.err_info if detailed else self.err_info.split(" - ")[0]

    def get_error_code(self) -> int:
        return self.err_code


class AmdSmiRetryException(AmdSmiLibraryException):
    """The call should be made again."""

    def __init__(self) -> None:
        super().__init__(RETRY)


class AmdSmiTimeoutException(AmdSmiLibraryException):
    """The call took too long."""

    def __init__(self) -> None:
        super().__init__(TIMEOUT)


class AmdSmiInitFlags(IntEnum):
    """The library's initialization flags."""

    INIT_ALL_PROCESSORS = 4294967295
    INIT_AMD_CPUS = 1
    INIT_AMD_GPUS = 2
    INIT_AMD_APUS = 3
    INIT_NON_AMD_CPUS = 4
    INIT_NON_AMD_GPUS = 8


class AmdSmiTemperatureType(IntEnum):
    """Sensors."""

    EDGE = 0
    HOTSPOT = 1
    JUNCTION = 1
    VRAM = 2
    HBM_0 = 3
    HBM_1 = 4
    HBM_2 = 5
    HBM_3 = 6
    PLX = 7


class AmdSmiTemperatureMetric(IntEnum):
    """What to ask of a sensor."""

    CURRENT = 0
    MAX = 1
    MIN = 2


class AmdSmiClkType(IntEnum):
    """Clocks."""

    SYS = 0
    GFX = 0
    MEM = 4


class AmdSmiVirtualizationMode(IntEnum):
    """Where the driver runs."""

    UNKNOWN = 0
    BAREMETAL = 1
    HOST = 2
    GUEST = 3
    PASSTHROUGH = 4


@dataclass(slots=True)
class StandInGpu:
    """One GPU, by default a working MI300X; tests change what they are about.

    A value of "N/A" is what the module gives for a number that means no value.
    """

    uuid: str = "22ff74a1-0000-1000-80cc-1a2b3c4d5e6f"
    bdf: str = "0000:1a:00.0"
    market_name: str = "AMD Instinct MI300X"
    activity: dict[str, Any] = field(
        default_factory=lambda: {"gfx_activity": 42, "umc_activity": 17, "mm_activity": "N/A"}
    )
    current_socket_power: int | str = 310
    average_socket_power: int | str = "N/A"
    energy_accumulator: int = 2_000_000
    counter_resolution: float = 15.25
    vram_total: int = 196_592
    vram_used: int = 40_960
    temperatures: dict[int, int] = field(default_factory=lambda: {1: 61, 2: 55})
    """By sensor; the others are not supported."""
    clocks: dict[int, tuple[int | str, int, int]] = field(
        default_factory=lambda: {0: (1950, 132, 2100), 4: (1300, 900, 1300)}
    )
    """By clock: current, lowest and highest."""
    pcie_speed: int | str = 32_000
    pcie_replay_count: int | str = 3
    ecc: tuple[int, int, int] = (5, 0, 0)
    """Correctable, uncorrectable, deferred."""
    compute_units: int | str = 304
    processes: list[dict[str, Any]] = field(default_factory=list)
    faults: dict[str, Exception] = field(default_factory=dict)
    """By function: what it raises instead of answering. The key `*` is about all of them."""


@dataclass(frozen=True, slots=True)
class _Handle:
    """Valid as long as the driver that gave it out is not loaded again."""

    gpu: StandInGpu = field(compare=False)
    start: int


def stand_in_process(pid: int, *, name: str = "python", cu_occupancy: int | str) -> dict[str, Any]:
    """Return one item of a process list, with 2 GiB of memory."""
    return {
        "name": name,
        "pid": pid,
        "mem": 2 << 30,
        "engine_usage": {"gfx": 0, "enc": 0},
        "memory_usage": {"gtt_mem": 0, "cpu_mem": 0, "vram_mem": 2 << 30},
        "cu_occupancy": cu_occupancy,
    }


class StandInAmdSmi:
    """What `import amdsmi` gives, with GPUs that tests can change while it runs."""

    def __init__(self, *gpus: StandInGpu) -> None:
        self.AmdSmiException = AmdSmiException
        self.AmdSmiLibraryException = AmdSmiLibraryException
        self.AmdSmiRetryException = AmdSmiRetryException
        self.AmdSmiTimeoutException = AmdSmiTimeoutException
        self.AmdSmiInitFlags = AmdSmiInitFlags
        self.AmdSmiTemperatureType = AmdSmiTemperatureType
        self.AmdSmiTemperatureMetric = AmdSmiTemperatureMetric
        self.AmdSmiClkType = AmdSmiClkType
        self.AmdSmiVirtualizationMode = AmdSmiVirtualizationMode
        self.gpus = list(gpus)
        self.is_driver_loaded = True
        self.starts = 0
        """How often the library was started."""
        self._is_started = False
        self._driver = 0

    def reload_driver(self) -> None:
        """Make every handle that was given out so far invalid."""
        self._driver += 1

    def amdsmi_init(self, flag: AmdSmiInitFlags = AmdSmiInitFlags.INIT_AMD_GPUS) -> None:
        if not self.is_driver_loaded:
            raise AmdSmiLibraryException(DRIVER_NOT_LOADED)
        self._is_started = flag is AmdSmiInitFlags.INIT_AMD_GPUS
        self.starts += 1

    def amdsmi_shut_down(self) -> None:
        if not self._is_started:
            raise AmdSmiLibraryException(NOT_INIT)
        self._is_started = False

    def amdsmi_get_processor_handles(self) -> list[object]:
        """Return a handle of every GPU that is there."""
        self._check_started()
        return [_Handle(gpu, self._driver) for gpu in self.gpus]

    def amdsmi_get_gpu_device_uuid(self, processor_handle: object) -> str:
        return self._gpu(processor_handle, "amdsmi_get_gpu_device_uuid").uuid

    def amdsmi_get_gpu_device_bdf(self, processor_handle: object) -> str:
        return self._gpu(processor_handle, "amdsmi_get_gpu_device_bdf").bdf

    def amdsmi_get_gpu_asic_info(self, processor_handle: object) -> dict[str, Any]:
        gpu = self._gpu(processor_handle, "amdsmi_get_gpu_asic_info")
        return {
            "market_name": gpu.market_name,
            "vendor_id": "0x1002",
            "vendor_name": "Advanced Micro Devices Inc. [AMD/ATI]",
            "subvendor_id": "0x1002",
            "device_id": "0x74a1",
            "rev_id": "0x00",
            "asic_serial": "0x1A2B3C4D5E6F7081",
            "oam_id": 0,
            "num_compute_units": gpu.compute_units,
            "target_graphics_version": "gfx942",
            "subsystem_id": "0x74a1",
        }

    def amdsmi_get_gpu_board_info(self, processor_handle: object) -> dict[str, Any]:
        self._gpu(processor_handle, "amdsmi_get_gpu_board_info")
        return {
            "model_number": "102-G30211-0C",
            "product_serial": "692251001124",
            "fru_id": "113-AMDG302110C04-1234",
            "product_name": "AMD Instinct MI300X OAM",
            "manufacturer_name": "AMD",
        }

    def amdsmi_get_gpu_driver_info(self, processor_handle: object) -> dict[str, Any]:
        self._gpu(processor_handle, "amdsmi_get_gpu_driver_info")
        return {"driver_name": "amdgpu", "driver_version": "6.14.14", "driver_date": "N/A"}

    def amdsmi_get_gpu_kfd_info(self, processor_handle: object) -> dict[str, Any]:
        self._gpu(processor_handle, "amdsmi_get_gpu_kfd_info")
        return {"kfd_id": 45412, "node_id": 2, "current_partition_id": 0}

    def amdsmi_get_gpu_compute_partition(self, processor_handle: object) -> str:
        self._gpu(processor_handle, "amdsmi_get_gpu_compute_partition")
        return "SPX"

    def amdsmi_get_gpu_memory_partition(self, processor_handle: object) -> str:
        self._gpu(processor_handle, "amdsmi_get_gpu_memory_partition")
        return "NPS1"

    def amdsmi_get_gpu_virtualization_mode(self, processor_handle: object) -> dict[str, Any]:
        self._gpu(processor_handle, "amdsmi_get_gpu_virtualization_mode")
        return {"mode": AmdSmiVirtualizationMode.BAREMETAL}

    def amdsmi_get_gpu_activity(self, processor_handle: object) -> dict[str, Any]:
        """Return the use of the engines in percent."""
        return dict(self._gpu(processor_handle, "amdsmi_get_gpu_activity").activity)

    def amdsmi_get_power_info(self, processor_handle: object) -> dict[str, Any]:
        """Return power in watts and voltages in millivolts."""
        gpu = self._gpu(processor_handle, "amdsmi_get_power_info")
        is_known = isinstance(gpu.current_socket_power, int)
        return {
            "socket_power": gpu.current_socket_power if is_known else gpu.average_socket_power,
            "current_socket_power": gpu.current_socket_power,
            "average_socket_power": gpu.average_socket_power,
            "gfx_voltage": "N/A",
            "soc_voltage": "N/A",
            "mem_voltage": "N/A",
            "power_limit": 750_000_000,
        }

    def amdsmi_get_energy_count(self, processor_handle: object) -> dict[str, Any]:
        """Return a counter, and what one step of it is in microjoules."""
        gpu = self._gpu(processor_handle, "amdsmi_get_energy_count")
        return {
            "energy_accumulator": gpu.energy_accumulator,
            "counter_resolution": gpu.counter_resolution,
            "timestamp": 1_000_000_000,
        }

    def amdsmi_get_gpu_vram_usage(self, processor_handle: object) -> dict[str, Any]:
        """Return sizes in MiB."""
        gpu = self._gpu(processor_handle, "amdsmi_get_gpu_vram_usage")
        return {"vram_total": gpu.vram_total, "vram_used": gpu.vram_used}

    def amdsmi_get_temp_metric(
        self,
        processor_handle: object,
        sensor_type: AmdSmiTemperatureType,
        metric: AmdSmiTemperatureMetric,
    ) -> int:
        """Return degrees Celsius."""
        gpu = self._gpu(processor_handle, "amdsmi_get_temp_metric")
        if metric is not AmdSmiTemperatureMetric.CURRENT or sensor_type not in gpu.temperatures:
            raise AmdSmiLibraryException(NOT_SUPPORTED)
        return gpu.temperatures[sensor_type]

    def amdsmi_get_clock_info(
        self, processor_handle: object, clock_type: AmdSmiClkType
    ) -> dict[str, Any]:
        """Return a clock in MHz."""
        gpu = self._gpu(processor_handle, "amdsmi_get_clock_info")
        if clock_type not in gpu.clocks:
            raise AmdSmiLibraryException(NOT_SUPPORTED)
        clk, min_clk, max_clk = gpu.clocks[clock_type]
        return {
            "clk": clk,
            "min_clk": min_clk,
            "max_clk": max_clk,
            "clk_locked": False,
            "clk_deep_sleep": "N/A",
        }

    def amdsmi_get_pcie_info(self, processor_handle: object) -> dict[str, Any]:
        """Return the state of the link; speeds in MT/s, traffic in Mb/s."""
        gpu = self._gpu(processor_handle, "amdsmi_get_pcie_info")
        counts = (
            "pcie_l0_to_recovery_count",
            "pcie_replay_roll_over_count",
            "pcie_nak_sent_count",
            "pcie_nak_received_count",
            "pcie_lc_perf_other_end_recovery_count",
        )
        return {
            "pcie_static": {
                "max_pcie_width": 16,
                "max_pcie_speed": 32_000,
                "pcie_interface_version": 5,
                "slot_type": "OAM",
            },
            "pcie_metric": {
                "pcie_width": 16,
                "pcie_speed": gpu.pcie_speed,
                "pcie_bandwidth": 120,
                "pcie_replay_count": gpu.pcie_replay_count,
                **dict.fromkeys(counts, 0),
            },
        }

    def amdsmi_get_gpu_total_ecc_count(self, processor_handle: object) -> dict[str, Any]:
        """Return the number of ECC errors of all blocks."""
        gpu = self._gpu(processor_handle, "amdsmi_get_gpu_total_ecc_count")
        names = ("correctable_count", "uncorrectable_count", "deferred_count")
        return dict(zip(names, gpu.ecc, strict=True))

    def amdsmi_get_gpu_process_list(self, processor_handle: object) -> list[Mapping[str, Any]]:
        """Return the processes that compute on the GPU."""
        return list(self._gpu(processor_handle, "amdsmi_get_gpu_process_list").processes)

    def _check_started(self) -> None:
        if not self._is_started:
            raise AmdSmiLibraryException(NOT_INIT)
        if not self.is_driver_loaded:
            raise AmdSmiLibraryException(DRIVER_NOT_LOADED)

    def _gpu(self, handle: object, function: str) -> StandInGpu:
        self._check_started()
        if not isinstance(handle, _Handle) or handle.start != self._driver:
            raise AmdSmiLibraryException(INVAL)
        fault = handle.gpu.faults.get(function) or handle.gpu.faults.get("*")
        if fault is not None:
            raise fault
        return handle.gpu
