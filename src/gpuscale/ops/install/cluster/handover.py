"""Handing a workload over between HPA and KEDA, with its replica count kept.

Source: KEDA v2.21 controllers/keda/scaledobject_finalizer.go (restoreToOriginalReplicaCount sets the count
    from before the ScaledObject, also where pods run), apis/keda/v1alpha1/scaledobject_webhook.go (verifyHpas
    refuses a workload that has another HPA).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuscale.kube.client import KubeClient
from gpuscale.ops.install.cluster.kinds import STATEFUL_SETS, Kind, kind_named, path_of

AUTOSCALERS = ("HorizontalPodAutoscaler", "ScaledObject")
"""Kinds of which a workload has one at most."""
_WORKLOADS = {"Deployment": kind_named("Deployment"), "StatefulSet": STATEFUL_SETS}
_HPAS = kind_named("HorizontalPodAutoscaler")
_RESTORE = "restoreToOriginalReplicaCount"


def scaled(body: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return namespace, kind and name of an autoscaler's target; None for other objects."""
    if body["kind"] not in AUTOSCALERS:
        return None
    target = body["spec"]["scaleTargetRef"]
    return body["metadata"]["namespace"], target.get("kind", "Deployment"), target["name"]


def in_the_way(
    surplus: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the surplus autoscalers whose workloads get a new autoscaler."""
    targets = {scaled(body) for body in wanted} - {None}
    return [body for body in surplus if scaled(body) in targets]


async def keep_count(client: KubeClient, body: Mapping[str, Any]) -> None:
    """Have KEDA keep a workload's replica count when its ScaledObject is deleted.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    target = scaled(body)
    advanced = body.get("spec", {}).get("advanced") or {}
    if body["kind"] != "ScaledObject" or target is None or not advanced.get(_RESTORE):
        return
    namespace, kind, name = target
    if kind not in _WORKLOADS:
        return
    found = await _named(client, _WORKLOADS[kind], namespace, name)
    # Without pods, the ScaledObject is what scales the workload up.
    if found is None or found["spec"].get("replicas", 1) == 0:
        return
    if await client.find(path_of(body)) is not None:
        await client.patch(path_of(body), {"spec": {"advanced": {_RESTORE: False}}})


async def still_there(client: KubeClient, body: Mapping[str, Any]) -> str | None:
    """Return what is left of an autoscaler: itself, or KEDA's HPA for it; None if nothing."""
    if await client.find(path_of(body)) is not None:
        return "it is ending"
    if body["kind"] != "ScaledObject":
        return None
    metadata = body["metadata"]
    config = (body["spec"].get("advanced") or {}).get("horizontalPodAutoscalerConfig") or {}
    name = config.get("name") or f"keda-hpa-{metadata['name']}"
    hpa = await _named(client, _HPAS, metadata["namespace"], name)
    return None if hpa is None else f"its HorizontalPodAutoscaler {name} is ending"


async def _named(
    client: KubeClient, kind: Kind, namespace: str, name: str
) -> Mapping[str, Any] | None:
    """Return an object through a list request, whose permission installing needs anyway; None if absent."""
    listed = await client.get(
        f"{kind.base}/namespaces/{namespace}/{kind.plural}",
        {"fieldSelector": f"metadata.name={name}"},
    )
    items: Sequence[Mapping[str, Any]] = listed.get("items") or []
    return items[0] if items else None
