"""An HPA as a contender: its target as a share of a busy pod, and converted back for writing."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gpuscale.base.errors import UsageError
from gpuscale.base.objects.hpa import (
    Behavior,
    ContainerResourceMetric,
    HorizontalPodAutoscaler,
    MetricSpec,
    PodsMetric,
    ResourceMetric,
)
from gpuscale.base.quantity import Quantity
from gpuscale.hpa.terms import unit_of
from gpuscale.lab.plan.tuning.contender import LEAST, MOST, Contender, Setting
from gpuscale.lab.plan.tuning.rates import UP_TOLERANCE_NAME, behavior_searched
from gpuscale.triggers.policies import (
    HPA,
    HPA_ON_DEMAND,
    MAX_POLICIES,
    Parameter,
    Policy,
    ReplaySettings,
    behavior_settings,
)

TARGET, WINDOW, TOLERANCE = "target", "down_window_s", "tolerance"
_BUSY = re.compile(r"(gpu|sm)_util|engine_active", re.IGNORECASE)
"""In the names of metrics that say how busy GPUs are; other shares are those of memory."""
_MOST_STEPS = 250
"""Of a stabilization window; the policy remembers some more."""
_LONGEST_WINDOW_S = 3600
_MOST_TOLERANCE = 0.5
_DEFAULT_TARGET = 0.6
_CONTROLLER_WINDOW_S = 300.0
_CONTROLLER_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class ControllerDefaults:
    """kube-controller-manager's settings where an HPA has none."""

    window_s: float = _CONTROLLER_WINDOW_S
    tolerance: float = _CONTROLLER_TOLERANCE


@dataclass(frozen=True, slots=True)
class TunedHpa:
    """A workload's HPA."""

    hpa: HorizontalPodAutoscaler | None
    """None: none was given, and the defaults of autoscaling/v2 count."""
    policy: Policy
    full: float
    """What the metric says of pods that are busy all the time."""
    controller: ControllerDefaults

    def contender(self, service: ReplaySettings, static: int, peak: float) -> Contender:
        """Return the HPA as a contender, with today's values as defaults.

        Args:
            service: that it scales.
            static: pods that keep the promise standing still; the minimum is searched up to it.
            peak: the highest demand, in pods; the maximum is searched down to it.
        """
        return self.on(self.policy, self.share, service, static, peak)

    def on(
        self,
        policy: Policy,
        target: float,
        service: ReplaySettings,
        static: int,
        peak: float,
        more: Sequence[float] = (),
    ) -> Contender:
        """Return an HPA with the same behavior on another signal; `more` are that signal's arguments."""
        behavior = Behavior() if self.hpa is None else self.hpa.behavior or Behavior()
        down = behavior.scale_down
        own_window_s = down.stabilization_window_s
        window_s = self.controller.window_s if own_window_s is None else float(own_window_s)
        own = self.controller.tolerance
        tolerance = own if down.tolerance is None else float(down.tolerance)
        known = {each.name: each for each in policy.parameters}
        share = known[TARGET]
        longest_s = min(_LONGEST_WINDOW_S, _MOST_STEPS * service.step_s)
        parameters = (
            replace(
                share,
                default=target,
                least=min(share.least, target),
                most=max(share.most, target),
            ),
            Parameter(WINDOW, window_s, 0, max(longest_s, window_s)),
            Parameter(TOLERANCE, tolerance, 0, max(tolerance, _MOST_TOLERANCE)),
        )
        least = max(service.least, min(service.most, float(static)))
        most = min(service.most, max(least, math.ceil(peak)))
        return Contender(
            replace(policy, parameters=parameters),
            behavior_settings(behavior, own, more),
            (
                Setting(Parameter(LEAST, service.least, service.least, least), "least"),
                Setting(Parameter(MOST, service.most, most, service.most), "most"),
                *behavior_searched(behavior, own, longest_s),
            ),
            (TARGET, WINDOW, LEAST),
            # Utilization is limited to 100 %; demand is not.
            (TARGET, UP_TOLERANCE_NAME) if policy is HPA else None,
        )

    @property
    def share(self) -> float:
        """Return today's target as a share of a fully busy pod."""
        if self.hpa is None:
            return _DEFAULT_TARGET
        return float(target_of(self.hpa.metrics[0])) / self.full


def autoscaler_of(
    hpa: HorizontalPodAutoscaler | None,
    full: float | None,
    busy_share: float,
    controller: ControllerDefaults,
) -> TunedHpa:
    """Return a workload's autoscaler.

    Args:
        hpa: its HPA; None where it has none.
        full: what the metric says of pods that are busy all the time; None takes what its name says.
        busy_share: how busy GPUs are at the most, where a pod's slots are its limit and not they.
        controller: for what the HPA leaves out.

    Raises:
        UsageError: the HPA goes by what can't be replayed.
    """
    if hpa is None:
        return TunedHpa(None, HPA, 1.0, controller)
    name = f"HPA {hpa.metadata.key}"
    if len(hpa.metrics) != 1:
        raise UsageError(f"{name}: found {len(hpa.metrics)} metrics, expected one")
    metric = hpa.metrics[0]
    if isinstance(metric, ResourceMetric | ContainerResourceMetric):
        expected = "a Pods, Object or External metric: requests of cpu and memory are not replayed"
        raise UsageError(f"{name}: found the resource {metric.name}, expected {expected}")
    behavior = hpa.behavior or Behavior()
    policies = len(behavior.scale_up.policies) + len(behavior.scale_down.policies)
    if policies > MAX_POLICIES:
        expected = f"at most {MAX_POLICIES} in both directions"
        raise UsageError(f"{name}: found {policies} policies in behavior, expected {expected}")
    if float(target_of(metric)) <= 0:
        raise UsageError(f"{name}: found a target of 0, expected one above 0")
    is_average = not isinstance(metric, PodsMetric) and metric.target.average_value is not None
    policy = HPA_ON_DEMAND if is_average else HPA
    if full is not None:
        return TunedHpa(hpa, policy, full, controller)
    unit = unit_of(metric.name)
    if is_average or unit is None or not _BUSY.search(metric.name):
        raise UsageError(
            f"{name}: {metric.name} is not known as how busy GPUs are; give --metric-full, what it"
            f" says{' of one pod' if is_average else ''} when the pods are busy all the time"
        )
    return TunedHpa(hpa, policy, busy_share / unit.unit.scale, controller)


def default_change(autoscaler: TunedHpa) -> Mapping[str, object] | None:
    """Return the change of a scenario's HPA to one of defaults: from one pod on, at 60 % of a busy pod."""
    hpa = autoscaler.hpa
    if hpa is None:
        return None
    target = {hpa.metrics[0].name: _DEFAULT_TARGET * autoscaler.full}
    return {"at": "0s", "hpa": hpa.metadata.key, "minReplicas": 1, "targets": target}


def target_of(metric: MetricSpec) -> Quantity:
    """Return a metric's target, of either kind."""
    target = metric.target
    found = target.value if target.average_value is None else target.average_value
    assert found is not None  # noqa: S101 - autoscaling's validation asks for one of the two
    return found
