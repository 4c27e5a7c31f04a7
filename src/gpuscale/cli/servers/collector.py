"""The collector process of `gpuscale metrics-api --source streams`, which starts it; not a command for users.

Settings come by standard input, the state goes to standard output, the log to standard error as that of the
metrics API does. The process lives as long as its input is open. Signals that end a service go to all of its
processes at once, and the metrics API still answers for a while then, so they are left to it.
"""

import os

_STDIN, _STDOUT, _STDERR = 0, 1, 2
_ALIVE = b"\n"
if __name__ == "__main__":
    # A sign of life before the imports, which take a minute with a fiftieth of a core.
    os.write(_STDOUT, _ALIVE)

import asyncio
import gc
import logging
import resource
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from gpuscale.base.errors import GpuscaleError
from gpuscale.series import WantedNames
from gpuscale.server.sources.feeds import CollectorSettings, CollectorStatus, read_frame

_LOG = logging.getLogger(__name__)
_GOODBYE_S = 8.0
"""How long the process may take to end once it has to, in the machine's seconds."""
_COLLECT_AFTER = (5_000, 10, 10)
"""New objects, and collections of each generation, before the next older one is looked at.

Connections that break and queries that fail leave cycles. The oldest generation is looked at only once a
quarter as much has been added to it, so many series don't mean many long pauses.
"""


def main() -> int:
    """Run until the parent ends or stops it; return the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.write(_STDOUT, _ALIVE)
    try:
        settings = read_frame(_STDIN)
    except EOFError:
        return 0
    if not isinstance(settings, CollectorSettings):
        raise TypeError(f"found {settings!r}, expected settings")
    _allow_connections()
    status = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)  # output of libraries is no status
    os.set_blocking(status, False)
    return _run(settings, status)


def _allow_connections() -> None:
    """Open as many files as the system lets; each agent is one, and the usual limit is 1 024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS reports no limit, but accepts less
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _run(settings: CollectorSettings, status: int) -> int:
    from gpuscale.server.sources.http import import_aiohttp

    import_aiohttp()
    from gpuscale.cli.exits import NO, leaves
    from gpuscale.cli.logs import set_up_log
    from gpuscale.server.collector import CollectorServer

    with suppress(BlockingIOError, BrokenPipeError):
        os.write(status, _ALIVE)
    set_up_log(settings.log_level)
    # There are many series, and almost none in reference cycles.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)

    def say(state: CollectorStatus) -> None:
        with suppress(BlockingIOError, BrokenPipeError):  # the next state follows soon
            os.write(status, state.line())

    async def serve() -> None:
        stop, server = asyncio.Event(), CollectorServer(settings)
        orders = (asyncio.get_running_loop(), stop, server.change_wanted)
        threading.Thread(target=_take_orders, args=orders, daemon=True).start()
        await server.run(stop, say)

    try:
        asyncio.run(serve())
    except Exception as error:  # noqa: BLE001 - the boundary that no error passes
        for each in leaves(error):
            _LOG.error("%s", each, exc_info=None if isinstance(each, GpuscaleError) else each)
        return NO
    return 0


def _take_orders(
    loop: asyncio.AbstractEventLoop,
    stop: asyncio.Event,
    change_wanted: Callable[[WantedNames], None],
) -> None:
    """Pass on what comes by the input; its end stops the process, whatever the event loop is busy with."""
    with suppress(EOFError, OSError, RuntimeError):  # RuntimeError: the event loop has ended
        while True:
            message = read_frame(_STDIN)
            if isinstance(message, WantedNames):
                loop.call_soon_threadsafe(change_wanted, message)
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(stop.set)
    threading.Event().wait(_GOODBYE_S)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
