"""Kubernetes' types as OpenAPI schemas, with its descriptions of fields."""

import importlib
import inspect
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

Json = dict[str, Any]
_PLAIN: Mapping[Any, Json] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
    dict: {"type": "object", "additionalProperties": {"type": "string"}},
}
_ANYTHING: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_PARAMETERS = "**parameters**"
_PARAMETER = re.compile(
    r"^\* \*\*(\w+)\*\* ``.*?``(?: - (.*?))?(?=^\* \*\*|\Z)", re.DOTALL | re.MULTILINE
)


def schemas_of(kinds: Iterable[tuple[str, str, str]], root: str) -> dict[str, Json]:
    """Return the schemas of kinds and of all types they refer to, by name.

    Kinds that are not Kubernetes' own are left out.

    Args:
        kinds: group, version and kind of each.
        root: what references to schemas begin with.
    """
    found: dict[str, Json] = {}
    waiting = [model for each in kinds if (model := _model(*each)) is not None]
    while waiting:
        model = waiting.pop()
        name = schema_name(model)
        if name not in found:
            found[name], others = _schema(model, root)
            waiting += others
    return found


def kind_schema_name(group: str, version: str, kind: str) -> str | None:
    """Return the name of a kind's schema; None for one that is not Kubernetes' own."""
    model = _model(group, version, kind)
    return None if model is None else schema_name(model)


def schema_name(model: type) -> str:
    """Return the name of a type's schema, such as `io.k8s.apps_v1.Deployment`."""
    return f"io.k8s.{model.__module__.rpartition('.')[2]}.{model.__name__}"


def _model(group: str, version: str, kind: str) -> type | None:
    found = getattr(_models(f"{group.partition('.')[0] or 'core'}_{version}"), kind, None)
    return found if isinstance(found, type) else None


def _models(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(f"lightkube.models.{name}")
    except ModuleNotFoundError:
        return None


def _schema(model: type, root: str) -> tuple[Json, list[type]]:
    """Return a type's schema, and the types that it refers to."""
    text, _, parameters = inspect.cleandoc(model.__doc__ or "").partition(_PARAMETERS)
    said = {
        name: " ".join((words or "").split())
        for name, words in _PARAMETER.findall(parameters.strip())
    }
    hints = get_type_hints(model)
    # A field whose name is reserved in Python, such as `from`, has another attribute name.
    wire = dict(zip(model.__struct_fields__, model.__struct_encode_fields__, strict=True))  # type: ignore[attr-defined]
    properties: Json = {}
    others: list[type] = []
    for name, encoded in wire.items():
        body = _of_type(hints[name], root, others)
        if description := said.get(name):
            body = {"allOf": [body]} if "$ref" in body else body
            body = {"description": description, **body}
        properties[encoded] = body
    required = [wire[name] for name in wire if not _is_optional(hints[name])]
    schema: Json = {
        "type": "object",
        "description": " ".join(text.split()),
        "properties": properties,
    }
    if required:
        schema["required"] = required
    return schema, others


def _is_optional(hint: object) -> bool:
    return get_origin(hint) in (Union, UnionType) and type(None) in get_args(hint)


def _of_type(hint: object, root: str, others: list[type]) -> Json:
    """Return a field type's schema, and record the types it refers to."""
    arguments = [each for each in get_args(hint) if each is not type(None)]
    match get_origin(hint):
        case origin if origin in (Union, UnionType):
            if len(arguments) == 1:
                return _of_type(arguments[0], root, others)
            return {"type": "string", "x-kubernetes-int-or-string": True}
        case origin if origin is list:
            return {"type": "array", "items": _of_type(arguments[0], root, others)}
        case origin if origin is dict and arguments:
            return {"type": "object", "additionalProperties": _of_type(arguments[1], root, others)}
    if hint in _PLAIN:
        return dict(_PLAIN[hint])
    if isinstance(hint, type) and hasattr(hint, "__struct_fields__"):
        others.append(hint)
        return {"$ref": f"{root}{schema_name(hint)}"}
    return dict(_ANYTHING)
