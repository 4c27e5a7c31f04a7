"""Progress messages for a user at a terminal."""

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 2.0
"""How long work may take before one begins to wonder."""


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show a message on standard error once work takes long, and remove it at the end.

    Yields what changes the text. Nothing is shown where standard error is no terminal.

    Args:
        what: is done first, such as `looking at the cluster`.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.status import Status

    status = Status(what, console=Console(stderr=True))
    turn, is_over = threading.Lock(), False

    def begin() -> None:
        with turn:
            if not is_over:
                status.start()

    timer = threading.Timer(PATIENCE_S, begin)
    timer.daemon = True
    timer.start()
    try:
        yield status.update
    finally:
        timer.cancel()
        with turn:
            is_over = True
            status.stop()


def show_line(text: str) -> None:
    """Show a line on standard error in place of the previous one; needs a terminal.

    A line that is too long is cut: of one that wraps, only the last part would be replaced.
    """
    columns = shutil.get_terminal_size().columns
    shown = text if len(text) < columns else text[: columns - 2] + "…"
    print(f"\r\033[K{shown}", end="", file=sys.stderr, flush=True)


def hide_line() -> None:
    """Remove the shown line, if standard error is a terminal."""
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
