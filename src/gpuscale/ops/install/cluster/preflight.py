"""Checks before the first object is applied: the image, and the workloads to scale."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuscale.base.words import closest
from gpuscale.hpa.terms import SCALE_TO_ZERO, version_or_none
from gpuscale.kube.client import ApiStatusError, KubeClient
from gpuscale.ops.install.cluster.kinds import (
    NODES,
    STATEFUL_SETS,
    Reference,
    kind_named,
    reference,
)
from gpuscale.ops.install.cluster.plan import server_side_apply
from gpuscale.ops.install.common import Object, image_reference
from gpuscale.ops.install.noted import image_note
from gpuscale.ops.install.values import Values

_WORKLOADS = {"Deployment": kind_named("Deployment"), "StatefulSet": STATEFUL_SETS}
_IMPLIED = "docker.io/library/"
"""What containerd puts before a name without a slash."""
_OTHERS_SHOWN = 3
_INVALID = 422
_MIN_REPLICAS = "spec.minReplicas"


async def image_fault(client: KubeClient, values: Values) -> str | None:
    """Return why no node could start the installation's image; None if one could.

    An image without a registry may still be on the nodes, where `kind load docker-image` puts it. A kubelet
    reports its 50 largest images only, so one that it does not name may be there nevertheless.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    note = image_note(values)
    if note is None:
        return None
    name = image_reference(values.spec.image)
    wanted = {name} if "/" in name else {name, f"{_IMPLIED}{name}"}
    listed = await client.get(NODES.everywhere)
    for node in listed.get("items") or []:
        for image in node.get("status", {}).get("images") or []:
            if wanted & set(image.get("names") or []):
                return None
    return note


async def zero_fault(client: KubeClient, objects: Sequence[Object]) -> str | None:
    """Return why the API server refuses HPAs with `minReplicas: 0`; None if it accepts them or has none.

    It is asked, because gates can be turned on and off against their defaults.

    Raises:
        ApiUnreachableError: no answer, or not now.
    """
    wanted = (
        each
        for each in objects
        if each["kind"] == "HorizontalPodAutoscaler" and each["spec"]["minReplicas"] == 0
    )
    for body in wanted:
        try:
            await server_side_apply(client, body, forces=True, dryRun="All")
        except ApiStatusError as error:
            if error.code == _INVALID and _MIN_REPLICAS in str(error):
                return await _without_gate(client, reference(body))
        return None
    return None


async def _without_gate(client: KubeClient, hpa: Reference) -> str:
    version = version_or_none(await client.git_version())
    gate = SCALE_TO_ZERO.name
    here = "" if version is None else f" (Kubernetes {version})"
    return (
        f"{hpa}: found minReplicas 0, and the feature gate {gate} is off{here}: start kube-apiserver and "
        f"kube-controller-manager with --feature-gates={gate}=true, or take autoscaler: keda or "
        "minReplicas: 1"
    )


async def missing_targets(
    client: KubeClient, values: Values, objects: Sequence[Object]
) -> list[str]:
    """Return a sentence for each missing workload of `scale`, with a likely correction.

    Args:
        client: to the API server.
        values: name the workloads.
        objects: rendered from the values; the samples among them are there soon.

    Raises:
        ApiUnreachableError: no answer, or not now.
    """
    made = {reference(body) for body in objects}
    wanted = [
        Reference(each.workload.kind, each.workload.namespace, each.workload.name)
        for each in values.spec.scale
    ]
    try:
        missing = [
            each
            for each in wanted
            if each not in made
            and await client.find(_WORKLOADS[each.kind].path(each.name, each.namespace)) is None
        ]
        there = await _workloads(client) if missing else []
    except ApiStatusError:
        return []  # Missing rights to look are no reason not to install.
    return [_missing(each, there) for each in missing]


async def _workloads(client: KubeClient) -> list[Reference]:
    found = []
    for name, kind in _WORKLOADS.items():
        listed = await client.get(kind.everywhere)
        found += [_reference(name, item) for item in listed.get("items") or []]
    return found


def _reference(kind: str, item: Mapping[str, Any]) -> Reference:
    return Reference(kind, item["metadata"]["namespace"], item["metadata"]["name"])


def _missing(wanted: Reference, there: Sequence[Reference]) -> str:
    text = f"there is no {wanted}: its autoscaler has nothing to scale until there is one"
    likely = list(_likely(wanted, there))
    if not likely:
        return text
    names = [f"{each.kind.lower()}/{each.namespace}/{each.name}" for each in likely]
    return f"{text}; did you mean {' or '.join(names[:_OTHERS_SHOWN])}?"


def _likely(wanted: Reference, there: Sequence[Reference]) -> Iterator[Reference]:
    """Yield workloads of the same name elsewhere, then those with a similar name."""
    same = [each for each in there if each.name == wanted.name]
    yield from sorted(same, key=lambda each: (each.namespace != wanted.namespace, each))
    beside = [each for each in there if each.namespace == wanted.namespace]
    near = closest(wanted.name, [each.name for each in beside])
    yield from (each for each in beside if each.name == near and each not in same)
