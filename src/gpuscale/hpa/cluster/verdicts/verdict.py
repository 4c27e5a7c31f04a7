"""Whether a node comes for a pod that waits, when, and why not: one verdict over facts of pools.

Source: karpenter 1.15 pkg/scheduling (requirements.go, taints.go) and nodepool limits; cluster-autoscaler
    core/scaleup/orchestrator.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from gpuscale.base.errors import UnavailableError
from gpuscale.base.objects.devices import Device, DeviceClasses
from gpuscale.base.objects.pods import PodSpec
from gpuscale.base.objects.selectors import Operator
from gpuscale.base.objects.taints import Taint, untolerated
from gpuscale.base.quantity import Quantity
from gpuscale.hpa.cluster.scheduling.claims import unmatched
from gpuscale.hpa.cluster.scheduling.fit import NodeState, misfits
from gpuscale.hpa.cluster.scheduling.resources import NANO, pod_requests
from gpuscale.hpa.cluster.verdicts.cards import Card, cards_lacking
from gpuscale.hpa.cluster.verdicts.reasons import LASTING, Reason, Why

_WELL_KNOWN = (
    *("kubernetes.io/", "k8s.io/", "karpenter.", "k8s.aws/", "eks.amazonaws.com/"),
    *("kubernetes.azure.com/", "cloud.google.com/"),
)
"""In the labels that Kubernetes or a provider of Karpenter gives nodes."""


class Outlook(Enum):
    """What is to come for a pod."""

    FITS = "fits now"
    COMING = "a node is on its way"
    EXPECTED = "a node will come"
    LATER = "no node comes until the cloud gives one"
    NEVER = "no node comes until something is changed"
    UNKNOWN = "no pool is known that could make a node"


@dataclass(frozen=True, slots=True)
class PoolLabels:
    """The labels that a pool's nodes have or may have."""

    fixed: Mapping[str, str] = field(default_factory=dict)
    requirements: Mapping[str, Sequence[tuple[str, tuple[str, ...]]]] = field(default_factory=dict)
    """By key: operator and values."""

    def may_have(self, key: str, value: str) -> bool:
        """Return whether a node of the pool may have this label."""
        if key in self.fixed:
            return self.fixed[key] == value
        for operator, values in self.requirements.get(key, ()):
            match operator:
                case "In" if value not in values:
                    return False
                case "NotIn" if value in values:
                    return False
                case "DoesNotExist":
                    return False
        return self._knows(key)

    def only(self, key: str) -> Iterable[str] | None:
        """Return the values that the pool's nodes can have of a label; None if any value is possible."""
        if key in self.fixed:
            return (self.fixed[key],)
        if not self._knows(key):
            return ()
        listed = (values for operator, values in self.requirements.get(key, ()) if operator == "In")
        return next(map(frozenset, listed), None)

    def _knows(self, key: str) -> bool:
        return key in self.requirements or any(word in key for word in _WELL_KNOWN)


