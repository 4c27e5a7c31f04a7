"""What the served groups look like, for clients that read OpenAPI. Metrics are parameters, not paths, in it.

Source: OpenAPI 2.0 and 3.0; k8s.io/kube-aggregator v0.30.0 pkg/controllers/openapi (v2) and openapiv3: the
API server fetches both documents, merges the first into its own and passes the second on.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence

from gpuscale import __version__
from gpuscale.metricsapi.bodies import Body
from gpuscale.metricsapi.groups import CUSTOM_GROUP, versions_of

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
_CUSTOM_PATHS = (
    ("namespacedObject", "namespaces/{namespace}/{resource}/{name}/{metric}"),
    ("rootScopedObject", "{resource}/{name}/{metric}"),
    ("namespaceObject", "namespaces/{namespace}/metrics/{metric}"),
)
_EXTERNAL_PATHS = (("external", "namespaces/{namespace}/{metric}"),)


def openapi_v2(groups: Iterable[str]) -> Body:
    """Return the OpenAPI 2.0 document of these groups."""
    paths: Body = {}
    definitions: Body = {}
    for group in groups:
        for version in versions_of(group):
            for identity, path in _paths(group):
                operation = _operation(group, version, identity, path)
                reference = f"#/definitions/{_model(group, version)}List"
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
    reference = f"#/components/schemas/{_model(group, version)}List"
    paths: Body = {
        f"/apis/{group}/{version}/{path}": {
            "get": _v3(_operation(group, version, identity, path), reference)
        }
        for identity, path in _paths(group)
    }
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": f"v{__version__}"},
        "paths": paths,
        "components": {"schemas": _schemas(group, version, "#/components/schemas/")},
    }


def document_hash(body: Body) -> str:
    """Return what stays the same as long as the document does."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest().upper()


def _paths(group: str) -> Sequence[tuple[str, str]]:
    return _CUSTOM_PATHS if group == CUSTOM_GROUP else _EXTERNAL_PATHS


def _operation(group: str, version: str, identity: str, path: str) -> Body:
    is_custom = group == CUSTOM_GROUP
    selectors = _SELECTORS if is_custom else _EXTERNAL_SELECTORS
    inside = [
        {"name": name, "in": "path", "required": True, "description": text}
        for name, text in _PARAMETERS.items()
        if f"{{{name}}}" in path
    ]
    asked = [
        {"name": name, "in": "query", "required": False, "description": text}
        for name, text in selectors.items()
    ]
    tag = f"{'custom' if is_custom else 'external'}Metrics_{version}"
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


def _model(group: str, version: str) -> str:
    kind = "MetricValue" if group == CUSTOM_GROUP else "ExternalMetricValue"
    package = group.split(".", 1)[0]
    return f"io.k8s.metrics.pkg.apis.{package}_metrics.{version}.{kind}"


def _schemas(group: str, version: str, prefix: str) -> Body:
    model = _model(group, version)
    kind = model.rsplit(".", 1)[1]
    item = {"$ref": f"{prefix}{model}"}
    text = {"type": "string"}
    listed: Body = {
        "type": "object",
        "required": ["items"],
        "properties": {
            "kind": text,
            "apiVersion": text,
            "metadata": {"type": "object"},
            "items": {"type": "array", "items": item},
        },
        "x-kubernetes-group-version-kind": [
            {"group": group, "version": version, "kind": f"{kind}List"}
        ],
    }
    return {model: _value_schema(group, version), f"{model}List": listed}


def _value_schema(group: str, version: str) -> Body:
    text: Body = {"type": "string"}
    common: Body = {
        "timestamp": {
            "type": "string",
            "format": "date-time",
            "description": "time of measurement",
        },
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
