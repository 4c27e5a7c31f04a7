"""How each target does, for metrics, health and messages."""

from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["stream", "scrape"]


@dataclass(slots=True)
class FeedState:
    """One target's."""

    kind: Kind
    instance: str
    up: bool = False
    """Whether it answers now."""
    error: str | None = None
    """Why it does not, or what it says is wrong; None where all is well."""
    series: int = 0
    unwanted: int = 0
    """Series that it offers and that are not kept."""
    samples: int = 0
    """Stored so far."""
    failures: int = 0
    """Connections or scrapes that failed."""
    limited: dict[str, int] = field(default_factory=dict)
    """Scrapes that failed because they brought too much, by limit, or what is not supported: `format` and
    `native_histograms`."""
    measured_ms: int | None = None
    """When the newest samples were measured; None before the first."""
    arrival_lag_s: float | None = None
    """From the measurement to the arrival here; below zero where the target's clock is ahead."""
    store_lag_s: float | None = None
    """From the arrival to being in the store."""
