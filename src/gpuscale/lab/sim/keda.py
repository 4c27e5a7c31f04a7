"""KEDA in the simulated cluster: a scale loop for each ScaledObject, and metrics for KEDA's HPAs.

The loop and its decisions are `triggers.keda`'s. Here are the targets that they are about, what is written
to them, and the events.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpuscale.base.errors import GpuscaleError, NotFoundError, UpstreamError
from gpuscale.base.objects.hpa import CrossVersionObjectReference
from gpuscale.base.objects.metric_values import ExternalValue, MetricValue
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.objects.scaled_object import NAME_LABEL, ScaledObject
from gpuscale.base.objects.selectors import Operator, Selector
from gpuscale.hpa import PodUsage
from gpuscale.hpa.controller import MetricsClient
from gpuscale.hpa.terms import is_true
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.events import simulation_event
from gpuscale.lab.sim.world import World
from gpuscale.triggers.keda import PUSH, PollResult, ScaleLoop, ScaleTarget, Sources, make_scalers

FIRST_POLL_MS = 250
"""From a ScaledObject to KEDA's first poll of it: it makes the HPA in between."""
_SCALING_ACTIVE = "ScalingActive"
_OF_SERVER = "rpc error: code = Unknown desc = error when getting metric values"
"""What KEDA's metrics server puts before the operator's words (pkg/metricsservice, server.go)."""


@dataclass(frozen=True, slots=True)
class ScaledStatus:
    """The status that KEDA's latest poll writes to a ScaledObject."""

    ready: tuple[str, str]
    """Status and reason of the condition Ready."""
    active: tuple[str, str]
    """The same of Active."""
    is_falling_back: bool
    last_active_ms: int | None


class KedaOperator:
    """The ScaledObjects of a simulation.

    Args:
        world: what they scale.
        controller: of the HPAs.
        sources: answer the triggers.
    """

    def __init__(self, world: World, controller: HpaController, sources: Sources) -> None:
        self.statuses: dict[str, ScaledStatus] = {}
        """Of the ScaledObjects that were looked at, by key."""
        self._world = world
        self._controller = controller
        self._loops: dict[str, ScaleLoop] = {}
        self._reported: dict[str, set[str]] = {}
        self._pushed_ms: dict[tuple[str, int], int] = {}
        """When the scaler of a trigger last said that it is active, while it is."""
        for scaled in world.setup.scaled_objects:
            if scaled.is_paused:
                if scaled.paused_replicas is not None:
                    world.set_replicas(_deployment(scaled), scaled.paused_replicas)
            else:
                scalers, _ = make_scalers(scaled, sources)
                self._loops[scaled.key] = ScaleLoop(scaled, scalers, world.start_ms)

    @property
    def polled(self) -> tuple[tuple[str, int], ...]:
        """Return key and polling interval (ms) of each ScaledObject that is polled."""
        return tuple(
            (key, loop.scaled.polling_interval_s * 1000) for key, loop in self._loops.items()
        )

    async def poll(self, key: str, now_ms: int) -> None:
        """Poll a ScaledObject's triggers, and write the resulting scale and status."""
        loop = self._loops[key]
        hpa = f"{loop.scaled.metadata.namespace}/{loop.scaled.hpa_name}"
        decision = self._controller.decisions.get(hpa)
        is_asking = decision is not None and is_true(decision.conditions, _SCALING_ACTIVE)
        look = await loop.poll(now_ms, self._target(loop.scaled), hpa_is_asking=is_asking)
        self._apply(loop.scaled, look, now_ms)

    async def push(self, now_ms: int) -> None:
        """Handle a push scaler's messages: when a trigger becomes active, then once a polling interval."""
        for key, loop in self._loops.items():
            for index, trigger in enumerate(loop.scaled.triggers):
                if trigger.kind != PUSH:
                    continue
                if not await loop.says_active(index, now_ms):
                    self._pushed_ms.pop((key, index), None)
                    continue
                pushed_ms = self._pushed_ms.get((key, index))
                if pushed_ms is None or now_ms - pushed_ms >= loop.scaled.polling_interval_s * 1000:
                    self._pushed_ms[key, index] = now_ms
                    look = loop.push(index, now_ms, self._target(loop.scaled))
                    self._apply(loop.scaled, look, now_ms)

    async def value(self, namespace: str, metric: str, scaled: str, now_ms: int) -> ExternalValue:
        """Return a ScaledObject's metric value, as KEDA's metrics server does.

        Every question counts as a success or a failure of the trigger, also one that no HPA asks.

        Raises:
            UpstreamError: there is no value; the text is that of KEDA's metrics server.
        """
        loop = self._loops.get(f"{namespace}/{scaled}")
        try:
            if loop is None:
                missing = f'error getting scalers ScaledObject.keda.sh "{scaled}" not found'
                raise NotFoundError(missing)
            milli = await loop.answer(metric, now_ms, self._target(loop.scaled))
        except GpuscaleError as error:
            raise UpstreamError(f"{_OF_SERVER} {error}") from error
        return ExternalValue(None, milli, now_ms)

    def check_asked(self, namespace: str, scaled: str) -> None:
        """Raise if the HPA of a ScaledObject would not request the metric now.

        Raises:
            NotFoundError: the HPA is not active at this many replicas.
        """
        loop = self._loops.get(f"{namespace}/{scaled}")
        if loop is None:
            return
        replicas = self._target(loop.scaled).replicas
        if not max(loop.scaled.least, 1) <= replicas <= loop.scaled.most:
            raise NotFoundError(f"the HPA looks at no metric at {replicas} replicas")

    def _target(self, scaled: ScaledObject) -> ScaleTarget:
        cluster = self._world.cluster
        deployment = cluster.deployments[_deployment(scaled)]
        pods = cluster.selected(scaled.metadata.namespace, deployment.selector)
        running = [pod.status for pod in pods if pod.status.phase is PodPhase.RUNNING]
        return ScaleTarget(deployment.replicas, sum(status.ready is True for status in running))

    def _apply(self, scaled: ScaledObject, look: PollResult, now_ms: int) -> None:
        log = self._world.cluster.events
        about, namespace = f"ScaledObject/{scaled.metadata.name}", scaled.metadata.namespace
        said = self._reported.get(scaled.key, set())
        self._reported[scaled.key] = {e.message for e in look.events if e.type == "Warning"}
        for event in look.events:
            # Kubernetes counts a warning's repetitions instead of listing them.
            is_known = event.type == "Warning" and event.message in said
            tell = log.repeat if is_known else log.add
            tell(simulation_event(event, about, namespace, now_ms))
        step = look.step
        is_falling_back = self._loops[scaled.key].health.is_falling_back
        self.statuses[scaled.key] = ScaledStatus(
            step.ready, step.active, is_falling_back, step.last_active_ms
        )
        if step.replicas is None:
            return
        before = self._world.cluster.deployments[_deployment(scaled)].replicas
        self._world.set_replicas(_deployment(scaled), step.replicas)
        if step.event is not None:
            change = before, step.replicas
            log.add(simulation_event(step.event, about, namespace, now_ms, change))


