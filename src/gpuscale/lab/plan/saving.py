"""What other settings would save in a month, how sure that is, and why today's pods are idle."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy

from gpuscale.lab.plan.comparing import ReplayedWorkload, Split
from gpuscale.lab.plan.score import short_share
from gpuscale.lab.plan.tuning.contender import Contender
from gpuscale.lab.plan.tuning.search import DAY_S
from gpuscale.triggers.policies import Numbers, Replayed

MONTH_HOURS = 730.0
"""As clouds count it: 365 * 24 / 12."""
_DRAWS = 2_000
_INTERVAL = (0.05, 0.95)


@dataclass(frozen=True, slots=True)
class Saving:
    """Figures of the days that were held back, as GPU-hours of a month."""

    days: int
    today: float
    """That are paid for with today's settings."""
    saved: float
    """By the tuned ones; below 0 where they cost more, because today's break the promise."""
    interval: tuple[float, float] | None
    """In which `saved` is in 90 of 100 draws of such days; None where there are fewer than three."""
    short_today: float
    """Share of the steps in which demand exceeds the ready pods."""
    short: float
    """The same with the tuned settings."""
    used: float
    """Of `today`."""
    idle: Mapping[str, float]
    """The rest of `today`, by why: `minimum`, `margin`, `scale-in`, `start-up`, `packing`."""


def saving_of_values(
    workload: ReplayedWorkload, split: Split, contender: Contender, values: Numbers, target: float
) -> Saving:
    """Return what settings save on the scored days.

    Args:
        workload: with its demand.
        split: of its days.
        contender: with today's settings.
        values: the others.
        target: today's, as a share of a fully busy pod.
    """
    first, gpus = split.first_scored, workload.nodes.gpus_per_replica
    before, after = (
        contender.replay(each, workload.demand, workload.service)
        for each in (contender.today, values)
    )
    step_hours = gpus * workload.service.step_s / 3600
    per_step = (before.replicas - after.replicas)[first:] * step_hours
    hours = len(per_step) * workload.service.step_s / 3600
    month = MONTH_HOURS / hours
    used, idle = _idle(before, first, target)
    return Saving(
        days=round(hours / 24),
        today=float(before.replicas[first:].sum()) * step_hours * month,
        saved=float(per_step.sum()) * month,
        interval=month_interval(per_step, round(DAY_S / workload.service.step_s)),
        short_today=short_share(before, first),
        short=short_share(after, first),
        used=used * step_hours * month,
        idle={why: steps * step_hours * month for why, steps in idle.items()},
    )


def month_interval(per_step: Numbers, per_day: int) -> tuple[float, float] | None:
    """Return where a month's sum lies in 90 of 100 draws; None for fewer than three days.

    This is a block bootstrap: whole days are drawn with replacement, since hours of a day are alike.

    Args:
        per_step: hours at each step.
        per_day: steps.
    """
    days = len(per_step) // per_day
    if days < 3:
        return None
    by_day = per_step[len(per_step) - days * per_day :].reshape(days, per_day).sum(axis=1)
    drawn = numpy.random.default_rng(1).integers(0, days, (_DRAWS, days))
    least, most = numpy.quantile(by_day[drawn].mean(axis=1), _INTERVAL) * MONTH_HOURS / 24
    return float(least), float(most)


def _idle(replayed: Replayed, first: int, target: float) -> tuple[float, dict[str, float]]:
    """Return the pod-steps that were used, and the others by why they were paid for.

    Pods are counted from the first on: those that work, the rest of the last of them, those that minReplicas
    keeps, those that the target asks for beyond that, those that are still there since demand was higher.
    """
    demand, ready, paid = (
        each[first:] for each in (replayed.demand, replayed.ready, replayed.replicas)
    )
    used = numpy.minimum(demand, ready)
    whole = numpy.minimum(numpy.ceil(demand - 1e-9), ready)
    kept = numpy.maximum(whole, numpy.minimum(replayed.service.least, ready))
    asked = numpy.maximum(kept, numpy.minimum(numpy.ceil(demand / target - 1e-9), ready))
    return float(used.sum()), {
        "minimum": float((kept - whole).sum()),
        "margin": float((asked - kept).sum()),
        "scale-in": float((ready - asked).sum()),
        "start-up": float((paid - ready).sum()),
        "packing": float((whole - used).sum()),
    }
