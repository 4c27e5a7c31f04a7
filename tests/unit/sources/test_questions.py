"""How often a source is asked, and whom its answers reach."""

import asyncio
import json

import pytest

from gpuscale.core.errors import QueryError, UnavailableError, UpstreamError
from gpuscale.objects.selectors import Selector
from gpuscale.series.evaluate import instant
from gpuscale.series.store import SeriesStore
from gpuscale.series.values import Matrix, Scalar, Vector, VectorSample
from gpuscale.sources.catalogue import Catalogue
from gpuscale.sources.freshness import AgeLimit
from gpuscale.sources.plan import plan_custom
from gpuscale.sources.questions import Questions, Sharing
from gpuscale.sources.resources import KUBERNETES
from gpuscale.sources.rules import load_rules

NOW = 1_700_000_000_000
AVERAGE = "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
WIDE = 'avg(m{namespace!="",pod!=""}) by (namespace,pod)'


class Source:
    """Evaluates over a store when it is let; an exception in `refused` is raised for a text."""

    def __init__(self):
        self.asked = []
        self.refused = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.store = SeriesStore()
        for namespace in "abcdefgh":
            for pod in ("p-0", "p-1"):
                labels = {"__name__": "m", "namespace": namespace, "pod": pod}
                self.store.append(labels, NOW - 1000, float(ord(namespace)))

    async def series(self, selector, start_ms):
        raise AssertionError

    async def query(self, promql, at_ms):
        self.asked.append(promql)
        await self.gate.wait()
        if promql in self.refused:
            raise self.refused[promql]
        return instant(self.store, promql, at_ms)


def rules(query=AVERAGE):
    rule = {
        "seriesQuery": "m{}",
        "resources": {"template": "<<.Resource>>"},
        "metricsQuery": query,
    }
    config = load_rules(json.dumps({"rules": [rule]}), "<test>")
    return Catalogue.build(config, {"m{}": [{"__name__": "m", "namespace": "a", "pod": "p"}]})


CATALOGUE = rules()


def plan(namespace, names=("p-0",), catalogue=CATALOGUE):
    return plan_custom(catalogue, KUBERNETES, "pods", namespace, names, "m", Selector())


@pytest.fixture
async def source():
    return Source()


async def ask_all(questions, namespaces, at_ms=NOW):
    found = await asyncio.gather(*(questions.custom(plan(each), at_ms) for each in namespaces))
    return [[row.value for row in value.samples] for value in found]


async def test_equal_questions_at_one_moment_are_one_query(source):
    questions = Questions(source)
    source.gate.clear()
    asking = [asyncio.create_task(questions.query("m", NOW)) for _ in range(20)]
    await asyncio.sleep(0)
    source.gate.set()
    answers = await asyncio.gather(*asking)
    assert source.asked == ["m"]
    assert len({id(answer) for answer in answers}) == 1
    await questions.query("m", NOW + 1)
    assert source.asked == ["m", "m"]  # without freshness nothing is kept


async def test_an_answer_serves_for_the_time_of_freshness_and_no_longer(source):
    questions = Questions(source, Sharing(freshness_ms=1000))
    first = await questions.query("m", NOW)
    assert await questions.query("m", NOW + 499) is first
    assert source.asked == ["m"]
    last = await questions.query("m", NOW + 1000)
    assert last.asked_ms == NOW + 1000
    assert source.asked == ["m", "m"]


async def test_an_answer_past_most_of_its_time_is_renewed_while_it_still_serves(source):
    questions = Questions(source, Sharing(freshness_ms=1000))
    first = await questions.query("m", NOW)
    source.gate.clear()
    assert await questions.query("m", NOW + 800) is first
    assert await questions.query("m", NOW + 900) is first
    await asyncio.sleep(0)
    assert source.asked == ["m", "m"]
    source.gate.set()
    renewed = await questions.query("m", NOW + 1100)
    assert renewed.asked_ms == NOW + 800
    assert source.asked == ["m", "m"]


async def test_a_question_that_hangs_is_not_joined_once_its_answer_would_be_too_old(source):
    questions = Questions(source, Sharing(freshness_ms=1000))
    source.gate.clear()
    early = asyncio.create_task(questions.query("m", NOW))
    await asyncio.sleep(0)
    late = asyncio.create_task(questions.query("m", NOW + 1500))
    await asyncio.sleep(0)
    source.gate.set()
    assert (await early).asked_ms == NOW
    assert (await late).asked_ms == NOW + 1500
    assert (await questions.query("m", NOW + 1600)).asked_ms == NOW + 1500


async def test_errors_reach_those_who_wait_and_are_not_kept(source):
    questions = Questions(source, Sharing(freshness_ms=1000))
    source.refused["m"] = UpstreamError("down")
    source.gate.clear()
    asking = [asyncio.create_task(questions.query("m", NOW)) for _ in range(3)]
    await asyncio.sleep(0)
    source.gate.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(error) for error in found] == ["down"] * 3
    del source.refused["m"]
    assert (await questions.query("m", NOW + 1)).asked_ms == NOW + 1


