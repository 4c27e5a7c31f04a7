"""What of manifests is about nodes: pools, what belongs to them, and pods that ask for GPUs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpuscale.base.documents.documents import Document, load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.hpa.cluster.catalogue import ListedType, built_in
from gpuscale.ops.lint.gpu_pods import GpuPods, gpu_pods_of
from gpuscale.ops.lint.node_pools import Pool, pools_of
from gpuscale.ops.lint.operators.kinds import KNOWN, custom_kind
from gpuscale.ops.lint.operators.made import Made
from gpuscale.ops.lint.parts import Part, whole_document

_KINDS = {
    "NodePool": "karpenter.sh",
    "EC2NodeClass": "karpenter.k8s.aws",
    "AKSNodeClass": "karpenter.azure.com",
    "ClusterConfig": "eksctl.io",
    "ManagedClustersAgentPool": "containerservice.azure.com",
    "AzureManagedMachinePool": "infrastructure.cluster.x-k8s.io",
    "ClusterQueue": "kueue.x-k8s.io",
    "LocalQueue": "kueue.x-k8s.io",
    "ResourceFlavor": "kueue.x-k8s.io",
    "ResourceClaim": "resource.k8s.io",
    "ResourceClaimTemplate": "resource.k8s.io",
    "DeviceClass": "resource.k8s.io",
    "ResourceSlice": "resource.k8s.io",
}
"""Kinds that checks of nodes look at, with the group that makes them these."""
_OF_KUBERNETES = frozenset({"karpenter.sh", "resource.k8s.io"})
"""Groups whose objects the doctor lists anyway."""
CUSTOM_KINDS = KNOWN | {
    (group, kind) for kind, group in _KINDS.items() if group not in _OF_KUBERNETES
}
"""Groups and kinds of the custom resources that checks know."""
_WORKLOADS = frozenset(
    {"Job", "CronJob", "JobSet", "LeaderWorkerSet", "ModelServing", "RoleBasedGroup"}
    | {"ServingRuntime", "ClusterServingRuntime"}
    | {f"{each}Job" for each in ("JAX", "MPI", "Paddle", "PyTorch", "TF", "Train", "XGBoost")}
)
_BESIDE = frozenset({"ResourceQuota", "PodDisruptionBudget", "PodGroup", "Node"})
_CHART_KEYS = frozenset({"autoDiscovery", "autoscalingGroups", "cloudProvider", "extraArgs"})


@dataclass(frozen=True, slots=True)
class Sharing:
    """A device plugin's configuration that shares GPUs."""

    part: Part
    """Where the replicas of the resource are."""
    how: str
    """`timeSlicing` or `mps`."""
    resource: str
    """That pods ask for."""
    replicas: int
    refuses_more: bool
    """Whether the kubelet refuses pods that ask for more than one."""


