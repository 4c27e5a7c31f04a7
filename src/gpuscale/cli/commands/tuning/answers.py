"""What is asked of `gpuscale tune`, and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.plan.bounds import Bounds
from gpuscale.plan.comparing import Row, Split, Workload


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted of a search."""

    policies: Sequence[str]
    """Compared with the HPA."""
    promise: float
    """Share of the steps that may be short."""
    wait_s: float
    """How long a request in time waits."""
    held_back: float
    """Share of the days."""
    tries: int
    seed: int
    workers: int
    kept: Sequence[str] = ()
    """Settings of the HPA that stay as they are."""
    on: str | None = None
    """Address of a cluster; None for this machine."""
    state: str | None = None
    """File that keeps what was tried."""


@dataclass(frozen=True, slots=True)
class Offered:
    """The cheapest settings of the HPA that were found for a promise, scored."""

    promise: float
    """Share of the steps that may be short."""
    row: Row
    """Its name is that of the search: the HPA, or the HPA on another signal."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found."""

    workload: Workload
    split: Split
    document: dict[str, object]
    rows: tuple[Row, ...]
    offered: tuple[Offered, ...]
    limits: Bounds
    tuned: dict[str, float]
    """Values of the HPA's parameters by name."""
