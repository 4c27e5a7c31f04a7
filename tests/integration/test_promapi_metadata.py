"""Metadata, federation, forms in parts, and what is not served, over HTTP."""

import pytest
from aiohttp import FormData, web
from aiohttp.test_utils import TestClient, TestServer

from gpuscale.base.clock import ManualClock
from gpuscale.base.exposition.reading.entries import SampleLine
from gpuscale.base.exposition.reading.formats import PROMETHEUS_TEXT, entries, format_of
from gpuscale.series.promapi.app import add_routes
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.storage.store import SeriesStore

NOW_MS = 1_700_000_000_500
TEXT = """\
# HELP util How busy.
# TYPE util gauge
util{gpu="0"} 7
# TYPE served_total counter
served_total 3
# HELP {quoted} In UTF-8.
{"gpu.util","k8s.pod"="p\\"q"} 4
"""


@pytest.fixture
async def client():
    store = SeriesStore()
    for node in ("a", "b"):
        target = ScrapeTarget(store, {"job": "gpu", "instance": f"{node}:9400"})
        text = TEXT.replace("{quoted}", '"gpu.util"').replace("How", f"{node}: How")
        assert target.ingest(text, NOW_MS - 1000).problem is None
    store.append({"__name__": "alone", "x": "1"}, NOW_MS - 5000, 1e-9)
    app = web.Application()
    add_routes(app, store, ManualClock(NOW_MS))
    async with TestClient(TestServer(app)) as client:
        yield client


async def get(client, path, params=None):
    async with client.get(path, params=params) as response:
        return response.status, (await response.json()).get("data")


UTIL = [
    {"type": "gauge", "help": "a: How busy.", "unit": ""},
    {"type": "gauge", "help": "b: How busy.", "unit": ""},
]
SERVED = [{"type": "counter", "help": "", "unit": ""}]
QUOTED = [{"type": "unknown", "help": "In UTF-8.", "unit": ""}]


# The parameters and shapes of Prometheus' documentation of /api/v1/metadata and /api/v1/targets/metadata.
@pytest.mark.parametrize(
    ("params", "data"),
    [
        ({}, {"gpu.util": QUOTED, "served_total": SERVED, "util": UTIL}),
        ({"metric": "util"}, {"util": UTIL}),
        ({"metric": "nosuch"}, {}),
        ({"limit": "2"}, {"gpu.util": QUOTED, "served_total": SERVED}),
        ({"limit": "0"}, {}),
        ({"limit": "-1", "metric": "served_total"}, {"served_total": SERVED}),
        ({"limit_per_metric": "1", "metric": "util"}, {"util": UTIL[:1]}),
        ({"limit_per_metric": "0", "metric": "util"}, {"util": UTIL}),
    ],
)
async def test_metadata_is_served_by_metric(client, params, data) -> None:
    assert await get(client, "/api/v1/metadata", params) == (200, data)


async def test_metadata_is_served_by_target(client) -> None:
    params = {"match_target": '{instance="b:9400"}', "metric": "util"}
    target = {"job": "gpu", "instance": "b:9400"}
    status, data = await get(client, "/api/v1/targets/metadata", params)
    assert (status, data) == (200, [{"target": target, **UTIL[1]}])
    _, data = await get(client, "/api/v1/targets/metadata", {"match_target": '{instance="b:9400"}'})
    assert [each["metric"] for each in data] == ["util", "served_total", "gpu.util"]
    _, data = await get(client, "/api/v1/targets/metadata", {"metric": "util", "limit": "1"})
    assert data == [{"target": {"job": "gpu", "instance": "a:9400"}, **UTIL[0]}]


@pytest.mark.parametrize(
    ("path", "params", "error"),
    [
        ("metadata", {"limit": "x"}, "limit must be a number"),
        ("metadata", {"limit_per_metric": "1.5"}, "limit_per_metric must be a number"),
        ("targets/metadata", {"limit": ""}, None),
        ("targets/metadata", {"limit": "٣"}, "limit must be a number"),
    ],
)
async def test_limits_are_numbers(client, path: str, params, error: str | None) -> None:
    async with client.get(f"/api/v1/{path}", params=params) as response:
        body = await response.json()
    if error is None:
        assert body["status"] == "success"
    else:
        assert (response.status, body["errorType"], body["error"]) == (400, "bad_data", error)


