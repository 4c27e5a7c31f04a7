"""docs/promql.md is true: what it says is here is asked, and no part of the language is left out."""

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


EXAMPLES = {
    "avg": "avg by (pod) (util)",
    "bottomk": "bottomk(2, util)",
    "count": "count without (gpu) (util)",
    "count_values": 'count_values("value", util)',
    "group": "group by (pod) (util)",
    "limit_ratio": "limit_ratio(1, util)",
    "limitk": "limitk(1, util)",
    "max": "max(util)",
    "min": "min(util)",
    "quantile": "quantile(0.9, util)",
    "stddev": "stddev(util)",
    "stdvar": "stdvar(util)",
    "sum": "sum(util) by (pod)",
    "topk": "topk by (pod) (1, util)",
    "abs": "abs(util - 50)",
    "absent": "absent(nosuch)",
    "absent_over_time": "absent_over_time(nosuch[5m])",
    "acos": "acos(util / 100)",
    "acosh": "acosh(util)",
    "asin": "asin(util / 100)",
    "asinh": "asinh(util)",
    "atan": "atan(util)",
    "atanh": "atanh(util / 100)",
    "avg_over_time": "avg_over_time(util[5m])",
    "ceil": "ceil(util / 3)",
    "changes": "changes(util[5m])",
    "clamp": "clamp(util, 20, 80)",
    "clamp_max": "clamp_max(util, 80)",
    "clamp_min": "clamp_min(util, 20)",
    "cos": "cos(util)",
    "cosh": "cosh(util)",
    "count_over_time": "count_over_time(util[5m])",
    "day_of_month": "day_of_month()",
    "day_of_week": "day_of_week()",
    "day_of_year": "day_of_year()",
    "days_in_month": "days_in_month()",
    "deg": "deg(util)",
    "delta": "delta(util[5m])",
    "deriv": "deriv(util[5m])",
    "double_exponential_smoothing": "double_exponential_smoothing(util[5m], 0.5, 0.5)",
    "end": "end()",
    "exp": "exp(util)",
    "first_over_time": "first_over_time(util[5m])",
    "floor": "floor(util / 3)",
    "histogram_fraction": "histogram_fraction(0, 1, latency_seconds_bucket)",
    "histogram_quantile": "histogram_quantile(0.9, latency_seconds_bucket)",
    "histogram_quantiles": 'histogram_quantiles(latency_seconds_bucket, "q", 0.5, 0.9)',
    "holt_winters": "holt_winters(util[5m], 0.5, 0.5)",
    "hour": "hour()",
    "idelta": "idelta(util[5m])",
    "increase": "increase(requests_total[5m])",
    "irate": "irate(requests_total[5m])",
    "label_join": 'label_join(util, "id", "/", "pod", "gpu")',
    "label_replace": 'label_replace(util, "number", "$1", "pod", "p-(.*)")',
    "last_over_time": "last_over_time(util[5m])",
    "ln": "ln(util)",
    "log10": "log10(util)",
    "log2": "log2(util)",
    "mad_over_time": "mad_over_time(util[5m])",
    "max_of": "max_of(1, time())",
    "max_over_time": "max_over_time(util[5m])",
    "min_of": "min_of(1, time())",
    "min_over_time": "min_over_time(util[5m])",
    "minute": "minute()",
    "month": "month()",
    "pi": "pi()",
    "predict_linear": "predict_linear(util[5m], 600)",
    "present_over_time": "present_over_time(util[5m])",
    "quantile_over_time": "quantile_over_time(0.9, util[5m])",
    "rad": "rad(util)",
    "range": "range()",
    "rate": "rate(requests_total[5m])",
    "resets": "resets(requests_total[5m])",
    "round": "round(util, 10)",
    "scalar": "scalar(sum(util))",
    "sgn": "sgn(util - 50)",
    "sin": "sin(util)",
    "sinh": "sinh(util / 100)",
    "sort": "sort(util)",
    "sort_by_label": 'sort_by_label(util, "pod")',
    "sort_by_label_desc": 'sort_by_label_desc(util, "pod")',
    "sort_desc": "sort_desc(util)",
    "sqrt": "sqrt(util)",
    "start": "start()",
    "stddev_over_time": "stddev_over_time(util[5m])",
    "stdvar_over_time": "stdvar_over_time(util[5m])",
    "step": "step()",
    "sum_over_time": "sum_over_time(util[5m])",
    "tan": "tan(util)",
    "tanh": "tanh(util)",
    "time": "time()",
    "timestamp": "timestamp(util)",
    "ts_of_first_over_time": "ts_of_first_over_time(util[5m])",
    "ts_of_last_over_time": "ts_of_last_over_time(util[5m])",
    "ts_of_max_over_time": "ts_of_max_over_time(util[5m])",
    "ts_of_min_over_time": "ts_of_min_over_time(util[5m])",
    "vector": "vector(1)",
    "year": "year()",
}
"""A query for each function and aggregation that is here."""


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)[1]


def listed(title):
    """Return the names in the paragraph below the section's first line."""
    return set(re.findall(r"`(\w+)`", section(title).split("\n\n")[1]))


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


def is_answered(store, query):
    value = instant(store, query, AT_MS)
    return isinstance(value, Scalar) or bool(
        value.samples if isinstance(value, Vector) else value.series
    )


@pytest.mark.parametrize("row", list(ROW.finditer(PAGE)), ids=lambda row: row["part"])
def test_an_example_is_answered_or_refused_as_the_page_says(row, store) -> None:
    if row["here"] == "yes":
        assert is_answered(store, row["query"])
    else:
        with pytest.raises(QueryError) as caught:
            instant(store, row["query"], AT_MS)
        assert f"no: {caught.value}" == row["here"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_function_that_is_listed_is_answered(name, store) -> None:
    assert re.search(rf"\b{name}\b", EXAMPLES[name])
    assert is_answered(store, EXAMPLES[name])


def test_every_function_of_prometheus_is_listed_or_refused() -> None:
    refused = rows(section("Functions"))
    assert "yes" not in refused.values()
    assert listed("Functions") | refused.keys() == UPSTREAM_FUNCTIONS
    assert listed("Functions") == FUNCTIONS


def test_every_aggregation_of_prometheus_is_listed_and_here() -> None:
    assert listed("Aggregations") == UPSTREAM_AGGREGATIONS == AGGREGATORS


def test_each_that_is_listed_has_its_example() -> None:
    assert listed("Functions") | listed("Aggregations") == EXAMPLES.keys()
