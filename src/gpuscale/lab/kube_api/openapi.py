"""OpenAPI documents of the served kinds; Kubernetes' own have all their fields.

kubectl looks here before it sends an object, so that a write reaches the server and gets the server's own
answer; and `kubectl explain` finds each kind.

Source: OpenAPI 3.0; k8s.io/client-go v0.36 openapi3, k8s.io/cli-runtime v0.36 pkg/resource
    (QueryParamVerifierV3).
"""

from collections.abc import Sequence
from typing import Any

from gpuscale import __version__
from gpuscale.kube import kind_schema_name, schemas_of
from gpuscale.lab.kube_api.kinds import ApiResource
from gpuscale.server.metricsapi.wire import document_hash

Json = dict[str, Any]
_SCHEMAS = "#/components/schemas/"
_OBJECT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def places(kinds: Sequence[ApiResource]) -> Json:
    """Return the index of OpenAPI documents, by group and version."""
    found: Json = {}
    for kind in kinds:
        place = _place(kind)
        if place not in found:
            # The hash covers the kinds and the versions, as writing the document takes a while.
            names = [each.kind for each in kinds if _place(each) == place]
            tag = document_hash({"kinds": names, "version": __version__})
            found[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={tag}"}
    return found


def document(kinds: Sequence[ApiResource], place: str) -> Json:
    """Return the OpenAPI document of a group and version such as `apis/apps/v1`; may take 0.1 s."""
    ours = [kind for kind in kinds if _place(kind) == place]
    paths: Json = {}
    for kind in ours:
        paths |= _paths(kind)
    return {
        "openapi": "3.0.0",
        "info": {"title": "gpuscale up", "version": f"v{__version__}"},
        "paths": paths,
        "components": {"schemas": _schemas(ours)},
    }


def _schemas(kinds: Sequence[ApiResource]) -> Json:
    """Return the kinds with all types they refer to; kinds of other projects without fields."""
    named = [(kind.group, kind.version, kind.kind) for kind in kinds]
    found: Json = {**schemas_of(named, _SCHEMAS)}
    for kind in kinds:
        whole = found.get(_model(kind))
        if whole is None:
            found[_model(kind)] = _schema(kind)
        else:
            whole["x-kubernetes-group-version-kind"] = [_identity(kind)]
    return found


def definitions(kinds: Sequence[ApiResource]) -> Json:
    """Return the kinds as OpenAPI 2.0 definitions without fields."""
    return {_own_name(kind): _schema(kind) for kind in kinds}


def _place(kind: ApiResource) -> str:
    return f"apis/{kind.group_version}" if kind.group else f"api/{kind.version}"


def _model(kind: ApiResource) -> str:
    return kind_schema_name(kind.group, kind.version, kind.kind) or _own_name(kind)


def _own_name(kind: ApiResource) -> str:
    return f"dev.gpuscale.up.{(kind.group or 'core').replace('-', '_')}.{kind.version}.{kind.kind}"


def _identity(kind: ApiResource) -> Json:
    return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _schema(kind: ApiResource) -> Json:
    text = {"type": "string"}
    return {
        **_OBJECT,
        "description": f"{kind.kind} of the simulated cluster, to be read.",
        "properties": {
            "apiVersion": text,
            "kind": text,
            "metadata": _OBJECT,
            "spec": _OBJECT,
            "status": _OBJECT,
        },
        "x-kubernetes-group-version-kind": [_identity(kind)],
    }


def _paths(kind: ApiResource) -> Json:
    base = f"/{_place(kind)}" + ("/namespaces/{namespace}" if kind.is_namespaced else "")
    reference = {"schema": {"$ref": f"{_SCHEMAS}{_model(kind)}"}}
    answers = {"200": {"description": "OK", "content": {"application/json": reference}}}
    identity = {"x-kubernetes-group-version-kind": _identity(kind)}
    # Writes are refused; kubectl sends them only if this parameter is declared.
    checked = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    write = {"parameters": [checked], "responses": answers, **identity}
    return {
        f"{base}/{kind.plural}": {
            "get": {"x-kubernetes-action": "list", "responses": answers, **identity},
            "post": {"x-kubernetes-action": "post", **write},
        },
        f"{base}/{kind.plural}/{{name}}": {
            "get": {"x-kubernetes-action": "get", "responses": answers, **identity},
            "put": {"x-kubernetes-action": "put", **write},
            "patch": {"x-kubernetes-action": "patch", **write},
        },
    }
