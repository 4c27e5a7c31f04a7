"""A served policy: the same replicas as a replay, whenever a server began and whatever was away."""

import math

import numpy
import pytest

from gpuscale.base.errors import UpstreamError
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Matrix, MatrixSeries, Vector
from gpuscale.server.sources.embedded import EmbeddedSource
from gpuscale.triggers.policies.compiled import policy_function, replay
from gpuscale.triggers.policies.policy import Policy
from gpuscale.triggers.policies.registry import POLICIES
from gpuscale.triggers.policies.replaying import ReplaySettings
from gpuscale.triggers.policies.served import STEP_MS, PolicyRun, run_bytes
from gpuscale.triggers.trigger import ServedPolicy

DAY = 86_400
MIDNIGHT = 20_000 * DAY
"""A midnight of UTC, in seconds."""
USE = ServedPolicy("trend", (), 10.0, 180.0, 2, 50, 30.0, DAY)


def load_at(at_s):
    """Return a load with a day's shape and bursts, in requests in flight; 10 keep a pod busy."""
    hour = at_s % DAY / 3600
    burst = 80 if at_s // 900 % 7 == 3 else 0
    return 120 + 100 * math.sin(hour / 24 * 2 * math.pi) + burst


class Source:
    """Answers a question as Prometheus answers a subquery."""

    def __init__(self, begins_s=0, gaps=()):
        self.begins_s, self.gaps, self.asked = begins_s, gaps, 0

    def answer(self, question):
        self.asked += 1
        times = [(question.first + index) * STEP_MS for index in range(question.count)]
        points = [(t, load_at(t // 1000)) for t in times if self._has(t // 1000)]
        return Matrix((MatrixSeries({}, tuple(points)),) if points else ())

    def _has(self, at_s):
        return at_s >= self.begins_s and not any(a <= at_s < b for a, b in self.gaps)


def caught_up(run, source, now_s):
    """Have a run see all that is there at a time, and return what it wants."""
    while (question := run.question(round(now_s * 1000))) is not None:
        if not run.take(question, source.answer(question)):
            break
    wanted = run.wanted()
    return None if wanted is None else wanted.replicas


def replayed(policy, use, begin_s, end_s):
    """Return the replicas of a replay of the same demand, at its last step."""
    steps = round((end_s - begin_s) / 15) + 1
    demand = numpy.array([load_at(begin_s + 15 * each) / use.pod_load for each in range(steps)])
    service = ReplaySettings(15.0, use.start_s, use.lag_s, least=use.least, most=use.most)
    found = replay(
        policy_function(policy.desired), policy.settings(), policy.memory, demand, service
    )
    return [int(each) for each in found.replicas]


@pytest.mark.parametrize("name", sorted(POLICIES))
@pytest.mark.parametrize("lag_s", [0.0, 30.0, 40.0])
def test_what_is_served_is_what_a_replay_of_the_same_demand_has(name, lag_s):
    use = ServedPolicy(name, (), 10.0, 180.0, 2, 50, lag_s, DAY)
    run, source = PolicyRun(POLICIES[name], use, "sum(load)"), Source()
    begin_s, now_s = MIDNIGHT - DAY, MIDNIGHT + 3600
    expected = replayed(POLICIES[name], use, begin_s, now_s + 600)
    at_begin = round(3600 / 15) + DAY // 15
    served = [caught_up(run, source, now_s + 15 * each) for each in range(40)]
    assert served == expected[at_begin : at_begin + 40]
    assert all(2 <= each <= 50 for each in served)


def test_servers_that_began_on_other_days_give_the_same_answers():
    old, new = (PolicyRun(POLICIES["trend"], USE, "sum(load)") for _ in range(2))
    source = Source()
    for hour in range(0, 60, 5):
        caught_up(old, source, MIDNIGHT + 3600 * hour)
    for second in range(0, 3600, 45):
        now_s = MIDNIGHT + 60 * 3600 + second
        assert caught_up(old, source, now_s) == caught_up(new, source, now_s)


def test_what_was_away_and_is_back_makes_no_difference():
    out_s = MIDNIGHT + 7200
    run, never_away, source = (
        PolicyRun(POLICIES["guarded"], USE, "sum(load)"),
        PolicyRun(POLICIES["guarded"], USE, "sum(load)"),
        Source(),
    )
    caught_up(run, source, out_s)
    later_s = out_s + 1800
    assert run.is_behind(later_s * 1000)
    assert caught_up(run, source, later_s) == caught_up(never_away, source, later_s)
    assert not run.is_behind(later_s * 1000)


def test_a_gap_counts_as_the_load_before_it_and_its_end_has_to_be_there():
    gap = (MIDNIGHT + 3600, MIDNIGHT + 5400)
    run, source = PolicyRun(POLICIES["static"], USE, "sum(load)"), Source(gaps=[gap])
    caught_up(run, source, MIDNIGHT + 3600)
    assert caught_up(run, source, MIDNIGHT + 4500) == 2
    assert run.is_behind((MIDNIGHT + 4500) * 1000)
    caught_up(run, source, MIDNIGHT + 6000)
    assert not run.is_behind((MIDNIGHT + 6000) * 1000)


def test_nothing_is_wanted_before_there_was_a_load_and_a_young_series_is_enough():
    run, source = PolicyRun(POLICIES["trend"], USE, "sum(load)"), Source(begins_s=MIDNIGHT + 600)
    assert caught_up(run, source, MIDNIGHT + 300) is None
    begin_s, now_s = MIDNIGHT + 600, MIDNIGHT + 900
    expected = replayed(POLICIES["trend"], USE, begin_s, now_s)
    assert caught_up(run, source, now_s) == expected[-1]


def test_the_words_say_what_it_rests_on():
    run = PolicyRun(POLICIES["trend"], USE, "sum(load)")
    caught_up(run, Source(), MIDNIGHT)
    words = "\n".join(run.wanted().words)
    assert "headroom 1.2, spare 1, smoothing_s 120, hold_s 600" in words
    # The load of 30 s ago: 120 + 100 sin(-30 s of a day), and no burst.
    load = load_at(MIDNIGHT - 30)
    assert f"{load:.6g} at 10 a pod are {load / 10:.4g} pods" in words
    assert "a pod that is ordered now serves in 3m" in words
    assert " 2024-10-03 00:00 UTC" in words
    assert "level: " in words
    assert "slope a step: " in words


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Vector(()), "the answer is no row of numbers"),
        (Matrix((MatrixSeries({"a": "1"}, ()), MatrixSeries({}, ()))), "the answer has 2 rows"),
    ],
)
def test_an_answer_that_is_no_row_is_an_error(value, said):
    run = PolicyRun(POLICIES["trend"], USE, "sum(load)")
    question = run.question(MIDNIGHT * 1000)
    assert question is not None
    with pytest.raises(UpstreamError, match=said):
        run.take(question, value)


