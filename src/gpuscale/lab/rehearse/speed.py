"""Rehearsals at a multiple of real time: which times are divided, and what can't be sped up.

Load, start-up times, nodes, jobs and the hops of metrics follow the scenario's clock. The HPA controller
follows the machine's, so its flags have to be divided too, which only its operator can do;
so are the times in the scenario's own objects, which Kubernetes holds in whole seconds.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

from gpuscale.base.clock import Clock, WallClock
from gpuscale.base.errors import UsageError
from gpuscale.base.golang.durations import format_duration
from gpuscale.base.objects.hpa import Behavior, HorizontalPodAutoscaler, ScalingRules
from gpuscale.base.objects.hpa.manifest import hpa_manifest
from gpuscale.base.objects.scaled_object import ScaledObject
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import JsonObject
from gpuscale.lab.sim.scenario.model import Pipeline
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.triggers.keda import made_hpa

SYNC_FLAG = "--horizontal-pod-autoscaler-sync-period"
STABILIZATION_FLAG = "--horizontal-pod-autoscaler-downscale-stabilization"
_SHORTEST_SYNC_MS = 500
"""A sync takes the controller some 50 ms, and values take as long through scrape and rules."""
_TIMES_OF_KIND: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "Deployment": (("spec", "minReadySeconds"),),
    "Job": (("spec", "activeDeadlineSeconds"), ("spec", "ttlSecondsAfterFinished")),
}
"""Times in whole seconds that controllers go by."""
_CONTROLLERS = frozenset(
    {
        "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
        "system:kube-controller-manager",
    }
)
"""Users that the HPA controller asks as, with credentials of its own and without."""
_LOOK_S = 0.25
_GRACE_S = 5.0
_CERTAIN = 3
"""Intervals that are no coincidence."""


@dataclass(frozen=True, slots=True)
class HpaFlags:
    """kube-controller-manager's flags for a speed."""

    sync_period_ms: float
    downscale_stabilization_ms: float

    def __str__(self) -> str:
        sync, stabilization = self.sync_period_ms / 1000, self.downscale_stabilization_ms / 1000
        return f"{SYNC_FLAG}={sync:g}s {STABILIZATION_FLAG}={stabilization:g}s"


def hpa_flags(pipeline: Pipeline, speed: float) -> HpaFlags:
    """Return the HPA controller's flags for a speed."""
    return HpaFlags(pipeline.hpa_sync_period / speed, pipeline.downscale_stabilization / speed)


def check_speed(setup: Setup, speed: float) -> None:
    """Raise unless everything in a scenario can be sped up.

    Raises:
        UsageError: with all that can't.
    """
    faults = [
        f"{name}: found {seconds} s, expected a multiple of the speed: "
        "Kubernetes holds it in whole seconds"
        for name, seconds in _times(setup)
        if (seconds / speed) % 1
    ]
    sync_ms = setup.pipeline.hpa_sync_period
    if (setup.hpas or setup.scaled_objects) and sync_ms / speed < _SHORTEST_SYNC_MS:
        most = sync_ms / _SHORTEST_SYNC_MS
        faults.append(
            f"the HPA controller would look every {sync_ms / speed / 1000:g} s; a control plane keeps up "
            f"with every {_SHORTEST_SYNC_MS / 1000:g} s, which is --speed {most:g}"
        )
    if faults:
        raise UsageError("\n".join(f"--speed {speed:g}: {fault}" for fault in faults))


def sped_up_hpa(hpa: HorizontalPodAutoscaler, speed: float) -> HorizontalPodAutoscaler:
    """Return an HPA with its behavior sped up; fields it omits stay omitted."""
    if hpa.behavior is None:
        return hpa
    up, down = hpa.behavior.scale_up, hpa.behavior.scale_down
    behavior = Behavior(_sped_up_rules(up, speed), _sped_up_rules(down, speed))
    return replace(hpa, behavior=behavior)


def sped_up_manifest(manifest: JsonObject, speed: float) -> JsonObject:
    """Return a Deployment or Job with its times divided, changed in place."""
    for *parents, name in _TIMES_OF_KIND.get(manifest["kind"], ()):
        holder = manifest
        for parent in parents:
            holder = holder[parent]
        if holder.get(name):
            holder[name] = round(holder[name] / speed)
    return manifest


def sped_up_scaled_object(manifest: JsonObject, scaled: ScaledObject, speed: float) -> JsonObject:
    """Return a ScaledObject with its times divided, changed in place; KEDA's defaults are written out."""
    if speed == 1:
        return manifest
    spec = manifest["spec"]
    spec |= {name: round(seconds / speed) for name, seconds in _scaled_object_times(scaled)}
    if scaled.behavior is not None:
        hpa = sped_up_hpa(replace(made_hpa(scaled), behavior=scaled.behavior), speed)
        behavior = hpa_manifest(hpa)["spec"]["behavior"]
        spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"] = behavior
    return manifest


