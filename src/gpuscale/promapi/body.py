"""The bodies of answers, as JSON that is written piece by piece.

A whole answer handed to the encoder at once would keep every other thread waiting until it is done.
"""

import json
from collections.abc import Iterable
from typing import Any

from gpuscale.core.errors import QueryError
from gpuscale.series.budget import Check

MAX_BODY_BYTES = 64 * 1024 * 1024
"""Bytes of one answer."""


def query_body(kind: str, result: Iterable[Any], warnings: list[str], check: Check) -> bytes:
    """Return the answer to a query.

    Args:
        kind: the `resultType`.
        result: the pieces of the `result`.
        warnings: beside the result; may be empty.
        check: raises once the query has to stop.

    Raises:
        QueryError: the answer is too large.
    """
    beside = f',"warnings":{_text(warnings)}' if warnings else ""
    head = f'{{"status":"success","data":{{"resultType":"{kind}","result":['
    return _written(head, result, f"]}}{beside}}}", check)


def list_body(data: Iterable[Any], check: Check) -> bytes:
    """Return an answer whose data is a list.

    Raises:
        QueryError: the answer is too large.
    """
    return _written('{"status":"success","data":[', data, "]}", check)


def plain_body(body: dict[str, Any]) -> bytes:
    """Return a small answer or an error."""
    return _text(body).encode(errors="replace")


def _written(head: str, pieces: Iterable[Any], tail: str, check: Check) -> bytes:
    written = bytearray(head.encode())
    for number, piece in enumerate(pieces):
        if number:
            written += b","
        written += _text(piece).encode(errors="replace")
        if len(written) > MAX_BODY_BYTES:
            raise QueryError(
                f"the answer is larger than {MAX_BODY_BYTES} bytes; "
                "ask for fewer series or a larger step"
            )
        if not number % 256:
            check()
    return bytes(written + tail.encode())


def _text(data: Any) -> str:  # noqa: ANN401 - JSON
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))
