"""Pools of nodes in manifests: Karpenter's NodePools and eksctl's node groups, as pods see them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from gpuscale.base.documents.documents import Document
from gpuscale.base.objects.gpu_resources import WHOLE_GPUS
from gpuscale.base.objects.pods import PodSpec
from gpuscale.base.objects.selectors import Operator, Requirement, selector_of_expressions
from gpuscale.base.objects.taints import Taint, untolerated
from gpuscale.base.quantity import Quantity, parse_quantity
from gpuscale.hpa.cluster.catalogue import ListedType, built_in
from gpuscale.hpa.cluster.nodes import INSTANCE_TYPE
from gpuscale.hpa.cluster.verdicts import PoolLabels
from gpuscale.ops.lint.gpu_pods import GpuPods
from gpuscale.ops.lint.parts import Part, whole_document

NODE_POOL, NODE_GROUP, SIMULATED_POOL = "NodePool", "node group", "pool"
NODE_POOL_LABEL = "karpenter.sh/nodepool"
_TYPE_KEYS = (INSTANCE_TYPE, "beta.kubernetes.io/instance-type", "karpenter.azure.com/sku-name")
_FAMILY_KEYS = ("karpenter.k8s.aws/instance-family", "eks.amazonaws.com/instance-family")
_COUNT_KEYS = (
    "karpenter.k8s.aws/instance-gpu-count",
    "eks.amazonaws.com/instance-gpu-count",
    "karpenter.azure.com/sku-gpu-count",
    "karpenter.k8s.gcp/instance-gpu-count",
)
_GPU_KEYS = (
    *_COUNT_KEYS,
    *(
        f"{domain}/instance-gpu-{each}"
        for domain in ("karpenter.k8s.aws", "eks.amazonaws.com")
        for each in ("name", "manufacturer", "memory")
    ),
    "karpenter.azure.com/sku-gpu-name",
    "karpenter.azure.com/sku-gpu-manufacturer",
    "karpenter.k8s.gcp/instance-gpu-name",
)
_CATEGORY_KEYS = ("karpenter.k8s.aws/instance-category", "eks.amazonaws.com/instance-category")
_GPU_CATEGORIES = frozenset({"g", "gr", "p"})
"""Of AWS' instance types: all of them have GPUs."""
_AFTER_BOOT = re.compile(
    r"nvidia\.com/(gpu\.(product|count|memory|family|machine|compute\..+|replicas|sharing-strategy|mode|present)"
    r"|cuda\..+|gfd\..+|mig.+|mps\..+|vgpu\..+)|amd\.com/gpu\..+|feature\.node\.kubernetes\.io/.+"
)
_USUAL = {"cpu": "8", "memory": "64Gi"}
"""What a scenario's node has unless the scenario says otherwise."""


