"""Twice 400 generated clusters, to Karpenter's own code and to the twin: the same nodes bought and removed.

Each has 2 to 7 instance types, some sold out, 1 to 3 pools with weights, limits, taints and budgets, up to
8 nodes with pods, some leaving, and up to 24 pods that wait; in the second 400 pods are spread, want to be
near others or apart from them, and there are DaemonSets. Compared are new nodes (pool, types cheapest
first, kinds of capacity, number of pods), who goes to which existing node, the reason of each pod that is
left out in its words, the disruption command with its replacements, and why nodes are left alone. Where an
answer differs, Karpenter is asked again and again: equal candidates are a tie to it only if its own answers
differ, and the twin's is among them. $GPUSCALE_KARPENTER_SEED makes others, $GPUSCALE_KARPENTER_CASES
another number of them.
"""

import os
import random
import re
from collections import Counter
from dataclasses import replace

import pytest

from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.meta import ObjectMeta, OwnerReference
from gpuscale.base.objects.pods import (
    Container,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    SpreadConstraint,
)
from gpuscale.base.objects.selectors import Operator, Requirement, selector_of_labels
from gpuscale.base.objects.taints import Taint, Toleration
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.cluster.nodes import (
    AutoscalerSettings,
    InstanceType,
    LaunchFailure,
    NodePool,
    NodeRequest,
    Offering,
    PoolNode,
)
from gpuscale.hpa.cluster.nodes.pools import Disruption, DisruptionBudget
from gpuscale.hpa.cluster.scheduling import node_state
from karpenter_judge import NOW_MS, Answer, decided, judged, need_judge, running

CASES = int(os.environ.get("GPUSCALE_KARPENTER_CASES", "400"))
KEYS = ("topology.kubernetes.io/zone", "kubernetes.io/hostname", "karpenter.sh/capacity-type")
"""Labels by which pods are spread, kept near each other or apart."""
CHANCE = re.compile(
    r" for \w[^,]*, key=\S+ \(counts = .*?, nodeDomains = \S+ \w+( \[.*?\])?"
    r"|(topology.kubernetes.io/zone|karpenter.sh/capacity-type) In \[.*?\],? ?"
)
"""Of a reason: which of several rules was looked at first, and which of equal domains was taken."""
SEED = int(os.environ.get("GPUSCALE_KARPENTER_SEED", "0"))
ASKED_AGAIN = 100
"""Some of the answers to a tie are rare: pools are tried in the order of a map."""
GPU, GPU_NAME = "nvidia.com/gpu", "example.com/gpu-name"
TAINTS = (
    Taint("nvidia.com/gpu", "true"),
    Taint("team", "a", "NoExecute"),
    Taint("slow", "", "PreferNoSchedule"),
)


