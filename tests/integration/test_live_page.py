"""The page of a really running loop, in Chromium."""

import asyncio
import json
import math
import re
import sys
import urllib.request
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import async_playwright

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
GPUSCALE = Path(sys.executable).parent / "gpuscale"
pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.timeout(
        300
    ),  # minutes of a scenario at 30 times its speed, on a machine that may be busy
]


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return json.loads(response.read())


def set_load(url, rate) -> None:
    """Hold the load of the one service; None leaves it to the scenario."""
    workload = fetch(f"{url}/ui/state")["workloads"][0]["name"]
    body = json.dumps({"workload": workload, "rate": rate}).encode()
    with urllib.request.urlopen(f"{url}/ui/load", body, timeout=30):
        pass


async def start(scenario="ack-bert"):
    """Return a running loop and its address."""
    process = await asyncio.create_subprocess_exec(
        GPUSCALE, "up", scenario, "--port", "0", "--speed", "30", stdout=asyncio.subprocess.PIPE
    )
    while line := (await process.stdout.readline()).decode():
        match = re.search(r"page +(http://\S+)/", line)
        if match:
            return process, match[1]
    raise AssertionError("the loop ended before its page was there")


async def eventually(check, seconds=30) -> None:
    for _ in range(seconds * 5):
        if await check():
            return
        await asyncio.sleep(0.2)
    raise AssertionError("not within the time")


async def test_the_page_shows_what_the_api_says_and_its_buttons_work() -> None:
    process, url = await start()
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = await browser.new_page()
            told = []
            page.on("console", lambda message: told.append(message.text))
            page.on("pageerror", lambda error: told.append(str(error)))
            await page.goto(url)
            await check_values(page, url)
            await check_button(page, url)
            await browser.close()
        assert told == []
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def opened(scenario):
    """A running loop's page, and its address."""
    process, url = await start(scenario)
    try:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            page = await browser.new_page()
            await page.goto(url)
            yield page, url
            await browser.close()
    finally:
        process.terminate()
        await process.wait()


TILES = """() => {
    const text = (selector) => document.querySelector(selector)?.textContent ?? null;
    const tile = (name, part) => text(`[data-stage=${name}] [data-part=${part}]`);
    return {
        value: tile('value', 'value'), target: tile('value', 'target'), note: tile('value', 'note'),
        ready: tile('replicas', 'value'), nodes: tile('nodes', 'value'), load: tile('load', 'value'),
        column: text('[data-part=facts] dd'), clock: text('#clock'),
        jobs: tile('load', 'note'), unit: tile('load', 'unit'),
    };
}"""


def seconds(clock):
    hours, minutes, rest = (int(part) for part in clock.split(":"))
    return 3600 * hours + 60 * minutes + rest


async def a_minute_after(page, reached, minutes=4):
    """Return the tiles once they have been so for a minute of the scenario's time."""
    since = None
    for _ in range(minutes * 60 * 5):
        tiles = await page.evaluate(TILES)
        if not reached(tiles):
            since = None
        elif since is None:
            since = seconds(tiles["clock"])
        elif seconds(tiles["clock"]) >= since + 60:
            return tiles
        await asyncio.sleep(0.2)
    raise AssertionError(f"not within the time: {tiles}")


@pytest.mark.parametrize(
    ("scenario", "rate", "pods", "low", "high", "target"),
    [
        # 4.6 requests/s keep one GPU busy for 23 % of its time: 23 > 20, so two pods, 11.5 each,
        # of which readings are whole percents: 11 or 12, and their mean 11, 11.5 or 12.
        pytest.param("ack-bert", 4.6, 2, 11, 12, 20, id="ack-bert"),
        pytest.param("ack-bert-v2beta1", 4.6, 2, 11, 12, 20, id="ack-bert-v2beta1"),
        # 30 requests/s at 60 ms of a GPU each are 1.8 GPUs: 180 % / 30 = 6 pods at 30 %
        pytest.param("eks-vision", 30, 6, 29.5, 30.5, 30, id="eks-vision"),
    ],
)
async def test_tiles_are_right_a_minute_after_the_scale_out(
    scenario: str, rate: float, pods: int, low: float, high: float, target: int
) -> None:
    async with opened(scenario) as (page, url):
        await asyncio.to_thread(set_load, url, rate)

        def settled(tiles):
            value = tiles["value"]
            number = float(value) if re.fullmatch(r"[0-9.]+", value) else math.inf
            return tiles["ready"] == str(pods) and number <= high

        tiles = await a_minute_after(page, settled)
    value = float(tiles["value"])
    assert low <= value <= high
    assert tiles["target"] == f"target {target}"
    assert tiles["note"] == f"{value / target:.3g} times the target"
    # the column writes 11.5 as kubectl does
    assert tiles["column"] in {f"{value:g}/{target}", f"{value * 1000:g}m/{target}"}
    assert tiles["load"] == f"{rate:g}"


async def test_jobs_are_counted_on_the_page() -> None:
    async with opened("aks-mnist-jobs") as (page, url):
        # 20 Jobs on a pool that grows from 1 node to 3; more than a minute after it has 3
        await a_minute_after(page, lambda tiles: tiles["nodes"] == "3")
        tiles = await page.evaluate(TILES)
        rows = await page.locator("#job-table tbody tr").count()
        state = await asyncio.to_thread(fetch, f"{url}/ui/state")
        lines = await page.locator('[data-chart="jobs"] .plot').evaluate("node => node.drawn.lines")
    running, pending = map(
        int, re.fullmatch(r"(\d+) running · (\d+) pending", tiles["jobs"]).groups()
    )
    assert int(tiles["load"]) + running + pending == 20
    assert tiles["unit"] == "of 20 jobs completed"
    assert (tiles["value"], tiles["note"]) == ("\N{EN DASH}", "no HPA")
    assert rows == 20
    done = [job["succeeded"] for job in state["jobs"]["items"]]
    assert sum(done) == state["jobs"]["completed"]
    pending_line, running_line, done_line = (line["y"] for line in lines)
    sums = {sum(each) for each in zip(pending_line, running_line, done_line, strict=True)}
    assert sums == {0, 20}  # none before they are submitted, and none is lost
    assert max(running_line) == 3  # one GPU on each of three nodes


async def check_values(page, url) -> None:
    async def same():
        state = await asyncio.to_thread(fetch, f"{url}/ui/state")
        text = await page.inner_text("body")
        node = state["nodes"][0]["name"]
        return state["hpas"][0]["targets"] in text and "gpu-hpa" in text and node in text

    await eventually(same)


async def check_button(page, url) -> None:
    await page.get_by_role("button", name="8×").click()

    async def driven():
        state = await asyncio.to_thread(fetch, f"{url}/ui/state")
        workload = state["workloads"][0]
        text = await page.inner_text("body")
        return (workload["mode"], workload["rate"]) == ("manual", 36.8) and "36.8" in text

    await eventually(driven)

    async def scaled():
        # one pod of 20 requests/s saturates: 100 against 20, cut to the 4 that a controller allows at once
        return "New size: 4" in await page.inner_text("body")

    await eventually(scaled)