@dataclass(frozen=True)
class Pool:
    """A pool of nodes."""

    part: Part
    """The NodePool, or the node group in its list."""
    kind: str
    name: str
    labels: Mapping[str, str]
    """That it gives its nodes."""
    taints: tuple[tuple[Taint, Part], ...]
    requirements: tuple[tuple[Requirement, Part], ...]
    """Of a NodePool."""
    type_names: tuple[str, ...] | None
    """The instance types that it may have; None where it is not by name."""
    limits: Mapping[str, Quantity] = field(default_factory=dict)
    least: int = 0
    most: int | None = None
    """Nodes; None: as many as limits allow."""
    cloud: str = ""
    """`aws`, `azure`, `google` or empty."""
    described: tuple[ListedType, ...] = ()
    """The machines of a scenario's pool."""
    known: Mapping[str, ListedType] = field(default_factory=built_in)
    """Instance types by name."""

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}"

    @cached_property
    def types(self) -> tuple[ListedType, ...] | None:
        """Return the GPU instance types that it may have; None where not all are known."""
        if self.described:
            return self.described
        known = self.known
        names = self.type_names
        if names is None:
            families = self._allowed(_FAMILY_KEYS)
            if families is None:
                return None
            names = tuple(name for name in known if name.partition(".")[0] in families)
            if {name.partition(".")[0] for name in names} != set(families):
                return None
        if not set(names) <= set(known):
            return None
        types = tuple(known[name] for name in names)
        # A NodeOverlay may give nodes with a part of a GPU a resource for it.
        return None if any(each.whole_gpus != each.gpus for each in types) else types

    @cached_property
    def gpus_per_node(self) -> int | None:
        """Return the most GPUs of one node; None where that is not known."""
        bounds = [each for each in (self._largest_type(), self._count_bound()) if each is not None]
        return min(bounds, default=None)

    @cached_property
    def is_of_gpus(self) -> bool:
        """Return whether its nodes have GPUs, as far as the file says so."""
        keys = {
            each.key
            for each, _ in self.requirements
            if each.operator is not Operator.DOES_NOT_EXIST
        }
        if self.types is not None and any(each.gpus for each in self.types):
            return True
        categories = self._allowed(_CATEGORY_KEYS)
        if categories and _GPU_CATEGORIES.issuperset(categories):
            return True
        return bool(
            not keys.isdisjoint(_GPU_KEYS)
            or any(name.endswith("/gpu") for name in self.limits)
            or any(taint.key in ("nvidia.com/gpu", "amd.com/gpu") for taint, _ in self.taints)
        )

    def bound_of(self, resource: str) -> int | None:
        """Return the most of a GPU resource that all its nodes have; None where nothing bounds it."""
        limit, nodes = self.limits.get(resource), self.limits.get("nodes")
        bounds = [] if limit is None else [limit.value()]
        most = self.most if nodes is None else nodes.value()
        if most is not None and self.gpus_per_node is not None and resource in WHOLE_GPUS:
            bounds.append(most * self.gpus_per_node)
        return min(bounds, default=None)

    def lets_in(self, spec: PodSpec, resources: Sequence[str]) -> Taint | None:
        """Return the taint that keeps pods away; None where none does.

        Args:
            spec: of the pods.
            resources: the extended ones that they ask for. The admission plugin ExtendedResourceToleration,
                which EKS, AKS and GKE have, lets pods pass a NoSchedule taint of the resource's name.
        """
        taints = [
            taint
            for taint, _ in self.taints
            if not (taint.key in resources and taint.effect == "NoSchedule")
        ]
        return untolerated(taints, spec.tolerations)

    def contradiction(self, wanted: Requirement) -> bool | None:
        """Return whether no node of the pool can fulfil a pod's requirement; None where it has no such label.

        Labels that a cloud sets count as unknown and contradict nothing.
        """
        key, labels = wanted.key, self._labels
        if key.startswith("karpenter.") and self.kind != NODE_POOL:
            return True
        if key in labels.fixed:
            return not wanted.matches(labels.fixed)
        if wanted.operator in (Operator.NOT_IN, Operator.NOT_EQUALS, Operator.DOES_NOT_EXIST):
            return False
        if key not in labels.requirements:
            if is_known_after_boot(key):
                return None
            if self.cloud == "azure" and key == "accelerator":  # set by AKS
                return False
        if labels.only(key) == ():
            return None
        return bool(wanted.values) and not any(labels.may_have(key, each) for each in wanted.values)

    @cached_property
    def _labels(self) -> PoolLabels:
        own = {NODE_POOL_LABEL: self.name} if self.kind == NODE_POOL else {}
        requirements: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        for each, part in self.requirements:
            requirements.setdefault(each.key, []).append((part.text("operator"), each.values))
        return PoolLabels({**self.labels, **own}, requirements)

    def _largest_type(self) -> int | None:
        if not self.types:
            return None
        return max(each.whole_gpus for each in self.types)

    def _count_bound(self) -> int | None:
        for requirement, _ in self.requirements:
            if requirement.key in _COUNT_KEYS and requirement.operator in (
                Operator.IN,
                Operator.LESS_THAN,
            ):
                numbers = [int(each) for each in requirement.values if each.isdigit()]
                if numbers:
                    less = requirement.operator is Operator.LESS_THAN
                    return max(numbers) - less
        return None

    def _allowed(self, keys: Sequence[str]) -> frozenset[str] | None:
        return _allowed(self.requirements, keys)


def requirements_of(pods: GpuPods) -> Iterator[Requirement]:
    """Yield what pods require of each node: their nodeSelector, and what all terms of their affinity say."""
    for key, value in pods.spec.node_selector.items():
        yield Requirement(key, Operator.EQUALS, (value,))
    terms = pods.spec.required_node_terms or ()
    for requirement in terms[0].labels if terms else ():
        if all(requirement in term.labels for term in terms):
            yield requirement


def pools_of(document: Document, known: Mapping[str, ListedType]) -> Iterator[Pool]:
    """Yield the pools of a NodePool, of an eksctl ClusterConfig or of a scenario.

    Args:
        document: the manifest.
        known: instance types by name.
    """
    whole = whole_document(document)
    group, _, _ = whole.text("apiVersion").rpartition("/")
    match group, whole.text("kind"):
        case "karpenter.sh", "NodePool":
            yield _node_pool(whole, known)
        case "eksctl.io", "ClusterConfig":
            for key in ("managedNodeGroups", "nodeGroups"):
                for each in whole.items(key):
                    yield _node_group(each, known)
        case "gpuscale.dev", "Scenario":
            for each in whole.items("spec", "nodePools"):
                yield _simulated(each, known)


