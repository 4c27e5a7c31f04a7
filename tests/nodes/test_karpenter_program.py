"""Karpenter 1.15.0 as released, on a real control plane: what it buys and takes away, and when.

The numbers were measured on that release before these tests, and are what the twin is held to as well. Times
have the slack that its own polls leave: 10 s between looks, 15 s of validation.
"""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpuscale_testing.karpenter import node_pool
from karpenter_cluster import Cluster, cluster, workload

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
QUICK = {"consolidateAfter": "10s", "budgets": [{"nodes": "100%"}]}
NEVER = {"consolidateAfter": "Never"}
ON_DEMAND = [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}]
BOUGHT_S = 60.0


def pool(name="gpu", disruption=NEVER, kinds="", template=None, **spec):
    """Return a NodePool that buys on demand, of the instance types of these letters."""
    requirements = [*ON_DEMAND]
    if kinds:
        key = "node.kubernetes.io/instance-type"
        requirements.append({"key": key, "operator": "In", "values": list(kinds)})
    of_nodes = {"requirements": requirements, **(template or {})}
    return node_pool(name, {"disruption": disruption, **spec}, of_nodes)


@pytest.fixture
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield cluster(stack, tmp_path, **getattr(request, "param", {}))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield cluster(stack, tmp_path_factory.mktemp("shared"))


@pytest.fixture
def fresh(shared: Cluster) -> Iterator[Cluster]:
    """Return the shared cluster, without anything that a case before it made."""
    yield shared
    shared.plane.kubectl("delete", "deployments", "--all", "--wait=true")
    shared.plane.kubectl("delete", "pods", "--all", "--wait=true")
    shared.plane.kubectl("delete", "nodepools.karpenter.sh", "--all", "--wait=true")
    shared.wait_for(
        lambda: not shared.plane.get("nodeclaims.karpenter.sh")["items"], "end of all nodes", 90
    )
    shared.lives.clear()


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param(1, "s", id="one"),
        pytest.param(3, "m", id="three: as long as any type holds them, they share"),
        pytest.param(5, "l", id="five"),
        pytest.param(12, "lm", id="twelve: an eight and a four, and not twelve small ones"),
    ],
)
def test_equal_pods_share_a_node_for_as_long_as_any_type_holds_them(
    fresh: Cluster, pods: int, expected: str
) -> None:
    fresh.apply(pool(), workload("w", pods))
    fresh.wait_for(lambda: fresh.running("w") == pods, f"{pods} running pods", BOUGHT_S)
    assert fresh.types() == sorted(expected)


def test_a_limit_leaves_pods_without_a_node(fresh: Cluster) -> None:
    """Four GPUs for six pods: the four-GPU type, and two pods wait."""
    fresh.apply(pool(limits={"nvidia.com/gpu": "4"}), workload("w", 6))
    fresh.wait_for(lambda: fresh.running("w") == 4, "four running pods", BOUGHT_S)
    assert fresh.types() == ["m"]
    waiting = fresh.plane.get("pods", "-l", "app=w", "--field-selector=status.phase=Pending")
    assert len(waiting["items"]) == 2


def test_the_heavier_pool_is_tried_first(fresh: Cluster) -> None:
    """Nine pods; eight GPUs in the pool of weight 50, the rest in that of weight 10."""
    heavy = pool("heavy", kinds="l", weight=50, limits={"nvidia.com/gpu": "8"})
    fresh.apply(heavy, pool("light", kinds="sm", weight=10), workload("w", 9))
    fresh.wait_for(lambda: fresh.running("w") == 9, "nine running pods", BOUGHT_S)
    assert fresh.types() == ["l", "s"]


def test_spot_is_taken_where_it_is_allowed(fresh: Cluster) -> None:
    fresh.apply(node_pool("gpu", {"disruption": NEVER}), workload("w", 1))
    fresh.wait_for(lambda: fresh.running("w") == 1, "a running pod", BOUGHT_S)
    (life,) = fresh.lives.values()
    assert (life.kind, life.capacity_type) == ("s", "spot")


