# mypy: disable-error-code="arg-type"
"""Builders that fill in defaults, so that a case shows only what matters."""

from dataclasses import dataclass, field

import pytest

from gpuscale.base.objects.hpa import (
    Behavior,
    CrossVersionObjectReference,
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    TargetType,
)
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa import (
    ContainerInfo,
    ContainerUsages,
    ControllerSettings,
    Decision,
    ExternalValues,
    HpaState,
    MetricValue,
    PodInfo,
    PodUsage,
    PodValues,
    ReadyCondition,
    Scale,
    decide,
    succeeded,
)

NOW_MS = 1_000_000_000
FIRST_SYNC = HpaState()
DEFAULT_SETTINGS = ControllerSettings()

PODS = {
    "ready": {},
    "unready": {"ready": ReadyCondition.FALSE},
    "unknown": {"ready": ReadyCondition.UNKNOWN},
    "no-condition": {"ready": ReadyCondition.ABSENT},
    "pending": {"phase": PodPhase.PENDING, "ready": ReadyCondition.FALSE},
    "failed": {"phase": PodPhase.FAILED, "ready": ReadyCondition.FALSE},
    "succeeded": {"phase": PodPhase.SUCCEEDED, "ready": ReadyCondition.FALSE},
    "deleted": {"deleted": True},
}


@dataclass
class Given:
    """Builders of the things that go into a decision."""

    now_ms: int = NOW_MS

    def hpa(
        self, *metrics, low: int | None = 1, high: int = 1000, behavior: Behavior | None = None
    ) -> HorizontalPodAutoscaler:
        return HorizontalPodAutoscaler(
            metadata=ObjectMeta("web"),
            target=CrossVersionObjectReference("Deployment", "web", "apps/v1"),
            max_replicas=high,
            metrics=metrics,
            min_replicas=low,
            behavior=behavior,
        )

    def pods_metric(self, target, name: str = "load") -> PodsMetric:
        return PodsMetric(name, self.average(target))

    def resource(self, percent: int, name: str = "cpu") -> ResourceMetric:
        target = MetricTarget(TargetType.UTILIZATION, average_utilization=percent)
        return ResourceMetric(name, target)

    def object_metric(self, target: MetricTarget, name: str = "requests") -> ObjectMetric:
        return ObjectMetric(CrossVersionObjectReference("Service", "web"), name, target)

    def external(self, target: MetricTarget, name: str = "queue") -> ExternalMetric:
        return ExternalMetric(name, target)

    def value(self, amount) -> MetricTarget:
        return MetricTarget(TargetType.VALUE, value=parse_quantity(amount))

    def average(self, amount) -> MetricTarget:
        return MetricTarget(TargetType.AVERAGE_VALUE, average_value=parse_quantity(amount))

    def pods(self, states: str | int, *, cpu: str | None = None, age_s: int = 7200):
        """Return pods p0, p1, ... in the states of a text such as `ready ready pending`."""
        names = ["ready"] * states if isinstance(states, int) else states.split()
        requests = {} if cpu is None else {"cpu": parse_quantity(cpu)}
        start_ms = self.now_ms - age_s * 1000
        return tuple(
            PodInfo(
                f"p{i}",
                start_ms=start_ms,
                ready_transition_ms=start_ms,
                containers=(ContainerInfo("main", requests),),
                **PODS[name],
            )
            for i, name in enumerate(names)
        )

    def values(self, *values) -> PodValues:
        """Return samples of p0, p1, ...; None leaves a pod without one."""
        return PodValues(
            tuple(
                MetricValue(f"p{i}", round(value * 1000), self.now_ms)
                for i, value in enumerate(values)
                if value is not None
            )
        )

    def usages(self, *values_milli, window_s: float = 30.0) -> ContainerUsages:
        """Return usages of p0, p1, ...; None leaves a pod without one."""
        return ContainerUsages(
            tuple(
                PodUsage(f"p{i}", {"main": value}, self.now_ms, round(window_s * 1000))
                for i, value in enumerate(values_milli)
                if value is not None
            )
        )

    def decide(
        self,
        hpa: HorizontalPodAutoscaler,
        *observations,
        spec: int,
        status: int | None = None,
        pods=None,
        state: HpaState = FIRST_SYNC,
        settings: ControllerSettings = DEFAULT_SETTINGS,
        selector: str = "app=web",
        **others,
    ) -> Decision:
        """Return the decision for `spec` replicas; with no pods given, that many are ready."""
        scale = Scale(spec, spec if status is None else status, selector)
        found = self.pods(spec) if pods is None else pods
        return decide(hpa, scale, found, observations, state, self.now_ms, settings, **others)

    def proposal(self, metric, observation, *, spec: int, **others) -> int | None:
        """Return what one metric asks for, before stabilization, limits and bounds."""
        return (
            self.decide(self.hpa(metric), observation, spec=spec, **others)
            .metrics[0]
            .proposed_replicas
        )


@dataclass
class Controller:
    """One HPA over time, whose target always takes the count that is decided."""

    hpa: HorizontalPodAutoscaler
    replicas: int
    settings: ControllerSettings = DEFAULT_SETTINGS
    state: HpaState = field(default_factory=HpaState)

    def sync(self, at_s: float, wanted: int) -> int:
        """Return the count after a sync whose metric asks for `wanted` replicas."""
        return self.decide(at_s, wanted).desired_replicas

    def decide(self, at_s: float, wanted: int) -> Decision:
        # An External metric with target 1 per pod asks for as many replicas as it shows.
        given = Given(now_ms=NOW_MS + round(at_s * 1000))
        decision = given.decide(
            self.hpa,
            ExternalValues((wanted * 1000,), NOW_MS),
            spec=self.replicas,
            state=self.state,
            settings=self.settings,
        )
        self.state, self.replicas = succeeded(decision).state, decision.desired_replicas
        return decision


@pytest.fixture
def given() -> Given:
    return Given()


@pytest.fixture
def controller(given: Given):
    """Return a maker of controllers whose one metric asks for the count it is told, tolerance 0."""

    def make(replicas: int, **hpa) -> Controller:
        metric = given.external(given.average(1))
        return Controller(given.hpa(metric, **hpa), replicas, ControllerSettings(tolerance=0.0))

    return make
