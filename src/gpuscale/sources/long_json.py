"""A long JSON document read item by item, so that others on the event loop don't wait for the whole of it."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

LONG_BYTES = 64 * 1024
"""A shorter document is read at once, in a millisecond at most."""
_ITEMS_AT_ONCE = 256
_HEAD_CHARS = 512
"""Within which the array begins, if the document is one of those that this is for."""
_BLANKS = " \t\r\n"
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
    found: list[T] = []
    position = _after_blanks(text, position)
    while text[position : position + 1] != "]":
        value, position = _DECODER.raw_decode(text, position)
        found.append(read(value))
        if len(found) % _ITEMS_AT_ONCE == 0:
            await asyncio.sleep(0)
        position = _after_blanks(text, position)
        if text[position : position + 1] == ",":
            position = _after_blanks(text, position + 1)
        elif text[position : position + 1] != "]":
            raise ValueError(position)
    return found, position


def _after_blanks(text: str, position: int) -> int:
    while text[position : position + 1] in _BLANKS and position < len(text):
        position += 1
    return position
