"""How serving commands are stopped."""

import asyncio
import signal


def stop_event() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set; call it in the event loop that they are to end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def stop_events() -> tuple[asyncio.Event, asyncio.Event]:
    """Return an event that SIGINT and SIGTERM set, and one that SIGINT or a second SIGTERM sets.

    The second one is for commands that take their time to end: the user who presses Ctrl-C is waiting.
    """
    stop, hurry = stop_event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def end(*, at_once: bool) -> None:
        if at_once or stop.is_set():
            hurry.set()
        stop.set()

    loop.add_signal_handler(signal.SIGINT, lambda: end(at_once=True))
    loop.add_signal_handler(signal.SIGTERM, lambda: end(at_once=False))
    return stop, hurry
