"""The same questions to a Prometheus over HTTP and to our store: the documents agree in every kind of value.

What queries answer is held against the newest engine in `tests/cluster/test_promql_differential.py`.
Samples reach Prometheus by remote write, so that both sides hold exactly the same times. Prometheus 2 takes a
sample on the left boundary of a range in and Prometheus 3 leaves it out; ours follows whichever is installed.
One more difference between those releases is not asked: how far a counter that began inside the range is
extrapolated when its zero point lies between half an interval and 1.1 intervals before its first sample. So
counters here begin well above zero.
"""

import math
import re

import pytest

from gpuscale.base.errors import QueryError
from gpuscale.series.promql.evaluate import instant, range_query
from gpuscale.series.storage.store import SeriesStore
from gpuscale.testing.prometheus import major_release, points_by_labels, query_data, serve

pytestmark = [pytest.mark.prometheus, pytest.mark.xdist_group("prometheus")]

START = 1_700_000_010
"""Seconds; a multiple of 15 and of 30, so that ranges end exactly on samples."""
STEP = 15
COUNT = 120
END = START + (COUNT - 1) * STEP


def gauge_values(node, gpu):
    return [(17 * i * (gpu + 1) + 31 * node + i * i) % 101 for i in range(COUNT)]


def counter_values(speed):
    """A counter that restarts twice."""
    values, value = [], 500.0
    for i in range(COUNT):
        value = 2.5 * i if i in {40, 90} else value + speed * (1 + i % 3)
        values.append(value)
    return values


def samples():
    """Yield the metric's name, labels, seconds and value of every sample."""
    for node in range(2):
        for gpu in range(3):
            labels = {
                "gpu": str(gpu),
                "Hostname": f"node-{node}",
                "namespace": "prod" if gpu else "dev",
                "pod": f"infer-{node}-{gpu % 2}",
            }
            for i, value in enumerate(gauge_values(node, gpu)):
                yield "DCGM_FI_DEV_GPU_UTIL", labels, START + i * STEP, value
                if i % 2 == 0:
                    yield "DCGM_FI_DEV_FB_USED", labels, START + i * STEP, 1000 * (gpu + 1) + value
    for path, speed in (("/v1/chat", 3.5), ("/v1/embed", 0.5), ("/healthz", 1)):
        for i, value in enumerate(counter_values(speed)):
            if path != "/healthz" or i % 7 < 4:
                yield "requests_total", {"path": path, "code": "200"}, START + i * STEP + 2, value
            if i > 60 and path == "/v1/chat":
                yield (
                    "requests_total",
                    {"path": path, "code": "500"},
                    START + i * STEP + 2,
                    i + 60.0,
                )
    for i in range(0, COUNT, 30):
        yield "sparse", {"kind": "gap"}, START + i * STEP, float(i)
    for i in range(COUNT):
        odd = (math.nan, math.inf, -math.inf, 1.5, -2.5, 0.0)[i % 6]
        yield "odd", {"kind": "special"}, START + i * STEP, odd
        yield "odd", {"kind": "plain"}, START + i * STEP, -1.5 + i / 8
        for position, bound in enumerate(("0.1", "0.5", "1", "+Inf")):
            value = float(i * (position + 1) * 2)
            yield "latency_seconds_bucket", {"le": bound, "job": "chat"}, START + i * STEP, value
    for node in range(2):
        for pod in range(2):
            labels = {"pod": f"infer-{node}-{pod}", "label_app": f"app-{pod}", "team": "ml"}
            for i in range(COUNT):
                yield "kube_pod_labels", labels, START + i * STEP, 1.0


