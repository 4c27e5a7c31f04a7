"""A load run's plan and objectives."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpuscale.base.loads import Load
from gpuscale.base.words import shown_ms
from gpuscale.load.arrivals import Arrivals
from gpuscale.load.tokens import TokenBodies

MAX_RATE = 1_000_000.0
MAX_DURATION_S = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """One request, the same each time but for the body where that has token lengths."""

    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    bodies: TokenBodies | None = None
    """Each request's own, in place of `body`."""
    timeout_s: float = 30.0
    ca_file: str | None = None
    is_insecure: bool = False
    """Whether the server's certificate is taken as it is."""
    others: "tuple[LoadRequest, ...]" = ()
    """Sent in turn with it, to its server."""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """Limits that a run never exceeds, whatever the server does."""

    requests: int = 100_000_000
    connections: int = 1_000
    waiting: int = 10_000
    """Requests that are due and wait for a connection; those beyond are not sent, and counted."""


@dataclass(frozen=True, slots=True)
class Slo:
    """Service level objectives; each fault of a result is one line."""

    percentiles: tuple[tuple[float, float], ...] = ()
    """(percentile, milliseconds at most)."""
    errors_percent: float | None = None

    def faults(
        self, percentile_ms: "dict[float, float | None]", errors_percent: float | None
    ) -> Iterator[str]:
        """Yield the missed objectives, given the measured values; None is a run without an answer."""
        for percentile, limit_ms in self.percentiles:
            found = percentile_ms.get(percentile)
            if found is None:
                yield f"p{percentile:g}: no answer came, expected at most {shown_ms(limit_ms)}"
            elif found > limit_ms:
                yield f"p{percentile:g}: found {shown_ms(found)}, expected at most {shown_ms(limit_ms)}"
        if self.errors_percent is not None and (
            errors_percent is None or errors_percent > self.errors_percent
        ):
            found_text = "no answer" if errors_percent is None else f"{errors_percent:.3g} %"
            yield f"errors: found {found_text}, expected at most {self.errors_percent:g} %"


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """One run."""

    request: LoadRequest
    load: Load | None
    """Requests over time; None is a closed loop of users."""
    duration_s: float
    arrivals: Arrivals = "poisson"
    seed: int = 1
    users: int = 0
    """Of a closed loop: each sends the next request when it has the answer to its last."""
    bounds: RunLimits = field(default_factory=RunLimits)
    slo: Slo = field(default_factory=Slo)
    shape: str = ""
    """The load in the user's words, for the result."""
