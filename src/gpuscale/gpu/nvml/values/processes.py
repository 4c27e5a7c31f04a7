"""Which processes hold a GPU, how much memory each has, and how much of the GPU each has used.

The driver reports use only for processes that had some. No sample at all means that every process was idle,
and it says so with the code for "not found"; that is a zero, not a gap.

Measured on an H200: the driver looks every 200 ms, and gives the whole of what the GPU did since to the one
process that runs at that moment. A second holds five looks, which say little of how two processes share a
GPU; ten seconds hold fifty, and give a share of 70 % to within 6 points, one standard error. So use is the
mean over a window that is longer than the time between reads. Bursts at a period that divides the driver's
meet every look alike: two processes with bursts every 100 ms may be reported as 100 : 0.
"""

from collections.abc import Iterable
from pathlib import PurePosixPath

from gpuscale.gpu.nvml.calls import Caller
from gpuscale.gpu.nvml.faults import NO_DATA, CallFailedError
from gpuscale.gpu.nvml.library import Answer, Handle, process_samples
from gpuscale.gpu.nvml.settings import NvmlSettings
from gpuscale.gpu.nvml.values.rows import MIB
from gpuscale.gpu.nvml.values.sources import Retry, Turns
from gpuscale.gpu.nvml.values.windows import IDLE, ProcessSample, ProcessUse, process_uses
from gpuscale.gpu.readings import ProcessReading

_LISTS = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")
)
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
        self._use_turns = Turns(settings.process_use_period_ms, shift)
        self._known_pids: frozenset[int] = frozenset()
        self._last_uses: dict[int, ProcessUse] | None = None

    def read(self, now_ms: int) -> tuple[ProcessReading, ...]:
        """Return each process once, by PID."""
        memory = self._memory(now_ms)
        uses = self._uses(memory.keys(), now_ms) if self._with_use and memory else None
        self._names = {pid: self._names.get(pid) or self._name(pid) for pid in memory}
        return tuple(_reading(pid, self._names[pid], memory[pid], uses) for pid in sorted(memory))

    def _memory(self, now_ms: int) -> dict[int, int | None]:
        """Return MiB by PID. A process on several lists is one process, with the same memory on each."""
        found: dict[int, int | None] = {}
        for name in _LISTS:
            for each in self._list(name, now_ms):
                mib = _mib(each.usedGpuMemory)
                known = found.get(each.pid)
                found[each.pid] = mib if known is None else max(known, mib or 0)
        return found

    def _list(self, name: str, now_ms: int) -> Answer:
        retry = self._retries[name]
        if retry.reason(now_ms) is not None:
            return ()
        try:
            return self._caller.call("processes", name, self._handle)
        except CallFailedError as failure:
            retry.note(failure, now_ms)
            return ()

    def _uses(self, pids: Iterable[int], now_ms: int) -> dict[int, ProcessUse] | None:
        """Return use by PID; None when it is unknown. A new process is asked for at once."""
        if self._use_turns.is_due(now_ms) or not self._known_pids.issuperset(pids):
            self._last_uses = self._ask_uses(now_ms)
            self._known_pids = frozenset(pids)
            self._use_turns.take(now_ms)
        return self._last_uses

    def _ask_uses(self, now_ms: int) -> dict[int, ProcessUse] | None:
        if self._use_retry.reason(now_ms) is not None:
            return None
        since_us = (now_ms - self._settings.process_use_window_ms) * 1000
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
            return {} if failure.reason == NO_DATA else None
        return process_uses((_sample(each) for each in samples), since_us)

    def _name(self, pid: int) -> str:
        """Return the name of the program; empty where the process is out of sight."""
        try:
            command = self._caller.call("processes", "nvmlSystemGetProcessName", pid)
        except CallFailedError:
            return ""
        words = str(command).split()
        return PurePosixPath(words[0]).name if words else ""


def _mib(used_bytes: int | None) -> int | None:
    return None if used_bytes is None or used_bytes == _UNKNOWN_BYTES else used_bytes // MIB


def _sample(raw: Answer) -> ProcessSample:
    use = ProcessUse(raw.smUtil, raw.memUtil, raw.encUtil, raw.decUtil)
    return ProcessSample(raw.pid, raw.timeStamp, use)


def _reading(
    pid: int, name: str, memory_mib: int | None, uses: dict[int, ProcessUse] | None
) -> ProcessReading:
    if uses is None:
        return ProcessReading(pid, name, None, None, None, None, memory_mib)
    use = uses.get(pid, IDLE)
    return ProcessReading(
        pid,
        name,
        use.sm_util,
        use.mem_copy_util,
        use.encode_util,
        use.decode_util,
        memory_mib,
    )