GAUGE = "DCGM_FI_DEV_GPU_UTIL"
MEMORY = "DCGM_FI_DEV_FB_USED"
INSTANT = [
    GAUGE,
    f"{GAUGE} offset -1m",
    f"{GAUGE} @ end()",
    f"{GAUGE}[1m] offset 30s",
    "sparse",
    "nosuch",
    f"sum by (namespace, pod) ({GAUGE})",
    'count_values by (kind) ("value", odd)',
    "sum by (code) (rate(requests_total[5m]))",
    f"quantile_over_time(0.95, {GAUGE}[5m])",
    "max_over_time(odd[5m])",
    "max_over_time(rate(requests_total[1m])[10m:1m])",
    "odd / 0",
    f"{GAUGE} * on(pod) group_left(label_app, team) kube_pod_labels",
    'label_replace(odd, "kind", "two\\n\\"lines\\"", "kind", "s.*")',
    "histogram_quantile(0.5, sum by (le) (rate(latency_seconds_bucket[5m])))",
    f"sort_desc({GAUGE})",
    "time()",
    '"text"',
    "1e3",
    "-Inf",
    "NaN",
    "123456789.125",
]
FAILING = [
    f"{GAUGE} * on(pod) kube_pod_labels",
    f"{GAUGE} + on(Hostname) {MEMORY}",
    f"kube_pod_labels * on(pod) group_left {GAUGE}",
    'label_replace(odd, "kind", "same", "kind", ".*")',
    'abs({__name__=~"DCGM_FI_DEV_.*"})',
    'label_replace(odd, "", "", "", "")',
    "holt_winters(odd[5m], 2, 0.3)",
]
RANGES = [
    GAUGE,
    "sum(rate(requests_total[1m]))",
    f"{GAUGE} > 80",
    "sparse",
    "odd",
    f"sum({GAUGE} @ end()) - sum({GAUGE})",
    "time()",
    "1",
]
AT = [END, END - 7, END + 310]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory):
    given = (
        ({"__name__": name, **labels}, round(seconds * 1000), value)
        for name, labels, seconds, value in samples()
    )
    with serve(given, tmp_path_factory.mktemp("prometheus")) as running:
        yield running


@pytest.fixture(scope="module")
def store():
    store = SeriesStore(retention_ms=10**12)
    for name, labels, seconds, value in samples():
        assert store.append({"__name__": name, **labels}, seconds * 1000, value)
    return store


@pytest.fixture(scope="module")
def left_open():
    return major_release() >= 3


def named(query, left_open):
    """Return the query with the names that the installed release has."""
    return query.replace("holt_winters", "double_exponential_smoothing") if left_open else query


def assert_same(ours, theirs) -> None:
    assert ours["resultType"] == theirs["resultType"]
    left, right = points_by_labels(ours), points_by_labels(theirs)
    assert left.keys() == right.keys()
    for labels, points in right.items():
        assert [time for time, _ in left[labels]] == [time for time, _ in points]
        for (_, mine), (_, other) in zip(left[labels], points, strict=True):
            assert_close(mine, other, theirs["resultType"], labels)


def assert_close(mine, other, result_type, labels) -> None:
    if mine == other:
        return
    assert result_type != "string"
    assert math.isclose(float(mine), float(other), rel_tol=1e-9, abs_tol=1e-9), (
        labels,
        mine,
        other,
    )


@pytest.mark.parametrize("query", INSTANT)
def test_instant_query_agrees_with_prometheus(query, prometheus, store, left_open) -> None:
    query = named(query, left_open)
    for seconds in AT:
        theirs = prometheus.get("/api/v1/query", query=query, time=seconds)
        assert theirs["status"] == "success", theirs
        value = instant(store, query, seconds * 1000, left_open=left_open)
        ours = query_data(value, seconds * 1000)
        assert_same(ours, theirs["data"])


@pytest.mark.parametrize("query", FAILING)
def test_failing_query_says_what_prometheus_says(query, prometheus, store, left_open) -> None:
    query = named(query, left_open)
    theirs = prometheus.get("/api/v1/query", query=query, time=END)
    assert theirs["status"] == "error"
    with pytest.raises(QueryError) as caught:
        instant(store, query, END * 1000, left_open=left_open)
    if "found duplicate series" in theirs["error"]:
        # Prometheus 2 names the pair in the order it meets them, Prometheus 3 sorts it, as ours does.
        cut = re.compile(r"\[.*\]")
        assert cut.sub("", str(caught.value)) == cut.sub("", theirs["error"])
    else:
        assert str(caught.value) == theirs["error"]


@pytest.mark.parametrize("query", RANGES)
@pytest.mark.parametrize(("start", "end", "step"), [(START, END, 60), (START - 7, END + 400, 31)])
def test_range_query_agrees_with_prometheus(
    query, start, end, step: int, prometheus, store, left_open
) -> None:
    theirs = prometheus.get("/api/v1/query_range", query=query, start=start, end=end, step=step)
    assert theirs["status"] == "success", theirs
    value = range_query(store, query, start * 1000, end * 1000, step * 1000, left_open=left_open)
    assert_same(query_data(value, end * 1000), theirs["data"])
