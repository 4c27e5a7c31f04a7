"""The simulated cluster's HPA controller: it decides from given observations, and writes scales.

The caller brings one observation per metric, from the rules in virtual time or over HTTP when live.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import eq

from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.label_index import SelectorIndex
from gpuscale.base.objects.selectors import Selector, parse_selector
from gpuscale.base.objects.workloads import Deployment
from gpuscale.hpa import (
    ControllerSettings,
    Decision,
    ExternalValues,
    MetricStatus,
    ObjectValue,
    Observation,
    PodInfo,
    PodValues,
    ReplicaPolicy,
    ReplicaRequest,
    Scale,
)
from gpuscale.hpa.controller import deciding_metric
from gpuscale.hpa.replicas import pod_info
from gpuscale.hpa.terms import parse_version, settings_of
from gpuscale.lab.sim.control.controllers import status_replicas
from gpuscale.lab.sim.events import simulation_event
from gpuscale.lab.sim.scenario.model import Pipeline
from gpuscale.lab.sim.world import World


@dataclass(frozen=True, slots=True)
class ScaledTarget:
    """An HPA's target with its scale and pods."""

    deployment: str
    """`namespace/name`."""
    scale: Scale
    pods: tuple[PodInfo, ...]


@dataclass(frozen=True, slots=True)
class _Known:
    """A cached target, with the versions it was computed from."""

    target: ScaledTarget
    selecting: tuple[str, ...]
    """The HPAs of the namespace whose selectors find its pods."""
    deployment: Deployment
    version: tuple[int, ...]

    def holds(self, deployment: Deployment, live: int, version: tuple[int, ...]) -> bool:
        """Return whether the cached target is still valid."""
        same_scale = deployment is self.deployment and live == self.target.scale.status_replicas
        return same_scale and any(map(eq, version, self.version))


@dataclass(frozen=True, slots=True)
class SyncFigures:
    """The figures in an HPA's status after a sync."""

    desired: int
    milli: int | None
    """The value of `metric`, per pod where it is averaged, in thousandths; None where it has none."""
    metric: int = 0
    """Position in `spec.metrics` of the metric that decides, where that is known."""


