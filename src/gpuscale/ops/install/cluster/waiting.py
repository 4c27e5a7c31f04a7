"""Waits until applied objects work: workloads are rolled out, APIs are served."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gpuscale.base.clock import Clock
from gpuscale.base.errors import UnavailableError, UpstreamError
from gpuscale.kube.client import ApiStatusError, ApiUnreachableError, KubeClient
from gpuscale.ops.install.cluster.kinds import path_of, reference
from gpuscale.ops.install.cluster.pod_faults import PodFault, creation_faults, pod_faults
from gpuscale.ops.install.common import Object

_LOOK_S = 0.5
_FIRST_S, _REPEAT_S = 2.0, 10.0
"""When a wait is first mentioned, and how often from then on."""
Announce = Callable[[str], None]


class Waiter:
    """Waits for objects; reports the wait after two seconds, and pod faults at once.

    Args:
        client: to the API server.
        clock: times the waits.
        announce: gets a line when there is something to say.
        limit_s: until it is an error, for each wait.
    """

    def __init__(
        self, client: KubeClient, clock: Clock, announce: Announce, limit_s: float
    ) -> None:
        self._client = client
        self._clock = clock
        self._announce = announce
        self._limit_s = limit_s
        self._reported: set[str] = set()

    async def until_works(self, body: Object) -> None:
        """Wait until an object works; kinds that need no time return at once.

        Raises:
            UnavailableError: it did not within the limit; with what it said last.
            UpstreamError: the API server takes none of its pods, at once where that lasts.
        """
        look = _LOOKS.get(body["kind"])
        if look is None:
            return
        faults: list[PodFault] = []

        async def missing() -> str | None:
            found = await self._client.find(path_of(body))
            if found is None:
                return "it is gone"
            reason = look(found)
            faults[:] = [] if reason is None else await self._faults(found)
            for fault in faults:
                self._tell_once(fault, body)
                if fault.is_lasting:
                    raise UpstreamError(f"{reference(body)}: {fault}")
            return reason

        try:
            await self.until(str(reference(body)), missing)
        except UnavailableError as error:
            kind = UpstreamError if any(each.is_refusal for each in faults) else UnavailableError
            raise kind("; ".join(map(str, (error, *faults)))) from None

    async def until(self, what: str, missing: Callable[[], Awaitable[str | None]]) -> None:
        """Wait until nothing is missing.

        Raises:
            UnavailableError: it stayed so for the limit; with what was missing last.
        """
        start_ms = self._clock.now_ms()
        mention_ms = start_ms + _FIRST_S * 1000
        while (reason := await missing()) is not None:
            now_ms = self._clock.now_ms()
            if now_ms - start_ms > self._limit_s * 1000:
                raise UnavailableError(f"waited {self._limit_s:g} s for {what}: {reason}")
            if now_ms >= mention_ms:
                mention_ms = now_ms + _REPEAT_S * 1000
                waited = f"{(now_ms - start_ms) // 1000} of at most {self._limit_s:g} s"
                self._announce(f"waiting for {what}: {reason} ({waited})")
            await self._clock.sleep(_LOOK_S)

    async def _faults(self, body: Mapping[str, Any]) -> list[PodFault]:
        """Return the faults of a Deployment's or DaemonSet's pods."""
        if body["kind"] not in _WITH_PODS:
            return []
        namespace = body["metadata"]["namespace"]
        labels = body["spec"]["selector"]["matchLabels"]
        selector = ",".join(f"{key}={value}" for key, value in labels.items())
        try:
            path = f"/api/v1/namespaces/{namespace}/pods"
            pods = await self._client.get(path, {"labelSelector": selector})
            events = await self._failed_creations(body)
        except (ApiStatusError, ApiUnreachableError):
            return []  # Only the reason is unknown; the wait goes on.
        return [*creation_faults(body, events), *pod_faults(pods.get("items") or [])]

    async def _failed_creations(self, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """Return events about pods that a DaemonSet failed to create, as it has no condition for them."""
        status = body.get("status", {})
        has_all = status.get("currentNumberScheduled", 0) >= status.get("desiredNumberScheduled", 0)
        if body["kind"] != "DaemonSet" or has_all:
            return []
        fields = f"involvedObject.uid={body['metadata']['uid']},reason=FailedCreate"
        path = f"/api/v1/namespaces/{body['metadata']['namespace']}/events"
        found: list[Mapping[str, Any]] = (
            await self._client.get(path, {"fieldSelector": fields})
        ).get("items") or []
        return found

    def _tell_once(self, fault: PodFault, body: Object) -> None:
        """Report a fault once, even if more pods have it or another wait meets it."""
        if fault.what not in self._reported:
            self._reported.add(fault.what)
            self._announce(f"{reference(body)}: {fault}")


def _deployment(body: Mapping[str, Any]) -> str | None:
    wanted = body["spec"].get("replicas", 1)
    status = body.get("status", {})
    if status.get("observedGeneration", 0) < body["metadata"]["generation"]:
        return "not looked at yet"
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if updated >= wanted and available >= wanted:
        return None
    return f"{min(updated, available)} of {wanted} pods are up"


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


_WITH_PODS = ("Deployment", "DaemonSet")
_LOOKS = {"Deployment": _deployment, "DaemonSet": _daemon_set, "APIService": _api_service}
