"""How long a scale-out took: from the load that caused it, over the decision, to pods that are ready.

A decision alone serves no request. What users wait for is the time until as many pods are ready as the HPA
asked for, so the two are kept apart here.
"""

from collections import deque
from dataclasses import dataclass, field

MAX_KEPT = 100_000
"""Older rises and scale-outs are forgotten; a run of weeks stays bounded."""


@dataclass(slots=True, eq=False)
class ScaleOut:
    """One time that a Deployment was made larger."""

    before: int
    after: int
    """Replicas."""
    decided_ms: int
    load_ms: int | None
    """When the load jumped that led to it; None where it moved smoothly."""
    ready_ms: int | None = None
    """When that many pods were ready; None until then, and for good if a scale-in comes first."""


@dataclass(slots=True, eq=False)
class LoadRise:
    """One jump of a Deployment's load upwards, and the scale-outs it led to.

    Those up to the next rise or scale-in belong to it. A fall of the load ends nothing: pods that come
    only after a spike are what the spike led to.
    """

    at_ms: int
    scale_outs: list[ScaleOut] = field(default_factory=list)

    @property
    def to_decision_ms(self) -> int | None:
        """Return the time from the load to the first scale-out; None where none followed."""
        return self.scale_outs[0].decided_ms - self.at_ms if self.scale_outs else None

    @property
    def to_ready_ms(self) -> int | None:
        """Return the time from the load until the last, largest size was ready; None where it never was."""
        ready_ms = self.scale_outs[-1].ready_ms if self.scale_outs else None
        return None if ready_ms is None else ready_ms - self.at_ms


class ScaleOuts:
    """The rises of load and the scale-outs of a run, in the order they came."""

    def __init__(self) -> None:
        self.rises: deque[LoadRise] = deque(maxlen=MAX_KEPT)
        self.all: deque[ScaleOut] = deque(maxlen=MAX_KEPT)
        self._current: dict[str, LoadRise] = {}
        """Deployment to the rise that its next scale-out belongs to."""
        self._awaited: dict[str, list[ScaleOut]] = {}
        """Deployment to the scale-outs whose pods are not all ready."""

    def load_changed(self, deployment: str, before: float, after: float, now_ms: int) -> None:
        if after > before:
            self._current[deployment] = LoadRise(now_ms)
            self.rises.append(self._current[deployment])

    def resized(self, deployment: str, before: int, after: int, now_ms: int) -> None:
        """Take in that a Deployment's replicas were set."""
        if after > before:
            rise = self._current.get(deployment)
            scale_out = ScaleOut(before, after, now_ms, rise.at_ms if rise else None)
            self.all.append(scale_out)
            self._awaited.setdefault(deployment, []).append(scale_out)
            if rise is not None:
                rise.scale_outs.append(scale_out)
        elif after < before:
            self._current.pop(deployment, None)
            waiting = self._awaited.pop(deployment, [])
            self._awaited[deployment] = [each for each in waiting if each.after <= after]

    def pods_ready(self, deployment: str, count: int, now_ms: int) -> tuple[ScaleOut, ...]:
        """Take in how many pods of a Deployment are ready; return the scale-outs that this completes."""
        waiting = self._awaited.get(deployment, [])
        done = tuple(each for each in waiting if each.after <= count)
        for scale_out in done:
            scale_out.ready_ms = now_ms
        if done:
            self._awaited[deployment] = [each for each in waiting if each.after > count]
        return done

    def awaited(self) -> tuple[str, ...]:
        """Return the Deployments that have scale-outs whose pods are not all ready."""
        return tuple(key for key, waiting in self._awaited.items() if waiting)
