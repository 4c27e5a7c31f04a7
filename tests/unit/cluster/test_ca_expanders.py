"""Which pool grows; each case names the upstream file (cluster-autoscaler/expander, release 1.35)."""

import math
from collections import Counter

import pytest

from autoscaler_cases import MINUTE, Cluster, amounts, pod, pods, pool
from gpuscale.hpa.cluster.nodes import AutoscalerSettings
from gpuscale.hpa.cluster.nodes.cluster_autoscaler import expanders
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.expanders import (
    STABILIZATION_PRICE,
    Circumstances,
    Option,
    best_option,
    pod_price,
    preferred_cpus,
    suppressed_unfitness,
)
from gpuscale.hpa.cluster.nodes.cluster_autoscaler.snapshot import PodKinds
from gpuscale.hpa.cluster.scheduling import NodeState


def option(of, nodes, waiting):
    return Option(of, NodeState(of.node("t")), nodes, tuple(waiting))


def best(expander, *options, nodes=1, **settings):
    about = Circumstances(
        AutoscalerSettings(expander=expander, **settings), nodes, 0, PodKinds().requests
    )
    found = best_option(options, about)
    return found and found.pool.name


SMALL, BIG = (
    pool("small", gpus=0, cpu="8", memory="32Gi"),
    pool("big", gpus=0, cpu="16", memory="64Gi"),
)


def test_least_waste_adds_the_shares_of_cpu_and_memory_that_stay_free():
    # waste.go: 6 CPUs and 24 GiB waste .25 + .25 of small and .625 + .625 of big
    waiting = [pod("p", 0, "6", "24Gi")]
    assert best("least-waste", option(BIG, 1, waiting), option(SMALL, 1, waiting)) == "small"


def test_least_waste_is_the_default():
    # factory/expander_factory.go; the findings' case: 6 CPUs and a GPU, big listed first
    pools = [
        pool("big", gpus=1, cpu="16", memory="64Gi"),
        pool("small", gpus=1, cpu="8", memory="32Gi"),
    ]
    assert Cluster(pools).grown(MINUTE, [pod("p", 1, "6")]) == {"small": 1}


def test_least_waste_does_not_see_gpus():
    # Equal CPUs and memory: 1 of 8 GPUs used is no waste, so both are as good and one is drawn.
    pools = [pool("eight", gpus=8), pool("one", gpus=1)]
    drawn = {
        name
        for seed in range(20)
        for name in Cluster(pools, AutoscalerSettings(seed=seed)).grown(MINUTE, [pod("p", 1)])
    }
    assert drawn == {"eight", "one"}


def test_most_pods():
    # mostpods.go
    options = [option(SMALL, 5, pods(3)), option(BIG, 1, pods(4))]
    assert best("most-pods", *options) == "big"


def test_least_nodes():
    # leastnodes.go
    options = [option(SMALL, 2, pods(3)), option(BIG, 1, pods(1))]
    assert best("least-nodes", *options) == "big"


@pytest.mark.parametrize(
    ("priorities", "chosen"),
    [
        ({10: (".*",), 50: ("^sma",)}, "small"),
        ({10: ("small",), 50: ("ig",)}, "big"),  # found anywhere in the name
        ({10: ("small",), 20: ("small",), 15: ("big",)}, "small"),  # of several the highest counts
        ({10: ("big",)}, "big"),  # without a match a pool is out where another has one
    ],
)
def test_priority(priorities, chosen):
    # priority.go
    options = [option(SMALL, 1, pods(1)), option(BIG, 1, pods(1))]
    assert best("priority", *options, expander_priorities=priorities) == chosen


def test_priority_without_any_match_leaves_the_choice_to_the_next():
    # "no priorities info found for any of the expansion options. No options filtered."
    options = [option(SMALL, 2, pods(1)), option(BIG, 1, pods(1))]
    names = {10: ("gpu",)}
    assert best("priority,least-nodes", *options, expander_priorities=names) == "big"


