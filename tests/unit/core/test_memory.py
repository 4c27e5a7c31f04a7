"""Memory that is free goes back to the system."""

import ctypes
import os
from pathlib import Path

import pytest

from gpuscale.base.memory import give_memory_back


def resident_bytes():
    """Return what of this process is in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="needs glibc")
def test_what_was_freed_below_a_kept_block_goes_back() -> None:
    # Each is too small to be given back alone, and the last one keeps the heap's top in place.
    blocks = [os.urandom(64 * 1024) for _ in range(512)]
    kept = blocks.pop()
    before = resident_bytes()
    del blocks
    give_memory_back()
    assert before - resident_bytes() > 16 * 2**20
    assert len(kept) == 64 * 1024
