"""Services tuned together on shared nodes: what arithmetic says that packing and warm nodes save."""

from dataclasses import replace

import numpy
import pytest

from gpuscale.base.promises import PromiseTerm
from gpuscale.lab.plan.comparing import ReplayedWorkload
from gpuscale.lab.plan.fleet.fleet import FleetPool, FleetService
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.score import Nodes
from gpuscale.lab.plan.together import (
    FleetMember,
    FleetSearch,
    SharedFleet,
    SharedPool,
    ladder_of,
)
from gpuscale.lab.plan.tuning.contender import Contender
from gpuscale.lab.plan.tuning.search import ReplayCase, Search
from gpuscale.lab.plan.waiting import Requests
from gpuscale.triggers.policies import HPA_ON_DEMAND, STATIC, Numbers, Parameter, ReplaySettings

PER_DAY = 5760
SERVICE = ReplaySettings(start_up_s=15.0, lag_s=0.0, most=40.0)
SHORT = Promise((PromiseTerm("short", 0.01),))
POOL = FleetPool("gpu", gpus=8, most=20, coming_s=600, unneeded_s=60)


def standing(name: str, demand: Numbers, pods: list[int], begin: int, gpus: int = 1) -> FleetMember:
    """Return a service with a fixed number of pods, of which a ladder has several."""
    workload = ReplayedWorkload(name, demand, SERVICE, Requests(1.0), Nodes())
    most = Parameter("replicas", pods[begin], 0.0, 40.0)
    place = FleetService(
        *(name, "gpu", STATIC, STATIC.settings(), 40),
        first=pods[-1],
        gpus=gpus,
        start_up_s=15.0,
    )
    contender = Contender(replace(STATIC, parameters=(most,)))
    ladder = tuple(numpy.array([float(each)]) for each in pods)
    return FleetMember(workload, contender, place, ladder, begin, is_tuned=len(pods) > 1)


def fleet_of(members: list[FleetMember], pool: SharedPool) -> SharedFleet:
    """Return services on one pool."""
    return SharedFleet(tuple(members), (pool,), SHORT, has_times=True)


def searched(fleet: SharedFleet) -> FleetSearch:
    """Return a search at its end."""
    search = FleetSearch(fleet, PER_DAY, 1, map, is_held_back=False)
    for _ in search.run():
        pass
    return search


def test_each_service_goes_down_as_far_as_it_keeps_its_promise():
    # 3 and 5 pods' work needs 3 and 5 pods, on one node of 8: 24 node-hours for the day.
    fleet = fleet_of(
        [
            standing("a", numpy.full(PER_DAY, 3.0), [9, 6, 4, 3, 2, 1], 0),
            standing("b", numpy.full(PER_DAY, 5.0), [10, 8, 5, 4], 0),
        ],
        SharedPool(POOL, price_per_hour=2.0),
    )
    best = searched(fleet).best
    assert [float(each[0]) for each in fleet.settings(best.values)] == [3, 5]
    assert best.paid_steps == pytest.approx(24 * 2.0)


def test_nodes_that_are_reserved_cost_nothing_and_are_kept_warm():
    fleet = fleet_of(
        [standing("a", numpy.full(PER_DAY, 11.0), [12, 11, 10], 0)],
        SharedPool(POOL, price_per_hour=3.0, reserved=1),
    )
    # 11 pods are on two nodes, of which one is paid for.
    assert searched(fleet).best.paid_steps == pytest.approx(24 * 3.0)


def test_without_prices_gpu_hours_of_nodes_are_counted():
    fleet = fleet_of([standing("a", numpy.full(PER_DAY, 2.0), [2, 1], 0)], SharedPool(POOL))
    assert searched(fleet).best.paid_steps == pytest.approx(24 * 8)


def test_pods_of_four_gpus_and_of_one_share_nodes():
    # Three pods of 4 GPUs leave half a node, in which four of one GPU find room.
    fleet = fleet_of(
        [
            standing("large", numpy.full(PER_DAY, 3.0), [3], 0, gpus=4),
            standing("small", numpy.full(PER_DAY, 4.0), [5, 4], 0),
        ],
        SharedPool(POOL, price_per_hour=1.0),
    )
    best = searched(fleet).best
    assert best.paid_steps == pytest.approx(24 * 2)
    assert [float(each[0]) for each in fleet.settings(best.values)] == [3, 4]


def test_a_node_is_kept_where_a_new_one_comes_too_late_for_the_promise():
    # For five minutes of each hour there is work for 12 pods, and a node takes ten minutes.
    hour = numpy.full(240, 4.0)
    hour[100:120] = 12.0
    demand = numpy.tile(hour, 24)
    parameters = HPA_ON_DEMAND.fixed(target=1.0, down_window_s=0).parameters
    contender = Contender(replace(HPA_ON_DEMAND, parameters=parameters))
    workload = ReplayedWorkload("a", demand, SERVICE, Requests(1.0), Nodes())
    place = FleetService("a", "gpu", HPA_ON_DEMAND, numpy.empty(0), 40, start_up_s=15.0)
    member = FleetMember(workload, contender, place, (contender.today,))
    fleet = fleet_of([member], SharedPool(POOL, price_per_hour=1.0))
    search = FleetSearch(fleet, PER_DAY, 1, map, is_held_back=False)
    assert search.best.missed_by_day.sum() == 24 * 20
    for _ in search.run():
        pass
    # The step in which work comes is short, and the one of 15 s in which pods start.
    assert search.best.missed_by_day.sum() <= 24 * 2 + 40
    assert 2 * 23 <= search.best.paid_steps <= 2 * 24


def test_what_stays_as_it_is_is_packed_but_keeps_no_promise():
    fleet = fleet_of(
        [
            standing("short", numpy.full(PER_DAY, 30.0), [4], 0),
            standing("a", numpy.full(PER_DAY, 4.0), [6, 5, 4, 3], 0),
        ],
        SharedPool(POOL, price_per_hour=1.0),
    )
    best = searched(fleet).best
    assert best.paid_steps == pytest.approx(24)
    assert float(fleet.settings(best.values)[1][0]) == 4


def test_kept_settings_of_pools_stay():
    fleet = fleet_of(
        [standing("a", numpy.full(PER_DAY, 2.0), [9, 2], 0)],
        SharedPool(replace(POOL, least=3), price_per_hour=1.0),
    )
    assert searched(fleet).best.paid_steps == pytest.approx(24)
    kept = replace(fleet, kept=("min_nodes",))
    assert searched(kept).best.paid_steps == pytest.approx(72)


def test_a_ladder_goes_from_strict_to_loose_and_has_what_was_tuned_alone():
    demand = 6 + 4 * numpy.sin(numpy.arange(PER_DAY) / 100)
    contender = Contender(HPA_ON_DEMAND)
    search = Search(ReplayCase(demand, SERVICE, SHORT, is_held_back=False), contender)
    for _ in search.run(32):
        pass
    ladder, begin = ladder_of(search, search.best.values, [contender.today])
    assert (ladder[begin] == search.best.values).all()
    assert contender.today.tobytes() in {each.tobytes() for each in ladder}
    used = [search.used(search.tried(each)) for each in ladder]
    assert used == sorted(used)
    assert len({each.tobytes() for each in ladder}) == len(ladder)
