"""`gpuscale scaler` in the simulated cluster: triggers evaluated periodically, answered from memory.

The decisions are `gpuscale.triggers`'. This module gives the decisions their inputs: pods, a metric of them
or a query, wake sources. In virtual time no source is ever away for longer than a metric takes to be
discovered.
"""

import math
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuscale.base.errors import BugError, GpuscaleError, UnavailableError, UncoveredError
from gpuscale.base.objects.metric_values import ExternalValue
from gpuscale.base.objects.workloads import GROUP_OF_KIND
from gpuscale.hpa.controller import MetricsClient
from gpuscale.hpa.replicas import PodSample, pod_info
from gpuscale.lab.sim.world import World
from gpuscale.series import Scalar, Value, Vector
from gpuscale.triggers import (
    Answer,
    FlowSeen,
    Missing,
    Observation,
    PodLoads,
    PodsSeen,
    TotalLoad,
    Trigger,
    TriggerState,
    WakeQuery,
    WakeSeen,
    awake,
    evaluate,
    flow_seen,
    kept_starts,
    learned_deadline_s,
)
from gpuscale.triggers.keda import Ask

if TYPE_CHECKING:
    from gpuscale.triggers.policies import PolicyRun

LOOK_MS = 1_000
"""How often the scaler looks which triggers are due, and evaluates those of workloads at zero."""
_AWAKE_MS = 5_000
"""Between evaluations while pods are asked for; both are the scaler's defaults."""


@dataclass(slots=True)
class _Watched:
    """The state of one trigger."""

    state: TriggerState = field(default_factory=TriggerState)
    answer: Answer | None = None
    due_ms: int = 0
    starts_s: tuple[float, ...] = ()
    started: set[str] = field(default_factory=set)
    policy: "PolicyRun | None" = None


