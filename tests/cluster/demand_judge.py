"""Whether each count that a Deployment was given was justified by what could be known of the true demand."""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

LATENCY_S = 10.0
"""A decision may rest on a demand of so long ago: scraped each second, asked for each second, decided each
second, on a machine that other tests load."""


@dataclass(frozen=True, slots=True)
class ScaleIn:
    """A Deployment was asked for fewer pods."""

    at: float
    before: int
    after: int
    needed: int
    """The least that was needed within the latency."""
    known: int
    """The least that was known to be needed: where the source was away, what it said last."""

    @property
    def is_wrong(self):
        """Return whether nothing that was known justifies it."""
        return self.after < self.known

    @property
    def is_blind(self):
        """Return whether the demand had risen while nobody could know it."""
        return self.known <= self.after < self.needed


class Judge:
    """Judges counts against the demand.

    Args:
        needs: each with `at` and `pods`, in order; the first from before all counts.
        sights: times at which the source was looked at, and whether it was there, in order.
    """

    def __init__(self, needs, sights) -> None:
        self._needs = needs
        self._starts = [need.at for need in needs]
        self._away = [at for at, is_there in sights if not is_there]

    def scale_ins(self, asked):
        """Return all scale-ins of one Deployment."""
        return [
            self._scale_in(*two) for two in pairwise(asked) if two[1].replicas < two[0].replicas
        ]

    def _scale_in(self, before, after):
        since = after.at - LATENCY_S
        return ScaleIn(
            after.at,
            before.replicas,
            after.replicas,
            self._least(since, after.at),
            self._least(self._known_since(after.at), after.at),
        )

    def _known_since(self, at):
        """Return the beginning of the newest time, as long as the latency, that the source was there in."""
        since = at - LATENCY_S
        for away in reversed(self._away[: bisect_right(self._away, at)]):
            if away < since:
                break
            since = away - LATENCY_S
        return since

    def _least(self, since, until):
        first = max(0, bisect_right(self._starts, since) - 1)
        last = bisect_right(self._starts, until)
        return min(need.pods for need in self._needs[first:last])
