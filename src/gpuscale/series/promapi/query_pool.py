"""Queries evaluated in threads with deadlines, while the event loop goes on.

The loop alone touches the store: it copies what a query reads, some series at a time, and a thread evaluates
the copy. Where numpy is installed, that is done with it, for all series and steps at once. Threads share one
interpreter lock, so many of them are no quicker than a few: the rest wait.

Source: prometheus promql/engine.go (exec, ActiveQueryTracker); the error texts are Prometheus'.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from threading import Event
from typing import TypeVar

from gpuscale.base.errors import QueryError
from gpuscale.base.memory import give_memory_back
from gpuscale.series.promql.budget import (
    SAMPLES_PER_WORK,
    Budget,
    Check,
    QueryTimeoutError,
    check_work,
    evaluations,
)
from gpuscale.series.promql.evaluate import LOOKBACK_MS, Evaluable, Samples
from gpuscale.series.promql.parse import Query
from gpuscale.series.promql.rows import QueryRange
from gpuscale.series.promql.snapshot import SampleCopies, needs
from gpuscale.series.promql.tree import Node
from gpuscale.series.promql.vectorised.support import RowWiseError, is_installed, is_vectorised
from gpuscale.series.storage.store import SeriesStore

Answer = TypeVar("Answer")
Copied = TypeVar("Copied")

TIMEOUT_S = 30.0
"""Prometheus has two minutes by default; here a query shares the process that scales."""
AT_ONCE = 4
WAITING = 100
_WAKE_S = 0.05
"""How often a thread that waits for the loop looks at its deadline."""
_TIDY_BYTES = 2 * 1024 * 1024
"""Held at one time, from which on it pays to give memory back."""
_QUICK_WORK = 2_000
"""Evaluations that are done at once; a few milliseconds."""


class _Deadline:
    """The deadline of a query, checked by the thread that evaluates it."""

    def __init__(self, seconds: float, is_wanted: Callable[[], bool]) -> None:
        self._is_wanted = is_wanted
        self._now = asyncio.get_running_loop().time
        self._end = self._now() + seconds
        self.cancelled = Event()

    def left(self) -> float:
        """Return the seconds left, at least 0."""
        return max(0.0, self._end - self._now())

    def check(self) -> None:
        """Raise QueryTimeoutError if the time is up or the caller has gone."""
        if self.cancelled.is_set() or not self._is_wanted():
            raise QueryTimeoutError("query was canceled in expression evaluation")
        if self._now() >= self._end:
            raise QueryTimeoutError("query timed out in expression evaluation")


class QueryPool:
    """Evaluates queries beside the event loop.

    Args:
        timeout_s: how long one query may take, waiting included.
        at_once: how many are evaluated at one time.
        waiting: how many more may wait; further ones are refused at once.
    """

    def __init__(
        self, timeout_s: float = TIMEOUT_S, at_once: int = AT_ONCE, waiting: int = WAITING
    ) -> None:
        self._timeout_s = timeout_s
        self._limit = at_once + waiting
        self._inside = 0
        self._slots = asyncio.Semaphore(at_once)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="promql")

    async def evaluate(
        self,
        store: SeriesStore,
        query: Query,
        covered: QueryRange,
        work: Callable[[Samples, Check], Answer],
        *,
        timeout_s: float | None = None,
        lookback_ms: int = LOOKBACK_MS,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> Answer:
        """Return the result of `work` on a query's samples, computed in a thread.

        Most queries of autoscalers read a few series. They are answered at once, without a copy or a queue.

        Args:
            store: what is asked; only the event loop changes it.
            query: what is evaluated.
            covered: the times it is evaluated at.
            work: gets the samples, and the query's budget, which it has to call every few milliseconds.
            timeout_s: a shorter limit than the pool's.
            lookback_ms: how old a sample may be and still count as the current one.
            is_wanted: whether somebody still waits for the answer; called from any thread.

        Raises:
            QueryError: the query holds or does too much, or `work` raised it.
            QueryTimeoutError: the time is up, the answer is not wanted, or too many queries wait already.
        """
        steps = 1 + (covered.end_ms - covered.start_ms) // (covered.step_ms or 1)
        check_work(query.root, steps)
        if _is_quick(store, query.root, covered, lookback_ms, steps):
            budget = Budget(self._deadline(timeout_s, is_wanted).check)
            budget()
            return work(store, budget)
        async with self._slot(timeout_s, is_wanted) as deadline:
            budget = Budget(deadline.check)
            asked = store, query.root, covered, work, lookback_ms, budget
            outcome: Answer | _Failure = _Failure(RowWiseError())
            if is_installed() and is_vectorised(query.root):
                outcome = await self._vectorised(*asked)
            if isinstance(outcome, _Failure) and isinstance(outcome.error, RowWiseError):
                # Rare or failing queries are evaluated row by row.
                budget.restart()
                outcome = await self._row_wise(*asked)
            if budget.most > _TIDY_BYTES:
                # In the loop's next turn, as this call still refers to a part of it.
                asyncio.get_running_loop().call_soon(self._threads.submit, give_memory_back)
            if isinstance(outcome, _Failure):
                raise outcome.take()
            return outcome

    async def _vectorised(
        self,
        store: SeriesStore,
        root: Node,
        covered: QueryRange,
        work: Callable[[Samples, Check], Answer],
        lookback_ms: int,
        budget: Budget,
    ) -> "Answer | _Failure":
        from gpuscale.series.promql.vectorised.samples import QuerySamples

        columns = QuerySamples(store, root, covered, lookback_ms, _on_loop(budget), budget)
        failure = await self._copied(columns.fill(), budget)
        if failure is not None:
            return failure
        return await self._in_thread(lambda: _outcome(work, columns, budget))

    async def _row_wise(
        self,
        store: SeriesStore,
        root: Node,
        covered: QueryRange,
        work: Callable[[Samples, Check], Answer],
        lookback_ms: int,
        budget: Budget,
    ) -> "Answer | _Failure":
        snapshot = SampleCopies(store.oldest_kept_ms(), budget)
        filling = snapshot.fill(store, root, covered, lookback_ms)
        failure = await self._copied(filling, budget)
        if failure is not None:
            return failure
        return await self._in_thread(lambda: _outcome(work, snapshot, budget))

    async def _copied(self, filling: Iterator[None], budget: Budget) -> "_Failure | None":
        """Copy samples in slices; return an error if the copy is incomplete."""
        try:
            for _ in filling:
                budget()
                await asyncio.sleep(0)
        except QueryError as error:
            return _Failure(error.with_traceback(None))
        return None

    async def apart(
        self, work: Callable[[Check], Answer], *, timeout_s: float | None = None
    ) -> Answer:
        """Return the result of `work`, run in a thread; it must not use a store.

        Raises:
            QueryTimeoutError: as `evaluate`.
        """
        async with self._slot(timeout_s) as deadline:
            return await self._in_thread(lambda: work(deadline.check))

    @asynccontextmanager
    async def _slot(
        self, timeout_s: float | None, is_wanted: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[_Deadline, None]:
        """Wait for a free slot; a caller that goes away cancels its query."""
        if self._inside >= self._limit:
            raise QueryTimeoutError(
                f"too many queries at once: {self._inside} run or wait, expected at most {self._limit}"
            )
        deadline = self._deadline(timeout_s, is_wanted)
        self._inside += 1
        try:
            try:
                async with asyncio.timeout(deadline.left()):
                    await self._slots.acquire()
            except TimeoutError:
                raise QueryTimeoutError("query timed out in query queue") from None
            try:
                yield deadline
            finally:
                self._slots.release()
        finally:
            deadline.cancelled.set()
            self._inside -= 1

    def _deadline(self, timeout_s: float | None, is_wanted: Callable[[], bool]) -> _Deadline:
        limit_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        return _Deadline(limit_s, is_wanted)

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


@dataclass
class _Failure:
    """A query's error, without the traceback, which would keep all of the query's data alive."""

    error: Exception

    def take(self) -> Exception:
        """Return the error to raise, and drop the reference to it, as its traceback refers back here."""
        error, self.error = self.error, RowWiseError()
        return error


def _outcome(
    work: Callable[[Samples, Check], Answer], samples: SampleCopies | Evaluable, budget: Budget
) -> Answer | _Failure:
    """Return the result of `work` on samples, or its failure."""
    try:
        return work(samples, budget)
    except (QueryError, RowWiseError) as error:
        error.__context__ = error.__cause__ = None
        return _Failure(error.with_traceback(None))


def _on_loop(check: Check) -> Callable[[Callable[[], Copied]], Copied]:
    """Return a function by which a thread runs something on this event loop, and waits for it."""
    loop = asyncio.get_running_loop()

    def hand_over(read: Callable[[], Copied]) -> Copied:
        async def called() -> Copied:
            return read()

        future = asyncio.run_coroutine_threadsafe(called(), loop)
        while True:
            try:
                return future.result(_WAKE_S)
            except TimeoutError:
                if future.done():
                    raise
                check()

    return hand_over


def _is_quick(
    store: SeriesStore, root: Node, covered: QueryRange, lookback_ms: int, steps: int
) -> bool:
    """Return whether a query takes a few milliseconds at most, judged by its series and steps."""
    passes = steps * evaluations(root)
    work = passes
    for matchers, need in needs(root, covered, lookback_ms).items():
        series = store.select(matchers)
        work += passes * len(series)
        if work > _QUICK_WORK:
            return False
        if need.moments is None:
            work += steps * sum(each.rows() for each in series) // SAMPLES_PER_WORK
    return work <= _QUICK_WORK
