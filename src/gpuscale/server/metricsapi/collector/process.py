"""Keeps a collector process running.

Feeds take as much of a core as they need, and more memory than anything else. In a process of their own they
delay no answer, and whatever happens to them, the metrics API goes on: values are absent with a reason until
the collector is back.
"""

import asyncio
import logging
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gpuscale.base.backoff import Backoff
from gpuscale.base.errors import UnavailableError
from gpuscale.series import WantedNames
from gpuscale.server.sources.feeds.messages import (
    MAX_STATUS_BYTES,
    CollectorSettings,
    CollectorStatus,
    frame,
    read_status,
)

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
# -P: modules in the working directory are not imported.
COMMAND = (sys.executable, "-P", "-m", "gpuscale.cli.servers.collector")
SOCKET = "collector.sock"
_START_S = 60.0
"""How long a collector may take for each step until it listens, on a busy machine."""
_RESTORE_S = 300.0
"""The same where it reads back what was saved before, up to twenty million samples."""
_SILENCE_S = 60.0
"""A collector reports every second; one that is silent for so long is stuck."""
_MOST_PATIENCE = 64
"""Each collector that was ended for its silence doubles these times for those after it, up to so many times:
one that only has too little CPU gets there in the end, and one that is stuck is still started again."""
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 10.0
_STEADY_S = 60.0
"""After so long up, an end is a new trouble and not the same as before."""
_GOODBYE_S = 10.0
_MAX_SOCKET_PATH = 100
"""Bytes; Linux takes 107, macOS 103."""
_FOLDERS = (Path("/dev/shm"), Path("/tmp"))  # noqa: S108 - only the parents of a private directory
"""Where the socket's directory is made if the usual place for temporary files won't do; a container with a
read-only root file system still has the first."""