@pytest.mark.parametrize("name", ["k8s.pod", "U__k8s_2e_pod"])
async def test_values_of_a_label_in_utf8_are_found(client, name: str) -> None:
    assert await get(client, f"/api/v1/label/{name}/values") == (200, ['p"q'])


async def test_names_in_utf8_are_asked_for_in_quotes(client) -> None:
    params = {"query": 'sum({"gpu.util","k8s.pod"="p\\"q"})'}
    _, data = await get(client, "/api/v1/query", params)
    assert data["result"][0]["value"][1] == "8"


async def test_federation_gives_the_newest_samples_with_their_times(client) -> None:
    params = [("match[]", 'util{instance="a:9400"}'), ("match[]", "alone"), ("match[]", "util")]
    async with client.get("/federate", params=params) as response:
        text = await response.text()
    assert format_of(response.headers["Content-Type"]) is PROMETHEUS_TEXT
    # As web/federate.go: by name, untyped, and an empty instance where a series has none.
    assert text == (
        "# TYPE alone untyped\n"
        'alone{x="1",instance=""} 1e-09 1699999995500\n'
        "# TYPE util untyped\n"
        'util{gpu="0",instance="a:9400",job="gpu"} 7 1699999999500\n'
        'util{gpu="0",instance="b:9400",job="gpu"} 7 1699999999500\n'
    )


@pytest.mark.parametrize(
    ("accept", "name", "label"),
    [
        ("text/plain;version=1.0.0;escaping=allow-utf-8", "gpu.util", "k8s.pod"),
        ("text/plain;version=0.0.4", "gpu_util", "k8s_pod"),
    ],
)
async def test_federated_names_beyond_ascii_are_quoted_or_escaped(
    client, accept: str, name: str, label: str
) -> None:
    params = {"match[]": '{"gpu.util"}'}
    async with client.get("/federate", params=params, headers={"Accept": accept}) as response:
        text = await response.text()
    samples = [
        each for _, each in entries(text, PROMETHEUS_TEXT, "t") if isinstance(each, SampleLine)
    ]
    assert [each.name for each in samples] == [name, name]
    assert dict(samples[0].labels)[label] == 'p"q'


@pytest.mark.parametrize("query", ["match[]=1%2B1", "match[]=util%5B5m%5D", "match[]=%7B"])
async def test_federation_wants_selectors(client, query: str) -> None:
    async with client.get(f"/federate?{query}") as response:
        assert response.status == 400
        assert response.content_type == "text/plain"


async def test_federation_of_nothing_is_empty(client) -> None:
    async with client.get("/federate") as response:
        assert (response.status, await response.text()) == (200, "")


async def test_a_form_may_come_in_parts(client) -> None:
    form = FormData({"query": "sum(util)"}, default_to_multipart=True)
    async with client.post("/api/v1/query", data=form) as response:
        body = await response.json()
    assert body["data"]["result"][0]["value"][1] == "14"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data", b""),
        ("multipart/form-data; boundary=x", b""),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n"),
        ("multipart/form-data; boundary=x", b"--x\r\n" * 100_000),
    ],
)
async def test_a_broken_form_in_parts_is_bad_data(client, kind: str, body) -> None:
    headers = {"Content-Type": kind}
    async with client.post("/api/v1/query", data=body, headers=headers) as response:
        answer = await response.json()
    assert (response.status, answer["errorType"]) == (400, "bad_data")
    assert answer["error"].startswith("error parsing form values: ")


@pytest.mark.parametrize(
    ("method", "path", "status", "error_type"),
    [
        ("GET", "/api/v1/nosuch", 404, "not_found"),
        ("POST", "/api/v1/label/a/nosuch", 404, "not_found"),
        ("DELETE", "/api/v1/query", 405, "bad_data"),
        ("PUT", "/api/v1/label/gpu/values", 405, "bad_data"),
    ],
)
async def test_what_is_not_served_is_told_as_json(
    client, method: str, path: str, status: int, error_type: str
) -> None:
    async with client.request(method, path) as response:
        body = await response.json()
    assert (response.status, body["status"], body["errorType"]) == (status, "error", error_type)
    assert path in body["error"] or method in body["error"]
