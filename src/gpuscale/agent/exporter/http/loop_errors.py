"""asyncio's connection errors, logged at a limited rate.

Where a process is out of files, asyncio logs every attempt to accept: thousands of tracebacks a second.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

_log = logging.getLogger(__name__)

AGAIN_S = 60.0
"""How soon the same message is logged again."""
_MOST_MESSAGES = 64


class LoopErrors:
    """Handles an event loop's errors: each message is logged once a minute, with its count.

    Args:
        monotonic_s: the time; for tests.
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._told_s: dict[str, float] = {}
        self._held_back: dict[str, int] = {}

    def __call__(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error, or count it."""
        message = str(context.get("message", "an error in the event loop"))
        now_s = self._monotonic_s()
        told_s = self._told_s.get(message)
        if told_s is not None and now_s - told_s < AGAIN_S:
            self._held_back[message] = self._held_back.get(message, 0) + 1
            return
        if len(self._told_s) >= _MOST_MESSAGES:
            self._told_s.clear()
            self._held_back.clear()
        self._told_s[message] = now_s
        count = self._held_back.pop(message, 0)
        more = f" ({count} more like it)" if count else ""
        error = context.get("exception")
        _log.error("%s%s: %s", message, more, error, exc_info=None if _is_usual(error) else error)


def _is_usual(error: object) -> bool:
    """Return whether an error is external, so that its traceback is useless."""
    return error is None or isinstance(error, OSError)