class Generator:
    """Draws clusters that Karpenter might find."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self._pods = 0

    def request(self) -> NodeRequest:
        draw = self.draw
        self._pods = 0
        types = [self._type(place) for place in range(draw.randint(2, 7))]
        pools = tuple(self._pool(name, types) for name in "pqr"[: draw.choice((1, 1, 2, 3))])
        sold_out = draw.choice((0, 0, 0.2))
        nodes, pods = [], {}
        for place in range(draw.choice((0, 1, 1, 2, 3, 4, 6, 8))):
            node, here = self._node(f"node-{place}", pools)
            nodes.append(node)
            if here:
                pods[node.state.name] = here
        kinds = [self._spec(types) for _ in range(draw.randint(1, 3))]
        count = draw.choice((0, 0, 1, 2, 4, 8, 13, 24))
        waiting = tuple(self._pod(draw.choice(kinds)) for _ in range(count))
        budgets: tuple[PodDisruptionBudget, ...] = ()
        if draw.random() < 0.2:
            most, allowed = draw.choice(((0, 0), (1, 0), (1, 1)))
            meta = ObjectMeta("budget")
            budget = PodDisruptionBudget(
                meta, selector_of_labels({"app": "a"}), None, most, disruptions_allowed=allowed
            )
            budgets = (budget,)
        failures = tuple(
            LaunchFailure("p", kind.name, offering, NOW_MS, "InsufficientInstanceCapacity")
            for kind in types
            for offering in kind.offerings
            if draw.random() < sold_out
        )
        return NodeRequest(
            pools, tuple(nodes), waiting, NOW_MS, AutoscalerSettings(), pods, budgets, failures
        )

    def _type(self, place: int) -> InstanceType:
        draw = self.draw
        gpus = draw.choice((0, 1, 1, 2, 4, 8))
        cpus = draw.choice((4, 8, 16, 32, 96))
        price = round(gpus * 0.8 + cpus * 0.03 + draw.uniform(0.01, 0.5), 4)
        offerings = []
        for zone in draw.choice((("a",), ("a", "b"))):
            offerings.append(Offering(zone, "on-demand", round(price + (zone == "b") * 0.0213, 4)))
            if draw.random() < 0.5:
                offerings.append(Offering(zone, "spot", round(price * draw.uniform(0.3, 0.7), 4)))
        capacity = {
            "cpu": parse_quantity(cpus),
            "memory": parse_quantity(f"{cpus * 4}Gi"),
            "pods": parse_quantity(110),
            **({GPU: parse_quantity(gpus)} if gpus else {}),
        }
        # The KWOK provider keeps so much back of each type.
        reserved = {"cpu": parse_quantity("100m"), "memory": parse_quantity("10Mi")}
        allocatable = {
            name: amount.__class__(amount.nano - reserved[name].nano, amount.format)
            if name in reserved
            else amount
            for name, amount in capacity.items()
        }
        labels = {GPU_NAME: draw.choice(("l4", "h100"))}
        return InstanceType(f"type-{place}", allocatable, capacity, labels, tuple(offerings))

    def _pool(self, name: str, types: list[InstanceType]) -> NodePool:
        draw = self.draw
        chosen = tuple(draw.sample(types, draw.randint(1, len(types))))
        limits = {}
        if draw.random() < 0.35:
            limits = draw.choice(
                ({GPU: parse_quantity(draw.randint(1, 12))}, {"cpu": parse_quantity(64)})
            )
        requirements = []
        if draw.random() < 0.6:
            requirements.append(
                Requirement("karpenter.sh/capacity-type", Operator.IN, ("on-demand",))
            )
        if draw.random() < 0.15:
            requirements.append(Requirement(GPU_NAME, Operator.IN, ("h100",)))
        budgets = draw.choice(
            (
                (DisruptionBudget("100%"),),
                (DisruptionBudget("100%"),),
                (DisruptionBudget("10%"),),
                (DisruptionBudget("2"), DisruptionBudget("0", ("Empty",))),
                (DisruptionBudget("100%"), DisruptionBudget("0", (), "@daily", 3_600_000)),
            )
        )
        policy = draw.choice(("WhenEmptyOrUnderutilized",) * 4 + ("WhenEmpty", "Balanced"))
        return NodePool(
            name,
            0,
            1000,
            chosen,
            draw.choice(({}, {"team": "a"})),
            draw.choice(((), (), (TAINTS[0],), (TAINTS[1],), (TAINTS[2],))),
            (),
            tuple(requirements),
            draw.choice((0, 0, 10, 50)),
            limits,
            Disruption(policy, draw.choice((0, 0, 300_000, 300_000, None)), budgets, None),
        )

    def _node(self, name: str, pools: tuple[NodePool, ...]) -> tuple[PoolNode, list[Pod]]:
        draw = self.draw
        pool = draw.choice(pools)
        kind = draw.choice(pool.instance_types)
        fits = [
            o for o in kind.offerings if not pool.requirements or o.capacity_type == "on-demand"
        ]
        offering = draw.choice(fits)
        ready = draw.random() < 0.92
        quiet_ms = NOW_MS - draw.choice((100_000, 400_000, 500_000))
        ordered_ms = quiet_ms - 60_000
        node = pool.node(name, ordered_ms, kind, offering)
        node.metadata.annotations.update(  # type: ignore[attr-defined]
            {"karpenter.sh/do-not-disrupt": "true"} if draw.random() < 0.05 else {}
        )
        spec = self._spec([kind], at_home=True, pool=pool)
        here = []
        state = node_state(node, ())
        for _ in range(draw.choice((0, 1, 1, 2, 3, 6)) if ready else 0):
            (pod,) = running([self._pod(spec)], name)
            if all(
                state.free(each) >= amount.nano
                for each, amount in spec.containers[0].requests.items()
            ):
                here.append(pod)
                state = state.with_pod(pod.spec)
        is_empty = not here
        changed_ms = None if is_empty else quiet_ms
        return PoolNode(
            pool.name,
            state,
            ready,
            is_empty,
            kind.name,
            offering,
            ordered_ms,
            quiet_ms,
            quiet_ms if ready else None,
            changed_ms,
            leaving=draw.random() < 0.06,
        ), here

    def _spec(
        self, types: list[InstanceType], *, at_home: bool = False, pool: NodePool | None = None
    ) -> PodSpec:
        draw = self.draw
        most = max(
            (kind.capacity[GPU].value() for kind in types if GPU in kind.capacity), default=0
        )
        gpus = (
            draw.choice((0, 1, 1, 1, 2, 5)) if not at_home else min(most, draw.choice((0, 1, 1, 2)))
        )
        requests = {
            "cpu": parse_quantity(draw.choice(("500m", "1", "1", "3", "10"))),
            "memory": parse_quantity(draw.choice(("1Gi", "1Gi", "8Gi"))),
            **({GPU: parse_quantity(gpus)} if gpus else {}),
        }
        tolerations = []
        for taint in TAINTS:
            if (pool is not None and taint in pool.taints) or draw.random() < 0.5:
                tolerations.append(Toleration(taint.key, "Exists"))
        selector, terms = {}, None
        if draw.random() < 0.15:
            selector = draw.choice(
                (
                    {"topology.kubernetes.io/zone": "a"},
                    {GPU_NAME: "h100"},
                    {"team": "a"},
                    {"karpenter.sh/capacity-type": "spot"},
                    {"karpenter.sh/nodepool": "p"},
                )
            )
        if draw.random() < 0.15:
            zone, name = "topology.kubernetes.io/zone", "node.kubernetes.io/instance-type"
            terms = (
                NodeSelectorTerm((Requirement(zone, Operator.IN, ("b",)),)),
                NodeSelectorTerm((Requirement(name, Operator.NOT_IN, ("type-0",)),)),
            )
        preferred: tuple[tuple[int, NodeSelectorTerm], ...] = ()
        if draw.random() < 0.15:
            spot = Requirement("karpenter.sh/capacity-type", Operator.IN, ("spot",))
            h100 = Requirement(GPU_NAME, Operator.IN, ("h100",))
            preferred = tuple(
                (weight, NodeSelectorTerm((each,)))
                for weight, each in zip(draw.sample(range(1, 100), 2), (spot, h100), strict=True)
            )
        return PodSpec(
            (Container("c", requests=requests),),
            preferred_node_terms=preferred,
            node_selector={} if at_home else selector,
            required_node_terms=None if at_home else terms,
            tolerations=tuple(tolerations),
            priority=draw.choice((0, 0, 0, 1_000_000)),
        )

    def _pod(self, spec: PodSpec) -> Pod:
        draw = self.draw
        self._pods += 1
        annotations = {}
        if draw.random() < 0.04:
            annotations["karpenter.sh/do-not-disrupt"] = draw.choice(("true", "1h", "5s"))
        if draw.random() < 0.05:
            annotations["controller.kubernetes.io/pod-deletion-cost"] = draw.choice(
                ("1000", "-2147483647")
            )
        meta = ObjectMeta(
            f"pod-{self._pods:03}",
            labels={"app": draw.choice("ab")},
            annotations=annotations,
            creation_ms=NOW_MS - draw.choice((1000, 2000, 90_000)),
            owner=OwnerReference("DaemonSet", "o")
            if draw.random() < 0.03 and spec.node_name
            else None,
        )
        return Pod(meta, spec)


class WithCompany(Generator):
    """Draws clusters whose pods have rules about other pods, and DaemonSets."""

    def request(self) -> NodeRequest:
        draw = self.draw
        request = super().request()
        daemons = []
        for place in range(draw.choice((0, 0, 1, 2))):
            requests = {"cpu": parse_quantity(draw.choice(("100m", "1", "3")))}
            selector = draw.choice(({}, {}, {GPU_NAME: "h100"}, {"karpenter.sh/nodepool": "p"}))
            tolerations = draw.choice(((), (Toleration(operator="Exists"),)))
            spec = PodSpec(
                (Container("c", requests=requests),),
                node_selector=selector,
                tolerations=tolerations,
            )
            daemons.append(Pod(ObjectMeta(f"daemon-{place}"), spec))
        return replace(request, daemons=tuple(daemons))

    def _spec(
        self, types: list[InstanceType], *, at_home: bool = False, pool: NodePool | None = None
    ) -> PodSpec:
        draw = self.draw
        spec = super()._spec(types, at_home=at_home, pool=pool)
        spread = tuple(
            self._constraint()
            for _ in range(draw.choice((0, 0, 1, 1, 2) if not at_home else (0, 0, 1)))
        )
        terms = tuple(self._term() for _ in range(draw.choice((0, 0, 0, 1, 1, 2))))
        return replace(spec, spread=spread, affinity=terms)

    def _constraint(self) -> SpreadConstraint:
        draw = self.draw
        return SpreadConstraint(
            draw.choice((1, 1, 2)),
            draw.choice(KEYS),
            draw.random() < 0.75,
            selector_of_labels({"app": draw.choice("ab")}),
            honors_affinity=draw.random() < 0.8,
            honors_taints=draw.random() < 0.3,
        )

    def _term(self) -> PodAffinityTerm:
        draw = self.draw
        return PodAffinityTerm(
            draw.choice(KEYS),
            selector_of_labels({"app": draw.choice("ab")}),
            is_anti=draw.random() < 0.6,
            weight=draw.choice((None, None, None, 10, 50)),
        )


def kind_of(answer: Answer, request: NodeRequest) -> str:
    """Name what an answer is an example of."""
    if answer["claims"]:
        return f"{min(len(answer['claims']), 4)} new nodes"
    if answer["commands"]:
        (command,) = answer["commands"]
        many = "several" if len(command["nodes"]) > 1 else "one"
        return f"{command['reason']}: {command['decision']} {many}"
    return "no new node" if request.unschedulable else "nothing"


def said(answer: Answer) -> dict[str, str]:
    """Return why pods are left out, without what is chance."""
    return {pod: CHANCE.sub("", why) for pod, why in answer["errors"].items()}


def same(theirs: Answer, ours: Answer) -> bool:
    if said(theirs) != said(ours):
        return False
    keys = ("claims", "placed", "commands")
    return all(theirs[key] == ours[key] for key in keys) and all(
        is_said(node, why, theirs["events"]) for node, why in ours.get("why_not", {}).items()
    )


def is_said(node: str, why: str, events: list[str]) -> bool:
    # The pods of such a list are in any order.
    text = why.partition(", default/")[0] if why.startswith("Not all pods") else why
    starts = tuple(
        f"{node}: {reason}: {text}" for reason in ("DisruptionBlocked", "Unconsolidatable")
    )
    return any(event.startswith(starts) for event in events)


MOST_TIES = {Generator: 0.03, WithCompany: 0.25}
"""With company there are many: of domains with as few pods Karpenter takes any."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", [Generator, WithCompany])
def test_the_twin_does_what_karpenter_does(kind: type[Generator]) -> None:
    need_judge()
    generator = kind(SEED)
    requests = [generator.request() for _ in range(CASES)]
    answers = judged(requests)
    kinds = Counter(map(kind_of, answers, requests))
    differing = []
    for place, (request, theirs) in enumerate(zip(requests, answers, strict=True)):
        ours = decided(request)
        if not same(theirs, ours):
            differing.append((place, request, theirs, ours))
    again = iter(judged(request for _, request, _, _ in differing for _ in range(ASKED_AGAIN)))
    faults, ties = [], 0
    for place, _, theirs, ours in differing:
        further = [next(again) for _ in range(ASKED_AGAIN)]
        if not any(same(each, ours) for each in further):
            faults.append(f"case {place}\nKarpenter: {theirs}\nthe twin: {ours}")
        else:
            ties += 1
    assert not faults, f"{len(faults)} of {CASES} cases differ\n" + "\n\n".join(faults[:3])
    assert ties <= max(1, CASES * MOST_TIES[kind])
    if CASES >= 400:
        # The cases are worth something only while they have answers of all kinds.
        assert len(kinds) >= 9, kinds
        assert kinds["nothing"] < CASES / 3, kinds
