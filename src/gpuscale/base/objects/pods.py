"""Pods, and the parts of a pod template that scheduling and scaling look at."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from gpuscale.base.objects.meta import ObjectMeta, read_meta
from gpuscale.base.objects.requests import container_requests
from gpuscale.base.objects.selectors import Requirement, Selector, selector_of_expressions
from gpuscale.base.objects.taints import EFFECTS, Toleration
from gpuscale.base.quantity import Quantity

if TYPE_CHECKING:
    from gpuscale.base.objects.devices import DeviceClaim, DeviceKey
    from gpuscale.base.objects.fields import Fields  # it loads YAML, which most commands don't need


class PodPhase(Enum):
    """Where a pod stands in its life."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"
    """Its node has not answered for a while; API servers no longer write it, and still have it."""


@dataclass(frozen=True, slots=True)
class Container:
    """One container and what it asks for."""

    name: str
    image: str = ""
    requests: Mapping[str, Quantity] = field(default_factory=dict)
    """As the API server completes them: a resource with a limit and no request asks for its limit."""
    limits: Mapping[str, Quantity] = field(default_factory=dict)
    restart_policy: str = ""
    """`Always` on an init container makes it a sidecar."""

    @property
    def sidecar(self) -> bool:
        """Return whether it is an init container that keeps running."""
        return self.restart_policy == "Always"


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """Conditions on one node that must all hold."""

    labels: tuple[Requirement, ...] = ()
    names: tuple[Requirement, ...] = ()
    """Conditions on `metadata.name`."""


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """One of `topologySpreadConstraints`."""

    max_skew: int
    topology_key: str
    required: bool
    """`whenUnsatisfiable: DoNotSchedule`; a preference otherwise."""
    selector: Selector | None = None
    """None selects no pod."""
    min_domains: int = 1
    match_label_keys: tuple[str, ...] = ()
    honors_affinity: bool = True
    """`nodeAffinityPolicy`: nodes that the pod's selector or affinity leaves out don't count."""
    honors_taints: bool = False
    """`nodeTaintsPolicy`: nodes whose taints the pod does not tolerate don't count."""


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """To be in one domain with certain pods, or not to be."""

    topology_key: str
    selector: Selector | None
    """Of those pods; None selects none."""
    is_anti: bool
    weight: int | None = None
    """Of a preference; None where it is required."""
    namespaces: tuple[str, ...] = ()
    """Where those pods are; empty without `namespace_selector`: in the namespace of the pod itself."""
    namespace_selector: Selector | None = None
    """Others, by their labels; without requirements: all."""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """One of a pod's `resourceClaims`."""

    name: str
    template: str = ""
    """`resourceClaimTemplateName`: each pod gets a claim of its own."""
    claim: str = ""
    """`resourceClaimName`: one that pods share."""
    asks: "DeviceClaim | None" = None
    """What the template asks for, once it is looked up."""
    gpus: int = 0
    """How many devices that are GPUs, or parts of one, it gets; on a node, all claims of the pod together."""


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What a pod runs and where it may run."""

    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    """Empty until the pod is bound."""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    required_node_terms: tuple[NodeSelectorTerm, ...] | None = None
    """Required node affinity, alternatives; None where there is none."""
    preferred_node_terms: tuple[tuple[int, NodeSelectorTerm], ...] = ()
    """Preferred node affinity, with weights."""
    spread: tuple[SpreadConstraint, ...] = ()
    affinity: tuple[PodAffinityTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    restart_policy: str = "Always"
    priority: int = 0
    priority_class: str = ""
    """`priorityClassName`, from which an API server makes the priority."""
    may_preempt: bool = True
    """`preemptionPolicy` is not Never."""
    scheduling_gates: tuple[str, ...] = ()
    """Names of what has to be lifted before the scheduler looks at it."""
    scheduling_group: str = ""
    """The PodGroup that it gets a node with; empty: by itself."""
    requests: Mapping[str, Quantity] = field(default_factory=dict)
    """Of the pod as a whole, as the API server completes them; empty where it has none of its own."""
    overhead: Mapping[str, Quantity] = field(default_factory=dict)
    """Of its runtime class."""
    claims: tuple[PodClaim, ...] = ()
    """Its `resourceClaims`, which dynamic resource allocation finds devices for."""
    local_volumes: tuple[str, ...] = ()
    """Names of the volumes whose contents stay behind on the node: `hostPath`, and `emptyDir` on disk."""
    termination_grace_period_seconds: int = 30


@dataclass(frozen=True, slots=True)
class PodStatus:
    """What is known of a pod at one moment."""

    phase: PodPhase = PodPhase.PENDING
    start_ms: int | None = None
    """When the kubelet took it on."""
    ready: bool | None = None
    """The Ready condition; None where there is no such condition, or it is Unknown."""
    ready_transition_ms: int | None = None
    """When the Ready condition last changed."""


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """How long a simulated pod takes for each step of its life."""

    image_pull_ms: int = 0
    """From being bound until its containers run."""
    startup_ms: int = 0
    """From then until Ready: loading a model, say."""
    run_ms: int | None = None
    """From the containers' start until they end with success; None for pods that serve until deleted."""
    stop_ms: int = 0
    """From the order to end until it is gone."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec
    status: PodStatus = PodStatus()
    devices: "frozenset[DeviceKey]" = frozenset()
    """What its claims have got."""


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """What a Deployment or Job makes pods from."""

    labels: Mapping[str, str]
    spec: PodSpec
    annotations: Mapping[str, str] = field(default_factory=dict)


def read_pod(fields: "Fields") -> Pod:
    """Return the pod of a manifest."""
    return Pod(read_meta(fields), read_pod_spec(fields.child("spec", required=True)))


def read_pod_template(fields: "Fields", key: str = "template") -> PodTemplate:
    """Return the pod template below `key` of a workload's spec."""
    template = fields.child(key, required=True)
    meta = template.child("metadata")
    spec = read_pod_spec(template.child("spec", required=True))
    return PodTemplate(meta.labels("labels"), spec, meta.labels("annotations"))


