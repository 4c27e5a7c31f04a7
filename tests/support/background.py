"""What runs beside a test, and what a test waits for there."""

import asyncio
from contextlib import asynccontextmanager, suppress


@asynccontextmanager
async def started(coroutine):
    """Run a coroutine until the block ends, and cancel it then."""
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition, limit_s=60):
    """Return once a function returns something true; raise TimeoutError after so many seconds."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.02)
