"""Removes an installation: everything with its label, in an order that leaves nothing hanging.

The APIs go first, because an API without a server holds up discovery and the removal of namespaces.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuscale.base.clock import Clock
from gpuscale.base.errors import UnavailableError
from gpuscale.kube.client import KubeClient
from gpuscale.ops.install.cluster.apply import ApplyOutcome, ClusterChange, take_away
from gpuscale.ops.install.cluster.handover import AUTOSCALERS, still_there
from gpuscale.ops.install.cluster.kinds import KINDS, PODS, Reference, path_of, reference
from gpuscale.ops.install.cluster.ownership import owner
from gpuscale.ops.install.cluster.plan import objects_of, served_kinds
from gpuscale.ops.install.cluster.waiting import Announce, Waiter
from gpuscale.ops.install.common import INSTALL_LABEL

_FIRST = ("APIService", "ScaledObject", "ScaledJob", "HorizontalPodAutoscaler")
_AUTOSCALERS_S = 30.0
"""At most, for KEDA to let its workloads go while what it asks is still there."""
_OF_EVERY_NAMESPACE = {"kube-root-ca.crt", "default"}
"""A ConfigMap and a service account that Kubernetes makes in every namespace."""


class Remover:
    """Removes an installation.

    Args:
        client: to the API server.
        clock: times the waits.
        announce: gets a line where something takes time.
        wait_s: until what is left is an error.
    """

    def __init__(
        self, client: KubeClient, clock: Clock, announce: Announce, wait_s: float = 120.0
    ) -> None:
        self._client = client
        self._announce = announce
        self._waiter = Waiter(client, clock, announce, wait_s)
        self._autoscalers = Waiter(client, clock, announce, min(wait_s, _AUTOSCALERS_S))

    async def found(self, name: str) -> list[Mapping[str, Any]]:
        """Return an installation's objects, in the order of their removal."""
        objects = await objects_of(self._client, name)
        first = [body for body in objects if body["kind"] in _FIRST]
        first.sort(key=lambda body: _FIRST.index(body["kind"]))
        return [*first, *reversed([body for body in objects if body["kind"] not in _FIRST])]

    async def remove(self, name: str) -> list[ClusterChange]:
        """Remove everything with the installation's label, and return it once it is gone.

        Raises:
            UnavailableError: something is still there; names it.
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused.
        """
        found = await self.found(name)
        first = [body for body in found if body["kind"] in _FIRST]
        changes = [ClusterChange(reference(body), await self._take_away(body)) for body in first]
        await self._until_let_go(first)
        changes += [
            ClusterChange(reference(body), await self._take_away(body))
            for body in found[len(first) :]
        ]

        async def left() -> str | None:
            found = await self.left(name)
            reasons = [await self._reason(each) for each in found]
            return f"still there: {', '.join(reasons)}" if found else None

        if changes:
            await self._waiter.until("everything to be gone", left)
        return changes

    async def _until_let_go(self, bodies: Sequence[Mapping[str, Any]]) -> None:
        """Wait until KEDA has released its workloads; if it is not running, the leftovers are reported."""
        for body in bodies:
            if body["kind"] in AUTOSCALERS:

                async def left(body: Mapping[str, Any] = body) -> str | None:
                    return await still_there(self._client, body)

                try:
                    await self._autoscalers.until(f"{reference(body)} to be gone", left)
                except UnavailableError as error:
                    self._announce(str(error))
                    return

    async def left(self, name: str) -> list[Reference]:
        """Return everything with the installation's label, pods included."""
        found = [reference(body) for body in await objects_of(self._client, name)]
        listed = await self._client.get(
            PODS.everywhere, {"labelSelector": f"{INSTALL_LABEL}={name}"}
        )
        pods = [
            Reference("Pod", item["metadata"]["namespace"], item["metadata"]["name"])
            for item in listed.get("items") or []
        ]
        return [*found, *pods]

    async def _reason(self, left: Reference) -> str:
        """Return what is left, and for a namespace Kubernetes' reason for its delay."""
        if left.kind != "Namespace":
            return str(left)
        body = await self._client.find(KINDS[0].path(left.name)) or {}
        said = [
            each["message"]
            for each in body.get("status", {}).get("conditions", [])
            if each["status"] == "True"
        ]
        return f"{left} ({'; '.join(said)})" if said else str(left)

    async def _take_away(self, body: Mapping[str, Any]) -> ApplyOutcome:
        if body["kind"] == "Namespace":
            others = await self._others(body["metadata"]["name"])
            if others:
                names = ", ".join(map(str, others[:5]))
                self._announce(f"the namespace stays, because others have objects in it: {names}")
                unlabelled = {"metadata": {"labels": {INSTALL_LABEL: None}}}
                await self._client.patch(path_of(body), unlabelled)
                return ApplyOutcome.KEPT
        return await take_away(self._client, body)

    async def _others(self, namespace: str) -> list[Reference]:
        """Return a namespace's objects that belong to no installation or controller."""
        found: list[Reference] = []
        there = await served_kinds(self._client, KINDS)
        for kind in KINDS:
            if kind not in there or not kind.is_namespaced:
                continue
            listed = await self._client.get(f"{kind.base}/namespaces/{namespace}/{kind.plural}")
            items: Sequence[Mapping[str, Any]] = listed.get("items") or []
            found += [
                Reference(kind.name, namespace, item["metadata"]["name"])
                for item in items
                if _is_anothers(item)
            ]
        return found


def _is_anothers(item: Mapping[str, Any]) -> bool:
    metadata = item["metadata"]
    is_made_for_all = metadata["name"] in _OF_EVERY_NAMESPACE
    return owner(item) is None and not is_made_for_all and "ownerReferences" not in metadata
