"""Watches of the live cluster over HTTP: what they show, and how much of them there can be."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import aiohttp
import pytest
from aiohttp import web

from background import until
from gpuscale.base.clock import ManualClock
from gpuscale.base.objects.selectors import Selector
from gpuscale.lab.kube_api.forms import Form, WantedForm
from gpuscale.lab.kube_api.kinds import POD
from gpuscale.lab.kube_api.routes import KubeApi
from gpuscale.lab.kube_api.selecting import ObjectSelection
from gpuscale.lab.kube_api.store import ObjectFacts, Store
from gpuscale.lab.kube_api.watching import MAX_WATCHES_EACH, Watches, WatchRequest
from gpuscale.lab.sim.cluster import ClusterDirectory
from gpuscale.series.promapi.query_pool import QueryPool
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.routes import MetricsApiRoutes
from gpuscale.server.metricsapi.wire.field_selectors import FieldSelector
from gpuscale.server.sources.embedded import EmbeddedSource
from live_objects import StoredRun, shipped

PODS = "/api/v1/namespaces/default/pods"
WEB = "app=bert-intent-detection"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class Api:
    """The API of a scenario whose time is moved by hand."""

    def __init__(self, run: StoredRun) -> None:
        self.run = run
        world = run.world
        source = EmbeddedSource(SeriesStore(), QueryPool())
        rules, directory = world.setup.rules, ClusterDirectory(world.cluster)
        provider = MetricsProvider(rules, source, directory, ManualClock(), 60)
        self.api = KubeApi(world, run.objects, MetricsApiRoutes(provider), lambda: None)

    async def run_to(self, seconds: float) -> None:
        """Let time pass, and have the API see it."""
        self.run.run_to(seconds)
        # It looks ten times a second, and less often on a busy machine.
        await asyncio.sleep(max(0.0, self.api._next_look_s - time.monotonic()))
        self.api.look()


@asynccontextmanager
async def opened(scenario: str, seconds: float) -> AsyncIterator[tuple[Api, aiohttp.ClientSession]]:
    api = Api(shipped(scenario))
    await api.run_to(seconds)
    app = web.Application()
    api.api.add_routes(app)
    connector = aiohttp.TCPConnector(limit=0)
    async with serving(app) as url, aiohttp.ClientSession(url, connector=connector) as session:
        yield api, session


async def version(session: aiohttp.ClientSession) -> str:
    async with session.get(PODS) as answer:
        return (await answer.json())["metadata"]["resourceVersion"]


async def next_event(answer: aiohttp.ClientResponse) -> dict:
    async with asyncio.timeout(30):
        return json.loads(await answer.content.readline())


async def test_a_watch_shows_a_pod_from_its_creation_to_its_start() -> None:
    async with opened("ack-bert", 60) as (api, session):
        params = {"watch": "1", "resourceVersion": await version(session), "labelSelector": WEB}
        async with session.get(PODS, params=params) as answer:
            await api.run_to(76)  # the second pod is made and finds no node
            seen = await next_event(answer)
            assert (seen["type"], seen["object"]["status"]["phase"]) == ("ADDED", "Pending")
            name = seen["object"]["metadata"]["name"]
            assert "nodeName" not in seen["object"]["spec"]
            await api.run_to(212)  # bound, its image is being pulled
            seen = await next_event(answer)
            assert (seen["type"], seen["object"]["metadata"]["name"]) == ("MODIFIED", name)
            assert seen["object"]["spec"]["nodeName"]
            await api.run_to(232)
            seen = await next_event(answer)
            assert seen["object"]["status"]["phase"] == "Running"


async def test_what_stops_being_selected_counts_as_deleted() -> None:
    async with opened("ack-bert", 130) as (api, session):
        params = {"watch": "true", "fieldSelector": "status.phase=Pending"}
        async with session.get(PODS, params=params) as answer:
            first = await next_event(answer)
            assert first["type"] == "ADDED"
            await api.run_to(240)
            last = await next_event(answer)
            while last["type"] != "DELETED":
                last = await next_event(answer)
            assert last["object"]["metadata"]["name"] == first["object"]["metadata"]["name"]


async def test_initial_events_end_with_a_bookmark() -> None:
    async with opened("ack-bert", 60) as (_, session):
        params = {
            "watch": "1",
            "sendInitialEvents": "true",
            "allowWatchBookmarks": "true",
            "resourceVersionMatch": "NotOlderThan",
        }
        async with session.get(PODS, params=params) as answer:
            events = [await next_event(answer) for _ in range(3)]
    assert [each["type"] for each in events] == ["ADDED", "ADDED", "BOOKMARK"]
    mark = events[-1]["object"]
    assert mark["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert (mark["kind"], mark["apiVersion"]) == ("Pod", "v1")
    assert int(mark["metadata"]["resourceVersion"]) >= max(
        int(each["object"]["metadata"]["resourceVersion"]) for each in events[:2]
    )


async def test_only_the_first_table_of_a_watch_has_columns() -> None:
    async with opened("ack-bert", 60) as (_, session):
        asking = session.get(PODS, params={"watch": "1"}, headers={"Accept": TABLE})
        async with asking as answer:
            tables = [(await next_event(answer))["object"] for _ in range(2)]
    assert [each["kind"] for each in tables] == ["Table", "Table"]
    assert [bool(each["columnDefinitions"]) for each in tables] == [True, False]
    assert [len(each["rows"]) for each in tables] == [1, 1]


@pytest.mark.parametrize("wanted", ["1", str(2**62)])
async def test_a_version_of_another_run_is_gone(wanted: str) -> None:
    async with opened("ack-bert", 60) as (_, session):
        for params in ({"watch": "1"}, {}):
            if wanted == "1" and not params:
                continue  # a list may be newer than what was asked for
            async with session.get(PODS, params={**params, "resourceVersion": wanted}) as answer:
                status = await answer.json()
            assert (answer.status, status["reason"]) == (410, "Expired")


async def test_a_watch_ends_when_its_time_is_over() -> None:
    async with opened("ack-bert", 60) as (_, session):
        params = {"watch": "1", "timeoutSeconds": "1", "resourceVersion": await version(session)}
        async with asyncio.timeout(30), session.get(PODS, params=params) as answer:
            assert await answer.content.read() == b""


async def test_a_client_has_so_many_watches_and_no_more() -> None:
    async with opened("ack-bert", 60) as (api, session):
        params = {"watch": "1", "resourceVersion": await version(session)}
        held = [await session.get(PODS, params=params) for _ in range(MAX_WATCHES_EACH)]
        try:
            async with session.get(PODS, params=params) as refused:
                assert refused.status == 429
                assert (await refused.json())["reason"] == "TooManyRequests"
            assert (await session.get(PODS)).status == 200
            held.pop().close()

            async def is_free() -> bool:
                async with session.get(PODS, params={**params, "timeoutSeconds": "1"}) as again:
                    return again.status == 200

            await api.run_to(76)  # a line to the one that is gone
            deadline = time.monotonic() + 30
            while not await is_free():
                assert time.monotonic() < deadline
                await asyncio.sleep(0.2)
        finally:
            for each in held:
                each.close()


@contextmanager
def reader_that_never_reads(url: str) -> Iterator[socket.socket]:
    host, port = url.removeprefix("http://").split(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((host, int(port)))
        client.sendall(b"GET /watch HTTP/1.1\r\nHost: x\r\n\r\n")
        yield client


async def test_a_reader_that_takes_nothing_is_cut_off() -> None:
    store = Store(0)
    large = "x" * 100_000

    def body() -> dict:
        return {"metadata": {}, "text": large}

    store.take(ObjectFacts("pods", "default", f"p{index}", (), body) for index in range(400))
    watches = Watches(store, lambda: 0)
    selection = ObjectSelection(POD, None, Selector(), FieldSelector())
    watch = WatchRequest(WantedForm(POD, Form.WHOLE), selection, None, True, False)
    app = web.Application()
    ended = asyncio.Event()

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await watches.serve(request, watch)
        finally:
            ended.set()

    app.router.add_get("/watch", handle)
    async with serving(app) as url:
        with reader_that_never_reads(url):
            async with asyncio.timeout(60):
                await ended.wait()
            await until(lambda: not watches._open.total())