def _scaled_object_times(scaled: ScaledObject) -> Iterator[tuple[str, int]]:
    yield "pollingInterval", scaled.polling_interval_s
    yield "cooldownPeriod", scaled.cooldown_s
    yield "initialCooldownPeriod", scaled.initial_cooldown_s


def _sped_up_rules(rules: ScalingRules, speed: float) -> ScalingRules:
    window_s = rules.stabilization_window_s
    return replace(
        rules,
        policies=tuple(
            replace(each, period_s=round(each.period_s / speed)) for each in rules.policies
        ),
        stabilization_window_s=None if window_s is None else round(window_s / speed),
    )


def _times(setup: Setup) -> Iterator[tuple[str, int]]:
    for hpa in setup.hpas:
        where = f"HorizontalPodAutoscaler/{hpa.metadata.name} spec.behavior"
        yield from _behavior_times(where, hpa.behavior)
    for scaled in setup.scaled_objects:
        where = f"ScaledObject/{scaled.metadata.name} spec"
        for name, seconds in _scaled_object_times(scaled):
            yield f"{where}.{name}", seconds
        config = "advanced.horizontalPodAutoscalerConfig.behavior"
        yield from _behavior_times(f"{where}.{config}", scaled.behavior)
    for manifest in setup.manifests:
        metadata = mapping_of(manifest.get("metadata"))
        for path in _TIMES_OF_KIND.get(text_of(manifest.get("kind")), ()):
            holder: object = manifest
            for part in path:
                holder = mapping_of(holder).get(part)
            if isinstance(holder, int) and holder:
                name = f"{manifest['kind']}/{text_of(metadata.get('name'))}"
                yield f"{name} {'.'.join(path)}", holder


def _behavior_times(where: str, behavior: Behavior | None) -> Iterator[tuple[str, int]]:
    if behavior is None:
        return
    for side, rules in (("scaleUp", behavior.scale_up), ("scaleDown", behavior.scale_down)):
        for period_s in sorted({policy.period_s for policy in rules.policies}):
            yield f"{where}.{side}.policies.periodSeconds", period_s
        if rules.stabilization_window_s:
            yield f"{where}.{side}.stabilizationWindowSeconds", rules.stabilization_window_s


async def check_sync_period(audit_log: Path, flags: HpaFlags, clock: Clock | None = None) -> None:
    """Wait until a metrics API's audit log shows that the HPA controller syncs often enough.

    Args:
        audit_log: of the metrics API that it asks.
        flags: what it should have.
        clock: times the wait.

    Raises:
        UsageError: it does not look as often, or more often.
    """
    clock = clock or WallClock()
    expected_s = flags.sync_period_ms / 1000
    limit_s = 4 * expected_s + _GRACE_S
    until_ms = clock.now_ms() + round(limit_s * 1000)
    while True:
        found = _intervals(_lines(audit_log))
        late_s = median(found) - expected_s if found else 0.0
        tolerance_s = 0.25 * expected_s + 0.25
        if found and abs(late_s) <= tolerance_s:
            return
        is_hasty = len(found) >= _CERTAIN and late_s < 0
        if is_hasty or clock.now_ms() >= until_ms:
            seen = f"one every {median(found):.1f} s" if found else f"none twice in {limit_s:g} s"
            raise UsageError(
                f"--speed: looks of the HPA controller: found {seen}, expected one every "
                f"{expected_s:g} s; give kube-controller-manager {flags}, or leave out --speed"
            )
        await clock.sleep(_LOOK_S)


def _lines(audit_log: Path) -> list[str]:
    # The last line may be incomplete; it will be complete at the next look.
    return audit_log.read_text(encoding="utf-8").split("\n")[:-1] if audit_log.exists() else []


def _intervals(lines: Iterable[str]) -> list[float]:
    """Return the seconds between the controller's requests for the same metric."""
    times: dict[str, list[float]] = {}
    for line in lines:
        event = mapping_of(json.loads(line))
        if text_of(mapping_of(event.get("user")).get("username")) in _CONTROLLERS:
            moment = datetime.fromisoformat(text_of(event.get("requestReceivedTimestamp")))
            times.setdefault(text_of(event.get("requestURI")), []).append(moment.timestamp())
    return [later - sooner for found in times.values() for sooner, later in pairwise(sorted(found))]


def speed_lines(setup: Setup, speed: float) -> Iterator[tuple[str, str]]:
    """Yield what a user must know about a speed: a name and a text."""
    whole, real = (
        format_duration(setup.duration_ms),
        format_duration(round(setup.duration_ms / speed)),
    )
    yield "speed", f"{speed:g}: {whole} of the scenario in {real}"
    if setup.hpas or setup.scaled_objects:
        yield "needs", f"kube-controller-manager with {hpa_flags(setup.pipeline, speed)}"
    yield (
        "not sped up",
        f"what Kubernetes itself takes: 0.1 s of its scheduler counts as {0.1 * speed:g} s",
    )
