"""Kubernetes Events of triggers whose source went away or came back, where users look for them.

An Event is of the ScaledObject that the HPA of the workload belongs to, or of the HPA, or of the workload.
Few are written, and none without the right to.
"""

import asyncio
import logging

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.words import rfc3339
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import ApiStatusError, JsonObject, KubeClient
from gpuscale.server.metricsapi.triggers.turns import RateBudget
from gpuscale.server.metricsapi.triggers.watch import AnswerChange
from gpuscale.triggers import Trigger, WorkloadRef

_LOG = logging.getLogger(__name__)
_MAX_WAITING = 100
_PER_MINUTE = 30
_PAUSE_S = 60.0
"""Between two Events of one trigger."""
_MAX_PAUSES = 10_000
_MAX_MESSAGE = 1000
_FORBIDDEN = 403
_REASONS = {
    "held": ("Warning", "TriggerHeld"),
    "fallback": ("Warning", "TriggerFallback"),
    "measured": ("Normal", "TriggerRecovered"),
}


class TriggerEvents:
    """Queues Events, which the task `run` writes.

    Args:
        client: of the API server.
        clock: dates them.
    """

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._waiting: asyncio.Queue[AnswerChange] = asyncio.Queue(_MAX_WAITING)
        self._not_before_ms: dict[Trigger, int] = {}
        self._budget = RateBudget(_PER_MINUTE / 60, clock.now_ms() / 1000)
        self._is_off = False
        self._written = 0

    def note(self, change: AnswerChange) -> None:
        """Queue an Event for a change of the answers' basis; a first answer from measured data gets none."""
        before, answer = change.before, change.answer
        if self._is_off or before is None or before.basis == answer.basis:
            return
        if answer.basis not in _REASONS or change.trigger.workload is None:
            return
        now_ms = self._clock.now_ms()
        is_early = now_ms < self._not_before_ms.get(change.trigger, 0)
        if is_early or not self._budget.spend(1, now_ms / 1000) or self._waiting.full():
            return
        if len(self._not_before_ms) >= _MAX_PAUSES:
            self._not_before_ms.clear()
        if answer.basis != "measured":
            self._not_before_ms[change.trigger] = now_ms + round(_PAUSE_S * 1000)
        self._waiting.put_nowait(change)

    async def run(self) -> None:
        """Write queued Events until cancelled."""
        while True:
            change = await self._waiting.get()
            workload = change.trigger.workload
            if self._is_off or workload is None:
                continue
            try:
                await self._write(change, workload)
            except ApiStatusError as error:
                if error.code == _FORBIDDEN:
                    self._is_off = True
                    _LOG.info("no Events of triggers are written: %s", error)
                else:
                    _LOG.debug("an Event could not be written: %s", error)
            except GpuscaleError as error:
                _LOG.debug("an Event could not be written: %s", error)

    async def _write(self, change: AnswerChange, workload: WorkloadRef) -> None:
        namespace, answer = change.trigger.namespace, change.answer
        now_ms = self._clock.now_ms()
        at = rfc3339(now_ms / 1000)
        self._written += 1
        type_, reason = _REASONS[answer.basis]
        event: JsonObject = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"gpuscale-{workload.name[:200]}.{now_ms:x}{self._written:x}",
                "namespace": namespace,
            },
            "involvedObject": await self._object(namespace, workload),
            "type": type_,
            "reason": reason,
            "message": f"{change.trigger.name}: {answer.reason}"[:_MAX_MESSAGE],
            "source": {"component": "gpuscale"},
            "reportingComponent": "gpuscale",
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        await self._client.create(f"/api/v1/namespaces/{namespace}/events", event)

    async def _object(self, namespace: str, workload: WorkloadRef) -> JsonObject:
        """Return the object that the Event is about."""
        found: JsonObject = {
            "apiVersion": workload.api_version,
            "kind": workload.kind,
            "name": workload.name,
            "namespace": namespace,
        }
        path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        try:
            items = (await self._client.get(path)).get("items")
        except ApiStatusError:
            return found
        for item in map(mapping_of, items if isinstance(items, list) else ()):
            target = mapping_of(mapping_of(item.get("spec")).get("scaleTargetRef"))
            if (target.get("kind"), target.get("name")) != (workload.kind, workload.name):
                continue
            metadata = mapping_of(item.get("metadata"))
            owners = metadata.get("ownerReferences")
            for owner in map(mapping_of, owners if isinstance(owners, list) else ()):
                if owner.get("kind") == "ScaledObject":
                    return {**found, **_reference(text_of(owner.get("apiVersion")), owner)}
            kind = {"kind": "HorizontalPodAutoscaler", **metadata}
            return {**found, **_reference("autoscaling/v2", kind)}
        return found


def _reference(api_version: str, found: object) -> JsonObject:
    fields = mapping_of(found)
    texts = {key: text_of(fields.get(key)) for key in ("kind", "name", "uid")}
    return {"apiVersion": api_version, **texts}
