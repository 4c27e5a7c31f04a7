"""One program, of the control plane or beside it: started under a supervisor, its output in a file."""

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gpuscale.base.errors import UnavailableError
from gpuscale_testing import supervisor
from gpuscale_testing.addresses import wait_until

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

    def check(self) -> None:
        """Return if the program runs.

        Raises:
            UnavailableError: it has ended; with the end of its log.
        """
        if self.exit_code is not None:
            raise UnavailableError(
                f"{self.name} ended with exit code {self.exit_code}; the end of its "
                f"log:\n{self.log_tail()}"
            )

    def wait_until(self, is_ready: Callable[[], bool], within_s: float) -> None:
        """Return once the program is ready.

        Raises:
            UnavailableError: it has ended, or is not ready in time.
        """

        def look() -> bool:
            self.check()
            return is_ready()

        wait_until(look, f"{self.name} to be ready", within_s, every_s=0.1)

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


def with_variables_alone(variables: Mapping[str, str]) -> list[str]:
    """Return the beginning of a command that runs with these variables and PATH, and inherits none."""
    path = {"PATH": os.environ.get("PATH", "")}
    return ["env", "-i", *(f"{name}={value}" for name, value in {**path, **variables}.items())]
