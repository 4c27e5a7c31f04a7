# mypy: disable-error-code="assignment"
"""A command at a real terminal: what it shows, and what is typed there."""

import os
import pty
import select
import subprocess
import sys
import threading

from gpuscale.base.errors import UnavailableError
from gpuscale_testing import wait_until

CTRL_C, CTRL_D = "\x03", "\x04"
LIMIT_S = 60.0
# The terminal has to be the command's own for Ctrl-C to be a signal, which a shell's background jobs ignore.
_OWN_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def wait_for_text(process, said, text, times, limit_s) -> None:
    """Return once what a process has said so far holds a text so often.

    Args:
        process: it has to go on running until then.
        said: returns everything that it has said.
        text: to look for.
        times: how often.
        limit_s: until it is an error.
    """

    def look():
        found = said().count(text) >= times
        assert found or process.poll() is None, said()
        return found

    try:
        wait_until(look, f"{times} times the text {text!r}", limit_s)
    except UnavailableError as error:
        raise AssertionError(f"{error}; it said\n{said()}") from error


class Terminal:
    """One run of a command; it is killed where a test ends before it.

    Args:
        command: program, by its path, and arguments.
        output: a file descriptor for standard output; None is the terminal.
    """

    def __init__(self, *command, output=None) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _OWN_TERMINAL, *map(str, command)],
            stdin=theirs,
            stdout=theirs if output is None else output,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._shown = bytearray()
        self._is_closed = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait(30)
        self._reader.join(30)
        if self._ours is not None:
            os.close(self._ours)

    @property
    def shown(self):
        """Everything that stood on the terminal so far."""
        return bytes(self._shown).decode(errors="replace").replace("\r\n", "\n")

    def wait_for(self, text, times=1) -> None:
        """Return once the terminal has shown a text so often."""
        wait_for_text(self._process, lambda: self.shown, text, times, LIMIT_S)

    def type(self, keys) -> None:
        os.write(self._ours, keys.encode())

    def hang_up(self) -> None:
        """Close the terminal, as a connection that breaks off does."""
        self._is_closed.set()
        self._reader.join(30)
        os.close(self._ours)
        self._ours = None

    def end(self):
        """Return the exit code and all that was shown, once it has ended by itself."""
        try:
            code = self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"still running; it showed\n{self.shown}") from error
        self._reader.join(30)
        return code, self.shown

    def _read(self) -> None:
        while not self._is_closed.is_set():
            ready, _, _ = select.select([self._ours], [], [], 0.5)
            if not ready:
                if self._process.poll() is not None:
                    return
                continue
            try:
                chunk = os.read(self._ours, 65_536)
            except OSError:  # what Linux gives at the end of a terminal
                return
            self._shown += chunk
