"""One program, of the control plane or beside it: started under a supervisor, its output in a file."""

import signal
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from gpuscale_testing import supervisor

_TAIL_LINES = 30


class Component:
    """A running program.

    Args:
        name: for messages and the log file.
        command: program and arguments.
        folder: for the log; it is removed if the starter gets killed.
        grace_s: between SIGTERM and SIGKILL.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path, grace_s: float) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._arguments = [str(grace_s), str(folder), *command]
        self._supervisor = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(  # noqa: S603 - words of our own
                [sys.executable, "-I", str(Path(supervisor.__file__)), *self._arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Return the supervisor's process id; the program is its child."""
        return self._supervisor.pid

    @property
    def exit_code(self) -> int | None:
        """Return what the program ended with; None while it runs."""
        return self._supervisor.poll()

    def kill(self) -> None:
        """Take the program away at once, as a crash would; returns when it is gone."""
        if self.exit_code is None:
            self._supervisor.send_signal(signal.SIGUSR1)
        self._end()

    def restart(self) -> None:
        """Start the program again, its log after that of before; one that runs is stopped first.

        Returns at once: what being ready means is for the caller to know.
        """
        self.end_stop()
        self._supervisor = self._start()

    def begin_stop(self) -> None:
        """Ask the program to end; returns at once."""
        if self.exit_code is None:
            self._supervisor.terminate()

    def end_stop(self) -> None:
        """Return once the program has ended."""
        self.begin_stop()
        self._end()

    def log_tail(self) -> str:
        """Return the last lines of the program's output."""
        with self.log.open(errors="replace") as lines:
            return "".join(deque(lines, maxlen=_TAIL_LINES))

    def _end(self) -> None:
        self._supervisor.wait()
        if self._supervisor.stdin is not None:
            self._supervisor.stdin.close()
