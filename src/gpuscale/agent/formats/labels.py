"""How samples of a GPU are labelled: the options, and the labels of GPU, node and pod.

Source: NVIDIA dcgm-exporter 4.8.2, internal/pkg/rendermetrics (label order).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuscale.agent.gpu.owners import ClaimRef, ContainerRef
from gpuscale.agent.gpu.readings import GpuReading
from gpuscale.agent.panels import KUBERNETES, SERIES, node_name
from gpuscale.base.flags import FlagReader
from gpuscale.base.settings import SWITCH, TEXT, Reading, chosen, made
from gpuscale.signals import Names

LabelPairs = tuple[tuple[str, str], ...]

_NAMES: Reading[Names] = chosen({"4.8": "4.8", "4.9": "4.9", "both": "both"})
_HOSTNAME_LABELS: Reading[tuple[str, ...] | None] = chosen(
    {
        "": None,
        "Hostname": ("Hostname",),
        "hostname": ("hostname",),
        "both": ("Hostname", "hostname"),
    }
)


def _hostname(flags: FlagReader) -> str:
    return "" if flags.boolean("no-hostname") else node_name(flags)


@dataclass(frozen=True, slots=True)
class FamilyOptions:
    """How samples are labelled. The defaults are dcgm-exporter's."""

    hostname: str = made(
        _hostname,
        SERIES.flag(
            "no-hostname",
            "Leave the host's name out.",
            "bool",
            "false",
            alias="n",
            env="DCGM_EXPORTER_NO_HOSTNAME",
        ),
        usual=str,
    )
    """Value of `Hostname`, the node's name; the label is left out when empty."""
    hostname_labels: tuple[str, ...] | None = SERIES.option(
        _HOSTNAME_LABELS,
        "hostname-label",
        "Spelling of that label: Hostname, hostname or both; that of --names unless given.",
        env="GPUSCALE_EXPORTER_HOSTNAME_LABEL",
        is_ours=True,
    )
    """Names of that label; None is the one of the names served: `Hostname`, or `hostname` from 4.9 on."""
    names: Names = SERIES.option(
        _NAMES,
        "names",
        "Names and units of dcgm-exporter up to 4.8, of 4.9, or both side by side.",
        "4.8",
        env="GPUSCALE_EXPORTER_NAMES",
        is_ours=True,
    )
    """Which release's names and units the samples have."""
    use_old_namespace: bool = SERIES.option(
        SWITCH,
        "use-old-namespace",
        "Say uuid, pod_name, pod_namespace and container_name.",
        "false",
        alias="o",
        env="DCGM_EXPORTER_USE_OLD_NAMESPACE",
    )
    """As releases before 2.0 did."""
    pod_uid: bool = KUBERNETES.option(
        SWITCH,
        "kubernetes-enable-pod-uid",
        "Add the label pod_uid; asks the API server.",
        "false",
        env="DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID",
    )
    virtual_gpus: bool = KUBERNETES.option(
        SWITCH,
        "kubernetes-virtual-gpus",
        "Repeat the series of a shared GPU for each of its pods, with labels vgpu and pod_uid; "
        "GPU_UTIL and FB_USED with what the pod uses.",
        "false",
        env="KUBERNETES_VIRTUAL_GPUS",
    )
    claim_labels: bool = KUBERNETES.option(
        SWITCH,
        "kubernetes-enable-dra",
        "Add the labels dra_claim_name, dra_driver_name and so on to GPUs from resource claims.",
        "false",
        env="KUBERNETES_ENABLE_DRA",
    )
    jobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """GPU number, with `.` and the number of its MIG instance, to the batch jobs on it."""
    pod_labels: bool = KUBERNETES.option(
        SWITCH,
        "kubernetes-enable-pod-labels",
        "Add the labels of pods; asks the API server.",
        "false",
        env="DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS",
    )
    replace_blanks_in_model_name: bool = SERIES.option(
        SWITCH,
        "replace-blanks-in-model-name",
        "Write blanks in modelName as one dash.",
        "false",
        alias="rbmn",
        env="DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME",
    )
    ack_labels: bool = False
    """Add ACK's labels to the DCGM samples, for rules of both worlds on one scrape."""
    node_name: str = made(node_name, usual=str)
    """ACK's `NodeName`; the hostname when empty."""
    node_pool: str = SERIES.option(
        TEXT,
        "node-pool",
        "Value of ACK's label NodePoolId.",
        env="GPUSCALE_EXPORTER_NODE_POOL",
        is_ours=True,
    )
    pod_source: str = "ecs"
    """ACK's `PodSource`: where pods run, `ecs` for nodes that are virtual machines."""

    @property
    def node(self) -> str:
        """Return the name of the node for ACK's labels."""
        return self.node_name or self.hostname