class ServesExternal(Protocol):
    """Serves some external metrics."""

    def served(self, namespace: str, metric: str) -> ExternalValue | None:
        """Return a metric's value; None for a metric of others."""
        ...


class ExternalOfRun:
    """External metrics that no rule makes: those of KEDA's ScaledObjects and of the trigger file.

    Args:
        operator: KEDA.
        triggers: of the file.
        now: returns the time, milliseconds since the epoch.
    """

    def __init__(
        self, operator: KedaOperator, triggers: ServesExternal, now: Callable[[], int]
    ) -> None:
        self._operator = operator
        self._triggers = triggers
        self._now = now

    async def values(
        self, namespace: str, metric: str, selector: Selector | None
    ) -> tuple[ExternalValue, ...] | None:
        """Return a metric's values; None if a rule makes it.

        Raises:
            UpstreamError: KEDA has no value.
            UnavailableError: nothing is known yet of the trigger.
        """
        scaled = scaled_object_of(selector)
        if scaled is not None:
            return (await self._operator.value(namespace, metric, scaled, self._now()),)
        served = self._triggers.served(namespace, metric)
        return None if served is None else (served,)


class MetricsOfHpas:
    """A metrics client for a run's HPAs; those of inactive ScaledObjects request nothing.

    Args:
        inner: answers.
        operator: KEDA.
        external: answers before `inner` does; None where `inner` knows all.
    """

    def __init__(
        self, inner: MetricsClient, operator: KedaOperator, external: ExternalOfRun | None = None
    ) -> None:
        self._inner = inner
        self._operator = operator
        self._external = external

    async def pod_values(
        self, namespace: str, selector: str, metric: str, metric_selector: Selector | None
    ) -> Sequence[MetricValue]:
        return await self._inner.pod_values(namespace, selector, metric, metric_selector)

    async def object_value(
        self,
        namespace: str,
        described: CrossVersionObjectReference,
        metric: str,
        metric_selector: Selector | None,
    ) -> MetricValue:
        return await self._inner.object_value(namespace, described, metric, metric_selector)

    async def external_values(
        self, namespace: str, metric: str, selector: Selector | None
    ) -> Sequence[ExternalValue]:
        scaled = scaled_object_of(selector)
        if scaled is not None:
            self._operator.check_asked(namespace, scaled)
        if self._external is not None:
            found = await self._external.values(namespace, metric, selector)
            if found is not None:
                return found
        return await self._inner.external_values(namespace, metric, selector)

    async def resource_usages(
        self, namespace: str, selector: str, resource: str
    ) -> Sequence[PodUsage]:
        return await self._inner.resource_usages(namespace, selector, resource)


def scaled_object_of(selector: Selector | None) -> str | None:
    """Return the ScaledObject in a metric's selector."""
    for each in () if selector is None else selector.requirements:
        if each.key == NAME_LABEL and each.operator is Operator.EQUALS:
            return each.values[0]
    return None


def _deployment(scaled: ScaledObject) -> str:
    return f"{scaled.metadata.namespace}/{scaled.target_name}"
