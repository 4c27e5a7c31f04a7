"""Sources of values, and their schedule."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from gpuscale.agent.nvml.faults import CallFailedError

Value = int | float | str

_SLACK_MS = 100
"""How much too early a turn may come, so that a pace equal to the period is not halved by a read that is a
moment ahead of time. Of shorter periods, a tenth."""


@dataclass(slots=True)
class Findings:
    """Values by DCGM field, and reasons for missing ones."""

    values: dict[str, Value] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)

    def update(self, other: "Findings") -> None:
        self.values.update(other.values)
        self.absent.update(other.absent)

    def miss(self, fields: Iterable[str], reason: str) -> None:
        """Record missing fields."""
        self.absent.update(dict.fromkeys(fields, reason))


class ValueSource(Protocol):
    """A source of some fields of one GPU or MIG instance."""

    @property
    def fields(self) -> frozenset[str]:
        """Return the source's fields."""
        ...

    def read(self, now_ms: int) -> Findings:
        """Return a value or a reason for each field.

        Raises:
            GpuLostError: the GPU is gone.
            DriverGoneError: the driver is gone.
        """
        ...

    def close(self) -> None:
        """Free the source's library objects."""
        ...


class PeriodicTurn:
    """The schedule of something that is done once every period.

    Args:
        period_ms: from one turn to the next; 0 for at every read.
        shift: 0 to under 1, the part of a period by which the second turn comes early. With different
            shifts, what began at the same read is spread over the reads of a period.
    """

    def __init__(self, period_ms: int, shift: float = 0.0) -> None:
        self._period_ms = period_ms
        self._early_ms = int(period_ms * shift)
        self._slack_ms = min(_SLACK_MS, period_ms // 10)
        self._last_ms: int | None = None

    def is_due(self, now_ms: int) -> bool:
        """Return whether it is due; also if the clock was set back."""
        if self._last_ms is None:
            return True
        elapsed_ms = now_ms - self._last_ms
        wait_ms = self._period_ms - self._slack_ms
        return elapsed_ms >= wait_ms or elapsed_ms < -self._early_ms

    def take(self, now_ms: int) -> None:
        self._last_ms = now_ms - (self._early_ms if self._last_ms is None else 0)


class Scheduled:
    """A source that is read once every period, with its last values.

    Args:
        source: to ask.
        period_ms: from one asking to the next; 0 for at every read.
        shift: of its turns.
    """

    def __init__(self, source: ValueSource, period_ms: int, shift: float = 0.0) -> None:
        self.source = source
        self._turns = PeriodicTurn(period_ms, shift)
        self._findings = Findings()

    @property
    def fields(self) -> frozenset[str]:
        return self.source.fields

    def read(self, now_ms: int) -> Findings:
        """Return new values, or those from within the period."""
        if self._turns.is_due(now_ms):
            self._findings = self.source.read(now_ms)
            self._turns.take(now_ms)
        return self._findings

    def close(self) -> None:
        """Free the source's library objects."""
        self.source.close()


class RetryPause:
    """The pause before a retry.

    Times are those of readings. A clock that is set back ends the wait: its own time is no measure any more.
    """

    __slots__ = ("_ms", "_since_ms")

    def __init__(self) -> None:
        self._since_ms = 0
        self._ms = 0.0

    def begin(self, now_ms: int, wait_ms: float) -> None:
        self._since_ms, self._ms = now_ms, wait_ms

    def is_over(self, now_ms: int) -> bool:
        return not 0 <= now_ms - self._since_ms < self._ms


class Retry:
    """Remembers a lasting failure, to retry only after a pause."""

    __slots__ = ("_after_ms", "_reason", "_wait")

    def __init__(self, after_ms: int) -> None:
        self._after_ms = after_ms
        self._reason: str | None = None
        self._wait = RetryPause()

    def reason(self, now_ms: int) -> str | None:
        """Return why not to try now; None if it may be tried."""
        return None if self._wait.is_over(now_ms) else self._reason

    def note(self, failure: CallFailedError, now_ms: int) -> str:
        """Return a failure's reason, and remember a lasting one."""
        if failure.is_lasting:
            self._reason = failure.reason
            self._wait.begin(now_ms, self._after_ms)
        return failure.reason
