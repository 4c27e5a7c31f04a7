"""The interface of all readers: real, simulated or recorded GPUs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading
from gpuscale.base.plugins import PluginGroup


@dataclass(frozen=True, slots=True)
class CallStats:
    """The costs and failures of one kind of library call since the start."""

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
        """Return the costs of reading so far, by kind of call; empty if there are none."""
        ...

    def close(self) -> None:
        """Give the vendor's library back; a second call does nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRequest:
    """The arguments for opening a reader."""

    argument: str
    """What follows the name and a colon in `--gpu NAME:ARGUMENT`; empty where nothing does."""
    node: str
    fields: frozenset[str]
    """What is served of each GPU, by the names of `gpuscale.signals.fields`; others need not be read."""
    interval_ms: int
    """How often GPUs are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderKind:
    """A kind of GPUs that a plug-in reads."""

    name: str
    """As `--gpu` has it."""
    vendor: str
    """In lower case."""
    open: Callable[[ReaderRequest], GpuReader]
    """Raises UnavailableError where the GPUs' library is missing, UsageError for a wrong argument."""


READER_PLUGINS = PluginGroup("gpuscale.gpu_readers", ReaderKind)
