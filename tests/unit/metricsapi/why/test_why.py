"""Why there is no value: each hop that can give nothing, in the words that are told.

The words stand in `why_messages.txt`, one block a case, as one reads them at night.
"""

import json
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import (
    QueryError,
    UnavailableError,
    UncoveredError,
    UpstreamError,
    UsageError,
)
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.offline_why.target import why_path
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.routes import add_routes
from gpuscale.server.metricsapi.why.text import age_text, text_lines
from gpuscale.server.metricsapi.wire.statuses import ListError
from gpuscale.server.rules.config import load_rules
from gpuscale.server.sources.embedded import EmbeddedSource

NOW_MS = 1_700_000_000_000
RULES = """
rules:
- seriesQuery: '{__name__=~"DCGM_.*",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: requests_total
  seriesFilters: [{is: _total$}]
  name: {matches: ^(.*)_total$, as: '${1}_per_second'}
  resources: {template: <<.Resource>>}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[30s])) by (<<.GroupBy>>)
- seriesQuery: ungrouped
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>})
- seriesQuery: renamed
  resources: {template: <<.Resource>>}
  metricsQuery: label_replace(<<.Series>>{<<.LabelMatchers>>},"pod","x","","")
- seriesQuery: ratio
  resources: {template: <<.Resource>>}
  metricsQuery: avg(ratio{<<.LabelMatchers>>}) by (pod) / (avg(ratio{<<.LabelMatchers>>}) by (pod) * 0)
- seriesQuery: matrix
  resources: {template: <<.Resource>>}
  metricsQuery: <<.Series>>{<<.LabelMatchers>>}[5m]
- seriesQuery: placeless
  resources: {overrides: {pod: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: wide
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>) by (pod)
- seriesQuery: once
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: once{x!=""}
  resources: {template: <<.Resource>>}
  metricsQuery: max(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: gone
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: pinned
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) * 0 + on() group_left() sum(depth)
externalRules:
- {seriesQuery: depth, resources: {namespaced: false}, metricsQuery: 'depth{<<.LabelMatchers>>}'}
- seriesQuery: backlog
  resources: {template: <<.Resource>>}
  metricsQuery: sum(backlog{<<.LabelMatchers>>})
- {seriesQuery: homeless, resources: {overrides: {pod: {resource: pod}}}, metricsQuery: 'sum(homeless)'}
- {seriesQuery: lag, resources: {namespaced: false}, metricsQuery: sum(lag)}
- {seriesQuery: nothing, resources: {namespaced: false}, metricsQuery: 'sum(nothing) / 0 * 0'}
- {seriesQuery: broken, resources: {namespaced: false}, metricsQuery: sum(<<.Serie>>)}
"""
# name, seconds ago, value, labels
SAMPLES = (
    ("DCGM_FI_DEV_FB_USED", 2.5, 50.0, {"namespace": "ml", "pod": "web-0"}),
    ("DCGM_FI_DEV_GPU_UTIL", 2.5, 50.0, {"namespace": "gpu-operator", "pod": "exporter-1"}
     | {"exported_namespace": "ml", "exported_pod": "web-0"}),
    ("DCGM_FI_DEV_GPU_UTIL", 2.5, 50.0, {"namespace": "gpu-operator", "pod": "exporter-2"}
     | {"exported_namespace": "secret-team", "exported_pod": "secret-pod"}),
    ("DCGM_FI_DEV_MEM_CLOCK", 2.5, 50.0, {"namespace": "ml", "pod": "exporter"}),
    ("DCGM_FI_DEV_POWER_USAGE", 3600.0, 50.0, {"namespace": "ml", "pod": "web-0"}),
    ("DCGM_FI_DEV_SM_CLOCK", 2.5, 50.0, {"namespace": "ml"}),
    ("DCGM_FI_DEV_FB_FREE", 400.0, 50.0, {"namespace": "ml", "pod": "web-0"}),
    ("requests_total", 2.5, 5.0, {"namespace": "ml", "pod": "web-0"}),
    ("ungrouped", 2.5, 5.0, {"namespace": "ml", "pod": "web-0"}),
    ("renamed", 2.5, 5.0, {"namespace": "ml", "pod": "web-0"}),
    ("ratio", 2.5, 5.0, {"namespace": "ml", "pod": "web-0"}),
    ("matrix", 2.5, 5.0, {"namespace": "ml", "pod": "web-0"}),
    ("placeless", 2.5, 5.0, {"pod": "web-0"}),
    ("wide", 2.5, 5.0, {"namespace": "ml", "pod": "web-0"}),
    ("wide", 2.5, 5.0, {"namespace": "secret-team", "pod": "secret-pod"}),
    ("once", 2.5, 5.0, {"namespace": "ml", "pod": "web-0", "x": "1"}),
    ("depth", 2.5, 42.0, {"q": "a"}),
    ("backlog", 2.5, 42.0, {"namespace": "other"}),
    ("pinned", 2.5, 1.0, {"namespace": "ml", "pod": "web-0"}),
    ("lag", 2.5, 5000.0, {"group": "frames"}),
    ("lag", 2.5, 10.0, {"group": "audio"}),
    ("homeless", 2.5, 42.0, {"pod": "web-0"}),
    ("nothing", 2.5, 42.0, {}),
)  # fmt: skip
CUSTOM = "/apis/custom.metrics.k8s.io/v1beta1"
EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
POD = f"{CUSTOM}/namespaces/ml/pods/web-0"
CASES = {
    "there is a value": f"{POD}/DCGM_FI_DEV_FB_USED",
    "some have one": f"{CUSTOM}/namespaces/ml/pods/*/DCGM_FI_DEV_FB_USED",
    "rule: no such resource": f"{CUSTOM}/namespaces/ml/podz/web-0/a",
    "rule: not in a namespace": f"{CUSTOM}/namespaces/ml/nodes/n1/a",
    "rule: a near name": f"{POD}/DCGM_FI_DEV_GPU_UTL",
    "rule: the series is called otherwise": f"{POD}/requests_total",
    "rule: it is external": f"{POD}/depth",
    "rule: two give it": f"{POD}/once",
    "rule: left out": f"{EXTERNAL}/namespaces/ml/broken",
    "series: not in the source": f"{POD}/gone",
    "series: matchers leave them out": f"{POD}/DCGM_FI_DEV_SM_CLOCK",
    "series: too old": f"{POD}/DCGM_FI_DEV_POWER_USAGE",
    "labels: none for the resource": f"{CUSTOM}/namespaces/ml/services/web/DCGM_FI_DEV_FB_USED",
    "labels: none for the namespace": f"{POD}/placeless",
    "objects: no such pod": f"{CUSTOM}/namespaces/ml/pods/web-7/DCGM_FI_DEV_FB_USED",
    "objects: none selected": f"{CUSTOM}/namespaces/ml/pods/*/DCGM_FI_DEV_FB_USED?labelSelector=app=no",
    "query: another namespace": f"{POD}/DCGM_FI_DEV_GPU_UTIL",
    "query: another pod": f"{POD}/DCGM_FI_DEV_MEM_CLOCK",
    "query: samples beyond the lookback": f"{POD}/DCGM_FI_DEV_FB_FREE",
    "query: one sample in the range": f"{POD}/requests_per_second",
    "query: the selector": f"{POD}/DCGM_FI_DEV_FB_USED?metricLabelSelector=gpu=7",
    "query: a selector that can't be asked": f"{POD}/DCGM_FI_DEV_FB_USED?metricLabelSelector=gpu>7",
    "query: no vector": f"{POD}/matrix",
    "rows: without the label": f"{POD}/ungrouped",
    "rows: of other objects": f"{POD}/renamed",
    "rows: some of other objects": f"{POD}/wide",
    "there is a value: a selector that reaches no matcher": f"{POD}/wide?metricLabelSelector=gpu=7",
    "there is a value: one number for all": f"{CUSTOM}/namespaces/ml/pods/*/pinned",
    "value: infinite": f"{POD}/ratio",
    "external: there is a value": f"{EXTERNAL}/namespaces/ml/depth",
    "external: it is custom": f"{EXTERNAL}/namespaces/ml/ungrouped",
    "external: no label for the namespace": f"{EXTERNAL}/namespaces/ml/homeless",
    "external: another namespace": f"{EXTERNAL}/namespaces/ml/backlog",
    "external: the selector": f"{EXTERNAL}/namespaces/ml/depth?labelSelector=q=b",
    "external: a selector that reaches no matcher": f"{EXTERNAL}/namespaces/ml/lag?labelSelector=group=audio",
    "external: NaN": f"{EXTERNAL}/namespaces/ml/nothing",
}


