"""Work for simulated GPUs where nothing else says what they do: a wave that differs from GPU to GPU."""

import math
from collections.abc import Sequence

from gpuscale.gpu.simulated import GpuWork

PERIOD_MS = 300_000
FIRST_PID = 4000
_MEAN_BUSY = 0.5
_SWING = 0.45
_PHASE_PER_GPU = 0.7
_COPY_PER_BUSY = 0.4
_MEMORY_MIB = 8000


def wave(gpu_index: int, from_ms: int, to_ms: int) -> Sequence[GpuWork]:
    """Return the work of one process per GPU, busy between 5 % and 95 % in waves of five minutes."""
    turn = 2 * math.pi * ((from_ms + to_ms) / 2 % PERIOD_MS) / PERIOD_MS
    busy = _MEAN_BUSY + _SWING * math.sin(turn + _PHASE_PER_GPU * gpu_index)
    return (GpuWork(FIRST_PID + gpu_index, "python", busy, busy * _COPY_PER_BUSY, _MEMORY_MIB),)
