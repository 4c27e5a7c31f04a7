"""The permissions an account needs to install these objects, and a minimal role with them.

Nobody can grant rights that they lack, so the rights within rendered roles are needed too, and `bind` for the
roles of Kubernetes' own that are bound.

Source: kubernetes v1.36 pkg/registry/rbac (escalation_check.go), k8s.io/apiserver v0.36
pkg/endpoints/handlers/patch.go (an apply that makes an object is a `create` under the object's name).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from gpuscale.base.errors import UsageError
from gpuscale.kube import PATHS, Right
from gpuscale.ops.install.cluster.kinds import (
    KINDS,
    NODES,
    PODS,
    SECRETS,
    STATEFUL_SETS,
    Kind,
    kind_of,
)
from gpuscale.ops.install.common import Object

RBAC = "rbac.authorization.k8s.io"
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


def needed_rights(objects: Sequence[Object], *, replaces: bool = False) -> tuple[Right, ...]:
    """Return the permissions for applying and removing objects, each once, in order.

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
    """Yield the permissions that a role or a binding grants."""
    for rule in body.get("rules") or () if body["kind"] in ("Role", "ClusterRole") else ():
        for verb in rule["verbs"]:
            yield from (Right("", PATHS, each, verb) for each in rule.get(PATHS, ()))
            for group in rule.get("apiGroups", ()):
                for resource in rule.get("resources", ()):
                    names = rule.get("resourceNames") or ("",)
                    yield from (Right(namespace, group, resource, verb, name) for name in names)
    if body["kind"] in ("RoleBinding", "ClusterRoleBinding"):
        role = body["roleRef"]
        resource = "roles" if role["kind"] == "Role" else "clusterroles"
        place = namespace if role["kind"] == "Role" else ""
        yield Right(place, RBAC, resource, "bind", role["name"])


def parse_subject(text: str) -> Object:
    """Parse the subject of a role binding.

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
    """Return minimal roles with these permissions, and their bindings to a subject.

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
    """Return RBAC rules; resources with equal verbs and names share one."""
    verbs: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for right in rights:
        verbs[right.group, right.resource, right.name].append(right.verb)
    names: dict[tuple[str, str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource, name), found in verbs.items():
        # Rules for any object and for named ones can't be merged.
        names[group, resource, (*found, "" if name else "*")].append(name)
    rules: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource, marked), named in names.items():
        rules[group, marked[:-1], tuple(sorted(named))].append(resource)
    return [_rule(*key, resources) for key, resources in sorted(rules.items())]


def _rule(
    group: str, verbs: tuple[str, ...], names: tuple[str, ...], resources: Sequence[str]
) -> Object:
    if group == PATHS:
        return {PATHS: sorted(resources), "verbs": list(verbs)}
    only = {"resourceNames": list(names)} if any(names) else {}
    return {"apiGroups": [group], "resources": sorted(resources), **only, "verbs": list(verbs)}
