"""Services on shared nodes: GPUs given once, pods that wait, nodes that come and go, one service alone."""

import math
from dataclasses import replace
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import at_most
from gpuscale.base import compiling
from gpuscale.base.errors import UsageError
from gpuscale.lab.plan.fleet.fleet import FleetPool, FleetRun, FleetService, replay_fleet
from gpuscale.lab.plan.fleet.nodes import nodes_for
from gpuscale.triggers.policies import compiled
from gpuscale.triggers.policies.policy import Policy, Seen
from gpuscale.triggers.policies.registry import POLICIES
from gpuscale.triggers.policies.replaying import ReplaySettings, run

STEP_S = 15.0
NONE = numpy.zeros(0)


def follows(seen: Seen, memory, chosen) -> float:
    """Want what came in."""
    return seen.demand


FOLLOWS = Policy("follows", "as many as come", follows)


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """Run as it stands; compiled runs are compared with it below."""
    monkeypatch.setattr(compiling, "numba", lambda: None)
    compiled.policy_function.cache_clear()
    yield
    compiled.policy_function.cache_clear()


def service(name: str = "a", **fields: Any) -> FleetService:
    given: dict[str, Any] = {"pool": "p", "start_up_s": 30.0, "lag_s": 0.0, "most": 50}
    return FleetService(name=name, policy=FOLLOWS, settings=NONE, **{**given, **fields})


def replayed(services, pools, demand, **options) -> FleetRun:
    table = numpy.array(demand, dtype=float).reshape(len(demand), len(services))
    return replay_fleet(services, pools, table, STEP_S, **options)


def column(table, index: int = 0) -> list[float]:
    return table[:, index].tolist()


def test_a_pod_that_finds_no_gpu_waits_for_a_node():
    pool = FleetPool("p", gpus=1, most=2, least=1, coming_s=45)
    columns = replayed([service()], [pool], [1, 2, 2, 2, 2, 2, 2, 2]).columns
    # Ordered in step 1; 45 s are three steps: the node comes in step 4, 30 s later the pod serves: step 6.
    assert column(columns.waiting) == [0, 1, 1, 1, 0, 0, 0, 0]
    assert column(columns.nodes_coming) == [0, 1, 1, 1, 0, 0, 0, 0]
    assert column(columns.nodes) == [1, 1, 1, 1, 2, 2, 2, 2]
    assert column(columns.ready) == [1, 1, 1, 1, 1, 1, 2, 2]


def test_no_more_nodes_are_ordered_than_the_pool_may_have():
    pool = FleetPool("p", gpus=2, most=2, coming_s=15)
    columns = replayed([service()], [pool], [9] * 5).columns
    assert column(columns.nodes) == [0, 2, 2, 2, 2]
    assert column(columns.placed) == [0, 4, 4, 4, 4]
    assert column(columns.waiting) == [9, 5, 5, 5, 5]


def test_an_empty_node_goes_after_its_time_and_no_earlier():
    pool = FleetPool("p", gpus=1, most=3, least=1, first=3, unneeded_s=45)
    columns = replayed([service()], [pool], [3, 3, 1, 1, 1, 1, 1]).columns
    # Empty from step 2 on, 45 s later is step 5.
    assert column(columns.nodes) == [3, 3, 3, 3, 3, 1, 1]


def test_no_empty_node_goes_soon_after_one_was_ordered_for_any_pool():
    pools = [
        FleetPool("p", gpus=1, most=2, first=2, unneeded_s=15, delay_after_add_s=60),
        FleetPool("q", gpus=1, most=1, coming_s=15, delay_after_add_s=60),
    ]
    services = [service(), service("other", pool="q", least=0)]
    # A node is ordered for q in step 1, so that p's empty one stays until step 5; without it, until step 2.
    for other, nodes in ((1, [2, 2, 2, 2, 2, 1]), (0, [2, 2, 1, 1, 1, 1])):
        demand = [[2, 0], *[[1, other]] * 5]
        assert column(replayed(services, pools, demand).columns.nodes) == nodes


def test_a_node_that_is_used_again_counts_anew():
    pool = FleetPool("p", gpus=1, most=2, least=1, first=2, unneeded_s=30)
    columns = replayed([service()], [pool], [2, 1, 2, 1, 1, 1, 1]).columns
    assert column(columns.nodes) == [2, 2, 2, 2, 2, 1, 1]


def test_pods_that_waited_longest_are_first_and_smaller_ones_pass_those_that_do_not_fit():
    services = [
        service("big", gpus=4, least=0),
        service("small", least=0),
        service("late", least=0),
    ]
    pool = FleetPool("p", gpus=4, most=2, first=1, coming_s=30)
    demand = [[0, 1, 0], [1, 1, 0], [1, 2, 0], [1, 2, 2], [1, 2, 2], [1, 2, 2]]
    columns = replayed(services, [pool], demand).columns
    # One of four GPUs is taken, so the big one waits for its node, ordered in step 1, and others pass it.
    assert column(columns.waiting, 0) == [0, 1, 1, 0, 0, 0]
    assert column(columns.waiting, 1) == [0] * 6
    assert column(columns.gpus_used) == [1, 1, 2, 8, 8, 8]


