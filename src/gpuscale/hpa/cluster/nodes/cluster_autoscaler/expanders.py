"""Which of the pools that would help grows.

Source: cluster-autoscaler/expander/{factory/chain,waste/waste,mostpods/mostpods,leastnodes/leastnodes,
price/price,price/preferred,priority/priority,random/random}.go (1.35).
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.objects.pods import Pod
from gpuscale.base.objects.requests import Amounts
from gpuscale.base.quantity import Quantity
from gpuscale.base.streams import stream
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.registry import has_gpus
from gpuscale.hpa.cluster.nodes.pools import AutoscalerSettings, InstanceType, NodePool
from gpuscale.hpa.cluster.scheduling import NodeState
from gpuscale.hpa.cluster.scheduling.resources import NANO

_GIB = (1 << 30) * NANO


@dataclass(frozen=True, slots=True)
class Option:
    """One pool with the nodes that it would get and the pods that these would take."""

    pool: NodePool
    template: NodeState
    nodes: int
    pods: tuple[Pod, ...]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What expanders look at beside the options."""

    settings: AutoscalerSettings
    nodes: int
    """Of the cluster."""
    draw: int
    """Number of the draw, for `random`."""
    requests: Callable[[Pod], Amounts]
    """What a pod asks for."""


Expander = Callable[[Sequence[Option], Circumstances], list[Option]]
"""Returns the best of the options; several where they are as good."""


def best_option(options: Sequence[Option], about: Circumstances) -> Option | None:
    """Return what the chain of expanders leaves; of options that it can't tell apart, one at random."""
    left = list(options)
    for name in about.settings.expander.split(","):
        left = EXPANDERS[name.strip()](left, about)
        if len(left) == 1:
            return left[0]
    return next(iter(_random(left, about)), None)


def _random(options: Sequence[Option], about: Circumstances) -> list[Option]:
    if len(options) < 2:
        return list(options)
    drawn = stream(about.settings.seed, "expander", str(about.draw)).randrange(len(options))
    return [options[drawn]]


def _lowest(options: Sequence[Option], score: Callable[[Option], float | None]) -> list[Option]:
    """Return the options of the lowest score; those without one are out."""
    scores = [(score(option), option) for option in options]
    best = min((value for value, _ in scores if value is not None), default=None)
    return [option for value, option in scores if value is not None and value == best]


def _least_waste(options: Sequence[Option], about: Circumstances) -> list[Option]:
    def waste(option: Option) -> float:
        capacity = capacity_of(option.pool.template)
        wasted = 0.0
        for name, unit in (("cpu", NANO // 1000), ("memory", NANO)):
            # As whole millicores and bytes, each rounded up, as upstream's integers are.
            there = _ceil(_nano(capacity, name), unit) * option.nodes
            asked = _ceil(sum(about.requests(pod).get(name, 0) for pod in option.pods), unit)
            wasted += (there - asked) / there if there else 0.0
        return wasted

    return _lowest(options, waste)


def _price(options: Sequence[Option], about: Circumstances) -> list[Option]:
    return _lowest(options, lambda option: _price_score(option, about))


def _price_score(option: Option, about: Circumstances) -> float | None:
    """Return what the nodes cost for what the pods are worth, times how odd nodes of this size are."""
    price = option.pool.template.offerings[0].price_per_hour
    if price is None:
        return None
    worth = sum(pod_price(about.requests(pod)) for pod in option.pods)
    nodes = option.nodes
    ratio = (price * nodes + STABILIZATION_PRICE) / (worth + STABILIZATION_PRICE)
    cpus = _nano(capacity_of(option.pool.template), "cpu") / NANO
    if has_gpus(option.template.node):
        return _GPU_UNFITNESS * ratio
    return suppressed_unfitness(preferred_cpus(about.nodes), cpus, nodes) * ratio


def suppressed_unfitness(preferred: float, cpus: float, nodes: int) -> float:
    """Return how far a node's CPUs are from the preferred ones; of many nodes it matters less."""
    unfitness = max(preferred / cpus, cpus / preferred) if cpus else math.inf
    return (unfitness - 1) * (1 - math.tanh((nodes - 1) / 15)) + 1


def preferred_cpus(nodes: int) -> int:
    """Return the CPUs of the node that a cluster of this size is said to want."""
    for most, cpus in ((2, 1), (6, 2), (20, 4), (60, 8), (200, 16)):
        if nodes <= most:
            return cpus
    return 32


def pod_price(requests: Mapping[str, int]) -> float:
    """Return the price of a pod's requests for an hour.

    Source: cloudprovider/gce/gce_price_info.go (1.35), by which other clouds' pods are priced here too.
    """
    cpu, memory = requests.get("cpu", 0) / NANO, requests.get("memory", 0) / _GIB
    return cpu * 0.033174 + memory * 0.004446 + requests.get("nvidia.com/gpu", 0) / NANO * 0.7


STABILIZATION_PRICE = pod_price({"cpu": NANO // 2, "memory": 500 * (1 << 20) * NANO})
"""Of a pod with 0.5 CPUs and 500 MiB, so that tiny pods don't decide by their price."""
_GPU_UNFITNESS = 1000.0


def _most_pods(options: Sequence[Option], _about: Circumstances) -> list[Option]:
    return _lowest(options, lambda option: -len(option.pods))


def _least_nodes(options: Sequence[Option], _about: Circumstances) -> list[Option]:
    return _lowest(options, lambda option: option.nodes)


def _priority(options: Sequence[Option], about: Circumstances) -> list[Option]:
    priorities = about.settings.expander_priorities

    def rank(option: Option) -> float | None:
        matched = [
            priority
            for priority, expressions in priorities.items()
            if any(re.search(each, option.pool.name) for each in expressions)
        ]
        return -max(matched) if matched else None

    return _lowest(options, rank) or list(options)


EXPANDERS: Mapping[str, Expander] = {
    "random": _random,
    "most-pods": _most_pods,
    "least-nodes": _least_nodes,
    "least-waste": _least_waste,
    "price": _price,
    "priority": _priority,
}


def capacity_of(kind: InstanceType) -> Mapping[str, Quantity]:
    """Return what nodes have before reservations, as far as that is known."""
    return kind.capacity or kind.allocatable


def _nano(amounts: Mapping[str, Quantity], name: str) -> int:
    return amounts[name].nano if name in amounts else 0


def _ceil(nano: int, unit: int) -> int:
    return -(-nano // unit)
