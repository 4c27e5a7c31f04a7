"""What Prometheus' API shows besides series: rules, targets and settings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gpuscale.series.rules.groups import RuleGroup, RuleGroups

Health = Literal["up", "down", "unknown"]


@dataclass(frozen=True, slots=True)
class TargetView:
    """A target that is scraped or followed."""

    url: str
    labels: Mapping[str, str]
    """Of its series; `job` is also the pool that it belongs to."""
    health: Health
    error: str
    """Why the latest scrape failed; empty where it did not."""
    last_ms: int | None
    """When it answered last, milliseconds since the epoch; None before the first time."""
    duration_s: float
    """How long that took."""
    interval_s: float
    timeout_s: float


class Ruling(Protocol):
    """A rule evaluator, as the API needs it."""

    @property
    def groups(self) -> RuleGroups:
        """The rules, with their latest results."""
        ...

    def interval_of(self, group: RuleGroup) -> int:
        """Return the milliseconds between two evaluations of a group."""
        ...


@dataclass(frozen=True, slots=True)
class ServerView:
    """The sources of rules, targets and settings for the API; by default there are none."""

    ruler: Ruling | None = None
    targets: Callable[[], Iterable[TargetView]] = tuple
    flags: Mapping[str, str] = field(default_factory=dict)
    """Settings by the names that Prometheus' flags have."""
    config: Callable[[], Mapping[str, object]] = dict
    """The configuration as Prometheus would write it."""
    is_reloaded: Callable[[], bool] = lambda: True
    """Whether all files as they are now are in use."""
    alertmanagers: Sequence[str] = ()
    """Addresses that alerts are sent to."""
