# mypy: disable-error-code="arg-type, attr-defined"
"""Requests to a Prometheus, and its answers and faults, over loopback."""

import base64
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer, unused_port

from gpuscale.base.errors import QueryError, UnavailableError, UpstreamError
from gpuscale.series.values import (
    Matrix,
    MatrixSeries,
    Scalar,
    StringValue,
    Vector,
    VectorSample,
)
from gpuscale.server.sources.prometheus.answers import envelope
from gpuscale.server.sources.prometheus.client import PrometheusSettings, PrometheusSource

_SUCCESS = '{"status":"success","data":{"resultType":"vector","result":[]}}'


class FakePrometheus:
    """Records requests and answers each with the same text."""

    def __init__(self) -> None:
        self.status, self.text = 200, '{"status":"success","data":[]}'
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.headers: list[list[tuple[str, str]]] = []

    async def handle(self, request: web.Request) -> web.Response:
        form = await request.post() if request.method == "POST" else request.query
        self.requests.append((request.method, request.path, dict(form)))
        self.headers.append([(name.lower(), value) for name, value in request.headers.items()])
        return web.Response(status=self.status, text=self.text, content_type="application/json")

    def success(self, kind: str, result: str) -> None:
        self.text = f'{{"status":"success","data":{{"resultType":"{kind}","result":{result}}}}}'


@pytest.fixture
async def fake():
    prometheus = FakePrometheus()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", prometheus.handle)
    async with TestServer(app) as server:
        prometheus.url = str(server.make_url("")).rstrip("/")
        yield prometheus


@pytest.mark.parametrize("verb", ["POST", "GET"])
async def test_requests_are_those_of_the_http_api(fake, verb: str) -> None:
    settings = PrometheusSettings(f"{fake.url}/base/", verb=verb)
    async with PrometheusSource(settings) as source:
        await source.series('m{a="b"}', 1_700_000_000_250)
        fake.success("vector", "[]")
        await source.query("sum(m)", 1_700_000_000_000)
    assert fake.requests == [
        (verb, "/base/api/v1/series", {"match[]": 'm{a="b"}', "start": "1700000000.250"}),
        (verb, "/base/api/v1/query", {"query": "sum(m)", "time": "1700000000.000"}),
    ]


async def test_series_are_label_sets(fake) -> None:
    fake.text = '{"status":"success","data":[{"__name__":"m","a":"b"}],"warnings":["slow"]}'
    async with PrometheusSource(PrometheusSettings(fake.url)) as source:
        assert await source.series("m", 0) == [{"__name__": "m", "a": "b"}]


@pytest.mark.parametrize(
    ("kind", "result", "value"),
    [
        (
            "vector",
            '[{"metric":{"a":"b"},"value":[1700000000.25,"1.5"]}]',
            Vector((VectorSample({"a": "b"}, 1.5, 1_700_000_000_250),)),
        ),
        ("scalar", '[1700000000,"+Inf"]', Scalar(float("inf"))),
        ("string", '[1700000000,"x"]', StringValue("x")),
        (
            "matrix",
            '[{"metric":{},"values":[[1,"2"],[3.5,"4"]]}]',
            Matrix((MatrixSeries({}, ((1_000, 2.0), (3_500, 4.0))),)),
        ),
    ],
)
async def test_results_become_values(fake, kind: str, result: str, value) -> None:
    fake.success(kind, result)
    async with PrometheusSource(PrometheusSettings(fake.url)) as source:
        assert await source.query("m", 0) == value


