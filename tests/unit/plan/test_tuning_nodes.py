"""An HPA searched with its node pool: what arithmetic says is best, and what a provider can't have."""

from dataclasses import replace

import numpy
import pytest

from gpuscale.base.promises import PromiseTerm
from gpuscale.lab.plan.comparing import (
    ReplayedWorkload,
    bounds_of,
    node_verdicts,
    row_on_nodes,
    split_of,
)
from gpuscale.lab.plan.fleet.fleet import FleetPool
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.score import Nodes
from gpuscale.lab.plan.tuning.contender import Contender
from gpuscale.lab.plan.tuning.pooled import (
    DELAY,
    MIN_NODES,
    UNNEEDED,
    DedicatedPool,
    OnNodes,
    on_nodes,
)
from gpuscale.lab.plan.tuning.search import ReplayCase, Search
from gpuscale.lab.plan.waiting import Requests
from gpuscale.triggers.policies.hpa import HPA_ON_DEMAND
from gpuscale.triggers.policies.replaying import ReplaySettings

PER_DAY = 5760
SERVICE = ReplaySettings(start_up_s=615.0, lag_s=0.0, most=20.0)
NODES = FleetPool(
    "gpu", gpus=2, most=10, least=8, coming_s=600, unneeded_s=600, delay_after_add_s=600
)
POOL = DedicatedPool("gpu", "eks", NODES, 1, 15.0, has_times=True)
OWN = ("target", "down_window_s", "tolerance")


def searched(demand: numpy.ndarray, one: OnNodes, promise: float, tries: int = 64) -> Search:
    """Return a search at its end."""
    search = Search(
        ReplayCase(demand, SERVICE, Promise((PromiseTerm("short", promise),)), is_held_back=False),
        one,
    )
    for _ in search.run(tries):
        pass
    return search


def test_nodes_that_no_pod_needs_go():
    # 7 pods do the work of 6.3, on 4 nodes of two GPUs; the pool keeps 8 today.
    one = on_nodes(Contender(HPA_ON_DEMAND), POOL, 7)
    demand = numpy.full(PER_DAY, 6.3)
    found = searched(demand, one, 0.005)
    assert Search(ReplayCase(demand, SERVICE, Promise()), one).best.paid_steps == 8 * PER_DAY
    assert found.best.paid_steps == 4 * PER_DAY
    named = one.named(found.best.values)
    assert named[MIN_NODES] <= 4
    assert (named[UNNEEDED], named[DELAY]) == (10, 10)


def test_nodes_are_kept_for_what_comes_sooner_than_a_node():
    # For five minutes of each hour three pods have work, and a node takes ten minutes.
    hour = numpy.ones(240)
    hour[100:120] = 3.0
    demand = numpy.tile(hour, 24)
    small = replace(POOL, nodes=replace(NODES, gpus=1, least=0, unneeded_s=60, delay_after_add_s=0))
    fixed = replace(
        HPA_ON_DEMAND, parameters=HPA_ON_DEMAND.fixed(target=1.0, down_window_s=0).parameters
    )
    one = on_nodes(Contender(fixed), small, 3)
    # Today each of the 20 steps is short; with three nodes, those until pods are ready: the step in which
    # work came, and one of 15 s after it.
    today = searched(demand, one.keeping([MIN_NODES, UNNEEDED, DELAY]), 0.01).best
    assert today.missed_by_day.sum() == 24 * 20
    best = searched(demand, one, 0.01)
    assert best.keeps(best.best)
    assert best.best.missed_by_day.sum() <= 24 * 2
    # The third node and the second stay from the first hour on, at the latest.
    assert 3 * (PER_DAY - 240) <= best.best.paid_steps <= 3 * PER_DAY


def test_times_are_whole_minutes_and_stay_where_a_provider_has_none():
    one = on_nodes(Contender(HPA_ON_DEMAND), POOL, 7)
    rng = numpy.random.default_rng(3)
    demand = 6 + 4 * numpy.sin(numpy.arange(PER_DAY) / 100) + rng.normal(0, 0.3, PER_DAY)
    found = searched(demand, one, 0.05)
    for outcome in found.whole:
        named = one.named(outcome.values)
        assert all(named[name] == int(named[name]) >= 1 for name in (UNNEEDED, DELAY))
    without = on_nodes(Contender(HPA_ON_DEMAND), replace(POOL, has_times=False), 7)
    named_bounds = {each.name: (each.least, each.most) for each in without.parameters}
    assert named_bounds[MIN_NODES] == (0, 8)
    assert named_bounds[UNNEEDED] == named_bounds[DELAY] == (10, 10)


def test_it_says_when_nodes_standing_still_cost_less_or_are_too_few():
    one = on_nodes(Contender(HPA_ON_DEMAND), POOL, 7)
    found = ReplayedWorkload(
        "w", numpy.full(PER_DAY, 6.3), SERVICE, Requests(1.0), Nodes(1, 2, price_per_hour=2.0), POOL
    )
    split = split_of(found, 0.33)
    today = row_on_nodes(found, split, one, one.today, Promise(), "today", "as it is")
    # Eight nodes for a day, at 2 an hour.
    assert (today.score.node_hours, today.score.cost) == pytest.approx((192, 384))
    limits = bounds_of(found, split, Promise())
    said = " ".join(node_verdicts(found, split, limits, [today] * 3))
    assert "4 nodes standing still would take 96.0 node-hours: autoscaling costs more." in said
    small = replace(found, pool=replace(POOL, nodes=replace(NODES, most=3), has_times=False))
    said = " ".join(node_verdicts(small, split, limits, [today] * 3))
    assert "Demand needs 4 nodes and there may be 3" in said
    assert "On eks it can't be set how long empty nodes stay" in said