def read_pod_spec(fields: "Fields") -> PodSpec:
    """Return a pod spec; at least one container is required."""
    containers = tuple(_container(item) for item in fields.items("containers"))
    if not containers:
        fields.note(("containers",), "at least one container")
    init_containers = tuple(_container(item) for item in fields.items("initContainers"))
    return PodSpec(
        containers=containers,
        init_containers=init_containers,
        node_name=fields.text("nodeName"),
        node_selector=fields.labels("nodeSelector"),
        required_node_terms=_node_terms(fields),
        preferred_node_terms=_preferred_node_terms(fields),
        spread=tuple(_spread(item) for item in fields.items("topologySpreadConstraints")),
        affinity=tuple(_pod_terms(fields.child("affinity"))),
        tolerations=read_tolerations(fields),
        restart_policy=fields.text("restartPolicy", "Always"),
        priority=fields.integer("priority", 0) or 0,
        priority_class=fields.text("priorityClassName"),
        may_preempt=fields.text("preemptionPolicy") != "Never",
        scheduling_gates=tuple(
            item.text("name", required=True) for item in fields.items("schedulingGates")
        ),
        scheduling_group=fields.child("schedulingGroup").text("podGroupName"),
        requests=_own_requests(fields.child("resources"), containers, init_containers),
        overhead=fields.quantities("overhead"),
        claims=tuple(
            PodClaim(
                item.text("name", required=True),
                item.text("resourceClaimTemplateName"),
                item.text("resourceClaimName"),
            )
            for item in fields.items("resourceClaims")
        ),
        local_volumes=tuple(
            item.text("name") for item in fields.items("volumes") if _is_local_volume(item)
        ),
        termination_grace_period_seconds=fields.integer("terminationGracePeriodSeconds", 30) or 0,
    )


def _is_local_volume(volume: "Fields") -> bool:
    """Return whether a volume is on its node's disk, as cluster-autoscaler's utils/drain sees it."""
    if "emptyDir" in volume:
        return volume.child("emptyDir").text("medium") != "Memory"
    return "hostPath" in volume


def _own_requests(
    resources: "Fields", containers: tuple[Container, ...], init_containers: tuple[Container, ...]
) -> dict[str, Quantity]:
    """Return a pod's own requests; beside limits, its containers' and then the limits fill the gaps.

    Source: kubernetes v1.37 pkg/apis/core/v1/defaults.go (defaultPodRequests).
    """
    limits, requests = resources.quantities("limits"), resources.quantities("requests")
    if not limits:
        return requests
    asked = container_requests(containers, init_containers)
    given = {name: Quantity(nano) for name, nano in asked.items() if name in ("cpu", "memory")}
    return {**limits, **given, **requests}