@pytest.mark.parametrize(
    ("template", "resources", "said"),
    [
        (
            {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            {"limits": {"nvidia.com/gpu": "1"}},
            "did not tolerate taint (taint=gpu",
        ),
        (
            {},
            {"limits": {"nvidia.com/mig-1g.5gb": "1"}},
            "no instance type has enough resources",
        ),
    ],
)
def test_what_no_node_would_take_is_told_and_buys_nothing(
    fresh: Cluster, template: dict, resources: dict, said: str
) -> None:
    fresh.apply(pool(template=template), workload("w", 1, resources=resources))

    def told() -> bool:
        return any(said in message for message in fresh.events("FailedScheduling"))

    fresh.wait_for(told, f"event with {said!r}", 30)
    assert not fresh.lives


def test_a_node_is_replaced_by_a_cheaper_one_before_it_goes(running: Cluster) -> None:
    """Three pods on m become one: m is tainted 25 to 35 s later, s is ready first, then m goes."""
    running.apply(pool(disruption=QUICK), workload("w", 3))
    running.wait_for(lambda: running.running("w") == 3, "three running pods", BOUGHT_S)
    running.scale("w", 1)
    fell_s = running.now_s()
    running.wait_for(
        lambda: running.types() == ["s"] and running.running("w") == 1 and len(gone(running)) == 1,
        "replacement of m by s",
        120,
    )
    small, medium = sorted(running.lives.values(), key=lambda each: each.kind, reverse=True)
    assert running.bought() == ["m", "s"]
    assert small.ready_s is not None
    assert medium.tainted_s is not None
    assert medium.gone_s is not None
    assert 24 <= medium.tainted_s - fell_s <= 45
    assert small.ready_s < medium.gone_s


def gone(running: Cluster) -> list[str]:
    return [life.kind for life in tuple(running.lives.values()) if life.gone_s is not None]


def test_an_empty_node_goes(running: Cluster) -> None:
    """Tainted 25 to 35 s after the last pod left, gone some 5 s after that."""
    running.apply(pool(disruption=QUICK), workload("w", 1))
    running.wait_for(lambda: running.running("w") == 1, "a running pod", BOUGHT_S)
    running.scale("w", 0)
    fell_s = running.now_s()
    running.wait_for(lambda: gone(running) == ["s"], "end of the empty node", 90)
    (life,) = running.lives.values()
    assert life.tainted_s is not None
    assert life.gone_s is not None
    assert 24 <= life.tainted_s - fell_s <= 45
    assert life.gone_s - life.tainted_s <= 15


def two_large(running: Cluster, disruption: dict, **pod) -> None:
    """Bring up two nodes of eight GPUs, and leave two pods on one and five on the other."""
    running.apply(pool(disruption=disruption, kinds="l"))
    running.apply(workload("two", 2, **pod), workload("full", 6))
    running.wait_for(lambda: running.running("full") == 6, "eight running pods", BOUGHT_S)
    running.apply(workload("five", 5), workload("rest", 3))
    running.wait_for(lambda: running.running("rest") == 3, "sixteen running pods", BOUGHT_S)
    assert running.types() == ["l", "l"]
    running.scale("full", 0)
    running.scale("rest", 0)


def test_the_node_with_fewer_pods_is_emptied_into_the_other(running: Cluster) -> None:
    two_large(running, QUICK)
    running.wait_for(lambda: gone(running) == ["l"], "end of one node", 120)
    first, second = sorted(running.lives.values(), key=lambda each: each.seen_s)
    assert (first.gone_s is None, second.gone_s is None) == (False, True)
    running.wait_for(lambda: running.running("two") == 2, "its pods on the other", 30)


@pytest.mark.parametrize(
    ("disruption", "pod", "budget"),
    [
        pytest.param({**QUICK, "consolidationPolicy": "WhenEmpty"}, {}, False, id="WhenEmpty"),
        pytest.param(
            QUICK,
            {"annotations": {"karpenter.sh/do-not-disrupt": "true"}},
            False,
            id="do-not-disrupt",
        ),
        pytest.param(QUICK, {}, True, id="a PodDisruptionBudget of zero, on both"),
    ],
)
def test_a_node_stays_where_it_must_not_be_disrupted(
    running: Cluster, disruption: dict, pod: dict, budget: bool
) -> None:
    if budget:
        for name in ("two", "five"):
            running.apply(
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudget",
                    "metadata": {"name": name},
                    "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": name}}},
                }
            )
    two_large(running, disruption, **pod)
    stays_s = running.now_s() + 60
    if pod:
        # The other node may go, if its pods have room: they have not, with 2 of 8 GPUs taken and 5 to come.
        stays_s = running.now_s() + 20
    running.wait_for(lambda: running.now_s() > stays_s, "time", 70)
    assert running.types() == ["l", "l"]


def test_a_budget_of_one_takes_one_node_after_the_other(running: Cluster) -> None:
    """Three empty nodes and a budget of 1: one each 10 s poll and 15 s validation."""
    one = {"consolidateAfter": "10s", "budgets": [{"nodes": "1"}]}
    running.apply(pool(disruption=one, kinds="s"), workload("w", 3))
    running.wait_for(lambda: running.running("w") == 3, "three running pods", BOUGHT_S)
    running.scale("w", 0)
    running.wait_for(lambda: len(gone(running)) == 3, "end of three nodes", 180)
    tainted = sorted(life.tainted_s or 0.0 for life in running.lives.values())
    between = [later - sooner for sooner, later in itertools.pairwise(tainted)]
    assert all(15 <= each <= 40 for each in between), tainted


@pytest.mark.parametrize("running", [{"gpu_lag_s": 30.0}], indirect=True)
def test_gpus_that_come_late_buy_no_second_node(running: Cluster) -> None:
    running.apply(pool(), workload("w", 1))
    at_s = running.wait_for(lambda: running.running("w") == 1, "a running pod", 90)
    (life,) = running.lives.values()
    assert life.ready_s is not None
    assert life.ready_s - life.seen_s >= 29
    assert at_s >= life.seen_s + 29


def test_small_nodes_are_merged_by_prefixes(running: Cluster) -> None:
    """Six s with a pod each become m and two s: the search takes a failure in the middle for "fewer"."""
    running.apply(pool("small", kinds="s", disruption=NEVER), workload("w", 6))
    running.wait_for(lambda: running.running("w") == 6, "six running pods", BOUGHT_S)
    assert running.types() == ["s"] * 6
    # The pool may have both from now on, and is consolidated.
    running.apply(pool("small", kinds="sm", disruption=QUICK))
    running.wait_for(lambda: running.types() == ["m", "s", "s"], "m and two s", 150)
    running.wait_for(lambda: running.running("w") == 6, "six running pods again", 60)
