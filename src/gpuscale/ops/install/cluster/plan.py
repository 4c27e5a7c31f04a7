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
    missing = await _missing_kinds(client, objects)
    if missing:
        raise UsageError("\n".join(missing))
    found = [ApplyStep(body, await client.find(path_of(body))) for body in objects]
    kept = tuple(step.reference for step in found if _is_anothers_namespace(step))
    steps = [_judged(step, name) for step in found if step.reference not in kept]
    faults = [*await _missing_namespaces(client, steps, kept), *_foreign(steps, replaces=replaces)]
    if faults:
        raise UsageError("\n".join(faults))
    steps = [await _tried(client, step) for step in steps]
    return Plan(tuple(steps), kept, tuple(await _surplus(client, name, objects)))


async def served_kinds(client: KubeClient, kinds: Sequence[Kind]) -> set[Kind]:
    """Return those of the kinds that the cluster has."""
    bases = {kind.base for kind in kinds}
    versions = {base: await client.find(base) for base in bases}
    return {kind for kind in kinds if _has(versions[kind.base], kind)}


def _has(version: Mapping[str, Any] | None, kind: Kind) -> bool:
    resources = (version or {}).get("resources", [])
    return any(each.get("name") == kind.plural for each in resources)


async def _missing_kinds(client: KubeClient, objects: Sequence[Object]) -> list[str]:
    wanted = tuple(dict.fromkeys(kind_of(body) for body in objects))
    there = await served_kinds(client, wanted)
    return [
        f"found no {kind.name} of {kind.api_version} in the cluster, expected {_NEEDS[kind.api_version]}"
        for kind in wanted
        if kind not in there
    ]


def _is_anothers_namespace(step: ApplyStep) -> bool:
    is_namespace = step.body["kind"] == "Namespace"
    return is_namespace and step.before is not None and owner(step.before) is None


def _judged(step: ApplyStep, name: str) -> ApplyStep:
    is_foreign = step.before is not None and owner(step.before) != name
    return ApplyStep(step.body, step.before, is_foreign)


def _foreign(steps: Sequence[ApplyStep], *, replaces: bool) -> list[str]:
    return [
        f"{step.reference} is there already, {described(step.before)}; {_way_out(step)}"
        for step in steps
        if step.is_foreign and step.before is not None
        if not (replaces and not _is_job(step)) and not federates(step.body, step.before)
    ]


def federates(body: Mapping[str, Any], before: Mapping[str, Any]) -> bool:
    """Return whether an APIService's new server forwards requests to the one that serves it now."""
    if body["kind"] != "APIService":
        return False
    service = (before.get("spec") or {}).get("service") or {}
    annotations = body["metadata"].get("annotations") or {}
    served = f"{service.get('namespace')}/{service.get('name')}"
    return served in str(annotations.get(FEDERATES, "")).split(",")


def _way_out(step: ApplyStep) -> str:
    if _is_job(step):
        return "a Job can't be taken over: remove it, or set samples.namespace to another"
    return "--replace takes its place and keeps the way back"


def _is_job(step: ApplyStep) -> bool:
    return reference(step.body).kind == "Job"


async def _tried(client: KubeClient, step: ApplyStep) -> ApplyStep:
    """Return a step with the server's message about immutable fields; only our Jobs have such fields."""
    if not _is_job(step) or step.before is None:
        return step
    try:
        await server_side_apply(client, step.body, forces=True, dryRun="All")
    except ApiStatusError as error:
        # Other refusals of the object are reported when it is applied.
        return replace(step, immutable=error.immutable_fields)
    return step


async def _missing_namespaces(
    client: KubeClient, steps: Sequence[ApplyStep], kept: Sequence[Reference]
) -> list[str]:
    made = {step.reference.name for step in steps if step.body["kind"] == "Namespace"}
    there = made | {each.name for each in kept}
    wanted = {step.reference.namespace for step in steps} - there - {""}
    return [
        f"found no namespace {name}, expected it to be there: workloads and dashboards go into it"
        for name in sorted(wanted)
        if await client.find(f"/api/v1/namespaces/{name}") is None
    ]


async def _surplus(
    client: KubeClient, name: str, objects: Sequence[Object]
) -> list[Mapping[str, Any]]:
    wanted = {reference(body) for body in objects}
    return [body for body in await objects_of(client, name) if reference(body) not in wanted]


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
        # Strict: a field that the cluster's version does not know is an error, and not left out.
        "fieldValidation": "Strict",
        "force": str(forces).lower(),
        **options,
    }
    return await client.patch(f"{path_of(body)}?{urlencode(query)}", body, APPLY)