class Directory:
    """Two pods with the label app=web."""

    def names(self, resource, namespace, selector):
        if (resource.name, namespace) == ("pods", "ml") and selector.matches({"app": "web"}):
            return ("web-0", "web-1")
        return ()


class NobodyKnows:
    def names(self, resource, namespace, selector) -> None:
        raise ListError


def embedded() -> EmbeddedSource:
    store = SeriesStore(retention_ms=86_400_000)
    for name, seconds, value, labels in SAMPLES:
        store.append({"__name__": name, **labels}, NOW_MS - round(seconds * 1000), value)
    return EmbeddedSource(store)


def provider(source=None, directory=None, **settings) -> MetricsProvider:
    return MetricsProvider(
        load_rules(RULES, "rules.yaml", disables=True),
        source or embedded(),
        directory or Directory(),
        ManualClock(NOW_MS),
        relist_interval_s=600,
        **settings,
    )


class Asking:
    """A client of one provider."""

    def __init__(self, client) -> None:
        self.client = client

    async def document(self, path):
        mark = "&" if "?" in path else "?"
        async with self.client.get(f"{path}{mark}why=json") as response:
            assert response.status == 200
            return json.loads(await response.text())

    async def text(self, path):
        return "\n".join(text_lines(await self.document(path)))


async def serving(served, *, relist=True):
    if relist:
        await served.relist()
    app = web.Application()
    add_routes(app, served)
    return TestClient(TestServer(app))