def _node_pool(whole: Part, known: Mapping[str, ListedType]) -> Pool:
    template = whole.at("spec", "template")
    spec = template.at("spec")
    requirements = tuple(_requirements(spec))
    reference = spec.text("nodeClassRef", "group") or spec.text("nodeClassRef", "apiVersion")
    replicas = whole.whole("spec", "replicas")
    names = _allowed(requirements, _TYPE_KEYS)
    return Pool(
        part=whole,
        kind=NODE_POOL,
        name=whole.text("metadata", "name"),
        labels=_texts(template.fields("metadata", "labels")),
        taints=tuple(_taints(spec)),
        requirements=requirements,
        type_names=None if names is None else tuple(sorted(names)),
        limits=_quantities(whole.fields("spec", "limits")),
        least=replicas or 0,
        most=replicas,
        cloud=next(
            (
                cloud
                for word, cloud in (("aws", "aws"), ("azure", "azure"), ("gcp", "google"))
                if word in reference
            ),
            "",
        ),
        known=known,
    )


def _node_group(group: Part, known: Mapping[str, ListedType]) -> Pool:
    listed = (*group.texts("instanceTypes"), *group.texts("instancesDistribution", "instanceTypes"))
    names = listed or tuple(filter(None, (group.text("instanceType"),)))
    least, desired = group.whole("minSize"), group.whole("desiredCapacity")
    return Pool(
        part=group,
        kind=NODE_GROUP,
        name=group.text("name"),
        labels=_texts(group.fields("labels")),
        taints=tuple(_taints(group)),
        requirements=(),
        type_names=names or None,
        least=(desired if least is None else least) or 0,
        most=group.whole("maxSize") if group.whole("maxSize") is not None else desired,
        cloud="aws",
        known=known,
    )


def _simulated(pool: Part, known: Mapping[str, ListedType]) -> Pool:
    shapes = list(pool.items("instanceTypes")) or [pool]
    machines = tuple(filter(None, (_machine(each, known.get(_type_of(each))) for each in shapes)))
    return Pool(
        part=pool,
        kind=SIMULATED_POOL,
        name=pool.text("name"),
        labels=_texts(pool.fields("labels")),
        taints=tuple(_taints(pool)),
        requirements=(),
        type_names=None,
        limits=_quantities(pool.fields("limits")),
        least=pool.whole("min") or 0,
        most=pool.whole("max"),
        described=machines if len(machines) == len(shapes) else (),
    )


def _type_of(shape: Part) -> str:
    return shape.text("instanceType") or shape.text("name")


def _machine(shape: Part, known: ListedType | None) -> ListedType | None:
    gpus = shape.whole("gpus")
    if gpus is None:
        return known
    has = _quantities({key: shape.at(key).data or usual for key, usual in _USUAL.items()})
    if known is not None:
        has = {key: has[key] if shape.at(key).data else getattr(known, key) for key in has}
    model = shape.text("gpuModel") or "GPU"
    if len(has) < len(_USUAL):
        return None
    return ListedType(_type_of(shape), model, Fraction(gpus), has["cpu"], has["memory"])


def _taints(part: Part) -> Iterator[tuple[Taint, Part]]:
    for each in part.items("taints"):
        yield Taint(each.text("key"), each.text("value"), each.text("effect")), each
    for key, value in part.fields("taints").items():  # eksctl's older form: `key: value:effect`
        text, _, effect = str(value).rpartition(":")
        yield Taint(str(key), text, effect), part.at("taints", key)


def _requirements(spec: Part) -> Iterator[tuple[Requirement, Part]]:
    for each in spec.items("requirements"):
        term = each.text("key"), each.text("operator"), each.texts("values")
        with suppress(ValueError):  # the schema's checks name it
            yield from (
                (found, each) for found in selector_of_expressions({}, (term,)).requirements
            )


def _allowed(
    requirements: Sequence[tuple[Requirement, Part]], keys: Sequence[str]
) -> frozenset[str] | None:
    found: frozenset[str] | None = None
    for requirement, _ in requirements:
        if requirement.key in keys and requirement.operator is Operator.IN:
            values = frozenset(requirement.values)
            found = values if found is None else found & values
    return found


def is_known_after_boot(key: str) -> bool:
    """Return whether a label is written by GPU Feature Discovery or NFD, once a node runs."""
    return _AFTER_BOOT.fullmatch(key) is not None


def _texts(data: Mapping[str, object]) -> dict[str, str]:
    return {str(key): str(value) for key, value in data.items()}


def _quantities(data: Mapping[str, object]) -> dict[str, Quantity]:
    found: dict[str, Quantity] = {}
    for key, value in data.items():
        try:
            found[str(key)] = parse_quantity(value)  # type: ignore[arg-type]
        except ValueError:
            continue
    return found
