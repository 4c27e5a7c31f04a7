"""docs/promql.md is true: each example of its tables is asked, and no part of the language is left out."""

import re
from pathlib import Path

import pytest

from gpuscale.base.errors import QueryError
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.promql.functions.aggregate import AGGREGATORS
from gpuscale.series.promql.functions.functions import FUNCTIONS
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Scalar, Vector

PAGE = (Path(__file__).parents[2] / "docs" / "promql.md").read_text()
ROW = re.compile(r"^\| (?P<part>.+?) \| `(?P<query>.+?)` \| (?P<here>yes|no: .+) \|$", re.MULTILINE)
AT_MS = 1_700_000_000_000

# Prometheus 3.14, promql/parser/functions.go, and what release 2 called one of them.
UPSTREAM_FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        """
    abs absent absent_over_time acos acosh asin asinh atan atanh avg_over_time ceil changes clamp clamp_max
    clamp_min cos cosh count_over_time day_of_month day_of_week day_of_year days_in_month deg delta deriv
    double_exponential_smoothing end exp first_over_time floor histogram_avg histogram_count
    histogram_fraction histogram_quantile histogram_quantiles histogram_stddev histogram_stdvar histogram_sum
    holt_winters hour idelta increase info irate label_join label_replace last_over_time ln log10 log2
    mad_over_time max_of max_over_time min_of min_over_time minute month pi predict_linear present_over_time
    quantile_over_time rad range rate resets round scalar sgn sin sinh sort sort_by_label sort_by_label_desc
    sort_desc sqrt start start_timestamp stddev_over_time stdvar_over_time step sum_over_time tan tanh time
    timestamp ts_of_first_over_time ts_of_last_over_time ts_of_max_over_time ts_of_min_over_time vector year
    """,
    )
)
# The same release, promql/parser/lex.go.
UPSTREAM_AGGREGATIONS = frozenset(
    re.findall(
        r"\w+",
        """
    avg bottomk count count_values group limit_ratio limitk max min quantile stddev stdvar sum topk
    """,
    )
)


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]


def rows(text):
    return {match["part"].strip("`"): match["here"] for match in ROW.finditer(text)}


@pytest.fixture(scope="module")
def store():
    store = SeriesStore()
    for t_ms in range(AT_MS - 600_000, AT_MS + 1, 15_000):
        for i in range(2):
            pod = {"pod": f"p-{i}"}
            for gpu in "01":
                store.append({"__name__": "util", "gpu": gpu, **pod}, t_ms, 20.0 + i + int(gpu))
            store.append({"__name__": "info", "app": f"app-{i}", **pod}, t_ms, 1.0)
        store.append({"__name__": "requests_total", "path": "/chat"}, t_ms, t_ms / 1000)
        for count, le in ((10, "0.1"), (30, "1"), (40, "+Inf")):
            store.append({"__name__": "latency_seconds_bucket", "le": le}, t_ms, count)
    return store


@pytest.mark.parametrize("row", list(ROW.finditer(PAGE)), ids=lambda row: row["part"])
def test_an_example_is_answered_or_refused_as_the_page_says(row, store) -> None:
    if row["here"] == "yes":
        value = instant(store, row["query"], AT_MS)
        assert isinstance(value, Scalar) or (
            value.samples if isinstance(value, Vector) else value.series
        )
    else:
        with pytest.raises(QueryError) as caught:
            instant(store, row["query"], AT_MS)
        assert f"no: {caught.value}" == row["here"]


def test_every_function_of_prometheus_has_a_row() -> None:
    assert rows(section("Functions")).keys() == UPSTREAM_FUNCTIONS


def test_the_functions_that_are_here_are_those_that_can_be_called() -> None:
    found = {name for name, here in rows(section("Functions")).items() if here == "yes"}
    assert found == FUNCTIONS


def test_every_aggregation_of_prometheus_has_a_row_and_is_here() -> None:
    assert rows(section("Aggregations")).keys() == UPSTREAM_AGGREGATIONS == AGGREGATORS


@pytest.mark.parametrize(
    "row", list(ROW.finditer(section("Functions"))), ids=lambda row: row["part"]
)
def test_an_example_calls_the_function_of_its_row(row) -> None:
    assert f"{row['part'].strip('`')}(" in row["query"]
