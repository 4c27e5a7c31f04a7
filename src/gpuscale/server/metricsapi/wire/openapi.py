"""What the served groups look like, for clients that read OpenAPI. Metrics are parameters, not paths, in it.

Source: OpenAPI 2.0 and 3.0; k8s.io/kube-aggregator v0.30.0 pkg/controllers/openapi (v2) and openapiv3: the
API server fetches both documents, merges the first into its own and passes the second on.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence

from gpuscale import __version__
from gpuscale.server.metricsapi.wire.bodies import Body
from gpuscale.server.metricsapi.wire.paths import (
    CUSTOM_GROUP,
    EXTERNAL_GROUP,
    RESOURCE_GROUP,
    versions_of,
)

_TITLE = "gpuscale metrics APIs"
_PARAMETERS = {
    "namespace": "namespace of the object",
    "resource": "resource of the object, plural or singular, such as pods or deployments.apps",
    "name": "name of the object; * for all that labelSelector selects",
    "metric": "name of the metric",
}
_SELECTORS = {
    "labelSelector": "conditions on the labels of the objects",
    "metricLabelSelector": "conditions on the labels of the series",
}
_EXTERNAL_SELECTORS = {"labelSelector": "conditions on the labels of the series"}
_USAGE_SELECTORS = {
    "labelSelector": "conditions on the labels of the objects",
    "fieldSelector": "conditions on metadata.name and metadata.namespace",
}
_CUSTOM_PATHS = (
    ("namespacedObject", "namespaces/{namespace}/{resource}/{name}/{metric}"),
    ("rootScopedObject", "{resource}/{name}/{metric}"),
    ("namespaceObject", "namespaces/{namespace}/metrics/{metric}"),
)
_EXTERNAL_PATHS = (("external", "namespaces/{namespace}/{metric}"),)
_USAGE_PATHS = (
    ("nodes", "nodes"),
    ("node", "nodes/{name}"),
    ("allPods", "pods"),
    ("pods", "namespaces/{namespace}/pods"),
    ("pod", "namespaces/{namespace}/pods/{name}"),
)
_PATHS = {
    CUSTOM_GROUP: _CUSTOM_PATHS,
    EXTERNAL_GROUP: _EXTERNAL_PATHS,
    RESOURCE_GROUP: _USAGE_PATHS,
}
_QUERIES = {
    CUSTOM_GROUP: _SELECTORS,
    EXTERNAL_GROUP: _EXTERNAL_SELECTORS,
    RESOURCE_GROUP: _USAGE_SELECTORS,
}
_TAGS = {CUSTOM_GROUP: "custom", EXTERNAL_GROUP: "external", RESOURCE_GROUP: "resource"}
_KINDS = {
    CUSTOM_GROUP: ("MetricValue",),
    EXTERNAL_GROUP: ("ExternalMetricValue",),
    RESOURCE_GROUP: ("NodeMetrics", "PodMetrics"),
}
_PACKAGES = {
    CUSTOM_GROUP: "custom_metrics",
    EXTERNAL_GROUP: "external_metrics",
    RESOURCE_GROUP: "metrics",
}


def openapi_v2(groups: Iterable[str]) -> Body:
    """Return the OpenAPI 2.0 document of these groups."""
    paths: Body = {}
    definitions: Body = {}
    for group in groups:
        for version in versions_of(group):
            for identity, path in _paths(group):
                operation = _operation(group, version, identity, path)
                reference = f"#/definitions/{_answer(group, version, path)}"
                paths[f"/apis/{group}/{version}/{path}"] = {"get": _v2(operation, reference)}
            definitions |= _schemas(group, version, "#/definitions/")
    return {
        "swagger": "2.0",
        "info": {"title": _TITLE, "version": f"v{__version__}"},
        "paths": paths,
        "definitions": definitions,
    }


def openapi_v3_index(groups: Iterable[str]) -> Body:
    """Return where the OpenAPI 3.0 document of each group and version is."""
    paths: Body = {}
    for group in groups:
        for version in versions_of(group):
            place = f"apis/{group}/{version}"
            tag = document_hash(openapi_v3(group, version))
            paths[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={tag}"}
    return {"paths": paths}


def openapi_v3(group: str, version: str) -> Body:
    """Return the OpenAPI 3.0 document of one group and version."""
    prefix = "#/components/schemas/"
    paths: Body = {
        f"/apis/{group}/{version}/{path}": {
            "get": _v3(
                _operation(group, version, identity, path),
                f"{prefix}{_answer(group, version, path)}",
            )
        }
        for identity, path in _paths(group)
    }
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": f"v{__version__}"},
        "paths": paths,
        "components": {"schemas": _schemas(group, version, prefix)},
    }


def document_hash(body: Body) -> str:
    """Return a hash that changes when the document does."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest().upper()


