"""A long JSON array read slice by slice, so that others on the event loop don't wait for the whole of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

import msgspec

T = TypeVar("T")

LONG_BYTES = 64 * 1024
"""A shorter array is read at once, in a millisecond at most."""
_MAX_TRIES = 64
"""Of finding the end of a slice."""
_BETWEEN = b"},{"


async def read_array(
    body: bytes, decode: Callable[[bytes], Sequence[T]]
) -> AsyncIterator[Sequence[T]]:
    """Yield the items of an array, some at a time; others have their turn in between.

    Args:
        body: the array.
        decode: reads an array at once.

    Raises:
        msgspec.DecodeError: as `decode` does, for what is no array of such items.
    """
    position = 0
    while (found := _slice(body, position, decode)) is not None:
        items, position = found
        yield items
        await asyncio.sleep(0)
    yield decode(body if position == 0 else b"[" + body[position:])


def _slice(
    body: bytes, position: int, decode: Callable[[bytes], Sequence[T]]
) -> tuple[Sequence[T], int] | None:
    """Return the next items, and where the one behind them begins; None where not many are left.

    What lies between two objects can also stand in a text, or further inside. Then what is before it is no
    list of whole items, and the next such place is tried.
    """
    end = position + LONG_BYTES
    before = b"[" if position else b""
    for _ in range(_MAX_TRIES):
        end = body.find(_BETWEEN, end)
        if end < 0:
            return None
        try:
            return decode(before + body[position : end + 1] + b"]"), end + 2
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            end += 1
    return None
