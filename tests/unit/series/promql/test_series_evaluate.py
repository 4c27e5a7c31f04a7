import pytest

from gpuscale.base.errors import UncoveredError
from gpuscale.series.labels import label_set
from gpuscale.series.promql.evaluate import instant, range_query
from gpuscale.series.promql.functions import aggregate
from gpuscale.series.promql.functions.aggregate import grouping
from gpuscale.series.promql.parse import parse_query
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Matrix, MatrixSeries, Scalar, StringValue, Vector, VectorSample
from gpuscale.testing import vectorised


@pytest.fixture(autouse=True, params=["rows", "columns"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluate row by row, and with numpy."""
    if request.param == "columns":
        monkeypatch.setattr(request.module, "instant", vectorised.instant)
        monkeypatch.setattr(request.module, "range_query", vectorised.range_query)


def store_of(**series):
    """Return a store of `name=((t_ms, value), ...)`."""
    store = SeriesStore()
    for name, points in series.items():
        for t_ms, value in points:
            store.append({"__name__": name, "pod": name[-1]}, t_ms, value)
    return store


STORE = store_of(
    util_a=((60_000, 1), (120_000, 2)), util_b=((60_000, 3), (110_000, 4)), limit=((90_000, 5),)
)


def measured(query, at_ms=130_000):
    return [sample.measured_ms for sample in instant(STORE, query, at_ms).samples]


def test_a_selector_says_when_its_sample_was_measured() -> None:
    assert measured("util_a") == [120_000]
    assert measured("util_a offset 30s") == [60_000]


def test_a_range_function_says_when_its_last_sample_was_measured() -> None:
    assert measured("avg_over_time(util_b[2m])") == [110_000]


def test_a_subquery_says_when_its_last_value_was_measured() -> None:
    # Steps at 60 s and 120 s; at 120 s util_b is that of 110 s.
    assert measured("max_over_time(util_b[2m:1m])") == [110_000]


def test_an_aggregation_is_as_old_as_the_oldest_of_what_contributed() -> None:
    assert measured('sum({__name__=~"util_.*"})') == [110_000]
    assert measured('topk(1, {__name__=~"util_.*"})') == [110_000]


def test_an_operation_is_as_old_as_its_older_side() -> None:
    assert measured("util_a / on() limit") == [90_000]
    assert measured("util_a and on() limit") == [90_000]
    assert measured("util_a * scalar(limit)") == [90_000]
    assert measured("util_a * 2") == [120_000]
    assert measured("vector(scalar(limit))") == [90_000]
    assert measured('histogram_quantile(0.5, label_replace(util_a, "le", "+Inf", "", ""))') == [
        120_000
    ]


def test_what_nothing_was_measured_for_is_of_the_time_of_evaluation() -> None:
    assert measured("vector(1)") == [130_000]
    assert measured("absent(nosuch)") == [130_000]


def test_each_kind_of_value_has_its_type() -> None:
    assert instant(STORE, "1 + 1", 0) == Scalar(2.0)
    assert instant(STORE, '"a"', 0) == StringValue("a")
    assert instant(STORE, parse_query("util_a"), 130_000) == Vector(
        (VectorSample({"__name__": "util_a", "pod": "a"}, 2.0, 120_000),)
    )
    assert instant(STORE, "util_a[5m]", 130_000) == Matrix(
        (MatrixSeries({"__name__": "util_a", "pod": "a"}, ((60_000, 1.0), (120_000, 2.0))),)
    )


def test_the_lookback_can_be_shorter() -> None:
    assert instant(STORE, "limit", 100_000, lookback_ms=10_001).samples
    assert not instant(STORE, "limit", 100_000, lookback_ms=10_000).samples


@pytest.mark.parametrize(("left_open", "count"), [(True, 1), (False, 2)])
def test_the_left_boundary_is_open_as_since_prometheus_3_or_closed_as_before(
    left_open: bool, count: int
) -> None:
    value = instant(STORE, "count_over_time(util_a[1m])", 120_000, left_open=left_open)
    assert value.samples[0].value == count
    at_edge = instant(STORE, "limit", 390_000, left_open=left_open)
    assert len(at_edge.samples) == count - 1


def test_a_range_query_sorts_by_labels_and_leaves_gaps() -> None:
    value = range_query(STORE, '{__name__=~"limit|util_b"}', 60_000, 120_000, 30_000)
    assert value == Matrix(
        (
            MatrixSeries({"__name__": "limit", "pod": "t"}, ((90_000, 5.0), (120_000, 5.0))),
            MatrixSeries(
                {"__name__": "util_b", "pod": "b"}, ((60_000, 3.0), (90_000, 3.0), (120_000, 4.0))
            ),
        )
    )


def test_what_is_older_than_the_retention_is_not_answered() -> None:
    store = SeriesStore(retention_ms=60_000)
    store.append({"__name__": "a"}, 0, 1)
    store.append({"__name__": "a"}, 30_000, 2)
    store.append({"__name__": "a"}, 61_000, 3)
    assert [p for s in instant(store, "a[1m]", 61_000).series for p in s.points] == [
        (30_000, 2.0),
        (61_000, 3.0),
    ]
    with pytest.raises(UncoveredError):
        instant(store, "a[5m]", 61_000)
    assert instant(store, "a", 500).samples == ()


def test_the_same_store_gives_the_same_order() -> None:
    names = [str(each.labels) for each in instant(STORE, '{pod=~".+"}', 130_000).samples]
    assert names == ['util_a{pod="a"}', 'util_b{pod="b"}', 'limit{pod="t"}']


# As in Prometheus' own cases for these labels (type_and_unit.test).
@pytest.mark.parametrize(
    "query",
    [
        "-j",
        "j * 2",
        "j > bool 1",
        "j == bool j",
        "j / ignoring(x) j",
        "abs(j)",
        "rate(j[1m])",
        "max_over_time(j[1m])",
        "sum by (gpu) (j)",
    ],
)
def test_type_and_unit_go_with_the_name(query: str) -> None:
    (sample,) = instant(_typed(), query, 60_000).samples
    assert dict(sample.labels) == {"gpu": "0"}


@pytest.mark.parametrize("query", ["+j", "j > 1", "j and j", "last_over_time(j[1m])", "topk(1, j)"])
def test_type_and_unit_stay_with_the_name(query: str) -> None:
    (sample,) = instant(_typed(), query, 60_000).samples
    assert {"__name__", "__type__", "__unit__"} < set(sample.labels)


def _typed():
    store = SeriesStore()
    labels = {"__name__": "j", "__type__": "counter", "__unit__": "joules", "gpu": "0"}
    for t_ms in range(0, 61_000, 15_000):
        store.append(labels, t_ms, 60 + t_ms)
    return store


def test_groups_are_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """100 series at a time, all of them others each time, with texts of 1 000 characters."""
    monkeypatch.setattr("gpuscale.series.promql.functions.aggregate._REMEMBERED_BYTES", 500_000)
    for turn in range(50):
        groups = grouping((f"node{turn % 3}",), by=False)
        for number in range(100):
            labels = label_set({"pod": f"{turn}-{number}" * 200, "node": str(number)})
            assert groups.of(labels).value("node") == str(number)
            assert groups.of(labels) == groups.made(labels)
        known = aggregate._groupings._known.values()
        texts = [text for each in known for key in each._remembered for text in key[1:]]
        assert sum(map(len, texts)) <= 500_000
