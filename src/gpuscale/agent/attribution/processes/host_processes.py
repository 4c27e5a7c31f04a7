"""Which of the host's processes this container can see."""

import logging
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from gpuscale.agent.attribution import reasons
from gpuscale.agent.attribution.processes.cgroups import (
    ProcessPlace,
    ProcessTable,
    sees_host_processes,
)
from gpuscale.agent.gpu.owners import Unattributed
from gpuscale.agent.gpu.readings import GpuReading

_log = logging.getLogger(__name__)
_DETAIL = (
    "other containers' processes can't be seen; set hostPID: true on the exporter's pod "
    "(or --pid=host), so that GPU processes can be tied to pods"
)


class HostProcesses:
    """Finds the pods and containers of readings' processes.

    Args:
        proc_root: where the host's processes are seen.
        own_proc_root: where ours are seen.
    """

    def __init__(self, proc_root: Path, own_proc_root: Path) -> None:
        self._root = proc_root
        self._own_root = own_proc_root
        self._table = ProcessTable(proc_root)

    def look_at(self, readings: Iterable[GpuReading]) -> Unattributed | None:
        """Prepare for the processes of these readings, and return why they can't be attributed, if so.

        With the host's proc file system mounted, but no host PID namespace, the driver reports no processes.
        """
        pids = frozenset(each.pid for reading in readings for each in reading.processes)
        self._table.keep_only(pids)
        sees_files, does_driver_see = self._views
        if sees_files and (does_driver_see or pids):
            return None
        return Unattributed(reasons.HOST_PID_OFF, str(self._root), _DETAIL)

    def place(self, pid: int) -> ProcessPlace:
        """Return a process' pod and container.

        Raises:
            FileNotFoundError: there is no such process.
            OSError: its files can't be read.
        """
        return self._table.place(pid)

    def refresh(self) -> None:
        self._table.forget_ended()

    @cached_property
    def _views(self) -> tuple[bool, bool]:
        """Return whether host processes are visible in /proc, and whether the driver reports their PIDs."""
        found = sees_host_processes(self._root), sees_host_processes(self._own_root)
        if not all(found):
            _log.warning("%s: %s", self._root, _DETAIL)
        return found
