"""The HPA on requests in flight and on those that wait: by upstream's rule, and against one another."""

import numpy
import pytest

from gpuscale.triggers.policies.compiled import policy_function, replay
from gpuscale.triggers.policies.hpa import HPA_ON_DEMAND
from gpuscale.triggers.policies.policy import Policy, Seen
from gpuscale.triggers.policies.replaying import ReplaySettings, run
from gpuscale.triggers.policies.requests import HPA_IN_FLIGHT, HPA_ON_WAITING, OF_REQUESTS

SERVICE = ReplaySettings(start_up_s=120.0)


def seen(step: int, ready: float, utilization: float, queue: float) -> Seen:
    return Seen(step, 15.0, 120.0, 30.0, 0.0, utilization, queue, 0.0, ready, ready, 1.0)


def wanted(policy: Policy, target: float, request_s: float, look: Seen) -> float:
    """Return what it wants at its first look, from pods that have stood for long."""
    settings = numpy.array([target, 0.0, 0.1, request_s])
    return policy.desired(look, numpy.zeros(policy.memory), settings)


@pytest.mark.parametrize(
    ("ready", "utilization", "queue", "expected"),
    [
        # 4 pods at 75 % run as many requests as 3 full ones: 3 / 0.5.
        (4, 0.75, 0.0, 6),
        # 20 s of work waits: 2 requests of 10 s each; (4 + 2) / 0.5, and at most twice 4 at once.
        (4, 1.0, 20.0, 8),
        # 10 % of 4 pods are 0.4 / 0.5.
        (4, 0.1, 0.0, 1),
        (0, float("nan"), 0.0, 0),
    ],
)
def test_in_flight_is_what_runs_and_what_waits(ready, utilization, queue, expected) -> None:
    assert wanted(HPA_IN_FLIGHT, 0.5, 10.0, seen(0, ready, utilization, queue)) == expected


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        # 40 s of work are 4 requests of 10 s; 4 / 1 is within a tenth of the 4 pods' target.
        (40.0, 4),
        (60.0, 6),
        # Nothing waits, and so none is needed: down to one at once, without a window.
        (0.0, 1),
    ],
)
def test_waiting_is_what_waits_alone(queue, expected) -> None:
    assert wanted(HPA_ON_WAITING, 1.0, 10.0, seen(0, 4, 1.0, queue)) == expected


def wave() -> numpy.ndarray:
    draw = numpy.random.default_rng(3)
    rhythm = 10 + 6 * numpy.sin(2 * numpy.pi * numpy.arange(960) / 480)
    return numpy.maximum(0, rhythm + draw.standard_normal(960))


@pytest.mark.parametrize("name", OF_REQUESTS)
def test_compiled_and_interpreted_agree_to_the_bit(name: str) -> None:
    policy, demand = OF_REQUESTS[name], wave()
    settings = numpy.append(policy.settings(), 2.0)
    columns = [numpy.zeros(len(demand)) for _ in range(4)]
    run(policy.desired, settings, numpy.zeros(policy.memory), demand, SERVICE, *columns)
    compiled = replay(policy_function(policy.desired), settings, policy.memory, demand, SERVICE)
    assert compiled.replicas.tolist() == columns[1].tolist()


def test_where_nothing_waits_in_flight_is_demand() -> None:
    # A target of 0.3 leaves pods idle, so that nothing ever waits, and all that comes is in flight.
    demand = wave()
    on_demand = replay(
        policy_function(HPA_ON_DEMAND.desired),
        HPA_ON_DEMAND.settings(target=0.3),
        HPA_ON_DEMAND.memory,
        demand,
        SERVICE,
    )
    in_flight = replay(
        policy_function(HPA_IN_FLIGHT.desired),
        numpy.append(HPA_IN_FLIGHT.settings(target=0.3), 2.0),
        HPA_IN_FLIGHT.memory,
        demand,
        SERVICE,
    )
    assert on_demand.queue.max() == 0
    # Work done is demand to the last bit or nearly; a ceil may fall on either side of a whole number.
    assert abs(on_demand.replicas - in_flight.replicas).max() <= 1
