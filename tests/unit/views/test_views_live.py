import asyncio
import contextlib
import json
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.server.page import routes as live
from gpuscale.server.page.routes import (
    LoadOrder,
    add_page,
    parse_cursor,
    parse_load_order,
    same_origin,
)

WORKLOAD = "bert-intent-detection"


@pytest.fixture
async def client(run):
    app = web.Application()
    add_page(app, run, run.set_load)
    async with TestClient(TestServer(app)) as connected:
        yield connected


async def next_message(response):
    """Return the id and the data of the next message of a stream."""
    fields = {}
    while True:
        line = (await response.content.readline()).decode().rstrip("\n")
        if not line and "data" in fields:
            return fields["id"], json.loads(fields["data"])
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value


# ---- the page and its files


async def test_page_is_html_that_loads_only_from_its_own_server(client) -> None:
    response = await client.get("/")
    assert response.status == 200
    assert response.content_type == "text/html"
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
    assert "unsafe" not in policy
    assert "http://" not in await response.text()


@pytest.mark.parametrize(
    ("name", "content_type"),
    [("page.js", "text/javascript"), ("charts.js", "text/javascript"), ("style.css", "text/css")],
)
async def test_page_files_come_with_their_types(client, name: str, content_type: str) -> None:
    response = await client.get(f"/static/{name}")
    assert response.status == 200
    assert response.content_type == content_type


@pytest.mark.parametrize(
    "name", ["none.js", "..%2Fassets.py", "%2e%2e%2flive.py", "page.py", "x%00.js"]
)
async def test_other_names_are_not_found(client, name: str) -> None:
    response = await client.get(f"/static/{name}")
    assert response.status == 404
    assert "no page file is called" in (await response.json())["error"]


async def test_files_come_compressed_and_only_once(client) -> None:
    first = await client.get("/static/charts.js")
    assert first.headers["Content-Encoding"] == "gzip"
    assert "class ChartStack" in await first.text()
    again = await client.get("/static/charts.js", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status == 304
    assert await again.read() == b""


async def test_file_comes_plain_to_who_takes_no_gzip(client) -> None:
    response = await client.get("/static/style.css", headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in response.headers
    assert ":root" in await response.text()


# ---- data


async def test_document_is_the_whole_run_with_its_totals(client, run) -> None:
    run.advance(20)
    document = await (await client.get("/ui/document")).json()
    assert document.pop("totals") == {"points": 21, "events": len(run.events)}
    assert document == run.document()


async def test_state_is_the_state_of_the_run(client, run) -> None:
    run.advance(10)
    response = await client.get("/ui/state")
    assert response.headers["Cache-Control"] == "no-store"
    assert await response.json() == run.state()


async def test_stream_sends_what_is_new_and_then_what_came_since(client, run) -> None:
    run.advance(4)
    async with client.get("/ui/stream?points=3&events=0") as response:
        assert response.content_type == "text/event-stream"
        identity, message = await next_message(response)
        assert identity == f"5-{len(run.events)}"
        assert message["since"]["t"] == [45.0, 60.0]
        assert message["state"] == run.state()
        run.advance(2)
        _, message = await next_message(response)
        assert message["since"]["points"] == 5
        assert message["since"]["t"] == [75.0, 90.0]


async def test_stream_goes_on_from_the_last_message_a_browser_had(client, run) -> None:
    run.advance(4)
    headers = {"Last-Event-ID": f"4-{len(run.events)}"}
    async with client.get("/ui/stream?points=0&events=0", headers=headers) as response:
        _, message = await next_message(response)
    assert message["since"]["t"] == [60.0]
    assert message["since"]["events"] == []


async def test_stream_sends_at_most_two_messages_a_second(client) -> None:
    async with client.get("/ui/stream") as response:
        await next_message(response)
        start = time.monotonic()
        await next_message(response)
        # Timers may fire a little early; a rate of 2/s is 0.5 s between messages.
        assert time.monotonic() - start >= 0.45


async def test_streams_end_when_the_server_stops(run) -> None:
    app = web.Application()
    add_page(app, run, run.set_load)
    client = TestClient(TestServer(app))
    await client.start_server()
    response = await client.get("/ui/stream")
    await next_message(response)
    start = time.monotonic()
    stopping = asyncio.create_task(client.server.close())
    await response.content.read()
    await stopping
    await client.close()
    assert time.monotonic() - start < 2


async def test_stream_of_a_page_that_went_away_makes_room_for_others(
    client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MAX_STREAMS", 1)
    monkeypatch.setattr(live, "UPDATE_SECONDS", 0.01)
    async with client.get("/ui/stream") as response:
        await next_message(response)
        refused = await client.get("/ui/stream")
        assert refused.status == 503
        assert (await refused.json())["error"] == "1 pages follow this run already"
    for _ in range(1500):
        again = await client.get("/ui/stream")
        if again.status == 200:
            break
        await asyncio.sleep(0.02)
    assert again.status == 200
    again.close()


@pytest.mark.parametrize(
    "query", ["points=-1", "points=x", "events=1.5", "points=99999999999999999", "points=²"]
)
async def test_stream_refuses_a_start_that_is_no_count(client, query: str) -> None:
    response = await client.get(f"/ui/stream?{query}")
    assert response.status == 400
    assert "expected a whole number from 0" in (await response.json())["error"]


# ---- the load


async def test_load_is_set_and_the_new_state_comes_back(client, run) -> None:
    response = await client.post("/ui/load", json={"workload": WORKLOAD, "rate": 9.2})
    assert response.status == 200
    workload = (await response.json())["workloads"][0]
    assert (workload["rate"], workload["mode"]) == (9.2, "manual")
    response = await client.post("/ui/load", json={"workload": WORKLOAD, "rate": None})
    assert (await response.json())["workloads"][0]["mode"] == "scenario"
    assert run.manual is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(b"{", 'expected JSON such as {"workload": "NAME", "rate": 4.6}', id="no JSON"),
        pytest.param(
            b"[" * 4000, 'expected JSON such as {"workload": "NAME", "rate": 4.6}', id="deep"
        ),
        pytest.param(
            b"\xff", 'expected JSON such as {"workload": "NAME", "rate": 4.6}', id="no UTF-8"
        ),
        pytest.param(
            b'{"rate": 1}',
            'workload: expected the name of a workload, as in {"workload": "NAME", "rate": 4.6}',
            id="no workload",
        ),
        pytest.param(
            b'{"workload": "a"}',
            "rate: expected requests per second, or null to follow the scenario",
            id="no rate",
        ),
        pytest.param(
            b'{"workload": "a", "rate": "4"}',
            'rate: found "4", expected a number or null',
            id="text",
        ),
        pytest.param(
            b'{"workload": "a", "rate": true}',
            "rate: found true, expected a number or null",
            id="bool",
        ),
        pytest.param(
            b'{"workload": "a", "rate": NaN}',
            "rate: found nan, expected 0 or more, below 1e9",
            id="NaN",
        ),
        pytest.param(
            b'{"workload": "a", "rate": -1}',
            "rate: found -1, expected 0 or more, below 1e9",
            id="negative",
        ),
        pytest.param(b" " * 5000, "expected a body of at most 4096 bytes", id="large"),
        pytest.param(
            b'{"workload": "a", "rate": 1}',
            "no workload is called 'a'; there is bert-intent-detection",
            id="refused by the run",
        ),
    ],
)
async def test_load_orders_that_are_wrong_change_nothing(client, run, body, message: str) -> None:
    response = await client.post("/ui/load", data=body)
    assert response.status == 400
    assert (await response.json())["error"] == message
    assert run.manual is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_load_orders_of_other_sites_are_refused(client, run, headers) -> None:
    response = await client.post(
        "/ui/load", json={"workload": WORKLOAD, "rate": 1}, headers=headers
    )
    assert response.status == 403
    assert (await response.json())["error"] == "the request comes from another site's page"
    assert run.manual is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:8080"},
        {
            "Host": "127.0.0.1:8080",
            "Origin": "http://127.0.0.1:8080",
            "Sec-Fetch-Site": "same-origin",
        },
    ],
)
def test_own_page_and_programs_may_set_the_load(headers) -> None:
    assert same_origin(make_mocked_request("POST", "/ui/load", headers=headers))


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_load_order_of_any_bytes_is_an_order_or_a_value_error(body) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(parse_load_order(body), LoadOrder)


