"""Log lines about clients' errors, at most one every ten seconds for each kind."""

import logging
import time
from collections.abc import Callable

_LOG = logging.getLogger(__name__)
_EVERY_S = 10.0
_REASON_CHARS = 160


class CountedLog:
    """Counts events of one kind, and logs one of them every ten seconds with how many there were.

    Args:
        what: an event is, such as `malformed request`.
        timer: returns seconds of any origin.
    """

    def __init__(self, what: str, timer: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._what = what
        self._timer = timer
        self._logged_s = float("-inf")
        self._unlogged = 0

    def add(self, address: str | None, reason: str) -> None:
        """Count one.

        Args:
            address: of the client.
            reason: may hold what the client sent.
        """
        self.count += 1
        self._unlogged += 1
        now_s = self._timer()
        if now_s - self._logged_s < _EVERY_S:
            return
        more = f" ({self._unlogged - 1} more since the last line)" if self._unlogged > 1 else ""
        # Quoted, as text from strangers must not look like a log line.
        _LOG.info("%s from %s: %r%s", self._what, address, reason[:_REASON_CHARS], more)
        self._logged_s, self._unlogged = now_s, 0
