"""Doing something again and again at a pace that holds whatever each turn takes."""

from collections.abc import Awaitable, Callable

from gpuscale.core.clock import Clock


async def every(
    clock: Clock, first_ms: int, period_ms: int, action: Callable[[], Awaitable[None]]
) -> None:
    """Do something at `first_ms` and then once per period, for good; a late turn is not made up for."""
    due_ms = first_ms
    while True:
        await clock.sleep((due_ms - clock.now_ms()) / 1000)
        await action()
        late_ms = max(0, clock.now_ms() - due_ms)
        due_ms += period_ms * (1 + late_ms // period_ms)