@pytest.fixture
async def asking():
    served = provider()
    async with await serving(served) as client:
        yield Asking(client)
    await served.close()


def told():
    text = Path(__file__).with_name("why_messages.txt").read_text(encoding="utf-8")
    blocks = (block.partition("\n") for block in text.split("== ")[1:])
    return {name: body.rstrip("\n") for name, _, body in blocks}


@pytest.mark.parametrize("case", CASES)
async def test_what_is_reported(asking, case) -> None:
    assert await asking.text(CASES[case]) == told()[case]


@pytest.mark.parametrize("case", CASES)
async def test_the_hop_is_the_one_that_the_case_is_about(asking, case) -> None:
    document = await asking.document(CASES[case])
    hop = case.partition(":")[0]
    if hop in {"rule", "series", "labels", "objects", "query", "rows", "value"}:
        has_value = case in {"rule: two give it", "rows: some of other objects"}
        assert document["failedHop"] == (None if has_value else hop)


async def test_every_case_has_its_words() -> None:
    assert list(told()) == list(CASES)


@pytest.mark.parametrize("case", CASES)
async def test_nothing_of_other_namespaces_is_reported(asking, case) -> None:
    text = json.dumps(await asking.document(CASES[case]))
    assert "secret" not in text
    assert "exporter-1" not in text


async def test_values_that_are_too_old() -> None:
    served = provider(max_value_age_s=1.0)
    async with await serving(served) as client:
        document = await Asking(client).document(f"{POD}/DCGM_FI_DEV_FB_USED")
    assert document["failedHop"] == "value"
    (hop,) = [hop for hop in document["hops"] if hop["hop"] == "value"]
    assert hop["said"] == "None of the rows is a value to scale by."
    assert hop["evidence"] == ["1 row older than 1.0 s"]
    await served.close()


async def test_before_the_first_discovery() -> None:
    served = provider()
    async with await serving(served, relist=False) as client:
        document = await Asking(client).document(f"{POD}/DCGM_FI_DEV_FB_USED")
    assert (document["failedHop"], document["discovered"]) == ("rule", False)
    assert document["hops"][0]["said"] == "Discovery has not ended yet, so that no metric is known."
    await served.close()