def _container(fields: "Fields") -> Container:
    resources = fields.child("resources")
    limits = resources.quantities("limits")
    return Container(
        name=fields.text("name", required=True),
        image=fields.text("image"),
        requests={**limits, **resources.quantities("requests")},
        limits=limits,
        restart_policy=fields.text("restartPolicy"),
    )


def read_tolerations(fields: "Fields") -> tuple[Toleration, ...]:
    """Return the tolerations of a pod spec, or of what adds some."""
    return tuple(_toleration(item) for item in fields.items("tolerations"))


def _toleration(fields: "Fields") -> Toleration:
    operator = fields.text("operator", "Equal")
    key, value, effect = fields.text("key"), fields.text("value"), fields.text("effect")
    if operator not in {"Equal", "Exists"}:
        fields.note(("operator",), "Equal or Exists", found=repr(operator))
    if not key and operator != "Exists":
        fields.note(("operator",), "Exists where no key is given", found=operator)
    if effect and effect not in EFFECTS:
        fields.note(("effect",), f"one of {', '.join(EFFECTS)}", found=repr(effect))
    return Toleration(key, operator, value, effect)


def _node_terms(fields: "Fields") -> tuple[NodeSelectorTerm, ...] | None:
    affinity = fields.child("affinity").child("nodeAffinity")
    required = affinity.child("requiredDuringSchedulingIgnoredDuringExecution")
    if not required.data:
        return None
    return tuple(_node_term(term) for term in required.items("nodeSelectorTerms"))


def _node_term(fields: "Fields") -> NodeSelectorTerm:
    return NodeSelectorTerm(
        _requirements(fields, "matchExpressions"), _requirements(fields, "matchFields")
    )


def _preferred_node_terms(fields: "Fields") -> tuple[tuple[int, NodeSelectorTerm], ...]:
    affinity = fields.child("affinity").child("nodeAffinity")
    return tuple(
        (item.integer("weight", 0) or 0, _node_term(item.child("preference", required=True)))
        for item in affinity.items("preferredDuringSchedulingIgnoredDuringExecution")
    )


def _spread(fields: "Fields") -> SpreadConstraint:
    unsatisfiable = fields.text("whenUnsatisfiable", required=True)
    if unsatisfiable not in {"", "DoNotSchedule", "ScheduleAnyway"}:
        expected = "DoNotSchedule or ScheduleAnyway"
        fields.note(("whenUnsatisfiable",), expected, found=repr(unsatisfiable))
    return SpreadConstraint(
        max_skew=fields.integer("maxSkew", 1) or 1,
        topology_key=fields.text("topologyKey", required=True),
        required=unsatisfiable == "DoNotSchedule",
        selector=fields.selector("labelSelector"),
        min_domains=fields.integer("minDomains", 1) or 1,
        match_label_keys=fields.texts("matchLabelKeys"),
        honors_affinity=fields.text("nodeAffinityPolicy", "Honor") == "Honor",
        honors_taints=fields.text("nodeTaintsPolicy", "Ignore") == "Honor",
    )


def _pod_terms(affinity: "Fields") -> Iterator[PodAffinityTerm]:
    for name in ("podAffinity", "podAntiAffinity"):
        rules, is_anti = affinity.child(name), name == "podAntiAffinity"
        for item in rules.items("requiredDuringSchedulingIgnoredDuringExecution"):
            yield _pod_term(item, None, is_anti=is_anti)
        for item in rules.items("preferredDuringSchedulingIgnoredDuringExecution"):
            term = item.child("podAffinityTerm", required=True)
            yield _pod_term(term, item.integer("weight", 0) or 0, is_anti=is_anti)


def _pod_term(fields: "Fields", weight: int | None, *, is_anti: bool) -> PodAffinityTerm:
    return PodAffinityTerm(
        topology_key=fields.text("topologyKey", required=True),
        selector=fields.selector("labelSelector"),
        is_anti=is_anti,
        weight=weight,
        namespaces=fields.texts("namespaces"),
        namespace_selector=fields.selector("namespaceSelector"),
    )


def _requirements(fields: "Fields", key: str) -> tuple[Requirement, ...]:
    requirements: list[Requirement] = []
    for item in fields.items(key):
        name, operator = item.text("key", required=True), item.text("operator", required=True)
        try:
            selector = selector_of_expressions({}, ((name, operator, item.texts("values")),))
        except ValueError as error:
            item.note((), str(error))
        else:
            requirements.extend(selector.requirements)
    return tuple(requirements)
