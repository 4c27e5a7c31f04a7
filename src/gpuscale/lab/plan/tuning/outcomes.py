"""Outcomes of settings on a slice of the days, computed on any processor."""

from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import dataclass

import numpy

from gpuscale.lab.plan.tuning.contender import Searched
from gpuscale.triggers.policies import Numbers, ReplaySettings


@dataclass(frozen=True, slots=True)
class SettingOutcome:
    """The outcome of a setting on a slice of the days."""

    values: Numbers
    paid_steps: float
    """Sum over the steps of the replicas that were paid for, or of the nodes."""
    short_by_day: Numbers
    """Steps that were short."""

    @property
    def short_steps(self) -> float:
        """Return the sum of the days' short steps."""
        return float(self.short_by_day.sum())


Known = MutableMapping[tuple[int, int, bytes], SettingOutcome]
"""Outcomes by the steps of their slice, from and until, and by their settings."""
Row = tuple[int, int, list[float], float, list[float]]
"""An outcome as plain data: the slice, from and until; settings, paid steps, and short steps by day."""


def rows_of(known: Known) -> list[Row]:
    """Return outcomes as plain data."""
    return [
        (begin, end, [*map(float, each.values)], each.paid_steps, [*map(float, each.short_by_day)])
        for (begin, end, _), each in known.items()
    ]


def known_of(rows: Iterable[Row]) -> Known:
    """Return outcomes from plain data."""
    return {
        (begin, end, numpy.array(values).tobytes()): SettingOutcome(
            numpy.array(values), paid_steps, numpy.array(short)
        )
        for begin, end, values, paid_steps, short in rows
    }


@dataclass(frozen=True, slots=True)
class Trial:
    """A slice of the days for one contender; called with settings, it returns their outcomes.

    It can be sent to another process: it holds numbers, and policies by the names of their functions.
    """

    contender: Searched
    demand: Numbers
    service: ReplaySettings
    per_day: int
    """Steps of a day."""

    def __call__(self, settings: Sequence[Numbers]) -> list[SettingOutcome]:
        """Return the outcomes of settings, in their order."""
        # Arrays from another process are read-only, and compiled replays need writable ones.
        demand = numpy.require(self.demand, requirements="W")
        return [self._outcome(values, demand) for values in settings]

    def _outcome(self, values: Numbers, demand: Numbers) -> SettingOutcome:
        ready, paid = self.contender.ready_and_paid(values, demand, self.service)
        short = demand > ready + 1e-9
        days = numpy.arange(0, len(demand), self.per_day)
        by_day = numpy.add.reduceat(short.astype(numpy.float64), days)
        return SettingOutcome(values, float(paid.sum()), by_day)


def undominated_first(outcomes: Sequence[SettingOutcome]) -> list[SettingOutcome]:
    """Return outcomes in layers: first those that none beats in both cost and short steps, and so on."""
    waiting = sorted(outcomes, key=lambda each: (each.paid_steps, each.short_steps))
    ordered: list[SettingOutcome] = []
    while waiting:
        layer, rest, least = [], [], numpy.inf
        for each in waiting:
            if each.short_steps < least:
                layer.append(each)
                least = each.short_steps
            else:
                rest.append(each)
        ordered += layer
        waiting = rest
    return ordered
