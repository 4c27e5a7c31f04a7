"""Faults of node groups that Cluster Autoscaler scales, of its settings, and of AKS pools.

Source: kubernetes/autoscaler cluster-autoscaler cloudprovider/aws (GPULabel, extractTaintsFromAsg,
    extractLabelsFromAsg, Pricing), cloudprovider/azure, config/flags; eksctl userdocs (autoscaling:
    propagateASGTags); azure-aks-docs (use-nvidia-gpu, aks-managed-gpu-nodes), Azure/AKS 4472 and 4925.
"""

from collections.abc import Iterator, Mapping

from gpuscale.base.findings import Checks, Severity
from gpuscale.base.golang.durations import format_duration, parse_duration_ms
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.gpu_pods import GpuPods
from gpuscale.ops.lint.inputs import FileJudge, Inputs
from gpuscale.ops.lint.node_pools import NODE_GROUP, Pool, requirements_of
from gpuscale.ops.lint.parts import Part
from gpuscale.ops.providers import BUILT_IN

_CHECKS = Checks()
NO_ACCELERATOR_LABEL = _CHECKS.add(
    "no-accelerator-label",
    Severity.WARNING,
    "A node group of GPUs on EKS that Cluster Autoscaler scales from zero, without its GPU label.",
    "Write labels: {k8s.amazonaws.com/accelerator: nvidia-l4}, with the GPU's name.",
)
TAINT_NOT_IN_TEMPLATE = _CHECKS.add(
    "taint-not-in-template",
    Severity.WARNING,
    "A taint of a self-managed node group on AWS that Cluster Autoscaler does not see while it is empty.",
    "Write the tag k8s.io/cluster-autoscaler/node-template/taint/KEY with the value VALUE:EFFECT.",
)
LABEL_NOT_IN_TEMPLATE = _CHECKS.add(
    "label-not-in-template",
    Severity.WARNING,
    "A label of a self-managed node group on AWS that pods select, and Cluster Autoscaler does not see.",
    "Write the tag k8s.io/cluster-autoscaler/node-template/label/KEY, or propagateASGTags: true.",
)
SHORT_PROVISION_TIME = _CHECKS.add(
    "short-provision-time",
    Severity.NOTE,
    "A `max-node-provision-time` that is below what a GPU node takes on this cloud now and then.",
    "Write more than the slowest node takes; the default is 15m.",
)
NO_PRICES = _CHECKS.add(
    "no-prices",
    Severity.ERROR,
    "`expander: price` on a cloud of which Cluster Autoscaler has no prices.",
    "Write least-waste or priority.",
)
RETIRED_GPU_SETTING = _CHECKS.add(
    "retired-gpu-setting",
    Severity.ERROR,
    "A setting of AKS GPU pools that Azure has retired or that does not go with the autoscaler.",
    "Leave it out: AKS installs the driver then, and with gpuProfile.driver: None the GPU Operator does.",
)
ZONES_OF_VOLUMES = _CHECKS.add(
    "zones-of-volumes",
    Severity.NOTE,
    "A node group over several zones, and GPU pods with volumes that are in one zone.",
    "Make a group for each zone, with balance-similar-node-groups.",
)
LARGE_NODES_STAY = _CHECKS.add(
    "large-nodes-stay",
    Severity.NOTE,
    "Pods of one GPU on nodes of eight: the scheduler spreads them, and few nodes ever become empty.",
    "Let a scheduler profile with MostAllocated on nvidia.com/gpu pack them, or take smaller nodes.",
)

_TEMPLATE = "k8s.io/cluster-autoscaler/node-template"
_SLOWEST_MS = {
    "aws": ("EKS", 330_000),
    "gce": ("GKE", 360_000),
    "azure": ("AKS, A100 and larger", 840_000),
    "alicloud": ("ACK", 300_000),
}
"""How long a GPU node takes at the 95th percentile, from reports: kubernetes/autoscaler#3464 (AWS), codalab-
worksheets#4042 (GKE), Microsoft Q&A of May 2026 (AKS)."""
_WITHOUT_PRICES = ("aws", "azure", "alicloud")
_MANY = 8


