"""The kinds of objects that are listed, and the right that each takes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Listed:
    """One kind."""

    plural: str
    path: str
    needs: str
    """As `--resource` of kubectl create clusterrole names it."""
    field_selector: str = ""


KINDS = (
    Listed("nodes", "/api/v1/nodes", "nodes"),
    Listed("pods", "/api/v1/pods", "pods"),
    Listed("services", "/api/v1/services", "services"),
    Listed("daemonsets", "/apis/apps/v1/daemonsets", "daemonsets.apps"),
    Listed("deployments", "/apis/apps/v1/deployments", "deployments.apps"),
    Listed("statefulsets", "/apis/apps/v1/statefulsets", "statefulsets.apps"),
    Listed("resourcequotas", "/api/v1/resourcequotas", "resourcequotas"),
    Listed(
        "apiservices",
        "/apis/apiregistration.k8s.io/v1/apiservices",
        "apiservices.apiregistration.k8s.io",
    ),
    Listed(
        "hpas",
        "/apis/autoscaling/v2/horizontalpodautoscalers",
        "horizontalpodautoscalers.autoscaling",
    ),
    Listed("events", "/api/v1/events", "events", "reason=NotTriggerScaleUp"),
    Listed(
        "autoscaler-status",
        "/api/v1/namespaces/kube-system/configmaps",
        "configmaps",
        "metadata.name=cluster-autoscaler-status",
    ),
    Listed("nodepools", "/apis/karpenter.sh/v1/nodepools", "nodepools.karpenter.sh"),
    Listed("scaledobjects", "/apis/keda.sh/v1alpha1/scaledobjects", "scaledobjects.keda.sh"),
    Listed(
        "servicemonitors",
        "/apis/monitoring.coreos.com/v1/servicemonitors",
        "servicemonitors.monitoring.coreos.com",
    ),
)
"""What a cluster does not have, such as Karpenter's kinds, counts as empty."""
