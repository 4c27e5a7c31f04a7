# mypy: disable-error-code="arg-type"
"""The real promtool asks our API."""

import asyncio
import shutil

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gpuscale.base.clock import ManualClock
from gpuscale.series.promapi.app import add_routes
from gpuscale.series.storage.store import SeriesStore

pytestmark = pytest.mark.prometheus

NOW_S = 1_700_000_000


@pytest.fixture
async def url():
    store = SeriesStore()
    for gpu in "01":
        for seconds, value in ((60, 10), (30, 20), (0, 40)):
            labels = {"__name__": "util", "gpu": gpu}
            store.append(labels, (NOW_S - seconds) * 1000, value + int(gpu))
    app = web.Application()
    add_routes(app, store, ManualClock(NOW_S * 1000))
    async with TestServer(app) as server:
        yield str(server.make_url("/")).rstrip("/")


async def promtool(*arguments):
    process = await asyncio.create_subprocess_exec(
        shutil.which("promtool"),
        "query",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(20):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_promtool_query_instant(url) -> None:
    assert await promtool("instant", url, f"--time={NOW_S}", "util") == (
        0,
        f'util{{gpu="0"}} => 40 @[{NOW_S}]\nutil{{gpu="1"}} => 41 @[{NOW_S}]\n',
        "",
    )


async def test_promtool_query_instant_of_a_scalar(url) -> None:
    assert await promtool("instant", url, f"--time={NOW_S}", "1 + 1") == (
        0,
        f"scalar: 2 @[{NOW_S}]\n",
        "",
    )


async def test_promtool_query_range(url) -> None:
    code, out, _ = await promtool(
        "range", url, f"--start={NOW_S - 60}", f"--end={NOW_S}", "--step=30s", "sum(util)"
    )
    assert code == 0
    assert out == f"{{}} =>\n21 @[{NOW_S - 60}]\n41 @[{NOW_S - 30}]\n81 @[{NOW_S}]\n"


async def test_promtool_query_series(url) -> None:
    times = (f"--start={NOW_S - 60}", f"--end={NOW_S}")
    code, out, _ = await promtool("series", url, *times, "--match=util")
    assert (code, out.splitlines()) == (
        0,
        [
            '{__name__="util", gpu="0"}',
            '{__name__="util", gpu="1"}',
        ],
    )


async def test_promtool_query_labels(url) -> None:
    times = (f"--start={NOW_S - 60}", f"--end={NOW_S}")
    assert await promtool("labels", url, *times, "gpu") == (0, "0\n1\n", "")


async def test_promtool_shows_our_errors(url) -> None:
    code, _, err = await promtool("instant", url, "sum(")
    assert code != 0
    assert 'bad_data: invalid parameter "query": 1:5: parse error: unclosed left parenthesis' in err


async def test_promtool_shows_errors_of_evaluation(url) -> None:
    code, _, err = await promtool("instant", url, f"--time={NOW_S}", "util * on() util")
    assert code != 0
    assert "execution: found duplicate series for the match group {}" in err