def node_group_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the faults of the files' node groups, autoscaler settings and AKS pools."""
    has_chart = any((each.text("cloudProvider") or "aws") == "aws" for each in inputs.nodes.charts)
    (aws_label,) = (
        each.accelerator.key for each in BUILT_IN if "aws" in each.id_schemes and each.accelerator
    )
    sizes = [each.gpus_per_node for each in inputs.nodes.pools if each.is_of_gpus]
    are_large = all(each is not None and each >= _MANY for each in sizes)
    asked = {each.key: pods for pods in inputs.nodes.pods for each in requirements_of(pods)}
    for pool in inputs.nodes.pools:
        if pool.kind != NODE_GROUP or not (has_chart or _is_scaled(pool)):
            continue
        if pool.is_of_gpus and pool.least == 0 and pool.most != 0:
            yield from _accelerator(pool, aws_label)
            if "managedNodeGroups" not in pool.part.path:
                yield from _template(pool, asked)
        if pool.is_of_gpus:
            yield from _zones(inputs, pool)
            if are_large:
                yield from _large(inputs, pool)
    for chart in inputs.nodes.charts:
        yield from _settings(chart)
    yield from _azure(inputs)


def _is_scaled(pool: Pool) -> bool:
    """Return whether a file says that Cluster Autoscaler scales the group."""
    if pool.part.at("iam", "withAddonPolicies", "autoScaler").data is True:
        return True
    return any(
        str(key).startswith("k8s.io/cluster-autoscaler/") for key in pool.part.fields("tags")
    )


def _accelerator(pool: Pool, label: str) -> Iterator[LintFinding]:
    tag = f"{_TEMPLATE}/label/{label}"
    if label not in pool.labels and tag not in pool.part.fields("tags"):
        yield NO_ACCELERATOR_LABEL.found(
            pool.part.place(),
            f"Without the label {label} Cluster Autoscaler takes a node that is Ready, and whose GPU is not "
            "there yet, for one without GPUs, and adds another (kubernetes/autoscaler#3164).",
            f"{pool.title}: {', '.join(pool.type_names or ())}, minSize 0",
        )


def _template(pool: Pool, asked: Mapping[str, GpuPods]) -> Iterator[LintFinding]:
    tags = pool.part.fields("tags")
    for taint, part in pool.taints:
        tag = str(tags.get(f"{_TEMPLATE}/taint/{taint.key}", ""))
        if taint.effect == "PreferNoSchedule" or ":" in tag:
            continue
        what = (
            f"The tag's value {tag!r} has no effect, and Cluster Autoscaler passes such a tag over"
            if tag
            else "Cluster Autoscaler learns the taints of an empty group from tags alone, and eksctl writes "
            "them without their effect"
        )
        yield TAINT_NOT_IN_TEMPLATE.found(
            part.place(),
            f"{what}: it adds nodes for pods that don't tolerate {taint}.",
            "",
            f'Write tags: {{{_TEMPLATE}/taint/{taint.key}: "{taint.value}:{taint.effect}"}}.',
        )
    if pool.part.at("propagateASGTags").data is True:
        return
    for key in pool.labels:
        if key in asked and f"{_TEMPLATE}/label/{key}" not in tags:
            yield LABEL_NOT_IN_TEMPLATE.found(
                pool.part.place("labels", key),
                f"{asked[key].title} selects nodes by {key}, which Cluster Autoscaler does not know of an "
                "empty group: it adds no node.",
                f"{asked[key].part.place()}",
            )


def _zones(inputs: Inputs, pool: Pool) -> Iterator[LintFinding]:
    zones = pool.part.texts("availabilityZones")
    if len(zones) < 2:
        return
    for pods in inputs.nodes.pods:
        claims = [
            each
            for each in Part(pods.part.document, (), pods.part.document.data).items(
                "spec", "volumeClaimTemplates"
            )
            if "ReadWriteOnce" in each.texts("spec", "accessModes")
        ]
        if claims and not any(pool.contradiction(each) for each in requirements_of(pods)):
            yield ZONES_OF_VOLUMES.found(
                pool.part.place("availabilityZones"),
                f"{pods.title} has a volume for each pod: the group may add a node in another zone than the "
                "volume's, where the pod can't go.",
                f"{claims[0].place()}",
            )


