"""What of an object a field manager has applied, read back from the object itself.

Source: kubernetes-sigs/structured-merge-diff, fieldpath (serialize.go): `f:` is a field, `k:` an item of a
list by its keys, `v:` an item of a set by its value, `.` the thing itself.
"""

import json
from collections.abc import Mapping
from typing import Any

_FIELD, _KEYS, _VALUE = "f:", "k:", "v:"


def applied(body: Mapping[str, Any], manager: str) -> dict[str, Any] | None:
    """Return the object that a manager last applied; None where it never did."""
    for entry in body["metadata"].get("managedFields", []):
        if entry.get("manager") == manager and entry.get("operation") == "Apply":
            owned = _part(body, entry["fieldsV1"])
            names = {key: body["metadata"][key] for key in _NAMES if key in body["metadata"]}
            metadata = {**owned.get("metadata", {}), **names}
            kind = {"apiVersion": body["apiVersion"], "kind": body["kind"]}
            return {**owned, **kind, "metadata": metadata}
    return None


_NAMES = ("name", "namespace")


def _part(value: Any, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON of any shape
    inside = {key: sub for key, sub in fields.items() if key != "."}
    if not inside:
        return value
    if isinstance(value, dict):
        names = {key.removeprefix(_FIELD): sub for key, sub in inside.items()}
        return {name: _part(value[name], sub) for name, sub in names.items() if name in value}
    return [_item(value, key, sub) for key, sub in inside.items()]


def _item(items: list[Any], key: str, fields: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON of any shape
    wanted = json.loads(key[len(_KEYS) :])
    if key.startswith(_VALUE):
        return wanted
    found = next(each for each in items if all(each.get(k) == v for k, v in wanted.items()))
    return _part(found, fields)
