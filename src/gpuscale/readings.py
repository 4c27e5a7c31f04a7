"""Read the GPUs of this machine, simulated ones or a recording. Part of the promised API.

with open_gpus("simulated:NVIDIA H200:2") as gpus:
for reading in gpus.read():
print(reading.gpu.index, reading.values["DCGM_FI_DEV_GPU_UTIL"])
"""

import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from gpuscale.agent.exporter import make_reader, read_settings
from gpuscale.agent.gpu import (
    EventCount,
    GpuIdentity,
    GpuInstance,
    GpuReader,
    GpuReading,
    ProcessReading,
)
from gpuscale.base.clock import WallClock
from gpuscale.signals import DEFAULT_COUNTERS

__all__ = [
    "EventCount",
    "GpuIdentity",
    "GpuInstance",
    "GpuReading",
    "Gpus",
    "ProcessReading",
    "open_gpus",
]


class Gpus:
    """The GPUs of one node, open until `close` or the end of the `with`. One caller at a time.

    Args:
        reader: that reads them.
    """

    def __init__(self, reader: GpuReader) -> None:
        self._reader = reader
        self._clock = WallClock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def identities(self) -> tuple[GpuIdentity, ...]:
        """Return every GPU that should be there, in index order, lost ones included."""
        return self._reader.gpus()

    def read(self) -> tuple[GpuReading, ...]:
        """Return what every GPU says now, in index order. It may block for as long as the driver does.

        Raises:
            UnavailableError: no GPU can be read at all.
        """
        return self._reader.read(self._clock.now_ms())

    def close(self) -> None:
        """Give the vendor's library back; a second call does nothing."""
        self._reader.close()


def open_gpus(
    source: str = "nvml", fields: Iterable[str] | None = None, *, processes: bool = False
) -> Gpus:
    """Open GPUs for reading.

    Args:
        source: `nvml`, `amd`, `simulated[:MODEL[:COUNT]]` or `replay:FILE`, as `gpuscale exporter --gpu`.
        fields: DCGM field names to read; None reads those of the built-in counters file.
        processes: whether to list the processes on each GPU, which takes a call more a GPU.

    Raises:
        UsageError: the source has another form.
        UnavailableError: the vendor's library or driver is missing.
        NotFoundError: the recording is missing.
        ConfigError: the recording is damaged.
    """
    settings = read_settings({"gpu": [source]}, {}, socket.gethostname())
    wanted = {row.field for row in DEFAULT_COUNTERS} if fields is None else fields
    node = socket.gethostname()
    return Gpus(make_reader(settings, frozenset(wanted), node, processes=processes))
