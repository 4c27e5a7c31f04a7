"""The timeline of a load in a real browser: each hop's chart, the lanes, and what the cursor says."""

import re

import pytest

from gpuscale.load.timeline.page import render_timeline
from gpuscale.load.timeline.types import Span, Timeline, TimelineMark, Track

playwright = pytest.importorskip(
    "playwright.async_api", reason="needs playwright: pip install -e '.[dev]'"
)
expect = playwright.expect

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.asyncio(loop_scope="module"),  # one browser serves the whole module
]

START_MS = 1_750_000_000_000
SENT = tuple((START_MS + 1000 * second, 10.0 + second) for second in range(61))
P99 = tuple((at_ms, None if 20 <= value < 40 else value) for at_ms, value in SENT)
READY = ((START_MS, 1.0), (START_MS + 30_000, 2.0))
SPANS = (
    Span("Job/a", "pending", START_MS, START_MS + 20_000),
    Span("Job/a", "running", START_MS + 20_000, START_MS + 60_000),
    Span("Job/b", "pending", START_MS + 10_000, START_MS + 60_000),
)


@pytest.fixture
def opened(open_page, tmp_path):
    async def opened_timeline(**parts):
        run = Timeline("http://host/ <b>&", START_MS, START_MS + 60_000, **parts)
        file = tmp_path / "timeline.html"
        file.write_text(render_timeline(run, {"p99": "<i>70 ms</i>"}), encoding="utf-8")
        return await open_page(file.as_uri())

    return opened_timeline


async def drawn(page, chart: str):
    plot = page.locator(f'[data-chart="{chart}"] .plot')
    await plot.scroll_into_view_if_needed()
    await expect(plot.locator("canvas")).to_have_attribute("style", re.compile("width"))
    return await plot.evaluate("(node) => node.drawn")


async def test_each_hop_has_a_chart_in_the_order_of_the_loop(opened) -> None:
    tracks = (
        Track("ready", "pods", "replicas", READY),
        Track("p99", "ms", "latency", P99),
        Track("sent", "requests/s", "load", SENT),
        Track("failed", "%", "load", SENT),
    )
    page = await opened(tracks=tracks)
    titles = page.locator("figure:visible h3")
    await expect(titles).to_have_text(["Loadrequests/s", "Load%", "Latencyms", "Replicaspods"])
    await expect(page.locator("header")).to_contain_text("http://host/ <b>&")
    await expect(page.locator(".totals")).to_contain_text("<i>70 ms</i>")
    await expect(page.locator("#events-panel")).to_be_hidden()


async def test_tracks_keep_their_own_times_and_their_gaps(opened) -> None:
    tracks = (Track("p99", "ms", "latency", P99), Track("ready", "pods", "replicas", READY))
    page = await opened(tracks=tracks)
    (latency,) = (await drawn(page, "latency-1"))["lines"]
    assert latency["x"] == list(range(61))
    assert latency["y"] == [value for _, value in P99]
    (ready,) = (await drawn(page, "replicas-2"))["lines"]
    assert (ready["x"], ready["y"]) == ([0, 30], [1, 2])


async def test_lanes_are_rows_of_bars_and_the_legend_counts_them(opened) -> None:
    page = await opened(spans=SPANS)
    bars = (await drawn(page, "spans"))["bars"]
    # Two lanes: the first is the upper row.
    assert [(bar["y"], bar["from"], bar["to"]) for bar in bars] == [
        (1, 0, 20), (1, 20, 60), (0, 10, 60),
    ]  # fmt: skip
    assert bars[0]["colour"] == bars[2]["colour"] != bars[1]["colour"]
    values = page.locator('[data-chart="spans"] .legend-value')
    await expect(values).to_have_text(["1", "1"])  # at the end: one pending, one running
    await page.get_by_role("button", name="pending").click()
    await expect(page.get_by_role("button", name="pending")).to_have_attribute(
        "aria-pressed", "false"
    )
    await page.wait_for_function(
        "document.querySelector('[data-chart=\"spans\"] .plot').drawn.bars.length === 1"
    )
    text = page.locator("#chart-spans-text")
    await expect(text).to_contain_text("Job/b: pending from 00:00:10 to 00:01:00.")


async def test_events_mark_the_charts_and_stand_in_the_list(opened) -> None:
    marks = (
        TimelineMark(
            START_MS + 30_000, "SuccessfulRescale", "HorizontalPodAutoscaler/bert", "New size: 2"
        ),
    )
    page = await opened(tracks=(Track("ready", "pods", "replicas", READY),), marks=marks)
    await expect(page.locator("#events li")).to_contain_text("New size: 2")
    shown = await drawn(page, "replicas-1")
    assert [mark["times"] for mark in shown["marks"] if mark["times"]] == [[30]]
