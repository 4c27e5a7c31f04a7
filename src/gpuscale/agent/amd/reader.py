"""AMD GPUs as AMD SMI shows them.

Not yet run on hardware: the calls, their keys and their faults are those of the library's source.

Faults:

- A call that fails leaves its values absent, with the library's words as the reason.
- A GPU of which no call succeeds is lost. The others are read as ever. While one is lost, the library is
  started again every `RETRY_MS`, which finds GPUs that came back under a new handle.
- A fault of the driver as a whole makes nothing readable; the next read starts the library again.
- A GPU that was there once stays listed as lost, unless another one takes its place on the bus, as
  partitions do.

AMD SMI reports a process' memory and how many compute units it occupies, which is served under AMD's own
name, but not for how much of the time it used which engine: those parts of a `ProcessReading` stay unknown.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from gpuscale.agent.amd.library import AmdFault, AmdLibrary, load_amdsmi
from gpuscale.agent.gpu.reader import CallStats
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading, ProcessReading
from gpuscale.base.errors import UnavailableError
from gpuscale.signals import FIELDS
from gpuscale.signals.amd import (
    AMD_CALLS,
    DCGM_FIXED,
    DCGM_SOURCES,
    NOT_AVAILABLE,
    PROCESS_FUNCTION,
    PROCESS_PREFIX,
    AmdCall,
    NoValueError,
    dcgm_value,
)

RETRY_MS = 30_000
"""Pause between two starts of the library for the sake of a lost GPU; a guess: starting it costs the
others a late reading, and a GPU that was reset takes longer than this."""
NOT_IN_AMD_SMI = "AMD SMI has no such value"
NOT_LISTED = "AMD SMI does not list the GPU any more"

_MIB = 1024 * 1024
_log = logging.getLogger(__name__)
_Value = int | float | str


@dataclass(frozen=True, slots=True)
class _Gpu:
    """A GPU with its constant properties."""

    identity: GpuIdentity
    handle: object = field(compare=False)
    fixed: Mapping[str, _Value]
    compute_units: int | None
    lost: str | None = None
    """Why it has no handle."""

    @property
    def place(self) -> str:
        return self.identity.pci_bus_id


@dataclass(slots=True)
class _Found:
    """The results so far of the calls for one GPU."""

    values: dict[str, _Value] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    processes: list[ProcessReading] = field(default_factory=list)
    has_answered: bool = False
    fault: AmdFault | None = None
    """The first one."""


class AmdReader:
    """Readings of a node's AMD GPUs.

    Args:
        module: what to call instead of the installed `amdsmi`; for tests.
        fields: the DCGM fields to give; all that AMD SMI has when None. AMD's own values always come.
    """

    def __init__(
        self, module: object | None = None, *, fields: frozenset[str] | None = None
    ) -> None:
        self._module = module
        self._asked = tuple(name for name in FIELDS if fields is None or name in fields)
        self._library: AmdLibrary | None = None
        self._is_open = False
        self._gpus: tuple[_Gpu, ...] = ()
        self._started_ms: int | None = None
        self._has_lost = False
        self._unnamed = 0

    def gpus(self) -> tuple[GpuIdentity, ...]:
        """Return all GPUs that were ever seen, lost ones included; none if AMD SMI never started."""
        if not self._is_open and not self._gpus:
            with suppress(UnavailableError):
                self._start()
        return tuple(gpu.identity for gpu in self._gpus)

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        """Return the state of every GPU, in index order.

        Raises:
            UnavailableError: AMD SMI can't be started, or its driver is gone.
        """
        library = self._ready(now_ms)
        try:
            readings = tuple(self._read(library, gpu, now_ms) for gpu in self._gpus)
        except AmdFault as fault:
            self._shut_down()
            raise UnavailableError(f"AMD SMI lost its driver: {fault.reason}") from fault
        self._has_lost = any(reading.is_lost for reading in readings)
        return readings

    def stats(self) -> tuple[CallStats, ...]:
        """Return the cost of the library's functions so far."""
        return () if self._library is None else self._library.stats()

    def close(self) -> None:
        """Shut the library down; a second call does nothing."""
        self._shut_down()

    def _ready(self, now_ms: int) -> AmdLibrary:
        """Return the library, after starting it, or restarting it when that is due."""
        if self._is_open and (self._has_lost or self._unnamed):
            started_ms = now_ms if self._started_ms is None else self._started_ms
            # A clock that was set back must not stop the retries.
            if not 0 <= now_ms - started_ms < RETRY_MS:
                self._shut_down()
        library = self._library if self._is_open else None
        if library is None:
            library = self._start()
            self._started_ms = None
        if self._started_ms is None:
            self._started_ms = now_ms
        return library

    def _start(self) -> AmdLibrary:
        if self._library is None:
            self._library = AmdLibrary(load_amdsmi() if self._module is None else self._module)
        library = self._library
        try:
            library.call("amdsmi_init", library.member("AmdSmiInitFlags", "INIT_AMD_GPUS"))
        except AmdFault as fault:
            hint = "is the amdgpu driver loaded?"
            raise UnavailableError(f"AMD SMI can't be started: {fault.reason}; {hint}") from fault
        self._is_open = True
        try:
            handles = library.call("amdsmi_get_processor_handles")
            found = _found_gpus(library, handles)
        except AmdFault as fault:
            self._shut_down()
            raise UnavailableError(f"AMD SMI can't list the GPUs: {fault.reason}") from fault
        self._unnamed = len(handles) - len(found)
        self._gpus = _merged(self._gpus, found)
        if not self._gpus:
            self._shut_down()
            raise UnavailableError("AMD SMI found no GPU on this node")
        return library

    def _shut_down(self) -> None:
        if self._is_open and self._library is not None:
            self._is_open = False
            with suppress(AmdFault):
                self._library.call("amdsmi_shut_down")

    def _read(self, library: AmdLibrary, gpu: _Gpu, now_ms: int) -> GpuReading:
        if gpu.lost is not None:
            return self._lost(gpu, now_ms, gpu.lost)
        found = _Found()
        for call in AMD_CALLS:
            _measure(library, gpu, call, found)
            if found.fault is not None and found.fault.is_gone and not found.has_answered:
                break
        if not found.has_answered:
            reason = NOT_AVAILABLE if found.fault is None else found.fault.reason
            return self._lost(gpu, now_ms, reason)
        _measure_processes(library, gpu, found)
        for name in self._asked:
            if name in DCGM_SOURCES:
                value = dcgm_value(name, found.values)
                if value is None:
                    found.absent[name] = found.absent[DCGM_SOURCES[name].keys[0]]
                else:
                    found.values[name] = value
            elif name in gpu.fixed:
                found.values[name] = gpu.fixed[name]
            else:
                found.absent[name] = NOT_AVAILABLE if name in DCGM_FIXED else NOT_IN_AMD_SMI
        own = {key: value for key, value in gpu.fixed.items() if key not in DCGM_FIXED}
        found.values.update(own)
        processes = tuple(found.processes)
        return GpuReading(gpu.identity, now_ms, found.values, found.absent, processes)

    def _lost(self, gpu: _Gpu, now_ms: int, reason: str) -> GpuReading:
        keys = (value.key for call in AMD_CALLS for value in call.values)
        return GpuReading(gpu.identity, now_ms, {}, dict.fromkeys((*self._asked, *keys), reason))


