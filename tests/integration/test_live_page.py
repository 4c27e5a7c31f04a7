"""The page of a really running loop, in Chromium."""

import asyncio
import json
import re
import sys
import urllib.request
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
pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]


def fetch(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return json.loads(response.read())


async def start():
    """Return a running loop and its address."""
    process = await asyncio.create_subprocess_exec(
        GPUSCALE, "up", "ack-bert", "--port", "0", "--speed", "30", stdout=asyncio.subprocess.PIPE
    )
    while line := (await process.stdout.readline()).decode():
        match = re.search(r"page +(http://\S+)/", line)
        if match:
            return process, match[1]
    raise AssertionError("the loop ended before its page was there")


async def eventually(check, seconds=30):
    for _ in range(seconds * 5):
        if await check():
            return
        await asyncio.sleep(0.2)
    raise AssertionError("not within the time")


async def test_the_page_shows_what_the_api_says_and_its_buttons_work():
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


async def check_values(page, url):
    async def same():
        state = await asyncio.to_thread(fetch, f"{url}/ui/state")
        text = await page.inner_text("body")
        node = state["nodes"][0]["name"]
        return state["hpas"][0]["targets"] in text and "gpu-hpa" in text and node in text

    await eventually(same)


async def check_button(page, url):
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
