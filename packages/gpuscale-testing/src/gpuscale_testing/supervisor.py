"""Runs one program so that it ends when its parent ends, in whatever way.

Run by path, with nothing but the standard library: `supervisor.py GRACE_SECONDS FOLDER PROGRAM ARGUMENT...`.

- SIGTERM ends the program: SIGTERM to it, and SIGKILL after the grace period.
- SIGUSR1 kills it at once.
- The end of standard input means that the starter is gone, also if it was killed: the program ends the
  same way, and the folder is removed, since no other process is left to do it.
- If this process itself is killed, the kernel kills the program (Linux only).
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_SIGNALLED = 128
_ORDERS = {signal.SIGTERM, signal.SIGUSR1}


class Supervised:
    """The program, and how to end it."""

    def __init__(self, command: list[str], grace_s: float) -> None:
        self.grace_s = grace_s
        self.orphaned = False
        self._process = subprocess.Popen(  # noqa: S603 - the starter's own words
            command,
            stdin=subprocess.DEVNULL,
            preexec_fn=_preparation(),
        )

    def wait(self) -> int:
        """Return the exit code once the program ended; as a shell reports it if a signal did it."""
        code = self._process.wait()
        return code if code >= 0 else _SIGNALLED - code

    def stop(self) -> None:
        """Ask the program to end, and make it end after the grace period."""
        self._process.terminate()
        timer = threading.Timer(self.grace_s, self._process.kill)
        timer.daemon = True
        timer.start()

    def kill(self) -> None:
        """Take the program away, so that it has no time to say goodbye."""
        self._process.kill()

    def stop_when_orphaned(self) -> None:
        """Wait for the starter to be gone, then stop."""
        while os.read(0, 4096):
            pass
        self.orphaned = True
        self.stop()


def _preparation() -> Callable[[], None]:
    """Return what the child does before it becomes the program."""
    supervisor = os.getpid()
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        # What this process holds back is not for the program to inherit.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ORDERS)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if sys.platform == "linux":
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:
            os._exit(1)

    return prepare


def main(arguments: list[str]) -> int:
    """Return the program's exit code."""
    grace_s, folder, command = float(arguments[0]), arguments[1], arguments[2:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, _ORDERS)
    supervised = Supervised(command, grace_s)
    signal.signal(signal.SIGTERM, lambda *_: supervised.stop())
    signal.signal(signal.SIGUSR1, lambda *_: supervised.kill())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ORDERS)
    threading.Thread(target=supervised.stop_when_orphaned, daemon=True).start()
    code = supervised.wait()
    if supervised.orphaned:
        shutil.rmtree(folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