@dataclass(frozen=True, slots=True)
class DeviceLabels:
    """The labels of a GPU's samples, in three ordered parts."""

    leading: LabelPairs
    """In upstream's fixed order."""
    labels: Mapping[str, str]
    """Printed next, sorted; a name that is in another part is left out."""
    attributes: Mapping[str, str]
    """Printed last, sorted."""

    def pairs(self, more: Mapping[str, str] | None = None) -> LabelPairs:
        """Return all labels in printing order, with `more` among the attributes."""
        attributes = {**self.attributes, **more} if more else self.attributes
        taken = {*attributes, *(name for name, _ in self.leading)}
        labels = ((name, value) for name, value in self.labels.items() if name not in taken)
        return (*self.leading, *sorted(labels), *sorted(attributes.items()))

    def with_labels(self, more: Iterable[tuple[str, str]]) -> "DeviceLabels":
        """Return the labels with more in the middle part."""
        return DeviceLabels(self.leading, {**self.labels, **dict(more)}, self.attributes)

    def with_attributes(self, more: Mapping[str, str]) -> "DeviceLabels":
        """Return the labels with more in the last part."""
        return DeviceLabels(self.leading, self.labels, {**self.attributes, **more})


def leading_labels(
    reading: GpuReading, options: FamilyOptions, hostname_labels: Iterable[str] = ("Hostname",)
) -> LabelPairs:
    """Return the labels of the GPU or MIG instance and its node, in upstream's order."""
    gpu = reading.gpu
    pairs: LabelPairs = (
        ("gpu", str(gpu.index)),
        ("uuid" if options.use_old_namespace else "UUID", gpu.uuid),
        ("pci_bus_id", gpu.pci_bus_id),
        ("device", gpu.device),
        ("modelName", model_name(reading, options)),
    )
    if gpu.instance is not None:
        instance = (("GPU_I_PROFILE", gpu.instance.profile), ("GPU_I_ID", str(gpu.instance.id)))
        pairs = (*pairs, *instance)
    if options.hostname:
        pairs = (*pairs, *((name, options.hostname) for name in hostname_labels))
    return pairs


def model_name(reading: GpuReading, options: FamilyOptions) -> str:
    """Return the value of `modelName`."""
    if options.replace_blanks_in_model_name:
        return "-".join(reading.gpu.model.split())
    return reading.gpu.model


def pod_attributes(owner: ContainerRef | None, options: FamilyOptions) -> dict[str, str]:
    """Return the labels of a sample's owner; none where it has no single owner."""
    if owner is None:
        return {}
    old = options.use_old_namespace
    attributes = {
        "pod_name" if old else "pod": owner.pod,
        "pod_namespace" if old else "namespace": owner.namespace,
    }
    if owner.container:
        attributes["container_name" if old else "container"] = owner.container
    if options.pod_uid and owner.pod_uid:
        attributes["pod_uid"] = owner.pod_uid
    return attributes


def claim_attributes(claim: ClaimRef | None, reading: GpuReading) -> dict[str, str]:
    """Return the labels of the resource claim that a GPU was given by; none without one."""
    if claim is None:
        return {}
    attributes = {
        "dra_claim_name": claim.name,
        "dra_claim_namespace": claim.namespace,
        "dra_driver_name": claim.driver,
        "dra_pool_name": claim.pool,
        "dra_device_name": claim.device,
    }
    instance = reading.gpu.instance
    if instance is not None:
        attributes["dra_mig_profile"] = instance.profile
        attributes["dra_mig_device_uuid"] = instance.uuid
    return attributes
