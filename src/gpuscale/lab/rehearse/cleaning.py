"""Deletes everything with a rehearsal's label, and nothing else.

One way serves the end of a rehearsal and what a killed one left behind, so pods are deleted without
waiting for a kubelet. The order leaves no controller with an API that has no server, no pod without its
node, and no namespace that waits for the grace period of pods: ScaledObjects while KEDA still finds their
targets, autoscalers, what makes pods, pods, nodes, registered APIs, namespaces.
"""

import asyncio

from gpuscale.base.clock import Clock, WallClock
from gpuscale.base.errors import UnavailableError
from gpuscale.kube.client import (
    NOT_FOUND,
    ApiStatusError,
    ApiUnreachableError,
    JsonObject,
    KubeClient,
)
from gpuscale.kube.simulated import LEASES
from gpuscale.lab.rehearse.karpenter import NODE_CLASSES, NODE_POOLS
from gpuscale.lab.rehearse.manifests import PATHS

_NODES = "/api/v1/nodes"
_NODE_EVENTS = "/api/v1/namespaces/default/events"
_MAKE_PODS = ("HorizontalPodAutoscaler", "Deployment", "ReplicaSet", "Job")
"""What asks for pods, in the order of asking."""
_IN_BACKGROUND = {"propagationPolicy": "Background"}
_LOOK_S = 0.25
_KEDA_S = 15.0
"""How long KEDA may take to let go of deleted ScaledObjects."""
_LIMIT_S = 90.0
"""Until what is left is an error; a namespace with a hundred pods is gone within seconds."""


class Cleaner:
    """Deletes the objects that a label selector matches.

    Args:
        client: to the API server.
        selector: of a rehearsal's objects.
        clock: times the waits.
    """

    def __init__(self, client: KubeClient, selector: str, clock: Clock | None = None) -> None:
        self._client = client
        self._selectors = {"labelSelector": selector}
        self._clock = clock or WallClock()

    async def found(self) -> tuple[str, ...]:
        """Return the matching objects as `Kind/name`, sorted.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused.
        """
        paths = {"Namespace": PATHS["Namespace"], "APIService": PATHS["APIService"]}
        paths |= {"Node": _NODES, "Lease": LEASES}
        paths |= {"NodePool": NODE_POOLS, "KWOKNodeClass": NODE_CLASSES}
        names = {kind: await self._names(path) for kind, path in paths.items()}
        return tuple(sorted(f"{kind}/{name}" for kind, found in names.items() for name in found))

    async def remove(self) -> tuple[str, ...]:
        """Delete all matching objects, and return them as `Kind/name`, sorted.

        Raises:
            UnavailableError: something is still there after a while, or the API server is not.
            ApiStatusError: refused.
        """
        there = await self.found()
        if not there:
            return ()
        namespaces = await self._names(PATHS["Namespace"])
        nodes = await self._names(_NODES)
        for namespace in namespaces:
            await self._remove_scaled_objects(PATHS["ScaledObject"].format(namespace))
        for namespace in namespaces:
            for kind in _MAKE_PODS:
                await self._client.delete(PATHS[kind].format(namespace), _IN_BACKGROUND)
        deadline_ms = self._deadline_ms()
        for namespace in namespaces:
            pods = f"/api/v1/namespaces/{namespace}/pods"
            while await self._items(pods, {}):
                self._check(deadline_ms, f"the pods of namespace {namespace}")
                await self._client.delete(pods, {"gracePeriodSeconds": 0})
                await self._clock.sleep(_LOOK_S)
        # Karpenter takes its nodes along, as long as their class is there.
        await self._client.delete(NODE_POOLS, selectors=self._selectors)
        await self._client.delete(_NODES, selectors=self._selectors)
        await self._client.delete(LEASES, selectors=self._selectors)
        await self._client.delete(PATHS["APIService"], selectors=self._selectors)
        for namespace in namespaces:
            await self._client.delete(f"{PATHS['Namespace']}/{namespace}")
        deadline_ms = self._deadline_ms()
        while await self._names(_NODES):
            self._check(deadline_ms, "the nodes")
            await self._clock.sleep(_LOOK_S)
        await self._client.delete(NODE_CLASSES, selectors=self._selectors)
        deadline_ms = self._deadline_ms()
        while left := await self.found():
            self._check(deadline_ms, ", ".join(left))
            await self._clock.sleep(_LOOK_S)
        for node in nodes:
            # Events about nodes are in the namespace `default`.
            about = f"involvedObject.kind=Node,involvedObject.name={node}"
            await self._client.delete(_NODE_EVENTS, selectors={"fieldSelector": about})
        return there

    async def _remove_scaled_objects(self, path: str) -> None:
        """Delete the ScaledObjects; without KEDA, remove the finalizer that would block the namespace."""
        if not await self._client.delete(path):
            return  # KEDA is not installed
        deadline_ms = self._clock.now_ms() + round(_KEDA_S * 1000)
        while left := await self._items(path, {}):
            if self._clock.now_ms() > deadline_ms:
                for item in left:
                    name = item["metadata"]["name"]
                    await self._client.patch(f"{path}/{name}", {"metadata": {"finalizers": None}})
            await self._clock.sleep(_LOOK_S)

    async def _names(self, path: str) -> tuple[str, ...]:
        items = await self._items(path, self._selectors)
        return tuple(item["metadata"]["name"] for item in items)

    async def _items(self, path: str, selectors: dict[str, str]) -> list[JsonObject]:
        try:
            body = await self._client.get(path, selectors)
        except ApiStatusError as error:
            if error.code != NOT_FOUND:
                raise
            return []  # the cluster has no such kind
        items: list[JsonObject] = body.get("items") or []
        return items

    def _deadline_ms(self) -> int:
        return self._clock.now_ms() + round(_LIMIT_S * 1000)

    def _check(self, deadline_ms: int, what: str) -> None:
        if self._clock.now_ms() > deadline_ms:
            raise UnavailableError(f"still there after {_LIMIT_S:g} s: {what}")


async def remove_at_last(cleaner: Cleaner) -> None:
    """Delete everything, retrying while the API server is away.

    Raises:
        UnavailableError: it stayed away, or something is still there.
        ApiStatusError: refused.
    """
    for _ in range(5):
        try:
            await cleaner.remove()
        except ApiUnreachableError:
            await asyncio.sleep(1.0)
        else:
            return
    await cleaner.remove()
