"""A policy on the series of a real Prometheus: the replay of what is there, by every server."""

import math
from pathlib import Path

import numpy
import pytest

from gpuscale.base.clock import ManualClock
from gpuscale.server.metricsapi.triggers.policies import Policies
from gpuscale.server.sources.prometheus.client import PrometheusSettings, PrometheusSource
from gpuscale.testing.prometheus import serve
from gpuscale.triggers.observation import Missing, TotalLoad
from gpuscale.triggers.policies.compiled import policy_function, replay
from gpuscale.triggers.policies.registry import POLICIES
from gpuscale.triggers.policies.replaying import ReplaySettings
from gpuscale.triggers.trigger import ServedPolicy

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(120)]

DAY_S = 86_400
BEGIN_S = 19_675 * DAY_S
"""A midnight of UTC."""
END_S = BEGIN_S + DAY_S + 6 * 3600
USE = ServedPolicy("trend", (), 10.0, 180.0, 2, 50, 30.0, DAY_S)
QUERY = "sum(in_flight) # of all pods"


def load_at(at_s: int) -> float:
    return 120 + 100 * math.sin(at_s / 7000) + (80 if at_s // 900 % 7 == 3 else 0)


def expected(now_s: int) -> int:
    """Return what a replay of the same demand has at its last step."""
    demand = numpy.array([load_at(at_s) / 10 for at_s in range(BEGIN_S, now_s + 1, 15)])
    policy, service = POLICIES[USE.name], ReplaySettings(15.0, 180.0, 30.0, least=2.0, most=50.0)
    desired = policy_function(policy.desired)
    return int(replay(desired, policy.settings(), policy.memory, demand, service).replicas[-1])


async def learned(policies: Policies) -> TotalLoad | Missing:
    found: TotalLoad | Missing = Missing("")
    for _ in range(30):
        found, _ = await policies.see(QUERY, USE)
        if isinstance(found, TotalLoad):
            break
    return found


async def test_servers_say_what_a_replay_of_the_series_has(tmp_path: Path) -> None:
    series = {"__name__": "in_flight", "pod": "vllm-0"}
    samples = [(series, at_s * 1000, load_at(at_s)) for at_s in range(BEGIN_S, END_S, 15)]
    now_s = END_S - 3600
    clock = ManualClock(now_s * 1000)
    with serve(samples, tmp_path) as prometheus:
        async with PrometheusSource(PrometheusSettings(url=prometheus.url)) as source:
            first, second = (Policies(source.query, clock) for _ in range(2))
            assert await learned(first) == TotalLoad(float(expected(now_s)), (now_s - 30) * 1000)
            for step in range(1, 20):
                clock.advance(15)
                wanted = TotalLoad(
                    float(expected(now_s + 15 * step)), (now_s - 30 + 15 * step) * 1000
                )
                assert await learned(first) == wanted
            # One that starts now knows as much.
            assert await learned(second) == wanted
            # Half an hour in which it did not ask, and it goes on as if nothing had been.
            clock.advance(1800)
            assert await learned(first) == await learned(second)
            # Past the last sample there is a reason, and no number.
            clock.advance(4 * 3600)
            found, _ = await first.see(QUERY, USE)
            assert found == Missing("the query's answer has no row")
            await first.close()
            await second.close()