@pytest.mark.parametrize("query", ["sum(load) # with a remark", "sum(load)", "120", "scalar(load)"])
def test_the_store_understands_what_is_asked(query):
    store = SeriesStore()
    for second in range(0, 3600, 15):
        store.append({"__name__": "load"}, (MIDNIGHT + second) * 1000, 120.0)
    run = PolicyRun(POLICIES["static"], USE, query, MIDNIGHT * 1000)
    source, now_ms = EmbeddedSource(store), (MIDNIGHT + 3600) * 1000
    while (question := run.question(now_ms)) is not None:
        assert run.take(question, source.query_now(question.promql, question.at_ms))
    assert "120 at 10 a pod are 12 pods" in "\n".join(run.wanted().words)


def test_a_source_that_is_asked_for_too_much_is_asked_for_less():
    run, source, sizes = PolicyRun(POLICIES["static"], USE, "sum(load)"), Source(), []
    now_ms = MIDNIGHT * 1000
    while (question := run.question(now_ms)) is not None:
        sizes.append(question.count)
        if question.count > 1000:
            assert run.refused(question)
        else:
            assert run.take(question, source.answer(question))
    assert max(sizes[3:]) <= 2000  # a day are 5760, and it is halved three times
    assert sizes[:4] == [5759, 2879, 1439, 719]


def test_memory_is_what_is_stated():
    """Two memories, two rings of start-up and lag, an hour of loads and one answer of a day."""
    policy = Policy("big", "", lambda *_: 1.0, memory=50_000)
    assert 2 * 8 * 50_000 < run_bytes(policy, USE) < 2 * 8 * 50_000 + 400_000
