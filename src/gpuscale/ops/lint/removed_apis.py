"""API versions that no release serves any more, and what took their place.

Source: Kubernetes' deprecation guide; KEDA's migration guide from 1 to 2; karpenter's upgrade guide (0.33).
"""

from dataclasses import dataclass
from types import MappingProxyType

from gpuscale.ops.lint.parts import Part


@dataclass(frozen=True, slots=True)
class RemovedApi:
    """An API version, or one kind of it."""

    since: str
    """The release that serves it no more."""
    instead: str
    """What to write."""


_APPS = RemovedApi("Kubernetes 1.16", "apps/v1")
_KEDA = RemovedApi(
    "KEDA 2", "keda.sh/v1alpha1, where scaleTargetRef has name in place of deploymentName"
)
_REMOVED = MappingProxyType(
    {
        "apps/v1beta1": _APPS,
        "apps/v1beta2": _APPS,
        "extensions/v1beta1 Deployment": _APPS,
        "extensions/v1beta1 DaemonSet": _APPS,
        "extensions/v1beta1 ReplicaSet": _APPS,
        "policy/v1beta1 PodDisruptionBudget": RemovedApi("Kubernetes 1.25", "policy/v1"),
        "keda.k8s.io/v1alpha1": _KEDA,
        "karpenter.sh/v1alpha5": RemovedApi("Karpenter 0.33", "a NodePool of karpenter.sh/v1"),
        "karpenter.k8s.aws/v1alpha1": RemovedApi(
            "Karpenter 0.33", "an EC2NodeClass of karpenter.k8s.aws/v1"
        ),
    }
)


def removed_api(whole: Part) -> RemovedApi | None:
    """Return what is said of an object's API version; None where it is served."""
    version = whole.text("apiVersion")
    return _REMOVED.get(version) or _REMOVED.get(f"{version} {whole.text('kind')}")
