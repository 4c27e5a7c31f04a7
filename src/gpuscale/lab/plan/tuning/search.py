"""Searches for the cheapest settings that keep the promise, on some days, for use on others.

Breadth first: Sobol points are replayed on the day around the highest demand, the best of them on a quarter
of the days, the best of those on all. A setting stays as long as few others are both cheaper and miss less
of the promise, so that none is lost that only looks dear on a hard day. Half of the points move only the
parameters that matter most, the others all. Then the parameters of the best settings are moved one by one,
by smaller and smaller steps. A setting keeps the promise when days drawn from the searched ones do, some of
them several times, in 95 of 100 draws.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy

from gpuscale.lab.plan.promise import Promise, Rows
from gpuscale.lab.plan.score import DEFAULT_REQUESTS
from gpuscale.lab.plan.tuning import sobol
from gpuscale.lab.plan.tuning.contender import Searched, at_share, moved, rounded
from gpuscale.lab.plan.tuning.outcomes import (
    Known,
    SettingOutcome,
    Trial,
    by_day,
    undominated_first,
)
from gpuscale.lab.plan.waiting import Requests
from gpuscale.triggers.policies import Numbers, ReplaySettings

DAY_S = 86_400.0
_DRAWS = 200
_QUANTILE = 0.95
_UNDRAWN = 0.8
"""Share of the promise that may be used up where there are too few days to draw from."""
_KEPT = 8
"""One of so many settings stays for the next, longer slice."""
_BATCH = 16
"""Settings that one worker takes at once."""
_ROUND = 16 * _BATCH
"""Settings between two signs of life."""
_REFINED = 2
"""Settings that are refined."""
_FIRST_MOVE, _LAST_MOVE = 0.16, 0.01
"""Of a parameter's range."""
_LEAST = 1e-9
"""Instead of no work at all."""
_ROUNDS = 24
"""Of moves, at the most."""

Days: TypeAlias = numpy.ndarray[tuple[int, int], numpy.dtype[numpy.int64]]
"""Numbers of days, a row for each draw."""
Each = Callable[
    [Callable[[Sequence[Numbers]], list[SettingOutcome]], Iterable[Sequence[Numbers]]],
    Iterable[list[SettingOutcome]],
]
"""Applies a function to each of several batches of settings, in their order, such as `map`."""


@dataclass(frozen=True, slots=True)
class ReplayCase:
    """A demand to replay, and the promise to keep."""

    demand: Numbers
    """Of the days to search on, in pods, one number a step."""
    service: ReplaySettings
    promise: Promise
    requests: Requests = DEFAULT_REQUESTS
    seed: int = 1
    """Of the points, and of the days that are drawn."""
    is_held_back: bool = True
    """Whether other days are scored; if not, the promise need only hold on these."""


class Allowance:
    """What replays of a question's days use up of what its promise lets be missed.

    Args:
        question: with the days and the promise.
        per_day: steps of a day.
    """

    def __init__(self, question: ReplayCase, per_day: int) -> None:
        self._promise = question.promise
        self._is_held_back = question.is_held_back
        of_demand = question.demand, question.service.step_s
        self._counted_by_day = by_day(question.promise.counted(*of_demand), per_day)
        self._counted = question.promise.counted_in_all(*of_demand)
        days = len(question.demand) // per_day
        self._draws: Days | None = None
        """Day numbers drawn with replacement, a row for each draw; None for a single day."""
        if days > 1:
            draw = numpy.random.default_rng(question.seed)
            self._draws = draw.integers(0, days, (_DRAWS, days))

    def spent(self, missed_by_day: Rows) -> float:
        """Return how much of what may be missed on all days is missed on these."""
        return self._promise.used(missed_by_day.sum(axis=1) / self._counted)

    def used(self, missed_by_day: Rows) -> float:
        """Return the part of what may be missed that 95 of 100 bootstrap draws of all days stay below."""
        used = self.spent(missed_by_day)
        if not self._is_held_back:
            return used
        if self._draws is None:
            return used / _UNDRAWN
        drawn = numpy.quantile(self._drawn(missed_by_day, self._draws), _QUANTILE, axis=1)
        return max(used, self._promise.used(drawn))

    def chance(self, missed_by_day: Rows) -> float | None:
        """Return the share of bootstrap draws of all days in which the promise holds; None for one day."""
        if self._draws is None:
            return None
        drawn = self._drawn(missed_by_day, self._draws).T
        return float(numpy.mean([self._promise.used(shares) <= 1 for shares in drawn]))

    def _drawn(self, missed_by_day: Rows, draws: Days) -> Rows:
        """Return the share that misses each term, a row for each, in each draw."""
        counted = self._counted_by_day[:, draws].sum(axis=2)
        found: Rows = missed_by_day[:, draws].sum(axis=2) / numpy.maximum(counted, _LEAST)
        return found


