"""Waiting for something to become true, with a message that says what did not."""

import time
from collections.abc import Callable
from typing import TypeVar

from gpuscale.core.errors import UnavailableError

T = TypeVar("T")


def wait_until(
    look: Callable[[], T | None],
    what: str,
    timeout_s: float = 30.0,
    every_s: float = 0.25,
) -> T:
    """Return what `look` finds once that is anything but None, False or empty.

    Raises:
        UnavailableError: it stayed that way for `timeout_s`; names `what` and the last finding.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise UnavailableError(f"waited {timeout_s:g} s for {what}; last found {found!r}")
        time.sleep(every_s)
