"""The inputs of a trigger's decision: its load and wake sources, queried from the provider."""

import asyncio
import math
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol, TypeVar

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.selectors import Selector
from gpuscale.hpa.replicas import PodSample
from gpuscale.series import Scalar, Value, Vector
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.triggers.workloads import Workloads, described
from gpuscale.server.metricsapi.wire.paths import ALL, EXTERNAL_GROUP, CustomTarget
from gpuscale.triggers import (
    FlowSeen,
    Missing,
    Observation,
    PodLoads,
    PodsSeen,
    TotalLoad,
    Trigger,
    WakeQuery,
    WakeSeen,
    awake,
    flow_seen,
)

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.triggers.policies import Policies

T = TypeVar("T")
_CLEAR_MS = 10_000


class Sees(Protocol):
    """Makes the observation of a trigger."""

    async def see(self, trigger: Trigger) -> Observation: ...


class Seeing:
    """Queries the inputs of triggers; equal queries run once.

    Args:
        provider: of the metrics APIs, so that a value is the same through all of them.
        workloads: the cluster's; None where there is no API server.
        clock: gives times and measures ages.
        timeout_s: after which a source counts as away.
        shared_s: how long an answer to a query serves for others.
    """

    def __init__(
        self,
        provider: MetricsProvider,
        workloads: Workloads | None,
        clock: Clock,
        timeout_s: float,
        shared_s: float,
    ) -> None:
        self._provider = provider
        self._workloads = workloads
        self._clock = clock
        self._timeout_s = timeout_s
        self._shared_ms = shared_s * 1000
        self._cleared_ms = 0
        self._answers: dict[str, tuple[int, asyncio.Task[Value]]] = {}
        self._policies: Policies | None = None

    async def see(self, trigger: Trigger) -> Observation:
        """Return the current observation of a trigger; an unknown part has a reason."""
        if self._workloads is not None and trigger.workload is not None:
            await self._workloads.listed(trigger.namespace, trigger.workload)
        pods, selector = self._pods(trigger)
        (load, rests_on), seen, flow = await asyncio.gather(
            self._load_or_policy(trigger, pods, selector),
            asyncio.gather(*map(self._wake, trigger.wakes)),
            self._flow(trigger),
        )
        now_ms = self._clock.now_ms()
        if trigger.schedule is not None:
            is_active, until_ms = awake(trigger.schedule, now_ms)
            words = f"{'awake' if is_active else 'asleep'} for {(until_ms - now_ms) // 1000} s more"
            seen.append(WakeSeen("schedule", is_active, words))
        # Pods may have changed while the source was asked; the answer uses the current ones.
        pods, _ = self._pods(trigger)
        return Observation(now_ms, now_ms / 1000, load, pods, tuple(seen), flow, rests_on)

    async def close(self) -> None:
        if self._policies is not None:
            await self._policies.close()
        for _, task in self._answers.values():
            task.cancel()
        await asyncio.gather(*(task for _, task in self._answers.values()), return_exceptions=True)

    def _pods(self, trigger: Trigger) -> tuple[PodsSeen | Missing | None, Selector]:
        if trigger.workload is None:
            return None, Selector()
        if self._workloads is None:
            return Missing("there is no API server to know pods from"), Selector()
        return self._workloads.seen(trigger.namespace, trigger.workload)

    async def _load_or_policy(
        self, trigger: Trigger, pods: PodsSeen | Missing | None, selector: Selector
    ) -> tuple[PodLoads | TotalLoad | Missing, tuple[str, ...]]:
        """Return the trigger's load, or the replicas that its policy wants with their reason."""
        if trigger.policy is None or trigger.load is None:
            return await self._load(trigger, pods, selector), ()
        if self._policies is None:
            from gpuscale.server.metricsapi.triggers.policies import (
                Policies,  # they import numpy
            )

            self._policies = Policies(self._provider.ask, self._clock)
        return await self._policies.see(trigger.load.query, trigger.policy)

    async def _load(
        self, trigger: Trigger, pods: PodsSeen | Missing | None, selector: Selector
    ) -> PodLoads | TotalLoad | Missing:
        load = trigger.load
        if load is None or (isinstance(pods, PodsSeen) and pods.desired == 0):
            return Missing("the load was not asked for")
        if isinstance(pods, Missing):
            return pods
        if load.query:
            return await self._total(load.query, trigger.name)
        target = CustomTarget("pods", trigger.namespace, ALL, load.metric)
        try:
            answer = await self._within(self._provider.custom(target, selector, Selector()))
        except (GpuscaleError, TimeoutError) as error:
            return Missing(f"{load.metric}: {self._reason(error)}")
        samples = {
            value.object_name: PodSample(value.value_milli, value.measured_ms, value.window_ms)
            for value in answer.values
        }
        measured_ms = (sample.measured_ms for sample in samples.values())
        return PodLoads(samples, min(measured_ms, default=self._clock.now_ms()))

    async def _total(self, query: str, name: str) -> TotalLoad | Missing:
        try:
            value = await self._answer(query)
        except (GpuscaleError, TimeoutError) as error:
            return Missing(f"the query of {name}: {self._reason(error)}")
        found = self._number(value, name)
        return TotalLoad(*found) if not isinstance(found, str) else Missing(f"the query: {found}")

    async def _flow(self, trigger: Trigger) -> FlowSeen | Missing | None:
        credit = trigger.credit
        if credit is None:
            return None
        waiting, finished = await asyncio.gather(
            self._total(credit.waiting, f"waiting of {trigger.name}"),
            self._total(credit.throughput, f"throughput of {trigger.name}"),
        )
        return flow_seen(waiting, finished)

    async def _wake(self, wake: WakeQuery) -> WakeSeen:
        try:
            value = await self._answer(wake.query)
        except (GpuscaleError, TimeoutError) as error:
            return WakeSeen(wake.source, None, f"{wake.source}: {self._reason(error)}")
        found = self._number(value, wake.source)
        if isinstance(found, str):
            return WakeSeen(wake.source, None, f"{wake.source}: {found}")
        is_active = found[0] > wake.threshold
        relation = "above" if is_active else "not above"
        return WakeSeen(wake.source, is_active, f"{found[0]:.6g}, {relation} {wake.threshold:g}")

    def _number(self, value: Value, name: str) -> tuple[float, int] | str:
        """Return an answer's only number with its time, or why it has none."""
        now_ms = self._clock.now_ms()
        if isinstance(value, Scalar):
            rows = [(value.value, now_ms)]
        elif isinstance(value, Vector):
            fresh = self._provider.age_limit.fresh(value, now_ms, EXTERNAL_GROUP, name)
            if isinstance(fresh, Vector) and not fresh.samples and value.samples:
                is_ahead = value.samples[0].measured_ms > now_ms
                when = "of the future: a clock is wrong" if is_ahead else "too old"
                return f"the samples behind the answer are {when}"
            samples = fresh.samples if isinstance(fresh, Vector) else ()
            rows = [(row.value, row.measured_ms) for row in samples]
        else:
            return "the answer is no number"
        if len(rows) != 1:
            return (
                "the answer has no row" if not rows else f"the answer has {len(rows)} rows, not 1"
            )
        return rows[0] if math.isfinite(rows[0][0]) else "the answer is no number"

    async def _answer(self, query: str) -> Value:
        now_ms = self._clock.now_ms()
        known = self._answers.get(query)
        if known is not None and now_ms - known[0] < self._shared_ms:
            return await self._within(asyncio.shield(known[1]))
        if now_ms - self._cleared_ms > _CLEAR_MS:
            self._cleared_ms = now_ms
            old = [q for q, (at, task) in self._answers.items() if now_ms - at > self._shared_ms]
            for each in old:
                if self._answers[each][1].done():
                    del self._answers[each]
        task = asyncio.create_task(self._provider.ask(query, now_ms))
        task.add_done_callback(_heed)
        self._answers[query] = (now_ms, task)
        return await self._within(asyncio.shield(task))

    async def _within(self, asking: Awaitable[T]) -> T:
        async with asyncio.timeout(self._timeout_s):
            return await asking

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self._timeout_s:g} s"
        cause = error.__cause__
        if isinstance(cause, GpuscaleError):
            return described(cause)
        return described(error) if isinstance(error, GpuscaleError) else str(error)


def _heed(task: asyncio.Task[Value]) -> None:
    """Retrieve a task's error, so that asyncio logs nothing if all waiters are gone."""
    if not task.cancelled():
        task.exception()
