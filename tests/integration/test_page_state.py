"""What the live page is sent and what it shows are the same: no key is forgotten on either side.

The state of real runs is followed in Chromium by a proxy that notes each key that the page's scripts read.
"""

from importlib import resources

import pytest

from gpuscale.base.clock import PacedClock
from gpuscale.base.pages.timeline import SeriesRecorder
from gpuscale.lab.local.view import LiveView
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.document.document import row
from gpuscale.lab.sim.needs import needs_of
from gpuscale.lab.sim.pipeline import VirtualPipeline
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.world import World

pytest.importorskip("playwright.async_api", reason="needs playwright: pip install -e '.[dev]'")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.asyncio(loop_scope="module"),
]

SCENARIOS = ("ack-bert", "aks-mnist-jobs")
"""A service with an HPA, and Jobs: together they have every panel."""
MINUTES = 4
"""Of the scenario: pods run, the HPA has decided, Jobs wait."""
NOT_SHOWN = {
    f"jobs.workloads[].{key}": "the page counts what waits; the terminal has a row for each"
    for key in ("name", "planned", "submitted", "running", "succeeded")
}
"""What is sent and stands nowhere on the page, with the reason."""

FOLLOW = """
const parse = JSON.parse;
window.read = new Set();
const followed = (value, path) => {
  if (value === null || typeof value !== "object") return value;
  return new Proxy(value, {
    get(target, key) {
      const found = target[key];
      if (Array.isArray(target)) {
        return typeof key === "string" && /^[0-9]+$/.test(key) ? followed(found, `${path}[]`) : found;
      }
      if (typeof key !== "string") return found;
      const place = path ? `${path}.${key}` : key;
      window.read.add(place);
      return followed(found, place);
    },
  });
};
JSON.parse = (text, ...rest) => {
  const found = parse(text, ...rest);
  return found?.state ? { ...found, state: followed(found.state, "") } : found;
};
"""


class Followed(LiveView):
    """A run in virtual time as the live page sees it."""

    def advance(self, minutes) -> None:
        self._world.engine.run_until(self._world.start_ms + minutes * 60_000)


def followed_run(scenario):
    folder = resources.files("gpuscale.lab.sim") / "scenarios" / scenario
    text = (folder / "scenario.yaml").read_text()
    setup = load_setup(text, scenario, lambda name: (folder / name).read_text())
    world = World(setup, 0, needs_of(setup).fields(setup.counters))
    controller = HpaController(world)
    VirtualPipeline(world, controller)
    recorder = SeriesRecorder()
    recorder.add(0, row(world, controller.figures(), {}))
    run = Followed(
        world,
        controller,
        recorder,
        lambda node: world.gpus.read(node, world.engine.now_ms),
        PacedClock(1.0),
        "1970-01-01T00:00:00+00:00",
        dict,
        list,
    )
    for service in setup.workloads:  # set by hand: the page then shows the scenario's rate too
        run.set_load(service.deployment.partition("/")[2], 9.0)
    return run


def keys_of(value, path=""):
    """Yield the path of each key of a state, with `[]` for the items of a list."""
    match value:
        case list() | tuple():
            for each in value:
                yield from keys_of(each, f"{path}[]")
        case dict() if path != "addresses":
            for key, each in value.items():
                place = f"{path}.{key}" if path else key
                yield place
                yield from keys_of(each, place)


async def keys_read(page):
    """Return the keys that the page has read of its state, once it has drawn one."""
    for _ in range(300):
        if found := await page.evaluate("[...window.read]"):
            # What the addresses are called is the loop's, not the state's.
            return {each for each in found if not each.startswith("addresses.")}
        await page.wait_for_timeout(100)
    raise AssertionError("the page drew nothing")


async def test_the_page_shows_each_key_that_it_is_sent_and_reads_no_other(browser, served) -> None:
    sent, read = set(), set()
    for scenario in SCENARIOS:
        await served.restart(MINUTES, lambda scenario=scenario: followed_run(scenario))
        sent |= set(keys_of(served.run.state()))
        context = await browser.new_context()
        await context.add_init_script(FOLLOW)
        page = await context.new_page()
        await page.goto(served.url, wait_until="commit")
        read |= await keys_read(page)
        await context.close()
    assert sent - read == set(NOT_SHOWN)
    assert read - sent == set()


async def test_the_fake_run_of_the_page_tests_sends_no_key_of_its_own(served) -> None:
    sent = set()
    for scenario in SCENARIOS:
        run = followed_run(scenario)
        run.advance(MINUTES)
        sent |= set(keys_of(run.state()))
    assert set(keys_of(served.run.state())) - sent == set()
