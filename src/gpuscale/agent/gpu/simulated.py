"""Simulated GPUs: the readings of a node under a given work.

Theory of operation. Work arrives as means over a time: the share of time in which each process kept the
GPU busy, and the share in which memory was moving. All that a reading holds follows from those shares:

- Utilisation is the sum of the shares, at most all of the time. It carries no noise.
- Power is linear between idle and limit in the shares, so the mean power of a time is the power of its
  mean shares, and energy is exactly power times time however often it is read.
- Temperature follows power as a first-order lag, advanced by its closed form `exp(-dt / tau)`, so the
  pace of reading makes no difference either.
- Only the power reading carries noise, from a table drawn once from the GPU's own random stream.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from uuid import UUID

from gpuscale.agent.gpu.models import GpuModel, Vendor
from gpuscale.agent.gpu.reader import CallStats
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading, ProcessReading
from gpuscale.base.streams import stream
from gpuscale.signals import FIELDS, Field
from gpuscale.signals.amd import DCGM_FIXED, DCGM_SOURCES

BUSY_POWER_SHARE = 0.85
"""Part of the span from idle to limit that kernels draw; a guess between inference and training."""
MEMORY_POWER_SHARE = 1.0 - BUSY_POWER_SHARE
"""The rest goes with memory traffic."""
POWER_NOISE_RATIO = 0.005
"""Half the width of the noise of a power reading; a guess, enough to keep graphs from being flat."""
SM_ACTIVE_PER_BUSY = 0.965
"""96.0 % SM active at 99.4 % engine active: an H200 in a loop of 8192x8192 bf16 products."""
OCCUPANCY_PER_BUSY = 0.143
"""14.2 % at 99.4 % in the same run."""
TENSOR_PER_BUSY = 0.5
"""That run has 0.94; inference with its smaller matrices stays well below."""
PIPE_PER_BUSY = 0.1
"""FP32 and integer pipes beside tensor work; a guess."""
PCIE_TX_PER_BUSY = 0.01
PCIE_RX_PER_BUSY = 0.03
"""Requests come in larger than answers go out; parts of what the slot carries, a guess."""
HOT_MARGIN_C = 5.0
"""How far below its hottest a GPU starts to lower its clock."""
HOT_CLOCK_LOSS_RATIO = 0.05
"""What it has given up of its clock at its hottest."""
MEMORY_ABOVE_CORE_C = 4.0
"""HBM runs a little hotter than the core."""

_REASON_IDLE = 0x1
_REASON_POWER_CAP = 0x4
_REASON_THERMAL = 0x20
_NOISE_LENGTH = 256
_FIRST_BUS = 0x1A
_BUS_STEP = 13
_GPUS_PER_DOMAIN = 16
_DRIVERS: Mapping[Vendor, str] = {"NVIDIA": "570.86.15", "AMD": "6.12.12"}
LOST = "the GPU is lost"
"""The reason that every field of a lost GPU is absent for."""


@dataclass(frozen=True, slots=True)
class GpuWork:
    """One process' mean work on one GPU over a time span."""

    pid: int
    process_name: str
    busy_ratio: float
    """Share of the time in which a kernel of the process ran; zero or more."""
    memory_copy_ratio: float
    """Share of the time in which it kept the memory interface busy; zero or more."""
    memory_mib: int
    """Framebuffer that the process holds; zero or more."""


WorkSource = Callable[[int, int, int], Sequence[GpuWork]]
"""(GPU index, from_ms exclusive, to_ms inclusive) to the work of that time, idle processes included."""


@dataclass(slots=True)
class _Load:
    """The sum of a GPU's work, limited to its capacity."""

    busy_ratio: float
    copy_ratio: float
    used_mib: int


@dataclass(slots=True)
class _Moment:
    """The inputs of all field values at one time."""

    model: GpuModel
    load: _Load
    power_w: float
    temp_c: float
    energy_j: float


