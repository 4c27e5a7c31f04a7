"""What a cluster's HPAs would do now and why, in the words of `decide`."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.hpa import Decision
from gpuscale.hpa.controller import deciding_metric
from gpuscale.hpa.decisions import (
    DecisionRequest,
    answer,
    decide_request,
    decision_notes,
    oldest_age_s,
)
from gpuscale.kube.client import KubeClient
from gpuscale.ops.doctor.direct import at_once
from gpuscale.ops.observe import read_request

MOST_AT_ONCE = 20
"""HPAs that one round asks for; each takes some five requests. Those asked longest ago come first."""
_FRESH_MS = 15_000
"""The HPA controller's own period: sooner, nothing new can be said."""


@dataclass(frozen=True, slots=True)
class Explained:
    """An HPA's next decision."""

    desired: int | None
    """None where the controller can't decide."""
    conditions: Sequence[object]
    explanation: Sequence[str]
    value_age_s: float | None
    """Of the oldest value that the deciding metric's source gave; None where it says no time."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """What an HPA did."""

    before: int
    """Replicas."""
    why: Sequence[str]


@dataclass(slots=True)
class _Known:
    at_ms: int
    request: DecisionRequest | None = None
    earlier: DecisionRequest | None = None
    """The last one with another number of replicas."""
    explained: Explained | None = None


class Decider:
    """Asks a cluster for what its HPAs see, and remembers it.

    Args:
        client: to the API server.
        clock: for ages.
    """

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._known: dict[tuple[str, str], _Known] = {}
        self._asked = asyncio.Lock()

    async def look(self, hpas: Mapping[tuple[str, str], int]) -> None:
        """Decide HPAs again: first those whose replicas changed, then those decided longest ago.

        Args:
            hpas: namespace and name to the replicas that each wants.
        """
        self._known = {each: known for each, known in self._known.items() if each in hpas}
        due_ms = self._clock.now_ms() - _FRESH_MS
        decided = {each: self._decided_ms(each, wanted) for each, wanted in hpas.items()}
        due = sorted((each for each in hpas if decided[each] <= due_ms), key=lambda e: decided[e])
        await at_once(self._decide(*each) for each in due[:MOST_AT_ONCE])

    def _decided_ms(self, hpa: tuple[str, str], wanted: int) -> int:
        """Return when an HPA was decided last; the beginning of time where that says no more."""
        known = self._known.get(hpa)
        if known is None or (known.request and known.request.scale.spec_replicas != wanted):
            return 0
        return known.at_ms

    async def request(self, namespace: str, name: str) -> DecisionRequest:
        """Return what an HPA sees, some seconds old at most.

        However many ask, one HPA is read at a time, and each once in some seconds.

        Raises:
            GpuscaleError: it can't be read.
        """
        async with self._asked:
            known = self._known.get((namespace, name))
            is_fresh = known is not None and self._clock.now_ms() - known.at_ms < _FRESH_MS
            if is_fresh and known is not None and known.request is not None:
                return known.request
            return await self._read(namespace, name)

    def explained(self, namespace: str, name: str) -> Explained | None:
        """Return what was decided last; None where it was not looked at yet."""
        known = self._known.get((namespace, name))
        return None if known is None else known.explained

    def why_scaled(self, namespace: str, name: str, replicas: int) -> Scaled | None:
        """Return how an HPA came to so many replicas; None where it was not looked at before."""
        known = self._known.get((namespace, name))
        if known is None or known.request is None:
            return None
        now, before = known.request, known.earlier
        if now.scale.spec_replicas != replicas:
            before = now
        return None if before is None else why_scaled(before, now, replicas)

    async def _decide(self, namespace: str, name: str) -> None:
        try:
            await self._read(namespace, name)
        except GpuscaleError as error:
            known = self._known.setdefault((namespace, name), _Known(0))
            known.explained = Explained(None, (), (str(error),), None)
            known.at_ms = self._clock.now_ms()

    async def _read(self, namespace: str, name: str) -> DecisionRequest:
        """Read what an HPA sees, and remember it with the decision."""
        request = await read_request(self._client, self._clock, namespace, name)
        known = self._known.setdefault((namespace, name), _Known(0))
        if known.request and known.request.scale.spec_replicas != request.scale.spec_replicas:
            known.earlier = known.request
        known.request = request
        known.explained = explain(request)
        known.at_ms = self._clock.now_ms()
        return request


def why_scaled(before: DecisionRequest, now: DecisionRequest, replicas: int) -> Scaled:
    """Return how the controller came to so many replicas.

    It decided between two looks. So the state before is decided with the values of then, and where that gives
    another count, with those of now. Where neither gives it, there are no words.
    """
    # Of the pods that there were: those of the new size are not ready, and would count as idle.
    later = replace(before, observations=now.observations)
    for request in (before, later):
        decision = decide_request(request)
        if decision.desired_replicas == replicas:
            return Scaled(before.scale.spec_replicas, _sentences(request, decision))
    return Scaled(before.scale.spec_replicas, ())


def explain(request: DecisionRequest) -> Explained:
    """Decide, and return the words."""
    decision = decide_request(request)
    said = answer(request, decision)
    conditions, desired = said["conditions"], said["desiredReplicas"]
    deciding = deciding_metric(decision.metrics)
    age_s = None if deciding is None else oldest_age_s(request.observations[deciding.index])
    return Explained(
        desired if isinstance(desired, int) else None,
        conditions if isinstance(conditions, list) else (),
        _sentences(request, decision),
        age_s,
    )


def _sentences(request: DecisionRequest, decision: Decision) -> Sequence[str]:
    notes = decision_notes(request, decision)
    return (
        *request.notes,
        *decision.explanation,
        *(f"{each.rule}: {each.effect} {each.remedy}" for each in notes),
        *request.nodes,
    )
