"""Reads plain data into dataclasses, and collects all faults.

For what a server reads at its start: pydantic, which does more, costs it 4 MiB and a tenth of that time. The
faults are named as pydantic names them, so that one set of words serves both (`base.documents.validation`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Fault = dict[str, Any]
"""`type`, `loc`, `msg` and `ctx`, as pydantic's."""
_KEY = "key"
TAKES_MORE = "takes_more_keys"
"""Attribute of a class whose mappings may have keys that it does not know."""


def under(key: str) -> Mapping[str, str]:
    """Return field metadata with the field's key in files, if it differs from its name."""
    return {_KEY: key}


def read_shape(kind: type[T], data: object) -> tuple[T | None, Sequence[Fault]]:
    """Return an object read from plain data and no faults, or None and all faults.

    Nothing is converted: `1` is no text. A key without a value counts as absent, as in Go. Where a class
    raises ValueError in its `__post_init__`, that is a fault of its mapping.

    Args:
        kind: a dataclass, or a list of one; fields may be `str`, `bool`, `Any`, a Literal of texts, another
            dataclass, and lists, mappings by text and optional ones of these.
        data: as YAML holds it.
    """
    faults: list[Fault] = []
    found = _read(kind, data, (), faults)
    return (None, faults) if faults else (found, ())


def schema_of(kind: Any) -> Mapping[str, Any]:  # noqa: ANN401 - any kind of `read_shape`
    """Return the field names in the form of a JSON schema."""
    kind = _without_none(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return {"properties": {each: schema_of(hint) for each, _, hint in _fields(kind)}}
    if get_origin(kind) is list:
        return {"items": schema_of(get_args(kind)[0])}
    if get_origin(kind) is dict:
        return {"additionalProperties": schema_of(get_args(kind)[1])}
    return {}


def _read(kind: Any, data: object, path: tuple[str | int, ...], faults: list[Fault]) -> Any:  # noqa: ANN401
    """Return data read as a type; anything if there are faults."""
    kind = _without_none(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return _read_mapping(kind, data, path, faults)
    origin = get_origin(kind)
    if origin is list:
        if isinstance(data, list):
            (inner,) = get_args(kind)
            return [_read(inner, each, (*path, i), faults) for i, each in enumerate(data)]
        faults.append(_fault("list_type", path))
    elif origin is dict:
        if isinstance(data, dict):
            inner = get_args(kind)[1]
            return {key: _read(inner, each, (*path, key), faults) for key, each in data.items()}
        faults.append(_fault("dict_type", path))
    elif origin is Literal:
        if not isinstance(data, str) or data not in get_args(kind):
            expected = " or ".join(repr(each) for each in get_args(kind))
            faults.append({**_fault("literal_error", path), "ctx": {"expected": expected}})
    elif kind is not Any and not isinstance(data, kind):
        faults.append(_fault({str: "string_type", bool: "bool_type"}[kind], path))
    return data


def _read_mapping(
    kind: type, data: object, path: tuple[str | int, ...], faults: list[Fault]
) -> object:
    if not isinstance(data, dict):
        faults.append(_fault("model_type", path))
        return None
    given = {key: value for key, value in data.items() if value is not None}
    before, values = len(faults), {}
    for key, each, hint in _fields(kind):
        if key in given:
            values[each.name] = _read(hint, given.pop(key), (*path, key), faults)
        elif each.default is MISSING and each.default_factory is MISSING:
            faults.append(_fault("missing", (*path, key)))
    if not getattr(kind, TAKES_MORE, False):
        faults += (_fault("extra_forbidden", (*path, key)) for key in given)
    if len(faults) > before:
        return None
    try:
        return kind(**values)
    except ValueError as error:
        faults.append({**_fault("value_error", path), "msg": str(error)})
        return None


@lru_cache(maxsize=64)
def _fields(kind: type) -> tuple[tuple[str, "Field[Any]", Any], ...]:
    """Return key, field and type of each field."""
    hints = get_type_hints(kind)
    return tuple(
        (each.metadata.get(_KEY, each.name), each, hints[each.name]) for each in fields(kind)
    )


def _without_none(kind: Any) -> Any:  # noqa: ANN401 - as `_read`
    """Return a type without None, as keys without value are dropped before."""
    if get_origin(kind) in {Union, UnionType}:
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    return kind


def _fault(name: str, path: tuple[str | int, ...]) -> Fault:
    return {"type": name, "loc": path, "msg": name}
