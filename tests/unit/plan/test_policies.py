"""Policies: each against its upstream's rules, compiled against interpreted, and the promise of ours."""

import numpy
import pytest

from gpuscale.base import compiling
from gpuscale.base.errors import UsageError
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.search import best_settings, candidates
from gpuscale.triggers.policies.compiled import policy_function, replay
from gpuscale.triggers.policies.hpa import HPA, HPA_ON_DEMAND
from gpuscale.triggers.policies.others.apa import APA
from gpuscale.triggers.policies.others.keda import KEDA
from gpuscale.triggers.policies.others.kpa import KPA
from gpuscale.triggers.policies.ours.credit import CREDIT
from gpuscale.triggers.policies.ours.scheduled import SCHEDULED
from gpuscale.triggers.policies.policy import Parameter, Policy, Seen
from gpuscale.triggers.policies.registry import POLICIES
from gpuscale.triggers.policies.replaying import Replayed, ReplaySettings, run

SERVICE = ReplaySettings(start_up_s=120.0)


def seen(step: int, demand: float, ready: float, **more: float) -> Seen:
    """Return what a policy sees, of a workload that is otherwise at rest."""
    facts = {"utilization": 0.5, "queue": 0.0, "short": 0.0, "replicas": ready, "least": 1.0} | more
    return Seen(step, 15.0, 120.0, 30.0, demand=demand, ready=ready, **facts)


def interpreted(policy: Policy, demand: numpy.ndarray) -> Replayed:
    """Replay without compiling."""
    columns = [numpy.zeros(len(demand)) for _ in range(4)]
    run(policy.desired, policy.settings(), numpy.zeros(policy.memory), demand, SERVICE, *columns)
    return Replayed(SERVICE, demand, *columns)


def wave(steps: int) -> numpy.ndarray:
    """Return a demand with a rhythm, noise and bursts."""
    draw = numpy.random.default_rng(7)
    rhythm = 10 + 6 * numpy.sin(2 * numpy.pi * numpy.arange(steps) / 480)
    bursts = numpy.convolve(draw.random(steps) < 0.01, numpy.ones(8), "same") * 4
    return numpy.maximum(0, rhythm + draw.standard_normal(steps) + bursts)


@pytest.mark.parametrize("name", POLICIES)
def test_compiled_and_interpreted_agree_to_the_bit(name):
    assert compiling.numba() is not None, "numba is part of the test tools"
    policy, demand = POLICIES[name], wave(700)
    plain = interpreted(policy, demand)
    compiled = replay(
        policy_function(policy.desired), policy.settings(), policy.memory, demand, SERVICE
    )
    assert compiled.ready.tolist() == plain.ready.tolist()
    assert compiled.replicas.tolist() == plain.replicas.tolist()
    assert compiled.queue.tolist() == plain.queue.tolist()


def test_a_ready_pod_without_a_value_is_missing_and_counts_at_the_target_when_scaling_in():
    """As upstream: of a Pods metric only pending pods are unready, replica_calculator.go groupPods."""
    memory, settings = numpy.zeros(HPA.memory), HPA.settings(target=0.6, down_window_s=0)
    for step in range(2):
        assert HPA.desired(seen(step, 1, 2, utilization=0.6, replicas=4), memory, settings) == 4
    # The signal is 30 s old, of two pods that have 0.3 each; the two others count 0.6: 0.45 of 0.6 in the
    # mean, 0.75 x 4 pods.
    assert HPA.desired(seen(2, 1, 4, utilization=0.3), memory, settings) == 3


def test_knative_takes_the_mean_of_the_stable_window():
    memory = numpy.zeros(KPA.memory)
    settings = KPA.settings(target=0.5, stable_s=60)
    # 4, 4, 6 and 6 within 60 s are 5 in the mean; 5 / 0.5 = 10 pods. 6 / 0.5 / 8 is below the threshold of 2.
    for step, demand in enumerate((4, 4, 6)):
        KPA.desired(seen(step, demand, 8), memory, settings)
    assert KPA.desired(seen(3, 6, 8), memory, settings) == 10


