"""Versions and kinds that are no longer served: a table of what replaced each, and since when.

Source: Kubernetes' deprecated API migration guide; KEDA's migration guide (v1 to v2); Karpenter's v1beta1
    migration guide and upgrade notes of 0.33.
"""

from dataclasses import dataclass

from gpuscale.ops.lint.parts import Part


@dataclass(frozen=True, slots=True)
class Removed:
    """What replaced a version or a kind."""

    since: str
    """The first release without it."""
    instead: str
    how: str
    is_read: bool = True
    """Whether it has the fields of what replaced it, so that checks look at these."""


_KUBERNETES = (
    (
        "autoscaling/v2beta1",
        ("HorizontalPodAutoscaler",),
        Removed(
            "Kubernetes 1.25",
            "autoscaling/v2",
            "metricName becomes metric.name, and targetAverageValue becomes target: "
            "{type: AverageValue, averageValue: ...}",
        ),
    ),
    (
        "autoscaling/v2beta2",
        ("HorizontalPodAutoscaler",),
        Removed("Kubernetes 1.26", "autoscaling/v2", "the fields are the same"),
    ),
    *(
        (
            version,
            ("Deployment",),
            Removed("Kubernetes 1.16", "apps/v1", "spec.selector is required"),
        )
        for version in ("extensions/v1beta1", "apps/v1beta1", "apps/v1beta2")
    ),
    (
        "policy/v1beta1",
        ("PodDisruptionBudget",),
        Removed("Kubernetes 1.25", "policy/v1", "an empty selector takes every pod"),
    ),
    (
        "batch/v1beta1",
        ("CronJob",),
        Removed("Kubernetes 1.25", "batch/v1", "the fields are the same"),
    ),
)
_KEDA = (
    (
        "keda.k8s.io/v1alpha1",
        ("ScaledObject", "TriggerAuthentication"),
        Removed(
            "KEDA 2.0",
            "keda.sh/v1alpha1",
            "scaleTargetRef.deploymentName becomes scaleTargetRef.name, containerName becomes "
            "envSourceContainerName, and scaleType: job becomes a ScaledJob",
            is_read=False,
        ),
    ),
)
_KARPENTER = tuple(
    (version, (kind,), Removed("Karpenter 0.33", instead, how, is_read=False))
    for version, kind, instead, how in (
        (
            "karpenter.sh/v1alpha5",
            "Provisioner",
            "a NodePool of karpenter.sh/v1",
            "requirements, taints and labels go below spec.template, providerRef is nodeClassRef, "
            "ttlSecondsUntilExpired becomes expireAfter, and consolidation becomes disruption",
        ),
        (
            "karpenter.k8s.aws/v1alpha1",
            "AWSNodeTemplate",
            "an EC2NodeClass of karpenter.k8s.aws/v1",
            "its selectors become lists of terms, and instanceProfile or role is required",
        ),
    )
)
_REMOVED = {
    (version, kind): gone
    for version, kinds, gone in (*_KUBERNETES, *_KEDA, *_KARPENTER)
    for kind in kinds
}


def removed(whole: Part) -> Removed | None:
    """Return what replaced an object's version or kind; None where it is still served, or is not known."""
    return _REMOVED.get((whole.text("apiVersion"), whole.text("kind")))
