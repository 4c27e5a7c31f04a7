"""The chart's values.yaml: every field with its default, and above it what it is for."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from gpuscale.base.documents.described import Schema
from gpuscale.ops.install.pods import ServedPodSettings
from gpuscale.ops.install.values import Values, ValuesSpec

_WIDTH = 100
_LATER = frozenset(ServedPodSettings.model_fields)
"""Fields that all parts have stand behind those of their own."""


def values_reference(schema: Schema) -> str:
    """Return values.yaml, written from the schema of values."""
    return "\n".join(_lines(Values(spec=ValuesSpec()), schema, schema["$defs"], "")) + "\n"


def _lines(
    model: BaseModel, schema: Schema, types: Mapping[str, Schema], indent: str
) -> Iterator[str]:
    fields = type(model).model_fields
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True)
    for name in sorted(fields, key=lambda each: each in _LATER):
        key, value = fields[name].alias or name, getattr(model, name)
        text = schema["properties"][key]["description"]
        yield from textwrap.wrap(
            text,
            _WIDTH,
            initial_indent=f"{indent}# ",
            subsequent_indent=f"{indent}# ",
            break_on_hyphens=False,
            break_long_words=False,
        )
        if isinstance(value, BaseModel):
            yield f"{indent}{key}:"
            yield from _lines(value, types[type(value).__name__], types, f"{indent}  ")
        else:
            yield f"{indent}{key}: {json.dumps(dumped[key], ensure_ascii=False)}"
