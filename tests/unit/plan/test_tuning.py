"""Tuning: what theory says is best is found, and holds on days that were not searched."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy
import pytest

from gpuscale.base.objects.hpa import Behavior
from gpuscale.base.promises import PromiseTerm
from gpuscale.lab.plan.bounds import bounds
from gpuscale.lab.plan.comparing import (
    ReplayedWorkload,
    Split,
    bounds_of,
    question_of,
    row_of,
    split_of,
    verdicts,
)
from gpuscale.lab.plan.demand import demand_column
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.score import Nodes
from gpuscale.lab.plan.tuning.contender import LEAST, Contender, Setting
from gpuscale.lab.plan.tuning.search import ReplayCase, Search
from gpuscale.lab.plan.waiting import Requests
from gpuscale.triggers.policies.behavior import behavior_settings
from gpuscale.triggers.policies.hpa import HPA, UP_TOLERANCE
from gpuscale.triggers.policies.policy import Parameter
from gpuscale.triggers.policies.replaying import ReplaySettings
from gpuscale.triggers.policies.static import STATIC

PROMISE = Promise()  # short=0.5%
PER_DAY = 5760
SERVICE = ReplaySettings(start_up_s=120.0, most=100.0)


def contender(service=SERVICE, static: int = 20) -> Contender:
    """Return the HPA with its defaults, whose minimum is searched too."""
    return Contender(
        HPA, more=(Setting(Parameter(LEAST, service.least, service.least, float(static)), "least"),)
    )


def workload(demand: numpy.ndarray, service=SERVICE) -> ReplayedWorkload:
    """Return a workload with a demand, on nodes without a price."""
    return ReplayedWorkload("w", demand, service, Requests(1.0), Nodes())


def searched(question: ReplayCase, one: Contender, tries: int = 64, each=map) -> Search:
    """Return a search at its end."""
    search = Search(question, one, each)
    for _ in search.run(tries):
        pass
    return search


def days_and_nights(days: int, seed: int) -> numpy.ndarray:
    """Return 4 to 16 pods of demand, with noise."""
    noise = numpy.random.default_rng(seed).normal(0, 0.3, days * PER_DAY)
    rhythm = 10 + 6 * numpy.sin(2 * numpy.pi * numpy.arange(days * PER_DAY) / PER_DAY)
    return rhythm + noise


def test_a_constant_demand_gets_as_many_pods_as_it_fills():
    # At 60 % the HPA holds ceil(6.3 / 0.6) = 11 pods; 7 pods are enough, at 90 % each.
    question = ReplayCase(numpy.full(3 * PER_DAY, 6.3), SERVICE, PROMISE)
    today = contender().replay(contender().today, question.demand, SERVICE)
    assert set(today.replicas[PER_DAY:]) == {11}
    search = Search(question, contender())
    for _ in search.run(64):
        pass
    assert search.best.paid_steps == 3 * PER_DAY * 7
    assert search.best.missed_by_day.sum() == 0


def test_settings_that_bring_nothing_stay_as_they_are():
    question = ReplayCase(numpy.full(3 * PER_DAY, 6.3), SERVICE, PROMISE)
    named = contender().named(searched(question, contender()).best.values)
    assert {name: named[name] for name in ("down_window_s", "tolerance", LEAST)} == {
        "down_window_s": 300,
        "tolerance": 0.1,
        LEAST: 1,
    }


def test_the_tuned_hpa_is_cheaper_than_the_default_on_held_back_days_and_keeps_the_promise():
    found = workload(days_and_nights(9, seed=5))
    split = split_of(found, 0.33)
    assert (split.searched, split.first_scored) == (6 * PER_DAY, 6 * PER_DAY)
    question = question_of(found, split, PROMISE, seed=1)
    one = contender()
    best = searched(question, one).best.values
    rows = [
        row_of(found, split, one, values, PROMISE, name, name)
        for name, values in (("today", one.today), ("tuned", best))
    ]
    today, tuned = (row.score for row in rows)
    assert tuned.short_share <= 0.005
    # 60 % of the pods' time are used today; whatever is above 80 % saves a quarter.
    assert tuned.gpu_hours < 0.8 * today.gpu_hours
    assert tuned.gpu_hours >= bounds_of(found, split, PROMISE).oracle_hours


def test_a_policy_that_can_not_keep_the_promise_is_tuned_to_break_it_least():
    demand = numpy.full(3 * PER_DAY, 30.0)
    search = searched(ReplayCase(demand, SERVICE._replace(most=10.0), PROMISE), contender())
    assert not search.keeps(search.best)
    assert search.best.missed_by_day.sum() == len(demand)


def test_a_search_is_the_same_each_time_and_on_threads():
    question = ReplayCase(days_and_nights(4, seed=2), SERVICE, PROMISE, seed=7)
    alone = searched(question, contender())
    with ThreadPoolExecutor(4) as threads:
        shared = searched(question, contender(), each=threads.map)
    assert alone.best.values.tolist() == shared.best.values.tolist()


def test_a_search_that_is_stopped_has_its_best_so_far():
    question = ReplayCase(days_and_nights(4, seed=2), SERVICE, PROMISE)
    search = Search(question, contender())
    assert search.best.values.tolist() == contender().today.tolist()
    first = search.best.paid_steps
    for _, _ in zip(search.run(64), range(4), strict=False):
        assert search.best.paid_steps <= first


def test_a_bad_day_counts_more_than_once_where_days_are_drawn():
    # One day of four is short in 1 % of its steps: 0.25 % of all. Drawn again, it is there twice or more in a
    # quarter of the draws (1 - 0.75^4 - 4 x 0.25 x 0.75^3 = 26 %), which makes 0.5 %, and three times in 5 %.
    demand = numpy.ones(4 * PER_DAY)
    demand[100 : 100 + PER_DAY // 100] = 5.0
    fixed = Contender(replace(STATIC, parameters=(Parameter("replicas", 1, 1, 1),)))
    promise = Promise((PromiseTerm("short", 0.004),))
    held = Search(ReplayCase(demand, SERVICE, promise, is_held_back=True), fixed)
    same = Search(ReplayCase(demand, SERVICE, promise, is_held_back=False), fixed)
    assert held.best.missed_by_day.sum() == same.best.missed_by_day.sum() > 0
    assert same.keeps(same.best)
    assert not held.keeps(held.best)


def test_no_target_is_tried_that_utilization_can_not_exceed_by_the_tolerance():
    own = contender()
    more = (*own.more, Setting(Parameter("up_tolerance", 0.1, 0, 0.5), UP_TOLERANCE))
    one = Contender(
        own.policy, behavior_settings(Behavior(), 0.1), more, saturating=("target", "up_tolerance")
    )
    found = searched(ReplayCase(numpy.full(PER_DAY, 6.3), SERVICE, PROMISE), one)
    assert len(found.whole) > 20
    for outcome in found.whole:
        named = one.named(outcome.values)
        assert named["target"] * (1 + named["up_tolerance"]) < 1
    # 6.3 pods of work on 7 pods are 0.9 of each, which is 1 % below 1 / 1.1.
    assert found.best.paid_steps == PER_DAY * 7


def test_two_days_are_needed_to_hold_one_back():
    short = split_of(workload(numpy.ones(2 * PER_DAY - 1)), 0.33)
    assert (short.searched, short.first_scored, short.is_held_back) == (2 * PER_DAY - 1, 0, False)
    enough = split_of(workload(numpy.ones(2 * PER_DAY)), 0.9)
    assert (enough.searched, enough.is_held_back) == (PER_DAY, True)


def test_it_says_when_autoscaling_costs_more_than_standing_still():
    found = workload(numpy.full(3 * PER_DAY, 6.3))
    split = split_of(found, 0.33)
    one = contender()
    today = row_of(found, split, one, one.today, PROMISE, "today", "as it is")
    said = " ".join(
        verdicts(found, split, bounds_of(found, split, PROMISE), today, today, [], PROMISE)
    )
    # 11 pods against 7, for a day.
    assert "costs more than 7 pods standing still: 264.0 GPU-hours against 168.0" in said


def test_it_says_when_there_may_not_be_enough_pods():
    found = workload(numpy.full(PER_DAY, 6.3), SERVICE._replace(most=5.0))
    split = split_of(found, 0.33)
    one = contender()
    today = row_of(found, split, one, one.today, PROMISE, "today", "as it is")
    limits = bounds(found.demand, found.service, PROMISE)
    said = " ".join(verdicts(found, split, limits, today, today, [], PROMISE))
    assert "Demand needs 7 pods and there may be 5" in said
    assert "too short to hold days back" in said


def test_a_demand_column_has_all_requests():
    # 2 requests a second, 0.5 s each: one pod is busy; the last step is a third of one.
    column = demand_column(lambda t: 2.0 * t, 50.0, 0.5, 15.0)
    assert column.tolist() == pytest.approx([1, 1, 1, 1 / 3])


@pytest.mark.parametrize("duration_s", [0, -1, 366.1 * 86_400])
def test_a_demand_of_no_length_or_too_much_is_refused(duration_s):
    with pytest.raises(ValueError, match="at most 366"):
        demand_column(lambda t: t, duration_s, 1.0, 15.0)


def test_the_chance_of_a_promise_is_that_of_days_drawn_anew():
    # Of four days, the last two are scored. On one of them 1 % of the steps is short, on the other none;
    # 0.6 % may be. Two days drawn of these are twice the bad one in a quarter of the draws, which breaks it.
    per_day = 5760
    demand = numpy.full(4 * per_day, 2.0)
    demand[3 * per_day : 3 * per_day + 57] = 5.0
    service = ReplaySettings(start_up_s=15.0, least=3.0, most=3.0)
    workload = ReplayedWorkload("w", demand, service, Requests(1.0), Nodes())
    fixed = Contender(replace(STATIC, parameters=(Parameter("replicas", 3.0, 3.0, 3.0),)))
    promise = Promise((PromiseTerm("short", 0.006),))
    split = Split(2 * per_day, 2 * per_day)
    row = row_of(workload, split, fixed, fixed.today, promise, "w", "")
    assert row.chance == pytest.approx(0.75, abs=0.1)
    always = Promise((PromiseTerm("short", 0.01),))
    assert row_of(workload, split, fixed, fixed.today, always, "w", "").chance == 1
    one_day = Split(3 * per_day, 3 * per_day)
    assert row_of(workload, one_day, fixed, fixed.today, promise, "w", "").chance is None