@pytest.mark.parametrize(
    ("status", "text", "kind", "message"),
    [
        (
            400,
            '{"status":"error","errorType":"bad_data","error":"parse error"}',
            QueryError,
            "bad_data: parse error",
        ),
        (
            422,
            '{"status":"error","errorType":"execution","error":"many-to-many"}',
            UpstreamError,
            "execution: many-to-many",
        ),
        (
            503,
            '{"status":"error","errorType":"timeout","error":"query timed out"}',
            UnavailableError,
            "timeout: query timed out",
        ),
        # client_golang api/prometheus/v1 apiClientImpl.Do: "inconsistent body for response code"
        (503, _SUCCESS, UnavailableError, "bad_response: inconsistent body for response code 503"),
        (422, _SUCCESS, UpstreamError, "bad_response: inconsistent body for response code 422"),
        (400, _SUCCESS, UpstreamError, "bad_response: inconsistent body for response code 400"),
        (502, "<html>", UnavailableError, "bad_response: unknown response code 502"),
        (401, "no", UpstreamError, "bad_response: unknown response code 401"),
        (302, "", UpstreamError, "bad_response: unknown response code 302"),
        (200, '{"status":"error"}', UpstreamError, "bad_response: no reason given"),
    ],
)
async def test_errors_say_who_and_why(fake, status: int, text: str, kind, message: str) -> None:
    fake.status, fake.text = status, text
    async with PrometheusSource(PrometheusSettings(fake.url)) as source:
        with pytest.raises(kind) as caught:
            await source.query("m", 0)
    assert str(caught.value) == f"Prometheus at {fake.url}: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<html>", "answered 200 with no JSON"),
        ('{"status":"success","data":null}', "answered /query with no result"),
        ('{"status":"success","data":{"resultType":"vector"}}', "answered /query with no result"),
        (
            '{"status":"success","data":{"resultType":"vector","result":[{"metric":{}}]}}',
            "answered /query with no result",
        ),
    ],
)
async def test_answers_that_are_none_are_errors(fake, text: str, message: str) -> None:
    fake.text = text
    async with PrometheusSource(PrometheusSettings(fake.url)) as source:
        with pytest.raises(UpstreamError) as caught:
            await source.query("m", 0)
    assert str(caught.value) == f"Prometheus at {fake.url} {message}"


@pytest.mark.parametrize("body", [b'{"status":"\x80"}', b"\xff"])
def test_a_text_that_is_not_utf_8_is_no_answer(body: bytes) -> None:
    assert envelope(body) is None


async def test_no_list_of_series_is_an_error_and_not_an_empty_one(fake) -> None:
    fake.text = '{"status":"success","data":null}'
    async with PrometheusSource(PrometheusSettings(fake.url)) as source:
        with pytest.raises(UpstreamError, match=r"answered /series with no list of label sets$"):
            await source.series("m", 0)


async def test_a_server_that_is_not_there_is_unavailable() -> None:
    url = f"http://127.0.0.1:{unused_port()}"
    async with PrometheusSource(PrometheusSettings(url)) as source:
        with pytest.raises(UnavailableError, match=f"^Prometheus at {url} does not answer: "):
            await source.query("m", 0)


async def test_a_slow_answer_is_unavailable(fake) -> None:
    settings = PrometheusSettings(fake.url, timeout_s=0.000_001)
    async with PrometheusSource(settings) as source:
        with pytest.raises(UnavailableError, match="does not answer"):
            await source.query("m", 0)


async def test_an_answer_is_bounded(fake) -> None:
    fake.text = " " * 2_000
    async with PrometheusSource(PrometheusSettings(fake.url, max_response_bytes=1_000)) as source:
        with pytest.raises(
            UpstreamError, match=r"^Prometheus at .*: the answer has more than 1000 bytes$"
        ):
            await source.query("m", 0)


async def test_headers_may_come_twice(fake) -> None:
    settings = PrometheusSettings(fake.url, headers=(("X-Scope", "a"), ("X-Scope", "b")))
    async with PrometheusSource(settings) as source:
        await source.series("m", 0)
    assert [value for name, value in fake.headers[0] if name == "x-scope"] == ["a", "b"]


