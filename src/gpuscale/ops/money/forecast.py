"""What the next days take, from the hours before: a season where the past shows one, and the Theta method.

Source: Assimakopoulos and Nikolopoulos, "The theta model", International Journal of Forecasting 16 (2000).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, linear_regression

HORIZON_DAYS = 14
LEAST_DAYS = 3
_DAY_H, _WEEK_H = 24, 168
_LEAST_SKILL = 0.1
"""Share of the ups and downs of held-back hours that a season has to explain."""
_TREND_DAYS = 14
"""From so many days on there are two of each day of the week, and a trend is no weekend."""
_HELD_BACK = 1 / 3
_NOTHING = 1e-9
_Z90 = 1.645
"""Standard deviations in which 90 of 100 normally distributed errors are."""
_ALPHAS = [each / 10 for each in range(1, 11)]


@dataclass(frozen=True, slots=True)
class Forecast:
    """GPU-hours of the days that follow."""

    days: tuple[float, ...]
    low: float
    """Of the sum, with `high`: in 90 of 100 such forecasts the sum is between them."""
    high: float
    season: str
    """`weekly`, `daily`, or `none`: the hours before have no pattern that repeats."""
    skill: float
    """Share of the ups and downs of held-back hours that the season explains, up to 1."""
    errors: tuple[float, ...]
    """Of forecasts that were made of a part of the past, against the rest of it: 0.1 is 10 % too much."""
    held_back_days: int
    """That each of these looked ahead."""

    @property
    def total(self) -> float:
        return sum(self.days)


def look_ahead(hours: Sequence[float | None], days: int = HORIZON_DAYS) -> Forecast:
    """Return the forecast of the days that follow.

    Args:
        hours: GPU-hours of each hour, the last one just over; None where nothing is known.
        days: to look ahead.

    Raises:
        ValueError: fewer than three days are known, or half of the hours are not.
    """
    known = _whole(hours)
    count = len(known) // _DAY_H
    ahead = max(1, min(days, round(count * _HELD_BACK)))
    errors = []
    for origin in range(max(LEAST_DAYS - 1, round(count / 2)), count - ahead + 1):
        cut = len(known) - (count - origin) * _DAY_H
        came = sum(known[cut : cut + ahead * _DAY_H])
        if came > 0:
            errors.append(sum(_next_days(known[:cut], ahead)[0]) / came - 1)
    found, season, skill = _next_days(known, days)
    total = sum(found)
    # Errors of levels grow with the square root of the time; those of the past looked less far.
    spread = math.sqrt(fmean(each**2 for each in errors)) if errors else math.inf
    spread *= _Z90 * math.sqrt(max(1.0, days / ahead))
    low = total / (1 + spread)
    return Forecast(tuple(found), low, total * (1 + spread), season, skill, tuple(errors), ahead)


def _whole(hours: Sequence[float | None]) -> list[float]:
    """Return whole days of hours from the first known one on; in a gap an hour is as it was a day before."""
    first = next((at for at, each in enumerate(hours) if each is not None), len(hours))
    rest = hours[first + (len(hours) - first) % _DAY_H :]
    given = [each for each in rest if each is not None]
    if len(rest) < LEAST_DAYS * _DAY_H or len(given) < len(rest) / 2:
        raise ValueError(
            f"{len(given)} of {len(hours)} hours are known, expected {LEAST_DAYS} days without large gaps"
        )
    found: list[float] = []
    for at, each in enumerate(rest):
        before = found[at - _DAY_H] if at >= _DAY_H else fmean(given)
        found.append(before if each is None else each)
    return found


def _next_days(hours: Sequence[float], days: int) -> tuple[list[float], str, float]:
    """Return the sums of the next days, the season, and the share that it explains."""
    length = _WEEK_H if len(hours) >= 2 * _WEEK_H else _DAY_H
    ups = _ups(hours, length)
    held = ups[-max(1, round(len(ups) * _HELD_BACK)) :]
    known = _shapes(_profile(ups[: -len(held)]))
    skill, number = 0.0, None
    for at, (_, shape) in enumerate(known):
        # A shape with more to it has to be better by as much as the first has to be good.
        if (explained := _skill(shape, held)) >= skill + _LEAST_SKILL:
            skill, number = explained, at
    name, profile = ("none", [0.0] * length) if number is None else _shapes(_profile(ups))[number]
    first = -len(hours)  # phases count from the end, where the forecast begins
    plain = [each - profile[(first + at) % length] for at, each in enumerate(hours)]
    levels = _levels([fmean(each) for each in _periods(plain, _DAY_H)], days)
    found = [
        sum(max(0.0, level + profile[(day * _DAY_H + hour) % length]) for hour in range(_DAY_H))
        for day, level in enumerate(levels)
    ]
    return found, name, skill


def _periods(hours: Sequence[float], length: int) -> list[Sequence[float]]:
    """Return the whole periods, up to the end."""
    return [hours[at : at + length] for at in range(len(hours) % length, len(hours), length)]


def _ups(hours: Sequence[float], length: int) -> list[list[float]]:
    """Return how far the hours of each period are from its mean and the trend of all of them."""
    periods = _periods(hours, length)
    means = [fmean(each) for each in periods]
    rise = linear_regression(range(len(means)), means).slope / length if len(means) > 1 else 0.0
    middle = (length - 1) / 2
    return [
        [each - mean - rise * (at - middle) for at, each in enumerate(period)]
        for period, mean in zip(periods, means, strict=True)
    ]


def _profile(ups: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(of_phase) for of_phase in zip(*ups, strict=True)]


def _shapes(profile: Sequence[float]) -> list[tuple[str, Sequence[float]]]:
    """Return the seasons that a profile may be, the plainest first.

    A week's may be that of one day, or that with a level for each day, which noise hides less than all hours.
    """
    if len(profile) < _WEEK_H:
        return [("daily", profile)]
    hours = [fmean(profile[hour::_DAY_H]) for hour in range(_DAY_H)] * 7
    levels = [fmean(each) for each in _periods(profile, _DAY_H) for _ in range(_DAY_H)]
    both = [hour + level for hour, level in zip(hours, levels, strict=True)]
    return [("daily", hours), ("weekly", both), ("weekly", profile)]


def _skill(profile: Sequence[float], held: Sequence[Sequence[float]]) -> float:
    """Return how much of the ups and downs of held-back periods a profile explains."""
    whole = sum(each**2 for period in held for each in period)
    left = sum((a - b) ** 2 for period in held for a, b in zip(period, profile, strict=True))
    return 1 - left / whole if whole > _NOTHING else 0.0


def _levels(past: Sequence[float], days: int) -> Iterator[float]:
    """Yield the level of each next day: by the Theta method, or of too few days the smoothed one."""
    if len(past) < _TREND_DAYS:
        yield from [_smoothed(past)] * days
        return
    slope, begin = linear_regression(range(len(past)), past)
    level = _smoothed([2 * each - begin - slope * at for at, each in enumerate(past)])
    for day in range(len(past), len(past) + days):
        yield max(0.0, (level + begin + slope * day) / 2)


def _smoothed(past: Sequence[float]) -> float:
    """Return the last level of simple exponential smoothing, with the constant that fits the past best."""
    return min(_fitted(past, alpha) for alpha in _ALPHAS)[1]


def _fitted(past: Sequence[float], alpha: float) -> tuple[float, float]:
    """Return the squared errors of forecasts a day ahead, and the last level."""
    level, squares = past[0], 0.0
    for each in past[1:]:
        squares += (each - level) ** 2
        level += alpha * (each - level)
    return squares, level
