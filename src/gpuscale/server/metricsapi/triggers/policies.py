"""Policies of triggers: the samples that each learns from are queried in the background.

Learning takes long, so it has a thread of its own, one policy at a time; answers are from memory.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError, UnavailableError, UncoveredError
from gpuscale.base.words import counted
from gpuscale.series import Value
from gpuscale.server.metricsapi.triggers.workloads import described
from gpuscale.triggers import Missing, ServedPolicy, TotalLoad
from gpuscale.triggers.policies import NextQuery, PolicyRun, find_policy, run_bytes

_LOG = logging.getLogger(__name__)
MAX_BYTES = 128 * 1024 * 1024
"""Of all policies' memories together."""
_RETRY_S = 5.0
"""After a question without an answer."""
_QUICK_STEPS = 60
"""So many steps are worked on at once, beside the rest of the server."""
_LEARNING_AT_ONCE = 2
"""Policies that ask for days of loads."""
_FORGET_S = 900.0
_PATIENCE_S = 2.0
"""How long an observation waits for what is due."""
Key = tuple[str, ServedPolicy]


@dataclass(slots=True)
class _Kept:
    run: PolicyRun
    asked_s: float
    catching_up: "asyncio.Task[None] | None" = None
    retry_s: float = 0.0
    fault: str | None = None
    """Why it does not know what is due."""


class Policies:
    """The policies' learned state and wanted replicas, each policy with its query.

    Args:
        ask: answers PromQL at a time.
        clock: of the steps.
        max_bytes: of the memories.
    """

    def __init__(
        self,
        ask: Callable[[str, int], Awaitable[Value]],
        clock: Clock,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._max_bytes = max_bytes
        self._kept: dict[Key, _Kept] = {}
        self._thread = ThreadPoolExecutor(1, "policies")
        self._learning = asyncio.Semaphore(_LEARNING_AT_ONCE)

    @property
    def size_bytes(self) -> int:
        """Return the bytes that the policies' state takes."""
        return sum(each.run.size_bytes for each in self._kept.values())

    async def see(
        self, query: str, use: ServedPolicy
    ) -> tuple[TotalLoad | Missing, tuple[str, ...]]:
        """Return the replicas that a policy wants and why, or why they are unknown."""
        now_ms = self._clock.now_ms()
        kept = self._kept.get((query, use))
        if kept is None:
            self._forget(now_ms / 1000)
            try:
                kept = self._add(query, use, now_ms / 1000)
            except (GpuscaleError, ValueError, ModuleNotFoundError) as error:
                return Missing(str(error)), ()
        kept.asked_s = now_ms / 1000
        if kept.catching_up is None and now_ms / 1000 >= kept.retry_s:
            kept.catching_up = asyncio.create_task(self._catch_up(kept), name=f"policy {use.name}")
        if kept.catching_up is not None:
            await asyncio.wait({kept.catching_up}, timeout=_PATIENCE_S)
        return self._seen(kept, now_ms)

    async def close(self) -> None:
        """Cancel queries and learning in progress."""
        tasks = [each.catching_up for each in self._kept.values() if each.catching_up is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _seen(self, kept: _Kept, now_ms: int) -> tuple[TotalLoad | Missing, tuple[str, ...]]:
        wanted = kept.run.wanted()
        if kept.fault is not None:
            return Missing(kept.fault), () if wanted is None else wanted.words
        if kept.run.is_behind(now_ms) or wanted is None:
            share = round(100 * kept.run.share_learned(now_ms))
            return Missing(f"it learns from the past, {share} % so far"), ()
        return TotalLoad(float(wanted.replicas), wanted.measured_ms), wanted.words

    def _add(self, query: str, use: ServedPolicy, now_s: float) -> _Kept:
        policy = find_policy(use.name)
        if policy is None:
            raise UnavailableError(f"there is no policy {use.name}")
        size = run_bytes(policy, use)
        if self.size_bytes + size > self._max_bytes:
            raise UnavailableError(
                f"it takes {size} bytes, and {counted(len(self._kept), 'other')} take {self.size_bytes} "
                f"of {self._max_bytes} already"
            )
        kept = self._kept[query, use] = _Kept(PolicyRun(policy, use, query), now_s)
        return kept

    async def _catch_up(self, kept: _Kept) -> None:
        """Query the samples that are due, and feed them to their policies."""
        try:
            while (question := kept.run.question(self._clock.now_ms())) is not None:
                if not await self._answered(kept, question):
                    kept.retry_s = self._clock.now_ms() / 1000 + _RETRY_S
                    return
        except Exception as error:  # noqa: BLE001 - foreign code
            # A policy is foreign code: its error becomes its answer, and others are unaffected.
            kept.fault = f"it failed with {type(error).__name__}: {error}"
            kept.retry_s = self._clock.now_ms() / 1000 + _RETRY_S
            _LOG.warning("a policy failed", exc_info=True)
        finally:
            kept.catching_up = None

    async def _answered(self, kept: _Kept, question: NextQuery) -> bool:
        """Return whether the policy has learned from the samples of a query."""
        run, is_quick = kept.run, question.count <= _QUICK_STEPS
        async with AsyncExitStack() as stack:
            if not is_quick:
                await stack.enter_async_context(self._learning)
            try:
                value = await self._ask(question.promql, question.at_ms)
            except UncoveredError as error:
                run.uncovered(question, error.until_ms)
                return True
            except (GpuscaleError, TimeoutError) as error:
                if not question.is_ahead:
                    run.refused(question)
                    kept.fault = _reason(error)
                return False
            try:
                if is_quick:
                    is_known = run.take(question, value)
                else:
                    loop = asyncio.get_running_loop()
                    is_known = await loop.run_in_executor(self._thread, run.take, question, value)
            except GpuscaleError as error:
                kept.fault = _reason(error)
                return False
        if not question.is_ahead:
            kept.fault = None if is_known else "the query's answer has no row"
        return is_known or run.question(self._clock.now_ms()) != question

    def _forget(self, now_s: float) -> None:
        """Drop policies that no trigger has asked for lately."""
        for key, each in list(self._kept.items()):
            if now_s - each.asked_s > _FORGET_S and each.catching_up is None:
                del self._kept[key]


def _reason(error: Exception) -> str:
    return described(error) if isinstance(error, GpuscaleError) else "no answer in time"
