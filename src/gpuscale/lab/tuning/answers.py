"""The request and the result of `gpuscale tune`."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.lab.plan.bounds import GpuHourBounds
from gpuscale.lab.plan.choosing import Offer, SearchChoice
from gpuscale.lab.plan.comparing import ReplayedWorkload, ScoredPolicy, Split
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.tuning.contender import Contender
from gpuscale.lab.plan.tuning.pooled import DedicatedPool


@dataclass(frozen=True, slots=True)
class TuningRequest:
    """The request of a search."""

    policies: Sequence[str]
    """Compared with the HPA."""
    promise: Promise
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
    has_nodes: bool = True
    """Whether the node pool is searched too, where it can be."""


@dataclass(frozen=True, slots=True)
class Pooled:
    """The result for an HPA together with its node pool."""

    pool: DedicatedPool
    rows: tuple[ScoredPolicy, ...]
    """As it is, with the tuned HPA, and tuned together."""
    choice: SearchChoice
    """The last row's; its settings are those of the HPA and those of the pool."""


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The result of a search."""

    workload: ReplayedWorkload
    split: Split
    document: dict[str, object]
    rows: tuple[ScoredPolicy, ...]
    offered: tuple[Offer, ...]
    """Of the HPA, and of the HPA on demand, by their rows' names."""
    limits: GpuHourBounds
    promise: Promise
    choice: SearchChoice
    """The tuned HPA's."""
    contender: Contender
    """The HPA, as it was searched."""
    pooled: Pooled | None = None
    """None where no node pool was searched."""
