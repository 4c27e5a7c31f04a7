"""What stricter and looser promises cost: of all settings that were tried, the cheapest that keeps each."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuscale.plan.tuning.outcomes import Outcome
from gpuscale.plan.tuning.search import Search

_SHARES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Of the promise that was asked for."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The cheapest setting that keeps a promise on the searched days."""

    promise: float
    """Share of the steps that may be short."""
    outcome: Outcome


def offers(search: Search, promise: float) -> Iterator[Offer]:
    """Yield the offers of a search, the strictest first; a promise that no setting keeps is left out.

    Args:
        search: at its end, or stopped.
        promise: that was asked for; its offer is the search's best.
    """
    tried = search.whole
    for share in _SHARES:
        asked = share * promise
        keeping = [each for each in tried if search.short_share(each) <= asked]
        best = search.best if share == 1.0 and search.keeps(search.best) else None
        if keeping:
            yield Offer(asked, best or min(keeping, key=lambda each: each.paid_steps))
