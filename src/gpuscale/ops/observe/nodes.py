"""Whether nodes come for the pods of an HPA that wait for one: `gpuscale doctor`'s verdicts."""

import asyncio
from collections.abc import Mapping, Sequence

from gpuscale.base.clock import Clock
from gpuscale.base.objects.fields import Fields
from gpuscale.base.words import counted
from gpuscale.hpa.cluster.verdicts import Outlook, Reason, Verdict, Why
from gpuscale.kube import fields_of
from gpuscale.kube.client import KubeClient
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.gather import Gatherer, GatherSettings
from gpuscale.ops.doctor.node_pools import verdict_of
from gpuscale.ops.doctor.snapshot import Snapshot

_ASKED = ("nodepools", "autoscaler-status", "events")
"""Without any of these, that no pool is known says nothing."""
_MOST_REASONS = 3


class NodeOutlook:
    """Says whether nodes come; what several HPAs need is read once, and only where a pod waits.

    Args:
        client: to the API server.
        clock: for ages.
    """

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._gatherer = Gatherer(client, clock, GatherSettings())
        self._seen: asyncio.Future[Snapshot] | None = None

    async def of(self, pods: Sequence[Mapping[str, object]]) -> tuple[str, ...]:
        """Return a sentence for pods that wait for a node for the same reason; none if no pod waits."""
        waiting = [
            pod
            for pod in (fields_of(dict(each)) for each in pods)
            if facts.condition(pod, "PodScheduled") == "False" and not facts.is_gated(pod)
        ]
        if not waiting:
            return ()
        if self._seen is None:  # all looks share one
            self._seen = asyncio.ensure_future(self._gatherer.capacity())
        snapshot = await self._seen
        told: dict[str, list[Fields]] = {}
        for pod in waiting:
            told.setdefault(_said(snapshot, pod), []).append(pod)
        return tuple(
            f"{counted(len(of_it), 'pod')} {'waits' if len(of_it) == 1 else 'wait'} for a node, such as "
            f"{facts.name(of_it[0])}: {said}."
            for said, of_it in told.items()
        )


def _said(snapshot: Snapshot, pod: Fields) -> str:
    verdict = verdict_of(snapshot, pod)
    hidden = [each for each in _ASKED if snapshot.hides(each)]
    if verdict.outlook is Outlook.UNKNOWN and hidden:
        return f"whether one comes can't be seen, as {', '.join(hidden)} may not be read"
    said = facts.why_waiting(pod).rstrip(".")
    return verdict.outlook.value + (_why(verdict) or (f": {said}" if said else ""))


def _why(verdict: Verdict) -> str:
    if verdict.node is not None:
        return f", {verdict.node.name}"
    if verdict.pools:
        return f", of {', '.join(verdict.pools)}"
    reasons = [": ".join(filter(None, (each.pool, _words(each)))) for each in verdict.reasons]
    more = f"; and {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else ""
    return f": {'; '.join(reasons[:_MOST_REASONS])}{more}" if reasons else ""


def _words(reason: Reason) -> str:
    """Return the autoscaler's words, or the fact that shows it."""
    wanted, has = ", ".join(reason.wanted), ", ".join(reason.has)
    if reason.text:
        return reason.text
    match reason.why:
        case Why.TAINT:
            return f"its taint {has} is not tolerated"
        case Why.LABEL:
            return f"its nodes don't have {reason.key}={wanted}"
        case Why.TOO_LARGE:
            return f"a node of it has at most {has} {reason.key}, and the pod asks for {wanted}"
        case Why.NO_CLASS:
            return f"there is no DeviceClass {reason.key}"
        case Why.NO_DEVICE:
            return f"no device matches {wanted or 'its claim'}"
        case _:
            return reason.why.name.lower().replace("_", " ")