def _measure(library: AmdLibrary, gpu: _Gpu, call: AmdCall, found: _Found) -> None:
    """Make one call and store its values.

    Raises:
        AmdFault: no GPU can be read any more.
    """
    try:
        arguments = [library.member(enum, name) for enum, name in call.arguments]
        answer = library.call(call.function, gpu.handle, *arguments)
    except AmdFault as fault:
        if fault.ends_session:
            raise
        found.fault = found.fault or fault
        found.absent.update(dict.fromkeys((value.key for value in call.values), fault.reason))
        return
    found.has_answered = True
    for value in call.values:
        try:
            found.values[value.key] = value.read(answer)
        except NoValueError as error:
            found.absent[value.key] = str(error)


def _measure_processes(library: AmdLibrary, gpu: _Gpu, found: _Found) -> None:
    """Store the processes, with their share of the compute units where it is reported."""
    try:
        processes = library.call(PROCESS_FUNCTION, gpu.handle)
    except AmdFault as fault:
        if fault.ends_session:
            raise
        found.absent[PROCESS_PREFIX] = fault.reason
        return
    for process in processes if isinstance(processes, list) else ():
        pid = process.get("pid") if isinstance(process, dict) else None
        if not isinstance(pid, int):
            continue
        memory_mib: int | None = None
        match process.get("memory_usage"):
            case {"vram_mem": int(held)} if held >= 0:
                memory_mib = held // _MIB
        name = process.get("name")
        shown = name if isinstance(name, str) and name != "N/A" else ""
        found.processes.append(ProcessReading(pid, shown, None, None, None, None, memory_mib))
        match process.get("cu_occupancy"), gpu.compute_units:
            case int(used), int(units) if 0 <= used <= units:
                found.values[f"{PROCESS_PREFIX}{pid}"] = 100 * used / units


