"""Watching in a separate process, so that it never delays a request."""

import asyncio
import contextlib
import logging
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe

from gpuscale.base.clock import WallClock
from gpuscale.base.errors import (
    BugError,
    ConfigError,
    GpuscaleError,
    NotFoundError,
    UnavailableError,
    UsageError,
)
from gpuscale.kube.client import KubeSettings
from gpuscale.load.watching.cluster import HpaWatch
from gpuscale.load.watching.live import UpWatch
from gpuscale.load.watching.notes import Notes, Watched

_END_S = 20.0


@dataclass(frozen=True, slots=True)
class WatchedHpa:
    """An HPA on a cluster."""

    settings: KubeSettings
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class WatchedUp:
    """A running `gpuscale up`."""

    url: str


class Watcher:
    """A running watch; `stop` ends it and returns what was observed."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def stop(self) -> Watched:
        """Stop watching, and return the notes; only a remark if the process has died."""
        try:
            self._pipe.send(None)
            if self._pipe.poll(_END_S):
                found = self._pipe.recv()
                return found if isinstance(found, Watched) else Watched(notes=(str(found),))
        except (EOFError, OSError):
            pass
        return Watched(notes=("the process that watched has ended",))


@contextmanager
def watching(what: WatchedHpa | WatchedUp) -> Iterator[Watcher]:
    """Watch while the caller does its work.

    Raises:
        GpuscaleError: it can't be watched; nothing was begun.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(what, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        try:
            begun = ours.recv()
        except EOFError:
            raise BugError("the process that watches ended at once") from None
        if isinstance(begun, GpuscaleError):
            raise begun
        yield Watcher(ours)
    finally:
        ours.close()
        process.kill()
        process.join()


def _work(what: WatchedHpa | WatchedUp, pipe: Pipe) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the load, and then this is asked
    logging.getLogger().addHandler(logging.NullHandler())  # its message is among the notes
    asyncio.run(_watch(what, pipe))


def _told(error: BaseException | None) -> GpuscaleError:
    """Return an error that can be sent to another process, with the same exit code."""
    match error:
        case UsageError() | ConfigError() | NotFoundError():
            return UsageError(str(error))
        case GpuscaleError():
            return UnavailableError(str(error))
    return BugError(repr(error))


async def _watch(what: WatchedHpa | WatchedUp, pipe: Pipe) -> None:
    clock = WallClock()
    notes = Notes(clock.now_ms())
    watch: HpaWatch | UpWatch
    if isinstance(what, WatchedHpa):
        watch = HpaWatch(what.settings, what.namespace, what.name, notes, clock)
    else:
        watch = UpWatch(what.url, notes, clock)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), stop.set)
    has_begun = False

    def begin() -> None:
        nonlocal has_begun
        has_begun = True
        pipe.send(None)

    following = asyncio.create_task(watch.run(begin))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({following, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if following.done():
        error = following.exception()
        if not has_begun:
            pipe.send(_told(error))
            return
        notes.say(str(error))
        await stop.wait()
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await following
    pipe.send(notes.finish(clock.now_ms()))
