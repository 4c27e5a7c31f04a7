"""Policies beside a server: learned in the background, bounded, and never a number that is not known."""

import asyncio

import pytest

from background import until
from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import UnavailableError
from gpuscale.series.values import Matrix, MatrixSeries
from gpuscale.server.metricsapi.triggers import policies as module
from gpuscale.server.metricsapi.triggers.policies import Policies
from gpuscale.triggers.observation import Missing, TotalLoad
from gpuscale.triggers.policies.policy import Policy
from gpuscale.triggers.policies.registry import POLICIES
from gpuscale.triggers.policies.served import STEP_MS, run_bytes
from gpuscale.triggers.trigger import ServedPolicy

NOON = 20_000 * 86_400_000 + 43_200_000
USE = ServedPolicy("seasonal", (("headroom", 1.0), ("spare", 0.0)), 10.0, 60.0, 2, 50, 0.0)


class Source:
    """A Prometheus with one series; the load is what tests set."""

    def __init__(self):
        self.load, self.fault, self.rows = 70.0, None, 1
        self.asked = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self, promql, at_ms):
        await self.gate.wait()
        self.asked.append(promql)
        if self.fault is not None:
            raise self.fault
        range_s = int(promql.rpartition("[")[2].partition("s:")[0])
        times = range(at_ms - range_s * 1000 + STEP_MS, at_ms + 1, STEP_MS)
        points = tuple((at, self.load) for at in times)
        return Matrix(tuple(MatrixSeries({"row": str(n)}, points) for n in range(self.rows)))


@pytest.fixture
def source():
    return Source()


@pytest.fixture
def clock():
    return ManualClock(NOON)


@pytest.fixture
async def policies(source, clock):
    found = Policies(source.ask, clock)
    yield found
    await found.close()


async def learned(policies, use=USE):
    """Return what is wanted once it was learned."""
    found = [await policies.see("sum(load)", use)]

    async def look():
        found[0] = await policies.see("sum(load)", use)
        return isinstance(found[0][0], TotalLoad)

    for _ in range(100):
        if await look():
            break
    return found[0]


async def test_the_past_is_learned_and_each_step_after_it_is_one_question(policies, source, clock):
    wanted, words = await learned(policies)
    assert wanted == TotalLoad(7.0, NOON)
    assert "of 7d12h15s, since 2024-09-27 00:00 UTC" in " ".join(words)  # with both ends
    assert len(source.asked) == 8  # a day each
    source.load = 91.0
    before = len(source.asked)
    clock.advance(15)
    for _ in range(3):
        assert (await policies.see("sum(load)", USE))[0] == TotalLoad(10.0, NOON + 15_000)
    assert len(source.asked) == before + 1


async def test_while_it_learns_there_is_no_number(policies, source, monkeypatch):
    monkeypatch.setattr(module, "_PATIENCE_S", 0.01)
    source.gate.clear()
    found, words = await policies.see("sum(load)", USE)
    assert found == Missing("it learns from the past, 0 % so far")
    assert words == ()


async def test_a_source_that_is_away_is_a_reason_and_is_asked_again_in_peace(
    policies, source, clock
):
    await learned(policies)
    source.fault = UnavailableError("connection refused")
    clock.advance(15)
    assert (await policies.see("sum(load)", USE))[0] == Missing("connection refused")
    asked = len(source.asked)
    for _ in range(5):
        clock.advance(0.9)
        await policies.see("sum(load)", USE)
    assert len(source.asked) == asked
    source.fault = None
    clock.advance(6)
    assert (await policies.see("sum(load)", USE))[0] == TotalLoad(7.0, NOON + 15_000)


async def test_two_rows_and_none_are_reasons(policies, source, clock):
    source.rows = 2
    assert (await policies.see("sum(load)", USE))[0] == Missing("the answer has 2 rows, not 1")
    source.rows = 0
    clock.advance(6)
    assert (await policies.see("sum(load)", USE))[0] == Missing("the query's answer has no row")


async def test_a_source_that_can_answer_for_hours_only_is_asked_for_hours(policies, source, clock):
    async def picky(promql, at_ms):
        if "[900s:" not in promql and int(promql.rpartition("[")[2].partition("s:")[0]) > 21_600:
            raise UnavailableError("query processing would load too many samples")
        return await source.ask(promql, at_ms)

    asked = Policies(picky, clock)
    found: TotalLoad | Missing = Missing("")
    for _ in range(40):
        found, _ = await asked.see("sum(load)", USE)
        if isinstance(found, TotalLoad):
            break
        clock.advance(5)
    assert isinstance(found, TotalLoad)
    await asked.close()


async def test_a_policy_that_fails_is_a_reason_and_the_others_go_on(policies, monkeypatch):
    def wrong(seen, memory, settings):
        return float(str(seen.demand))

    monkeypatch.setattr(module, "_PATIENCE_S", 100.0)  # it is compiled before it fails
    monkeypatch.setitem(POLICIES, "wrong", Policy("wrong", "", wrong))
    use = ServedPolicy("wrong", (), 10.0, 60.0, 2, 50, 0.0)
    found, _ = await policies.see("sum(load)", use)
    assert found.reason.startswith("it failed with ValueError: could not convert")
    assert isinstance((await learned(policies))[0], TotalLoad)


async def test_a_flood_of_policies_is_bounded_in_bytes(source, clock):
    size = run_bytes(POLICIES["guarded"], ServedPolicy("guarded", (), 10.0, 60.0, 2, 50, 30.0))
    bounded = Policies(source.ask, clock, max_bytes=10 * size)
    source.gate.clear()
    answers = []
    for number in range(40):
        use = ServedPolicy("guarded", (), 10.0 + number, 60.0, 2, 50, 30.0)
        answers.append(asyncio.create_task(bounded.see("sum(load)", use)))
    await until(lambda: sum(each.done() for each in answers) == 30)
    refused = [each.result()[0].reason for each in answers if each.done()]
    assert all("10 others" in reason for reason in refused)
    assert bounded.size_bytes <= 10 * size
    for each in answers:
        each.cancel()
    await asyncio.gather(*answers, return_exceptions=True)
    await bounded.close()


async def test_a_name_that_is_not_there_is_a_reason(policies):
    use = ServedPolicy("nothing", (), 10.0, 60.0, 2, 50)
    assert (await policies.see("q", use))[0] == Missing("there is no policy nothing")
