"""What a search comes to: a promise that was broken on other days is no answer, and values are round."""

import numpy
import pytest

from gpuscale.lab.plan.choosing import SearchChoice, choose
from gpuscale.lab.plan.comparing import (
    ReplayedWorkload,
    ScoredPolicy,
    question_of,
    row_of,
    split_of,
)
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.score import Nodes
from gpuscale.lab.plan.tuning.contender import LEAST, Contender, Setting
from gpuscale.lab.plan.tuning.search import Search
from gpuscale.lab.plan.waiting import Requests
from gpuscale.triggers.policies.hpa import HPA
from gpuscale.triggers.policies.policy import Parameter
from gpuscale.triggers.policies.replaying import ReplaySettings

PROMISE = Promise()  # short=0.5%
PER_DAY = 5760
SERVICE = ReplaySettings(start_up_s=120.0, most=100.0)
HPA_TODAY = Contender(HPA, more=(Setting(Parameter(LEAST, 1.0, 1.0, 20.0), "least"),))


def days(count: int, noise: float, later: float, seed: int) -> numpy.ndarray:
    """Return days of 4 to 16 pods of demand; on the last third noise is so many times as strong."""
    steps = count * PER_DAY
    spread = numpy.where(numpy.arange(steps) < steps * 2 // 3, noise, noise * later)
    rhythm = 10 + 6 * numpy.sin(2 * numpy.pi * numpy.arange(steps) / PER_DAY)
    found = numpy.random.default_rng(seed).normal(0, 1, steps) * spread + rhythm
    return numpy.maximum(found, 0.1)


def chosen(
    demand: numpy.ndarray, service=SERVICE, unit: float = 1.0
) -> tuple[SearchChoice, ScoredPolicy]:
    """Return what a search comes to, and today's row."""
    workload = ReplayedWorkload("w", demand, service, Requests(1.0), Nodes())
    split = split_of(workload, 0.33)

    def scored(values: numpy.ndarray) -> ScoredPolicy:
        return row_of(workload, split, HPA_TODAY, values, PROMISE, "tuned", "tuned")

    search = Search(question_of(workload, split, PROMISE, seed=1), HPA_TODAY)
    for _ in search.run(32):
        pass
    today = scored(HPA_TODAY.today)
    units = {"target": unit}
    found = choose(
        search, HPA_TODAY, PROMISE, today, scored, lambda row: row.score.gpu_hours, units
    )
    return found, today


@pytest.mark.parametrize(("noise", "later"), [(0.3, 1.0), (0.3, 3.0), (1.0, 1.5)])
def test_what_is_taken_keeps_the_promise_and_no_looser_one_costs_more(noise, later):
    found, today = chosen(days(3, noise, later, seed=1))
    hours = [each.row.score.gpu_hours for each in found.offers]
    assert hours == sorted(hours, reverse=True)
    if found.is_gain:
        assert found.taken.row.score.short_share <= 0.005
        assert (
            today.score.short_share > 0.005
            or found.taken.row.score.gpu_hours < today.score.gpu_hours
        )
    else:
        assert "Nothing to gain" in found.said


def test_a_stricter_answer_that_held_is_taken_where_the_cheapest_broke_its_promise():
    # Noise that is twice as strong later uses up a reserve that was just enough before.
    found, _ = chosen(days(6, 0.3, 2.0, seed=1))
    asked = next(each for each in found.offers if each.share == 1)
    assert asked.row.score.short_share > 0.005
    assert found.is_gain
    assert found.taken.share < 1
    assert f"the settings for short={0.5 * found.taken.share:g}%:" in found.said


def test_nothing_is_gained_where_no_answer_held():
    demand = days(3, 0.3, 1.0, seed=1)
    demand[2 * PER_DAY :] *= 1.5
    # 17 pods were enough, and 24 are not allowed: what is short is short at any setting.
    found, _ = chosen(demand, SERVICE._replace(most=17.0))
    assert not found.is_gain
    assert "the searched days were not like these. Nothing to gain" in found.said
    assert found.taken.row.score.short_share > 0.005


def test_nothing_is_gained_where_today_is_the_cheapest():
    # One pod is the least there may be, and one is enough.
    found, today = chosen(numpy.full(3 * PER_DAY, 0.3))
    assert not found.is_gain
    assert found.taken.row.score.gpu_hours == today.score.gpu_hours == 24
    assert "what is set today keeps the promise" in found.said


@pytest.mark.parametrize("unit", [1.0, 32.0])
def test_values_are_as_round_as_half_a_percent_allows(unit):
    # 6.3 pods of work need 7, and a wide range of targets holds 7; what is written needs no more than two
    # digits in the metric's own unit.
    found, _ = chosen(numpy.full(3 * PER_DAY, 6.3), unit=unit)
    settings = found.taken.row.settings
    written = settings["target"] * unit
    assert found.taken.row.score.gpu_hours == 24 * 7
    assert float(f"{written:.2g}") == pytest.approx(written)
    assert settings["down_window_s"] == 300