class CollectorProcess:
    """A collector that is started again whenever it ends.

    Args:
        settings: of the collector; the socket's path is this class's own business.
        command: what to run, which is given the settings by its standard input.
    """

    def __init__(self, settings: CollectorSettings, command: Sequence[str] = COMMAND) -> None:
        self.restarts = 0
        """How often it was started again."""
        self.starts = 0
        """How many collectors have come up so far."""
        self._settings = settings
        self._command = command
        self._patience = 1
        self._status: CollectorStatus | None = None
        self._fault = "it is starting"
        self._changed = asyncio.Condition()
        self._input: asyncio.StreamWriter | None = None

    @property
    def is_up(self) -> bool:
        return self._status is not None

    @property
    def remark(self) -> str:
        """Return the state of the collector and its feeds in words."""
        if self._status is None:
            return f"the collector process does not run: {self._fault}"
        return self._status.remark

    @property
    def rules_remark(self) -> str:
        """Return a sentence about faults of Prometheus rules; empty if there are none."""
        return "" if self._status is None else self._status.rules

    @property
    def unread(self) -> str:
        """Return why some series can't be known yet; empty once each target was tried."""
        return self.remark if self._status is None else self._status.unread

    @property
    def generation(self) -> tuple[int, int, bool]:
        """Return a value that changes when series appear or end, and when all targets have been tried."""
        generation = -1 if self._status is None else self._status.generation
        return self.starts, generation, not self.unread

    @property
    def socket(self) -> Path:
        return self._settings.socket

    async def ready(self, limit_s: float) -> None:
        """Wait until the collector listens.

        Raises:
            UnavailableError: it does not within the limit.
        """
        if self._status is not None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._until(lambda: self.is_up)
        if self._status is None:
            raise UnavailableError(self.remark)

    async def changed(self, generation: tuple[int, int, bool]) -> None:
        """Wait until a collector is up whose series differ from those at `generation`."""
        await self._until(lambda: self.is_up and self.generation != generation)

    async def want(self, wanted: WantedNames) -> None:
        """Tell the collector, and each one started later, which series to keep."""
        if wanted == self._settings.wanted:
            return
        self._settings = replace(self._settings, wanted=wanted)
        if self._input is not None:
            with suppress(ConnectionError):  # the next collector gets them with its settings
                self._input.write(frame(wanted))
                await self._input.drain()

    async def run(self) -> None:
        """Keep a collector running until cancelled, and stop it then."""
        now = asyncio.get_running_loop().time
        waits = Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        while True:
            began = now()
            reason = await self._run_once()
            await self._note(None, reason)
            if now() - began >= _STEADY_S:
                waits.reset()
            _LOG.error("the collector process ended: %s; starting it again", reason)
            await asyncio.sleep(waits.advance())
            self.restarts += 1

    async def _run_once(self) -> str:
        """Run one collector to its end, and return why it ended."""
        try:
            with private_folder() as folder:
                async with self._started() as process:
                    settings = replace(self._settings, socket=folder / SOCKET)
                    assert process.stdin is not None and process.stdout is not None  # noqa: PT018, S101
                    self._settings, self._input = settings, process.stdin
                    process.stdin.write(frame(settings))
                    await process.stdin.drain()
                    return await self._follow(process, process.stdout)
        except OSError as error:
            return str(error)
        finally:
            self._input = None

    async def _follow(self, process: Process, lines: asyncio.StreamReader) -> str:
        """Follow the collector's status lines until it exits or must be stopped; return why."""
        start_s = _START_S if self._settings.feeds.saving is None else _RESTORE_S
        limit_s = start_s * self._patience
        try:
            while line := await _within(limit_s, lines.readline()):
                if line.strip():  # an empty line means that it is still starting
                    await self._note(read_status(line), "")
                    limit_s = _SILENCE_S * self._patience
            code = await _within(_GOODBYE_S, process.wait())
            with suppress(ValueError):  # below 0 it is a signal
                return f"killed by {signal.Signals(-code).name}"
            return f"exit code {code}"
        except TimeoutError:
            reason = f"it gave no sign of life for {limit_s:.0f} s"
            self._patience = min(2 * self._patience, _MOST_PATIENCE)
        except ValueError as error:
            reason = f"it reports nonsense: {error}"
        with suppress(ProcessLookupError):
            process.kill()
        return reason

    @asynccontextmanager
    async def _started(self) -> AsyncGenerator[Process, None]:
        """Start a collector in its own process group, out of the terminal's reach; stop it at the end."""
        process = await asyncio.create_subprocess_exec(
            *self._command, stdin=PIPE, stdout=PIPE, limit=2 * MAX_STATUS_BYTES, process_group=0
        )
        try:
            yield process
        finally:
            # Closes the input, which orders the collector to stop. The rest of its output is read,
            # as asyncio reports the end of a process only once its pipes are closed.
            try:
                with suppress(TimeoutError):
                    await _within(_GOODBYE_S, process.communicate(b""))
            finally:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.communicate(b"")

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(is_so)

    async def _note(self, status: CollectorStatus | None, fault: str) -> None:
        if status is not None and self._status is None:
            self.starts += 1
        self._status, self._fault = status, fault
        async with self._changed:
            self._changed.notify_all()


async def _within(limit_s: float, asking: Awaitable[T]) -> T:
    """Await with a time limit; raises TimeoutError. `wait_for` of Python 3.11 can lose a cancellation."""
    async with asyncio.timeout(limit_s):
        return await asking


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a directory for a socket that only this user can enter, and remove it at the end.

    Raises:
        OSError: there is no place for one.
    """
    made = _make_folder()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _make_folder() -> Path:
    faults = []
    for parent in (None, *_FOLDERS):
        try:
            made = Path(tempfile.mkdtemp(prefix="gpuscale-", dir=parent))
        except OSError as error:
            faults.append(str(error))
            continue
        if len(bytes(made / SOCKET)) <= _MAX_SOCKET_PATH:
            return made
        faults.append(f"{made} is too long for a socket")
        made.rmdir()
    raise OSError(f"no place for a socket: {'; '.join(faults)}")
