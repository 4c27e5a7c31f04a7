"""Queries at the bounds over HTTP: each is answered or refused in time, and the server goes on meanwhile."""

import asyncio
from urllib.parse import quote

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gpuscale.base.clock import ManualClock
from gpuscale.series.promapi.app import add_routes
from gpuscale.series.promapi.query_pool import QueryPool
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.promql.parse import parse_query
from gpuscale.series.promql.rows import QueryRange
from gpuscale.series.storage.store import SeriesStore

START_MS = 1_760_000_000_000
SCRAPES = 261
SERIES = 1_100
NOW_MS = START_MS + (SCRAPES - 1) * 15_000
ENDLESS = "sum_over_time(vector(1+1+1+1+1)[4000000s:1s])"
SHORT = "sum_over_time(vector(1)[5000s:1s])"
"""Too much to be answered at once, beside the queue."""
ONES = "+".join(["1"] * 190)
MANY_STEPS = f"sum_over_time(vector({ONES})[20000s:1s])"
NO_SERIES = f"sum_over_time(vector({'+'.join(['scalar(nosuch)'] * 60)})[20000s:1s])"
OVERLONG = 'label_replace(vector(1),"a","xx","","")'
for _ in range(60):
    # Twice as long each time.
    OVERLONG = f'label_join({OVERLONG},"a","","a","a")'


@pytest.fixture(scope="module")
def store():
    store = SeriesStore(retention_ms=7_200_000)
    labels = ({"__name__": "u", "pod": f"p{i // 8}", "i": str(i)} for i in range(SERIES))
    refs = [store.ref(each) for each in labels]
    for k in range(SCRAPES):
        # 3 a second each.
        store.append_many(refs, [k * 45.0] * len(refs), START_MS + k * 15_000)
    return store


async def served(store, pool=None):
    app = web.Application()
    add_routes(app, store, ManualClock(NOW_MS), pool=pool)
    return TestClient(TestServer(app))


async def asked(client, path="query", **parameters):
    async with client.post(f"/api/v1/{path}", data=parameters) as response:
        return response.status, await response.json()


async def probed(client, until):
    """Return how often the health probe was answered before a task was done."""
    count = 0
    while not until.done():
        async with client.get("/-/healthy") as response:
            assert response.status == 200
        count += 1
        await asyncio.sleep(0.01)
    return count


@pytest.mark.parametrize("query", [ENDLESS, MANY_STEPS, NO_SERIES])
async def test_the_health_probe_answers_beside_a_query_that_runs_out_of_time(store, query) -> None:
    async with await served(store) as client:
        heavy = asyncio.create_task(asked(client, query=query, timeout="1s"))
        answered = await probed(client, heavy)
        status, body = await heavy
    assert (status, body) == (
        503,
        {
            "status": "error",
            "errorType": "timeout",
            "error": "query timed out in expression evaluation",
        },
    )
    assert answered >= 10  # in a second; on the event loop it would be one or two


async def test_an_hour_of_rates_over_thousands_of_series_is_answered_beside_the_probe(
    store,
) -> None:
    # The windows of all steps together have five million samples.
    times = {"start": str(NOW_MS / 1000 - 3600), "end": str(NOW_MS / 1000), "step": "15"}
    async with await served(store, QueryPool(timeout_s=120)) as client:
        heavy = asyncio.create_task(asked(client, "query_range", query="sum(rate(u[5m]))", **times))
        answered = await probed(client, heavy)
        status, body = await heavy
    assert status == 200, body
    values = [float(value) for _, value in body["data"]["result"][0]["values"]]
    assert len(values) == 241
    assert values[-1] == pytest.approx(SERIES * 3)
    assert answered >= 1


async def test_the_servers_limit_holds_where_a_longer_one_is_asked_for(store) -> None:
    async with await served(store, QueryPool(timeout_s=0.2)) as client:
        status, body = await asked(client, query=ENDLESS, timeout="1h")
    assert (status, body["errorType"]) == (503, "timeout")


async def test_queries_wait_for_a_place_and_too_many_are_refused(store) -> None:
    async with await served(store, QueryPool(at_once=1, waiting=1)) as client:
        first = asyncio.create_task(asked(client, query=ENDLESS, timeout="2s"))
        await asyncio.sleep(0.3)
        queued = asyncio.create_task(asked(client, query=SHORT, timeout="500ms"))
        await asyncio.sleep(0.1)
        status, body = await asked(client, query=SHORT)
        assert (status, body["errorType"]) == (503, "timeout")
        assert body["error"].startswith("too many queries at once: 2 run or wait")
        assert (await queued)[1]["error"] == "query timed out in query queue"
        assert (await first)[0] == 503
        assert (await asked(client, query=SHORT))[0] == 200


async def test_a_query_of_a_few_series_is_answered_at_once_whatever_else_waits(store) -> None:
    pool = QueryPool(at_once=1, waiting=0)
    async with await served(store, pool) as client:
        heavy = asyncio.create_task(asked(client, query=ENDLESS, timeout="1s"))
        await asyncio.sleep(0.2)
        # 8 series of 21 samples in the range, each rising by 3 a second.
        status, body = await asked(client, query='sum(rate(u{pod="p0"}[5m]))')
        assert not heavy.done()
        assert status == 200
        assert float(body["data"]["result"][0]["value"][1]) == pytest.approx(24)
        assert (await asked(client, query="sum(rate(u[5m]))"))[0] == 503
        await heavy