class Search:
    """The search for one contender.

    Args:
        question: to search on.
        contender: whose settings.
        each: applies the replay to many batches, such as the `map` of an executor.
        known: outcomes of an earlier search for the same contender and question; those of this one are
            added.
        begin: settings to begin with, beside today's, such as those of a search that went before.
    """

    def __init__(
        self,
        question: ReplayCase,
        contender: Searched,
        each: Each = map,
        known: Known | None = None,
        begin: Sequence[Numbers] = (),
    ) -> None:
        self._question = question
        self._contender = contender
        self._each = each
        self._known: Known = {} if known is None else known
        self._steps = len(question.demand)
        self._per_day = max(1, round(DAY_S / question.service.step_s))
        self._allowance = Allowance(question, self._per_day)
        self._whole: dict[bytes, SettingOutcome] = {}
        self.best = self._replayed(0, self._steps, [contender.today])[0]
        """Of all settings that were replayed on all days; today's to begin with."""
        self._replayed(0, self._steps, begin)

    def run(self, count: int) -> Iterator[int]:
        """Search, and yield the number of replays since the last yield; `best` is always valid.

        Args:
            count: settings that are tried in breadth.
        """
        waiting = list(self._spread(count))
        for begin, end in self._slices():
            outcomes: list[SettingOutcome] = []
            for first in range(0, len(waiting), _ROUND):
                tried = waiting[first : first + _ROUND]
                outcomes += self._replayed(begin, end, tried)
                yield len(tried)
            # Settings that miss more on the slice than they may in all can't keep the promise.
            spent = [(self._allowance.spent(each.missed_by_day), each) for each in outcomes]
            may = undominated_first(each for each in spent if each[0] <= 1)
            may_not = [each for each in spent if each[0] > 1]
            may += [
                each for _, each in sorted(may_not, key=lambda each: (each[0], each[1].paid_steps))
            ]
            kept = may[: max(_REFINED, len(outcomes) // _KEPT)]
            waiting = [outcome.values for outcome in kept]
        for outcome in sorted(self._whole.values(), key=self._rank)[:_REFINED]:
            yield from self._refine(outcome)

    def keeps(self, outcome: SettingOutcome) -> bool:
        """Return whether a setting that was replayed on all days keeps the promise."""
        return self.used(outcome) <= 1

    def tried(self, values: Numbers) -> SettingOutcome:
        """Return the outcomes of settings on all days."""
        return self._replayed(0, self._steps, [values])[0]

    @property
    def whole(self) -> list[SettingOutcome]:
        """Return the settings that were replayed on all days."""
        return list(self._whole.values())

    def _refine(self, best: SettingOutcome) -> Iterator[int]:
        """Move a parameter, or reset it to today's, while that improves it; then by smaller steps."""
        parameters, today = self._contender.parameters, self._contender.today
        move, rounds = _FIRST_MOVE, _ROUNDS
        while move >= _LAST_MOVE and rounds:
            values = best.values
            steps = [
                (at, moved(parameters[at], values[at], sign * move))
                for at in range(len(values))
                for sign in (-1.0, 1.0)
            ]
            steps += [(int(at), float(today[at])) for at in numpy.flatnonzero(values != today)]
            nearby = (self._moved(values, at, value) for at, value in steps)
            around = [near for near in nearby if near is not None]
            before = best
            if around:
                best = min([best, *self._replayed(0, self._steps, around)], key=self._rank)
            yield len(around)
            rounds -= 1
            if best is before:
                move /= 2

    def _moved(self, values: Numbers, at: int, value: float) -> Numbers | None:
        """Return the values with one replaced, as sensible ones; None if that changes nothing."""
        near = values.copy()
        near[at] = value
        near = self._contender.sensible(near)
        return None if near.tobytes() == values.tobytes() else near

    def _replayed(self, begin: int, end: int, settings: Sequence[Numbers]) -> list[SettingOutcome]:
        """Return the outcomes of settings on a slice; the best on all days is kept."""
        keys = [(begin, end, values.tobytes()) for values in settings]
        pairs = zip(keys, settings, strict=True)
        new = list({key: values for key, values in pairs if key not in self._known}.values())
        batches = [new[first : first + _BATCH] for first in range(0, len(new), _BATCH)]
        demand = self._question.demand[begin:end]
        trial = Trial(
            self._contender,
            demand,
            self._question.service,
            self._question.promise,
            self._question.requests,
            self._per_day,
        )
        for outcomes in self._each(trial, batches):
            for outcome in outcomes:
                self._known[begin, end, outcome.values.tobytes()] = outcome
        found = [self._known[key] for key in keys]
        if (begin, end) == (0, self._steps):
            before = [self.best] if self._whole else []
            self._whole |= {outcome.values.tobytes(): outcome for outcome in found}
            self.best = min([*before, *found], key=self._rank)
        return found

    def _rank(self, outcome: SettingOutcome) -> tuple[float, float, int]:
        """Return a setting's sort key: excess over the promise, cost, number of changed values."""
        excess = max(0.0, self.used(outcome) - 1)
        changed = int((outcome.values != self._contender.today).sum())
        return excess, outcome.paid_steps, changed

    def used(self, outcome: SettingOutcome) -> float:
        """Return what a setting that was replayed on all days uses up, as its allowance says."""
        return self._allowance.used(outcome.missed_by_day)

    def _spread(self, count: int) -> Iterator[Numbers]:
        """Yield settings spread evenly over the parameters' ranges, each once."""
        parameters = self._contender.parameters
        first, others = self._contender.free
        seen = {self._contender.today.tobytes()}
        points = sobol.points(len(first) + len(others), count, self._question.seed)
        for number, point in enumerate(points):
            values = self._contender.today
            free = first if number < count // 2 else (*first, *others)
            for at, share in zip(free, point, strict=False):
                values[at] = rounded(parameters[at], at_share(parameters[at], share))
            values = self._contender.sensible(values)
            if values.tobytes() not in seen:
                seen.add(values.tobytes())
                yield values

    def _slices(self) -> Iterator[tuple[int, int]]:
        """Yield longer and longer slices around the highest demand; the last is the whole demand."""
        middle = int(numpy.argmax(self._question.demand))
        for length in (self._per_day, self._steps // 4):
            if self._per_day <= length < self._steps // 2:
                begin = min(max(0, middle - length // 2), self._steps - length)
                yield begin, begin + length
        yield 0, self._steps
