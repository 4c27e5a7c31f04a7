"""Whether a metric can exceed its target far enough to add replicas, and up to which count."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gpuscale.base.findings import Checks, Severity
from gpuscale.ops.lint.findings import LintFinding, Place
from gpuscale.signals import SIGNALS
from gpuscale.triggers import Trigger

REACH_CHECKS = Checks()
UNREACHABLE_TARGET = REACH_CHECKS.add(
    "unreachable-target",
    Severity.WARNING,
    "A target that the metric can't get far enough above.",
    "Choose a target below what the metric can be.",
)
CAPPED_REPLICAS = REACH_CHECKS.add(
    "capped-replicas",
    Severity.WARNING,
    "A target with which the metric can't ask for `maxReplicas`.",
    "Use type: Value, which multiplies the count, or a Pods metric.",
)


@dataclass(frozen=True, slots=True)
class Aim:
    """A metric's highest possible value, and its target."""

    place: Place
    """Of the target."""
    high: float
    """The highest value that the metric can have, above 0."""
    target: float
    """Above 0."""
    is_divided: bool
    """Whether the count is value / target, whatever it is now; otherwise it is multiplied by that ratio."""
    least: int
    """The lowest count from which there is something to divide, at least 1."""
    most: int
    """The highest count that is allowed."""
    tolerance: float
    """How far above the target, as a ratio, a value still counts as the target."""
    evidence: str
    way_out: str
    """What to do where value / target can't get to the highest count."""


def reach_findings(aim: Aim) -> Iterator[LintFinding]:
    """Return a finding if a metric can't exceed its target far enough."""
    if not math.isfinite(aim.target) or not math.isfinite(aim.high / aim.target):
        return
    start = aim.least if aim.is_divided else 1
    if aim.high / (aim.target * start) <= 1 + aim.tolerance:
        yield _unreachable(aim, start)
    elif aim.is_divided and (most := math.ceil(aim.high / aim.target)) < aim.most:
        yield CAPPED_REPLICAS.found(
            aim.place,
            f"The metric never asks for more than {most} replicas: it is at most {aim.high:g}, and an "
            f"averageValue target asks for value / {aim.target:g}, whatever the count is now.",
            aim.evidence,
            aim.way_out,
        )


def _unreachable(aim: Aim, start: int) -> LintFinding:
    high, target = aim.high, aim.target
    each = f" over {start} replicas" if start > 1 else ""
    if target * start > high:
        what = f"The metric never gets to the target of {target:g}{each}: it is at most {high:g}."
    else:
        what = (
            f"The HPA never scales up: the metric is at most {high:g}, and {high:g} / "
            f"{target * start:g} = {high / (target * start):.3g} is within the tolerance, "
            f"{1 + aim.tolerance:g}."
        )
    fix = f"Choose a target below {high / (1 + aim.tolerance) / start:.3g}."
    return UNREACHABLE_TARGET.found(aim.place, what, aim.evidence, fix)


_HIGHEST = {"%": 100.0, "ratio": 1.0}


def signal_findings(
    trigger: Trigger, place: Place, most: int, tolerance: float
) -> Iterator[LintFinding]:
    """Return a finding if a trigger's signal can't exceed its target far enough.

    Args:
        trigger: its value is a total of the pods, so that the target is one pod's.
        place: of the target.
        most: replicas.
        tolerance: of the HPA.
    """
    load = trigger.load
    if load is None or load.aggregation == "sum":
        return
    for name, signal in SIGNALS.items():
        high = _HIGHEST.get(signal.unit)
        if signal.metric != load.metric or high is None or signal.is_sum:
            continue
        yield from reach_findings(
            Aim(
                place=place,
                high=high,
                target=trigger.target,
                is_divided=False,
                least=1,
                most=most,
                tolerance=tolerance,
                evidence=f"{name} of a pod is {'a percentage' if high > 1 else 'a ratio'}",
                way_out="",
            )
        )
