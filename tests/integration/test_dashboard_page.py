# mypy: disable-error-code="arg-type, name-defined"
"""The dashboard's page in a real Chromium: a cluster's map, its workloads, and what becomes of bad luck."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from gpuscale.base.clock import ManualClock
from gpuscale.base.pages.assets import static_text
from gpuscale.base.pages.timeline import SeriesRecorder
from gpuscale.ops.dashboard import Dashboard, Decider
from gpuscale.ops.top.picture import EventRow, GpuRow, JobRow, NodeRow, Picture, WorkloadRow
from seen_hpa import seen

playwright = pytest.importorskip(
    "playwright.async_api", reason="needs playwright: pip install -e '.[dev]'"
)
expect = playwright.expect

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.asyncio(loop_scope="module"),  # one browser serves the whole module
]

NOW_MS = 1_800_000_000_000
MARKUP = "<img src=x onerror=alert(1)>"
GPUS = 24
"""More than are shown as cards."""


def gpu(number: int, use: float | None, **given: object) -> GpuRow:
    row = GpuRow(
        *(f"node-{number // 8}", str(number % 8), f"GPU-{number}", "NVIDIA L4", use),
        *(6144.0, 24576.0, 71.5, 55.0, (f"prod/pod-{number}{MARKUP}",), ()),
    )
    return replace(row, **given)


def workload(name: str, value: float | None, **given: object) -> WorkloadRow:
    ratio = None if value is None else value / 20
    row = WorkloadRow(
        *(
            "prod",
            name,
            f"Deployment/{name}",
            f"{value}/20",
            ratio,
            1,
            9,
            3,
            4,
            2,
            1,
            f"why {MARKUP}",
        ),
        signal="queue",
        value=value,
        target_value=20.0,
    )
    return replace(row, **given)


def picture(look: int = 0) -> Picture:
    parts = [gpu(0, 30.0, index=f"0/{part}", owners=()) for part in range(3)]
    return Picture(
        NOW_MS + 5000 * look,
        f"cluster test{MARKUP}",
        (
            *parts,
            gpu(1, None),
            gpu(2, 12.5, owners=("prod/a", "prod/b")),
            gpu(3, 0.0, owners=(), faults=("Xid 79",)),
            *(gpu(number, 50.0) for number in range(4, GPUS)),
        ),
        tuple(
            NodeRow(f"node-{i}", "g6", "pool", "Ready", 8, 8, 50.0, 3600.0, ()) for i in range(3)
        ),
        (workload("chat", 11.5), workload("milli", 0.0235), workload("silent", None)),
        (JobRow("prod", f"train{MARKUP}", 0, 1, 0, 0, None, 60.0, "Running"),),
        (EventRow(NOW_MS, "Warning", "FailedScheduling", f"pod/prod/x{MARKUP}", MARKUP, 1),),
        (f"events: {MARKUP}",),
    )


async def machine() -> Picture:
    return Picture(NOW_MS, "GPUs of here", (gpu(0, 30.0), gpu(1, None)))


class Reader:
    def __init__(self) -> None:
        self.looks = 0

    async def look(self) -> Picture:
        self.looks += 1
        return picture(self.looks)


class Decided(Decider):
    """Has looked at one HPA, with two pods at 40 and a target of 20."""

    def __init__(self) -> None:
        pass

    async def request(self, namespace, name):
        return seen(2, "40")


class Board(Dashboard):
    """A dashboard as the tests' server serves it: a look is a step, and the load is nobody's."""

    set_load = None

    def advance(self, steps: int) -> None:
        """Nothing: `looked` takes the pictures."""


@pytest_asyncio.fixture(loop_scope="module")
async def board(served):
    found = Board(Reader(), ManualClock(NOW_MS), 5)
    for _ in range(3):
        await found.look()
    await served.restart(0, lambda: found)
    return found


def row(page, name):
    return page.locator("#workload-table tbody tr", has_text=f"prod/{name}")


async def shown_facts(page):
    return await page.locator(".map-facts").inner_text()


@pytest.mark.parametrize(("width", "height"), [(375, 812), (1280, 800), (3840, 2160)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_shows_the_numbers_of_the_cluster_at_every_size(
    open_page, served, board, width: int, height: int, scheme: str
) -> None:
    page = await open_page(served.url, width=width, height=height, scheme=scheme)
    value = '[data-part="value"]'
    await expect(row(page, "chat").locator(value)).to_have_text("11.5")
    await expect(row(page, "milli").locator(value)).to_have_text("0.024")  # two digits below 0.1
    await expect(row(page, "milli").locator(value)).to_have_attribute(
        "title", "0.0235/20, of Deployment/milli"
    )
    await expect(row(page, "silent").locator(value)).to_have_text("unknown")
    await expect(row(page, "chat").locator('[data-part="why"]')).to_have_text(f"why {MARKUP}")
    # three instances, one GPU without a value, and 22 others
    mean = (3 * 30 + 12.5 + 0 + 20 * 50) / 25
    await expect(page.locator('[data-stage="gpus"] b')).to_have_text(f"{mean:.1f}%")
    await expect(page.locator("#unseen")).to_have_text(f"events: {MARKUP}")
    await expect(page.locator("#scenario")).to_have_text(f"cluster test{MARKUP}")
    assert await page.locator("img").count() == 0
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_workload_is_chosen_and_the_link_keeps_it(open_page, served, board) -> None:
    page = await open_page(served.url)
    await row(page, "milli").get_by_role("button").click()
    await expect(page.locator('[data-stage="value"] b')).to_have_text("0.024")
    assert "workload=prod%2Fmilli" in page.url
    again = await open_page(page.url)
    await expect(again.locator("#hpas h3")).to_contain_text("prod/milli")
    await expect(again.locator('[data-chart="value"] canvas')).to_have_attribute(
        "style", re.compile("width")
    )
    lines = await again.locator('[data-chart="value"] .plot').evaluate("node => node.drawn.lines")
    assert [line["y"] for line in lines] == [[0.0235] * 3, [20.0] * 3]


async def test_the_map_tells_of_each_gpu_by_keyboard_and_pointer(open_page, served, board) -> None:
    page = await open_page(served.url)
    canvas = page.locator("#map canvas")
    await expect(canvas).to_have_attribute("style", re.compile("height"))
    await canvas.focus()
    told = []
    for _ in range(6):
        await page.keyboard.press("ArrowRight")
        told.append(await shown_facts(page))
    assert told[:3] == [
        f"node-0 · GPU 0/{part} · NVIDIA L4 · 30% used · 6 of 24 GiB · 71.5 W · 55 °C · free"
        for part in range(3)
    ]
    assert "no data on use" in told[3]
    assert "held by prod/a, prod/b" in told[4]
    assert told[5].endswith("free · fault: Xid 79")
    await page.keyboard.press("End")
    assert "node-2 · GPU 7" in await shown_facts(page)
    await canvas.hover(position={"x": 4, "y": 24})
    assert "node-0 · GPU 0/0" in await shown_facts(page)
    await page.get_by_role("button", name="Memory", exact=True).click()
    await expect(page.get_by_role("button", name="Memory", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )


async def test_a_chart_is_saved_as_it_was_sent(open_page, served, board) -> None:
    page = await open_page(served.url)
    await expect(row(page, "chat")).to_be_visible()
    async with page.expect_download() as saving:
        await page.get_by_role("button", name="What the HPA sees as CSV").click()
    saved = await (await saving.value).path()
    rows = list(csv.reader(io.StringIO(Path(saved).read_text())))
    assert rows[0] == ["time", "prod/chat value", "prod/chat target"]
    assert rows[1] == ["2027-01-15T08:00:05.000Z", "11.5", "20"]
    assert len(rows) == 4


async def test_what_if_is_asked_and_answered_in_words(open_page, served, board) -> None:
    board._hpas = {"prod/chat": ("prod", "chat")}
    board._decider = Decided()
    page = await open_page(served.url, ignore="400")
    panel = page.locator("#what-if-panel")
    await expect(panel.get_by_label("Target")).to_have_attribute("placeholder", "20")
    await panel.get_by_label("Target").fill("30")
    # 2 pods x 40/20 = 4, and x 40/30 = 2.7
    answer = panel.locator('[data-part="answer"]')
    await expect(answer).to_have_text("goes from 2 to 3. As it is: goes from 2 to 4.")
    await expect(panel.locator("li").first).to_contain_text("against a target of 30")
    await panel.get_by_label("Min").fill("-1")
    await expect(answer).to_have_text("min: found '-1', expected a whole number of replicas")


async def test_a_machine_has_the_use_of_its_gpus_alone(open_page, served, board) -> None:
    board._reader.look = machine
    board._recorder = SeriesRecorder()
    await board.look()
    page = await open_page(served.url)
    await expect(page.locator(".gpu-util:visible")).to_have_text(["30%", "no data"])
    await expect(page.locator(".chart:visible h3")).to_have_text(["GPU utilisation%"])
    names = page.locator(".legend-name")
    await expect(names).to_have_text(["GPUs", "all GPUs", "node-0 · 0"])  # no line without a value
    for hidden in ("#loop", "#workload-panel", ".panel.events"):
        await expect(page.locator(hidden)).to_be_hidden()


async def test_it_says_when_the_cluster_or_the_server_is_away(open_page, served, board) -> None:
    page = await open_page(served.url, ignore="Failed to load resource|ERR_|net::")
    await expect(page.locator("#status")).to_have_text("as of")
    board._state = {**board.state(), "fault": f"10.0.0.1 does not answer {MARKUP}"}
    await expect(page.locator("#fault")).to_contain_text(f"10.0.0.1 does not answer {MARKUP}")
    await board.look()
    await expect(page.locator("#fault")).to_be_hidden()
    await served.stop()
    await expect(page.locator("#status")).to_have_text("reconnecting")
    await served.start(0, lambda: board)
    await expect(page.locator("#status")).to_have_text("as of")


async def test_every_key_of_the_state_is_read(open_page, served, board) -> None:
    """As the run's page: no key is sent for nobody."""
    state = json.loads(json.dumps(board.state()))
    page = await open_page(served.url)
    await expect(row(page, "chat")).to_be_visible()
    text = "".join(
        static_text(f"{name}.js") for name in ("page", "panels", "tiles", "workloads", "map")
    )
    keys = {*state, *state["hpas"][0], *state["nodes"][0]["gpus"][0]}
    assert [key for key in keys if not re.search(rf"\b{key}\b", text)] == []


async def test_times_are_those_of_the_day_with_the_day_where_it_is_another(
    open_page, served, board
) -> None:
    page = await open_page(served.url)
    script = """async () => {
        const { clock, tick, useWallClock } = await import('/static/format.js');
        useWallClock();
        const noon = new Date(); noon.setHours(12, 30, 5, 0);
        const [today, other] = [noon / 1000, new Date(2024, 1, 9, 8, 7, 6) / 1000];
        return [clock(today), tick(today, 60), tick(today, 30), clock(other), tick(other, 3600)];
    }"""
    assert await page.evaluate(script) == [
        *("12:30:05", "12:30", "12:30:05", "9 Feb 08:07:06", "9 Feb 08:07")
    ]
