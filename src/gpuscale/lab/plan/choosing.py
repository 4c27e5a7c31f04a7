"""The result of a search: the cost of stricter and looser promises, and the settings to write.

Settings are searched on some days and scored on others. What keeps a promise on the first may break it on
the second; then the next stricter answer that held is taken, or none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gpuscale.lab.plan.comparing import ScoredPolicy
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.tuning.contender import Searched, is_whole
from gpuscale.lab.plan.tuning.search import Search
from gpuscale.triggers.policies import Numbers, Parameter

_SHARES = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)
"""Of what the promise lets be missed."""
_ROUNDING_MAY_COST = 1.005
"""So many times as much, at the most."""
_MOST_DIGITS = 3
"""That rounding tries to do with."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The cheapest settings found for a promise, with their score."""

    share: float
    """How much may be missed of what the promise that was asked for lets be missed."""
    values: Numbers
    row: ScoredPolicy


@dataclass(frozen=True, slots=True)
class SearchChoice:
    """The result of a search."""

    offers: tuple[Offer, ...]
    """What stricter and looser promises cost, the strictest first; the cost never rises."""
    taken: Offer
    """The answer: the cheapest that kept the promise on the scored days too, or else what was nearest."""
    is_gain: bool
    """Whether it kept the promise there, and costs less than today's settings or keeps what they break."""
    said: str
    """Which of the two, in words."""


def choose(
    search: Search,
    contender: Searched,
    promise: Promise,
    today: ScoredPolicy,
    scored: Callable[[Numbers], ScoredPolicy],
    cost: Callable[[ScoredPolicy], float],
    units: Mapping[str, float],
    *,
    tuned: str = "Tuned",
) -> SearchChoice:
    """Return the result of a search.

    Args:
        search: at its end, or stopped.
        contender: that was searched.
        promise: to users.
        today: the row of today's settings.
        scored: returns the row of settings on the days that count.
        cost: of a row.
        units: what a value is multiplied with where it is written, by the parameter's name; others with 1.
        tuned: how a sentence about the result begins.
    """
    lines: list[Offer] = []
    allows = any(each.allowed for each in promise.terms)
    for share in _SHARES if allows else (1.0,):
        keeping = [each for each in search.whole if search.used(each) <= share]
        if not keeping:
            continue
        is_best = share == 1.0 and search.keeps(search.best)
        best = search.best if is_best else min(keeping, key=lambda each: each.paid_steps)
        lines.append(Offer(share, best.values, scored(best.values)))
    lines = _falling(lines, cost)
    strict = [each for each in lines if each.share <= 1]
    if not strict:
        strict = [Offer(1.0, search.best.values, scored(search.best.values))]
    holding = [each for each in strict if promise.used(each.row.score.missed) <= 1]
    if not holding:
        said = (
            f"{tuned}, {promise.told(strict[-1].row.score.missed)}: the searched days were not like"
            " these. Nothing to gain: no stricter answer kept the promise either."
        )
        return SearchChoice(tuple(lines), strict[-1], is_gain=False, said=said)
    taken = holding[-1]
    rounded = _rounded(search, contender, promise, lines, taken, scored, cost, units)
    lines = _falling(
        [replace(rounded, share=each.share) if each.row is taken.row else each for each in lines],
        cost,
    )
    said = f"{tuned}, {promise.told(rounded.row.score.missed)}."
    if taken is not strict[-1]:
        said += (
            f" These are the settings for {promise.scaled(taken.share)}: of the cheapest on the searched"
            f" days, {promise.told(strict[-1].row.score.missed)}."
        )
    is_gain = bool((rounded.values != contender.today).any()) and (
        promise.used(today.score.missed) > 1 or cost(rounded.row) < cost(today)
    )
    if not is_gain:
        said += " Nothing to gain: what is set today keeps the promise, and nothing that held costs less."
    return SearchChoice(tuple(lines), rounded, is_gain=is_gain, said=said)


def _falling(lines: list[Offer], cost: Callable[[ScoredPolicy], float]) -> list[Offer]:
    """Return offers with falling cost: settings for a strict promise also serve a looser one."""
    found: list[Offer] = []
    for each in lines:
        is_dearer = found and cost(found[-1].row) < cost(each.row)
        found.append(replace(found[-1], share=each.share) if is_dearer else each)
    return found


def _rounded(
    search: Search,
    contender: Searched,
    promise: Promise,
    lines: list[Offer],
    taken: Offer,
    scored: Callable[[Numbers], ScoredPolicy],
    cost: Callable[[ScoredPolicy], float],
    units: Mapping[str, float],
) -> Offer:
    """Return an offer with values rounded where that costs nothing."""
    before = search.tried(taken.values)
    # Equal settings may keep stricter promises too, and a stricter promise must never be cheaper.
    strictest = min((each.share for each in lines if each.row is taken.row), default=1.0)
    used = max(search.used(before), strictest)
    dearer = [
        cost(each.row) for each in lines if each.share < taken.share and each.row is not taken.row
    ]
    most = min([_ROUNDING_MAY_COST * cost(taken.row), *dearer])
    found = taken
    for roundness in range(_MOST_DIGITS + 1):
        for at, parameter in enumerate(contender.parameters):
            unit = units.get(parameter.name, 1.0)
            value = _round(parameter, float(found.values[at]), unit, roundness)
            values = found.values.copy()
            values[at] = value
            values = contender.sensible(values)
            if values.tobytes() == found.values.tobytes():
                continue
            outcome = search.tried(values)
            if (
                outcome.paid_steps > _ROUNDING_MAY_COST * before.paid_steps
                or search.used(outcome) > used
            ):
                continue
            row = scored(values)
            if promise.used(row.score.missed) <= 1 and cost(row) <= most:
                found = Offer(taken.share, values, row)
    return found


def _round(parameter: Parameter, value: float, unit: float, roundness: int) -> float:
    """Return a value with fewer digits, or unchanged if that is impossible.

    Args:
        parameter: whose value it is.
        value: as it is replayed.
        unit: that it is multiplied with where it is written.
        roundness: 0 for today's value, or the number of digits.
    """
    if value in (parameter.default, 0.0):
        return value
    if roundness == 0:
        return parameter.default
    written = f"{value * unit:.12g}"
    near = f"{value * unit:.{roundness}g}"
    if is_whole(parameter):
        near = str(round(float(near)))
    is_rounder = _digits(near) < _digits(written)
    rounder = float(near) / unit
    return rounder if is_rounder and parameter.least <= rounder <= parameter.most else value


def _digits(number: str) -> int:
    """Return a number's count of significant digits."""
    return len(f"{float(number):.12e}".split("e")[0].replace(".", "").strip("-0"))
