"""The plan of an installation: read before any change, and refused as a whole if it can't work."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from gpuscale.base.errors import UsageError
from gpuscale.kube.client import APPLY, ApiStatusError, KubeClient
from gpuscale.ops.install.cluster.kinds import (
    KINDS,
    SECRETS,
    Kind,
    Reference,
    kind_of,
    path_of,
    reference,
)
from gpuscale.ops.install.cluster.ownership import described, owner
from gpuscale.ops.install.common import FEDERATES, INSTALL_LABEL, Object

FIELD_MANAGER = "gpuscale"
_NEEDS = {
    "monitoring.coreos.com/v1": "the Prometheus Operator; without it, set prometheus.kind to own or plain",
    "azmonitoring.coreos.com/v1": "AKS' managed Prometheus (az aks update --enable-azure-monitor-metrics)",
    "keda.sh/v1alpha1": "KEDA; without it, set scale[].autoscaler to hpa, and no jobs",
    "admissionregistration.k8s.io/v1": "Kubernetes 1.30; before it, leave agent.readyTaint out",
    "cert-manager.io/v1": "cert-manager; without it, set metricsApi.certificates to generated",
    "autoscaling/v2": "Kubernetes 1.23; before it, set scale[].hpaVersion to an older one",
    "autoscaling/v2beta2": "Kubernetes before 1.26; set scale[].hpaVersion to autoscaling/v2",
    "autoscaling/v2beta1": "Kubernetes before 1.25; set scale[].hpaVersion to autoscaling/v2",
}


@dataclass(frozen=True, slots=True)
class ApplyStep:
    """An object to apply, with its current state."""

    body: Object
    before: Mapping[str, Any] | None
    is_foreign: bool = False
    immutable: tuple[str, ...] = ()
    """Fields that have to change and can't while the object lives, so that it has to be recreated."""

    @property
    def reference(self) -> Reference:
        return reference(self.body)


@dataclass(frozen=True, slots=True)
class Plan:
    """The objects to apply, and the surplus of an earlier run to remove."""

    steps: tuple[ApplyStep, ...]
    kept: tuple[Reference, ...]
    """Namespaces that were there already; they stay as they are."""
    surplus: tuple[Mapping[str, Any], ...]


async def make_plan(
    client: KubeClient, name: str, objects: Sequence[Object], *, replaces: bool
) -> Plan:
    """Return the plan for an installation's objects.

    Args:
        client: to the API server.
        name: of the installation.
        objects: rendered, in order.
        replaces: whether objects of others may be taken over.

    Raises:
        UsageError: kinds or namespaces are missing, or objects belong to somebody else; all are reported.
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    wanted = tuple(dict.fromkeys(kind_of(body) for body in objects))
    there = await served_kinds(client, wanted)
    missing = [
        f"found no {kind.name} of {kind.api_version} in the cluster, expected {_NEEDS[kind.api_version]}"
        for kind in wanted
        if kind not in there
    ]
    if missing:
        raise UsageError("\n".join(missing))
    steps: list[ApplyStep] = []
    kept: list[Reference] = []
    for body in objects:
        before = await client.find(path_of(body))
        has_owner = before is not None and owner(before) is not None
        if body["kind"] == "Namespace" and before is not None and not has_owner:
            kept.append(reference(body))
        else:
            is_foreign = before is not None and owner(before) != name
            steps.append(ApplyStep(body, before, is_foreign))
    made = [step.reference for step in steps if step.body["kind"] == "Namespace"]
    known = {"", *(each.name for each in (*made, *kept))}
    faults = [
        f"found no namespace {each}, expected it to be there: workloads and dashboards go into it"
        for each in sorted({step.reference.namespace for step in steps} - known)
        if await client.find(f"/api/v1/namespaces/{each}") is None
    ]
    for step in steps:
        if not step.is_foreign or step.before is None or federates(step.body, step.before):
            continue
        way_out = "--replace takes its place and keeps the way back"
        if _is_job(step):
            way_out = "a Job can't be taken over: remove it, or set samples.namespace to another"
        elif replaces:
            continue
        faults.append(f"{step.reference} is there already, {described(step.before)}; {way_out}")
    if faults:
        raise UsageError("\n".join(faults))
    steps = [await _tried(client, step) for step in steps]
    ours = {reference(body) for body in objects}
    surplus = [each for each in await objects_of(client, name) if reference(each) not in ours]
    return Plan(tuple(steps), tuple(kept), tuple(surplus))


async def served_kinds(client: KubeClient, kinds: Sequence[Kind]) -> set[Kind]:
    """Return those of the kinds that the cluster has."""
    bases = {kind.base for kind in kinds}
    versions = {base: await client.find(base) for base in bases}
    names = {
        base: {each.get("name") for each in (version or {}).get("resources", [])}
        for base, version in versions.items()
    }
    return {kind for kind in kinds if kind.plural in names[kind.base]}


def federates(body: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether an APIService's new server forwards requests to the one that serves it now."""
    if body["kind"] != "APIService":
        return False
    service = (before.get("spec") or {}).get("service") or {}
    annotations = body["metadata"].get("annotations") or {}
    served = f"{service.get('namespace')}/{service.get('name')}"
    return served in str(annotations.get(FEDERATES, "")).split(",")


def _is_job(step: ApplyStep) -> bool:
    return reference(step.body).kind == "Job"


async def _tried(client: KubeClient, step: ApplyStep) -> ApplyStep:
    """Return a step with the server's message about immutable fields; only our Jobs have such fields."""
    if not _is_job(step) or step.before is None:
        return step
    try:
        await server_side_apply(client, step.body, forces=True, dryRun="All")
    except ApiStatusError as error:
        # Other refusals are reported when the object is applied.
        return replace(step, immutable=error.immutable_fields)
    return step


async def objects_of(client: KubeClient, name: str) -> list[dict[str, Any]]:
    """Return all objects of an installation, in the order of their application.

    Secrets are listed only beside service accounts of the installation: a right to list all Secrets of a
    cluster would be too much to ask for.
    """
    there = await served_kinds(client, KINDS)
    found: dict[Reference, dict[str, Any]] = {}
    for kind in sorted(there, key=lambda kind: (kind == SECRETS, KINDS.index(kind))):
        places = [kind.everywhere]
        if kind == SECRETS:
            inside = sorted({each.namespace for each in found if each.kind == "ServiceAccount"})
            places = [f"{kind.base}/namespaces/{each}/{kind.plural}" for each in inside]
        for place in places:
            listed = await client.get(place, {"labelSelector": f"{INSTALL_LABEL}={name}"})
            for item in listed.get("items") or []:
                body = {**item, "apiVersion": kind.api_version, "kind": kind.name}
                if "ownerReferences" not in body["metadata"] and owner(body) == name:
                    found.setdefault(reference(body), body)
    return sorted(found.values(), key=lambda body: KINDS.index(kind_of(body)))


async def server_side_apply(
    client: KubeClient, body: Mapping[str, Any], *, forces: bool, **options: str
) -> Mapping[str, Any]:
    """Return the object that results from a server-side apply with gpuscale's field manager.

    Args:
        client: to the API server.
        body: what is wanted.
        forces: takes over fields that others have set since.
        options: of the request, such as `dryRun`.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused; code 409 where fields belong to others.
    """
    query = {
        "fieldManager": FIELD_MANAGER,
        # Strict: a field unknown to the cluster's version is an error, instead of being dropped.
        "fieldValidation": "Strict",
        "force": str(forces).lower(),
        **options,
    }
    return await client.patch(f"{path_of(body)}?{urlencode(query)}", body, APPLY)
