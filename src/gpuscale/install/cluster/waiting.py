"""Waiting until what was applied works: workloads are rolled out, APIs are served."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gpuscale.core.clock import Clock
from gpuscale.core.errors import UnavailableError
from gpuscale.install.cluster.kinds import path_of, reference
from gpuscale.install.parts.common import Object
from gpuscale.kube.writing import WritingClient

_LOOK_S = 0.5
_REPEAT_S = 10.0
Tell = Callable[[str], None]


class Waiter:
    """Waits for objects, and tells every ten seconds what for.

    Args:
        client: to the API server.
        clock: of the waits.
        tell: gets a line when there is something to say.
        limit_s: until it is an error, for each wait.
    """

    def __init__(self, client: WritingClient, clock: Clock, tell: Tell, limit_s: float) -> None:
        self._client = client
        self._clock = clock
        self._tell = tell
        self._limit_s = limit_s

    async def until_works(self, body: Object) -> None:
        """Return once an object does what it is for; at once for kinds that need no time.

        Raises:
            UnavailableError: it did not within the limit; with what it said last.
        """
        look = _LOOKS.get(body["kind"])
        if look is None:
            return

        async def missing() -> str | None:
            found = await self._client.find(path_of(body))
            return "it is gone" if found is None else look(found)

        await self.until(str(reference(body)), missing)

    async def until(self, what: str, missing: Callable[[], Awaitable[str | None]]) -> None:
        """Return once nothing is missing.

        Raises:
            UnavailableError: it stayed so for the limit; with what was missing last.
        """
        start_ms = self._clock.now_ms()
        told_ms: int | None = None
        while (reason := await missing()) is not None:
            now_ms = self._clock.now_ms()
            if now_ms - start_ms > self._limit_s * 1000:
                raise UnavailableError(f"waited {self._limit_s:g} s for {what}: {reason}")
            if told_ms is None or now_ms - told_ms >= _REPEAT_S * 1000:
                told_ms = now_ms
                self._tell(f"waiting for {what}: {reason}")
            await self._clock.sleep(_LOOK_S)


def _deployment(body: Mapping[str, Any]) -> str | None:
    wanted = body["spec"].get("replicas", 1)
    status = body.get("status", {})
    if status.get("observedGeneration", 0) < body["metadata"]["generation"]:
        return "not looked at yet"
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if updated >= wanted and available >= wanted:
        return None
    return f"{min(updated, available)} of {wanted} pods are up{_reason(status)}"


def _daemon_set(body: Mapping[str, Any]) -> str | None:
    status = body.get("status", {})
    if status.get("observedGeneration", 0) < body["metadata"]["generation"]:
        return "not looked at yet"
    wanted = status.get("desiredNumberScheduled", 0)
    up = min(status.get("updatedNumberScheduled", 0), status.get("numberReady", 0))
    return None if up >= wanted else f"{up} of {wanted} nodes are ready"


def _api_service(body: Mapping[str, Any]) -> str | None:
    for condition in body.get("status", {}).get("conditions", []):
        if condition["type"] == "Available":
            if condition["status"] == "True":
                return None
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"[:300]
    return "not looked at yet"


def _reason(status: Mapping[str, Any]) -> str:
    for condition in status.get("conditions", []):
        if condition["type"] == "ReplicaFailure" and condition["status"] == "True":
            return f"; {condition.get('message', '')}"[:300]
    return ""


_LOOKS = {"Deployment": _deployment, "DaemonSet": _daemon_set, "APIService": _api_service}
