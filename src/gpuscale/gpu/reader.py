"""What every source of readings offers: real, simulated or recorded GPUs alike."""

from dataclasses import dataclass
from typing import Protocol

from gpuscale.gpu.readings import GpuIdentity, GpuReading


@dataclass(frozen=True, slots=True)
class CallStats:
    """How one kind of call to the vendor's library has gone since the start."""

    source: str
    """Name of the call or group of calls, fit for a metric's label."""
    calls: int
    errors: int
    seconds: float
    """All calls together."""


class GpuReader(Protocol):
    """Reads the GPUs of one node. One caller at a time; a call may block unless the reader says not."""

    def gpus(self) -> tuple[GpuIdentity, ...]:
        """Return every GPU that should be there, in index order, lost ones included."""
        ...

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        """Return the state of every GPU that answers, in index order.

        A lost GPU is left out, or has no values and one reason for every field. It never keeps the
        others from being read.

        Raises:
            UnavailableError: no GPU can be read at all.
        """
        ...

    def stats(self) -> tuple[CallStats, ...]:
        """Return what reading has cost so far, by kind of call; empty where that tells nothing."""
        ...

    def close(self) -> None:
        """Give the vendor's library back; a second call does nothing."""
        ...