def _found_gpus(library: AmdLibrary, handles: Sequence[object]) -> list[_Gpu]:
    """Return the GPUs of these handles; one without an identity is skipped, with a log line."""
    gpus = []
    for index, handle in enumerate(handles):
        try:
            gpus.append(_found_gpu(library, index, handle, len(handles)))
        except AmdFault as fault:
            if fault.ends_session:
                raise
            _log.warning("AMD GPU %d can't be identified by its UUID: %s", index, fault.reason)
    return gpus


def _found_gpu(library: AmdLibrary, index: int, handle: object, count: int) -> _Gpu:
    uuid = str(library.call("amdsmi_get_gpu_device_uuid", handle))
    bdf = str(library.call("amdsmi_get_gpu_device_bdf", handle))
    domain, _, rest = bdf.partition(":")
    bus_id = f"{domain:>08}:{rest}".upper()  # DCGM writes 0000:1a:00.0 as 00000000:1A:00.0
    asic = _known(library, "amdsmi_get_gpu_asic_info", handle)
    board = _known(library, "amdsmi_get_gpu_board_info", handle)
    driver = _known(library, "amdsmi_get_gpu_driver_info", handle)
    name = asic.get("market_name") or board.get("product_name") or "AMD GPU"
    serial = board.get("product_serial") or asic.get("asic_serial")
    units = asic.get("num_compute_units")
    kfd = _known(library, "amdsmi_get_gpu_kfd_info", handle)
    mode = _known(library, "amdsmi_get_gpu_virtualization_mode", handle).get("mode")
    fixed = {
        "DCGM_FI_DRIVER_VERSION": driver.get("driver_version"),
        "DCGM_FI_DEV_COUNT": count,
        "DCGM_FI_DEV_NAME": name,
        "DCGM_FI_DEV_SERIAL": serial,
        "DCGM_FI_DEV_UUID": uuid,
        "DCGM_FI_DEV_PCI_BUSID": bus_id,
        "amd:card_model": board.get("model_number") or name,
        "amd:serial_number": serial,
        "amd:partition_id": kfd.get("current_partition_id"),
        "amd:compute_partition": _text(library, "amdsmi_get_gpu_compute_partition", handle),
        "amd:memory_partition": _text(library, "amdsmi_get_gpu_memory_partition", handle),
        "amd:virtualization_mode": None if mode is None else str(getattr(mode, "name", mode)),
    }
    return _Gpu(
        GpuIdentity(index, uuid, bus_id, str(name)),
        handle,
        {key: value for key, value in fixed.items() if value is not None},
        units if isinstance(units, int) and units > 0 else None,
    )


def _known(library: AmdLibrary, function: str, handle: object) -> dict[str, _Value]:
    """Return the parts of an answer that have a value; empty if the call fails."""
    try:
        answer = library.call(function, handle)
    except AmdFault as fault:
        if fault.ends_session:
            raise
        return {}
    if not isinstance(answer, dict):
        return {}
    plain = ((key, value) for key, value in answer.items() if isinstance(value, (int, float, str)))
    return {key: value for key, value in plain if value not in ("", "N/A")}


def _text(library: AmdLibrary, function: str, handle: object) -> str | None:
    try:
        answer = str(library.call(function, handle))
    except AmdFault as fault:
        if fault.ends_session:
            raise
        return None
    return None if answer in ("", "N/A") else answer


def _merged(before: Sequence[_Gpu], found: Sequence[_Gpu]) -> tuple[_Gpu, ...]:
    """Return the current GPUs, and the lost ones whose index is not in use again."""
    known = {(gpu.identity.uuid, gpu.place) for gpu in found}
    places = {gpu.place for gpu in found}
    missing = (
        replace(gpu, handle=None, lost=NOT_LISTED)
        for gpu in before
        if (gpu.identity.uuid, gpu.place) not in known and gpu.place not in places
    )
    gpus = (*found, *missing)
    return tuple(sorted(gpus, key=lambda gpu: (gpu.identity.index, gpu.place)))
