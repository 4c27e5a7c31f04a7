"""Checks plain data against a Kubernetes type: field names and types of values.

The types are those of lightkube-models, which are made from Kubernetes' OpenAPI document.
"""

import importlib
import re
import types
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any, Union

from gpuscale.base.documents.documents import Path, parts_of
from gpuscale.base.words import closest

_UNKNOWN_FIELD = re.compile(r"found ([^ ]+), expected one of the fields ")
_RESTARTS = ("Never", "OnFailure")
_RESTART_POLICY: Path = ("template", "spec", "restartPolicy")
_QUANTITIES = {"limits", "requests"}


def shape_faults(value: object, type_name: str) -> list[str]:
    """Return what Kubernetes would refuse or drop in a value, a text for each fault.

    Args:
        value: as YAML gives it.
        type_name: module and class below `lightkube.models`, such as core_v1.Toleration.
    """
    module, _, name = type_name.partition(".")
    wanted = getattr(importlib.import_module(f"lightkube.models.{module}"), name)
    return list(_faults(value, wanted, ""))


def _faults(value: object, wanted: Any, where: str) -> Iterator[str]:  # noqa: ANN401 - any type hint
    origin = typing.get_origin(wanted)
    if origin in {Union, types.UnionType}:
        kinds = [each for each in typing.get_args(wanted) if each is not type(None)]
        if value is None and len(kinds) < len(typing.get_args(wanted)):
            return
        if len(kinds) == 1:
            yield from _faults(value, kinds[0], where)
        elif not any(not list(_faults(value, each, where)) for each in kinds):
            yield _wrong(value, where, "a number or text")
    elif origin is list:
        (inner,) = typing.get_args(wanted)
        if not isinstance(value, list | tuple):
            yield _wrong(value, where, "a list")
            return
        for index, each in enumerate(value):
            yield from _faults(each, inner, f"{where}[{index}]")
    elif wanted is dict or origin is dict:
        yield from _mapping_faults(value, where)
    elif hasattr(wanted, "__annotations__") and wanted.__module__.startswith("lightkube"):
        yield from _object_faults(value, wanted, where)
    else:
        yield from _scalar_faults(value, wanted, where)


def _object_faults(value: object, wanted: type, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield _wrong(value, where, "a mapping")
        return
    fields = _fields(wanted)
    for name, each in value.items():
        if name in fields:
            yield from _faults(each, fields[name], f"{where}.{name}" if where else name)
        else:
            known = ", ".join(sorted(fields))
            meant = closest(str(name), fields)
            hint = f"; did you mean {meant}?" if meant else ""
            place = f"{where}.{name}" if where else name
            yield f"found {place}, expected one of the fields {known}{hint}"
    for name, hint_type in fields.items():
        if name not in value and type(None) not in typing.get_args(hint_type):
            yield f"found {where} without {name}" if where else f"found no {name}, expected one"


@cache
def _fields(wanted: type) -> dict[str, Any]:
    # Names reserved in Python have a trailing underscore.
    return {name.rstrip("_"): hint for name, hint in typing.get_type_hints(wanted).items()}


def _mapping_faults(value: object, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield _wrong(value, where, "a mapping")
        return
    takes_numbers = where.rpartition(".")[2] in _QUANTITIES
    for name, each in value.items():
        if not isinstance(name, str):
            yield _wrong(name, where, "a name as text")
        if takes_numbers and isinstance(each, int | float) and not isinstance(each, bool):
            continue
        if not isinstance(each, str):
            yield _wrong(each, f"{where}.{name}" if where else name, "text, in quotes")


def _scalar_faults(value: object, wanted: object, where: str) -> Iterator[str]:
    if wanted is str and not isinstance(value, str):
        yield _wrong(value, where, "text, in quotes")
    elif wanted is bool and not isinstance(value, bool):
        yield _wrong(value, where, "true or false")
    elif wanted is int and (isinstance(value, bool) or not isinstance(value, int)):
        yield _wrong(value, where, "a whole number")


def _wrong(value: object, where: str, expected: str) -> str:
    place = f"{where}: " if where else ""
    return f"{place}found {value!r}, expected {expected}"


def job_faults(spec: Any) -> Iterator[tuple[Path, str]]:  # noqa: ANN401 - whatever a file has
    """Yield the faults in a Job's spec, with the API server's messages."""
    faults = shape_faults(spec, "batch_v1.JobSpec")
    yield from map(_placed, faults)
    if faults:
        return
    pod = spec["template"].get("spec") or {}
    if not pod.get("containers"):
        yield ("template",), "found no spec.containers, expected one at least"
    if pod.get("restartPolicy", "Never") not in _RESTARTS:
        found = pod["restartPolicy"]
        yield _RESTART_POLICY, f"found {found}, expected {' or '.join(_RESTARTS)} in a Job"


def _placed(fault: str) -> tuple[Path, str]:
    """Return where a fault of a shape is, and its text without the place."""
    place, colon, text = fault.partition(": ")
    if colon and " " not in place:
        return parts_of(place), text
    unknown = _UNKNOWN_FIELD.match(fault)
    return (parts_of(unknown[1]) if unknown else ()), fault
