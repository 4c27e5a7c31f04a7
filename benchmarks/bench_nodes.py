"""How long one pass of a node policy takes, by the nodes and pods that it looks at.

Four sizes, doubled, all else the same; the exponent is the slope of the logarithms of CPU time, and linear is
1. Nodes of 8 GPUs, five pods for each of them:

- `used`: the pods are on the nodes, half of which is asked for, so that every node may be emptied;
- `full`: the pods are on the nodes, all of which is asked for, so that none can be;
- `pending`: nothing is on the nodes, and the pods fit on as many again.

    .venv/bin/python benchmarks/bench_nodes.py
"""

import gc
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import harness
from gpuscale.base.objects.meta import ObjectMeta, OwnerReference
from gpuscale.base.objects.pods import Container, Pod, PodSpec
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


def pods(count: int, gpus: int) -> list[Pod]:
    specs = [
        PodSpec(
            (
                Container(
                    "c",
                    requests={
                        "nvidia.com/gpu": parse_quantity(gpus),
                        "cpu": parse_quantity(f"{1000 + kind}m"),
                    },
                ),
            )
        )
        for kind in range(KINDS)
    ]
    owner = OwnerReference("ReplicaSet", "web")
    return [
        Pod(ObjectMeta(f"p{number}", owner=owner), specs[number % KINDS]) for number in range(count)
    ]


def used(nodes: int) -> NodeRequest:
    """Return nodes with four pods of one GPU each; the fifth pod asks for none."""
    return busy(nodes, gpus=1)


def full(nodes: int) -> NodeRequest:
    """Return nodes with four pods of two GPUs each; the fifth pod asks for none."""
    return busy(nodes, gpus=2)


def busy(nodes: int, gpus: int) -> NodeRequest:
    of, on, there = pool(nodes), {}, []
    with_gpus, without = pods(4 * nodes, gpus), pods(nodes, 0)
    for number in range(nodes):
        name = f"n{number}"
        on[name] = [*with_gpus[4 * number : 4 * number + 4], without[number]]
        state = NodeState(of.node(name))
        for each in on[name]:
            state = state.with_pod(each.spec)
        there.append(PoolNode("gpu", state, ready=True, empty=False))
    return NodeRequest((of,), tuple(there), (), 60_000, UNLIMITED, on)


def pending(nodes: int) -> NodeRequest:
    """Return empty nodes, and pods of three GPUs that fill them and as many again."""
    of = pool(nodes)
    there = tuple(
        PoolNode("gpu", NodeState(of.node(f"n{number}")), ready=True, empty=True)
        for number in range(nodes)
    )
    return NodeRequest((of,), there, tuple(pods(PODS * nodes, 3)), 60_000, UNLIMITED, {})


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
    loads: dict[str, Callable[[int], NodeRequest]] = {
        "used": used,
        "full": full,
        "pending": pending,
    }
    for policy in POLICIES:
        for load, make in loads.items():
            costs = [cpu_s(policy, make(size)) for size in SIZES]
            logs = ([math.log(size) for size in SIZES], [math.log(cost) for cost in costs])
            slope = statistics.linear_regression(*logs).slope
            name, note = f"{policy.name}, {load}", ", ".join(f"{cost:.3f} s" for cost in costs)
            what = f"{name}: {SIZES[-1]} nodes, {PODS * SIZES[-1]} pods"
            figures += [
                harness.figure(what, "s", [costs[-1]], at_most=BUDGET_S),
                harness.figure(f"{name}: growth", "exponent", [slope], at_most=LINEAR, note=note),
            ]
    return harness.write("nodes", figures)


if __name__ == "__main__":
    sys.exit(main())
