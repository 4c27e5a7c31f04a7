"""The results of a ramp: knee, limit, signals, target, and doubts."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.load.calibrate.fitting import Fit, disturbed_level, fit_queue
from gpuscale.load.calibrate.knee import Curve, Limit, Point
from gpuscale.load.calibrate.levels import (
    OWN_SIGNALS,
    Baseline,
    Level,
    Objective,
    ObjectiveCrossing,
    measured_limit,
)
from gpuscale.load.calibrate.ramp import Done
from gpuscale.load.calibrate.signals import SignalJudgement, judge_signals, value_at

_POOR = 0.3
"""A typical difference from which on no queue explains what was measured."""
_OFF = 0.2
_DRIFT = 1.3
_MOST_DISTURBED = 0.25
"""Part of the levels; where more are, it is the service that is not the same all the time."""


@dataclass(frozen=True, slots=True)
class Measurements:
    """All measurements of a calibration."""

    objective: Objective
    baseline: Baseline
    levels: tuple[Level, ...]
    end: Done
    after: Baseline | None = None
    """The service without load, once more in the end."""

    @property
    def usable(self) -> tuple[Level, ...]:
        """Return the levels at which the generator was on time."""
        return tuple(
            each
            for each in self.levels
            if not each.is_late(self.objective) and each.measured_s >= 1
        )


@dataclass(frozen=True, slots=True)
class Analysis:
    """The conclusions from measurements."""

    fit: Fit | None
    """None where no queue explains the levels, so that nothing is predicted by one that doesn't."""
    curve: Curve | None
    knee: Point | None
    limit: Limit | None
    """None where no rate keeps the objective, levels contradict each other, or too little was measured."""
    is_modelled: bool
    """Whether the limit is the queue's; otherwise it is between two levels."""
    is_bounded: bool = True
    """Whether a level missed the objective; otherwise the limit is at least that."""
    signals: tuple[SignalJudgement, ...] = ()
    disturbed: tuple[Level, ...] = ()
    """Levels that something beside their load made slow; nothing here follows from them."""
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> SignalJudgement | None:
        """Return the best signal for scaling; one of the load itself only if no other is suitable."""
        usable = [each for each in self.signals if each.target is not None]
        others = [each for each in usable if each.name not in OWN_SIGNALS]
        return next(iter(others or usable), None)

    @property
    def target_rate(self) -> float | None:
        """Return the rate at which a replica reaches the best signal's target; None without one."""
        best = self.best
        if best is None or best.target is None or self.limit is None:
            return None
        low, high = 0.0, self.limit.low
        for _ in range(40):
            middle = (low + high) / 2
            is_below = value_at(best.points, middle) < best.target
            low, high = (middle, high) if is_below else (low, middle)
        return high


def analyse(measured: Measurements, headroom: float = 0.0) -> Analysis:
    """Return the conclusions from the measured levels.

    Args:
        measured: the levels.
        headroom: share of the signal that the target leaves free besides the HPA's tolerance.
    """
    usable, objective = measured.usable, measured.objective
    notes = list(_notes(measured))
    fit, disturbed = _fitted(usable, measured.baseline)
    usable = tuple(each for each in usable if each not in disturbed)
    if disturbed:
        rates = ", ".join(f"{each.rate:.4g}" for each in disturbed)
        notes.append(
            f"at {rates} requests/s answers took far longer than at a higher rate: something beside the "
            "load held up the service or the machine for a moment; left out"
        )
    found = measured_limit(usable, objective)
    missed = found.missed
    curve = limit = None
    if fit is not None:
        curve = Curve(fit)
        limit = curve.limit(objective) if missed is not None else None
        if why := _unexplained(fit, limit, found):
            notes.append(why)
            fit = curve = limit = None
    is_modelled = limit is not None
    if limit is None:
        limit = _between(found)
        if found.against:
            notes.append(_contradicted(found, objective))
    knee = curve.knee() if curve is not None else None
    signals = () if limit is None else judge_signals(usable, objective, limit, headroom=headroom)
    return Analysis(
        fit, curve, knee, limit, is_modelled, missed is not None, signals, disturbed, tuple(notes)
    )