def test_knative_panics_at_twice_the_ready_pods_and_does_not_scale_in_meanwhile():
    memory = numpy.zeros(KPA.memory)
    settings = KPA.settings(target=1.0, stable_s=60)
    for step in range(4):
        KPA.desired(seen(step, 2, 4), memory, settings)
    assert KPA.desired(seen(4, 8, 4), memory, settings) == 8  # 8 / 4 = 2
    # The load is gone; panic lasts until more than the stable window has passed since the last excess.
    assert [KPA.desired(seen(5 + at, 2, 8), memory, settings) for at in range(4)] == [8] * 4
    # Then the mean of 2 is wanted, and at most half of the ready pods go at once.
    assert KPA.desired(seen(9, 2, 8), memory, settings) == 4


def test_knative_scales_in_by_half_at_most():
    memory = numpy.zeros(KPA.memory)
    assert KPA.desired(seen(0, 1, 20), memory, KPA.settings(target=1.0)) == 10


@pytest.mark.parametrize(
    ("demand", "pods", "wanted"),
    [
        (10.5, 10, 10),  # 1.05 of the target: within the tolerance of 0.1
        (12, 10, 12),  # 1.2: ceil(10 x 1.2)
        (40, 10, 20),  # 4: at most twice as many
        (8, 10, 8),  # 0.8
        (1, 10, 5),  # 0.1: at least half
    ],
)
def test_aibrix_ratio_tolerance_and_rate(demand, pods, wanted):
    settings = APA.settings(target=1.0)
    assert APA.desired(seen(0, demand, pods), numpy.zeros(1), settings) == wanted


def replayed(
    policy: Policy, demand: numpy.ndarray, service: ReplaySettings, **settings: float
) -> Replayed:
    """Replay with settings."""
    function = policy_function(policy.desired)
    return replay(function, policy.settings(**settings), policy.memory, demand, service)


def test_keda_sleeps_after_the_cooldown_and_wakes_at_a_poll():
    demand = numpy.array([3.0] * 40 + [0.0] * 61 + [2.0] * 10)
    service = ReplaySettings(start_up_s=120.0, lag_s=0.0, least=0.0)
    found = replayed(KEDA, demand, service, target=1, down_window_s=0, polling_s=60)
    # Polls are at each minute: the last one to find load at 540 s, and of those more than 300 s later the
    # first is at 900 s, step 60. Meanwhile the HPA goes to its minimum, which is 1.
    assert found.replicas[39:61].tolist() == [3] + [1] * 20 + [0]
    # Load is back at 1515 s, and the next poll is at 1560 s, step 104. It wakes one pod; the HPA's next sync
    # asks for 2.
    assert found.replicas[60:106].tolist() == [0] * 44 + [1, 2]


def test_keda_stays_asleep_at_its_activation_value():
    service = ReplaySettings(start_up_s=120.0, lag_s=0.0, least=0.0)
    demand = numpy.array([0.0] * 20 + [1.0] * 20 + [1.1] * 20)
    found = replayed(KEDA, demand, service, polling_s=15, activation=1)
    assert found.replicas[:40].max() == 0  # as in KEDA, a value has to be above it
    assert found.replicas[40] == 1


def test_keda_is_its_hpa_where_the_minimum_is_above_zero():
    demand = wave(700)
    demand[200:400] = 0  # for 50 minutes; the cooldown is five
    ours, hpa = replayed(KEDA, demand, SERVICE), replayed(HPA_ON_DEMAND, demand, SERVICE)
    assert ours.replicas.tolist() == hpa.replicas.tolist()
    assert ours.replicas[390] == 1


def credit_wants(drain_s: float, replicas: tuple[int, ...]) -> float:
    """Return what is wanted after a minute of 12 requests a second, where ten pods finish 10."""
    memory, settings = numpy.zeros(CREDIT.memory), CREDIT.settings(target=1, drain_s=drain_s)
    wanted = 0.0
    for step, asked in enumerate(replicas):
        busy = seen(step, 12, 10, utilization=1.0, queue=30.0 * step, replicas=asked)
        wanted = CREDIT.desired(busy, memory, settings)
    return wanted


def test_credit_counts_arrivals_and_not_what_piled_up():
    # 120 wait, and without credit the HPA would go to its limit, twice as many. A pod finishes one a second:
    # 12 arrive, and 120 in 120 s are another pod; in 30 s they are four.
    assert credit_wants(120, (10, 10, 10, 10, 10)) == 13
    assert credit_wants(30, (10, 10, 10, 10, 10)) == 16


