# mypy: disable-error-code="arg-type, assignment, attr-defined, func-returns-value"
"""A browser for the pages, and a page of a fake run; the network is shut off."""

import importlib.util
import re
import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest_asyncio
from aiohttp import web

from gpuscale.lab.views import render_report
from gpuscale.server.page import add_page

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _fake_run_module():
    path = Path(__file__).parents[1] / "unit" / "views" / "fake_run.py"
    spec = importlib.util.spec_from_file_location("fake_run_in_browser", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FAKE = _fake_run_module()


class Served:
    """The live page of a run, which may be stopped and started again at the same address."""

    def __init__(self) -> None:
        self.run = FAKE.FakeRun()
        self.port = 0
        self._runner = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/"

    async def start(self, steps, make=FAKE.FakeRun) -> None:
        """Serve a new run that is `steps` points old."""
        self.run = make()
        self.run.advance(steps)
        app = web.Application()
        orders = getattr(self.run, "orders", None)
        what_if = getattr(self.run, "what_if", None)
        add_page(
            app,
            self.run,
            self.run.set_load,
            what_if=what_if,
            orders=orders,
            report=lambda: render_report(self.run.document()),
        )
        self._runner = web.AppRunner(app, shutdown_timeout=2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def restart(self, steps, make=FAKE.FakeRun) -> None:
        await self.stop()
        await self.start(steps, make)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser():
    from playwright.async_api import async_playwright

    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="module")
async def served():
    """A run at 00:15:30: three scale-outs, one of them while readings were missing."""
    page = Served()
    await page.start(62)
    yield page
    await page.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def open_page(browser, served):
    """Open pages that may reach nothing but this machine and must not complain.

    It asks for `served` so that the pages close before their server does: pytest ends fixtures in
    the reverse of the order in which they were made, and a page still loading complains of a
    server that is gone.
    """
    contexts = []
    complaints = []

    async def guard(route) -> None:
        if urlsplit(route.request.url).hostname in {"127.0.0.1", "", None}:
            await route.continue_()
        else:
            complaints.append(f"asked the network for {route.request.url}")
            await route.abort()

    async def open_url(url, *, scheme="light", width=1280, height=800, ignore="(?!)"):
        context = await browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        contexts.append(context)
        await context.route("**/*", guard)
        page = await context.new_page()
        page.on(
            "console",
            lambda message: re.search(ignore, message.text) or complaints.append(message.text),
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        await page.goto(url, wait_until="commit")  # tests wait for what they look at
        return page

    yield open_url
    for context in contexts:
        await context.close()
    assert complaints == []