async def test_who_stops_waiting_takes_the_answer_from_nobody(source):
    questions = Questions(source)
    source.gate.clear()
    leaving, staying = (asyncio.create_task(questions.query("m", NOW)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.sleep(0)
    source.gate.set()
    assert (await staying).asked_ms == NOW


async def test_close_ends_what_is_on_its_way(source):
    questions = Questions(source)
    source.gate.clear()
    asking = asyncio.create_task(questions.query("m", NOW))
    await asyncio.sleep(0)
    await questions.close()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_many_namespaces_are_one_widened_query(source):
    questions = Questions(source, Sharing(freshness_ms=1000))
    first = await ask_all(questions, "abc")
    assert WIDE not in source.asked
    second = await ask_all(questions, "defgh" * 10)
    assert source.asked[3:] == [WIDE]
    assert first + second[:5] == [[float(ord(each))] for each in "abcdefgh"]
    assert questions.counts.cut == 50


async def test_few_questions_are_asked_exactly(source):
    questions = Questions(source, Sharing(freshness_ms=1000))
    for turn in range(10):
        await ask_all(questions, "abc", NOW + 100 * turn)
    for turn, namespace in enumerate("abcdefgh"):
        await ask_all(questions, namespace, NOW + 1000 * turn)
    assert WIDE not in source.asked


async def test_nothing_is_widened_where_the_user_says_so(source):
    questions = Questions(source, Sharing(freshness_ms=1000, widens=False))
    await ask_all(questions, "abcdefgh")
    assert len(source.asked) == 8


async def test_what_is_no_vector_stays_what_it_is(source):
    questions = Questions(source, Sharing(freshness_ms=1000))
    ranges = rules("<<.Series>>{<<.LabelMatchers>>}[1m]")
    for namespace in "abcdefgh":
        value = await questions.custom(plan(namespace, catalogue=ranges), NOW)
        assert isinstance(value, Matrix)


async def test_a_widened_query_that_is_refused_is_left_alone_for_a_while(source):
    questions = Questions(source, Sharing(freshness_ms=1000))
    source.refused[WIDE] = QueryError("too many samples")
    found = await ask_all(questions, "abcdefgh")
    assert found == [[float(ord(each))] for each in "abcdefgh"]
    source.asked.clear()
    await ask_all(questions, "abcdefgh", NOW + 5000)
    assert WIDE not in source.asked
    await ask_all(questions, "abcdefgh", NOW + 31_000)
    assert WIDE in source.asked


async def test_a_source_that_is_away_is_not_asked_twice(source):
    questions = Questions(source, Sharing(freshness_ms=1000))
    await ask_all(questions, "abc")
    source.asked.clear()
    source.refused[WIDE] = UnavailableError("away")
    with pytest.raises(UnavailableError):
        await ask_all(questions, "d")
    assert source.asked == [WIDE]


NAMES = tuple(f"worker-{number:05d}.host" for number in range(2000))


def fill(source, names=NAMES):
    for number, name in enumerate(names):
        labels = {"__name__": "m", "namespace": "big", "pod": name}
        source.store.append(labels, NOW - 1000, float(number))


async def test_names_that_dont_fit_are_asked_for_in_parts(source):
    fill(source)
    fits = Sharing(fits=lambda promql: len(promql) <= 16_000)
    value = await Questions(source, fits).custom(plan("big", NAMES), NOW)
    assert len(source.asked) > 1
    assert max(map(len, source.asked)) <= 16_000
    whole = await Questions(source, Sharing(fits=lambda _: True)).custom(plan("big", NAMES), NOW)
    assert ".+" not in source.asked[-1]
    by_name = plan("big", NAMES).answer
    assert by_name(value) == by_name(whole)
    assert [each.value_milli for each in by_name(value)] == [1000 * n for n in range(2000)]


async def test_names_of_a_rule_that_looks_at_all_of_them_stay_together(source):
    names = NAMES[:400]
    fill(source)
    asked = plan("big", names, rules("topk(1, m{<<.LabelMatchers>>})"))
    value = await Questions(source, Sharing(fits=lambda promql: len(promql) < 100)).custom(
        asked, NOW
    )
    assert len(source.asked) == 1
    # Of the 400 that were asked for, not of all: worker 1999 has the largest value.
    assert [row.labels["pod"] for row in value.samples] == [names[-1]]


async def test_an_error_of_one_part_is_the_answer(source):
    questions = Questions(source, Sharing(fits=lambda promql: len(promql) < 16_000))
    source.refused = {}

    async def refuse(promql, at_ms):
        raise UpstreamError("no")

    source.query = refuse
    with pytest.raises(UpstreamError, match="no"):
        await questions.custom(plan("big", NAMES), NOW)


def test_values_older_than_the_limit_are_left_out_and_counted():
    limit = AgeLimit(120_000)
    rows = [VectorSample({"pod": str(age)}, 1.0, NOW - age) for age in (0, 120_000, 120_001, 9**9)]
    found = limit.fresh(Vector(tuple(rows)), NOW, "custom.metrics.k8s.io", "m")
    assert [row.labels["pod"] for row in found.samples] == ["0", "120000"]
    assert limit.stale == {("custom.metrics.k8s.io", "m"): 2}
    assert limit.fresh(Scalar(1.0), NOW, "g", "m") == Scalar(1.0)
    assert AgeLimit().fresh(Vector(tuple(rows)), NOW, "g", "m") == Vector(tuple(rows))
