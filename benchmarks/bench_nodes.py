"""How long one pass of a node policy takes, by the nodes and pods that it looks at.

Four sizes, doubled, all else the same; the exponent is the slope of the logarithms of CPU time, and linear is
1. Nodes of 8 GPUs, five pods for each of them:

- `used`: the pods are on the nodes, half of which is asked for, so that every node may be emptied;
- `full`: the pods are on the nodes, all of which is asked for, so that none can be;
- `waiting`: as `used`, with a pod in five that is on no node and waits;
- `pending`: nothing is on the nodes, and the pods fit on as many again.

Each of them also with rules about other pods, the pods being those of 20 Deployments:

- `spread`: a Deployment's pods are spread over host names, `maxSkew: 1`;
- `apart`: no two pods of a Deployment go on one node.

    .venv/bin/python benchmarks/bench_nodes.py
"""

import gc
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

import harness
from gpuscale.base.objects.meta import ObjectMeta, OwnerReference
from gpuscale.base.objects.pods import Container, Pod, PodAffinityTerm, PodSpec, SpreadConstraint
from gpuscale.base.objects.selectors import Operator, Requirement, Selector
from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.cluster.nodes import (
    AutoscalerSettings,
    ClusterAutoscaler,
    InstanceType,
    NodePolicyFactory,
    NodePool,
    NodeRequest,
    PoolNode,
)
from gpuscale.hpa.cluster.nodes.karpenter.policy import BATCH_IDLE_MS, Karpenter
from gpuscale.hpa.cluster.scheduling import NodeState

HOSTNAME = "kubernetes.io/hostname"
SIZES = (1_250, 2_500, 5_000, 10_000)
"""Nodes."""
PODS = 5
"""For each node."""
KINDS = 20
"""Of pods, by what they ask for."""
RUNS = 9
"""The fastest counts, since others work on the machine too."""
BUDGET_S, LINEAR = 1.0, 1.1
UNLIMITED = AutoscalerSettings(cores_total=(0, 10**9), memory_total=(0, 10**9))


@dataclass(frozen=True, slots=True)
class Policy:
    """What is measured."""

    name: str
    make: NodePolicyFactory
    batch_ms: int = 0
    """How long it waits for further pods before it decides."""


POLICIES = (
    Policy("cluster-autoscaler", ClusterAutoscaler),
    Policy("karpenter", Karpenter, BATCH_IDLE_MS),
)


def pool(nodes: int) -> NodePool:
    amounts = {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1000Gi", "pods": "110"}
    shape = InstanceType("eight", {name: parse_quantity(each) for name, each in amounts.items()})
    return NodePool("gpu", 0, 3 * nodes, (shape,))


def pods(count: int, gpus: int, rule: str) -> list[Pod]:
    made = []
    for kind in range(KINDS):
        name = f"{kind}-of-{gpus}"
        meta = ObjectMeta(name, labels={"app": name}, owner=OwnerReference("ReplicaSet", name))
        own = Selector((Requirement("app", Operator.IN, (name,)),))
        asked = {
            "nvidia.com/gpu": parse_quantity(gpus),
            "cpu": parse_quantity(f"{1000 + kind}m"),
        }
        spec = PodSpec(
            (Container("c", requests=asked),),
            spread=(SpreadConstraint(1, HOSTNAME, True, own),) if rule == "spread" else (),
            affinity=(PodAffinityTerm(HOSTNAME, own, is_anti=True),) if rule == "apart" else (),
        )
        made.append(Pod(meta, spec))
    return [
        replace(of, metadata=replace(of.metadata, name=f"p{number}-of-{gpus}"))
        for number in range(count)
        for of in (made[number % KINDS],)
    ]


def used(nodes: int, rule: str) -> NodeRequest:
    """Return nodes with four pods of one GPU each; the fifth pod asks for none."""
    return busy(nodes, 1, rule)


def full(nodes: int, rule: str) -> NodeRequest:
    """Return nodes with four pods of two GPUs each; the fifth pod asks for none."""
    return busy(nodes, 2, rule)


def waiting(nodes: int, rule: str) -> NodeRequest:
    """Return nodes with four pods of one GPU each, and for each a fifth pod that waits."""
    there = used(nodes, rule)
    on = {name: of[:4] for name, of in there.pods.items()}
    late = [
        replace(each, metadata=replace(each.metadata, name=f"late-{each.metadata.name}"))
        for each in pods(nodes, 1, rule)
    ]
    return replace(there, pods=on, unschedulable=tuple(late))


def busy(nodes: int, gpus: int, rule: str) -> NodeRequest:
    of, on, there = pool(nodes), {}, []
    with_gpus, without = pods(4 * nodes, gpus, rule), pods(nodes, 0, rule)
    for number in range(nodes):
        name = f"n{number}"
        on[name] = [*with_gpus[4 * number : 4 * number + 4], without[number]]
        state = NodeState(of.node(name))
        for each in on[name]:
            state = state.with_pod(each.spec)
        there.append(PoolNode("gpu", state, ready=True, empty=False))
    return NodeRequest((of,), tuple(there), (), 60_000, UNLIMITED, on)


def pending(nodes: int, rule: str) -> NodeRequest:
    """Return empty nodes, and pods of three GPUs that fill them and as many again."""
    of = pool(nodes)
    there = tuple(
        PoolNode("gpu", NodeState(of.node(f"n{number}")), ready=True, empty=True)
        for number in range(nodes)
    )
    return NodeRequest((of,), there, tuple(pods(PODS * nodes, 3, rule)), 60_000, UNLIMITED, {})


def cpu_s(policy: Policy, request: NodeRequest) -> float:
    """Return the CPU time of the fastest pass, each by a policy that has seen nothing before."""
    found = math.inf
    gc.collect()
    gc.freeze()  # what a caller holds costs its own collections
    for _ in range(RUNS):
        made = policy.make()
        later = request
        if policy.batch_ms and request.unschedulable:
            made.scan(request)
            later = replace(request, now_ms=request.now_ms + policy.batch_ms)
        start = time.process_time()
        made.scan(later)
        found = min(found, time.process_time() - start)
    gc.unfreeze()
    return found


def main() -> int:
    """Measure each policy on each load."""
    figures = []
    loads: dict[str, Callable[[int, str], NodeRequest]] = {
        "used": used,
        "full": full,
        "waiting": waiting,
        "pending": pending,
    }
    for policy in POLICIES:
        for load, rule in product(loads, ("", "spread", "apart")):
            costs = [cpu_s(policy, loads[load](size, rule)) for size in SIZES]
            logs = ([math.log(size) for size in SIZES], [math.log(cost) for cost in costs])
            slope = statistics.linear_regression(*logs).slope
            name = ", ".join(filter(None, (policy.name, load, rule)))
            note = ", ".join(f"{cost:.3f} s" for cost in costs)
            what = f"{name}: {SIZES[-1]} nodes, {PODS * SIZES[-1]} pods"
            figures += [
                harness.figure(what, "s", [costs[-1]], at_most=BUDGET_S),
                harness.figure(f"{name}: growth", "exponent", [slope], at_most=LINEAR, note=note),
            ]
    return harness.write("nodes", figures)


if __name__ == "__main__":
    sys.exit(main())
