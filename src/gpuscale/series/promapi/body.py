"""Response bodies and errors in Prometheus' words, encoded as JSON piece by piece.

A whole answer handed to the encoder at once would keep every other thread waiting until it is done.
"""

import json
from collections.abc import Iterable
from io import BytesIO
from typing import Any

import msgspec

from gpuscale.base.errors import GpuscaleError
from gpuscale.series.promql.budget import Budget, Check

_BYTES_PER_CHECK = 65_536
_encode = msgspec.json.Encoder().encode


def query_body(kind: str, result: Iterable[bytes], warnings: list[str], check: Check) -> bytes:
    """Return the response to a query.

    Args:
        kind: the `resultType`.
        result: the elements of the `result`, as JSON.
        warnings: beside the result; may be empty.
        check: raises once the query has to stop.

    Raises:
        TooManyBytesError: the answer is too large.
    """
    beside = f',"warnings":{_text(warnings)}' if warnings else ""
    head = f'{{"status":"success","data":{{"resultType":"{kind}","result":['
    return _written(head, result, f"]}}{beside}}}", check)


def list_body(data: Iterable[Any], check: Check) -> bytes:
    """Return a response whose data is a list.

    Raises:
        TooManyBytesError: the answer is too large.
    """
    return _written('{"status":"success","data":[', map(encoded, data), "]}", check)


def plain_body(body: dict[str, Any]) -> bytes:
    """Return a small response or an error."""
    return _text(body).encode(errors="replace")


def _written(head: str, pieces: Iterable[bytes], tail: str, check: Check) -> bytes:
    budget = Budget.of(check)
    written = BytesIO()
    size = written.write(head.encode())
    counted = 0
    for number, piece in enumerate(pieces):
        if number:
            size += written.write(b",")
        size += written.write(piece)
        if size >= counted:
            budget()
            budget.hold(_BYTES_PER_CHECK)
            counted += _BYTES_PER_CHECK
    written.write(tail.encode())
    # The buffer is handed over without a copy.
    return written.getvalue()


def encoded(data: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return a part of a response as JSON; invalid text is replaced."""
    try:
        return _encode(data)
    except UnicodeEncodeError:
        return _text(data).encode(errors="replace")


def _text(data: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


class ApiError(GpuscaleError):
    """An error response.

    Args:
        status: HTTP status code.
        error_type: Prometheus' word for the kind, such as `bad_data` or `execution`.
        text: what is wrong.
    """

    def __init__(self, status: int, error_type: str, text: str) -> None:
        self.status = status
        self.error_type = error_type
        self.text = text
        super().__init__(text)


def bad_data(text: str) -> ApiError:
    """Return the error for an invalid request."""
    return ApiError(400, "bad_data", text)


def execution(text: str) -> ApiError:
    """Return the error for a query that failed on the data."""
    return ApiError(422, "execution", text)


def timed_out(text: str) -> ApiError:
    """Return the error for a query that took too long."""
    return ApiError(503, "timeout", text)
