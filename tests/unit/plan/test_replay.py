"""A workload under a policy: late pods, waiting work, lagging signals, and the bounds beside it."""

import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.promises import PromiseTerm
from gpuscale.lab.plan.bounds import bounds
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.score import Nodes, node_count, score
from gpuscale.lab.plan.windows import highest_ahead, highest_behind, lowest_behind
from gpuscale.triggers.policies.policy import Seen
from gpuscale.triggers.policies.replaying import Replayed, ReplaySettings, run

SERVICE = ReplaySettings(step_s=15.0, start_up_s=45.0, lag_s=30.0, patience_s=60.0)


def replayed(desired, demand, service=SERVICE, memory=64) -> Replayed:
    """Replay without compiling."""
    columns = [numpy.zeros(len(demand)) for _ in range(4)]
    demand = numpy.array(demand, dtype=float)
    run(desired, numpy.zeros(1), numpy.zeros(memory), demand, service, *columns)
    return Replayed(service, demand, *columns)


def wanting(*steps: float):
    """Return a policy that wants these replicas, step by step, then the last for ever."""

    def desired(seen: Seen, memory, settings) -> float:
        return steps[min(seen.step, len(steps) - 1)]

    return desired


def test_a_pod_serves_after_its_start_up_time_and_is_paid_for_from_its_order():
    result = replayed(wanting(1, 3), [1.0] * 8)
    # Ordered at the end of step 1, 45 s are three steps of 15: it serves from step 4.
    assert result.replicas.tolist() == [1, 3, 3, 3, 3, 3, 3, 3]
    assert result.ready.tolist() == [1, 1, 1, 1, 3, 3, 3, 3]


def test_pods_that_still_start_go_first():
    result = replayed(wanting(2, 4, 3), [2.0] * 8)
    # Two are ordered, one of them is taken back a step later; both ready pods stay.
    assert result.ready.tolist() == [2, 2, 2, 2, 3, 3, 3, 3]


def test_a_fraction_is_rounded_up_and_nan_keeps_what_is_there():
    assert replayed(wanting(1.2), [1.0] * 2).replicas.tolist() == [2, 2]
    assert replayed(wanting(math.nan), [3.0] * 3).replicas.tolist() == [3, 3, 3]


def test_bounds_on_replicas_hold():
    service = SERVICE._replace(least=2.0, most=5.0)
    assert replayed(wanting(0, 9), [1.0] * 3, service).replicas.tolist() == [2, 5, 5]


def test_a_policy_sees_signals_late_and_pods_at_once():
    seen: list[Seen] = []

    def desired(one: Seen, memory, settings) -> float:
        seen.append(one)
        return 2.0

    replayed(desired, [1.0, 2.0, 3.0, 4.0, 5.0])
    # 30 s of lag are two steps.
    assert [one.demand for one in seen] == [1, 1, 1, 2, 3]
    assert [one.replicas for one in seen] == [1, 2, 2, 2, 2]
    # Of step 1, one pod of demand 2 on one ready pod: busy all the time, and short.
    assert (seen[3].utilization, seen[3].short) == (1.0, 1.0)


def test_work_that_waits_longer_than_clients_do_is_given_up():
    result = replayed(wanting(1), [1.0, 3.0, 3.0, 3.0, 3.0])
    # 30 s of work a step come more than one pod does; 60 s of it may wait.
    assert result.queue.tolist() == [0, 30, 60, 60, 60]
    assert result.given_up.tolist() == [0, 0, 0, 30, 30]


