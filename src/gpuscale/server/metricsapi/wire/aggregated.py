"""All groups with all their resources in one document, for clients since Kubernetes 1.26.

A client that asks for it and gets it doesn't look at the documents of each group and version. A group that
is missing in it counts as one without resources.

Source: k8s.io/api/apidiscovery v2; k8s.io/apiserver v0.30.0 pkg/endpoints (installer.go,
ConvertGroupVersionIntoToDiscovery) and discovery/aggregated (negotiation.go, etag.go). Known difference:
prometheus-adapter v0.12.0 answers such a request without its groups.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from gpuscale.server.metricsapi.wire.bodies import Body
from gpuscale.server.metricsapi.wire.paths import versions_of

_GROUP = "apidiscovery.k8s.io"
_KIND = "APIGroupDiscoveryList"
_VERSIONS = ("v2", "v2beta1")
MAX_ACCEPT = 4096


def aggregated_version(accept: str) -> str | None:
    """Return the version of the discovery document that an Accept header prefers; None for the plain list.

    A header that asks for neither gets the plain list too, as there is always an answer in JSON.
    """
    for name, parameters in by_preference(accept[:MAX_ACCEPT]):
        if name not in ("application/json", "application/*", "*/*"):
            continue
        if "as" not in parameters:
            return None
        version = parameters.get("v")
        wanted = (parameters["as"], parameters.get("g"))
        if name == "application/json" and wanted == (_KIND, _GROUP) and version in _VERSIONS:
            return version
    return None


def content_type(version: str) -> str:
    """Return the Content-Type of the document."""
    return f"application/json;g={_GROUP};v={version};as={_KIND}"


def etag(body: Body) -> str:
    """Return an ETag, which changes when the document does."""
    text = json.dumps(body, separators=(",", ":"), sort_keys=True)
    return f'"{hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest().upper()}"'


def matches(if_none_match: str | None, tag: str) -> bool:
    """Return whether a client's `If-None-Match` holds this ETag."""
    if not if_none_match:
        return False
    return any(each.strip().removeprefix("W/") in (tag, "*") for each in if_none_match.split(","))


def aggregated_list(
    version: str, resources: Mapping[tuple[str, str], Sequence[Body]], groups: Iterable[str]
) -> Body:
    """Return the document.

    Args:
        version: of the document.
        resources: those of an APIResourceList, by group and version.
        groups: in their order.
    """
    items = [
        {
            "metadata": {"name": group, "creationTimestamp": None},
            "versions": [
                {
                    "version": each,
                    "resources": _resources(group, each, resources[group, each]),
                    "freshness": "Current",
                }
                for each in versions_of(group)
            ],
        }
        for group in groups
    ]
    return {"kind": _KIND, "apiVersion": f"{_GROUP}/{version}", "metadata": {}, "items": items}


def _resources(group: str, version: str, listed: Sequence[Body]) -> list[Body]:
    """Return the resources; `pods/gpu_util` becomes a subresource under a `pods` without verbs of its own."""
    found: dict[tuple[str, str], Body] = {}
    below: dict[tuple[str, str], list[Body]] = {}
    for each in listed:
        name, _, subresource = str(each["name"]).partition("/")
        scope = "Namespaced" if each["namespaced"] else "Cluster"
        kind = {"group": group, "version": version, "kind": each["kind"]}
        if not subresource:
            found[name, scope] = _resource(name, scope, kind, each["verbs"])
            continue
        # Early 1.26 clients fail on a resource without a kind, even an empty one.
        parent = _resource(name, scope, {"group": "", "version": "", "kind": ""}, [])
        found.setdefault((name, scope), parent)
        entry: Body = {"subresource": subresource, "responseKind": kind, "verbs": each["verbs"]}
        below.setdefault((name, scope), []).append(entry)
    return [
        {**resource, "subresources": below[key]} if key in below else resource
        for key, resource in found.items()
    ]


def _resource(name: str, scope: str, kind: object, verbs: object) -> Body:
    return {
        "resource": name,
        "responseKind": kind,
        "scope": scope,
        "singularResource": "",
        "verbs": verbs,
    }


def by_preference(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Return an Accept header's media ranges with their parameters, the preferred one first."""
    ranges: list[tuple[float, str, dict[str, str]]] = []
    for item in accept.split(","):
        name, *rest = (part.strip() for part in item.split(";"))
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        quality = _quality(parameters.pop("q", "1"))
        if name and quality > 0:
            ranges.append((quality, name, parameters))
    ranges.sort(key=lambda each: -each[0])
    return [(name, parameters) for _, name, parameters in ranges]


def _quality(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return 0.0
    return found if 0 <= found <= 1 else 0.0
