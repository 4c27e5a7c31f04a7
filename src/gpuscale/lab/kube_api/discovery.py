"""The discovery documents of a live run's Kubernetes API.

Source: k8s.io/apimachinery v0.36 pkg/apis/meta/v1 (APIVersions, APIGroup, APIResourceList); k8s.io/api v0.36
    apidiscovery/v2.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from gpuscale.lab.kube_api.kinds import ApiResource
from gpuscale.server.metricsapi.wire import resource_list

Json = dict[str, Any]
READS = ("get", "list", "watch")
USAGE_GROUP, USAGE_VERSION = "metrics.k8s.io", "v1beta1"
_USAGE = (("nodes", "NodeMetrics", False), ("pods", "PodMetrics", True))
_AUTHORIZATION, _AUTHENTICATION = ("authorization.k8s.io", "v1"), ("authentication.k8s.io", "v1")
REVIEWS = {
    (*_AUTHORIZATION, "selfsubjectaccessreviews"): "SelfSubjectAccessReview",
    (*_AUTHORIZATION, "selfsubjectrulesreviews"): "SelfSubjectRulesReview",
    (*_AUTHENTICATION, "selfsubjectreviews"): "SelfSubjectReview",
}
"""What a client may ask about itself: group, version and resource to kind."""


class ServedGroups:
    """The API groups besides custom and external metrics.

    Args:
        kinds: that are served; of several versions of a group, the preferred one comes first.
    """

    def __init__(self, kinds: Sequence[ApiResource]) -> None:
        self._kinds = tuple(kinds)
        self._resources: dict[tuple[str, str], list[Json]] = {}
        for kind in self._kinds:
            place = self._resources.setdefault((kind.group, kind.version), [])
            place.extend(_resources(kind))
        self._resources[USAGE_GROUP, USAGE_VERSION] = [
            _resource(name, kind, is_namespaced=is_namespaced, verbs=("get", "list"))
            for name, kind, is_namespaced in _USAGE
        ]
        for (group, version, name), kind_ in REVIEWS.items():
            place = self._resources.setdefault((group, version), [])
            place.append(_resource(name, kind_, is_namespaced=False, verbs=("create",)))

    def groups(self) -> list[Json]:
        """Return each named group with its versions."""
        names = dict.fromkeys(group for group, _ in self._resources if group)
        return [self._group(name) for name in names]

    def group(self, name: str) -> Json | None:
        """Return the `APIGroup` of a name."""
        if not any(group == name for group, _ in self._resources) or not name:
            return None
        return {"kind": "APIGroup", "apiVersion": "v1", **self._group(name)}

    def resources(self, group: str, version: str) -> Json | None:
        """Return the `APIResourceList` of a group and version."""
        listed = self._resources.get((group, version))
        if listed is None:
            return None
        return resource_list(f"{group}/{version}" if group else version, list(listed))

    def aggregated(self, *, is_core: bool) -> list[Json]:
        """Return the items of the aggregated discovery document, for `/api` or `/apis`."""
        names = dict.fromkeys(group for group, _ in self._resources if (group == "") == is_core)
        return [
            {
                "metadata": {"name": name, "creationTimestamp": None} if name else {},
                "versions": [
                    {
                        "version": version,
                        "resources": _aggregated(group, version, listed),
                        "freshness": "Current",
                    }
                    for (group, version), listed in self._resources.items()
                    if group == name
                ],
            }
            for name in names
        ]

    def _group(self, name: str) -> Json:
        versions = [
            {"groupVersion": f"{name}/{version}", "version": version}
            for group, version in self._resources
            if group == name
        ]
        return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _resources(kind: ApiResource) -> list[Json]:
    main = _resource(
        kind.plural,
        kind.kind,
        is_namespaced=kind.is_namespaced,
        verbs=READS,
        singular=kind.singular,
        short_names=kind.short_names,
        categories=kind.categories,
    )
    below = [
        {
            **_resource(
                f"{kind.plural}/{name}", answer, is_namespaced=kind.is_namespaced, verbs=("get",)
            ),
            **({"group": group, "version": version} if group != kind.group else {}),
        }
        for name, (group, version, answer) in kind.subresources.items()
    ]
    return [main, *below]


def _resource(
    name: str,
    kind: str,
    *,
    is_namespaced: bool,
    verbs: Iterable[str],
    singular: str = "",
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
) -> Json:
    body: Json = {
        "name": name,
        "singularName": singular,
        "namespaced": is_namespaced,
        "kind": kind,
        "verbs": list(verbs),
    }
    if short_names:
        body["shortNames"] = list(short_names)
    if categories:
        body["categories"] = list(categories)
    return body


def _aggregated(group: str, version: str, listed: Sequence[Json]) -> list[Json]:
    found: list[Json] = []
    for each in listed:
        name, _, below = each["name"].partition("/")
        kind = {
            "group": each.get("group", group),
            "version": each.get("version", version),
            "kind": each["kind"],
        }
        if below:
            entry = {"subresource": below, "responseKind": kind, "verbs": each["verbs"]}
            parent = next(item for item in found if item["resource"] == name)
            parent.setdefault("subresources", []).append(entry)
            continue
        found.append(
            {
                "resource": name,
                "responseKind": kind,
                "scope": "Namespaced" if each["namespaced"] else "Cluster",
                "singularResource": each["singularName"],
                "verbs": each["verbs"],
                **{key: each[key] for key in ("shortNames", "categories") if key in each},
            }
        )
    return found
