"""What models of our own files share: API version, camelCase fields, durations."""

from collections.abc import Iterable
from typing import Annotated, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
)
from pydantic.alias_generators import to_camel
from pydantic_core import InitErrorDetails, PydanticCustomError

from gpuscale.base.documents.documents import Document, Path, load_documents
from gpuscale.base.documents.validation import REFUSED, validation_problems
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.golang.durations import MAX_DURATION_MS, format_duration, parse_duration_ms

API_VERSION = "gpuscale.dev/v1alpha1"


def _duration(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"found {value!r}, expected a duration such as 15s, 5m or 1h30m")
    return parse_duration_ms(value)


Milliseconds = Annotated[
    int,
    BeforeValidator(_duration, json_schema_input_type=str | float),
    PlainSerializer(format_duration, return_type=str),
]
"""A duration: text such as `15s` or a number of seconds in the file, whole milliseconds in the code."""

PositiveDuration = Annotated[Milliseconds, Field(gt=0, le=MAX_DURATION_MS)]


class Model(BaseModel):
    """The base of all models in files: camelCase names, no unknown fields, immutable."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, strict=False
    )


M = TypeVar("M", bound=Model)


def refused(model: type[Model], faults: Iterable[tuple[Path, str]]) -> ValidationError:
    """Return the exception that a model's validator raises for faults in fields.

    Args:
        model: the model.
        faults: where each is, below the model and named as in the file, and its whole text.
    """
    return ValidationError.from_exception_data(
        model.__name__,
        [
            InitErrorDetails(
                type=PydanticCustomError(REFUSED, "{text}", {"text": text}), loc=path, input=None
            )
            for path, text in faults
        ],
    )


def parse_file(model: type[M], text: str, source: str) -> tuple[M, Document]:
    """Parse a file with one document; return its model and the document, which knows its lines.

    Raises:
        ConfigError: not one YAML document, or fields that are missing, unknown or wrong; all of them.
    """
    document = load_one(model, text, source)
    return parse_document(model, document), document


def load_one(model: type[Model], text: str, source: str) -> Document:
    """Return a file's only document.

    Raises:
        ConfigError: it has none, or several.
    """
    documents = load_documents(text, source)
    if len(documents) != 1:
        found, expected = f"{len(documents)} documents", f"one {model.__name__} document"
        raise ConfigError(Problem(source, None, None, found, expected))
    return documents[0]


def parse_document(model: type[M], document: Document) -> M:
    """Parse a document into a model.

    Raises:
        ConfigError: fields are missing, unknown or wrong; all of them.
    """
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        found_errors = error.errors(include_url=False)
        schema = model.model_json_schema
        raise ConfigError(*validation_problems(document, found_errors, schema)) from None