async def test_series_that_discovery_has_not_seen_yet() -> None:
    source = embedded()
    served = provider(source)
    async with await serving(served) as client:
        labels = {"__name__": "DCGM_FI_DEV_GPU_TEMP", "namespace": "ml", "pod": "web-0"}
        source.store.append(labels, NOW_MS, 50.0)
        document = await Asking(client).document(f"{POD}/DCGM_FI_DEV_GPU_TEMP")
    (hop,) = [hop for hop in document["hops"] if hop["state"] == "failed"]
    assert (hop["hop"], hop["said"], hop["fix"]) == (
        "series",
        "Series of DCGM_FI_DEV_GPU_TEMP are there by now; discovery has not seen them yet.",
        "Wait: it looks every 600 s (--metrics-relist-interval).",
    )
    await served.close()


async def test_objects_that_are_not_known_leave_the_value() -> None:
    served = provider(directory=NobodyKnows())
    async with await serving(served) as client:
        one = await Asking(client).document(f"{POD}/DCGM_FI_DEV_FB_USED")
        every = await Asking(client).document(f"{CUSTOM}/namespaces/ml/pods/*/DCGM_FI_DEV_FB_USED")
    assert (one["failedHop"], one["hops"][3]["state"]) == (None, "unknown")
    assert every["failedHop"] == "objects"
    assert every["hops"][3]["said"] == (
        "It is not known which objects there are: unable to list matching resources."
    )
    await served.close()


class Failing:
    """Fails where it is told to, and answers as the embedded store otherwise."""

    def __init__(self, *, series=None, query=None) -> None:
        self.series_error, self.query_error = series, query
        self.inner = embedded()

    async def series(self, selector, start_ms):
        if self.series_error is not None:
            raise self.series_error
        return await self.inner.series(selector, start_ms)

    async def query(self, promql, at_ms):
        if self.query_error is not None:
            raise self.query_error
        return await self.inner.query(promql, at_ms)


@pytest.mark.parametrize(
    ("error", "said", "fix"),
    [
        (UnavailableError("it is down"), "it is down.", "See the source."),
        (UpstreamError("too many samples"), "too many samples.", "See the source."),
        (QueryError("parse error"), "parse error.",
         "Correct metricsQuery: the source takes the query for no PromQL."),
        (UncoveredError("the store is full", 0), "the store is full.",
         "Wait until the store covers the range again, ask for less of it, or let the store keep more."),
    ],
)  # fmt: skip
async def test_a_query_that_fails(error, said: str, fix: str) -> None:
    served = provider(Failing(query=error))
    async with await serving(served) as client:
        document = await Asking(client).document(f"{POD}/DCGM_FI_DEV_FB_USED")
    (hop,) = [hop for hop in document["hops"] if hop["state"] == "failed"]
    assert (hop["hop"], hop["said"], hop["fix"]) == ("query", said, fix)
    await served.close()


async def test_a_series_query_that_fails() -> None:
    served = provider(Failing(series=UnavailableError("it is down")))
    async with await serving(served) as client:
        document = await Asking(client).document(f"{POD}/requests_per_second")
    (hop,) = [hop for hop in document["hops"] if hop["state"] == "failed"]
    assert (hop["hop"], hop["said"], hop["evidence"]) == (
        "series",
        "The series query of rules.yaml:6 was not answered: it is down",
        ["requests_total"],
    )
    await served.close()


async def test_a_value_that_is_served_while_its_series_are_not_listed() -> None:
    source = Failing()
    served = provider(source)
    async with await serving(served) as client:
        source.series_error = UnavailableError("it is down")
        document = await Asking(client).document(f"{POD}/DCGM_FI_DEV_FB_USED")
    assert (document["failedHop"], document["values"][0]["value"]) == (None, "50")
    hop = document["hops"][1]
    assert (hop["state"], hop["said"]) == ("unknown", "The source does not answer: it is down.")
    await served.close()


async def test_the_forms_of_an_answer(asking) -> None:
    client, path = asking.client, f"{POD}/DCGM_FI_DEV_FB_USED"

    async def get(query, **headers):
        async with client.get(f"{path}?{query}", headers=headers) as response:
            assert response.headers["X-Content-Type-Options"] == "nosniff"
            return response.headers["Content-Type"], await response.text()

    kind, text = await get("why")
    assert kind == "text/plain; charset=utf-8"
    assert text.startswith("DCGM_FI_DEV_FB_USED of pods ml/web-0: there is a value.\n")
    kind, text = await get("why", Accept="text/html,*/*")
    assert (kind, text[:15]) == ("text/html; charset=utf-8", "<!doctype html>")
    assert (await get("why=html"))[0] == "text/html; charset=utf-8"
    assert (await get("why=text", Accept="text/html"))[0] == "text/plain; charset=utf-8"
    kind, text = await get("why=json")
    assert kind == "application/json; charset=utf-8"
    assert json.loads(text)["kind"] == "MetricExplanation"