def _fitted(levels: tuple[Level, ...], baseline: Baseline) -> tuple[Fit | None, tuple[Level, ...]]:
    """Return the queue that explains the levels, and the levels that were excluded as disturbed."""
    most = int(_MOST_DISTURBED * len(levels))
    left_out: tuple[Level, ...] = ()
    fit = fit_queue(levels, baseline)
    while fit is not None and (found := disturbed_level(fit)) is not None:
        left_out = (*left_out, found)
        if len(left_out) > most:
            return fit_queue(levels, baseline), ()
        fit = fit_queue([each for each in levels if each not in left_out], baseline)
    return fit, left_out


def _unexplained(fit: Fit, limit: Limit | None, found: ObjectiveCrossing) -> str:
    """Return why the best-fitting queue does not describe the service; empty if it may."""
    if fit.difference > _POOR:
        return (
            f"no queue explains the latencies: the nearest ({fit.queue.words}) differs from them by "
            f"{100 * fit.difference:.0f} %, expected at most {100 * _POOR:.0f} %; other work on the machine, "
            "or a service that changes: find it, hold levels longer (--hold), and calibrate again"
        )
    if found.missed is None:
        return ""
    low, high = found.kept * (1 - _OFF), found.missed * (1 + _OFF)
    if limit is not None and low <= limit.rate <= high:
        return ""
    rate = "none" if limit is None else f"{limit.rate:.4g} requests/s"
    return (
        f"no queue explains the limit: by the nearest ({fit.queue.words}) it is {rate}, and by the levels "
        f"between {found.kept:.4g} and {found.missed:.4g}: hold levels longer (--hold), and calibrate again"
    )


def _contradicted(found: ObjectiveCrossing, objective: Objective) -> str:
    levels = ", ".join(
        f"{'kept' if each.keeps(objective) else 'missed'} at {each.rate:.4g}"
        for each in found.against
    )
    border = "any measured rate" if found.missed is None else f"{found.missed:.4g} requests/s"
    return (
        f"levels contradict each other: the objective was {levels} requests/s, expected to be kept below "
        f"{border} and missed from there on; it isn't the load alone that decides: find other work on the "
        "machine, hold levels longer (--hold), and calibrate again"
    )


def _between(found: ObjectiveCrossing) -> Limit | None:
    """Return the highest rate that kept the objective; None if levels contradict each other."""
    kept = found.kept
    if not kept or found.against:
        return None
    return Limit(kept, kept, kept if found.missed is None else found.missed, 0.0)


def _notes(measured: Measurements) -> Sequence[str]:
    notes = []
    late = [each for each in measured.levels if each.is_late(measured.objective)]
    if late:
        rates = ", ".join(f"{each.rate:.4g}" for each in late)
        notes.append(
            f"the generator itself was late at {rates} requests/s (p99 up to "
            f"{max(each.late_ms for each in late):.3g} ms); "
            "these levels are left out"
        )
    if measured.after is not None:
        before, after = measured.baseline.percentile_ms(50), measured.after.percentile_ms(50)
        if after > _DRIFT * before + 1:
            notes.append(
                f"the service has become slower meanwhile: without load it took {before:.4g} ms "
                f"before and {after:.4g} ms "
                "after the ramp; find out why (heat, memory, a neighbour), and calibrate again"
            )
        elif after < before / _DRIFT - 1:
            notes.append(
                f"the service has become quicker meanwhile: without load it took {before:.4g} "
                f"ms before and {after:.4g} ms "
                "after the ramp; it wasn't warm, or caches answers: calibrate again"
            )
    spread = measured.baseline.percentile_ms(95) / measured.baseline.percentile_ms(5)
    if spread > 20:
        notes.append(
            f"single requests take from {measured.baseline.percentile_ms(5):.3g} to "
            f"{measured.baseline.percentile_ms(95):.4g} ms: "
            "some may be answered from a cache"
        )
    return notes
