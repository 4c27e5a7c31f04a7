"""Errors of requests to the API server, and its reasons for refusing one.

A refusal is a Status, but few of its fields are certain to be present.

Source: k8s.io/apimachinery v0.36 pkg/apis/meta/v1/types.go (Status, StatusCause) and
pkg/api/validation/objectmeta.go (FieldImmutableErrorMsg).
"""

import json
from dataclasses import dataclass, field

from gpuscale.base.errors import UnavailableError, UpstreamError
from gpuscale.kube.json_values import mapping_of, text_of


class ApiUnreachableError(UnavailableError):
    """The API server can't be reached, or broke off, or answers that it can't serve now."""

    def __init__(self, message: str, code: int | None = None, said: str = "") -> None:
        self.code = code
        """HTTP status code; None where there was no answer."""
        self.said = said
        """The server's own words; empty where it gave none."""
        super().__init__(message)


class ApiStatusError(UpstreamError):
    """The API server refused a request."""

    def __init__(
        self, code: int, message: str, immutable_fields: tuple[str, ...] = (), said: str = ""
    ) -> None:
        self.code = code
        """HTTP status code."""
        self.said = said
        """The server's own words; empty where it gave none."""
        self.immutable_fields = immutable_fields
        """Fields that the request would have changed, and that stay as they are while the object lives."""
        super().__init__(message)


_MAX_MESSAGE = 300
"""Characters; a refused pod template is printed whole."""
_IMMUTABLE = "field is immutable"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason for a refused request."""

    message: str
    immutable_fields: tuple[str, ...] = ()
    """Fields that it would have changed, and that stay as they are while the object lives."""
    said: str = field(default="", compare=False)
    """What the Status says, whole; empty where it says nothing."""


def read_refusal(body: bytes) -> Refusal:
    """Read a refusal's reason; a response that is no Status has none."""
    try:
        status = mapping_of(json.loads(body))
    except (ValueError, RecursionError):
        status = {}
    said = text_of(status.get("message"))
    causes = mapping_of(status.get("details")).get("causes")
    found = [mapping_of(each) for each in (causes if isinstance(causes, list) else ())]
    fields = (
        text_of(cause.get("field"))
        for cause in found
        if text_of(cause.get("message")).endswith(_IMMUTABLE)
    )
    message = said[:_MAX_MESSAGE] or "no reason given"
    return Refusal(message, tuple(filter(None, fields)), said)
