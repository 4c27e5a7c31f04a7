"""A circuit breaker for a federation member: after some failures it is asked only now and then."""

from gpuscale.base.backoff import Backoff

_FAILURES = 3
"""In a row, until a member is left alone."""
_FIRST_WAIT_S = 1.0
_LONGEST_WAIT_S = 15.0


class Circuit:
    """Recent successes and failures of one member. Times are monotonic, in seconds."""

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
        """Return whether a request may go out; to a member that is down, one at a time and after a pause."""
        if not self.is_open:
            return True
        if now_s < self._retry_s or self._trial_s is not None:
            return False
        self._trial_s = now_s
        return True

    def answered(self) -> None:
        """Record a good answer."""
        self._failures, self.reason = 0, ""
        self.since_s = self._trial_s = None
        self._backoff.reset()

    def failed(self, now_s: float, reason: str) -> None:
        """Record a failure: no answer, or an invalid one."""
        self._failures += 1
        self._trial_s = None
        if self.is_open or self._failures >= _FAILURES:
            self.since_s = now_s if self.since_s is None else self.since_s
            self.reason = reason
            self._retry_s = now_s + self._backoff.jittered()

    def gave_up(self) -> None:
        """Record that a request ended without result, for instance because its client disconnected."""
        self._trial_s = None
