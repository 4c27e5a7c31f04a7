"""How commands that serve are told to end."""

import asyncio
import signal


def stop_event() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set; call it in the event loop that they are to end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop
