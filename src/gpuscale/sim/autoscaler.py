"""The HPA controller of the simulated cluster: fetches nothing itself, asks a replica policy, applies.

The caller brings one observation per metric, from the rules in virtual time or over HTTP when live.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuscale.hpa.policy import ReplicaPolicy, ReplicaRequest
from gpuscale.hpa.replicas.pods import pod_info
from gpuscale.hpa.selectors import hpas_selecting
from gpuscale.hpa.types import (
    ControllerSettings,
    Decision,
    Event,
    Observation,
    PodInfo,
    Scale,
)
from gpuscale.hpa.versions import parse_version, settings_of
from gpuscale.objects.hpa import HorizontalPodAutoscaler
from gpuscale.objects.selectors import parse_selector
from gpuscale.sim.control.controllers import live_pods
from gpuscale.sim.scenario.model import Pipeline
from gpuscale.sim.world import World


@dataclass(frozen=True, slots=True)
class Target:
    """What an HPA scales, as it stands."""

    deployment: str
    """`namespace/name`."""
    scale: Scale
    pods: tuple[PodInfo, ...]


@dataclass(frozen=True, slots=True)
class HpaFigures:
    """What an HPA's status shows after a sync."""

    desired: int
    milli: int | None
    """Its first metric, per pod where it is averaged, in thousandths; None where it has no value."""


class HpaController:
    """The HPAs of a world, and what each of them remembers."""

    def __init__(self, world: World) -> None:
        pipeline = world.setup.pipeline
        self.decisions: dict[str, Decision] = {}
        """HPA key to its latest decision."""
        self._world = world
        self._policies: dict[str, ReplicaPolicy] = {}
        """One for each HPA, by its key."""
        self._reported: dict[str, str] = {}
        self._targets: dict[str, tuple[int, Target]] = {}
        """HPA key to what it scales, and the version of the cluster at which that was so."""
        self._settings = controller_settings(pipeline)

    def target(self, hpa: HorizontalPodAutoscaler) -> Target:
        """Return the scale of an HPA's Deployment and the pods behind its selector."""
        cluster = self._world.cluster
        version, kept = self._targets.get(hpa.metadata.key, (-1, None))
        if kept is None or version != cluster.version:
            kept = self._find_target(hpa)
            self._targets[hpa.metadata.key] = (cluster.version, kept)
        return kept

    def _find_target(self, hpa: HorizontalPodAutoscaler) -> Target:
        cluster = self._world.cluster
        key = f"{hpa.metadata.namespace}/{hpa.target.name}"
        deployment = cluster.deployments[key]
        pods = cluster.selected(hpa.metadata.namespace, deployment.selector)
        status_replicas = len(live_pods(cluster, deployment))
        scale = Scale(deployment.replicas, status_replicas, str(deployment.selector))
        return Target(key, scale, tuple(pod_info(pod) for pod in pods))

    def figures(self) -> dict[str, HpaFigures]:
        """Return what each HPA that was synced shows."""
        return {key: _figures(decision) for key, decision in self.decisions.items()}

    def sync(self, key: str, observations: Sequence[Observation], now_ms: int) -> Decision:
        """Decide for one HPA and write the scale if it changes."""
        hpa = self._world.cluster.hpas[key]
        target = self.target(hpa)
        if key not in self._policies:
            self._policies[key] = self._world.setup.replica_policy()
        request = ReplicaRequest(
            hpa,
            target.scale,
            target.pods,
            tuple(observations),
            now_ms,
            self._settings,
            self._selecting(hpa, target),
        )
        decision = self._policies[key].decide(request)
        self.decisions[key] = decision
        self._warn(hpa, decision, now_ms)
        if decision.rescale:
            self._apply(hpa, target, decision, now_ms)
        return decision

    def _selecting(self, hpa: HorizontalPodAutoscaler, target: Target) -> tuple[str, ...]:
        """Return the HPAs of the namespace whose selectors find pods of this target."""
        others = {
            key: parse_selector(self.target(other).scale.selector)
            for key, other in self._world.cluster.hpas.items()
            if other.metadata.namespace == hpa.metadata.namespace
        }
        return hpas_selecting(target.pods, others) if len(others) > 1 else ()

    def _apply(
        self, hpa: HorizontalPodAutoscaler, target: Target, decision: Decision, now_ms: int
    ) -> None:
        self._world.set_replicas(target.deployment, decision.desired_replicas)
        if decision.event is not None:
            self._log(hpa, decision.event, decision, now_ms)

    def _warn(self, hpa: HorizontalPodAutoscaler, decision: Decision, now_ms: int) -> None:
        """Log warnings when they are new; Kubernetes counts the repetitions instead of listing them."""
        text = "; ".join(warning.message for warning in decision.warnings)
        if text and self._reported.get(hpa.metadata.key) != text:
            for warning in decision.warnings:
                self._log(hpa, warning, None, now_ms)
        self._reported[hpa.metadata.key] = text

    def _log(
        self, hpa: HorizontalPodAutoscaler, event: Event, decision: Decision | None, now_ms: int
    ) -> None:
        self._world.cluster.event(
            now_ms,
            event.reason,
            f"HorizontalPodAutoscaler/{hpa.metadata.name}",
            event.message,
            before=decision.current_replicas if decision else None,
            after=decision.desired_replicas if decision else None,
        )


def controller_settings(pipeline: Pipeline) -> ControllerSettings:
    """Return what a scenario says of the HPA controller."""
    settings = replace(
        settings_of(parse_version(pipeline.kubernetes_version)),
        downscale_stabilization_s=pipeline.downscale_stabilization // 1000,
        tolerance=pipeline.tolerance,
    )
    if pipeline.hpa_scale_to_zero is None:
        return settings
    return replace(settings, scale_to_zero=pipeline.hpa_scale_to_zero)


def _figures(decision: Decision) -> HpaFigures:
    if not decision.metrics:
        return HpaFigures(decision.desired_replicas, None)
    shown = decision.metrics[0]
    average = shown.average_value_milli
    return HpaFigures(decision.desired_replicas, shown.value_milli if average is None else average)
