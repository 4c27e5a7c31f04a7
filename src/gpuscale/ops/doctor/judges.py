"""The list of checks and hops, and the kinds of objects that the checks read."""

from dataclasses import dataclass

from gpuscale.base.errors import BugError
from gpuscale.base.findings import Finding, Judge
from gpuscale.ops.doctor.snapshot import Snapshot

ACCESS, NODES, AGENT, PROMETHEUS, API, AUTOSCALER, WORKLOAD, CAPACITY = HOPS = (
    "access",
    "nodes",
    "node agent",
    "Prometheus",
    "metrics API",
    "autoscaler",
    "workload",
    "capacity",
)
"""The chain, in the order in which it is judged."""
ClusterFinding = Finding[str]
"""A finding about an object, named as `kind/name` or `kind/namespace/name`."""


@dataclass(frozen=True, slots=True)
class ClusterJudge(Judge[Snapshot, str]):
    """A check of `gpuscale doctor`, given a snapshot without a connection.

    Raises:
        BugError: the checks name a hop that the chain does not have.
    """

    def __post_init__(self) -> None:
        if self.checks.hop not in HOPS:
            raise BugError(f"hop {self.checks.hop!r}: expected one of {', '.join(HOPS)}")


_CLAIMS = "/apis/resource.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Listed:
    """A kind of objects that is listed for the checks."""

    plural: str
    path: str
    needs: str
    """As `--resource` of kubectl create clusterrole names it."""
    hops: tuple[str, ...]
    """Of which nothing can be said without it."""
    field_selector: str = ""
    older_path: str = ""
    """Where it is in a cluster that does not serve the path."""


