"""The processes on a GPU: memory and utilization of each.

The driver reports use only for processes that had some. No sample at all means that every process was idle,
and it says so with the code for "not found"; that is a zero, not a gap.

Measured on an H200: the driver looks every 200 ms, and gives the whole of what the GPU did since to the one
process that runs at that moment. A second holds five looks, which say little of how two processes share a
GPU; ten seconds hold fifty, and give a share of 70 % to within 6 points, one standard error. So use is the
mean over a window that is longer than the time between reads. The driver divides by all looks of the window,
also by those before a process was there; a younger process has the mean of its own time. Bursts at a
period that divides the driver's meet every look alike: two processes with bursts every 100 ms may be reported
as 100 : 0. The looks are the driver's, so that nothing can be done about it here.

A call takes 2 ms of a core. It is made often only while there is something to follow: a process that is
younger than the window, several processes, or a GPU that has become busier or idler since the last call.
"""

from pathlib import PurePosixPath

from gpuscale.agent.gpu.readings import ProcessReading
from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.faults import NO_DATA, CallFailedError
from gpuscale.agent.nvml.library import Handle, process_samples
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.agent.nvml.values.rows import MIB
from gpuscale.agent.nvml.values.sources import PeriodicTurn, Retry
from gpuscale.agent.nvml.values.windows import (
    IDLE,
    ProcessSample,
    ProcessUse,
    SampledUse,
    process_uses,
    sampled_use,
)

_LISTS = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")
)
_CHANGE_PERCENT = 20
"""A change of the GPU's utilisation by so much is more than bursts make in the mean of a second."""
_UNKNOWN_BYTES = 0xFFFF_FFFF_FFFF_FFFF


class Processes:
    """The processes of one GPU or MIG instance.

    Args:
        caller: of the GPU.
        handle: of the GPU or instance.
        settings: windows.
        with_use: whether to ask for use; the driver has none on a GPU that is split with MIG.
        shift: of the turns of asking for use.
    """

    def __init__(
        self,
        caller: Caller,
        handle: Handle,
        settings: NvmlSettings,
        *,
        with_use: bool,
        shift: float = 0.0,
    ) -> None:
        self._caller = caller
        self._handle = handle
        self._settings = settings
        self._with_use = with_use
        self._retries = {name: Retry(settings.unsupported_retry_ms) for name in _LISTS}
        self._use_retry = Retry(settings.unsupported_retry_ms)
        self._names: dict[int, str] = {}
        self._use_turns = PeriodicTurn(settings.process_use_period_ms, shift)
        self._soon_turns = PeriodicTurn(settings.process_use_soon_ms)
        self._shared_turns = PeriodicTurn(settings.process_use_shared_period_ms)
        self._listed_ms: int | None = None
        self._born_ms: dict[int, int | None] = {}
        self._asked_util: float | None = None
        self._last_uses: dict[int, SampledUse] = {}

    def read(self, now_ms: int, gpu_util: float | None = None) -> tuple[ProcessReading, ...]:
        """Return each process once, by PID.

        Args:
            now_ms: the time.
            gpu_util: what the GPU as a whole was used, in percent; a change makes use be asked for soon.
        """
        memory_mib = self._memory_mib(now_ms)
        # A process missing in the last list began to use the GPU in between, on average halfway.
        # For processes in the first list this is unknown; they count as old.
        before_ms, self._listed_ms = self._listed_ms, now_ms
        born_ms = None if before_ms is None else (before_ms + now_ms) // 2
        known = self._born_ms
        self._born_ms = {pid: known.get(pid, born_ms) for pid in memory_mib}
        has_new = bool(self._born_ms.keys() - known.keys())
        uses: dict[int, SampledUse] = {}
        if self._with_use and memory_mib:
            if (
                has_new
                or self._use_turns.is_due(now_ms)
                or (self._soon_turns.is_due(now_ms) and self._is_moving(now_ms, gpu_util))
            ):
                self._last_uses = self._ask_uses(now_ms)
                self._asked_util = gpu_util
                self._use_turns.take(now_ms)
                self._soon_turns.take(now_ms)
                self._shared_turns.take(now_ms)
            uses = self._last_uses
        self._names = {pid: self._names.get(pid) or self._name(pid) for pid in memory_mib}
        readings = []
        for pid, mib in sorted(memory_mib.items()):
            name = self._names[pid]
            if pid not in uses:
                readings.append(ProcessReading(pid, name, None, None, None, None, mib))
                continue
            use, looks = uses[pid].use, uses[pid].looks
            engines = use.sm_util, use.mem_copy_util, use.encode_util, use.decode_util
            readings.append(ProcessReading(pid, name, *engines, mib, looks))
        return tuple(readings)

    def _memory_mib(self, now_ms: int) -> dict[int, int | None]:
        """Return MiB by PID. A process on several lists is one process, with the same memory on each."""
        found: dict[int, int | None] = {}
        for name in _LISTS:
            if self._retries[name].reason(now_ms) is not None:
                continue
            try:
                listed = self._caller.call("processes", name, self._handle)
            except CallFailedError as failure:
                self._retries[name].note(failure, now_ms)
                continue
            for each in listed:
                used = each.usedGpuMemory
                mib = None if used is None or used == _UNKNOWN_BYTES else used // MIB
                known = found.get(each.pid)
                found[each.pid] = mib if known is None else max(known, mib or 0)
        return found

    def _is_moving(self, now_ms: int, gpu_util: float | None) -> bool:
        """Return whether the last result has probably changed."""
        window_ms = self._settings.process_use_window_ms
        if any(self._age_ms(pid, now_ms) < window_ms for pid in self._born_ms):
            return True
        users = sum(each.use.sm_util > 0 for each in self._last_uses.values())
        if users > 1 and self._shared_turns.is_due(now_ms):
            return True
        if gpu_util is None or self._asked_util is None:
            return False
        return abs(gpu_util - self._asked_util) >= _CHANGE_PERCENT

    def _age_ms(self, pid: int, now_ms: int) -> int:
        """Return since when a process has existed, up to the window's length."""
        window_ms = self._settings.process_use_window_ms
        born_ms = self._born_ms[pid]
        if born_ms is None or born_ms > now_ms:  # the clock was set back
            return window_ms
        return min(window_ms, now_ms - born_ms)

    def _ask_uses(self, now_ms: int) -> dict[int, SampledUse]:
        """Return use by PID; nothing where it is unknown."""
        if self._use_retry.reason(now_ms) is not None:
            return {}
        window_ms = self._settings.process_use_window_ms
        since_us = (now_ms - window_ms) * 1000
        try:
            samples = self._caller.timed(
                "process_utilization",
                process_samples,
                self._caller.library,
                self._handle,
                since_us,
            )
        except CallFailedError as failure:
            self._use_retry.note(failure, now_ms)
            if failure.reason != NO_DATA:
                return {}
            samples = ()
        uses = (
            ProcessSample(
                each.pid,
                each.timeStamp,
                ProcessUse(each.smUtil, each.memUtil, each.encUtil, each.decUtil),
            )
            for each in samples
        )
        found = process_uses(uses, since_us)
        return {
            pid: sampled_use(found.get(pid, IDLE), self._age_ms(pid, now_ms), window_ms)
            for pid in self._born_ms
        }

    def _name(self, pid: int) -> str:
        """Return a program's name; empty if the process is invisible."""
        try:
            command = self._caller.call("processes", "nvmlSystemGetProcessName", pid)
        except CallFailedError:
            return ""
        words = str(command).split()
        return PurePosixPath(words[0]).name if words else ""