@pytest.mark.parametrize(
    ("spreads", "share", "left"),
    [
        (False, 1.0, 1),
        (True, 1.0, 2),
        # As much is left of both nodes whatever is on them, and the older takes both pods.
        (True, 0.0, 1),
    ],
)
def test_pods_pack_nodes_or_spread_over_them(spreads, share, left):
    pool = FleetPool("p", gpus=2, most=2, first=2, unneeded_s=15, spreads=spreads)
    assert column(replayed([service(share=share)], [pool], [2] * 4).columns.nodes)[-1] == left


def test_pods_that_spread_go_to_nodes_of_their_own_pool_as_soon_as_there_are_any():
    pools = [
        FleetPool(name, gpus=1, most=2, first=first, coming_s=15, spreads=True)
        for name, first in (("p", 2), ("q", 0))
    ]
    services = [service(), service("b", pool="q", least=0)]
    columns = replayed(services, pools, [[1, 0], [1, 1], [1, 1], [1, 1]]).columns
    assert column(columns.waiting, 1) == [0, 1, 0, 0]
    assert column(columns.gpus_used, 0) == [1] * 4
    assert column(columns.gpus_used, 1) == [0, 0, 1, 1]


def test_cpu_and_memory_say_where_a_pod_goes_and_not_how_many_gpus_are_left():
    services = [service("big", gpus=2, share=0.1), service("small", share=0.4), service("last")]
    pool = FleetPool("p", gpus=4, most=2, first=2, unneeded_s=15, spreads=True)
    # The big one and the small one have a node each. The last goes to the big one's, of which more is left,
    # as Kubernetes' LeastAllocated has it; when both are gone only the small one's node is empty, and goes.
    demand = [[1, 1, 0], [1, 1, 1], [1, 0, 1], [1, 0, 1], [1, 0, 1]]
    run_ = replayed([replace(each, least=0) for each in services], [pool], demand, details=3)
    assert column(run_.columns.nodes) == [2, 2, 2, 1, 1]
    nodes = dict(zip(run_.details.service.tolist(), run_.details.node.tolist(), strict=True))
    assert nodes[2] == nodes[0] != nodes[1]


@given(
    sizes=st.lists(st.integers(0, 12), min_size=8, max_size=8),
)
def test_nodes_for_pods_of_many_sizes_are_those_of_first_fit(sizes):
    nodes: list[int] = []
    for gpus in range(8, 0, -1):
        for _ in range(sizes[gpus - 1]):
            # The fullest that has room.
            room = [free for free in nodes if free >= gpus]
            if room:
                nodes.remove(min(room))
                nodes.append(min(room) - gpus)
            else:
                nodes.append(8 - gpus)
    assert nodes_for(numpy.array([0, *sizes]), 8) == len(nodes)


POOLS = [
    FleetPool("p", gpus=4, most=5, least=1, first=2, coming_s=40, unneeded_s=30),
    FleetPool("q", gpus=8, most=2, coming_s=15, unneeded_s=0, spreads=True),
]
SERVICES = [
    service("a", least=0),
    service("b", gpus=3, start_up_s=45),
    service("c", gpus=4, lag_s=30),
    service("d", pool="q", gpus=5, least=0),
    service("e", pool="q", most=9),
]


@at_most(40)
@given(st.lists(st.lists(st.floats(0, 20), min_size=5, max_size=5), min_size=1, max_size=40))
def test_gpus_are_given_once_and_pods_are_counted_once(demand):
    result = replayed(SERVICES, POOLS, demand, details=10_000)
    columns, details, steps = result.columns, result.details, len(demand)
    assert details.rows.tolist() == [result.pods, result.pods]
    used = numpy.zeros((steps, sum(pool.most for pool in POOLS)))
    placed, waiting = numpy.zeros((steps, 5)), numpy.zeros((steps, 5))
    for row in range(result.pods):
        one, node = details.service[row], details.node[row]
        gone = steps if details.gone[row] < 0 else details.gone[row]
        since = gone if details.placed[row] < 0 else details.placed[row]
        waiting[details.ordered[row] : since, one] += 1
        placed[since:gone, one] += 1
        if since < gone:
            used[since:gone, node] += SERVICES[one].gpus
    assert (placed == columns.placed).all()
    assert (waiting == columns.waiting).all()
    assert used.max() <= 8
    assert used[:, :5].max() <= 4  # the first pool's five nodes
    assert (columns.gpus_used[:, 0] == used[:, :5].sum(axis=1)).all()
    assert (columns.gpus_used[:, 1] == used[:, 5:].sum(axis=1)).all()
    for index, pool in enumerate(POOLS):
        nodes = columns.nodes[:, index]
        assert (columns.gpus_used[:, index] <= nodes * pool.gpus).all()
        assert ((pool.least <= nodes) & (nodes + columns.nodes_coming[:, index] <= pool.most)).all()
    # What a policy wants is what there is: placed and waiting.
    assert (placed + waiting)[-1, 0] == math.ceil(demand[-1][0] - 1e-9)


