"""When to push activity to KEDA: soon enough to wake a workload, and no more often than needed.

Each `true` makes KEDA read the ScaledObject and the scale, and above zero replicas patch a status. It drops
one that comes before it has built the HPA of a new ScaledObject, without a word; so the first is repeated.

Source: KEDA 2.21 pkg/scaling/scale_handler.go (the push loop), pkg/scalers/external_scaler.go.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from gpuscale.triggers import Answer

REPEATS_S = (2.0, 5.0, 15.0)
"""After the first `true` of a stream; KEDA may not have been ready for it."""
_GAP_S = 1.0
"""From one `true` to the next, however fast the activity changes."""


class PushSchedule:
    """The pushes that are due on one stream. Times are monotonic seconds.

    Args:
        interval_s: KEDA's polling interval; while the workload stays active, `true` is repeated as often.
    """

    __slots__ = ("_interval_s", "_last_true_s", "_repeats", "_sent")

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._sent: bool | None = None
        self._last_true_s: float | None = None
        self._repeats: list[float] = []

    def due(self, now_s: float, *, is_active: bool | None) -> bool | None:
        """Return the activity to push now, and count it as pushed; None if no push is due.

        Args:
            now_s: the time.
            is_active: whether the workload is; None where that is not known.
        """
        if is_active is None or (next_s := self.next_s(is_active=is_active)) is None:
            return None
        if now_s < next_s:
            return None
        if is_active:
            if self._last_true_s is None:
                self._repeats = [now_s + after_s for after_s in REPEATS_S]
            self._last_true_s = now_s
            self._repeats = [each for each in self._repeats if each > now_s]
        self._sent = is_active
        return is_active

    def next_s(self, *, is_active: bool | None) -> float | None:
        """Return when the next push is due if the activity stays the same; None for never."""
        if not is_active:
            return float("-inf") if is_active is False and self._sent is not False else None
        if self._last_true_s is None:
            return float("-inf")
        if not self._sent:
            return self._last_true_s + _GAP_S
        return min([self._last_true_s + self._interval_s, *self._repeats])


class PushStream:
    """One stream: pushes a trigger's activity as the schedule says.

    Args:
        interval_s: KEDA's polling interval.
        lifetime_s: after so long the stream ends well; the client opens another one.
    """

    __slots__ = ("_answer", "_fault", "_is_over", "_loop", "_schedule", "_until_s", "_waiter")

    def __init__(self, interval_s: float, lifetime_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._schedule = PushSchedule(interval_s)
        self._until_s = self._loop.time() + lifetime_s
        self._answer: Answer | None = None
        self._fault: Exception | None = None
        self._is_over = False
        self._waiter: asyncio.Future[None] | None = None

    def end(self) -> None:
        """End the stream cleanly."""
        self._is_over = True
        self._wake()

    async def run(self, changes: AsyncIterator[Answer]) -> AsyncIterator[bool]:
        """Yield the activity to push.

        Args:
            changes: of the trigger; its errors are raised here.
        """
        reader = self._loop.create_task(self._follow(changes))
        try:
            while not self._is_over and (now_s := self._loop.time()) < self._until_s:
                if self._fault is not None:
                    raise self._fault
                is_active = None if self._answer is None else self._answer.is_active
                push = self._schedule.due(now_s, is_active=is_active)
                if push is not None:
                    yield push
                    continue
                next_s = self._schedule.next_s(is_active=is_active)
                await self._wait(self._until_s if next_s is None else min(self._until_s, next_s))
        finally:
            reader.cancel()

    async def _follow(self, changes: AsyncIterator[Answer]) -> None:
        try:
            async for answer in changes:
                self._answer = answer
                self._wake()
            self.end()
        except Exception as error:  # noqa: BLE001 - the one who reads the stream raises it
            self._fault = error
            self._wake()
        finally:
            with suppress(AttributeError):  # an iterator need not be a generator
                await changes.aclose()  # type: ignore[attr-defined]

    async def _wait(self, until_s: float) -> None:
        self._waiter = self._loop.create_future()
        timer = self._loop.call_at(until_s, self._wake)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
