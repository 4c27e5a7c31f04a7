"""The driver's figures of a GPU, as nvidia-smi shows them; absent ones have a reason."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuscale.agent.gpu import GpuReading
from gpuscale.base.errors import UnavailableError

UTIL = "DCGM_FI_DEV_GPU_UTIL"
USED = "DCGM_FI_DEV_FB_USED"
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Counted:
    """A GPU's figures at one time."""

    percent: float | None
    """Mean use since the look before."""
    used_bytes: int | None
    pids: tuple[int, ...]
    """Processes that hold the GPU, in the host's numbers."""
    reason: str = ""
    """Why there is no use."""


class LoadCounter(Protocol):
    """A source of the driver's figures."""

    def refresh(self) -> None:
        """Read all GPUs for the following looks; may block for seconds."""
        ...

    def look(self, uuid: str) -> Counted:
        """Return the figures of a GPU or MIG instance as of the last `refresh`."""
        ...

    def close(self) -> None:
        """Close the library."""
        ...


class Uncounted:
    """Stands in for NVML where that can't be read."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def refresh(self) -> None:
        """Do nothing."""

    def look(self, _uuid: str) -> Counted:
        """Return figures without any value."""
        return Counted(None, None, (), self._reason)

    def close(self) -> None:
        """Do nothing."""


class NvmlCounter:
    """NVML's figures, all GPUs read once for each moment."""

    def __init__(self) -> None:
        from gpuscale.agent.nvml import NvmlReader, NvmlSettings

        self._reader = NvmlReader(NvmlSettings(), fields=frozenset({UTIL, USED}))
        self._readings: Sequence[GpuReading] = ()
        self._fault = ""

    def refresh(self) -> None:
        try:
            self._readings, self._fault = self._reader.read(time.time_ns() // 1_000_000), ""
        except UnavailableError as error:
            self._readings, self._fault = (), str(error)

    def look(self, uuid: str) -> Counted:
        for reading in self._readings:
            if uuid and uuid in reading.gpu.allocated_as.lower():
                percent, used_mib = reading.values.get(UTIL), reading.values.get(USED)
                return Counted(
                    float(percent) if percent is not None else None,
                    int(float(used_mib) * _MIB) if used_mib is not None else None,
                    tuple(process.pid for process in reading.processes),
                    str(reading.absent.get(UTIL, "")),
                )
        return Counted(None, None, (), self._fault or "NVML does not know this GPU")

    def close(self) -> None:
        self._reader.close()


def open_counter() -> LoadCounter:
    """Return a source of NVML's figures, or a stand-in with the reason."""
    try:
        counter = NvmlCounter()
        counter.refresh()
    except UnavailableError as error:
        return Uncounted(str(error))
    return counter
