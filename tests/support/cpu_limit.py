"""Less CPU than a process wants, by the kernel's own means: a control group, as a container has one.

Both forms of control groups are known. Where this machine lets nobody make one, `unusable` says why.
"""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_PERIOD_US = 100_000
_TICKS = os.sysconf("SC_CLK_TCK")


class CpuGroup:
    """A control group.

    Args:
        folder: of the group.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def command(self, *command: str) -> list[str]:
        """Return a command that runs within the group from its first instruction on."""
        return ["sh", "-c", f'echo $$ > {self._folder}/cgroup.procs && exec "$@"', "sh", *command]

    def pids(self) -> list[int]:
        return [int(each) for each in (self._folder / "cgroup.procs").read_text().split()]

    def cpu_s(self) -> float:
        """Return what the processes that live in it have used."""
        used = 0
        for pid in self.pids():
            with suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                used += int(fields[11]) + int(fields[12])
        return used / _TICKS


@contextmanager
def limited(millicores: int) -> Iterator[CpuGroup]:
    """Make a group with this limit, and remove it in the end, when nothing may run in it any more."""
    parent, is_v2 = _parent()
    folder = parent / f"gpuscale-test-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    try:
        quota_us = millicores * _PERIOD_US // 1000
        if is_v2:
            (folder / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        else:
            (folder / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (folder / "cpu.cfs_quota_us").write_text(str(quota_us))
        yield CpuGroup(folder)
    finally:
        folder.rmdir()


def unusable() -> str:
    """Return why no group can be made here; empty where one can."""
    try:
        with limited(500):
            return ""
    except OSError as error:
        return f"no control group with a CPU limit can be made: {error}"


def _parent() -> tuple[Path, bool]:
    """Return where groups with a CPU limit are made, and whether that is the second form."""
    if (_ROOT / "cgroup.controllers").exists():
        (_ROOT / "cgroup.subtree_control").write_text("+cpu")
        return _ROOT, True
    return _ROOT / "cpu", False
