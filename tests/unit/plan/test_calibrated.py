"""The policy that calibrates its margins: margins by counting, the promise on demand that it never saw."""

import numpy
import pytest

from gpuscale.base.promises import PromiseTerm
from gpuscale.lab.plan.bounds import bounds
from gpuscale.lab.plan.promise import Promise, promised
from gpuscale.lab.plan.waiting import Requests
from gpuscale.lab.plan.windows import lowest_behind, mean_behind
from gpuscale.triggers.policies.compiled import policy_function, replay
from gpuscale.triggers.policies.hpa import HPA_ON_DEMAND
from gpuscale.triggers.policies.ours.calibrated import CALIBRATED
from gpuscale.triggers.policies.ours.shortfalls import (
    BINS,
    count_shortfall,
    forget_shortfalls,
    least_margin,
)
from gpuscale.triggers.policies.replaying import Replayed, ReplaySettings

SERVICE = ReplaySettings(start_up_s=120.0)
DESIRED = policy_function(CALIBRATED.desired)


def replayed(demand: numpy.ndarray, **settings: float) -> Replayed:
    """Replay a demand under the policy."""
    values = CALIBRATED.settings(**settings)
    return replay(DESIRED, values, CALIBRATED.memory, demand, SERVICE)


def short_share(result: Replayed, first_step: int) -> float:
    """Return the share of steps that were short."""
    return float((result.demand[first_step:] > result.ready[first_step:] + 1e-9).mean())


def bursts(steps: int, seed: int, height: float = 4.0) -> numpy.ndarray:
    """Return a rhythm with noise and bursts."""
    draw = numpy.random.default_rng(seed)
    rhythm = 10 + 6 * numpy.sin(2 * numpy.pi * numpy.arange(steps) / 480)
    peaks = numpy.convolve(draw.random(steps) < 0.01, numpy.ones(8), "same") * height
    return numpy.maximum(0, rhythm + draw.standard_normal(steps) + peaks)


@pytest.mark.parametrize("scale", [0.5, 5.0, 500.0])
@pytest.mark.parametrize("allowed", [0, 10, 100])
def test_the_margin_leaves_no_more_short_steps_than_allowed(scale, allowed):
    found = numpy.random.default_rng(3).standard_normal(2_000) * scale
    memory = numpy.zeros(BINS)
    for each in found:
        count_shortfall(memory, 0, each, 1.0)
    margin = least_margin(memory, 0, allowed + 0.001)
    exact = numpy.sort(found)[-1 - allowed]
    # Bins grow by 5 % of 0.1 pods and the value.
    assert exact <= margin <= exact + 0.05 * (abs(exact) + 0.1) + 1e-9
    assert (found > margin).sum() <= allowed


def test_capacity_that_was_always_too_high_gives_a_margin_below_zero():
    memory = numpy.zeros(BINS)
    count_shortfall(memory, 0, -1.0, 1.0)
    assert -1.0 <= least_margin(memory, 0, 0.001) <= -1.0 + 0.05 * 1.1


def test_what_is_forgotten_weighs_less():
    memory = numpy.zeros(BINS)
    for each in (1.0, 5.0, 5.0):
        count_shortfall(memory, 0, each, 1.0)
    assert least_margin(memory, 0, 1.5) >= 5.0  # two steps above 1 are too many
    forget_shortfalls(memory, 0, 0.5)
    assert 1.0 <= least_margin(memory, 0, 1.2) <= 1.06  # now they count as one


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_keeps_its_promise_on_demand_that_it_never_saw(seed):
    demand = bursts(60_000, seed)
    result = replayed(demand)
    assert 0 < short_share(result, 20_000) <= 0.005
    limits = bounds(demand[20_000:], SERVICE, Promise())
    assert result.replicas[20_000:].sum() * 15 / 3600 < limits.static_hours


