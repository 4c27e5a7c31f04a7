"""What runs beside a test, and what a test waits for there."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

T = TypeVar("T")


@asynccontextmanager
async def started(coroutine: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
    """Run a coroutine until the block ends, and cancel it then."""
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], object], limit_s: float = 60) -> None:
    """Return once a function returns something true; raise TimeoutError after so many seconds."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.02)
