"""Values of HPA fields, with faults in the API server's words.

Source: kubernetes v1.36 pkg/apis/autoscaling/validation/validation.go, v1/conversion.go;
    k8s.io/apimachinery v0.36 pkg/util/validation/field/errors.go.
"""

import json
from collections.abc import Iterable

from gpuscale.base.documents.documents import Path
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa.types import CrossVersionObjectReference
from gpuscale.base.quantity import Quantity

_MAX_INT32 = (1 << 31) - 1


def read_reference(fields: Fields) -> CrossVersionObjectReference:
    """Return the object that a reference names."""
    version = fields.text("apiVersion")
    if version.count("/") > 1:
        note_invalid(fields, "apiVersion", version, f"unexpected GroupVersion string: {version}")
    return CrossVersionObjectReference(
        kind=path_segment(fields, "kind"), name=path_segment(fields, "name"), api_version=version
    )


# Annotations in which old API versions keep fields they lack


def annotation_json(fields: Fields, key: str, *, go_names: bool = False) -> object | None:
    """Return the JSON of an annotation, or None where there is none to read."""
    text = mapping(mapping(fields.data.get("metadata")).get("annotations")).get(key)
    if not isinstance(text, str):
        return None
    try:
        data = json.loads(text)
        return _lower_initials(data) if go_names else data
    except (ValueError, RecursionError):
        fix = "the API server would pass over it; write it as a field of autoscaling/v2"
        path = ("metadata", "annotations", key)
        fields.note(path, "JSON", found="text that is not JSON", fix=fix)
        return None


def annotated_fields(fields: Fields, key: str, data: object) -> Fields:
    """Return the fields in an annotation's JSON, which record faults under its key."""
    path = ("metadata", "annotations")
    return Fields(fields.document, {key: data}, (*fields.path, *path), fields.problems)


def _lower_initials(data: object) -> object:
    """Return the data with `ScaleUp` as `scaleUp`: the API server writes Go's own names there."""
    if isinstance(data, dict):
        return {key[:1].lower() + key[1:]: _lower_initials(value) for key, value in data.items()}
    if isinstance(data, list):
        return [_lower_initials(item) for item in data]
    return data


def mapping(data: object) -> dict[str, object]:
    """Return a mapping, empty where the data is something else."""
    return data if isinstance(data, dict) else {}


def int32(fields: Fields, key: str) -> int | None:
    """Return a number that Go's int32 holds; None where there is none."""
    number = fields.integer(key)
    if number is not None and abs(number) > _MAX_INT32:
        fields.note((key,), f"a whole number of at most {_MAX_INT32}", found="a larger one")
        return None
    return number


def positive_quantity(fields: Fields, key: str) -> Quantity | None:
    """Return a quantity, noting one that is not above 0."""
    quantity = fields.quantity(key)
    if quantity is not None and quantity.nano <= 0:
        note_invalid(fields, key, str(quantity), "must be positive")
    return quantity


def utilization(fields: Fields, key: str) -> int | None:
    """Return a percentage, noting one below 1."""
    percent = int32(fields, key)
    if percent is not None and percent < 1:
        note_invalid(fields, key, percent, "must be greater than 0")
    return percent


def path_segment(fields: Fields, key: str, detail: str = "") -> str:
    """Return a text that can be part of a path of the API."""
    text = fields.text(key)
    if not text:
        note_required(fields, key, detail)
    if text in {".", ".."}:
        note_invalid(fields, key, text, f"may not be '{text}'")
    for character in "/%":
        if character in text:
            note_invalid(fields, key, text, f"may not contain '{character}'")
    return text


def note_required(fields: Fields, key: str | Path, detail: str = "") -> None:
    """Note a field that is missing."""
    fields.note(_path(key), f"Required value: {detail}" if detail else "Required value")


def note_forbidden(fields: Fields, key: str | Path, detail: str) -> None:
    """Note a field that does not belong there."""
    fields.note(_path(key), f"Forbidden: {detail}")


def note_invalid(fields: Fields, key: str | Path, value: str | int, detail: str) -> None:
    """Note a wrong value."""
    fields.note(_path(key), f"Invalid value: {quoted(value)}: {detail}")


def note_unsupported(fields: Fields, key: str, value: str, supported: Iterable[str]) -> None:
    """Note a value that is not among the possible ones."""
    names = ", ".join(f'"{name}"' for name in supported)
    fields.note((key,), f"Unsupported value: {quoted(value)}: supported values: {names}")


def _path(key: str | Path) -> Path:
    return (key,) if isinstance(key, str) else key


def quoted(value: str | int) -> str:
    """Return a value as JSON, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace").decode()
    return text if len(text) <= 300 else text[:300] + '..."'
