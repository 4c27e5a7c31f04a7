"""Whether an HPA follows the policy behind its metric.

The metric is a count of replicas. With an AverageValue of 1 the controller's arithmetic is ceil(value / 1),
whatever pods are ready, unless value / replicas is within the tolerance. A Value target multiplies the pods
that are ready instead (kubernetes v1.36 replica_calculator.go, GetExternalMetric, GetExternalPerPodMetric).
"""

from collections.abc import Iterator

from gpuscale.base.findings import Checks, Severity
from gpuscale.base.objects.hpa import ExternalMetric
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.hpa_places import PlacedMetric
from gpuscale.triggers import ServedPolicy

POLICY_CHECKS = Checks()
POLICY_TARGET = POLICY_CHECKS.add(
    "policy-target",
    Severity.WARNING,
    "A target on the replicas that a policy wants, and another one than an averageValue of 1.",
    'Write target: {type: AverageValue, averageValue: "1"}.',
)
POLICY_TOLERANCE = POLICY_CHECKS.add(
    "policy-tolerance",
    Severity.WARNING,
    "A tolerance within which an HPA does not follow the policy behind its metric.",
    'Write tolerance: "0" under behavior.scaleUp and behavior.scaleDown. Before Kubernetes 1.35 it takes the '
    "feature gate HPAConfigurableTolerance.",
)


def policy_findings(
    metric: PlacedMetric, policy: ServedPolicy, tolerance: float
) -> Iterator[LintFinding]:
    """Return what keeps an HPA from the replica count of its policy.

    Args:
        metric: of the HPA.
        policy: behind it.
        tolerance: of the controller, where the HPA has none of its own.
    """
    spec = metric.spec
    if not isinstance(spec, ExternalMetric):
        return
    average = spec.target.average_value
    if average is None or average.milli_value() != 1000:
        key = "value" if average is None else "averageValue"
        found = spec.target.value if average is None else average
        yield POLICY_TARGET.found(
            metric.target(key),
            f"{spec.name} is the count of replicas that {policy.name} wants, and the target is "
            f"{key} {found}: the HPA goes to another count.",
            "",
        )
        return
    behavior = metric.placed.hpa.behavior
    rules = () if behavior is None else (behavior.scale_up, behavior.scale_down)
    own = [tolerance if each.tolerance is None else float(each.tolerance) for each in rules]
    most = max(own, default=tolerance)
    # The lowest count at which one replica more or less is within the tolerance.
    if most > 0 and policy.most * most >= 1:
        yield POLICY_TOLERANCE.found(
            metric.placed.place("spec", "behavior"),
            f"From {round(1 / most)} replicas on, a change by one is within the tolerance of "
            f"{most:g}, and the HPA stays where it is.",
            f"maxReplicas of the policy: {policy.most}",
        )
