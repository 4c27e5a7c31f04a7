"""How writing to a receiver does, for metrics, health and messages."""

from bisect import bisect_left
from dataclasses import dataclass, field

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0)


@dataclass(slots=True)
class SendState:
    """Counts since the start, and what is wrong now."""

    name: str
    url: str
    """Less user, password and query."""
    fault: str | None = None
    """Why the latest request failed; None where it did not."""
    sent: int = 0
    """Samples that the receiver took."""
    failed: int = 0
    """Samples that it refused for good."""
    retried: int = 0
    """Samples of requests that were sent once more."""
    dropped: dict[str, int] = field(
        default_factory=lambda: {"dropped_series": 0, "too_old": 0, "shutdown": 0}
    )
    """Samples that were not sent, by reason."""
    pending: int = 0
    """Samples that are encoded and not taken yet."""
    sent_bytes: int = 0
    """As compressed."""
    newest_ms: int = 0
    """The newest sample that the receiver took."""
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    """Requests by how long they took."""
    seconds: float = 0.0

    def took(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.seconds += seconds