async def test_a_query_whose_caller_has_gone_stops(store) -> None:
    pool = QueryPool(at_once=1)
    query = parse_query(ENDLESS)

    async def endless() -> None:
        covered = QueryRange(NOW_MS, NOW_MS, 0)
        await pool.evaluate(
            store, query, covered, lambda samples, check: instant(samples, query, 0, check=check)
        )

    gone = asyncio.create_task(endless())
    await asyncio.sleep(0.2)
    gone.cancel()
    await asyncio.wait({gone})
    assert gone.cancelled()
    # The only thread is free long before the query would have ended, or its time were up.
    assert await pool.apart(lambda check: "free", timeout_s=5) == "free"


async def test_a_query_whose_client_has_closed_the_connection_stops(store) -> None:
    async with await served(store, QueryPool(at_once=1)) as client:
        _, writer = await asyncio.open_connection(client.host, client.port)
        path = f"/api/v1/query?query={quote(ENDLESS)}"
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await writer.drain()
        await asyncio.sleep(0.3)
        assert (await asked(client, query=SHORT, timeout="100ms"))[0] == 503
        writer.close()
        await writer.wait_closed()
        # Without a limit of its own, the query would go on for half a minute.
        assert (await asked(client, query=SHORT, timeout="5s"))[0] == 200


@pytest.mark.parametrize(
    ("query", "text"),
    [
        # Ten times the 40 million evaluations of ENDLESS.
        (f"max_over_time({ENDLESS}[10s:1s])", "expected at most 50000000"),
        (OVERLONG, "label_join() made a label value of 131072 characters, expected at most 65536"),
    ],
)
async def test_what_is_too_much_is_refused_before_the_work(store, query, text: str) -> None:
    async with await served(store) as client:
        status, body = await asked(client, query=query)
    assert status == 422
    assert text in body["error"]


async def test_a_large_answer_is_refused(store, monkeypatch: pytest.MonkeyPatch) -> None:
    # 1 100 samples of a vector are 140 bytes each, and a text of some 60 beside them.
    monkeypatch.setattr("gpuscale.series.promql.budget.MAX_BYTES", 150_000)
    async with await served(store) as client:
        assert (await asked(client, query="u{i='1'}"))[0] == 200
        status, body = await asked(client, query="u")
        assert (status, body["errorType"]) == (422, "execution")
        assert "expected at most 150000;" in body["error"]
        assert (await asked(client, "series", **{"match[]": "u"}))[0] == 422


async def test_samples_that_arrive_and_go_while_a_query_runs_do_not_reach_it() -> None:
    store = SeriesStore(retention_ms=60_000)
    for second in range(60):
        store.append({"__name__": "c"}, START_MS + second * 1000, 1)
    # The range is read after a subquery of a second or so.
    query = "sum_over_time(vector(0)[300000s:1s]) + on () sum_over_time(c[2h])"
    async with await served(store) as client:
        time = str(START_MS / 1000 + 60)
        heavy = asyncio.create_task(asked(client, query=query, time=time))
        for minute in range(1, 20):
            await asyncio.sleep(0.05 / minute)
            if not heavy.done() and minute > 5:
                # Everything that was there falls out of the retention.
                store.append({"__name__": "c"}, START_MS + minute * 120_000, 1)
        status, body = await heavy
    assert status == 200
    assert body["data"]["result"][0]["value"][1] == "60"


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("timeout", "abc", 'invalid parameter "timeout": cannot parse "abc" to a valid duration'),
        (
            "lookback_delta",
            "abc",
            'error parsing lookback delta duration: cannot parse "abc" to a valid duration',
        ),
        ("limit", "-1", 'invalid parameter "limit": cannot parse "-1" to a limit'),
    ],
)
@pytest.mark.parametrize("path", ["query", "query_range"])
async def test_parameters_that_can_not_be_read_are_refused(
    store, path: str, name: str, text: str, error: str
) -> None:
    times = {"start": "0", "end": "1", "step": "1"} if path == "query_range" else {}
    async with await served(store) as client:
        status, body = await asked(client, path, query="1", **times, **{name: text})
    assert (status, body["errorType"], body["error"]) == (400, "bad_data", error)


async def test_a_limit_cuts_the_answer_with_a_warning(store) -> None:
    times = {"start": str(NOW_MS / 1000), "end": str(NOW_MS / 1000), "step": "1"}
    async with await served(store) as client:
        for path, more in (("query", {}), ("query_range", times)):
            _, body = await asked(client, path, query="u", limit="3", **more)
            assert len(body["data"]["result"]) == 3
            assert body["warnings"] == ["results truncated due to limit"]
            _, body = await asked(client, path, query="u{pod='p0'}", limit="8", **more)
            assert len(body["data"]["result"]) == 8
            assert "warnings" not in body


async def test_a_shorter_lookback_leaves_out_older_samples(store) -> None:
    at = {"query": "count(u)", "time": str(NOW_MS / 1000 + 10)}
    async with await served(store) as client:
        _, body = await asked(client, **at, lookback_delta="11s")
        assert body["data"]["result"][0]["value"][1] == str(SERIES)
        # As since Prometheus 3, a sample on the left end is too old.
        _, body = await asked(client, **at, lookback_delta="10s")
        assert body["data"]["result"] == []