@given(
    st.dictionaries(
        st.sampled_from(["workload", "rate", "x"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=5)
        | st.lists(st.none()),
    )
)
def test_load_order_of_any_json_is_an_order_or_a_value_error(data) -> None:
    with contextlib.suppress(ValueError):
        order = parse_load_order(json.dumps(data).encode())
        assert order.rate is None or 0 <= order.rate < 1e9


@given(st.text(st.characters(exclude_categories=["C"]), max_size=30))
def test_cursor_of_any_text_is_two_counts_or_a_value_error(text) -> None:
    request = make_mocked_request("GET", "/ui/stream", headers={"Last-Event-ID": text})
    with contextlib.suppress(ValueError):
        assert min(parse_cursor(request)) >= 0


# ---- other controls


@pytest.fixture
async def controlled(run):
    app = web.Application()
    add_page(app, run, orders=run.orders)
    async with TestClient(TestServer(app)) as connected:
        yield connected


async def test_an_order_is_answered_with_the_new_state(controlled, run) -> None:
    response = await controlled.post("/ui/pace", json={"paused": True, "speed": 20})
    assert response.status == 200
    assert await response.json() == run.state()
    assert (run.paused, run.speed) == (True, 20)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"[]", "expected JSON such as {}"),
        (b"{", "expected JSON such as {}"),
        (b" " * 5000, "expected a body of at most 4096 bytes"),
        (b'{"speed": 101}', "speed: found too much"),
    ],
)
async def test_orders_that_are_wrong_change_nothing(controlled, run, body, message: str) -> None:
    response = await controlled.post("/ui/pace", data=body)
    assert (response.status, (await response.json())["error"]) == (400, message)
    assert (run.paused, run.speed) == (False, 10)


async def test_orders_of_other_sites_are_refused(controlled, run) -> None:
    headers = {"Sec-Fetch-Site": "cross-site"}
    response = await controlled.post("/ui/pace", json={"paused": True}, headers=headers)
    assert response.status == 403
    assert not run.paused


async def test_who_offers_no_orders_takes_none(client) -> None:
    response = await client.post("/ui/pace", json={"paused": True})
    assert response.status in {404, 405}
