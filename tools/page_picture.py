"""The picture on the first pages: what `gpuscale up` shows in a browser some minutes into its scenario.

`make picture` writes docs/page.png: `python tools/page_picture.py`. It drives Debian's Chromium.
"""

import asyncio
import re
import sys
from pathlib import Path

from playwright.async_api import async_playwright

PICTURE = Path(__file__).parents[1] / "docs" / "page.png"
GPUSCALE = Path(sys.executable).parent / "gpuscale"
SPEED, SCENARIO_S = 60, 420
WIDTH, HEIGHT = 1280, 800


async def main() -> None:
    """Run the loop, wait, and write the picture."""
    loop = await asyncio.create_subprocess_exec(
        GPUSCALE, "up", "--port", "0", "--speed", str(SPEED), stdout=asyncio.subprocess.PIPE
    )
    try:
        async with async_playwright() as driver:
            browser = await driver.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
            )
            page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            await page.goto(await _address(loop))
            await asyncio.sleep(SCENARIO_S / SPEED)
            await page.screenshot(path=PICTURE)
            await browser.close()
    finally:
        loop.terminate()
        await loop.wait()


async def _address(loop: asyncio.subprocess.Process) -> str:
    assert loop.stdout is not None
    while line := (await loop.stdout.readline()).decode():
        if found := re.search(r"page +(http://\S+)", line):
            return found[1]
    raise SystemExit("gpuscale up ended before it had a page")


if __name__ == "__main__":
    asyncio.run(main())
