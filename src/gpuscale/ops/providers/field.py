"""A provider in a file: its name there, a `Provider` in code."""

from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema
from pydantic_core import PydanticKnownError

from gpuscale.ops.providers.provider import Provider
from gpuscale.ops.providers.registry import DEFAULT, NAMES, either, named


def _provider(value: object) -> Provider:
    if isinstance(value, Provider):
        return value
    found = named(value) if isinstance(value, str) else None
    if found is None:
        # In pydantic's words for a Literal, as for any other choice.
        expected = either(*map(repr, NAMES))
        raise PydanticKnownError("literal_error", {"expected": expected})
    return found


def _name(provider: Provider) -> str:
    return provider.name


ProviderField = Annotated[
    Provider,
    PlainValidator(_provider),
    PlainSerializer(_name, return_type=str),
    WithJsonSchema({"enum": list(NAMES), "type": "string"}),
]
"""Takes a name, or a `Provider`."""


def default_provider() -> Any:  # noqa: ANN401 - as pydantic's Field has it
    """Return the provider of a file that names none."""
    # The schema would contain the default as an object.
    return Field(default_factory=lambda: DEFAULT, json_schema_extra={"default": DEFAULT.name})
