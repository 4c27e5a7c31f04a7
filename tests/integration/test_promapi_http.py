"""The Prometheus API over HTTP: shapes, error shapes, GET and POST, bounds."""

import io

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gpuscale.base.clock import ManualClock
from gpuscale.series.promapi.app import add_routes
from gpuscale.series.promapi.parameters import MAX_BODY_BYTES
from gpuscale.series.storage.store import SeriesStore

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
NOW_MS = 1_700_000_000_500


@pytest.fixture
async def client():
    store = SeriesStore()
    for i, gpu in enumerate("01"):
        labels = {"__name__": "util", "gpu": gpu, "pod": f"p{gpu}"}
        store.append(labels, NOW_MS - 60_000, 10 * i)
        store.append(labels, NOW_MS - 500, 10 * i + 5)
    store.append({"__name__": "up", "job": "gpu"}, NOW_MS, 1)
    app = web.Application()
    add_routes(app, store, ManualClock(NOW_MS))
    async with TestClient(TestServer(app)) as client:
        yield client


async def get(client, path, params=None):
    async with client.get(path, params=params) as response:
        return response.status, await response.json()


async def test_an_instant_query_answers_at_the_clocks_time(client) -> None:
    status, body = await get(client, "/api/v1/query", {"query": 'util{gpu="1"}'})
    assert status == 200
    assert body == {
        "status": "success",
        "data": {
            "resultType": "vector",
            "result": [
                {
                    "metric": {"__name__": "util", "gpu": "1", "pod": "p1"},
                    "value": [1700000000.5, "15"],
                }
            ],
        },
    }


async def test_a_query_can_be_posted_as_a_form_at_a_time(client) -> None:
    form = {"query": "sum(util)", "time": "2023-11-14T22:12:20.500Z"}
    async with client.post("/api/v1/query", data=form) as response:
        body = await response.json()
    # One minute before now: 0 + 10.
    assert body["data"]["result"] == [{"metric": {}, "value": [1699999940.5, "10"]}]


async def test_the_body_comes_before_the_url(client) -> None:
    async with client.post("/api/v1/query?query=1", data={"query": "2"}) as response:
        assert (await response.json())["data"]["result"][1] == "2"


async def test_a_range_query_takes_durations_and_float_steps(client) -> None:
    for step in ("30s", "30", "30.0"):
        params = {
            "query": "sum(util)",
            "start": "1699999940.5",
            "end": "1700000000.5",
            "step": step,
        }
        status, body = await get(client, "/api/v1/query_range", params)
        assert status == 200
        assert body["data"] == {
            "resultType": "matrix",
            "result": [
                {
                    "metric": {},
                    "values": [
                        [1699999940.5, "10"],
                        [1699999970.5, "10"],
                        [1700000000.5, "20"],
                    ],
                }
            ],
        }


async def test_series_labels_and_values(client) -> None:
    _, body = await get(client, "/api/v1/series", [("match[]", "up"), ("match[]", 'util{gpu="0"}')])
    assert body["data"] == [
        {"__name__": "up", "job": "gpu"},
        {"__name__": "util", "gpu": "0", "pod": "p0"},
    ]
    assert (await get(client, "/api/v1/labels"))[1]["data"] == ["__name__", "gpu", "job", "pod"]
    _, body = await get(client, "/api/v1/labels", {"match[]": "up"})
    assert body["data"] == ["__name__", "job"]
    assert (await get(client, "/api/v1/label/pod/values"))[1]["data"] == ["p0", "p1"]
    _, body = await get(client, "/api/v1/label/pod/values", {"limit": "1"})
    assert body["data"] == ["p0"]
    _, body = await get(client, "/api/v1/series", {"match[]": "up", "end": "1600000000"})
    assert body == {"status": "success", "data": []}


async def test_build_information_metadata_and_health(client) -> None:
    _, body = await get(client, "/api/v1/status/buildinfo")
    assert body["data"]["version"] == "3.0.0"
    assert (await get(client, "/api/v1/metadata"))[1] == {"status": "success", "data": {}}
    for path in ("/-/healthy", "/-/ready"):
        async with client.get(path) as response:
            assert response.status == 200


@pytest.mark.parametrize(
    ("path", "params", "status", "kind", "text"),
    [
        (
            "query",
            {"query": "sum("},
            400,
            "bad_data",
            'invalid parameter "query": 1:5: parse error: unclosed left parenthesis',
        ),
        (
            "query",
            {},
            400,
            "bad_data",
            'invalid parameter "query": unknown position: parse error: no expression found in input',
        ),
        (
            "query",
            {"query": "up", "time": "soon"},
            400,
            "bad_data",
            'invalid parameter "time": cannot parse "soon" to a valid timestamp',
        ),
        (
            "query",
            {"query": 'label_replace(util, "gpu", "", "", ""  ) and label_replace(util, "pod", "", "", "") '
             'and sum without (gpu) (util) * on() util'},
            422,
            "execution",
            'found duplicate series for the match group {} on the right hand-side of the operation: '
            '[util{gpu="0", pod="p0"}, util{gpu="1", pod="p1"}];many-to-many matching not allowed: '
            "matching labels must be unique on one side",
        ),
        (
            "query_range",
            {"query": "up", "end": "1", "step": "1"},
            400,
            "bad_data",
            'invalid parameter "start": cannot parse "" to a valid timestamp',
        ),
        (
            "query_range",
            {"query": "up", "start": "2", "end": "1", "step": "1"},
            400,
            "bad_data",
            'invalid parameter "end": end timestamp must not be before start time',
        ),
        (
            "query_range",
            {"query": "up", "start": "0", "end": "1", "step": "0"},
            400,
            "bad_data",
            'invalid parameter "step": zero or negative query resolution step widths are not accepted. '
            "Try a positive integer",
        ),
        (
            "query_range",
            {"query": "up", "start": "0", "end": "11001", "step": "1"},
            400,
            "bad_data",
            "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query "
            "resolution (?step=XX)",
        ),
        ("series", {}, 400, "bad_data", "no match[] parameter provided"),
        (
            "series",
            {"match[]": "sum(up)"},
            400,
            "bad_data",
            "invalid parameter \"match[]\": parse error: found 'sum(up)', expected only a series selector",
        ),
    ],
)  # fmt: skip
async def test_errors_have_prometheus_shape_and_words(
    client, path: str, params, status: int, kind: str, text: str
) -> None:
    assert await get(client, f"/api/v1/{path}", params) == (
        status,
        {"status": "error", "errorType": kind, "error": text},
    )


async def test_a_body_beyond_the_bound_is_refused(client) -> None:
    body = io.BytesIO(b"query=" + b"x" * MAX_BODY_BYTES)
    async with client.post("/api/v1/query", data=body, headers=FORM) as response:
        assert response.status == 413
        assert await response.json() == {
            "status": "error",
            "errorType": "bad_data",
            "error": "request body is larger than 1048576 bytes",
        }


async def test_a_body_that_is_no_text_is_refused(client) -> None:
    async with client.post("/api/v1/query", data=b"query=\xff", headers=FORM) as response:
        assert response.status == 400
        assert (await response.json())["error"].startswith("error parsing form values: ")