class HpaController:
    """A simulated cluster's HPAs, with the controller's memory of each."""

    def __init__(self, world: World) -> None:
        pipeline = world.setup.pipeline
        self.decisions: dict[str, Decision] = {}
        """HPA key to its latest decision."""
        self._world = world
        self._policies: dict[str, ReplicaPolicy] = {}
        """One for each HPA, by its key."""
        self._reported: dict[str, str] = {}
        self._targets: dict[str, _Known] = {}
        """HPA key to what it scales."""

        self.settings = controller_settings(pipeline)

    def target(self, hpa: HorizontalPodAutoscaler) -> ScaledTarget:
        """Return the scale of an HPA's Deployment, and the pods that its selector matches."""
        return self._known(hpa).target

    def _known(self, hpa: HorizontalPodAutoscaler) -> "_Known":
        cluster, namespace = self._world.cluster, hpa.metadata.namespace
        deployment = cluster.deployments[f"{namespace}/{hpa.target.name}"]
        version = cluster.index.selection_version(namespace, deployment.selector)
        live = status_replicas(cluster, deployment)
        known = self._targets.get(hpa.metadata.key)
        if known is None or not known.holds(deployment, live, version):
            found = cluster.selected(namespace, deployment.selector)
            pods = tuple(pod_info(pod) for pod in found)
            scale = Scale(deployment.replicas, live, str(deployment.selector))
            target = ScaledTarget(deployment.metadata.key, scale, pods)
            selecting = selecting_hpas(self._selectors[namespace], pods)
            known = _Known(target, selecting, deployment, version)
            self._targets[hpa.metadata.key] = known
        return known

    @cached_property
    def _selectors(self) -> dict[str, SelectorIndex[tuple[int, str]]]:
        """The HPAs' selectors in each namespace; made once, as no HPA comes or goes."""
        cluster = self._world.cluster
        found: dict[str, list[tuple[tuple[int, str], Selector]]] = {}
        for rank, (key, hpa) in enumerate(cluster.hpas.items()):
            deployment = cluster.deployments[f"{hpa.metadata.namespace}/{hpa.target.name}"]
            selector = parse_selector(str(deployment.selector))
            found.setdefault(hpa.metadata.namespace, []).append(((rank, key), selector))
        return {namespace: SelectorIndex(selectors) for namespace, selectors in found.items()}

    def figures(self) -> dict[str, SyncFigures]:
        """Return the figures of each HPA that has synced."""
        return {
            key: shown_figures(decision.desired_replicas, decision.metrics)
            for key, decision in self.decisions.items()
        }

    def sync(self, key: str, observations: Sequence[Observation], now_ms: int) -> Decision:
        """Decide for one HPA, and write the scale if it changes."""
        hpa = self._world.cluster.hpas[key]
        known = self._known(hpa)
        target = known.target
        if key not in self._policies:
            self._policies[key] = self._world.setup.replica_policy()
        request = ReplicaRequest(
            hpa,
            target.scale,
            target.pods,
            tuple(observations),
            now_ms,
            self.settings,
            known.selecting,
        )
        decision = self._policies[key].decide(request)
        self.decisions[key] = decision
        log = self._world.cluster.events
        about, namespace = f"HorizontalPodAutoscaler/{hpa.metadata.name}", hpa.metadata.namespace
        text = "; ".join(warning.message for warning in decision.warnings)
        # Kubernetes counts a warning's repetitions instead of listing them.
        tell = log.repeat if self._reported.get(key) == text else log.add
        self._reported[key] = text
        for warning in decision.warnings:
            tell(simulation_event(warning, about, namespace, now_ms))
        if decision.rescale:
            self._world.scale_outs.seen_ms = _measured_ms(observations)
            self._world.set_replicas(target.deployment, decision.desired_replicas)
            if decision.event is not None:
                change = decision.current_replicas, decision.desired_replicas
                log.add(simulation_event(decision.event, about, namespace, now_ms, change))
        return decision


def _measured_ms(observations: Sequence[Observation]) -> int | None:
    """Return when the newest value was measured; None where none has a time."""
    times: list[int] = []
    for each in observations:
        match each:
            case PodValues():
                times += [sample.measured_ms for sample in each.samples]
            case ObjectValue() | ExternalValues():
                times.append(each.measured_ms)
            case _:
                pass
    return max(times, default=None)


def controller_settings(pipeline: Pipeline) -> ControllerSettings:
    """Return the scenario's settings of the HPA controller."""
    settings = replace(
        settings_of(parse_version(pipeline.kubernetes_version)),
        downscale_stabilization_s=pipeline.downscale_stabilization // 1000,
        tolerance=pipeline.tolerance,
    )
    if pipeline.hpa_scale_to_zero is None:
        return settings
    return replace(settings, scale_to_zero=pipeline.hpa_scale_to_zero)


def shown_figures(desired: int, metrics: Sequence[MetricStatus]) -> SyncFigures:
    """Return an HPA's figures: desired replicas, and the metric that decided, or else the first."""
    if not metrics:
        return SyncFigures(desired, None)
    shown = deciding_metric(metrics) or metrics[0]
    average = shown.average_value_milli
    milli = shown.value_milli if average is None else average
    return SyncFigures(desired, milli, shown.index)


def selecting_hpas(
    index: SelectorIndex[tuple[int, str]], pods: Sequence[PodInfo]
) -> tuple[str, ...]:
    """Return what `hpas_selecting` does, of HPAs with their rank and key.

    Pods of one Deployment have the same labels, so the index is asked once for all of them.
    """
    kinds = {tuple(pod.labels.items()): pod.labels for pod in pods}
    found = {each for labels in kinds.values() for each in index.taking(labels)}
    return tuple(key for _, key in sorted(found))
