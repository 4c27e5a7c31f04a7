"""The engine on a real clock: requests come, and get their tokens when they are due."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from aiohttp import web

from common.devices import FullError
from text.engine import Engine, Sequence
from text.metrics import Metrics


class Batch:
    """Runs the engine for as long as there are requests.

    Args:
        engine: what takes how long.
        metrics: count each token.
        queue_limit: requests that may wait.
    """

    def __init__(self, engine: Engine, metrics: Metrics, queue_limit: int) -> None:
        self.engine = engine
        self._metrics = metrics
        self._queue_limit = queue_limit
        self._has_work = asyncio.Event()
        self._tokens: dict[Sequence, asyncio.Queue[float]] = {}
        self._joined_s: dict[Sequence, float] = {}

    async def tokens(self, sequence: Sequence) -> AsyncGenerator[int, None]:
        """Yield the number of each token, from 0, when it is made; leaving early ends the request.

        Raises:
            FullError: too many requests wait already.
        """
        if len(self.engine.waiting) >= self._queue_limit:
            raise FullError
        made = self._tokens[sequence] = asyncio.Queue()
        now = asyncio.get_running_loop().time()
        self._joined_s[sequence] = now
        self.engine.waiting.append(sequence)
        self._has_work.set()
        started = before = now
        try:
            for number in range(sequence.most_tokens):
                now = await made.get()
                took = self._metrics.next_token if number else self._metrics.first_token
                took.observe(now - before)
                before = now
                yield number
            self._metrics.whole.observe(before - started)
            self._metrics.success.inc()
        finally:
            del self._tokens[sequence]
            self._joined_s.pop(sequence, None)
            self.engine.leave(sequence)

    async def run(self) -> None:
        """Step until cancelled. A step begins when the one before was due to end."""
        loop = asyncio.get_running_loop()
        while True:
            await self._has_work.wait()
            due = loop.time()
            while self.engine.waiting or self.engine.running:
                seconds, new = self.engine.begin_step()
                for each in new:
                    self._metrics.queued.observe(due - self._joined_s.pop(each))
                    self._metrics.prompt_tokens.inc(each.prompt_tokens)
                due += seconds
                await asyncio.sleep(max(0.0, due - loop.time()))
                for each in self.engine.end_step():
                    self._metrics.generation_tokens.inc()
                    if each in self._tokens:
                        self._tokens[each].put_nowait(due)
            self._has_work.clear()

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """Run for as long as the application does."""
        task = asyncio.create_task(self.run())
        yield
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
