"""Which signal tells a coping replica from an overloaded one, and its last good value."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from gpuscale.load.calibrate.knee import Limit
from gpuscale.load.calibrate.levels import Level, Objective

HPA_TOLERANCE = 0.1
"""kube-controller-manager's default: up to this much above the target nothing is scaled."""
_FULL = 0.95
"""Of its largest value; a signal that has this much at half the limit says no more above it."""
_SEPARATES = 0.8
_APART = 1.15
"""Rates nearer to each other may be good or bad by chance."""
_RISES = 1.3


class Fitness(Enum):
    """A signal's suitability for scaling."""

    GOOD = "good"
    STEEP = "steep"
    SATURATED = "saturated"
    FLAT = "flat"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class SignalJudgement:
    """The judgement of one signal."""

    name: str
    fitness: Fitness
    why: str
    at_limit: float | None = None
    """Its value at the highest rate that keeps the objective; None where it wasn't seen there."""
    interval: tuple[float, float] | None = None
    """The same at the ends of the limit's interval."""
    target: float | None = None
    """What to write into the HPA; None where it should not be scaled on."""
    separates: float | None = None
    """Share of pairs of a good and a bad level in which the bad one has the higher value; 0.5 is chance."""
    points: tuple[tuple[float, float], ...] = ()
    """(rate, mean value), rates ascending."""

    @property
    def score(self) -> tuple[int, float]:
        """Return the signal's sort key; larger is better."""
        order = [Fitness.ABSENT, Fitness.FLAT, Fitness.SATURATED, Fitness.STEEP, Fitness.GOOD]
        return order.index(self.fitness), self.separates or 0.0


def judge_signals(
    levels: Sequence[Level],
    objective: Objective,
    limit: Limit,
    tolerance: float = HPA_TOLERANCE,
    headroom: float = 0.0,
) -> tuple[SignalJudgement, ...]:
    """Return the judgement of each signal, best first.

    Args:
        levels: those at which the generator was on time.
        objective: what users were promised.
        limit: the highest rate that keeps it.
        tolerance: of the HPA controller; the target is below the last good value by it, so that the HPA
            acts before the objective is missed.
        headroom: what is left free besides, as a share, for load that grows while replicas start.
    """
    names = dict.fromkeys(name for level in levels for name in level.signals)
    judged = (_judge(name, levels, objective, limit, tolerance, headroom) for name in names)
    return tuple(sorted(judged, key=lambda each: each.score, reverse=True))


def _judge(
    name: str,
    levels: Sequence[Level],
    objective: Objective,
    limit: Limit,
    tolerance: float,
    headroom: float,
) -> SignalJudgement:
    points = signal_points(name, levels)
    if len(points) < 2:
        return SignalJudgement(
            name, Fitness.ABSENT, "it had no value at most levels", points=points
        )
    at_limit = value_at(points, limit.rate)
    interval = (value_at(points, limit.low), value_at(points, limit.high))
    separates = _separation(name, levels, objective)
    half, most = value_at(points, limit.rate / 2), max(value for _, value in points)
    full = f"it is at {half:.4g} of {most:.4g} at half the limit already: it can't tell more load from less"
    fitness, why = Fitness.GOOD, "it rises with the load up to the limit and beyond"
    if at_limit <= 0 or at_limit < _RISES * value_at(points, limit.rate / 4):
        fitness = Fitness.FLAT
        why = f"it hardly changes: {half:.4g} at half the limit, {at_limit:.4g} at it"
        if half >= _FULL * most > 0:
            fitness = Fitness.SATURATED
            why = full
    elif half >= _FULL * most:
        fitness = Fitness.SATURATED
        why = full
    elif separates is not None and separates < _SEPARATES:
        fitness = Fitness.FLAT
        why = f"only in {100 * separates:.0f} % of cases it is higher when the objective is missed"
    elif half < 0.2 * at_limit:
        fitness = Fitness.STEEP
        why = (
            f"it is {half:.4g} at half the limit and {at_limit:.4g} at it: an HPA, which "
            f"expects twice the value "
            "from twice the load, asks for too many replicas"
        )
    is_usable = fitness in {Fitness.GOOD, Fitness.STEEP}
    target = interval[0] / (1 + tolerance) * (1 - headroom) if is_usable else None
    return SignalJudgement(
        name,
        fitness,
        why,
        at_limit,
        interval,
        target if target and target > 0 else None,
        separates,
        points,
    )


def signal_points(name: str, levels: Sequence[Level]) -> tuple[tuple[float, float], ...]:
    """Return (rate, mean value) of a signal, rates ascending."""
    return tuple(
        sorted(
            (level.rate, sum(values) / len(values))
            for level in levels
            if (values := level.signals.get(name))
        )
    )


def value_at(points: Sequence[tuple[float, float]], rate: float) -> float:
    """Return a signal's value at a rate, from a monotone fit with linear interpolation.

    Below the first rate it goes to zero in proportion; beyond the last one it stays.
    """
    smooth = _rising(points)
    first_rate, first = smooth[0]
    if rate <= first_rate:
        return first * rate / first_rate
    for (low_rate, low), (high_rate, high) in pairwise(smooth):
        if rate <= high_rate:
            part = (rate - low_rate) / (high_rate - low_rate) if high_rate > low_rate else 1.0
            return low + (high - low) * part
    return smooth[-1][1]


def _rising(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the nearest non-decreasing values (pool adjacent violators)."""
    pools: list[list[float]] = []  # sum, count
    for _, value in points:
        pools.append([value, 1.0])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, count = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += count
    values = [total / count for total, count in pools for _ in range(int(count))]
    return [(rate, value) for (rate, _), value in zip(points, values, strict=True)]


def _separation(name: str, levels: Sequence[Level], objective: Objective) -> float | None:
    """Return the share of pairs of good and bad levels in which the bad one's value is higher."""
    good: list[tuple[float, float]] = []
    bad: list[tuple[float, float]] = []
    for level in levels:
        if values := level.signals.get(name):
            group = good if level.keeps(objective) else bad
            group.append((level.rate, sum(values) / len(values)))
    pairs = [
        (low, high)
        for good_rate, low in good
        for bad_rate, high in bad
        if bad_rate >= _APART * good_rate
    ]
    if not pairs:
        return None
    return sum((low < high) + 0.5 * (low == high) for low, high in pairs) / len(pairs)
