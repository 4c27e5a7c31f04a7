"""The next rate to measure: growing until the objective is missed, then closing in on the limit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.load.calibrate.levels import Baseline, Level, Objective, measured_limit

_CLOSE = 1.12
"""Ratio of the lowest missed to the highest kept rate at which closing in ends."""
_AROUND = (0.8, 0.92, 0.65)
"""Parts of the limit that are measured in the end: what the fit and the target need."""
_SAME = 0.06
"""Rates that differ by less are one."""
_MOST_LATE = 3
_SURE = 0.15
"""An interval of the limit, as a part of it, that is narrow enough."""
_NARROWING = (0.95, 1.05, 0.85, 1.0)


@dataclass(frozen=True, slots=True)
class RampSettings:
    """The settings and limits of the ramp."""

    objective: Objective
    first_rate: float | None = None
    """None: a quarter of what one request after the other gives."""
    growth: float = 1.6
    max_rate: float = 10_000.0
    max_levels: int = 24
    hold_s: float = 20.0
    """Measured time of a level at most; with many requests a second it is shorter."""
    min_hold_s: float = 3.0
    requests: int = 4_000
    """As many in a level are enough."""

    def hold(self, rate: float) -> tuple[float, float]:
        """Return a level's warm-up and total length, in seconds."""
        measured = max(self.min_hold_s, min(self.hold_s, self.requests / rate))
        measured = float(math.ceil(measured))
        return max(1.0, round(measured / 4)), measured + max(1.0, round(measured / 4))


@dataclass(frozen=True, slots=True)
class Next:
    """A level to measure."""

    rate: float
    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """The end of the ramp."""

    why: str
    is_whole: bool = True
    """Whether the limit lies between rates that were measured."""


def next_level(levels: Sequence[Level], baseline: Baseline, settings: RampSettings) -> Next | Done:
    """Return the next level, or the end.

    Args:
        levels: what was measured, in its order, late ones included.
        baseline: the service without load.
        settings: how far.
    """
    objective = settings.objective
    if baseline.is_late(objective):
        return Done(_too_busy("at single requests", baseline.late_ms, objective), is_whole=False)
    if baseline.percentile_ms(objective.percentile) > objective.limit_ms:
        alone_ms = baseline.percentile_ms(objective.percentile)
        return Done(
            f"without load p{objective.percentile:g} is {alone_ms:.4g} ms already, so no rate keeps "
            f"{objective.limit_ms:g} ms",
            is_whole=False,
        )
    if (end := _ended(levels, settings)) is not None:
        return end
    good = [each for each in levels if not each.is_late(objective)]
    if not good:
        first = settings.first_rate or 250 / baseline.mean_ms
        rate = min(first, settings.max_rate)
        return Next(rate, "first" if not levels else "again")
    found = measured_limit(good, objective)
    for each in found.against:
        if sum(abs(other.rate / each.rate - 1) < _SAME for other in good) == 1:
            return Next(each.rate, "again, as other levels say otherwise")
    kept, missed = found.kept, found.missed
    if missed is None:
        return _upwards(levels, kept, settings)
    if not kept:
        if missed * baseline.mean_ms / 1000 < 0.01:
            return Done(
                f"p{objective.percentile:g} is above {objective.limit_ms:g} ms at any rate",
                is_whole=False,
            )
        return Next(missed / 2.5, "down")
    if missed / kept > _CLOSE:
        return Next(math.sqrt(missed * kept), "closing in")
    limit = math.sqrt(missed * kept)
    for part in _AROUND:
        rate = part * limit
        if not any(abs(each.rate / rate - 1) < _SAME for each in good):
            return Next(rate, "around")
    return Done(f"the limit is between {kept:.4g} and {missed:.4g} requests/s")


def narrowing(levels: Sequence[Level], rate: float, low: float, high: float) -> Next | None:
    """Return one more level around an uncertain limit; None if it is certain enough.

    Args:
        levels: what was measured.
        rate: the limit.
        low: the limit is hardly below it.
        high: the limit is hardly above it.
    """
    if high - low <= _SURE * rate:
        return None
    near = sum(1 for each in levels if 0.7 * rate <= each.rate <= 1.2 * rate)
    return Next(_NARROWING[near % len(_NARROWING)] * rate, "narrowing")


def _ended(levels: Sequence[Level], settings: RampSettings) -> Done | None:
    objective = settings.objective
    if len(levels) >= settings.max_levels:
        return Done(f"{len(levels)} levels were measured", is_whole=False)
    if not levels:
        return None
    if not levels[-1].answered:
        kinds = ", ".join(f"{kind}: {count}" for kind, count in levels[-1].faults.items())
        return Done(
            f"at {levels[-1].rate:.4g} requests/s the service gave no good answer any more "
            f"({kinds or 'none at all'})",
            is_whole=False,
        )
    limited = levels[-1].faults.get("HTTP 429", 0)
    if limited > 0.01 * (levels[-1].answered + levels[-1].failed):
        return Done(
            f"at {levels[-1].rate:.4g} requests/s {limited} requests were answered 429: a rate "
            f"limiter stands before the "
            "service, and more load would measure that; raise its limit, or go past it",
            is_whole=False,
        )
    late = [each for each in levels[-_MOST_LATE:] if each.is_late(objective)]
    if len(late) == _MOST_LATE:
        where = f"at the last {_MOST_LATE} levels"
        return Done(_too_busy(where, late[-1].late_ms, objective), is_whole=False)
    return None


def _too_busy(where: str, late_ms: float, objective: Objective) -> str:
    return (
        f"the generator itself was late {where} (p99 {late_ms:.3g} ms, expected at "
        f"most {objective.most_late_ms:.3g} ms): this machine is too busy to measure the "
        f"service; use another"
    )


def _upwards(levels: Sequence[Level], kept: float, settings: RampSettings) -> Next | Done:
    if kept >= 0.999 * settings.max_rate:
        return Done(
            f"the objective is kept at {kept:.4g} requests/s, and more was not allowed: see --max-rate",
            is_whole=False,
        )
    if levels[-1].is_late(settings.objective):
        return Next(math.sqrt(kept * levels[-1].rate), "again, slower")
    return Next(min(kept * settings.growth, settings.max_rate), "growing")