class SimulatedTriggers:
    """The answers of a simulation's triggers: of ScaledObjects, and of the trigger file.

    Args:
        world: whose workloads they are about.
        client: answers metrics of pods.
        ask: answers PromQL.
    """

    def __init__(self, world: World, client: MetricsClient, ask: Ask) -> None:
        self._world = world
        self._client = client
        self._ask = ask
        self._files = {(each.namespace, each.name): each for each in world.setup.triggers}
        self._watched = {trigger: _Watched() for trigger in self._files.values()}

    def served(self, namespace: str, metric: str) -> ExternalValue | None:
        """Return the answer of a trigger in the scenario's file; None for an unknown name.

        Raises:
            UnavailableError: nothing is known of it yet.
        """
        trigger = self._files.get((namespace, metric))
        if trigger is None:
            return None
        answer = self._watched[trigger].answer
        if answer is None or answer.value is None or answer.measured_ms is None:
            reason = "it was not evaluated yet" if answer is None else answer.reason
            raise UnavailableError(f"{metric}: {reason}")
        return ExternalValue({}, round(answer.value * 1000), answer.measured_ms)

    def answer(self, trigger: Trigger) -> Answer | None:
        """Return the newest answer; None before the first evaluation."""
        return self._watched.setdefault(trigger, _Watched()).answer

    def changes(self, trigger: Trigger) -> AsyncIterator[Answer]:
        """Raise: in the simulator nobody waits for changes."""
        raise BugError(f"somebody waits for the trigger {trigger.name} in the simulator")

    async def _wanted(
        self, trigger: Trigger, watched: _Watched, now_ms: int
    ) -> TotalLoad | Missing:
        """Return the replicas that a policy wants, after feeding it the loads that are due."""
        from gpuscale.triggers.policies import (
            PolicyRun,  # it imports numpy
            find_policy,
        )

        use, load = trigger.policy, trigger.load
        policy = None if use is None else find_policy(use.name)
        if use is None or load is None or policy is None:
            return Missing("there is no such policy")
        run = watched.policy
        if run is None:
            run = watched.policy = PolicyRun(policy, use, load.query, self._world.start_ms)
        try:
            while (question := run.question(now_ms)) is not None:
                try:
                    value = await self._ask(question.promql, question.at_ms)
                except UncoveredError as error:
                    run.uncovered(question, error.until_ms)
                    continue
                if not run.take(question, value):
                    return Missing("the query's answer has no row")
        except GpuscaleError as error:
            return Missing(str(error))
        wanted = run.wanted()
        if wanted is None:
            return Missing("there was no load yet")
        return TotalLoad(float(wanted.replicas), wanted.measured_ms)

    async def look(self, now_ms: int) -> None:
        """Evaluate the triggers that are due."""
        for trigger, watched in self._watched.items():
            if now_ms < watched.due_ms:
                continue
            pods, selector = self._pods(trigger, watched, now_ms)
            load: PodLoads | TotalLoad | Missing
            if trigger.policy is not None:
                load = await self._wanted(trigger, watched, now_ms)
            else:
                load = await self._load(trigger, pods, selector, now_ms)
            wakes = [await self._wake(each, now_ms) for each in trigger.wakes]
            if trigger.schedule is not None:
                is_awake, _ = awake(trigger.schedule, now_ms)
                wakes.append(WakeSeen("schedule", is_awake, "awake" if is_awake else "asleep"))
            flow = await self._flow(trigger, now_ms)
            seen = Observation(now_ms, now_ms / 1000, load, pods, tuple(wakes), flow)
            outcome = evaluate(trigger, seen, watched.state)
            watched.answer, watched.state = outcome.answer, outcome.state
            is_asleep = (
                pods.desired == 0 if isinstance(pods, PodsSeen) else not outcome.answer.is_active
            )
            watched.due_ms = now_ms + (LOOK_MS if is_asleep else _AWAKE_MS)

    def _pods(
        self, trigger: Trigger, watched: _Watched, now_ms: int
    ) -> tuple[PodsSeen | Missing | None, str]:
        """Return the pods of a trigger's workload and their selector; learn how long they take to start."""
        workload = trigger.workload
        if workload is None:
            return None, ""
        cluster = self._world.cluster
        deployment = cluster.deployments.get(f"{trigger.namespace}/{workload.name}")
        kind = type(deployment).__name__
        asked = workload.kind.lower(), workload.api_version.partition("/")[0]
        if deployment is None or asked != (kind.lower(), GROUP_OF_KIND[kind]):
            return Missing(f"there is no {workload.kind} {workload.name}"), ""
        pods = cluster.selected(trigger.namespace, deployment.selector)
        for pod in pods:
            ready_ms = pod.status.ready_transition_ms
            if pod.status.ready and ready_ms and pod.metadata.name not in watched.started:
                watched.started.add(pod.metadata.name)
                took_s = (ready_ms - pod.metadata.creation_ms) / 1000
                watched.starts_s = kept_starts(watched.starts_s, took_s)
        watched.started &= {pod.metadata.name for pod in pods}
        alive = [pod for pod in pods if pod.metadata.deletion_ms is None]
        starting = [
            (now_ms - pod.metadata.creation_ms) / 1000
            for pod in alive
            if pod.metadata.name not in watched.started
        ]
        if len(alive) < deployment.replicas:
            starting.append(0.0)
        seen = PodsSeen(
            deployment.replicas,
            tuple(pod_info(pod) for pod in pods),
            tuple(starting),
            learned_deadline_s(watched.starts_s),
            max(watched.starts_s, default=None),
        )
        return seen, str(deployment.selector)

    async def _load(
        self, trigger: Trigger, pods: PodsSeen | Missing | None, selector: str, now_ms: int
    ) -> PodLoads | TotalLoad | Missing:
        load = trigger.load
        if load is None or (isinstance(pods, PodsSeen) and pods.desired == 0):
            return Missing("the load was not asked for")
        if isinstance(pods, Missing):
            return pods
        try:
            if load.query:
                return await self._total(load.query, now_ms)
            values = await self._client.pod_values(trigger.namespace, selector, load.metric, None)
        except GpuscaleError as error:
            return Missing(str(error))
        samples = {
            each.object_name: PodSample(each.value_milli, each.measured_ms, each.window_ms)
            for each in values
        }
        return PodLoads(samples, min((s.measured_ms for s in samples.values()), default=now_ms))

    async def _total(self, query: str, now_ms: int) -> TotalLoad | Missing:
        found = _number(await self._ask(query, now_ms), now_ms)
        return Missing(f"the query: {found}") if isinstance(found, str) else TotalLoad(*found)

    async def _flow(self, trigger: Trigger, now_ms: int) -> FlowSeen | Missing | None:
        credit = trigger.credit
        if credit is None:
            return None
        try:
            waiting = await self._total(credit.waiting, now_ms)
            finished = await self._total(credit.throughput, now_ms)
        except GpuscaleError as error:
            return Missing(str(error))
        return flow_seen(waiting, finished)

    async def _wake(self, wake: WakeQuery, now_ms: int) -> WakeSeen:
        try:
            found = _number(await self._ask(wake.query, now_ms), now_ms)
        except GpuscaleError as error:
            found = str(error)
        if isinstance(found, str):
            return WakeSeen(wake.source, None, f"{wake.source}: {found}")
        return WakeSeen(wake.source, found[0] > wake.threshold, f"{found[0]:g}")


def _number(value: Value, now_ms: int) -> tuple[float, int] | str:
    """Return an answer's only number with its time, or why it has none."""
    if isinstance(value, Scalar):
        return (value.value, now_ms) if math.isfinite(value.value) else "the answer is no number"
    if not isinstance(value, Vector):
        return "the answer is no number"
    if len(value.samples) != 1:
        count = len(value.samples)
        return f"the answer has {count} rows, not 1" if count else "the answer has no row"
    (row,) = value.samples
    return (row.value, row.measured_ms) if math.isfinite(row.value) else "the answer is no number"
