"""What an account needs to install some objects: asked of the API server in advance, and written as a role.

Nobody can grant rights that they lack, so the rights within rendered roles are needed too, and `bind` for the
roles of Kubernetes' own that are bound.

Source: kubernetes v1.36 pkg/registry/rbac (escalation_check.go), k8s.io/apiserver v0.36
pkg/endpoints/handlers/patch.go (an apply that makes an object is a `create` under the object's name).
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuscale.core.errors import UsageError
from gpuscale.install.cluster.kinds import KINDS, NODES, PODS, SECRETS, STATEFUL_SETS, Kind, kind_of
from gpuscale.install.common import Object
from gpuscale.kube.client.client import KubeClient

RBAC = "rbac.authorization.k8s.io"
_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_AT_ONE_TIME = 16
"""Questions; an API server that shares its seats out fairly has some for everyone."""
_SUBJECTS = ("User", "Group", "ServiceAccount")
_CHANGING = ("create", "delete", "get", "patch")
_RUNTIME_CLASSES = Kind("node.k8s.io/v1", "RuntimeClass", "runtimeclasses", is_namespaced=False)
_LOOKED_AT = (
    Kind("v1", "Event", "events"),
    Kind("monitoring.coreos.com/v1", "Prometheus", "prometheuses"),
    NODES,
    PODS,
    STATEFUL_SETS,
)
"""Read to fit the values to the cluster, and to say why pods don't come up."""


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One thing to be allowed to do, as RBAC and access reviews know it."""

    namespace: str
    """Empty: in no namespace, or in all of them."""
    group: str
    resource: str
    """A path, where `group` is `nonResourceURLs`."""
    verb: str
    name: str = ""
    """Empty: any object."""

    @property
    def place(self) -> str:
        return f" in namespace {self.namespace}" if self.namespace else ""


_PATHS = "nonResourceURLs"


def needed_rights(objects: Sequence[Object], *, replaces: bool = False) -> tuple[Right, ...]:
    """Return what applying and removing objects takes, without doubles, in order.

    Args:
        objects: rendered.
        replaces: whether objects of others may be taken over.
    """
    rights: set[Right] = set()
    for kind in (*KINDS, *_LOOKED_AT):
        if kind not in (SECRETS, _RUNTIME_CLASSES):
            rights.add(_right(kind, "list"))
    rights.add(_right(_RUNTIME_CLASSES, "get", name="nvidia"))
    for body in objects:
        kind, metadata = kind_of(body), body["metadata"]
        namespace = metadata.get("namespace", "")
        verbs = (*_CHANGING, *(("update",) if replaces else ()))
        rights |= {_right(kind, verb, namespace, metadata["name"]) for verb in verbs}
        if kind.name == "ServiceAccount":
            rights.add(_right(SECRETS, "list", namespace))
        rights |= set(_granted(body, namespace))
    return tuple(sorted(rights))


def _right(kind: Kind, verb: str, namespace: str = "", name: str = "") -> Right:
    group = kind.api_version.rpartition("/")[0]
    return Right(namespace, group, kind.plural, verb, name)


def _granted(body: Object, namespace: str) -> Iterable[Right]:
    """Yield what a role or a binding gives away."""
    for rule in body.get("rules") or () if body["kind"] in ("Role", "ClusterRole") else ():
        for verb in rule["verbs"]:
            yield from (Right("", _PATHS, each, verb) for each in rule.get(_PATHS, ()))
            for group in rule.get("apiGroups", ()):
                for resource in rule.get("resources", ()):
                    names = rule.get("resourceNames") or ("",)
                    yield from (Right(namespace, group, resource, verb, name) for name in names)
    if body["kind"] in ("RoleBinding", "ClusterRoleBinding"):
        role = body["roleRef"]
        resource = "roles" if role["kind"] == "Role" else "clusterroles"
        place = namespace if role["kind"] == "Role" else ""
        yield Right(place, RBAC, resource, "bind", role["name"])


async def check_rights(client: KubeClient, rights: Sequence[Right], hint: str) -> None:
    """Ask the API server about every right.

    Args:
        client: of the account that is to install.
        rights: that it needs.
        hint: what to do about missing ones.

    Raises:
        UsageError: some are missing; all of them are named.
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    turns = asyncio.Semaphore(_AT_ONE_TIME)

    async def is_allowed(right: Right) -> bool:
        async with turns:
            answer = await client.create(_REVIEW, _question(right))
        status: Mapping[str, Any] = answer.get("status") or {}
        return status.get("allowed") is True

    # Who may do everything is asked one question.
    everything = Right("", "*", "*", "*")
    if await is_allowed(everything) and await is_allowed(replace(everything, group=_PATHS)):
        return
    allowed = await asyncio.gather(*(is_allowed(each) for each in rights))
    missing = [right for right, is_right in zip(rights, allowed, strict=True) if not is_right]
    if missing:
        lines = "\n".join(f"  {line}" for line in _lines(missing))
        raise UsageError(
            f"this account lacks {len(missing)} rights that the installation needs; nothing was changed:\n"
            f"{lines}\n{hint}"
        )


