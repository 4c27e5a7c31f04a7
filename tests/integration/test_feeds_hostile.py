# mypy: disable-error-code="no-untyped-def, import-not-found"
"""Scraped pods that mean no good, at full size, beside one that is well and is scraped as if alone."""

import asyncio
import itertools
import tracemalloc
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from background import until
from gpuscale.base.clock import WallClock
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.storage.limits import DEFAULT_LIMITS
from gpuscale.server.sources.feeds.collector import FeedCollector
from gpuscale.server.sources.feeds.settings import FeedSettings
from gpuscale.server.sources.feeds.targets import FeedState, static_scrape

pytestmark = pytest.mark.timeout(180)
CLOCK = WallClock()
SCRAPES = itertools.count(1)


async def endless(request):
    response = web.StreamResponse()
    await response.prepare(request)
    chunk = b"# " + b"x" * 65_533 + b"\n"
    with suppress(ConnectionError):
        while True:
            await response.write(chunk)
    return response


async def slow(request):
    response = web.StreamResponse()
    await response.prepare(request)
    with suppress(ConnectionError):
        while True:
            await response.write(b"#")
            await asyncio.sleep(0.05)
    return response


async def flood(_):
    return web.Response(text="".join(f"flood_{i} 1\n" for i in range(DEFAULT_LIMITS.samples + 1)))


async def churn(_):
    """Answer with names that were never there before, as many as a scrape may bring."""
    number = next(SCRAPES)
    return web.Response(text="".join(f"churn_{number}_{i} 1\n" for i in range(50_000)))


async def jumping(_):
    """Answer with times an hour ahead, and a day behind."""
    ahead_ms, behind_ms = CLOCK.now_ms() + 3_600_000, CLOCK.now_ms() - 86_400_000
    return web.Response(text=f"ahead 1 {ahead_ms}\nbehind 1 {behind_ms}\nhere 1\n")


async def well(_):
    return web.Response(text="well 1\n")


@asynccontextmanager
async def pods():
    """Serve all of them, and yield the URL of each by name."""
    app = web.Application()
    for handler in (endless, slow, flood, churn, jumping, well):
        app.router.add_get(f"/{handler.__name__}", handler)
        app.router.add_get(f"/{handler.__name__}/{{number}}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    port = unused_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def scraping(*urls, **settings):
    targets = tuple(static_scrape(url) for url in urls)
    collector = FeedCollector(FeedSettings(static=targets, **settings), CLOCK)
    task = asyncio.create_task(collector.run())
    try:
        yield collector
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def values(collector, query):
    return [row.value for row in instant(collector.store, query, CLOCK.now_ms()).samples]


def state(collector, path):
    found = [each for target, each in collector.targets() if target.url.endswith(path)]
    return found[0] if found else FeedState("scrape", "")


@pytest.mark.parametrize(
    ("path", "limit"), [("/endless", "body_size"), ("/flood", "series"), ("/slow", None)]
)
async def test_a_page_without_an_end_a_flood_and_a_slow_one_fail_alone(path, limit) -> None:
    async with pods() as url, scraping(url + path, url + "/well", scrape_interval_s=1.0) as found:
        await until(lambda: values(found, "well") == [1.0])
        await until(lambda: state(found, path).failures >= 2, 60)
        bad, good = state(found, path), state(found, "/well")
        assert not bad.up
        assert bad.error
        if limit is not None:
            assert bad.limited[limit] >= 1
        assert (good.up, good.failures, values(found, "well")) == (True, 0, [1.0])
        assert values(found, "count({__name__=~'flood_.*'})") == []


async def test_many_pods_without_an_end_take_the_memory_of_four() -> None:
    tracemalloc.start()
    try:
        async with pods() as url:
            bad = [f"{url}/endless/{number}" for number in range(16)]
            async with scraping(*bad, url + "/well", scrape_interval_s=5.0) as found:
                await until(
                    lambda: sum(e.limited.get("body_size", 0) for e in found.states()) >= 8, 90
                )
                assert values(found, "well") == [1.0]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Four pages of 32 MiB at most, the last of them once more when it is put together, and a MiB each.
    assert peak < (4 * 32 + 32 + 16 + 16) * 1024 * 1024


async def test_new_names_at_each_scrape_leave_room_for_others() -> None:
    async with (
        pods() as url,
        scraping(url + "/churn", url + "/well", scrape_interval_s=0.5, max_series=150_000) as found,
    ):
        await until(lambda: state(found, "/churn").limited.get("series", 0) >= 1, 90)
        await until(lambda: values(found, "well") == [1.0])
        assert found.store.stats().series <= 150_000
        assert state(found, "/well").failures == 0


async def test_a_clock_that_jumps_changes_nothing_but_its_own_series() -> None:
    async with pods() as url, scraping(url + "/jumping", url + "/well", scrape_interval_s=0.5) as f:
        await until(lambda: values(f, "here") == [1.0] and values(f, "well") == [1.0])
        assert values(f, "ahead") == []
        assert values(f, "behind") == []
        assert state(f, "/jumping").up
