"""The stream's subscribers: each has a bounded queue, and one that falls behind is disconnected."""

import asyncio
from collections import Counter as Tally
from collections.abc import Iterable, Mapping

from gpuscale.base.exposition.families import Family
from gpuscale.base.exposition.stream import StreamEncoder, end_line

MAX_SUBSCRIBERS = 64
"""Guards the agent's memory: each may have a queue full of lines."""
QUEUED_LINES = 32
"""How many ticks a subscriber may be behind."""
TOO_SLOW = "too_slow"
STOPPING = "stopping"


class Subscriber:
    """A reader of the stream: its queue, and the reason when it is disconnected."""

    def __init__(self, first: bytes) -> None:
        self._queue: asyncio.Queue[bytes] = asyncio.Queue(QUEUED_LINES)
        self._queue.put_nowait(first)
        self._reason: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def line(self) -> bytes:
        return await self._queue.get()

    async def dismissed(self) -> bytes:
        """Wait until the subscriber is to be disconnected, and return its last line."""
        return end_line(await asyncio.shield(self._reason))

    def offer(self, line: bytes) -> bool:
        """Queue a line; return whether there was room."""
        try:
            self._queue.put_nowait(line)
        except asyncio.QueueFull:
            return False
        return True

    def dismiss(self, reason: str) -> None:
        """Let `dismissed` return."""
        if not self._reason.done():
            self._reason.set_result(reason)


class Subscribers:
    """All subscribers of one agent; a tick is encoded once for all of them."""

    def __init__(self) -> None:
        self._encoder = StreamEncoder()
        self._members: set[Subscriber] = set()
        self._dropped: Tally[str] = Tally({TOO_SLOW: 0})

    def __len__(self) -> int:
        return len(self._members)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Return how many subscribers were disconnected, by reason."""
        return dict(self._dropped)

    def join(
        self, families: Iterable[Family], measured_ms: int, error: str | None
    ) -> Subscriber | None:
        """Return a new subscriber, or None if there are too many.

        The arguments are those of the latest tick, which the encoder may have slept through.
        """
        if len(self._members) >= MAX_SUBSCRIBERS:
            return None
        if not self._members:
            self._encoder.advance(families, measured_ms, error)
        subscriber = Subscriber(self._encoder.snapshot())
        self._members.add(subscriber)
        return subscriber

    def leave(self, subscriber: Subscriber) -> None:
        self._members.discard(subscriber)

    def publish(self, families: Iterable[Family], measured_ms: int, error: str | None) -> None:
        line = self._encoder.advance(families, measured_ms, error)
        for subscriber in tuple(self._members):
            if not subscriber.offer(line):
                self._dropped[TOO_SLOW] += 1
                self._members.discard(subscriber)
                subscriber.dismiss(TOO_SLOW)

    def dismiss_all(self) -> None:
        for subscriber in tuple(self._members):
            self._members.discard(subscriber)
            subscriber.dismiss(STOPPING)