def _large(inputs: Inputs, pool: Pool) -> Iterator[LintFinding]:
    for pods in inputs.nodes.pods:
        scheduler = pods.part.text("schedulerName") or "default-scheduler"
        is_small = sum(pods.gpus.values()) == 1 and pods.kind in ("Deployment", "StatefulSet")
        if (
            is_small
            and scheduler == "default-scheduler"
            and not any(pool.contradiction(each) is not False for each in requirements_of(pods))
        ):
            yield LARGE_NODES_STAY.found(
                pool.part.place(),
                f"{pods.title} asks for 1 GPU of {pool.gpus_per_node}. The default scheduler spreads pods "
                "over nodes, and Cluster Autoscaler removes a node when at most half of its GPUs are in use.",
                f"{pods.part.place()}",
            )
            return


def _settings(chart: Part) -> Iterator[LintFinding]:
    cloud = chart.text("cloudProvider") or "aws"
    given = chart.at("extraArgs", "max-node-provision-time")
    name, slowest_ms = _SLOWEST_MS.get(cloud, ("", 0))
    try:
        time_ms = parse_duration_ms(given.text()) if given.text() else slowest_ms
    except ValueError:
        time_ms = slowest_ms
    if time_ms < slowest_ms:
        yield SHORT_PROVISION_TIME.found(
            given.place(),
            f"A node that is not there after {given.text()} is deleted, and another one is asked for; one of "
            f"twenty GPU nodes takes {format_duration(slowest_ms)} or more ({name}).",
        )
    expander = chart.at("extraArgs", "expander")
    if "price" in expander.text().split(",") and cloud in _WITHOUT_PRICES:
        yield NO_PRICES.found(
            expander.place(),
            f"Cluster Autoscaler has no prices of {cloud}, and ends with an error.",
        )


def _azure(inputs: Inputs) -> Iterator[LintFinding]:
    objects = inputs.nodes.objects
    for node_class in objects.get("AKSNodeClass", ()):
        yield from _tags(node_class.at("spec", "tags"))
    for pool in objects.get("ManagedClustersAgentPool", ()):
        yield from _tags(pool.at("spec", "tags"))
        managed = pool.at("spec", "gpuProfile", "nvidia", "managementMode")
        scales = pool.at("spec", "enableAutoScaling").data is True
        if managed.text() == "Managed" and scales:
            yield RETIRED_GPU_SETTING.found(
                managed.place(),
                "Pools with managed GPUs are not supported by the cluster autoscaler.",
                f"{pool.place('spec', 'enableAutoScaling')}: enableAutoScaling: true",
                "Leave one of them out.",
            )
    for pool in objects.get("AzureManagedMachinePool", ()):
        yield from _tags(pool.at("spec", "additionalTags"))
        header = "infrastructure.cluster.x-k8s.io/custom-header-UseGPUDedicatedVHD"
        if pool.at("metadata", "annotations", header).data is not None:
            yield RETIRED_GPU_SETTING.found(
                pool.place("metadata", "annotations", header),
                "AKS has refused new pools with the GPU image (UseGPUDedicatedVHD) since January 2025 "
                "(Azure/AKS#4472).",
            )


def _tags(tags: Part) -> Iterator[LintFinding]:
    names: Mapping[str, object] = tags.fields()
    for name in names:
        if str(name).lower() == "skipgpudriverinstall":
            yield RETIRED_GPU_SETTING.found(
                tags.place(name),
                "The tag SkipGPUDriverInstall was retired in August 2025 (Azure/AKS#4925).",
            )


JUDGE = FileJudge("node-groups", _CHECKS, node_group_findings)
