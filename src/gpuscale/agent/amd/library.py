"""AMD SMI's Python module: loading it, calling it, and what its faults mean.

The only module that imports `amdsmi`. Calls go by name, so that a release that lacks one says so as a fault
of that call and leaves the others alone.

Source: ROCm amdsmi 7.0.2, amdsmi_interface.py and amdsmi_exception.py.
"""

import contextlib
import io
import time
from typing import Any

from gpuscale.agent.gpu.reader import CallStats
from gpuscale.base.errors import UnavailableError, UpstreamError

_INSTALL = "install gpuscale[amd], and ROCm's amd-smi-lib, which holds libamd_smi.so"

SESSION_CODES = frozenset(
    {
        4,  # FAIL_LOAD_MODULE
        5,  # FAIL_LOAD_SYMBOL
        18,  # INIT_ERROR
        32,  # NOT_INIT
        34,  # DRIVER_NOT_LOADED
        51,  # NO_DRV
        54,  # AMDGPU_RESTART_ERR
    }
)
"""Status codes after which no GPU can be read until the library starts again."""
GONE_CODES = frozenset(
    {
        1,  # INVAL: the handle is from before the driver was restarted
        6,  # DRM_ERROR
        8,  # TIMEOUT
        12,  # IO
        31,  # NOT_FOUND
        33,  # NO_SLOT
    }
)
"""Status codes of a GPU that does not answer; when the first call ends so, the others are not tried."""


class AmdFault(UpstreamError):
    """A call of the library failed."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        self.reason = reason
        """Out of a small set of texts, fit for a metric's label."""
        self.code = code
        """AMD SMI's status code; None where the fault is not the library's own."""
        super().__init__(reason)

    @property
    def ends_session(self) -> bool:
        """Return whether no GPU can be read until the library is restarted."""
        return self.code in SESSION_CODES

    @property
    def is_gone(self) -> bool:
        """Return whether the whole GPU has stopped answering."""
        return self.code in GONE_CODES


class AmdLibrary:
    """Calls of an amdsmi module, with counts; each failure is an `AmdFault`."""

    def __init__(self, module: object) -> None:
        self._module = module
        self._calls: dict[str, int] = {}
        self._errors: dict[str, int] = {}
        self._seconds: dict[str, float] = {}

    def call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401 - answers are untyped
        """Return the result of a function of the module.

        Raises:
            AmdFault: the function fails, or is not there.
        """
        started = time.perf_counter()
        self._calls[function] = self._calls.get(function, 0) + 1
        try:
            return getattr(self._module, function)(*arguments)
        # A broken driver can make the module raise any exception.
        except Exception as error:
            self._errors[function] = self._errors.get(function, 0) + 1
            raise _fault(error) from error
        finally:
            seconds = time.perf_counter() - started
            self._seconds[function] = self._seconds.get(function, 0.0) + seconds

    def member(self, enum: str, name: str) -> object:
        """Return a member of one of the module's enums.

        Raises:
            AmdFault: this release has no such member.
        """
        try:
            member: object = getattr(getattr(self._module, enum), name)
        except AttributeError:
            raise AmdFault(f"this amdsmi has no {enum}.{name}") from None
        return member

    def stats(self) -> tuple[CallStats, ...]:
        """Return each function's number of calls and time so far, by name."""
        return tuple(
            CallStats(name, calls, self._errors.get(name, 0), self._seconds[name])
            for name, calls in sorted(self._calls.items())
        )


def load_amdsmi() -> object:
    """Return the module `amdsmi`.

    Raises:
        UnavailableError: it, or the native library behind it, is not installed.
    """
    try:
        # Without its native library, the module prints to standard output before it fails.
        with contextlib.redirect_stdout(io.StringIO()):
            import amdsmi  # type: ignore[import-untyped]
    except ImportError:
        raise UnavailableError(f"the Python package amdsmi is missing; {_INSTALL}") from None
    except (KeyError, OSError, AttributeError):
        raise UnavailableError(f"amdsmi can't load libamd_smi.so; {_INSTALL}") from None
    module: object = amdsmi
    return module


def _fault(error: Exception) -> AmdFault:
    if isinstance(error, AttributeError):
        return AmdFault("this amdsmi has no such function")
    code = getattr(error, "err_code", None)
    if isinstance(code, int):
        return AmdFault(_status(getattr(error, "err_info", "")) or f"status {code}", code)
    return AmdFault(f"amdsmi failed with {type(error).__name__}")


def _status(text: object) -> str:
    """Return the library's own words for a status: `AMDSMI_STATUS_IO - I/O Error` is `I/O Error`."""
    name, _, words = str(text).partition(" - ")
    return words.strip() or name