async def test_a_page_shows_names_and_runs_nothing(asking) -> None:
    path = f"{CUSTOM}/namespaces/ml/<script>/web-0/x<b>?why=html"
    async with asking.client.get(path) as response:
        text = await response.text()
        assert response.headers["Content-Security-Policy"] == "default-src 'none'"
    assert "<script>" not in text
    assert "<b>" not in text
    assert "&lt;script&gt;" in text


async def test_a_wrong_selector_is_the_clients_fault(asking) -> None:
    async with asking.client.get(f"{POD}/a?why&labelSelector==") as response:
        assert response.status == 400


async def test_lists_of_metrics_have_no_why(asking) -> None:
    async with asking.client.get(f"{CUSTOM}?why") as response:
        assert json.loads(await response.text())["kind"] == "APIResourceList"


@pytest.mark.parametrize(
    ("whose", "path"),
    [
        ("pods/ml/web-0", "/custom.metrics.k8s.io/v1beta1/namespaces/ml/pods/web-0/m?why=json"),
        ("pods/ml/*", "/custom.metrics.k8s.io/v1beta1/namespaces/ml/pods/%2A/m?why=json"),
        ("services/ml/web", "/custom.metrics.k8s.io/v1beta1/namespaces/ml/services/web/m?why=json"),
        ("nodes/n1", "/custom.metrics.k8s.io/v1beta1/nodes/n1/m?why=json"),
        ("namespaces/ml", "/custom.metrics.k8s.io/v1beta1/namespaces/ml/metrics/m?why=json"),
        ("external/ml", "/external.metrics.k8s.io/v1beta1/namespaces/ml/m?why=json"),
    ],
)
def test_the_path_of_a_question(whose: str, path: str) -> None:
    assert why_path(whose, "m") == f"/apis{path}"


def test_selectors_in_the_path_of_a_question() -> None:
    assert why_path("pods/ml/*", "m", "app=web", "gpu in (0,1)").endswith(
        "/m?why=json&labelSelector=app%3Dweb&metricLabelSelector=gpu+in+%280%2C1%29"
    )
    assert why_path("external/ml", "a:b", "", "q=a").endswith("/a%3Ab?why=json&labelSelector=q%3Da")


@pytest.mark.parametrize("whose", ["pods", "a/b/c/d", "pods//x", ""])
def test_a_question_of_another_form(whose: str) -> None:
    with pytest.raises(UsageError) as caught:
        why_path(whose, "m")
    assert str(caught.value) == (
        f"found {whose!r}, expected pods/NAMESPACE/NAME, nodes/NAME, namespaces/NAME or "
        "external/NAMESPACE"
    )


def test_names_that_are_no_text() -> None:
    with pytest.raises(UsageError) as caught:
        why_path("pods/a/b", "m\udcff")
    assert str(caught.value) == "found 'm\\udcff', expected names in UTF-8"


@pytest.mark.parametrize(
    ("age_ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (2_500, "2.5 s"),
        (119_000, "119 s"),
        (600_000, "10 min"),
        (7_200_000, "2.0 h"),
        (86_400_000 * 4, "4 d"),
    ],
)
def test_ages(age_ms: int, text: str) -> None:
    assert age_text(age_ms) == text


def test_what_can_be_shown_is_bounded() -> None:
    assert sum("pod=" in line for line in text_lines(_many())) == 20
    assert "and 980 more" in "\n".join(text_lines(_many()))


def _many():
    row = {"labels": {"pod": "a"}, "value": "1", "ageMs": 1, "object": ""}
    return {
        "asked": "m",
        "failedHop": None,
        "hops": [],
        "query": None,
        "rows": [row] * 200,
        "moreRows": 800,
        "matched": [],
        "matchedCount": 0,
        "missed": [],
        "missedCount": 0,
        "values": [],
    }