def demand_of(seed: int, steps: int = 240) -> numpy.ndarray:
    """Return a day's wave with noise, from a known seed."""
    noise = numpy.random.default_rng(seed).random(steps)
    wave = numpy.sin(numpy.arange(steps) / steps * 4 * numpy.pi)
    return 6 + 5 * wave + 4 * noise


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_with_enough_nodes_each_service_is_replayed_as_if_it_were_alone(name):
    policy = POLICIES[name]
    chosen = policy.settings()
    lone = ReplaySettings(STEP_S, 100.0, 40.0, 50.0, 2.0, 14.0)
    services = [
        FleetService(
            str(seed), "p", policy, chosen, 14, 2, None, 2, 100.0, lag_s=40.0, patience_s=50.0
        )
        for seed in range(2)
    ]
    demands = [demand_of(seed) for seed in range(2)]
    pool = FleetPool("p", gpus=4, most=20, least=20)
    columns = replayed(services, [pool], numpy.stack(demands, axis=1)).columns
    for index, demand in enumerate(demands):
        expected = [numpy.zeros(len(demand)) for _ in range(4)]
        run(policy.desired, chosen, numpy.zeros(policy.memory), demand, lone, *expected)
        found = (columns.ready, columns.placed, columns.queue, columns.given_up)
        for table, alone in zip(found, expected, strict=True):
            assert column(table, index) == alone.astype(numpy.float32).tolist()
        assert not columns.waiting.any()


def test_compiled_and_plain_runs_agree_and_the_first_says_that_it_compiles(monkeypatch, tmp_path):
    pytest.importorskip("numba")
    policy = POLICIES["trend"]
    services = [
        FleetService(str(at), "p", policy, policy.settings(), 30, 0, gpus=at + 1) for at in range(3)
    ]
    pool = FleetPool("p", gpus=4, most=6, coming_s=60, unneeded_s=120)
    demand = numpy.stack([demand_of(at) / 3 for at in range(3)], axis=1)
    lines: list[str] = []
    plain_run = replayed(services, [pool], demand, details=5_000, say=lines.append)
    assert "numba" in lines[0]
    monkeypatch.undo()
    compiled.policy_function.cache_clear()
    monkeypatch.setenv(compiling.CACHE_VARIABLE, str(tmp_path))
    lines.clear()
    fast_run = replayed(services, [pool], demand, details=5_000, say=lines.append)
    assert any("compiling" in line for line in lines)
    assert plain_run.columns.waiting.any()
    for before, after in zip(plain_run.columns, fast_run.columns, strict=True):
        assert (before == after).all()
    for rows, others in zip(plain_run.details, fast_run.details, strict=True):
        assert (rows == others).all()


def test_hours_are_of_what_was_held():
    pool = FleetPool("p", gpus=4, most=2, least=2)
    result = replayed([service(gpus=2)], [pool], [2] * 240)
    # 240 steps of 15 s are an hour.
    assert result.gpu_hours().tolist() == [4.0]
    assert result.node_hours().tolist() == [2.0]
    assert result.waiting_hours().tolist() == [0.0]


@pytest.mark.parametrize(
    ("services", "pools", "demand", "expected"),
    [
        ([], [], numpy.zeros((1, 0)), "one or more services"),
        ([service(pool="x")], [FleetPool("p", 1, 1)], [[1]], "expected one of: p"),
        ([service(gpus=2)], [FleetPool("p", 1, 1)], [[1]], "expected 1 to 1"),
        ([service(least=60)], [FleetPool("p", 1, 1)], [[1]], "0 <= least <= most"),
        ([service()], [FleetPool("p", 1, 1, least=2)], [[1]], "0 <= least <= first <= most"),
        ([service()], [FleetPool("p", 1, 1)], [[math.nan]], "not finite"),
        ([service()], [FleetPool("p", 1, 1)], [[-1]], "below 0"),
        ([service(most=10**9)], [FleetPool("p", 1, 1)], [[1]], "or fewer"),
    ],
)
def test_what_does_not_fit_together_is_refused(services, pools, demand, expected):
    with pytest.raises(UsageError, match=expected):
        replayed(services, pools, demand)