def test_a_chain_narrows_the_choice():
    # factory/chain.go
    other = pool("other", gpus=0)
    options = [
        option(SMALL, 3, pods(4)),
        option(BIG, 2, pods(4)),
        option(other, 1, pods(3)),
    ]
    assert best("most-pods,least-nodes", *options) == "big"


def test_random_draws_by_the_seed_and_each_pool_about_as_often():
    # random.go; 200 draws of one in two: 100 and 5 deviations of sqrt(200)/2
    pools = [pool("a", gpus=1), pool("b", gpus=1)]

    def drawn(seed):
        settings = AutoscalerSettings(expander="random", seed=seed)
        return next(iter(Cluster(pools, settings).grown(MINUTE, [pod("p", 1)])))

    counts = Counter(map(drawn, range(200)))
    assert abs(counts["a"] - 100) < 5 * math.sqrt(200) / 2
    assert drawn(7) == drawn(7)


# price/price.go, price/preferred.go


@pytest.mark.parametrize(
    ("nodes", "cpus"), [(2, 1), (3, 2), (6, 2), (20, 4), (60, 8), (200, 16), (201, 32)]
)
def test_larger_clusters_prefer_larger_nodes(nodes, cpus):
    assert preferred_cpus(nodes) == cpus


def test_many_nodes_make_their_size_matter_less():
    # u = 2: 1 node: 2; 16 nodes: (2 - 1)(1 - tanh(15/15)) + 1
    assert suppressed_unfitness(4, 8, 1) == 2
    assert suppressed_unfitness(8, 4, 16) == pytest.approx(1.238, abs=5e-4)


def test_the_price_of_pods_is_that_of_their_cpus_memory_and_gpus():
    # cloudprovider/gce/gce_price_info.go: .033174 a CPU, .004446 a GiB, .7 a GPU
    requests = {name: quantity.nano for name, quantity in amounts(2, "4", "16Gi").items()}
    assert pod_price(requests) == pytest.approx(4 * 0.033174 + 16 * 0.004446 + 1.4)
    assert pytest.approx(0.5 * 0.033174 + 500 / 1024 * 0.004446) == STABILIZATION_PRICE


def test_price_takes_what_costs_least_for_what_it_is_worth():
    cheap, dear = (
        pool("cheap", gpus=0, cpu="4", price=0.2),
        pool("dear", gpus=0, cpu="4", price=0.3),
    )
    options = [option(dear, 2, pods(4, 0, "2")), option(cheap, 2, pods(4, 0, "2"))]
    assert best("price", *options) == "cheap"


def test_price_weighs_the_size_of_nodes():
    # A cluster of 20 prefers 4 CPUs: one node of 16 has u = 4, four of 4 have u = 1, at the same price.
    four = pool("four", gpus=0, cpu="4", price=0.2)
    sixteen = pool("sixteen", gpus=0, cpu="16", price=0.8)
    waiting = pods(8, 0, "2")
    assert best("price", option(sixteen, 1, waiting), option(four, 4, waiting), nodes=20) == "four"


def test_price_keeps_pods_without_gpus_off_nodes_with_gpus():
    # gpuUnfitnessOverride 1000 outweighs a tenth of the price
    gpu, cpu = pool("gpu", gpus=1, cpu="4", price=0.1), pool("cpu", gpus=0, cpu="4", price=1.0)
    waiting = [pod("p", 0, "2")]
    assert best("price", option(gpu, 1, waiting), option(cpu, 1, waiting)) == "cpu"


def test_pools_without_a_price_are_left_out():
    waiting = [pod("p", 0, "2")]
    priced = pool("priced", gpus=0, price=9.0)
    assert best("price", option(SMALL, 1, waiting), option(priced, 1, waiting)) == "priced"
    assert best("price", option(SMALL, 1, waiting), option(BIG, 1, waiting)) is None


def test_every_expander_of_the_flag_is_there():
    # expander/expander.go: AvailableExpanders, but for grpc, which asks a program outside
    assert set(expanders.EXPANDERS) == {
        *("random", "most-pods", "least-waste", "price", "priority", "least-nodes")
    }