def _question(right: Right) -> dict[str, Any]:
    if right.group == _PATHS:
        asked: dict[str, Any] = {
            "nonResourceAttributes": {"path": right.resource, "verb": right.verb}
        }
    else:
        resource, _, part = right.resource.partition("/")
        attributes = {
            "namespace": right.namespace,
            "group": right.group,
            "resource": resource,
            "subresource": part,
            "verb": right.verb,
            "name": right.name,
        }
        asked = {"resourceAttributes": {key: text for key, text in attributes.items() if text}}
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": asked,
    }


def _lines(rights: Iterable[Right]) -> list[str]:
    """Return one line for each resource and place, with the verbs."""
    verbs: dict[str, list[str]] = defaultdict(list)
    for right in rights:
        group = f".{right.group}" if right.group not in ("", _PATHS) else ""
        name = f" {right.name}" if right.name else ""
        verbs[f"{right.resource}{group}{name}{right.place}"].append(right.verb)
    return [f"{', '.join(found)} {what}" for what, found in verbs.items()]


def parse_subject(text: str) -> Object:
    """Return the subject of bindings.

    Args:
        text: `User:NAME`, `Group:NAME` or `ServiceAccount:NAMESPACE/NAME`.

    Raises:
        UsageError: none of these.
    """
    kind, _, name = text.partition(":")
    namespace, slash, account = name.partition("/")
    is_account = kind == "ServiceAccount"
    if kind not in _SUBJECTS or not name or (is_account and not (namespace and slash and account)):
        raise UsageError(
            f"found {text!r}, expected User:NAME, Group:NAME or ServiceAccount:NAMESPACE/NAME"
        )
    if is_account:
        return {"kind": kind, "namespace": namespace, "name": account}
    return {"apiGroup": RBAC, "kind": kind, "name": name}


def installer_role(
    name: str, namespace: str, rights: Sequence[Right], subject: Object
) -> list[Object]:
    """Return the least roles with these rights, and the bindings that give them to a subject.

    Args:
        name: of all these objects.
        namespace: of the installation, which has to be there before its roles are.
        rights: as `needed_rights` gives them.
        subject: as `parse_subject` gives it.
    """
    objects: list[Object] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    ]
    for place in sorted({right.namespace for right in rights}):
        kind = "Role" if place else "ClusterRole"
        metadata = {"name": name, **({"namespace": place} if place else {})}
        rules = _rules(right for right in rights if right.namespace == place)
        reference = {"apiGroup": RBAC, "kind": kind, "name": name}
        objects += [
            {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules},
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": reference,
                "subjects": [subject],
            },
        ]
    return objects


def _rules(rights: Iterable[Right]) -> list[Object]:
    """Return rules; resources with the same verbs and names share one."""
    verbs: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for right in rights:
        verbs[right.group, right.resource, right.name].append(right.verb)
    names: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource, name), found in verbs.items():
        # A rule for any object and one for named ones can't be one.
        names[group, resource, (*found, "" if name else "*")].append(name)
    rules: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource, marked), named in names.items():
        rules[group, marked[:-1], tuple(sorted(named))].append(resource)
    return [_rule(*key, resources) for key, resources in sorted(rules.items())]


def _rule(
    group: str, verbs: tuple[str, ...], names: tuple[str, ...], resources: Sequence[str]
) -> Object:
    if group == _PATHS:
        return {_PATHS: sorted(resources), "verbs": list(verbs)}
    only = {"resourceNames": list(names)} if any(names) else {}
    return {"apiGroups": [group], "resources": sorted(resources), **only, "verbs": list(verbs)}
