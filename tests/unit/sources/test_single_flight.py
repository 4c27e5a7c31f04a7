"""How often a source is asked, and whom its answers reach."""

import asyncio
import json

import pytest

from gpuscale.base.byte_cache import ACCOUNTANT
from gpuscale.base.errors import QueryError, UnavailableError, UpstreamError
from gpuscale.base.objects.selectors import Selector
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Matrix, Scalar, Vector, VectorSample
from gpuscale.server.rules.catalogue import Catalogue
from gpuscale.server.rules.config import load_rules
from gpuscale.server.rules.queries.plan import plan_custom
from gpuscale.server.rules.resources import KUBERNETES
from gpuscale.server.sources.asking.single_flight import AnswerSharing, SharedSource
from gpuscale.server.sources.freshness import AgeLimit

NOW = 1_700_000_000_000
AVERAGE = "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
WIDE = 'avg(m{namespace!="",pod!=""}) by (namespace,pod)'


class Source:
    """Evaluates over a store when it is let; an exception in `refused` is raised for a text."""

    def __init__(self) -> None:
        self.asked = []
        self.refused = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.store = SeriesStore()
        for namespace in "abcdefgh":
            for pod in ("p-0", "p-1"):
                labels = {"__name__": "m", "namespace": namespace, "pod": pod}
                self.store.append(labels, NOW - 1000, float(ord(namespace)))

    async def series(self, selector, start_ms) -> None:
        raise AssertionError

    async def query(self, promql, at_ms):
        self.asked.append(promql)
        await self.gate.wait()
        if promql in self.refused:
            raise self.refused[promql]
        return instant(self.store, promql, at_ms)


def rules(query=AVERAGE, series=16):
    rule = {
        "seriesQuery": "m{}",
        "resources": {"template": "<<.Resource>>"},
        "metricsQuery": query,
    }
    config = load_rules(json.dumps({"rules": [rule]}), "<test>")
    found = [{"__name__": "m", "namespace": "a", "pod": "p"}] * series
    return Catalogue.build(config, {"m{}": found})


CATALOGUE = rules()


def plan(namespace, names=("p-0",), catalogue=CATALOGUE):
    return plan_custom(catalogue, KUBERNETES, "pods", namespace, names, "m", Selector())


@pytest.fixture
async def source():
    return Source()


async def ask_all(questions, namespaces, at_ms=NOW):
    found = await asyncio.gather(*(questions.custom(plan(each), at_ms) for each in namespaces))
    return [[row.value for row in value.samples] for value in found]


async def test_equal_questions_at_one_moment_are_one_query(source) -> None:
    questions = SharedSource(source)
    source.gate.clear()
    asking = [asyncio.create_task(questions.query("m", NOW)) for _ in range(20)]
    await asyncio.sleep(0)
    source.gate.set()
    answers = await asyncio.gather(*asking)
    assert source.asked == ["m"]
    assert len({id(answer) for answer in answers}) == 1
    await questions.query("m", NOW + 1)
    assert source.asked == ["m", "m"]  # without freshness nothing is kept


async def test_an_answer_serves_for_the_time_of_freshness_and_no_longer(source) -> None:
    questions = SharedSource(source, AnswerSharing(freshness_ms=1000))
    first = await questions.query("m", NOW)
    assert await questions.query("m", NOW + 499) is first
    assert source.asked == ["m"]
    last = await questions.query("m", NOW + 1000)
    assert last.asked_ms == NOW + 1000
    assert source.asked == ["m", "m"]


async def test_an_answer_past_most_of_its_time_is_renewed_while_it_still_serves(source) -> None:
    questions = SharedSource(source, AnswerSharing(freshness_ms=1000))
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


async def test_a_question_that_hangs_is_not_joined_once_its_answer_would_be_too_old(source) -> None:
    questions = SharedSource(source, AnswerSharing(freshness_ms=1000))
    source.gate.clear()
    early = asyncio.create_task(questions.query("m", NOW))
    await asyncio.sleep(0)
    late = asyncio.create_task(questions.query("m", NOW + 1500))
    await asyncio.sleep(0)
    source.gate.set()
    assert (await early).asked_ms == NOW
    assert (await late).asked_ms == NOW + 1500
    assert (await questions.query("m", NOW + 1600)).asked_ms == NOW + 1500


