"""How commands end: exit codes, the errors that map to them, and the signals that stop a serving command.

Every command loads this module, and only those that serve load asyncio.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

NO = 1
"""The answer is no, or a part failed."""
WRONG_INPUT = 2
"""The input is wrong, or the question could not be asked."""
BUG = 70
"""gpuscale itself is at fault; EX_SOFTWARE of sysexits.h, so that no script takes it for an answer."""


def leaves(error: Exception) -> Iterator[Exception]:
    """Yield the leaf errors of an exception group, or the error itself."""
    if isinstance(error, ExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def stop_event() -> "asyncio.Event":
    """Return an event that SIGINT and SIGTERM set; call it in the event loop that they are to end."""
    import asyncio
    import signal

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def stop_events() -> "tuple[asyncio.Event, asyncio.Event]":
    """Return an event that SIGINT and SIGTERM set, and one that SIGINT or a second SIGTERM sets.

    The second one is for commands that take their time to end: the user who presses Ctrl-C is waiting.
    """
    import asyncio
    import signal

    stop, hurry = stop_event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def end(*, at_once: bool) -> None:
        if at_once or stop.is_set():
            hurry.set()
        stop.set()

    loop.add_signal_handler(signal.SIGINT, lambda: end(at_once=True))
    loop.add_signal_handler(signal.SIGTERM, lambda: end(at_once=False))
    return stop, hurry
