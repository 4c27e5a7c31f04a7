"""Kubernetes resources by their names: `pod`, `pods`, `deployments.apps`.

Source: k8s.io/apimachinery pkg/api/meta (restmapper.go, priority.go); the singular, plural and kind of
the built-in resources as Kubernetes 1.34 lists them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuscale.base.errors import NotFoundError


class UnknownResourceError(NotFoundError):
    """No known resource has this name and group."""

    def __init__(self, resource: str, group: str) -> None:
        self.resource = resource
        self.group = group
        name = f"{resource}.{group}" if group else resource
        super().__init__(f"unknown resource {name!r}")


@dataclass(frozen=True, slots=True)
class ResourceType:
    """One resource of the Kubernetes API."""

    plural: str
    singular: str
    kind: str
    group: str = ""
    """Empty for the core group."""
    version: str = "v1"
    namespaced: bool = True

    @property
    def name(self) -> str:
        """Return the plural, with `.group` behind it outside the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        """Return `group/version`; `/v1` for the core group, as upstream's metric answers have it."""
        return f"{self.group}/{self.version}"


class ResourceMapper:
    """The cluster's resources in order of preference, looked up by singular or plural name."""

    def __init__(self, types: Iterable[ResourceType]) -> None:
        self.types = tuple(types)
        self._by_name: dict[str, list[ResourceType]] = {}
        for known in self.types:
            for name in {known.plural, known.singular}:
                self._by_name.setdefault(name, []).append(known)

    def find(self, resource: str, group: str = "") -> ResourceType:
        """Return the resource; without a group the preferred one, else an exact or prefix match.

        Raises:
            UnknownResourceError: there is none.
        """
        found = self._by_name.get(resource.lower(), ())
        wanted = group.lower()
        exact = next((known for known in found if known.group == wanted), None)
        if exact is not None:
            return exact
        by_prefix = next((known for known in found if known.group.startswith(wanted)), None)
        if by_prefix is None:
            raise UnknownResourceError(resource, group)
        return by_prefix

    def parse(self, text: str) -> ResourceType:
        """Return the resource of a text such as `pods` or `deployments.apps`.

        Raises:
            UnknownResourceError: there is none.
        """
        resource, _, group = text.partition(".")
        return self.find(resource, group)

    def find_kind(self, kind: str, api_version: str = "v1") -> ResourceType:
        """Return the resource whose objects are of this kind; the version itself does not matter.

        Raises:
            UnknownResourceError: there is none.
        """
        group, slash, _ = api_version.partition("/")
        wanted = (kind, group if slash else "")
        for known in self.types:
            if (known.kind, known.group) == wanted:
                return known
        raise UnknownResourceError(kind, wanted[1])

    def extended(self, *types: ResourceType) -> "ResourceMapper":
        """Return a mapper with these resources added at the end."""
        return ResourceMapper((*self.types, *types))


def _types(group: str, *rows: str) -> list[ResourceType]:
    """Return the resources of `Kind plural [cluster]` rows."""
    found = []
    for row in rows:
        kind, plural, *scope = row.split()
        singular = plural if kind.lower() == plural else kind.lower()
        found.append(ResourceType(plural, singular, kind, group, namespaced=not scope))
    return found


KUBERNETES = ResourceMapper(
    [
        *_types(
            "",
            "Pod pods",
            "Service services",
            "Namespace namespaces cluster",
            "Node nodes cluster",
            "PersistentVolume persistentvolumes cluster",
            "PersistentVolumeClaim persistentvolumeclaims",
            "ConfigMap configmaps",
            "Endpoints endpoints",
            "Event events",
            "LimitRange limitranges",
            "PodTemplate podtemplates",
            "ReplicationController replicationcontrollers",
            "ResourceQuota resourcequotas",
            "Secret secrets",
            "ServiceAccount serviceaccounts",
        ),
        *_types("apiregistration.k8s.io", "APIService apiservices cluster"),
        *_types(
            "apps",
            "Deployment deployments",
            "StatefulSet statefulsets",
            "DaemonSet daemonsets",
            "ReplicaSet replicasets",
            "ControllerRevision controllerrevisions",
        ),
        ResourceType(
            "horizontalpodautoscalers",
            "horizontalpodautoscaler",
            "HorizontalPodAutoscaler",
            "autoscaling",
            "v2",
        ),
        *_types("batch", "Job jobs", "CronJob cronjobs"),
        *_types(
            "networking.k8s.io",
            "Ingress ingresses",
            "NetworkPolicy networkpolicies",
            "IngressClass ingressclasses cluster",
        ),
        # Not built in, but described by gateways' Object metrics; a cluster without the kind has
        # no objects.
        *_types("inference.networking.k8s.io", "InferencePool inferencepools"),
        *_types("policy", "PodDisruptionBudget poddisruptionbudgets"),
        *_types(
            "rbac.authorization.k8s.io",
            "Role roles",
            "RoleBinding rolebindings",
            "ClusterRole clusterroles cluster",
            "ClusterRoleBinding clusterrolebindings cluster",
        ),
        *_types(
            "storage.k8s.io",
            "StorageClass storageclasses cluster",
            "VolumeAttachment volumeattachments cluster",
            "CSIDriver csidrivers cluster",
            "CSINode csinodes cluster",
        ),
        *_types(
            "apiextensions.k8s.io", "CustomResourceDefinition customresourcedefinitions cluster"
        ),
        *_types("scheduling.k8s.io", "PriorityClass priorityclasses cluster"),
        *_types("coordination.k8s.io", "Lease leases"),
        *_types("discovery.k8s.io", "EndpointSlice endpointslices"),
        *_types(
            "resource.k8s.io", "ResourceClaim resourceclaims", "DeviceClass deviceclasses cluster"
        ),
    ]
)
"""What every cluster has; `extended` adds a cluster's own kinds."""

NAMESPACES = KUBERNETES.find("namespaces")
NODES = KUBERNETES.find("nodes")
PODS = KUBERNETES.find("pods")
