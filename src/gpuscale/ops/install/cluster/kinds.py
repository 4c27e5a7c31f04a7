"""The API paths of each kind of object."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object, with its API path."""

    api_version: str
    name: str
    plural: str
    is_namespaced: bool = True

    @property
    def base(self) -> str:
        """Return the path of the kind's group and version."""
        return (
            f"/apis/{self.api_version}" if "/" in self.api_version else f"/api/{self.api_version}"
        )

    @property
    def everywhere(self) -> str:
        """Return the path of the kind's objects in all namespaces."""
        return f"{self.base}/{self.plural}"

    def path(self, name: str, namespace: str | None = None) -> str:
        inside = f"/namespaces/{namespace}" if self.is_namespaced else ""
        return f"{self.base}{inside}/{self.plural}/{name}"


_RBAC = "rbac.authorization.k8s.io/v1"
_ADMISSION = "admissionregistration.k8s.io/v1"
KINDS = (
    Kind("v1", "Namespace", "namespaces", is_namespaced=False),
    Kind("v1", "ServiceAccount", "serviceaccounts"),
    Kind(
        _ADMISSION,
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        is_namespaced=False,
    ),
    Kind(
        _ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        is_namespaced=False,
    ),
    Kind(_RBAC, "ClusterRole", "clusterroles", is_namespaced=False),
    Kind(_RBAC, "ClusterRoleBinding", "clusterrolebindings", is_namespaced=False),
    Kind(_RBAC, "Role", "roles"),
    Kind(_RBAC, "RoleBinding", "rolebindings"),
    Kind("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies"),
    Kind("cert-manager.io/v1", "Issuer", "issuers"),
    Kind("cert-manager.io/v1", "Certificate", "certificates"),
    Kind("v1", "Secret", "secrets"),
    Kind("v1", "ConfigMap", "configmaps"),
    Kind("v1", "Service", "services"),
    Kind("monitoring.coreos.com/v1", "PrometheusRule", "prometheusrules"),
    Kind("monitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors"),
    Kind("monitoring.coreos.com/v1", "PodMonitor", "podmonitors"),
    Kind("azmonitoring.coreos.com/v1", "ServiceMonitor", "servicemonitors"),
    Kind("azmonitoring.coreos.com/v1", "PodMonitor", "podmonitors"),
    Kind("apps/v1", "DaemonSet", "daemonsets"),
    Kind("apps/v1", "Deployment", "deployments"),
    Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets"),
    Kind("batch/v1", "Job", "jobs"),
    Kind("apiregistration.k8s.io/v1", "APIService", "apiservices", is_namespaced=False),
    Kind("autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    Kind("autoscaling/v2beta2", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    Kind("autoscaling/v2beta1", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
    Kind("keda.sh/v1alpha1", "TriggerAuthentication", "triggerauthentications"),
    Kind("keda.sh/v1alpha1", "ScaledObject", "scaledobjects"),
    Kind("keda.sh/v1alpha1", "ScaledJob", "scaledjobs"),
)
"""Every kind that is rendered, in the order in which objects are applied."""
SECRETS = next(kind for kind in KINDS if kind.name == "Secret")
PODS = Kind("v1", "Pod", "pods")
NODES = Kind("v1", "Node", "nodes", is_namespaced=False)
STATEFUL_SETS = Kind("apps/v1", "StatefulSet", "statefulsets")
_BY_NAME = {(kind.api_version, kind.name): kind for kind in KINDS}


def kind_named(name: str) -> Kind:
    """Return the newest version of a kind among the rendered ones."""
    return next(kind for kind in KINDS if kind.name == name)


def kind_of(body: Mapping[str, Any]) -> Kind:
    """Return the kind of an object."""
    return _BY_NAME[body["apiVersion"], body["kind"]]


def path_of(body: Mapping[str, Any]) -> str:
    """Return the path of an object."""
    metadata = body["metadata"]
    return kind_of(body).path(metadata["name"], metadata.get("namespace"))


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """An object's kind, namespace and name, as messages show them."""

    kind: str
    namespace: str
    """Empty for objects in no namespace."""
    name: str

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"


def reference(body: Mapping[str, Any]) -> Reference:
    """Return the reference of an object."""
    metadata = body["metadata"]
    return Reference(body["kind"], metadata.get("namespace", ""), metadata["name"])
