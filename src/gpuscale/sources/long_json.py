"""A long JSON document read item by item, so that others on the event loop don't wait for the whole of it."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

LONG_BYTES = 64 * 1024
"""A shorter document is read at once, in a millisecond at most."""
_SLICE_CHARS = 12 * 1024
_MAX_TRIES = 64
"""Of finding the end of a slice."""
_HEAD_CHARS = 512
"""Within which the array begins, if the document is one of those that this is for."""
_BETWEEN = "},{"
_DECODER = json.JSONDecoder()


class LongArray(NamedTuple):
    """An array of a document, and the document without it."""

    items: list[Any]
    rest: Any
    """The document, with an empty array in its place."""


async def read_array(body: bytes, key: str, read: Callable[[Any], T]) -> LongArray | None:
    """Return the array below the first `key` of a document, each item as `read` makes it.

    None stands for a document that has no such array near its beginning, or is not JSON: whoever reads it at
    once finds out which.
    """
    try:
        text = body.decode()
        start = _start(text, key)
        if start is None:
            return None
        items, end = await _items(text, start, read)
        return LongArray(items, json.loads(text[:start] + text[end:]))
    except (ValueError, RecursionError):
        return None


def _start(text: str, key: str) -> int | None:
    """Return where the array's first item is; a quote inside of a text has a backslash, so this is a key."""
    found = text.find(f'"{key}":[', 0, _HEAD_CHARS)
    return None if found < 0 else found + len(key) + 4


async def _items(text: str, position: int, read: Callable[[Any], T]) -> tuple[list[T], int]:
    """Return the items, and where they end."""
    found: list[T] = []
    while (slice_ := _slice(text, position)) is not None:
        items, position = slice_
        found += map(read, items)
        await asyncio.sleep(0)
    items, length = _DECODER.raw_decode(f"[{text[position:]}")
    found += map(read, items)
    return found, position + length - 2


def _slice(text: str, position: int) -> tuple[list[Any], int] | None:
    """Return the next items, and where the one behind them begins; None where not many are left.

    What lies between two objects can also stand in a text, or further inside. Then what is before it is no
    list of whole items, and the next such place is tried.
    """
    end = position + _SLICE_CHARS
    for _ in range(_MAX_TRIES):
        end = text.find(_BETWEEN, end)
        if end < 0:
            return None
        try:
            return json.loads(f"[{text[position : end + 1]}]"), end + 2
        except ValueError:
            end += 1
    return None
