"""NVML calls for one GPU: timed, counted, with classified errors."""

import time
from collections.abc import Callable, Iterable

from gpuscale.agent.gpu.reader import CallStats
from gpuscale.agent.nvml.faults import (
    DRIVER_ERROR,
    NO_DATA,
    NOT_SUPPORTED,
    CallFailedError,
    fault,
)
from gpuscale.agent.nvml.library import Answer, Library

_NOTHING = (0, 0, 0.0)


class Tally:
    """The costs of one kind of call."""

    __slots__ = ("calls", "errors", "seconds")

    def __init__(self) -> None:
        self.calls = 0
        self.errors = 0
        self.seconds = 0.0


class Caller:
    """Makes the calls of one GPU, in one thread at a time.

    Args:
        library: the `pynvml` module or its stand-in.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self.tallies: dict[str, Tally] = {}
        self._error: type[Exception] = library.NVMLError

    def call(self, source: str, name: str, *args: Answer) -> Answer:
        """Return what the library's function `name` returns, counted under `source`.

        Raises:
            CallFailedError: there is no value.
            GpuLostError: the GPU is gone.
            DriverGoneError: the driver is gone.
        """
        function = getattr(self.library, name, None)
        if function is None:  # the binding's release is older than the call
            raise CallFailedError(NOT_SUPPORTED)
        return self.timed(source, function, *args)

    def timed(self, source: str, function: Callable[..., Answer], *args: Answer) -> Answer:
        """Return what a function that calls the library returns; raises like `call`."""
        tally = self.tallies.get(source)
        if tally is None:
            tally = self.tallies[source] = Tally()
        tally.calls += 1
        started = time.perf_counter()
        try:
            return function(*args)
        except self._error as error:
            found = fault(error.value)  # type: ignore[attr-defined]  # the module is untyped
            tally.errors += not _tells_of_no_data(found)
            raise found from error
        except ValueError as error:  # the binding could not decode a text
            tally.errors += 1
            raise CallFailedError(DRIVER_ERROR) from error
        finally:
            tally.seconds += time.perf_counter() - started

    def constant(self, name: str) -> Answer:
        """Return one of the library's constants.

        Raises:
            CallFailedError: this release of the binding does not have it.
        """
        try:
            return getattr(self.library, name)
        except AttributeError as error:
            raise CallFailedError(NOT_SUPPORTED) from error


def stats(callers: Iterable[Caller]) -> tuple[CallStats, ...]:
    """Return the sums over several GPUs, sorted by source."""
    sums: dict[str, tuple[int, int, float]] = {}
    for caller in callers:
        for source, tally in tuple(caller.tallies.items()):
            calls, errors, seconds = sums.get(source, _NOTHING)
            sums[source] = calls + tally.calls, errors + tally.errors, seconds + tally.seconds
    return tuple(CallStats(source, *total) for source, total in sorted(sums.items()))


def _tells_of_no_data(found: Exception) -> bool:
    return isinstance(found, CallFailedError) and found.reason == NO_DATA
