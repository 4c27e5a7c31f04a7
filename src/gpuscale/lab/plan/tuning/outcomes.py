"""Outcomes of settings on a slice of the days, computed on any processor."""

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass

import numpy

from gpuscale.lab.plan.promise import Promise, Rows
from gpuscale.lab.plan.tuning.contender import Searched
from gpuscale.lab.plan.waiting import Requests
from gpuscale.triggers.policies import Numbers, ReplaySettings


@dataclass(frozen=True, slots=True)
class SettingOutcome:
    """The outcome of a setting on a slice of the days."""

    values: Numbers
    paid_steps: float
    """Sum over the steps of the replicas that were paid for, or of the nodes."""
    missed_by_day: Rows
    """How much missed each term of the promise: a row for each term, a column for each day."""


Known = MutableMapping[tuple[int, int, bytes], SettingOutcome]
"""Outcomes by the steps of their slice, from and until, and by their settings."""
Row = tuple[int, int, list[float], float, list[list[float]]]
"""An outcome as plain data: the slice, from and until; settings, paid steps, and what was missed by day."""


def rows_of(known: Known) -> list[Row]:
    """Return outcomes as plain data."""
    return [
        (begin, end, each.values.tolist(), each.paid_steps, each.missed_by_day.tolist())
        for (begin, end, _), each in known.items()
    ]


def known_of(rows: Iterable[Row]) -> Known:
    """Return outcomes from plain data."""
    return {
        (begin, end, numpy.array(values).tobytes()): SettingOutcome(
            numpy.array(values), paid_steps, numpy.array(missed)
        )
        for begin, end, values, paid_steps, missed in rows
    }


@dataclass(frozen=True, slots=True)
class Trial:
    """A slice of the days for one contender; called with settings, it returns their outcomes.

    It can be sent to another process: it holds numbers, and policies by the names of their functions.
    """

    contender: Searched
    demand: Numbers
    service: ReplaySettings
    promise: Promise
    requests: Requests
    per_day: int
    """Steps of a day."""

    def __call__(self, settings: Sequence[Numbers]) -> list[SettingOutcome]:
        """Return the outcomes of settings, in their order."""
        # Arrays from another process are read-only, and compiled replays need writable ones.
        demand = numpy.require(self.demand, requirements="W")
        return [self._outcome(values, demand) for values in settings]

    def _outcome(self, values: Numbers, demand: Numbers) -> SettingOutcome:
        replayed, paid = self.contender.replayed_and_paid(values, demand, self.service)
        missed = by_day(self.promise.missed(replayed, self.requests), self.per_day)
        return SettingOutcome(values, float(paid.sum()), missed)


def by_day(rows: Rows, per_day: int) -> Rows:
    """Return the sum of each day, of rows with a column for each step; the last day may be shorter."""
    found: Rows = numpy.add.reduceat(rows, numpy.arange(0, rows.shape[1], per_day), axis=1)
    return found


def undominated_first(
    outcomes: Iterable[tuple[float, SettingOutcome]],
) -> list[SettingOutcome]:
    """Return outcomes in layers: first those that none beats in both cost and misses, and so on.

    Args:
        outcomes: each with the part that it used up of what may be missed.
    """
    waiting = sorted(outcomes, key=lambda each: (each[1].paid_steps, each[0]))
    ordered: list[SettingOutcome] = []
    while waiting:
        layer, rest, least = [], [], numpy.inf
        for used, each in waiting:
            if used < least:
                layer.append(each)
                least = used
            else:
                rest.append((used, each))
        ordered += layer
        waiting = rest
    return ordered