@dataclass(slots=True)
class NodeInputs:
    """The content of all files about nodes."""

    types: Mapping[str, ListedType] = field(default_factory=built_in)
    """Instance types by name."""
    pools: list[Pool] = field(default_factory=list)
    pods: list[GpuPods] = field(default_factory=list)
    objects: dict[str, list[Part]] = field(default_factory=dict)
    """By kind, those that are looked at by themselves."""
    beside: dict[str, list[Part]] = field(default_factory=dict)
    """By kind, those that others are held against."""
    charts: list[Part] = field(default_factory=list)
    """Values of Cluster Autoscaler's Helm chart."""
    sharing: list[Sharing] = field(default_factory=list)
    slices: list[Part] = field(default_factory=list)
    """What drivers publish of nodes' devices: of ResourceSlices and of scenarios' pools."""
    leaders_without_gpus: dict[tuple[str, str], Part] = field(default_factory=dict)
    """LeaderWorkerSets, by namespace and name, whose workers alone ask for GPUs: their leaders' template."""
    workloads: int = 0
    """Objects with pods that ask for GPUs, and all of kinds whose pods mostly do."""

    @property
    def count(self) -> int:
        """Return how many objects were looked at."""
        return sum(map(len, self.objects.values())) + len(self.charts)

    def read(self, document: Document, *, has_pods: bool = True) -> bool:
        """Take what a manifest has; return whether a check looks at it.

        Args:
            document: the manifest.
            has_pods: False where its pods are those of objects that are made of it.
        """
        whole = whole_document(document)
        kind = whole.text("kind")
        if kind in _BESIDE:
            self.beside.setdefault(kind, []).append(whole)
            return False
        if kind == "Scenario":
            self.pools += pools_of(document, self.types)
            self.sharing += _of_scenario(whole)
            for pool in whole.items("spec", "nodePools"):
                self.slices += pool.items("resourceSlices")
            return True
        pods = tuple(gpu_pods_of(document)) if has_pods else ()
        self.pods += pods
        leaders = whole.at("spec", "leaderWorkerTemplate", "leaderTemplate")
        is_bare = leaders.data and not any("leaderTemplate" in each.part.path for each in pods)
        if kind == "LeaderWorkerSet" and pods and is_bare:
            self.leaders_without_gpus[pods[0].namespace, pods[0].name] = leaders
        if whole.text("apiVersion").rpartition("/")[0] != _KINDS.get(kind):
            known = custom_kind(whole.text("apiVersion"), kind)
            is_made_of = known is not None and known.makes is not None
            is_workload = bool(pods) or kind in _WORKLOADS or is_made_of
            self.workloads += is_workload and not isinstance(document, Made)
            return is_workload
        self.objects.setdefault(kind, []).append(whole)
        if kind == "ResourceSlice":
            self.slices.append(whole.at("spec"))
        self.pools += pools_of(document, self.types)
        return True


def is_autoscaler_chart(data: object) -> bool:
    """Return whether a document is values of Cluster Autoscaler's Helm chart."""
    if not isinstance(data, dict) or "kind" in data or "apiVersion" in data:
        return False
    return len(_CHART_KEYS & data.keys()) > 1


def sharing_of(document: Document) -> Iterator[Sharing]:
    """Yield how the device plugin's configurations in a ConfigMap share GPUs."""
    whole = whole_document(document)
    for name, text in whole.fields("data").items():
        if not isinstance(text, str) or "replicas" not in text:
            continue
        line = document.line(("data", name)) or 0
        try:
            inside = load_documents("\n" * line + text, document.source)
        except ConfigError:
            continue
        for each in inside:
            yield from _shared(whole_document(each))


def _of_scenario(whole: Part) -> Iterator[Sharing]:
    for pool in whole.items("spec", "nodePools"):
        sharing = pool.at("sharing")
        # The scenario's own form, and that of the device plugin, which people try first.
        for how, shared in ((sharing.text("strategy"), sharing), *_plugin_forms(sharing)):
            replicas = shared.whole("replicas")
            if replicas is not None and replicas > 1:
                resource = "nvidia.com/gpu" + (
                    ".shared" if shared.at("renamed").data is True else ""
                )
                yield Sharing(shared, how, resource, replicas, how == "mps")


def _plugin_forms(sharing: Part) -> tuple[tuple[str, Part], ...]:
    return tuple((how, sharing.at(how)) for how in ("timeSlicing", "mps"))


def _shared(config: Part) -> Iterator[Sharing]:
    for how, sharing in _plugin_forms(config.at("sharing")):
        for resource in sharing.items("resources"):
            replicas = resource.whole("replicas")
            if replicas is not None and replicas > 1:
                renamed = sharing.at("renameByDefault").data is True
                name = resource.text("rename") or resource.text("name")
                yield Sharing(
                    resource,
                    how,
                    f"{name}.shared" if renamed and not resource.text("rename") else name,
                    replicas,
                    how == "mps" or sharing.at("failRequestsGreaterThanOne").data is True,
                )


def by_name(parts: list[Part]) -> Mapping[tuple[str, str], Part]:
    """Return objects by namespace and name."""
    return {
        (each.text("metadata", "namespace") or "default", each.text("metadata", "name")): each
        for each in parts
    }
