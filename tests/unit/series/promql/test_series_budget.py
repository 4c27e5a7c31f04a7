import pytest

from gpuscale.core.errors import QueryError
from gpuscale.series.promql.budget import QueryTimeoutError
from gpuscale.series.promql.evaluate import instant, range_query
from gpuscale.series.storage.store import SeriesStore

STORE = SeriesStore()
for t_ms in (60_000, 120_000):
    STORE.append({"__name__": "util_a"}, t_ms, 1)
    STORE.append({"__name__": "util_b"}, t_ms, 1)


def test_a_query_that_would_touch_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuscale.series.promql.budget.MAX_SAMPLES", 3)
    with pytest.raises(QueryError) as caught:
        instant(STORE, "sum_over_time(util_a[5m]) + sum_over_time(util_b[5m])", 130_000)
    assert str(caught.value) == (
        "query processing would load too many samples into memory in query execution"
    )


def test_what_a_step_has_read_is_let_go_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuscale.series.promql.budget.MAX_SAMPLES", 60)
    store = SeriesStore()
    for t_ms in range(0, 1_000_000, 10_000):
        store.append({"__name__": "c"}, t_ms, t_ms)
    # 30 samples a window and 11 results; all windows together hold 330.
    answer = range_query(store, "sum(rate(c[5m]))", 300_000, 900_000, 60_000)
    assert [value for _, value in answer.series[0].points] == [1000.0] * 11
    # The results alone are 61.
    with pytest.raises(QueryError, match="too many samples"):
        range_query(store, "c", 300_000, 900_000, 10_000)


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