async def test_a_bearer_token_is_read_from_its_file_again(
    fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuscale.server.sources.http.access.LOOK_S", 0.0)
    token = tmp_path / "token"
    token.write_text("one\n")
    settings = PrometheusSettings(fake.url, bearer_token_file=token)
    async with PrometheusSource(settings) as source:
        await source.series("m", 0)
        token.write_text("two\n")
        await source.series("m", 0)
        token.unlink()  # as when it is being replaced
        await source.series("m", 0)
    sent = [dict(headers)["authorization"] for headers in fake.headers]
    assert sent == ["Bearer one", "Bearer two", "Bearer two"]


async def test_basic_authentication_takes_its_password_from_a_file(
    fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuscale.server.sources.http.access.LOOK_S", 0.0)
    password = tmp_path / "password"
    password.write_text("open:sesame\n")
    settings = PrometheusSettings(fake.url, username="ali", password_file=password)
    async with PrometheusSource(settings) as source:
        await source.series("m", 0)
        password.write_text("renewed")
        await source.series("m", 0)
    sent = [dict(headers)["authorization"].removeprefix("Basic ") for headers in fake.headers]
    assert [base64.b64decode(each) for each in sent] == [b"ali:open:sesame", b"ali:renewed"]


async def test_a_secret_that_was_never_there_is_reported(fake, tmp_path: Path) -> None:
    settings = PrometheusSettings(fake.url, bearer_token_file=tmp_path / "none")
    async with PrometheusSource(settings) as source:
        with pytest.raises(UnavailableError, match="none can't be read: No such file"):
            await source.series("m", 0)


@pytest.mark.parametrize(
    ("settings", "query", "takes"),
    [
        ({}, "x" * 16_000, True),
        ({}, "x" * 16_001, False),
        ({"verb": "GET"}, "x" * 7_000, True),
        ({"verb": "GET"}, "|" * 7_000, False),  # %7C each
        ({"max_query_chars": 10}, "x" * 11, False),
    ],
)
def test_how_long_a_query_may_be(settings, query: str, takes: bool) -> None:
    source = PrometheusSource(PrometheusSettings("http://p", **settings))
    assert source.takes(query) is takes


async def test_a_password_is_sent_and_never_shown(fake) -> None:
    url = fake.url.replace("http://", "http://user:secret@")
    fake.status = 500
    async with PrometheusSource(PrometheusSettings(url)) as source:
        with pytest.raises(UnavailableError) as caught:
            await source.query("m", 0)
    assert dict(fake.headers[0])["authorization"].startswith("Basic ")
    assert "secret" not in str(caught.value) + repr(source)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "localhost:9090"}, "expected an http:// or https:// address"),
        ({"url": "http://x", "verb": "PUT"}, "found verb 'PUT', expected GET or POST"),
        ({"url": "http://u:p@x", "username": "u"}, "expected one way to show who asks"),
    ],
)
def test_settings_are_checked(settings, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PrometheusSettings(**settings)


@pytest.mark.parametrize(
    "row",
    [
        '{"metric":{},"value":[1e20,"1"]}',
        '{"metric":{},"value":[-1,"1"]}',
        '{"metric":{},"value":["1","1"]}',
        '{"metric":{},"value":[true,"1"]}',
        '{"metric":{},"value":[1,"1_000"]}',
        '{"metric":{},"value":[1," 1"]}',
        '{"metric":{},"value":[1,"\u0661"]}',
        '{"metric":{},"value":[1,"0x10"]}',
        '{"metric":{},"value":[1,"infinity"]}',
        '{"metric":{},"value":[1,""]}',
        '{"metric":{},"value":[1,true]}',
        '{"metric":{},"value":[1,1]}',
        '{"metric":{},"value":[1]}',
        '{"metric":{"a":1},"value":[1,"1"]}',
        '{"metric":null,"value":[1,"1"]}',
        '{"value":[1,"1"]}',
    ],
)
@pytest.mark.parametrize("good_rows", [0, 5_000])
async def test_odd_times_and_numbers_are_errors(fake, row: str, good_rows: int) -> None:
    """Go's strconv reads `1_000` as no number, and JSON's `true` is none either."""
    rows = ['{"metric":{"pod":"a-pod-of-some-length"},"value":[1,"1"]}'] * good_rows
    fake.success("vector", f"[{','.join([*rows, row])}]")
    async with PrometheusSource(PrometheusSettings(fake.url)) as source:
        with pytest.raises(UpstreamError, match=r"answered /query with no result$"):
            await source.query("m", 0)


@pytest.mark.parametrize(
    "text", ["1", "-1.5", "+2", "1e+20", "1.5E-7", "NaN", "+Inf", "-Inf", "Inf"]
)
async def test_numbers_that_prometheus_writes_are_read(fake, text: str) -> None:
    fake.success("vector", f'[{{"metric":{{}},"value":[1,"{text}"]}}]')
    async with PrometheusSource(PrometheusSettings(fake.url)) as source:
        (row,) = (await source.query("m", 0)).samples
    assert repr(row.value) == repr(float(text))


@pytest.mark.parametrize(
    ("kind", "item", "message"),
    [
        ("vector", '{"metric":{},"value":[1,"1"]}', "answered with more than 100000 rows"),
        ("matrix", '{"metric":{},"values":[[1,"1"]]}', "answered with more than 100000 points"),
    ],
)
async def test_rows_are_bounded(fake, kind: str, item: str, message: str) -> None:
    fake.success(kind, f"[{','.join([item] * 100_000)}]")
    async with PrometheusSource(PrometheusSettings(fake.url)) as source:
        await source.query("m", 0)
        fake.success(kind, f"[{','.join([item] * 100_001)}]")
        with pytest.raises(UpstreamError, match=message):
            await source.query("m", 0)


async def test_series_are_bounded(fake) -> None:
    fake.text = f'{{"status":"success","data":[{",".join(["{}"] * 400_001)}]}}'
    async with PrometheusSource(PrometheusSettings(fake.url)) as source:
        with pytest.raises(UpstreamError, match="answered with more than 400000 series"):
            await source.series("m", 0)
