"""The duration of scale-outs: from the rise in load to the decision, and to ready pods.

A decision alone serves no request. What users wait for is the time until as many pods are ready as the HPA
asked for, so the two are kept apart here.
"""

from collections import deque
from dataclasses import dataclass, field

MAX_KEPT = 100_000
"""Older rises and scale-outs are forgotten; a run of weeks stays bounded."""

HOPS = (
    "reading",
    "scrape",
    "HPA sync",
    "pod created",
    "node asked for",
    "node ready",
    "scheduled",
    "container started",
    "all ready",
)
"""Of a scale-out, by what each ends with."""


@dataclass(frozen=True, slots=True)
class PodPath:
    """The way of a pod from its creation to its readiness; of a scale-out, of its last pod."""

    created_ms: int
    ordered_ms: int | None
    """When a node was asked for that it waited for; None where there was room."""
    usable_ms: int | None
    """When that node's GPUs could be scheduled on."""
    bound_ms: int | None
    started_ms: int | None
    """When its container started, after the pull of the image."""


@dataclass(slots=True, eq=False)
class ScaleOut:
    """An increase of a Deployment's replicas."""

    before: int
    after: int
    """Replicas."""
    decided_ms: int
    load_ms: int | None
    """When the load jumped that led to it; None where it moved smoothly."""
    ready_ms: int | None = None
    """When that many pods were ready; None until then, and for good if a scale-in comes first."""
    deployment: str = ""
    is_first: bool = False
    """Whether it is the first that the rise of the load led to."""
    seen_ms: int | None = None
    """When the value was measured that was decided on; None where nobody says."""
    scraped_ms: int | None = None
    """When agents were scraped last before the decision; None where nobody says."""
    path: PodPath | None = None

    def hops(self) -> list[tuple[str, int, int]]:
        """Return its hops, each with its start and end, one after the other; none until it is ready.

        They begin with the rise of the load if it is the first that the rise led to, else with the reading.
        """
        if self.path is None or self.ready_ms is None:
            return []
        path = self.path
        ends = (
            self.load_ms if self.is_first else None,
            self.seen_ms,
            self.scraped_ms,
            self.decided_ms,
            path.created_ms,
            path.ordered_ms,
            path.usable_ms,
            path.bound_ms,
            path.started_ms,
            self.ready_ms,
        )
        found: list[tuple[str, int, int]] = []
        at_ms: int | None = None
        for name, end_ms in zip(("", *HOPS), ends, strict=True):
            # What was there before, such as a scrape before the reading, is no hop of this one.
            if end_ms is None or (at_ms is not None and end_ms < at_ms):
                continue
            if at_ms is not None:
                found.append((name, at_ms, end_ms))
            at_ms = end_ms
        return found


@dataclass(slots=True, eq=False)
class LoadRise:
    """A rise of a Deployment's load, with the scale-outs it caused.

    Those up to the next rise or scale-in belong to it. A fall of the load ends nothing: pods that come
    only after a spike are what the spike led to.
    """

    at_ms: int
    scale_outs: list[ScaleOut] = field(default_factory=list)

    @property
    def to_decision_ms(self) -> int | None:
        """Return the time from the rise to the first scale-out; None if none followed."""
        return self.scale_outs[0].decided_ms - self.at_ms if self.scale_outs else None

    @property
    def to_ready_ms(self) -> int | None:
        """Return the time from the rise until the largest size was ready; None if it never was."""
        ready_ms = self.scale_outs[-1].ready_ms if self.scale_outs else None
        return None if ready_ms is None else ready_ms - self.at_ms


class ScaleOuts:
    """The rises of load and the scale-outs of a run, in order."""

    def __init__(self) -> None:
        self.rises: deque[LoadRise] = deque(maxlen=MAX_KEPT)
        self.all: deque[ScaleOut] = deque(maxlen=MAX_KEPT)
        self.seen_ms: int | None = None
        """When the values of the sync under way were measured."""
        self.scraped_ms: int | None = None
        """When agents were scraped last."""
        self._current: dict[str, LoadRise] = {}
        """Deployment to the rise that its next scale-out belongs to."""
        self._awaited: dict[str, list[ScaleOut]] = {}
        """Deployment to the scale-outs whose pods are not all ready."""

    def load_changed(self, deployment: str, before: float, after: float, now_ms: int) -> None:
        if after > before:
            self._current[deployment] = LoadRise(now_ms)
            self.rises.append(self._current[deployment])

    def resized(self, deployment: str, before: int, after: int, now_ms: int) -> None:
        """Record a change of a Deployment's replicas."""
        if after > before:
            rise = self._current.get(deployment)
            scale_out = ScaleOut(before, after, now_ms, rise.at_ms if rise else None)
            scale_out.deployment = deployment
            scale_out.is_first = rise is not None and not rise.scale_outs
            scale_out.seen_ms, scale_out.scraped_ms = self.seen_ms, self.scraped_ms
            self.all.append(scale_out)
            self._awaited.setdefault(deployment, []).append(scale_out)
            if rise is not None:
                rise.scale_outs.append(scale_out)
        elif after < before:
            self._current.pop(deployment, None)
            waiting = self._awaited.pop(deployment, [])
            self._awaited[deployment] = [each for each in waiting if each.after <= after]

    def pods_ready(self, deployment: str, count: int, now_ms: int) -> tuple[ScaleOut, ...]:
        """Record a Deployment's number of ready pods; return the scale-outs that this completes."""
        waiting = self._awaited.get(deployment, [])
        done = tuple(each for each in waiting if each.after <= count)
        for scale_out in done:
            scale_out.ready_ms = now_ms
        if done:
            self._awaited[deployment] = [each for each in waiting if each.after > count]
        return done

    def awaited(self) -> tuple[str, ...]:
        """Return the Deployments with unfinished scale-outs."""
        return tuple(key for key, waiting in self._awaited.items() if waiting)