def test_it_is_still_where_demand_is_noise():
    demand = 10 + numpy.random.default_rng(5).standard_normal(30_000)
    result = replayed(demand)
    # Noise is above 12 in 2.28 % of the steps, above 13 in 0.13 %: 0.5 % allow 12 pods for a sixth of the
    # time at the most, 12.83 in the mean.
    assert 12.83 <= result.replicas[10_000:].mean() <= 14
    hpa = replay(
        policy_function(HPA_ON_DEMAND.desired),
        HPA_ON_DEMAND.settings(),
        HPA_ON_DEMAND.memory,
        demand,
        SERVICE,
    )
    ours, theirs = (int((numpy.diff(each.replicas[10_000:]) != 0).sum()) for each in (result, hpa))
    assert ours <= 0.2 * theirs


def test_bursts_that_grow_are_met_with_more():
    """At the change it is short; its own short steps and the shortfalls bring it back to the promise."""
    demand = numpy.concatenate([bursts(30_000, 4), bursts(40_000, 5, height=8.0)])
    result = replayed(demand)
    assert short_share(result, 45_000) <= 0.005
    assert result.replicas[45_000:].mean() > result.replicas[10_000:30_000].mean()


def test_changes_that_cost_more_are_fewer():
    demand = bursts(30_000, 6)
    often, seldom = (
        (numpy.diff(replayed(demand, change_cost_s=cost).replicas[10_000:]) != 0).sum()
        for cost in (0, 1800)
    )
    assert often > seldom


def test_the_first_hours_have_room_for_a_burst():
    # Half a start-up, 4 steps, is set aside of 0.35 % of the steps: 1143 steps allow none at all.
    demand = numpy.full(1_100, 5.0)
    demand[500:508] = 9.0
    result = replayed(demand)
    assert (result.ready[560:] >= 9).all()


def test_a_search_leaves_it_alone():
    assert CALIBRATED.learns
    fixed = CALIBRATED.fixed(change_cost_s=7200)
    assert [(each.least, each.most) for each in fixed.parameters] == [
        (each.default, each.default) for each in fixed.parameters
    ]
    assert fixed.settings().tolist() == CALIBRATED.settings(change_cost_s=7200).tolist()


def test_means_of_a_window():
    column = numpy.array([4.0, 2.0, 6.0, 0.0])
    assert mean_behind(column, 2).tolist() == [4, 3, 4, 3]
    assert mean_behind(column, 9).tolist() == [4, 3, 4, 3]
    assert mean_behind(column, 1).tolist() == column.tolist()


def test_the_best_simple_rule_is_no_dearer_than_a_mean_with_the_margin_that_keeps_the_promise():
    draw = numpy.random.default_rng(8)
    demand = numpy.repeat([6.0, 18.0, 10.0, 24.0], 400) * (0.7 + 0.6 * draw.random(1_600))
    base = mean_behind(demand, 20)
    for margin in numpy.arange(0.0, 30.0, 0.5):
        wanted = numpy.maximum(1, numpy.ceil(base + margin))
        if (demand > lowest_behind(wanted, 8)).mean() <= 0.005:
            break
    # Margins are searched to 1/4096 of the highest demand here, to half a pod in the test.
    assert bounds(demand, SERVICE, Promise()).simple_rule_hours <= wanted.sum() * 15 / 3600


@pytest.mark.parametrize("wait_s", [1.0, 15.0, 30.0])
def test_a_promised_wait_is_kept_on_demand_that_it_never_saw(wait_s):
    promise = Promise((PromiseTerm("wait", 0.005, wait_s),))
    requests = Requests(1.0)
    demand = bursts(60_000, 2)
    settings = promised(CALIBRATED, promise, requests).settings()
    found = replay(DESIRED, settings, CALIBRATED.memory, demand, SERVICE)
    assert promise.missed_shares(found, requests, 20_000)[0] <= 0.005


def test_a_queue_that_would_stay_for_ever_is_worked_off():
    # Ten steps of more than there is, then for hours just what there is.
    demand = numpy.concatenate(
        [numpy.full(4_000, 6.0), numpy.full(10, 9.0), numpy.full(2_000, 6.0)]
    )
    settings = CALIBRATED.settings(wait_s=30.0)
    found = replay(DESIRED, settings, CALIBRATED.memory, demand, SERVICE)
    assert (found.queue[4_200:] == 0).all()