@given(
    demand=st.lists(st.floats(0, 50), min_size=1, max_size=60),
    wanted=st.lists(st.floats(0, 40), min_size=1, max_size=60),
)
def test_work_is_conserved(demand, wanted):
    result = replayed(wanting(*wanted), demand, SERVICE._replace(least=0.0))
    came = sum(demand) * SERVICE.step_s
    lost = float(result.given_up.sum())
    assert 0 <= result.queue[-1] + lost <= came + 1e-6
    done = came - lost - result.queue[-1]
    assert done <= result.ready.sum() * SERVICE.step_s + 1e-6
    assert (result.ready <= numpy.maximum(result.replicas, result.ready)).all()


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40), st.integers(0, 50))
def test_windows_agree_with_their_definition(values, steps):
    column = numpy.array(values)
    behind = [max(values[max(0, at - steps) : at + 1]) for at in range(len(values))]
    ahead = [max(values[at : at + steps + 1]) for at in range(len(values))]
    lowest = [min(values[max(0, at - steps) : at + 1]) for at in range(len(values))]
    assert highest_behind(column, steps).tolist() == behind
    assert highest_ahead(column, steps).tolist() == ahead
    assert lowest_behind(column, steps).tolist() == lowest


def test_bounds_of_a_square_wave():
    # 10 of 40 steps need 4 pods, the others 1; start-up is 3 steps. No step may be short.
    demand = numpy.array(([1.0] * 15 + [4.0] * 5) * 2)
    found = bounds(demand, SERVICE, Promise((PromiseTerm("short", 0.0),)))
    hours = 15 / 3600
    assert found.static_replicas == 4
    assert found.static_hours == pytest.approx(160 * hours)
    # The oracle starts three pods three steps ahead of each of the two peaks: 2 x 8 steps of 4.
    assert found.oracle_hours == pytest.approx((16 * 4 + 24 * 1) * hours)
    # What does not know of the first peak ahead can only stand at 4 until then.
    assert found.oracle_hours < found.simple_rule_hours <= found.static_hours
    assert found.share(found.static_hours) == 0.0
    assert found.share(found.oracle_hours) == 1.0


def test_a_demand_without_a_saving_has_no_share():
    assert bounds(numpy.full(50, 2.0), SERVICE, Promise()).share(1.0) is None


def test_the_figures_of_a_replay():
    result = replayed(wanting(1, 3), [0.5, 0.5, 2.0, 2.0, 2.0, 2.0])
    nodes = Nodes(gpus_per_replica=2, gpus_per_node=4, unneeded_s=15, price_per_hour=8.0)
    found = score(result, 0, nodes, Promise())
    assert found.gpu_hours == pytest.approx((1 + 5 * 3) * 2 * 15 / 3600)
    assert found.short_share == pytest.approx(2 / 6)  # steps 2 and 3
    assert found.events == 1
    # Two replicas fit a node: 1 node for the first step, 2 from the second on.
    assert found.node_hours == pytest.approx((1 + 5 * 2) * 15 / 3600)
    assert found.cost == pytest.approx(found.node_hours * 8)
    # In steps 0 and 1, with a ninth of all work, one pod is half busy: half of them wait, 2 s in the mean,
    # exp(-1/2) of those longer than a second. After that work waits: 15 s of it at the end of step 2 take one
    # pod 15 s, 30 s at the end of step 3 take three pods 10 s, then it is 5 s and 0 s.
    late = 14 / 15 + 1 + 1 + 4 / 5
    assert found.within_share == pytest.approx(1 - 2 / 9 * late - 1 / 9 * math.exp(-1 / 2) / 2)
    # Longer than 15 s less x wait x / 15 of step 2 and x / 5 of step 3: together 1 % of all.
    assert found.wait_p99_s == pytest.approx(15 - 0.01 * 9 / 2 / (1 / 15 + 1 / 5), abs=0.01)


def test_nodes_stay_for_a_while():
    replicas = numpy.array([9.0, 9, 1, 1, 1, 1])
    assert node_count(replicas, Nodes(unneeded_s=30), 15.0).tolist() == [2, 2, 2, 2, 1, 1]


def test_no_price_is_no_cost():
    assert score(replayed(wanting(1), [1.0] * 3), 0, Nodes(), Promise()).cost is None
