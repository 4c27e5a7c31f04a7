"""Several requests at a time, so that a hundred silent agents don't take a hundred time limits."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")
_MOST = 16


async def at_once(calls: Iterable[Coroutine[Any, Any, T]]) -> tuple[T, ...]:
    """Return what each call gives, in their order; no more than 16 run at a time."""
    free = asyncio.Semaphore(_MOST)

    async def run(call: Coroutine[Any, Any, T]) -> T:
        async with free:
            return await call

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(call)) for call in calls]
    return tuple(task.result() for task in tasks)