class _State:
    """One GPU's state between readings."""

    __slots__ = ("energy_j", "gpu", "is_lost", "noise", "read_ms", "temp_c")

    def __init__(self, gpu: GpuIdentity, noise: tuple[float, ...], temp_c: float) -> None:
        self.gpu = gpu
        self.noise = noise
        self.temp_c = temp_c
        self.energy_j = 0.0
        self.read_ms: int | None = None
        self.is_lost = False


class SimulatedReader:
    """Readings of a node's simulated GPUs. Never blocks; same seed and calls give the same values.

    Args:
        node_name: names the random streams, and so the UUIDs.
        model: every GPU of a node is alike.
        count: GPUs on the node.
        seed: of the run.
        work: what the GPUs were doing, asked for once or twice a reading.
        window_ms: how long the time is that utilisation and power are means of.
        fields: compute only these; all that are simulated when None.
        driver_version: what the label of that name says; one of the vendor's when None.
    """

    def __init__(
        self,
        node_name: str,
        model: GpuModel,
        count: int,
        seed: int,
        work: WorkSource,
        window_ms: int = 1000,
        *,
        fields: frozenset[str] | None = None,
        driver_version: str | None = None,
    ) -> None:
        self.model = model
        self._work = work
        self._window_ms = window_ms
        asked = tuple(name for name in FIELDS if fields is None or name in fields)
        fixed = {
            **_fixed_values(model),
            "DCGM_FI_DRIVER_VERSION": driver_version or _DRIVERS[model.vendor],
            "DCGM_FI_DEV_COUNT": count,
        }
        missing = {name: reason for name in asked if (reason := _why_absent(FIELDS[name], model))}
        self._fixed = {name: fixed[name] for name in asked if name in fixed and name not in missing}
        self._changing = tuple(
            (name, _CHANGING[name]) for name in asked if name in _CHANGING and name not in missing
        )
        shows_power = any(name in _OF_POWER for name, _ in self._changing)
        self._new_states: Callable[[], tuple[_State, ...]] = lambda: tuple(
            _new_state(seed, node_name, model, index, has_noise=shows_power)
            for index in range(count)
        )
        self._absent = MappingProxyType(missing)
        self._all_lost = MappingProxyType(dict.fromkeys(asked, LOST))

    @cached_property
    def _states(self) -> tuple[_State, ...]:
        """Return the states of the GPUs, created on demand, as many are never read."""
        return self._new_states()

    def gpus(self) -> tuple[GpuIdentity, ...]:
        """Return every GPU of the node, lost ones included."""
        return tuple(state.gpu for state in self._states)

    def stats(self) -> tuple[CallStats, ...]:
        """Return nothing: simulated readings have no library costs."""
        return ()

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def lose(self, index: int) -> None:
        """Let a GPU fail: from now on it has no values, only a reason."""
        self._states[index].is_lost = True

    def mend(self, index: int) -> None:
        """Let a lost GPU be read again, as after a reset."""
        self._states[index].is_lost = False

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        """Return the readings for the time that ends at `now_ms`."""
        return tuple(self._read(state, now_ms) for state in self._states)

    def read_one(self, index: int, now_ms: int) -> GpuReading:
        """Return one GPU's reading; arguments as `read`."""
        return self._read(self._states[index], now_ms)

    def _read(self, state: _State, now_ms: int) -> GpuReading:
        if state.is_lost:
            return GpuReading(state.gpu, now_ms, {}, self._all_lost)
        from_ms = now_ms - self._window_ms
        works = self._work(state.gpu.index, from_ms, now_ms)
        load = self._load(works)
        power_w = self._power_w(load)
        self._advance(state, now_ms, from_ms, power_w)
        noise = state.noise[now_ms // self._window_ms % len(state.noise)]
        shown_w = min(self.model.max_power_w, power_w * (1.0 + noise))
        moment = _Moment(self.model, load, shown_w, state.temp_c, state.energy_j)
        values: dict[str, int | float | str] = dict(self._fixed)
        for name, value in self._changing:
            values[name] = value(moment)
        return GpuReading(state.gpu, now_ms, values, self._absent, self._processes(works, load))

    def _load(self, works: Sequence[GpuWork]) -> _Load:
        busy, copy, memory = 0.0, 0.0, 0
        for work in works:
            busy += work.busy_ratio
            copy += work.memory_copy_ratio
            memory += work.memory_mib
        return _Load(min(1.0, busy), min(1.0, copy), min(_usable_mib(self.model), memory))

    def _power_w(self, load: _Load) -> float:
        return mean_power_w(self.model, load.busy_ratio, load.copy_ratio)

    def _advance(self, state: _State, now_ms: int, from_ms: int, window_power_w: float) -> None:
        """Advance energy and temperature to now."""
        since_ms = from_ms if state.read_ms is None else state.read_ms
        if now_ms <= since_ms:
            return
        power_w = window_power_w
        if since_ms != from_ms:
            power_w = self._power_w(self._load(self._work(state.gpu.index, since_ms, now_ms)))
        seconds = (now_ms - since_ms) / 1000.0
        target_c = _settled_temp_c(self.model, power_w)
        decay = math.exp(-seconds / self.model.thermal_time_constant_s)
        state.temp_c = target_c + (state.temp_c - target_c) * decay
        state.energy_j += power_w * seconds
        state.read_ms = now_ms

    def _processes(self, works: Sequence[GpuWork], load: _Load) -> tuple[ProcessReading, ...]:
        """Return one reading per process, rounded so that they add up to the device's values."""
        busy_scale = _scale(load.busy_ratio, sum(work.busy_ratio for work in works))
        copy_scale = _scale(load.copy_ratio, sum(work.memory_copy_ratio for work in works))
        readings = []
        busy, copy, memory = 0.0, 0.0, 0
        sm_before, copy_before, memory_before = 0, 0, 0
        for work in works:
            busy += work.busy_ratio * busy_scale
            copy += work.memory_copy_ratio * copy_scale
            memory += work.memory_mib
            sm, moved, held = _percent(busy), _percent(copy), min(memory, _usable_mib(self.model))
            readings.append(
                ProcessReading(
                    work.pid,
                    work.process_name,
                    sm - sm_before,
                    moved - copy_before,
                    0,
                    0,
                    held - memory_before,
                )
            )
            sm_before, copy_before, memory_before = sm, moved, held
        return tuple(readings)


def mean_power_w(model: GpuModel, busy_ratio: float, copy_ratio: float) -> float:
    """Return a GPU's mean power over a time span, from its busy shares."""
    share = BUSY_POWER_SHARE * busy_ratio + MEMORY_POWER_SHARE * copy_ratio
    return model.idle_power_w + (model.max_power_w - model.idle_power_w) * share


def _new_state(
    seed: int, node_name: str, model: GpuModel, index: int, *, has_noise: bool
) -> _State:
    names = (node_name, str(index))
    uuid = UUID(int=stream(seed, "gpu-uuid", *names).getrandbits(128), version=4)
    bus = _FIRST_BUS + _BUS_STEP * (index % _GPUS_PER_DOMAIN)
    bus_id = f"{index // _GPUS_PER_DOMAIN:08X}:{bus:02X}:00.0"
    draws = stream(seed, "gpu-power-noise", *names)
    # Tables for ten thousand idle GPUs would be most of a simulation's memory.
    noise = tuple(
        draws.uniform(-POWER_NOISE_RATIO, POWER_NOISE_RATIO)
        for _ in range(_NOISE_LENGTH if has_noise else 1)
    )
    return _State(GpuIdentity(index, f"GPU-{uuid}", bus_id, model.name), noise, model.idle_temp_c)


def _usable_mib(model: GpuModel) -> int:
    return model.memory_mib - model.reserved_mib


def _settled_temp_c(model: GpuModel, power_w: float) -> float:
    share = (power_w - model.idle_power_w) / (model.max_power_w - model.idle_power_w)
    return model.idle_temp_c + (model.max_temp_c - model.idle_temp_c) * share


def _scale(held: float, total: float) -> float:
    return held / total if total > 1.0 else 1.0


def _percent(ratio: float) -> int:
    return min(100, int(ratio * 100.0 + 0.5))


def _nearest(value: float) -> int:
    return int(value + 0.5)


def _sm_clock_mhz(moment: _Moment) -> int:
    model = moment.model
    if not moment.load.busy_ratio:
        return model.idle_sm_clock_mhz
    return _nearest(model.max_sm_clock_mhz * (1.0 - HOT_CLOCK_LOSS_RATIO * _heat_ratio(moment)))


def _heat_ratio(moment: _Moment) -> float:
    """Return 0 below the hot margin, rising to 1 at the model's hottest."""
    above_c = moment.temp_c - (moment.model.max_temp_c - HOT_MARGIN_C)
    return max(0.0, min(1.0, above_c / HOT_MARGIN_C))


def _memory_clock_mhz(moment: _Moment) -> int:
    model = moment.model
    return model.memory_clock_mhz if moment.load.busy_ratio else model.idle_memory_clock_mhz


def _clock_reasons(moment: _Moment) -> int:
    if not moment.load.busy_ratio:
        return _REASON_IDLE
    hot = _REASON_THERMAL if _heat_ratio(moment) else 0
    capped = _REASON_POWER_CAP if moment.power_w >= moment.model.max_power_w else 0
    return hot | capped


def _used_ratio(moment: _Moment) -> float:
    return moment.load.used_mib / _usable_mib(moment.model)


_Value = Callable[[_Moment], int | float]


def _busy_times(factor: float) -> _Value:
    return lambda moment: moment.load.busy_ratio * factor


def _pcie_times(factor: float) -> _Value:
    return lambda moment: _nearest(moment.load.busy_ratio * factor * moment.model.pcie_bytes_per_s)


_CHANGING: Mapping[str, _Value] = {
    "DCGM_FI_DEV_SM_CLOCK": _sm_clock_mhz,
    "DCGM_FI_DEV_MEM_CLOCK": _memory_clock_mhz,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": _clock_reasons,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": _clock_reasons,
    "DCGM_FI_DEV_MEMORY_TEMP": lambda moment: _nearest(moment.temp_c + MEMORY_ABOVE_CORE_C),
    "DCGM_FI_DEV_GPU_TEMP": lambda moment: _nearest(moment.temp_c),
    "DCGM_FI_DEV_POWER_USAGE": lambda moment: round(moment.power_w, 3),
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": lambda moment: round(moment.power_w, 3),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": lambda moment: int(moment.energy_j * 1000.0),
    "DCGM_FI_DEV_GPU_UTIL": lambda moment: _percent(moment.load.busy_ratio),
    "DCGM_FI_DEV_MEM_COPY_UTIL": lambda moment: _percent(moment.load.copy_ratio),
    "DCGM_FI_DEV_FB_FREE": lambda moment: _usable_mib(moment.model) - moment.load.used_mib,
    "DCGM_FI_DEV_FB_USED": lambda moment: moment.load.used_mib,
    "DCGM_FI_DEV_FB_USED_PERCENT": _used_ratio,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _busy_times(1.0),
    "DCGM_FI_PROF_SM_ACTIVE": _busy_times(SM_ACTIVE_PER_BUSY),
    "DCGM_FI_PROF_SM_OCCUPANCY": _busy_times(OCCUPANCY_PER_BUSY),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _busy_times(TENSOR_PER_BUSY),
    "DCGM_FI_PROF_PIPE_TENSOR_HMMA_ACTIVE": _busy_times(TENSOR_PER_BUSY),
    "DCGM_FI_PROF_DRAM_ACTIVE": lambda moment: moment.load.copy_ratio,
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": _busy_times(PIPE_PER_BUSY),
    "DCGM_FI_PROF_PIPE_INT_ACTIVE": _busy_times(PIPE_PER_BUSY),
    "DCGM_FI_PROF_PCIE_TX_BYTES": _pcie_times(PCIE_TX_PER_BUSY),
    "DCGM_FI_PROF_PCIE_RX_BYTES": _pcie_times(PCIE_RX_PER_BUSY),
}
"""Fields whose value follows from the moment."""

_OF_POWER = frozenset(
    {
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
        "DCGM_FI_DEV_POWER_USAGE",
        "DCGM_FI_DEV_POWER_USAGE_INSTANT",
    }
)
"""Those of them that show the reading of power, with its noise."""
_NONE_SO_FAR = (
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_DEC_UTIL",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL",
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL",
    "DCGM_FI_DEV_RETIRED_SBE",
    "DCGM_FI_DEV_RETIRED_DBE",
    "DCGM_FI_DEV_RETIRED_PENDING",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_ROW_REMAP_PENDING",
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
    "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION",
    "DCGM_FI_PROF_NVLINK_TX_BYTES",
    "DCGM_FI_PROF_NVLINK_RX_BYTES",
)
"""Fields of a GPU that is in order, works alone and has no video to code: truly zero."""


def _fixed_values(model: GpuModel) -> dict[str, int | float | str]:
    """Return the fields that are constants of the model."""
    limit = float(model.max_power_w)
    return {
        **dict.fromkeys(_NONE_SO_FAR, 0),
        "DCGM_FI_DEV_NAME": model.name,
        "DCGM_FI_DEV_MAX_SM_CLOCK": model.max_sm_clock_mhz,
        "DCGM_FI_DEV_MAX_MEM_CLOCK": model.memory_clock_mhz,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT": limit,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT_MAX": limit,
        "DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF": limit,
        "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": limit,
        "DCGM_FI_DEV_FB_TOTAL": model.memory_mib,
        "DCGM_FI_DEV_FB_RESERVED": model.reserved_mib,
        "DCGM_FI_DEV_MIG_MODE": 0,
        "DCGM_FI_DEV_MIG_MAX_SLICES": model.mig_slices,
    }


_OF_AMD_SMI = frozenset(DCGM_SOURCES) | frozenset(DCGM_FIXED)
"""What the reader of real AMD GPUs serves under DCGM's names."""
_ALWAYS_SIMULATED = frozenset({"DCGM_FI_DRIVER_VERSION", "DCGM_FI_DEV_COUNT"})


def _why_absent(field: Field, model: GpuModel) -> str | None:
    """Return why the model has no value for a field; None if it has one."""
    lacks = _what_it_lacks(field, model)
    if lacks:
        return f"{model.name} has no {lacks}"
    known = field.name in _CHANGING or field.name in _ALWAYS_SIMULATED
    return None if known or field.name in _fixed_values(model) else "not simulated"


def _what_it_lacks(field: Field, model: GpuModel) -> str | None:
    if model.vendor == "AMD" and field.name not in _OF_AMD_SMI:
        return "such value in AMD SMI"
    if field.name.startswith("DCGM_FI_DEV_MIG_") and not model.mig_slices:
        return "MIG"
    if field.is_profiling and not model.has_profiling:
        return "profiling counters"
    if "NVLINK" in field.name and not model.has_nvlink:
        return "NVLink"
    if field.name == "DCGM_FI_DEV_MEMORY_TEMP" and not model.has_memory_sensor:
        return "memory temperature sensor"
    if field.name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" and not model.has_energy_counter:
        return "energy counter"
    if "_REMAP" in field.name and not model.has_row_remapping:
        return "row remapping"
    if "_RETIRED_" in field.name and model.has_row_remapping:
        return "page retirement"
    return None


PERIOD_MS = 300_000
FIRST_PID = 4000
_MEAN_BUSY = 0.5
_SWING = 0.45
_PHASE_PER_GPU = 0.7
_COPY_PER_BUSY = 0.4
_MEMORY_MIB = 8000


def wave(gpu_index: int, from_ms: int, to_ms: int) -> Sequence[GpuWork]:
    """Return the work of one process per GPU, busy between 5 % and 95 % in waves of five minutes.

    It is what simulated GPUs do where nothing else says it.
    """
    turn = 2 * math.pi * ((from_ms + to_ms) / 2 % PERIOD_MS) / PERIOD_MS
    busy = _MEAN_BUSY + _SWING * math.sin(turn + _PHASE_PER_GPU * gpu_index)
    return (GpuWork(FIRST_PID + gpu_index, "python", busy, busy * _COPY_PER_BUSY, _MEMORY_MIB),)