@dataclass(frozen=True, slots=True)
class ComingNode:
    """A node that a pool has asked for and that does not take pods yet."""

    name: str
    since_ms: int
    """When it was asked for."""


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What is known of a pool that a node autoscaler makes nodes of."""

    name: str
    labels: PoolLabels = PoolLabels()
    taints: tuple[Taint, ...] = ()
    limits: Mapping[str, Quantity] = field(default_factory=dict)
    used: Mapping[str, Quantity] = field(default_factory=dict)
    largest: Mapping[str, int] = field(default_factory=dict)
    """The most of a resource that a node of the pool can have, as far as it is known."""
    fault: str = ""
    """Why it is not Ready."""
    denied: str = ""
    """The cloud's last answer, where that was no machine."""
    coming: tuple[ComingNode, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Offered:
    """What claims can be had of: all that nodes have, and that pools make where it is known."""

    classes: DeviceClasses | None
    """None where it is not known."""
    devices: Sequence[Device] | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a node comes for a pod."""

    outlook: Outlook
    pools: tuple[str, ...] = ()
    """Those that a node is to come from."""
    node: ComingNode | None = None
    """That is on its way."""
    reasons: tuple[Reason, ...] = ()
    """Why no other pool makes one; the reason for all of them if none does."""
    fits: str = ""
    """The node that takes the pod now."""


def judge(
    spec: PodSpec,
    pools: Iterable[PoolFacts],
    said: Sequence[Reason] = (),
    nodes: Iterable[NodeState] = (),
    offered: Offered | None = None,
    cards: Sequence[tuple[str, Sequence[Card]]] = (),
) -> Verdict:
    """Return whether a pod has a node, or one comes for it.

    Args:
        spec: of the pod.
        pools: that node autoscalers make nodes of.
        said: the autoscalers' reasons about this pod; they outweigh what the facts allow.
        nodes: that are there; none if a scheduler has tried them.
        offered: for the pod's claims, of those that say what they ask for; None where that is not known.
        cards: of nodes whose GPUs HAMi shares, where all of them are known.
    """
    takes = next((each.name for each in nodes if not misfits(spec, each)), "")
    if takes:
        return Verdict(Outlook.FITS, fits=takes)
    by_pool = {each.pool: each for each in said}
    for_all = [each for each in said if not each.pool]
    lacking = lacking_device(spec, offered) if offered is not None else None
    if lacking is not None:
        for_all.append(lacking)
    reasons, may, coming = [*for_all], [], []
    for pool in pools:
        reason = by_pool.get(pool.name) or obstacle(spec, pool)
        if pool.coming and (reason is None or reason.why is Why.LIMIT):
            coming.append((pool.coming[0], pool.name))
        elif reason is not None:
            reasons.append(reason)
        elif not for_all:
            may.append(pool.name)
    if coming:
        node, name = min(coming, key=lambda each: each[0].since_ms)
        return Verdict(Outlook.COMING, (name,), node, tuple(reasons))
    if may:
        return Verdict(Outlook.EXPECTED, tuple(may), None, tuple(reasons))
    if not reasons:
        short = cards_lacking(spec, cards)
        return Verdict(Outlook.UNKNOWN, reasons=() if short is None else (short,))
    is_lasting = all(each.why in LASTING for each in reasons)
    return Verdict(Outlook.NEVER if is_lasting else Outlook.LATER, (), None, tuple(reasons))


def lacking_device(spec: PodSpec, offered: Offered) -> Reason | None:
    """Return why no device will do for a pod's claims, whoever has it; None where there are some.

    Nothing is said of selectors where the package that evaluates them is not installed.
    """
    for claim in spec.claims:
        if claim.asks is None:
            continue
        known = offered.classes.by_name if offered.classes is not None else None
        for request in claim.asks.requests:
            names = [ask.class_name for ask in request.asks]
            if known is not None and not any(name in known for name in names):
                return Reason(Why.NO_CLASS, key=names[0])
        if offered.devices is None:
            continue
        if not offered.devices:
            return Reason(Why.NO_DEVICE, key=claim.name)
        with suppress(UnavailableError):
            expression = unmatched(claim.asks, offered.classes or DeviceClasses(), offered.devices)
            if expression:
                return Reason(Why.NO_DEVICE, key=claim.name, wanted=(expression,))
    return None


def obstacle(spec: PodSpec, pool: PoolFacts) -> Reason | None:
    """Return why a pool makes no node for a pod, by what is known of it; None if it may make one."""
    taint = untolerated(pool.taints, spec.tolerations)
    if taint is not None:
        return Reason(Why.TAINT, pool.name, key=taint.key, has=(str(taint),))
    for key, value in spec.node_selector.items():
        if not pool.labels.may_have(key, value):
            has = tuple(sorted(pool.labels.only(key) or ()))
            return Reason(Why.LABEL, pool.name, key=key, wanted=(value,), has=has)
    terms = spec.required_node_terms
    if terms is not None and not any(
        all(
            any(pool.labels.may_have(each.key, value) for value in each.values)
            for each in term.labels
            if each.operator is Operator.IN
        )
        for term in terms
    ):
        return Reason(
            Why.LABEL, pool.name, text="its nodes don't match the pod's required node affinity"
        )
    if pool.fault:
        return Reason(Why.NOT_READY, pool.name, pool.fault)
    asks = {**pod_requests(spec), "nodes": NANO}
    for key, most in pool.largest.items():
        if asks.get(key, 0) > most * NANO:
            amount = str(Quantity(asks[key]))
            return Reason(Why.TOO_LARGE, pool.name, key=key, wanted=(amount,), has=(str(most),))
    for key, limit in pool.limits.items():
        used = pool.used.get(key, Quantity(0))
        if used.nano >= limit.nano or limit.nano - used.nano < asks.get(key, 0):
            return Reason(
                Why.LIMIT,
                pool.name,
                f"{used} of {limit} {key}",
                key=key,
                wanted=(str(used),),
                has=(str(limit),),
            )
    return Reason(Why.BACKOFF, pool.name, pool.denied) if pool.denied else None
