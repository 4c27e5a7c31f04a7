"""The kinds of objects in a live run's Kubernetes API, with their discovery data.

Source: kubernetes v1.36 pkg/registry (storage of each kind: short names, categories), pkg/apis/*/v1
    (conversion.go and register.go: the labels of field selectors).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

_OF_ALL: Mapping[str, str] = {
    "metadata.name": "metadata.name",
    "metadata.namespace": "metadata.namespace",
}
_EVERYWHERE = ("all",)


@dataclass(frozen=True, slots=True, eq=False)
class ApiResource:
    """A kind of objects in one API version."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str
    singular: str
    is_namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Mapping[str, tuple[str, str, str]] = field(default_factory=dict)
    """Name to the group, version and kind that it answers with."""
    fields: Mapping[str, str] = field(default_factory=lambda: _OF_ALL)
    """What a field selector may name, and where it is in the object."""
    stored: str = ""
    """The resource that the objects are kept as, where this is another version of it."""

    @property
    def group_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Return the resource with its group, such as `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def stored_as(self) -> str:
        return self.stored or self.resource


def _status(group: str, version: str, kind: str) -> dict[str, tuple[str, str, str]]:
    return {"status": (group, version, kind)}


_SCALE = {"scale": ("autoscaling", "v1", "Scale")}

NAMESPACE = ApiResource(
    "",
    "v1",
    "Namespace",
    "namespaces",
    "namespace",
    is_namespaced=False,
    short_names=("ns",),
    subresources=_status("", "v1", "Namespace"),
    fields={"metadata.name": "metadata.name", "status.phase": "status.phase"},
)
NODE = ApiResource(
    "",
    "v1",
    "Node",
    "nodes",
    "node",
    is_namespaced=False,
    short_names=("no",),
    subresources=_status("", "v1", "Node"),
    fields={"metadata.name": "metadata.name", "spec.unschedulable": "spec.unschedulable"},
)
POD = ApiResource(
    "",
    "v1",
    "Pod",
    "pods",
    "pod",
    short_names=("po",),
    categories=_EVERYWHERE,
    subresources=_status("", "v1", "Pod"),
    fields={
        **_OF_ALL,
        "spec.nodeName": "spec.nodeName",
        "spec.host": "spec.nodeName",
        "spec.restartPolicy": "spec.restartPolicy",
        "spec.schedulerName": "spec.schedulerName",
        "spec.serviceAccountName": "spec.serviceAccountName",
        "spec.hostNetwork": "spec.hostNetwork",
        "status.phase": "status.phase",
        "status.podIP": "status.podIP",
        "status.nominatedNodeName": "status.nominatedNodeName",
    },
)
SERVICE = ApiResource(
    "",
    "v1",
    "Service",
    "services",
    "service",
    short_names=("svc",),
    categories=_EVERYWHERE,
    subresources=_status("", "v1", "Service"),
    fields={**_OF_ALL, "spec.clusterIP": "spec.clusterIP", "spec.type": "spec.type"},
)
_ABOUT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
EVENT = ApiResource(
    "",
    "v1",
    "Event",
    "events",
    "event",
    short_names=("ev",),
    fields={
        **_OF_ALL,
        **{f"involvedObject.{each}": f"involvedObject.{each}" for each in _ABOUT},
        "reason": "reason",
        "reportingComponent": "reportingComponent",
        "source": "source.component",
        "type": "type",
    },
)
NEW_EVENT = ApiResource(
    "events.k8s.io",
    "v1",
    "Event",
    "events",
    "event",
    short_names=("ev",),
    fields={
        **_OF_ALL,
        **{f"regarding.{each}": f"involvedObject.{each}" for each in _ABOUT},
        "reason": "reason",
        "reportingController": "reportingComponent",
        "type": "type",
    },
    stored="events",
)
ENDPOINT_SLICE = ApiResource(
    "discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "endpointslice"
)
LEASE = ApiResource("coordination.k8s.io", "v1", "Lease", "leases", "lease")
DEPLOYMENT = ApiResource(
    "apps",
    "v1",
    "Deployment",
    "deployments",
    "deployment",
    short_names=("deploy",),
    categories=_EVERYWHERE,
    subresources={**_status("apps", "v1", "Deployment"), **_SCALE},
)
REPLICA_SET = ApiResource(
    "apps",
    "v1",
    "ReplicaSet",
    "replicasets",
    "replicaset",
    short_names=("rs",),
    categories=_EVERYWHERE,
    subresources={**_status("apps", "v1", "ReplicaSet"), **_SCALE},
    fields={**_OF_ALL, "status.replicas": "status.replicas"},
)
DAEMON_SET = ApiResource(
    "apps",
    "v1",
    "DaemonSet",
    "daemonsets",
    "daemonset",
    short_names=("ds",),
    categories=_EVERYWHERE,
    subresources=_status("apps", "v1", "DaemonSet"),
)
JOB = ApiResource(
    "batch",
    "v1",
    "Job",
    "jobs",
    "job",
    categories=_EVERYWHERE,
    subresources=_status("batch", "v1", "Job"),
    fields={**_OF_ALL, "status.successful": "status.succeeded"},
)
HPA = ApiResource(
    "autoscaling",
    "v2",
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    "horizontalpodautoscaler",
    short_names=("hpa",),
    categories=_EVERYWHERE,
    subresources=_status("autoscaling", "v2", "HorizontalPodAutoscaler"),
)
HPA_V1 = replace(
    HPA, version="v1", subresources=_status("autoscaling", "v1", "HorizontalPodAutoscaler")
)
SCALED_OBJECT = ApiResource(
    "keda.sh",
    "v1alpha1",
    "ScaledObject",
    "scaledobjects",
    "scaledobject",
    short_names=("so",),
    subresources=_status("keda.sh", "v1alpha1", "ScaledObject"),
)
STATEFUL_SET = ApiResource(
    "apps",
    "v1",
    "StatefulSet",
    "statefulsets",
    "statefulset",
    short_names=("sts",),
    categories=_EVERYWHERE,
    subresources={**_status("apps", "v1", "StatefulSet"), **_SCALE},
)
LEADER_WORKER_SET = ApiResource(
    "leaderworkerset.x-k8s.io",
    "v1",
    "LeaderWorkerSet",
    "leaderworkersets",
    "leaderworkerset",
    short_names=("lws",),
    subresources={**_status("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"), **_SCALE},
)

KINDS = (
    NAMESPACE,
    NODE,
    POD,
    SERVICE,
    EVENT,
    DEPLOYMENT,
    REPLICA_SET,
    DAEMON_SET,
    JOB,
    HPA,
    HPA_V1,
    LEASE,
    ENDPOINT_SLICE,
    NEW_EVENT,
)
"""Those of every cluster; preferred versions come first."""
GROUP_KINDS = (LEADER_WORKER_SET, STATEFUL_SET)
"""Those of a cluster with LeaderWorkerSets."""
API_VERSIONS = {
    each.kind: each.group_version
    for each in reversed((*KINDS, SCALED_OBJECT, *GROUP_KINDS))
    if not each.stored
}
"""Kind to the version that references to its objects name."""