def _paths(group: str) -> Sequence[tuple[str, str]]:
    return _PATHS[group]


def _operation(group: str, version: str, identity: str, path: str) -> Body:
    is_single_usage = group == RESOURCE_GROUP and "{name}" in path
    selectors = {} if is_single_usage else _QUERIES[group]
    inside = [
        {"name": name, "in": "path", "required": True, "description": text}
        for name, text in _PARAMETERS.items()
        if f"{{{name}}}" in path
    ]
    asked = [
        {"name": name, "in": "query", "required": False, "description": text}
        for name, text in selectors.items()
    ]
    tag = f"{_TAGS[group]}Metrics_{version}"
    return {
        "description": "read metric values",
        "operationId": f"get{tag[0].upper()}{tag[1:]}_{identity}",
        "tags": [tag],
        "parameters": [*inside, *asked],
    }


def _v2(operation: Body, reference: str) -> Body:
    parameters = [
        {**each, "type": "string", "uniqueItems": True} for each in _bodies(operation["parameters"])
    ]
    answer = {"description": "OK", "schema": {"$ref": reference}}
    return {
        **operation,
        "parameters": parameters,
        "produces": ["application/json"],
        "schemes": ["https"],
        "responses": {"200": answer},
    }


def _v3(operation: Body, reference: str) -> Body:
    parameters = [
        {**each, "schema": {"type": "string"}} for each in _bodies(operation["parameters"])
    ]
    content = {"application/json": {"schema": {"$ref": reference}}}
    return {
        **operation,
        "parameters": parameters,
        "responses": {"200": {"description": "OK", "content": content}},
    }


def _bodies(value: object) -> list[Body]:
    return value if isinstance(value, list) else []


def _model(group: str, version: str, kind: str) -> str:
    return f"io.k8s.metrics.pkg.apis.{_PACKAGES[group]}.{version}.{kind}"


def _answer(group: str, version: str, path: str) -> str:
    """Return the model of a path's response: a list, or one object of resource metrics."""
    kinds = _KINDS[group]
    kind = next((each for each in kinds if each.removesuffix("Metrics").lower() in path), kinds[0])
    is_single = group == RESOURCE_GROUP and "{name}" in path
    return _model(group, version, kind if is_single else f"{kind}List")


def _schemas(group: str, version: str, prefix: str) -> Body:
    found: Body = {}
    for kind in _KINDS[group]:
        model = _model(group, version, kind)
        listed: Body = {
            "type": "object",
            "required": ["items"],
            "properties": {
                **_typed(),
                "metadata": {"type": "object"},
                "items": {"type": "array", "items": {"$ref": f"{prefix}{model}"}},
            },
            **_named_kind(group, version, f"{kind}List"),
        }
        found |= {model: _item_schema(group, version, kind), f"{model}List": listed}
    return found


def _typed() -> Body:
    return {"kind": {"type": "string"}, "apiVersion": {"type": "string"}}


def _named_kind(group: str, version: str, kind: str) -> Body:
    return {"x-kubernetes-group-version-kind": [{"group": group, "version": version, "kind": kind}]}


def _item_schema(group: str, version: str, kind: str) -> Body:
    if group != RESOURCE_GROUP:
        return _value_schema(group, version)
    text: Body = {"type": "string"}
    usage: Body = {
        "type": "object",
        "description": "quantities of cpu and memory",
        "additionalProperties": text,
    }
    container: Body = {"type": "object", "properties": {"name": text, "usage": usage}}
    used: Body = {"usage": usage}
    if kind == "PodMetrics":
        used = {"containers": {"type": "array", "items": container}}
    properties = {
        **_typed(),
        "metadata": {"type": "object"},
        "timestamp": _TIMESTAMP,
        "window": {"type": "string", "description": "how long before timestamp was measured"},
        **used,
    }
    return {"type": "object", "properties": properties, **_named_kind(group, version, kind)}


_TIMESTAMP = {
    "type": "string",
    "format": "date-time",
    "description": "time of measurement",
}


def _value_schema(group: str, version: str) -> Body:
    text: Body = {"type": "string"}
    common: Body = {
        "timestamp": _TIMESTAMP,
        "value": {"type": "string", "description": "quantity"},
    }
    selector: Body = {"type": "object", "description": "conditions on the labels of the series"}
    named: Body
    if group != CUSTOM_GROUP:
        labels = {"type": "object", "additionalProperties": text}
        named = {"metricName": text, "metricLabels": labels}
    else:
        reference = {"type": "object", "description": "the object that the value is of"}
        named = {"describedObject": reference}
        if version == "v1beta1":
            named |= {"metricName": text, "selector": selector}
        else:
            metric = {"type": "object", "properties": {"name": text, "selector": selector}}
            named |= {"metric": metric}
    return {"type": "object", "properties": {**named, **common}}
