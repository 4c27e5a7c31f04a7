"""Kueue's objects: flavors of resources, the quotas of ClusterQueues, and the LocalQueues that lead to them.

Source: kueue v0.17 apis/kueue/v1beta2 (clusterqueue_types.go, resourceflavor_types.go, localqueue_types.go);
v1beta1 has `cohort` where v1beta2 has `cohortName`, and `Borrow` where that has `MayStopSearch`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuscale.base.objects.fields import QUANTITY, Fields
from gpuscale.base.objects.meta import ObjectMeta, read_meta
from gpuscale.base.objects.pods import read_tolerations
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.objects.taints import Taint, Toleration

KUEUE_VERSIONS = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""On a workload: the LocalQueue of its namespace that it waits in."""
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
"""On a workload: the WorkloadPriorityClass that its turn goes by."""


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    """A kind of nodes that quota is given for."""

    metadata: ObjectMeta
    node_labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    """What admitted pods get beside their own."""


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """How much of a resource in a flavor a ClusterQueue has, in nano-units."""

    nominal: int
    borrowing_limit: int | None = None
    """How much more of its cohort it may use; None: all that is there."""
    lending_limit: int | None = None
    """How much of its own its cohort may use; None: all."""


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that a pod gets in the same flavor."""

    covered: tuple[str, ...]
    flavors: tuple[tuple[str, Mapping[str, ResourceQuota]], ...]
    """Name and quotas by resource, in the order they are tried."""


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """A ClusterQueue."""

    metadata: ObjectMeta
    groups: tuple[ResourceGroup, ...] = ()
    cohort: str = ""
    is_strict: bool = False
    """StrictFIFO: the first waits, and all behind it; otherwise those behind it may fit."""
    namespaces: Selector | None = None
    """Whose workloads it takes; None: nobody's."""
    borrows_last: bool = False
    """Whether the next flavor is tried before it borrows in this one."""
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """A LocalQueue."""

    metadata: ObjectMeta
    cluster_queue: str
    is_stopped: bool = False


@dataclass(frozen=True, slots=True)
class WorkloadPriorityClass:
    """A WorkloadPriorityClass: a place in a queue, which kube-scheduler does not see."""

    metadata: ObjectMeta
    value: int


KueueObject = ResourceFlavor | ClusterQueue | LocalQueue | WorkloadPriorityClass


def read_resource_flavor(fields: Fields) -> ResourceFlavor:
    """Return the ResourceFlavor of a manifest."""
    spec = fields.child("spec")
    taints = tuple(
        Taint(
            item.text("key", required=True), item.text("value"), item.text("effect", required=True)
        )
        for item in spec.items("nodeTaints")
    )
    return ResourceFlavor(
        read_meta(fields, namespaced=False),
        spec.labels("nodeLabels"),
        taints,
        read_tolerations(spec),
    )


def read_cluster_queue(fields: Fields) -> ClusterQueue:
    """Return the ClusterQueue of a manifest."""
    spec = fields.child("spec", required=True)
    strategy = _one_of(spec, "queueingStrategy", ("BestEffortFIFO", "StrictFIFO"))
    fungibility = spec.child("flavorFungibility")
    borrow = _one_of(fungibility, "whenCanBorrow", ("MayStopSearch", "Borrow", "TryNextFlavor"))
    return ClusterQueue(
        read_meta(fields, namespaced=False),
        tuple(_group(item) for item in spec.items("resourceGroups")),
        spec.text("cohortName") or spec.text("cohort"),
        strategy == "StrictFIFO",
        spec.selector("namespaceSelector"),
        borrow == "TryNextFlavor",
        _is_stopped(spec),
    )


def read_local_queue(fields: Fields) -> LocalQueue:
    """Return the LocalQueue of a manifest."""
    spec = fields.child("spec", required=True)
    return LocalQueue(
        read_meta(fields), spec.text("clusterQueue", required=True), _is_stopped(spec)
    )


def read_workload_priority_class(fields: Fields) -> WorkloadPriorityClass:
    """Return the WorkloadPriorityClass of a manifest."""
    value = fields.integer("value")
    if value is None:
        fields.note(("value",), "a whole number")
    return WorkloadPriorityClass(read_meta(fields, namespaced=False), value or 0)


def _group(fields: Fields) -> ResourceGroup:
    covered = fields.texts("coveredResources")
    flavors = []
    for flavor in fields.items("flavors"):
        quotas: dict[str, ResourceQuota] = {}
        for item in flavor.items("resources"):
            nominal = item.quantity("nominalQuota")
            if nominal is None and "nominalQuota" not in item:
                item.note(("nominalQuota",), QUANTITY)
            borrowing, lending = item.quantity("borrowingLimit"), item.quantity("lendingLimit")
            quotas[item.text("name", required=True)] = ResourceQuota(
                nominal.nano if nominal else 0,
                None if borrowing is None else borrowing.nano,
                None if lending is None else lending.nano,
            )
        if tuple(quotas) != covered:
            expected = f"those of coveredResources in their order: {', '.join(covered)}"
            flavor.note(("resources",), expected, found=", ".join(quotas) or "none")
        flavors.append((flavor.text("name", required=True), quotas))
    return ResourceGroup(covered, tuple(flavors))


def _is_stopped(spec: Fields) -> bool:
    return _one_of(spec, "stopPolicy", ("None", "Hold", "HoldAndDrain")) != "None"


def _one_of(fields: Fields, key: str, words: tuple[str, ...]) -> str:
    """Return one of some words, the first unless given."""
    found = fields.text(key, words[0])
    if found not in words:
        fields.note((key,), f"one of {', '.join(words)}", found=repr(found))
    return found
