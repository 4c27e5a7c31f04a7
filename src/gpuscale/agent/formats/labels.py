"""How samples of a GPU are labelled: the options, and the labels of GPU, node and pod.

Source: NVIDIA dcgm-exporter 4.8.2, internal/pkg/rendermetrics (label order).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuscale.agent.gpu.owners import ClaimRef, ContainerRef
from gpuscale.agent.gpu.readings import GpuReading
from gpuscale.signals import Names

LabelPairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class FamilyOptions:
    """How samples are labelled. The defaults are dcgm-exporter's."""

    hostname: str
    """Value of `Hostname`, the node's name; the label is left out when empty."""
    hostname_labels: tuple[str, ...] | None = None
    """Names of that label; None is the one of the names served: `Hostname`, or `hostname` from 4.9 on."""
    names: Names = "4.8"
    """Which release's names and units the samples have."""
    use_old_namespace: bool = False
    """Say `uuid`, `pod_name`, `pod_namespace` and `container_name`, as releases before 2.0 did."""
    pod_uid: bool = False
    """Add `pod_uid` where it is known."""
    virtual_gpus: bool = False
    """Repeat the series of a shared GPU for each container that holds a share of it."""
    claim_labels: bool = False
    """Add the labels of the resource claim that a GPU was given by."""
    jobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    """GPU number, with `.` and the number of its MIG instance, to the batch jobs on it."""
    pod_labels: bool = False
    """Add the pod's own labels."""
    replace_blanks_in_model_name: bool = False
    """Write each run of blanks in `modelName` as one dash."""
    ack_labels: bool = False
    """Add ACK's labels to the DCGM samples, for rules of both worlds on one scrape."""
    node_name: str = ""
    """ACK's `NodeName`; the hostname when empty."""
    node_pool: str = ""
    """ACK's `NodePoolId`."""
    pod_source: str = "ecs"
    """ACK's `PodSource`: where pods run, `ecs` for nodes that are virtual machines."""

    @property
    def node(self) -> str:
        """Return the name of the node for ACK's labels."""
        return self.node_name or self.hostname


@dataclass(frozen=True, slots=True)
class DeviceLabels:
    """The labels of one GPU's samples, in the three parts that their order is made of."""

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
        """Return the same with more labels in the middle part."""
        return DeviceLabels(self.leading, {**self.labels, **dict(more)}, self.attributes)

    def with_attributes(self, more: Mapping[str, str]) -> "DeviceLabels":
        """Return the same with more labels in the last part."""
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
