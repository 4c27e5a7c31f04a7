import re

import pytest

from gpuscale.base.errors import QueryError
from gpuscale.series.promql import evaluate
from gpuscale.series.promql.budget import Budget, QueryTimeoutError
from gpuscale.series.promql.evaluate import instant, range_query
from gpuscale.series.storage.store import SeriesStore
from gpuscale.testing import vectorised

STORE = SeriesStore()
for t_ms in (60_000, 120_000):
    STORE.append({"__name__": "util_a"}, t_ms, 1)
    STORE.append({"__name__": "util_b"}, t_ms, 1)


def test_a_query_that_would_hold_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuscale.series.promql.budget.MAX_BYTES", 700)
    with pytest.raises(QueryError) as caught:
        instant(STORE, "sum_over_time(util_a[5m]) + sum_over_time(util_b[5m])", 130_000)
    # Each side: a window of two samples, 250 + 2 * 16 bytes, which is let go, and a row with a label set.
    assert re.fullmatch(
        "query processing would load too many samples into memory in query execution: [0-9]+ bytes, "
        "0 of them in labels that the query makes, expected at most 700; "
        "select fewer series or a shorter range, take a larger step, or aggregate first",
        str(caught.value),
    )


def test_what_a_step_has_read_is_let_go_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuscale.series.promql.budget.MAX_BYTES", 2_500)
    store = SeriesStore()
    for t_ms in range(0, 1_000_000, 10_000):
        store.append({"__name__": "c"}, t_ms, t_ms)
    # 30 samples of 16 bytes a window, and 11 results of 40; all windows together hold 330 samples.
    answer = range_query(store, "sum(rate(c[5m]))", 300_000, 900_000, 60_000)
    assert [value for _, value in answer.series[0].points] == [1000.0] * 11
    # The results alone are 61.
    with pytest.raises(QueryError, match="too many samples"):
        range_query(store, "c", 300_000, 900_000, 10_000)


TEXT = "x" * 1_000
"""Of 1 000 bytes, and 49 that hold it: `sys.getsizeof`."""


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        # What the store has is only referred to.
        ("many", 0),
        ("sum by (pod) (many)", 0),
        ("many * on (pod) group_left (long) long", 0),
        (f'sum without (a) (label_replace(many, "a", "{TEXT}", "pod", "none"))', 0),
        # A new text for each series, though its label set may be gone in the end.
        (f'label_replace(many, "a", "${{1}}{TEXT}", "pod", "(.*)")', 20),
        (f'count(label_replace(many, "a", "${{1}}{TEXT}", "pod", "(.*)"))', 20),
        (f'label_join(many, "a", "{TEXT}", "pod", "pod")', 20),
        (f'count by (pod) (label_join(many, "a", "{TEXT}", "pod", "pod"))', 20),
        # One text for all series that have the same value.
        (f'label_replace(many, "a", "{TEXT}", "no", "(.*)")', 1),
        # Texts that are handed on to other label sets are counted once.
        (f'-label_replace(many, "a", "${{1}}{TEXT}", "pod", "(.*)")', 20),
        (
            f'label_replace(many, "a", "${{1}}{TEXT}", "pod", "(.*)") * on (pod) group_left () many',
            20,
        ),
        (
            f'many * on (pod) group_left (a) label_replace(many, "a", "${{1}}{TEXT}", "pod", "(.*)")',
            20,
        ),
        (f'many or label_replace(many, "a", "${{1}}{TEXT}", "pod", "(.*)")', 20),
        (f'topk(1, label_replace(many, "a", "${{1}}{TEXT}", "pod", "(.*)"))', 20),
        # A chain makes them at every link.
        (f'label_join(label_join(many, "a", "{TEXT}", "pod", "pod"), "b", "", "a", "pod")', 40),
        (f'max_over_time(label_join(many, "a", "{TEXT}", "pod", "pod")[1m:1m])', 20),
    ],
)
@pytest.mark.parametrize("way", [evaluate.instant, vectorised.instant])
def test_texts_that_a_query_makes_are_counted_once(query: str, texts: int, way) -> None:
    store = SeriesStore()
    for number in range(20):
        store.append({"__name__": "many", "pod": str(number)}, 60_000, number)
        store.append({"__name__": "long", "pod": str(number), "long": TEXT}, 60_000, number)
    budget = Budget()
    way(store, query, 60_000, check=budget)
    # Label sets are some hundred bytes each, of which there are a few for each series.
    assert texts * 1_049 <= budget.most <= texts * 1_100 + 20 * 2_000


@pytest.mark.parametrize(
    ("query", "evaluations"),
    [
        ("1 + 1", 3),
        ("sum(c)", 2),
        # The range vector, its selector, and the call.
        ("rate(c[5m])", 3),
        # 60 steps of vector(1), the subquery and the call.
        ("sum_over_time(vector(1)[60s:1s])", 2 + 60 * 2),
        ("max_over_time(sum_over_time(vector(1)[60s:1s])[10s:1s])", 2 + 10 * (2 + 60 * 2)),
    ],
)
def test_the_work_of_a_query_is_known_before(
    query: str, evaluations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuscale.series.promql.budget.MAX_WORK", evaluations - 1)
    monkeypatch.setattr("gpuscale.series.promql.evaluate._Evaluation", None)
    with pytest.raises(QueryError, match=f"at least {evaluations} expressions, expected at most"):
        instant(STORE, query, 0)


def test_a_deadline_is_looked_at_every_few_thousand_evaluations() -> None:
    asked = []

    def check() -> None:
        asked.append(None)
        if len(asked) == 3:
            raise QueryTimeoutError("query timed out in expression evaluation")

    with pytest.raises(QueryTimeoutError):
        instant(STORE, "sum_over_time(vector(1)[4000000s:1s])", 0, check=check)
    assert len(asked) == 3