KINDS = (
    Listed("nodes", "/api/v1/nodes", "nodes", (NODES, AGENT, CAPACITY)),
    Listed("pods", "/api/v1/pods", "pods", (AGENT, WORKLOAD, CAPACITY)),
    Listed("services", "/api/v1/services", "services", (PROMETHEUS, API)),
    Listed("daemonsets", "/apis/apps/v1/daemonsets", "daemonsets.apps", (AGENT,)),
    Listed("deployments", "/apis/apps/v1/deployments", "deployments.apps", (API, WORKLOAD)),
    Listed("statefulsets", "/apis/apps/v1/statefulsets", "statefulsets.apps", (WORKLOAD,)),
    Listed("replicasets", "/apis/apps/v1/replicasets", "replicasets.apps", (WORKLOAD,)),
    Listed("resourcequotas", "/api/v1/resourcequotas", "resourcequotas", (CAPACITY,)),
    Listed(
        "apiservices",
        "/apis/apiregistration.k8s.io/v1/apiservices",
        "apiservices.apiregistration.k8s.io",
        (API,),
    ),
    Listed(
        "hpas",
        "/apis/autoscaling/v2/horizontalpodautoscalers",
        "horizontalpodautoscalers.autoscaling",
        (AUTOSCALER,),
    ),
    Listed("events", "/api/v1/events", "events", (CAPACITY,), "reason=NotTriggerScaleUp"),
    Listed("scale-ups", "/api/v1/events", "events", (CAPACITY,), "reason=TriggeredScaleUp"),
    Listed(
        "scale-up-failures",
        "/api/v1/events",
        "events",
        (CAPACITY,),
        "type=Warning,involvedObject.kind=ConfigMap,involvedObject.name=cluster-autoscaler-status",
    ),
    Listed("refusals", "/api/v1/events", "events", (WORKLOAD,), "reason=FailedCreate"),
    Listed("preemptions", "/api/v1/events", "events", (WORKLOAD,), "reason=Preempted"),
    Listed(
        "scheduling-events",
        "/api/v1/events",
        "events",
        (CAPACITY,),
        "reason=FailedScheduling,source!=default-scheduler",
    ),
    Listed(
        "claim-events",
        "/api/v1/events",
        "events",
        (CAPACITY,),
        "type=Warning,involvedObject.kind=NodeClaim",
    ),
    Listed(
        "nodeclaims", "/apis/karpenter.sh/v1/nodeclaims", "nodeclaims.karpenter.sh", (CAPACITY,)
    ),
    Listed(
        "leases",
        "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases",
        "leases.coordination.k8s.io",
        (NODES,),
    ),
    Listed(
        "poddisruptionbudgets",
        "/apis/policy/v1/poddisruptionbudgets",
        "poddisruptionbudgets.policy",
        (WORKLOAD,),
    ),
    Listed(
        "volumeclaims",
        "/api/v1/persistentvolumeclaims",
        "persistentvolumeclaims",
        (WORKLOAD,),
    ),
    Listed(
        "storageclasses",
        "/apis/storage.k8s.io/v1/storageclasses",
        "storageclasses.storage.k8s.io",
        (WORKLOAD,),
    ),
    Listed(
        "resourceclaims",
        f"{_CLAIMS}/resourceclaims",
        "resourceclaims.resource.k8s.io",
        (WORKLOAD, CAPACITY),
    ),
    Listed(
        "claimtemplates",
        f"{_CLAIMS}/resourceclaimtemplates",
        "resourceclaimtemplates.resource.k8s.io",
        (WORKLOAD, CAPACITY),
    ),
    Listed(
        "deviceclasses",
        f"{_CLAIMS}/deviceclasses",
        "deviceclasses.resource.k8s.io",
        (WORKLOAD, CAPACITY),
    ),
    Listed(
        "resourceslices",
        f"{_CLAIMS}/resourceslices",
        "resourceslices.resource.k8s.io",
        (WORKLOAD, CAPACITY),
    ),
    Listed(
        "queued-workloads",
        "/apis/kueue.x-k8s.io/v1beta2/workloads",
        "workloads.kueue.x-k8s.io",
        (WORKLOAD,),
        older_path="/apis/kueue.x-k8s.io/v1beta1/workloads",
    ),
    Listed("jobs", "/apis/batch/v1/jobs", "jobs.batch", (), "status.successful=0"),
    Listed("filtering-events", "/api/v1/events", "events", (WORKLOAD,), "reason=FilteringFailed"),
    Listed(
        "autoscaler-status",
        "/api/v1/namespaces/kube-system/configmaps",
        "configmaps",
        (CAPACITY,),
        "metadata.name=cluster-autoscaler-status",
    ),
    Listed(
        "capacitybuffers",
        "/apis/autoscaling.x-k8s.io/v1beta1/capacitybuffers",
        "capacitybuffers.autoscaling.x-k8s.io",
        (CAPACITY,),
        older_path="/apis/autoscaling.x-k8s.io/v1alpha1/capacitybuffers",
    ),
    Listed("nodepools", "/apis/karpenter.sh/v1/nodepools", "nodepools.karpenter.sh", (CAPACITY,)),
    Listed(
        "scaledobjects",
        "/apis/keda.sh/v1alpha1/scaledobjects",
        "scaledobjects.keda.sh",
        (AUTOSCALER,),
    ),
    Listed("scaledjobs", "/apis/keda.sh/v1alpha1/scaledjobs", "scaledjobs.keda.sh", (AUTOSCALER,)),
    Listed(
        "triggerauthentications",
        "/apis/keda.sh/v1alpha1/triggerauthentications",
        "triggerauthentications.keda.sh",
        (AUTOSCALER,),
    ),
    Listed(
        "keda-events",
        "/api/v1/events",
        "events",
        (AUTOSCALER,),
        "type=Warning,involvedObject.apiVersion=keda.sh/v1alpha1",
    ),
    Listed(
        "servicemonitors",
        "/apis/monitoring.coreos.com/v1/servicemonitors",
        "servicemonitors.monitoring.coreos.com",
        (PROMETHEUS,),
    ),
)
"""What a cluster does not have, such as Karpenter's kinds, counts as empty."""