async def test_errors_reach_those_who_wait_and_are_not_kept(source) -> None:
    questions = SharedSource(source, AnswerSharing(freshness_ms=1000))
    source.refused["m"] = UpstreamError("down")
    source.gate.clear()
    asking = [asyncio.create_task(questions.query("m", NOW)) for _ in range(3)]
    await asyncio.sleep(0)
    source.gate.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(error) for error in found] == ["down"] * 3
    del source.refused["m"]
    assert (await questions.query("m", NOW + 1)).asked_ms == NOW + 1


async def test_who_stops_waiting_takes_the_answer_from_nobody(source) -> None:
    questions = SharedSource(source)
    source.gate.clear()
    leaving, staying = (asyncio.create_task(questions.query("m", NOW)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.sleep(0)
    source.gate.set()
    assert (await staying).asked_ms == NOW


async def test_close_ends_what_is_on_its_way(source) -> None:
    questions = SharedSource(source)
    source.gate.clear()
    asking = asyncio.create_task(questions.query("m", NOW))
    await asyncio.sleep(0)
    await questions.close()
    with pytest.raises(asyncio.CancelledError):
        await asking


FRESH = AnswerSharing(freshness_ms=1000)
MANY = rules(series=10_000)
"""Of a metric with so many series that asking for all of them costs more than a few questions."""


def among(namespaces, pods="p-0"):
    matcher = f'=~"{namespaces}"' if "|" in namespaces else f'="{namespaces}"'
    pods = f'=~"{pods}"' if "|" in pods else f'="{pods}"'
    return f"avg(m{{namespace{matcher},pod{pods}}}) by (namespace,pod)"


def one(namespace):
    return f'avg(m{{namespace="{namespace}",pod="p-0"}}) by (pod)'


async def ask_one(questions, namespace, at_ms=NOW):
    value = await questions.custom(plan(namespace, catalogue=MANY), at_ms)
    return [row.value for row in value.samples]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_questions_that_come_at_once_are_one_query_for_just_them(source) -> None:
    questions = SharedSource(source, FRESH)
    found = await asyncio.gather(*(ask_one(questions, each) for each in "abc" * 3))
    assert found == [[97.0], [98.0], [99.0]] * 3
    assert source.asked == [among("a|b|c")]
    assert (questions.counts.asked, questions.counts.cut) == (1, 9)


async def test_a_question_alone_is_asked_exactly(source) -> None:
    questions = SharedSource(source, FRESH)
    for turn, namespace in enumerate("abcdefgh"):
        await ask_one(questions, namespace, NOW + 1000 * turn)
    assert source.asked == [one(each) for each in "abcdefgh"]


async def test_where_more_is_wanted_than_there_is_the_query_is_for_all(source) -> None:
    """8 questions and 16 rows: 16 rows and a query cost more than 8; for 2 rows each they cost the same."""
    questions = SharedSource(source, FRESH)
    await ask_all(questions, "abcdefgh")
    assert source.asked == [among("a|b|c|d|e|f|g|h")]
    source.asked.clear()
    both = [plan(each, ("p-0", "p-1")) for each in "abcdefgh"]
    await asyncio.gather(*(questions.custom(each, NOW + 5000) for each in both))
    assert source.asked == [WIDE]
    # Its rows serve others too, for as long as they are fresh.
    assert await ask_all(questions, "a", NOW + 5999) == [[97.0]]
    assert source.asked[1:] == []
    await ask_all(questions, "a", NOW + 6000)
    assert source.asked[1:] == [one("a")]


async def test_what_is_expected_in_the_next_moment_goes_along(source) -> None:
    """Three HPAs every 15 s, 300 ms apart: from the second time on they are one query."""
    questions = SharedSource(source, FRESH)
    for turn in range(3):
        for number, namespace in enumerate("abc"):
            await ask_one(questions, namespace, NOW + 15_000 * turn + 300 * number)
            await settle()
    assert source.asked == [one("a"), one("b"), one("c"), among("a|b|c"), among("a|b|c")]


async def test_another_time_between_two_questions_is_learned(source) -> None:
    """Every 40 s: at the second time nothing was expected, from the third on it is."""
    questions = SharedSource(source, FRESH)
    for turn in range(4):
        source.asked.clear()
        for number, namespace in enumerate("abc"):
            await ask_one(questions, namespace, NOW + 40_000 * turn + 300 * number)
            await settle()
        assert source.asked == ([among("a|b|c")] if turn > 1 else [one(each) for each in "abc"])


async def test_what_is_expected_later_is_asked_behind_the_back_of_who_has_an_answer(source) -> None:
    """Eight HPAs 200 ms apart. The first question asks for the next 0.9 s, so for the four that follow;
    the one after 0.6 s finds its answer, and the last three are asked for before they come.
    """
    questions = SharedSource(source, FRESH)
    for turn in range(3):
        source.asked.clear()
        for number in range(8):
            at_ms = NOW + 15_000 * turn + 200 * number
            await ask_one(questions, "abcdefgh"[number], at_ms)
            await settle()
    assert source.asked == [among("a|b|c|d|e"), among("f|g|h")]


async def test_after_a_start_single_questions_give_way_to_one_for_all(source) -> None:
    """600 rows and a query are worth 750 rows, and a question of one row 151: the fifth is for all."""
    catalogue = rules(series=600)
    questions = SharedSource(source, FRESH)
    for number, namespace in enumerate("abcdefgh"):
        value = await questions.custom(plan(namespace, catalogue=catalogue), NOW + 100 * number)
        assert [row.value for row in value.samples] == [float(ord(namespace))]
    assert source.asked == [*map(one, "abcd"), WIDE]


async def test_what_all_rows_save_while_nobody_is_expected_keeps_them_coming(source) -> None:
    """The rows of all serve for the second to 1400. In it there are 9 first questions, worth 1359 rows
    without them; the next first question adds 151, and 1510 are more than the 750 of all rows.
    """
    catalogue = rules(series=600)
    questions = SharedSource(source, FRESH)
    names = [f"p-{number}" for number in range(15)]
    for number, name in enumerate(names):
        await questions.custom(plan("a", (name,), catalogue), NOW + 100 * number)
    assert source.asked[4:] == [WIDE, WIDE]


async def test_questions_far_apart_stay_single(source) -> None:
    """Of the second before any of them there are three more, 604 rows together."""
    catalogue = rules(series=600)
    questions = SharedSource(source, FRESH)
    for number in range(12):
        await questions.custom(plan("a", (f"p-{number}",), catalogue), NOW + 250 * number)
    assert WIDE not in source.asked
    assert len(source.asked) == 12


LEARNS = AnswerSharing(freshness_ms=1000, most_freshness_ms=3000)


def scraped(source, every_ms, since_ms=300_000) -> None:
    """Put in samples of all pods, the newest a moment ago."""
    source.store = SeriesStore()
    for namespace in "abcdefgh":
        labels = {"__name__": "m", "namespace": namespace, "pod": "p-0"}
        for ago_ms in range(since_ms // every_ms * every_ms, -1, -every_ms):
            source.store.append(labels, NOW - 500 - ago_ms, float(ord(namespace)))


async def served_until_ms(source, sharing=LEARNS):
    """Return for how long an answer serves, in steps of 100 ms, once there were five questions."""
    questions = SharedSource(source, sharing)
    for namespace in "abcde":
        await ask_one(questions, namespace)
    await settle()
    await questions.custom(plan("h", catalogue=MANY), NOW)
    source.asked.clear()
    for after_ms in range(0, 5000, 100):
        await questions.custom(plan("h", catalogue=MANY), NOW + after_ms)
        if one("h") in source.asked or any("h" in asked for asked in source.asked):
            return after_ms
    raise AssertionError


@pytest.mark.parametrize(
    ("every_ms", "until_ms"),
    [
        (1_000, 1_000),  # 60 a minute: a fifth is 0.2 s, and 1 s the least
        (5_000, 1_000),
        (10_000, 2_000),
        (15_000, 3_000),
        (60_000, 3_000),  # a fifth is 12 s, and 3 s the most
    ],
)
async def test_an_answer_serves_for_a_fifth_of_the_time_between_two_samples(
    source, every_ms: int, until_ms: int
) -> None:
    scraped(source, every_ms)
    pause_ms = max(0.6 * until_ms, 0.9 * until_ms - 500)  # from then on it is renewed ahead
    assert pause_ms <= await served_until_ms(source) <= until_ms


async def test_how_often_samples_come_is_asked_of_a_few_objects_and_seldom(source) -> None:
    scraped(source, 15_000)
    questions = SharedSource(source, LEARNS)
    matchers = 'namespace="a",pod=~"' + "|".join(f"p-{number}" for number in range(20)) + '"'
    many = tuple(f"p-{number}" for number in range(30))
    for after_s in (0, 300, 599, 600):
        await questions.custom(plan("a", many, MANY), NOW + 1000 * after_s)
        for namespace in "bcd":
            await ask_one(questions, namespace, NOW + 1000 * after_s)
        await questions.custom(plan("a", many, MANY), NOW + 1000 * after_s)
        await settle()
    looks = [asked for asked in source.asked if "count_over_time" in asked]
    look = f"max(count_over_time(m{{{matchers}}}[1m]) and m{{{matchers}}} offset 1m)"
    assert looks == [look, look]


@pytest.mark.parametrize("since_ms", [30_000, 0])
async def test_series_that_began_a_moment_ago_say_nothing_of_their_samples(
    source, since_ms: int
) -> None:
    scraped(source, 15_000, since_ms)
    assert 600 <= await served_until_ms(source) <= 1000


async def test_a_look_that_fails_leaves_the_least_time(source) -> None:
    scraped(source, 15_000)
    matchers = '{namespace="e",pod="p-0"}'
    look = f"max(count_over_time(m{matchers}[1m]) and m{matchers} offset 1m)"
    source.refused[look] = QueryError("no count_over_time here")
    assert 600 <= await served_until_ms(source) <= 1000
    assert look not in source.asked


@pytest.mark.parametrize(
    "sharing",
    [
        FRESH,
        AnswerSharing(1000, 1000),
        AnswerSharing(4000, 3000),
        AnswerSharing(1000, 3000, widens=False),
    ],
)
async def test_nothing_is_learned_where_it_makes_no_difference(source, sharing) -> None:
    scraped(source, 15_000)
    questions = SharedSource(source, sharing)
    for namespace in "abcdefgh":
        await ask_one(questions, namespace)
    await settle()
    assert not [asked for asked in source.asked if "count_over_time" in asked]


@pytest.mark.parametrize(("sharing", "most_ms"), [(FRESH, 1000), (LEARNS, 3000)])
async def test_no_answer_serves_for_longer_than_its_time(source, sharing, most_ms: int) -> None:
    """Whatever is asked ahead: the value that a question gets is never older than that."""
    questions = SharedSource(source, sharing)
    scraped(source, 15_000)
    asked_at = {}
    query = source.query

    async def note(promql, at_ms):
        value = await query(promql, at_ms)
        if "count_over_time" in promql:
            return value
        rows = [VectorSample(row.labels, float(at_ms), at_ms) for row in value.samples]
        asked_at[promql] = at_ms
        return Vector(tuple(rows))

    source.query = note
    oldest_ms = 0
    for step in range(3000):
        at_ms = NOW + 37 * step
        namespace = "abcdefgh"[(step * step // 7) % 8]
        (measured_ms,) = await ask_one(questions, namespace, at_ms)
        assert at_ms - most_ms < measured_ms <= at_ms
        oldest_ms = max(oldest_ms, at_ms - measured_ms)
        await settle()
    assert oldest_ms > 0.8 * most_ms


async def test_who_does_not_come_again_is_not_expected_for_ever(source) -> None:
    questions = SharedSource(source, FRESH)
    for turn in range(3):
        await ask_one(questions, "a", NOW + 15_000 * turn)
    source.asked.clear()
    for turn in range(3, 8):
        await ask_one(questions, "b", NOW + 15_000 * turn - 100)
        await settle()
    # The first time b comes a little before a is expected, and takes it along; then nobody asks for a.
    assert source.asked == [among("b|a"), one("b"), one("b"), one("b"), one("b")]


async def test_what_comes_while_queries_are_on_their_way_waits_and_goes_together(source) -> None:
    questions = SharedSource(source, FRESH)
    source.gate.clear()
    asking = []
    for namespace in "abcdefgh":
        asking.append(asyncio.create_task(ask_one(questions, namespace)))
        await settle()
    assert source.asked == [one(each) for each in "abcd"]
    source.gate.set()
    assert await asyncio.gather(*asking) == [[float(ord(each))] for each in "abcdefgh"]
    assert source.asked[4:] == [among("e|f|g|h")]


async def test_a_question_of_another_time_does_not_wait_for_one_that_hangs(source) -> None:
    questions = SharedSource(source, FRESH)
    source.gate.clear()
    early = asyncio.create_task(ask_one(questions, "a", NOW))
    await settle()
    late = asyncio.create_task(ask_one(questions, "a", NOW + 1500))
    await settle()
    assert source.asked == [one("a"), one("a")]
    source.gate.set()
    assert await early == await late == [97.0]


async def test_rows_of_one_object_in_two_series_are_asked_for_exactly(source) -> None:
    """The order of several rows decides which counts, and only the exact query has the right one."""
    catalogue = rules("m{<<.LabelMatchers>>}", 10_000)
    for gpu in ("0", "1"):
        labels = {"__name__": "m", "namespace": "a", "pod": "p-0", "gpu": gpu}
        source.store.append(labels, NOW - 1000, 1.0)
    questions = SharedSource(source, FRESH)
    asked = [plan(each, catalogue=catalogue) for each in "ab"]
    values = await asyncio.gather(*(questions.custom(each, NOW) for each in asked))
    assert [len(value.samples) for value in values] == [3, 1]
    assert source.asked[1:] == ['m{namespace="a",pod="p-0"}']


async def test_who_leaves_takes_the_answer_from_nobody_else(source) -> None:
    questions = SharedSource(source, FRESH)
    source.gate.clear()
    leaving, staying = (asyncio.create_task(ask_one(questions, each)) for each in "aa")
    await settle()
    leaving.cancel()
    await settle()
    source.gate.set()
    assert await staying == [97.0]


async def test_close_ends_questions_that_wait_together(source) -> None:
    questions = SharedSource(source, FRESH)
    source.gate.clear()
    asking = [asyncio.create_task(ask_one(questions, each)) for each in "abc"]
    await settle()
    await questions.close()
    for task in asking:
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_flood_of_names_is_remembered_within_its_bytes(source) -> None:
    questions = SharedSource(source, FRESH)
    before = ACCOUNTANT.bytes_by_name().get("questions", 0)
    for number in range(1500):
        names = tuple(f"{number * 40 + each:0253}" for each in range(40))  # 10 KB and the query
        await questions.custom(plan("a", names, MANY), NOW + number)
    assert ACCOUNTANT.bytes_by_name()["questions"] - before <= 8 * 1024 * 1024
    assert ACCOUNTANT.total() <= ACCOUNTANT.most_bytes


async def test_nothing_is_widened_where_the_user_says_so(source) -> None:
    questions = SharedSource(source, AnswerSharing(freshness_ms=1000, widens=False))
    await ask_all(questions, "abcdefgh")
    assert len(source.asked) == 8


async def test_what_is_no_vector_stays_what_it_is(source) -> None:
    questions = SharedSource(source, AnswerSharing(freshness_ms=1000))
    ranges = rules("<<.Series>>{<<.LabelMatchers>>}[1m]")
    for namespace in "abcdefgh":
        value = await questions.custom(plan(namespace, catalogue=ranges), NOW)
        assert isinstance(value, Matrix)


async def test_a_joint_query_that_is_refused_is_left_alone_for_a_while(source) -> None:
    questions = SharedSource(source, FRESH)
    source.refused[among("a|b|c")] = QueryError("too many samples")

    async def ask(at_ms):
        return await asyncio.gather(*(ask_one(questions, each, at_ms) for each in "abc"))

    assert await ask(NOW) == [[97.0], [98.0], [99.0]]
    assert source.asked == [among("a|b|c"), one("a"), one("b"), one("c")]
    await ask(NOW + 5000)
    assert source.asked[4:] == [one("a"), one("b"), one("c")]
    source.refused.clear()
    await ask(NOW + 31_000)
    assert source.asked[7:] == [among("a|b|c")]


async def test_a_source_that_is_away_is_not_asked_twice(source) -> None:
    questions = SharedSource(source, FRESH)
    source.refused[among("a|b")] = UnavailableError("away")
    asking = (ask_one(questions, each) for each in "ab")
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert [str(error) for error in found] == ["away", "away"]
    assert source.asked == [among("a|b")]


NAMES = tuple(f"worker-{number:05d}.host" for number in range(2000))


def fill(source, names=NAMES) -> None:
    for number, name in enumerate(names):
        labels = {"__name__": "m", "namespace": "big", "pod": name}
        source.store.append(labels, NOW - 1000, float(number))


async def test_names_that_dont_fit_are_asked_for_in_parts(source) -> None:
    fill(source)
    fits = AnswerSharing(fits=lambda promql: len(promql) <= 16_000)
    value = await SharedSource(source, fits).custom(plan("big", NAMES), NOW)
    assert len(source.asked) > 1
    assert max(map(len, source.asked)) <= 16_000
    whole = await SharedSource(source, AnswerSharing(fits=lambda _: True)).custom(
        plan("big", NAMES), NOW
    )
    assert ".+" not in source.asked[-1]
    by_name = plan("big", NAMES).answer
    assert by_name(value) == by_name(whole)
    assert [each.value_milli for each in by_name(value)] == [1000 * n for n in range(2000)]


async def test_names_of_a_rule_that_looks_at_all_of_them_stay_together(source) -> None:
    names = NAMES[:400]
    fill(source)
    asked = plan("big", names, rules("topk(1, m{<<.LabelMatchers>>})"))
    value = await SharedSource(source, AnswerSharing(fits=lambda promql: len(promql) < 100)).custom(
        asked, NOW
    )
    assert len(source.asked) == 1
    # Of the 400 that were asked for, not of all: worker 1999 has the largest value.
    assert [row.labels["pod"] for row in value.samples] == [names[-1]]


async def test_an_error_of_one_part_is_the_answer(source) -> None:
    questions = SharedSource(source, AnswerSharing(fits=lambda promql: len(promql) < 16_000))
    source.refused = {}

    async def refuse(promql, at_ms) -> None:
        raise UpstreamError("no")

    source.query = refuse
    with pytest.raises(UpstreamError, match="no"):
        await questions.custom(plan("big", NAMES), NOW)


def test_values_older_than_the_limit_are_left_out_and_counted() -> None:
    limit = AgeLimit(120_000)
    rows = [VectorSample({"pod": str(age)}, 1.0, NOW - age) for age in (0, 120_000, 120_001, 9**9)]
    found = limit.fresh(Vector(tuple(rows)), NOW, "custom.metrics.k8s.io", "m")
    assert [row.labels["pod"] for row in found.samples] == ["0", "120000"]
    assert limit.stale == {("custom.metrics.k8s.io", "m"): 2}
    assert limit.ahead == {}
    assert limit.fresh(Scalar(1.0), NOW, "g", "m") == Scalar(1.0)
    assert AgeLimit().fresh(Vector(tuple(rows)), NOW, "g", "m") == Vector(tuple(rows))


def test_values_of_the_future_are_left_out_and_counted() -> None:
    for limit in (AgeLimit(120_000), AgeLimit()):
        ahead = (-9_999, 0, 10_000, 10_001, 3_600_000)
        rows = [VectorSample({"pod": str(ms)}, 1.0, NOW + ms) for ms in ahead]
        found = limit.fresh(Vector(tuple(rows)), NOW, "custom.metrics.k8s.io", "m")
        assert [row.labels["pod"] for row in found.samples] == ["-9999", "0", "10000"]
        assert limit.ahead == {("custom.metrics.k8s.io", "m"): 2}
        assert limit.stale == {}