def test_credit_of_pods_that_start():
    # Three that were ordered at 45 s, and are seen from 60 s on, would have finished 45 by then: 75 in 30 s
    # are 2.5 a second more than 12.
    assert credit_wants(30, (10, 10, 10, 10, 13)) == 15
    # Ordered at 30 s they would have finished 90: 12 + 30 / 30 are the 13 that are there.
    assert credit_wants(30, (10, 10, 10, 13, 13)) == 13


def test_scheduled_has_the_pods_of_an_hour_when_it_begins_and_no_more_than_it_ever_used():
    day = numpy.repeat([4.0, 20.0], 12 * 240)
    found = replayed(SCHEDULED, numpy.tile(day, 2), ReplaySettings(start_up_s=120.0), target=0.6)
    first, second = found.ready[: len(day)], found.ready[len(day) :]
    noon = 12 * 240
    # On the first day it is an HPA: ceil(4 / 0.6) = 7 until the load is there, ceil(20 / 0.6) = 34 later.
    assert (first[noon - 1], first[noon], first[noon + 100]) == (7, 7, 34)
    # On the second the noon's 20 serve when it begins, and are the most. Its bins are up to 5 % wide, so
    # that 21 may stand for 20, and a bound is rounded up.
    assert 20 <= second[noon] <= 22
    assert second[noon + 100] == second[noon]
    assert 4 <= second[noon - 100] <= 5


def test_guarded_keeps_its_promise_on_demand_that_it_never_saw():
    """A million steps would show the limit; 60 000 of a wave with bursts are within it by a half."""
    policy = POLICIES["guarded"]
    demand = wave(60_000)
    result = replay(
        policy_function(policy.desired), policy.settings(), policy.memory, demand, SERVICE
    )
    learnt = slice(20_000, None)
    short = float((demand[learnt] > result.ready[learnt] + 1e-9).mean())
    assert 0 < short <= 0.005
    # It is worth having: a fixed number of replicas with the same promise costs more.
    static = numpy.ceil(numpy.quantile(demand[learnt], 0.995))
    assert result.replicas[learnt].mean() < static


def test_settings_are_found_on_the_days_given():
    policy = POLICIES["trend"]
    demand = wave(4_000)
    (found,) = best_settings(policy, demand, SERVICE, first_step=500, promise=Promise(), count=32)
    assert any((found == each).all() for each in candidates(policy, 32))
    for value, parameter in zip(found, policy.parameters, strict=True):
        assert parameter.least <= value <= parameter.most


def test_candidates_begin_with_the_defaults_and_fill_the_box():
    policy = POLICIES["kpa"]
    tried = numpy.array(list(candidates(policy, 256)))
    assert tried[0].tolist() == [each.default for each in policy.parameters]
    for at, parameter in enumerate(policy.parameters):
        # Each quarter of a parameter's range holds about a quarter of 255 tries.
        edges = numpy.linspace(parameter.least, parameter.most, 5)
        counts, _ = numpy.histogram(tried[1:, at], edges)
        assert counts.min() >= 55, (parameter.name, counts)


def test_a_wrong_setting_is_named():
    with pytest.raises(ValueError, match="found parameter 'targte', expected target, stable_s"):
        POLICIES["kpa"].settings(targte=1)
    with pytest.raises(ValueError, match=r"found target 7, expected 0\.2 to 1"):
        POLICIES["kpa"].settings(target=7)


def test_what_numba_refuses_is_said_with_its_reason():
    def desired(one: Seen, memory, settings) -> float:
        return float(str(one).encode("utf-16")[0])

    with pytest.raises(
        UsageError, match=r"desired is not in the part of Python that numba compiles: ."
    ):
        policy_function(desired)


def test_a_policy_of_a_few_lines():
    def desired(one: Seen, memory, settings) -> float:
        return one.demand * settings[0]

    policy = Policy("mine", "demand and headroom", desired, (Parameter("headroom", 1.5, 1, 3),))
    demand = numpy.full(50, 4.0)
    result = replay(
        policy_function(policy.desired), policy.settings(), policy.memory, demand, SERVICE
    )
    assert result.replicas[-1] == 6
