"""Margins for a promised wait: against arithmetic and queueing theory."""

import math

import numpy
import pytest

from gpuscale.base.promises import PromiseTerm
from gpuscale.lab.plan.promise import Promise, promised
from gpuscale.lab.plan.waiting import Requests
from gpuscale.lab.queueing.theory import erlang_c
from gpuscale.triggers.policies.hpa import HPA
from gpuscale.triggers.policies.ours.calibrated import CALIBRATED
from gpuscale.triggers.policies.ours.lateness import (
    PLACES,
    late_by_chance,
    missing_for_backlog,
    pods_for_chance,
)
from gpuscale.triggers.policies.ours.learned import FEATURES, LEARNED_SIZE, learn, predicted


@pytest.mark.parametrize(
    ("steps", "had", "wait_s", "pods"),
    [
        # 10 pods' work for 15 s are 150: 5 pods do it in the 15 s of the step and 15 s of waiting.
        (1, 4.0, 15.0, 5.0),
        (1, 8.0, 15.0, 5.0),
        # For 30 s: 300 in 45 s.
        (2, 4.0, 15.0, 300 / 45),
        # For an hour the wait makes little of a difference: 36 000 in 3630 s.
        (240, 4.0, 30.0, 36_000 / 3630),
    ],
)
def test_a_backlog_is_worked_off_within_the_wait(steps, had, wait_s, pods):
    sums = numpy.zeros(PLACES)
    for step in range(steps):
        sums[step % PLACES] = (step + 1) * (10.0 - had)
    missing = missing_for_backlog(sums, 0, steps - 1, had, wait_s, 15.0)
    assert had + missing == pytest.approx(pods)


@pytest.mark.parametrize(("pods", "demand"), [(3, 2.0), (10, 8.0), (40, 36.0)])
def test_waits_by_chance_are_those_of_theory_where_demand_stays(pods, demand):
    # Erlang's formula, and an exponential wait; the approximation of the former is good to 10 %.
    expected = erlang_c(pods, demand) * math.exp(-(pods - demand) * 0.5)
    assert late_by_chance(demand, pods, 0.5, 1.0, 1e9) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("wait_s", [1.0, 5.0, 15.0])
def test_the_fewest_pods_for_chance_are_just_enough(wait_s):
    pods = pods_for_chance(10.0, wait_s, 1.0, 600.0, 0.005)
    assert late_by_chance(10.0, pods, wait_s, 1.0, 600.0) <= 0.005
    assert late_by_chance(10.0, pods - 0.05, wait_s, 1.0, 600.0) > 0.005


def test_a_jump_is_no_time_for_a_queue_by_chance():
    assert (
        pods_for_chance(10.0, 15.0, 1.0, 15.0, 0.005)
        < 10
        < pods_for_chance(10.0, 15.0, 1.0, 1e6, 0.005)
    )


def test_nine_of_ten_outcomes_are_below_what_is_learned():
    draw = numpy.random.default_rng(1).gamma(4.0, 2.5, 20_000)
    memory = numpy.zeros(LEARNED_SIZE)
    memory[FEATURES : FEATURES + 1] = 10.0
    below = []
    for outcome in draw:
        below.append(outcome <= predicted(memory, 0, 0))
        learn(memory, 0, 0, outcome, 10.0)
    assert sum(below[5_000:]) / 15_000 == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        # 70 % of what may be missed is aimed at.
        ([PromiseTerm("short", 0.01)], (0.007, 0.0)),
        ([PromiseTerm("wait", 0.005, 5.0)], (0.0035, 5.0)),
        # The shortest wait counts; an answer within 4 s of what takes 2 s may wait for 2 s.
        ([PromiseTerm("wait", 0.005, 5.0), PromiseTerm("latency", 0.05, 4.0)], (0.035, 2.0)),
    ],
)
def test_settings_follow_the_promise(terms, expected):
    found = promised(CALIBRATED, Promise(tuple(terms)), Requests(2.0, slots=4))
    values = {each.name: each.default for each in found.parameters}
    assert (values["promise"], values["wait_s"]) == pytest.approx(expected)
    assert values["service_s"] == 0.5


def test_a_policy_that_knows_no_promise_stays_as_it_is():
    assert promised(HPA, Promise(), Requests(1.0)) is HPA
