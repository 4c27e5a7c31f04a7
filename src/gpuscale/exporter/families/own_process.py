"""What this process costs: its memory and its processor time."""

import os
from pathlib import Path

_STATM = Path("/proc/self/statm")


def resident_memory_bytes() -> int | None:
    """Return the resident memory; None where the system has no /proc."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds() -> float:
    """Return the processor time used so far, in user and in kernel mode."""
    times = os.times()
    return times.user + times.system
