"""The pictures of pages: what `gpuscale up` and `gpuscale dashboard` show some minutes into a scenario.

`make picture` writes docs/page.png and docs/dashboard.png with Debian's Chromium.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

from playwright.async_api import Browser, async_playwright

DOCS = Path(__file__).parents[1] / "docs"
GPUSCALE = Path(sys.executable).parent / "gpuscale"
SPEED, SCENARIO_S = 20, 420
WIDTH, HEIGHT = 1280, 800


async def main() -> None:
    """Run the loop and a dashboard of it, wait, and write the pictures."""
    loop = await _started({}, "up", "--port", "0", "--speed", str(SPEED))
    board = None
    try:
        page = await _said(loop, r"page +(http://\S+)")
        kubeconfig = await _said(loop, r"KUBECONFIG=(\S+)")
        board = await _started(
            {"KUBECONFIG": kubeconfig}, "dashboard", "--port", "0", "--every", "1"
        )
        dashboard = await _said(board, r"page +(http://\S+)")
        async with async_playwright() as driver:
            browser = await driver.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
            )
            await asyncio.gather(
                _take(browser, page, "page.png"), _take(browser, dashboard, "dashboard.png")
            )
            await browser.close()
    finally:
        for process in (board, loop):
            if process is not None:
                process.terminate()
                await process.wait()


async def _started(variables: dict[str, str], *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        GPUSCALE, *arguments, stdout=asyncio.subprocess.PIPE, env={**os.environ, **variables}
    )


async def _said(process: asyncio.subprocess.Process, pattern: str) -> str:
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode():
        if found := re.search(pattern, line):
            return found[1]
    raise SystemExit("gpuscale ended before it had a page")


async def _take(browser: Browser, url: str, name: str) -> None:
    page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
    await page.goto(url)
    await asyncio.sleep(SCENARIO_S / SPEED)
    await page.screenshot(path=DOCS / name)


if __name__ == "__main__":
    asyncio.run(main())
