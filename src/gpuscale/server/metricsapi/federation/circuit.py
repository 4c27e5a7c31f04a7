"""Whether a member is worth asking: after some failures it is left alone, and tried again by and by."""

from gpuscale.base.backoff import Backoff

_FAILURES = 3
"""In a row, until a member is left alone."""
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 15.0


class Circuit:
    """What is known of a member from its last answers. Times are monotonic, in seconds."""

    def __init__(self) -> None:
        self.reason = ""
        """Why it counts as down; empty while it does not."""
        self.since_s: float | None = None
        """When it went down; None while it is not."""
        self._failures = 0
        self._retry_s = 0.0
        self._trial_s: float | None = None
        self._backoff = Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S)

    @property
    def is_open(self) -> bool:
        return self.since_s is not None

    def admits(self, now_s: float) -> bool:
        """Return whether it may be asked now: while it is down only one at a time, after a wait."""
        if not self.is_open:
            return True
        if now_s < self._retry_s or self._trial_s is not None:
            return False
        self._trial_s = now_s
        return True

    def answered(self) -> None:
        """Note an answer."""
        self._failures, self.reason = 0, ""
        self.since_s = self._trial_s = None
        self._backoff.reset()

    def failed(self, now_s: float, reason: str) -> None:
        """Note that no answer came, or one that makes no sense."""
        self._failures += 1
        self._trial_s = None
        if self.is_open or self._failures >= _FAILURES:
            self.since_s = now_s if self.since_s is None else self.since_s
            self.reason = reason
            self._retry_s = now_s + self._backoff.jittered()

    def gave_up(self) -> None:
        """Note that a question ended without saying anything, as when its client left."""
        self._trial_s = None
