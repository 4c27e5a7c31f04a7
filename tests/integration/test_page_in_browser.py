# mypy: disable-error-code="arg-type, name-defined"
"""The live page and the report in a real Chromium, against a fake run and with the network shut off."""

import importlib.util
import re
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

from gpuscale.lab.views.report import render_report

playwright = pytest.importorskip(
    "playwright.async_api", reason="needs playwright: pip install -e '.[dev]'"
)
expect = playwright.expect
expect.set_options(timeout=30_000)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.asyncio(loop_scope="module"),  # one browser serves the whole module
]

WORKLOAD = "bert-intent-detection"


def _fake_run_module():
    path = Path(__file__).parents[1] / "unit" / "views" / "fake_run.py"
    spec = importlib.util.spec_from_file_location("fake_run_in_browser", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FAKE = _fake_run_module()


class JobsRun(FAKE.FakeRun):
    """Jobs instead of a service: no load to set, no HPA."""

    def document(self):
        whole = super().document()
        series = {
            key: v for key, v in whole["series"].items() if not key.startswith(("load/", "hpa/"))
        }
        summary = {**whole["summary"], "hpas": {}, "requests": {}}
        return {**whole, "series": series, "summary": summary}

    def since(self, points, events):
        new = super().since(points, events)
        series = {
            key: v for key, v in new["series"].items() if not key.startswith(("load/", "hpa/"))
        }
        return {**new, "series": series}

    def state(self):
        jobs = {"total": 20, "active": 3, "completed": 5}
        return {**super().state(), "workloads": [], "hpas": [], "jobs": jobs}


SELECTOR = (
    "&LabelSelector{MatchLabels:map[string]string{app: chat,tier: gpu,},MatchExpressions:"
    "[]LabelSelectorRequirement{LabelSelectorRequirement{Key:zone,Operator:In,Values:[a b],},"
    "LabelSelectorRequirement{Key:old,Operator:DoesNotExist,Values:[],},},}"
)
"""As Go prints it (k8s.io/apimachinery v0.37 pkg/apis/meta/v1/generated.pb.go, LabelSelector.String)."""
SELECTED = f"the HPA was able to compute the replica count from external metric queue({SELECTOR})"


class TwoServices(FAKE.FakeRun):
    """A second service with an HPA of two metrics, one without a value; the controller names a selector."""

    def state(self):
        now = super().state()
        second = {
            **now["workloads"][0],
            "name": "vision-api",
            "rate": 31.5,
            "ready": 6,
            "queue": 12.5,
        }
        hpa = {
            **now["hpas"][0],
            "name": "vision-hpa",
            "workload": "vision-api",
            "reference": "Deployment/vision-api",
        }
        hpa["targets"] = "<unknown>/30, 12/50"
        hpa["metrics"] = [FAKE.metric_figure(None, 30), FAKE.metric_figure(60, 50, decides=True)]
        hpa["conditions"] = [{**hpa["conditions"][0], "message": SELECTED}]
        hpa["explanation"] = [SELECTED]
        return {**now, "workloads": [*now["workloads"], second], "hpas": [*now["hpas"], hpa]}


def stage(page, name, part="value"):
    return page.locator(f'[data-stage="{name}"] [data-part="{part}"]')


def plot(page, chart):
    return page.locator(f'[data-chart="{chart}"] .plot')


async def holds(page, chart, wanted) -> None:
    """Wait until a trace of a chart has this content, then hold it against it for the message."""
    for _ in range(300):
        lines = await traces(page, chart)
        if any(wanted.items() <= line.items() for line in lines):
            return
        await page.wait_for_timeout(100)
    assert [{key: line[key] for key in wanted} for line in lines] == [wanted]


async def drawn(page, chart="events") -> None:
    """Wait for a chart."""
    canvas = page.locator(f'[data-chart="{chart}"] canvas')
    await expect(canvas).to_have_attribute("style", re.compile("width"))


async def traces(page, chart):
    """Return the lines that a chart's canvas shows."""
    return await plot(page, chart).evaluate("node => node.drawn.lines")


async def ranges(page):
    found = await page.evaluate(
        "() => [...document.querySelectorAll('.plot')].filter(p => p.drawn).map(p => p.drawn.range)"
    )
    return {tuple(one) for one in found}


async def scroll_through(page) -> None:
    """Bring every chart into view once; charts far below are drawn when they come near."""
    await page.locator('[data-chart="nodes"]').scroll_into_view_if_needed()
    await drawn(page, "nodes")
    await page.evaluate("scrollTo(0, 0)")


async def drag(page, chart, start, end) -> None:
    box = await plot(page, chart).bounding_box()
    await page.mouse.move(box["x"] + start, box["y"] + 30)
    await page.mouse.down()
    await page.mouse.move(box["x"] + end, box["y"] + 40, steps=4)
    await page.mouse.up()


def rounded(value, step):
    """Return a number as people round it, half away from zero, without zeros at its end."""
    return f"{Decimal(str(value)).quantize(Decimal(step), ROUND_HALF_UP).normalize():f}"


# ---- numbers


async def test_page_shows_the_numbers_of_the_state(open_page, served) -> None:
    page = await open_page(served.url)
    await expect(stage(page, "load")).to_have_text("18.4")
    state = served.run.state()
    workload, hpa = state["workloads"][0], state["hpas"][0]
    utils = [gpu["util"] for node in state["nodes"] for gpu in node["gpus"]]
    # The column writes a fraction as kubectl does, in thousandths; the tile has the plain number.
    await expect(stage(page, "value")).to_have_text(rounded(served.run.value, "0.1"))
    await expect(stage(page, "value", "target")).to_have_text("target 20")
    await expect(stage(page, "value", "note")).to_have_text(
        f"{served.run.value / 20:.3g} times the target"
    )
    await expect(page.locator('[data-part="facts"]')).to_contain_text(hpa["targets"])
    await expect(stage(page, "gpus")).to_have_text(f"{sum(utils) / len(utils):.1f}%")
    await expect(stage(page, "replicas")).to_have_text(str(workload["ready"]))
    await expect(stage(page, "replicas", "wanted")).to_have_text(f"ready, {hpa['desired']} wanted")
    await expect(stage(page, "pending")).to_have_text(str(workload["pending"]))
    await expect(stage(page, "nodes")).to_have_text(str(len(state["nodes"])))
    await expect(page.locator("#speed")).to_have_value("10")
    assert re.fullmatch(r"00:15:[345]\d", await page.locator("#clock").inner_text())


async def test_time_is_paused_and_sped_up_from_the_keyboard(open_page, served) -> None:
    page = await open_page(served.url, ignore="400")
    pause, speed = page.locator("#pause"), page.get_by_label("Speed")
    await expect(pause).to_be_visible()
    await pause.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("#status")).to_have_text("paused")
    await expect(page.locator("#pace-message")).to_contain_text("Requests to the services wait")
    await expect(pause).to_be_focused()
    stopped = await page.locator("#clock").inner_text()
    assert served.run.paused
    await page.keyboard.press("Space")
    await expect(page.locator("#status")).to_have_text("running")
    await expect(page.locator("#pace-message")).to_have_text("")
    assert await page.locator("#clock").inner_text() >= stopped
    await speed.select_option("100×")
    await expect(page.locator("#pace-message")).to_contain_text("is now 100 s of the scenario")
    assert served.run.speed == 100
    served.run.set_pace = refuse
    await speed.select_option("5×")
    await expect(page.locator("#pace-message")).to_have_text("The pace was not changed: no <b>")
    await expect(speed).to_have_value("100")  # what it is, not what was asked


async def test_what_is_broken_is_listed_until_it_is_mended(open_page, served) -> None:
    page = await open_page(served.url)
    panel, broken = page.locator("#fault-panel"), page.locator("#broken li")
    await expect(panel).to_be_visible()
    await panel.get_by_label("What to break").select_option("a node agent")
    await panel.get_by_label("Which one").select_option("The agent of gpu-node-1")
    await panel.get_by_label("Which one").focus()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(broken).to_have_text(["The agent of gpu-node-1, since 00:15:30Mend"])
    await expect(page.locator("#fault-message")).to_contain_text("its pods have no value")
    await expect(page.locator(".node-state").first).to_have_text("agent is down")
    await panel.get_by_label("What to break").select_option("Prometheus")
    await expect(panel.get_by_label("Which one")).to_be_hidden()
    await panel.get_by_role("button", name="Break").click()
    await expect(broken).to_have_count(2)
    await panel.get_by_role("button", name="Mend The agent of gpu-node-1").click()
    await expect(broken).to_have_text(["Prometheus, since 00:15:30Mend"])
    await expect(page.locator(".node-state").first).to_have_text("")
    assert [each["kind"] for each in served.run.broken] == ["prometheus"]


async def test_the_end_of_the_scenario_offers_commands(open_page, served) -> None:
    page = await open_page(served.url)
    await expect(page.locator("#load-panel")).to_be_visible()
    await expect(page.locator("#next-panel")).to_be_hidden()
    served.run.next = [["The same again", "gpuscale simulate 'a <b>.yaml'"]]
    served.run.advance()
    await expect(page.locator("#next code")).to_have_text("gpuscale simulate 'a <b>.yaml'")


async def test_a_run_is_saved_as_one_page_that_opens_without_the_server(
    open_page, served, tmp_path
) -> None:
    page = await open_page(served.url)
    async with page.expect_download() as saving:
        await page.get_by_role("link", name="Save the run as one page").click()
    download = await saving.value
    assert download.suggested_filename == "run.html"
    path = tmp_path / "run.html"
    await download.save_as(path)
    await served.stop()
    await page.context.close()
    kept = await open_page(path.as_uri())
    await expect(kept.locator("h1")).to_have_text("ack-bert")
    await expect(kept.locator('[data-chart="replicas"] canvas')).to_be_visible()
    await expect(kept.locator(".event-list li")).to_have_count(len(served.run.events))
    await served.start(62)


async def test_a_scale_out_is_a_waterfall_with_the_spread_of_each_hop(open_page, served) -> None:
    page = await open_page(served.url)
    rows = page.locator("#lag-table tbody tr")
    await expect(page.locator("#lag-note")).to_have_text(f"{WORKLOAD}, 1 to 2 from 00:01:00")
    await expect(rows).to_have_text(
        [
            "HPA sync15 s15 s22.5 s",
            "scheduled\N{EN DASH}4 s4 s",  # another scale-out had it
            "node ready100 s100 s140 s",
            "in all115 s115 s160 s",
        ]
    )
    boxes = [await each.bounding_box() for each in await page.locator(".lag-bar").all()]
    bars = [await each.bounding_box() for each in await page.locator(".lag-bar i").all()]
    inner = boxes[3]["width"] and bars[3]["width"]  # the whole
    assert bars[0]["x"] == pytest.approx(bars[3]["x"], abs=1)
    assert bars[0]["width"] == pytest.approx(inner * 15 / 115, abs=1.5)
    assert bars[2]["x"] == pytest.approx(bars[0]["x"] + inner * 15 / 115, abs=1.5)
    assert bars[2]["width"] == pytest.approx(inner * 100 / 115, abs=1.5)


async def refuse(_asked):
    raise ValueError("no <b>")


async def test_gpu_cards_show_each_gpu_and_its_pod(open_page, served) -> None:
    page = await open_page(served.url)
    gpu = served.run.state()["nodes"][0]["gpus"][0]
    card = page.locator(".gpu:visible").first
    await expect(card).to_contain_text("GPU 0")
    await expect(card).to_contain_text(f"{gpu['util']:.1f}%")
    await expect(card).to_contain_text("5.29 of 22.5 GiB")  # 5412 and 23028 MiB over 1024
    await expect(card).to_contain_text(f"{gpu['temperatureC']:g} °C")
    await expect(card.locator('[data-part="pod"]')).to_have_attribute("title", gpu["pod"])


async def test_gpu_without_a_reading_says_so_and_is_not_zero(open_page, served) -> None:
    await served.restart(41)  # 00:10:15: the first node's readings are missing
    page = await open_page(served.url)
    await expect(page.locator(".gpu-util").first).to_have_text("no data")
    await expect(stage(page, "value")).to_have_text("unknown")
    await expect(page.locator('[data-part="util-meter"]').first).to_have_attribute(
        "aria-valuetext", "no data"
    )


async def test_hpa_is_explained_in_words(open_page, served) -> None:
    page = await open_page(served.url)
    hpa = served.run.state()["hpas"][0]
    panel = page.locator("#hpas")
    for line in hpa["explanation"]:
        await expect(panel).to_contain_text(line)
    for condition in hpa["conditions"]:
        await expect(panel).to_contain_text(condition["type"])
        await expect(panel).to_contain_text(condition["message"])


async def test_jobs_take_the_place_of_a_service(open_page, served) -> None:
    await served.restart(62, JobsRun)
    page = await open_page(served.url)
    await expect(stage(page, "load")).to_have_text("5")
    await expect(stage(page, "load", "unit")).to_have_text("of 20 jobs completed")
    await expect(stage(page, "value", "note")).to_have_text("no HPA")
    await expect(stage(page, "replicas")).to_have_text("4")  # all four pods run by then
    await expect(page.locator("#load-panel")).to_be_hidden()
    await expect(page.locator("#hpa-panel")).to_be_hidden()
    await drawn(page)
    await expect(page.locator('[data-chart="load"]')).to_be_hidden()
    await expect(page.locator('[data-chart="value"]')).to_be_hidden()


async def test_one_of_several_workloads_is_looked_at(open_page, served) -> None:
    await served.restart(62, TwoServices)
    page = await open_page(served.url)
    await expect(stage(page, "load")).to_have_text("18.4")
    await page.get_by_label("Workload", exact=True).select_option("vision-api")
    await expect(stage(page, "load")).to_have_text("31.5")
    await expect(stage(page, "load", "note")).to_have_text("follows the scenario · 12.5 waiting")
    await expect(stage(page, "value")).to_have_text("60")
    note = f"1.2 times the target · {FAKE.METRIC} decides, of 2 metrics"
    await expect(stage(page, "value", "note")).to_have_text(note)


async def test_selectors_are_short_and_the_controllers_text_is_a_click_away(
    open_page, served
) -> None:
    await served.restart(62, TwoServices)
    page = await open_page(served.url)
    card = page.locator("#hpas article").nth(1)
    for place in (card.locator('[data-part="message"]').first, card.locator(".explanation li")):
        await expect(place).to_contain_text(
            "external metric queue(app=chat,tier=gpu,zone in (a,b),!old)"
        )
        exact = place.locator("code")
        await expect(exact).to_be_hidden()
        await place.get_by_text("exact text").click()
        await expect(exact).to_be_visible()
        await expect(exact).to_have_text(SELECTED)


async def test_all_charts_are_drawn_on_one_axis_without_scrolling(open_page, served) -> None:
    await served.restart(62)
    page = await open_page(served.url)
    await page.set_viewport_size({"width": 1280, "height": 400})
    await drawn(page, "nodes")
    assert await page.evaluate("scrollY") == 0
    assert len(await ranges(page)) == 1


# ---- load


async def test_load_button_sets_the_load_and_the_page_says_so(open_page, served) -> None:
    page = await open_page(served.url)
    button = page.get_by_role("button", name="2×", exact=True)
    await button.click()
    await expect(page.locator("#load-message")).to_have_text(f"{WORKLOAD} now gets 9.2 requests/s")
    await expect(button).to_have_attribute("aria-pressed", "true")
    await expect(stage(page, "load")).to_have_text("9.2")
    await expect(stage(page, "load", "note")).to_have_text("set by hand")
    assert served.run.manual == 9.2
    await page.get_by_role("button", name="Follow scenario").click()
    await expect(page.locator("#load-message")).to_have_text(
        f"{WORKLOAD} follows the scenario again"
    )
    await expect(stage(page, "load")).to_have_text("18.4")
    assert served.run.manual is None


async def test_refused_load_is_told_in_the_words_of_the_run(open_page, served) -> None:
    served.run.max_rate = 5
    page = await open_page(served.url, ignore="status of 400")
    await page.get_by_role("button", name="4×", exact=True).click()
    await expect(page.locator("#load-message")).to_have_text(
        "The load was not changed: found 18.4 requests/s, expected at most 5"
    )


# ---- charts


async def test_charts_hold_the_series_and_follow_new_points(open_page, served) -> None:
    page = await open_page(served.url)
    await drawn(page)
    assert (await traces(page, "load"))[0]["y"] == served.run.series[f"load/{WORKLOAD}"]
    served.run.advance(3)
    await expect(page.locator("#clock")).to_contain_text("00:16:")
    load = served.run.series[f"load/{WORKLOAD}"]
    await holds(page, "load", {"x": served.run.times, "y": load})


async def test_missing_values_stay_gaps(open_page, served) -> None:
    page = await open_page(served.url)
    await drawn(page)
    value = (await traces(page, "value"))[0]
    gap = [y for x, y in zip(value["x"], value["y"], strict=True) if 600 <= x < 660]
    assert gap == [None, None, None, None]


async def test_series_that_appear_later_join_with_a_gap_before(open_page, served) -> None:
    await served.restart(0)
    page = await open_page(served.url)
    await drawn(page)
    served.run.advance(20)
    legend = page.locator('[data-chart="utilisation"] .legend-item:not(.legend-group)')
    # one target, two pods on two GPUs once the first scale-out is done
    await expect(legend).to_have_count(5)
    second = served.run.pods[1]["name"]
    values = served.run.series[f"pod/default/{second}"]
    assert values[0] is None
    await holds(page, "utilisation", {"y": values})


async def test_zoom_on_one_chart_zooms_all_and_goes_back(open_page, served) -> None:
    page = await open_page(served.url)
    await drawn(page)
    await scroll_through(page)
    assert await ranges(page) == {(0, 1200)}
    await drag(page, "load", 260, 460)
    await expect(page.get_by_role("button", name="Show all again")).to_be_visible()
    await scroll_through(page)
    zoomed = await ranges(page)
    assert len(zoomed) == 1
    ((start, end),) = zoomed
    assert 0 < start < end < 1200
    await plot(page, "load").dblclick()
    await expect(page.get_by_role("button", name="Show all again")).to_be_hidden()
    await scroll_through(page)
    assert await ranges(page) == {(0, 1200)}


async def test_legend_switches_lines_off_and_on(open_page, served) -> None:
    page = await open_page(served.url)
    await drawn(page)
    before = len(await traces(page, "utilisation"))
    gpus = page.locator('[data-chart="utilisation"]').get_by_role("button", name="GPUs", exact=True)
    await gpus.click()
    await expect(gpus).to_have_attribute("aria-pressed", "false")
    assert len(await traces(page, "utilisation")) == before - 4
    await gpus.click()
    await expect(gpus).to_have_attribute("aria-pressed", "true")
    assert len(await traces(page, "utilisation")) == before


async def test_cursor_by_keyboard_reads_the_values_of_that_time(open_page, served) -> None:
    page = await open_page(served.url)
    await drawn(page)
    await page.locator(".stack-body").focus()
    for _ in range(6):
        await page.keyboard.press("Shift+ArrowLeft")
    # 63 points, 60 steps back from behind the last: the point 3, at 45 s, before any load came
    await expect(page.locator(".cursor-time")).to_have_text("00:00:45")
    await expect(page.locator('[data-chart="load"] .legend-value')).to_have_text("0")
    await expect(page.locator("#charts .unseen[aria-live]")).to_contain_text("00:00:45: Load 0")
    await page.keyboard.press("Escape")
    await expect(page.locator('[data-chart="load"] .legend-value')).to_have_text("18.4")


async def test_long_series_are_thinned_without_losing_peaks_or_gaps(open_page, served) -> None:
    page = await open_page(served.url)
    result = await page.evaluate("""async () => {
        const { decimate } = await import('/static/store.js');
        const t = Array.from({ length: 20000 }, (_, i) => i);
        const values = t.map((i) => (i >= 15000 && i < 15400 ? null : i % 10));
        values[7777] = 99;
        values[12345] = -5;
        const { x, y } = decimate(t, values, [0, t.length], [0, 20000], 1000);
        const inside = x.filter((time, i) => y[i] !== null && time >= 15000 && time < 15400);
        const gaps = y.filter((value) => value === null).length;
        return { points: x.length, high: Math.max(...y), low: Math.min(...y), inside: inside.length, gaps };
    }""")
    # 1000 columns of pixels with a first, lowest, highest and last value, and both ends of a gap
    assert result["points"] <= 1000 * 6
    assert (result["high"], result["low"]) == (99, -5)
    assert result["inside"] == 0
    assert result["gaps"] >= 1


async def test_short_series_are_drawn_whole(open_page, served) -> None:
    page = await open_page(served.url)
    script = """async () => {
        const { decimate } = await import('/static/store.js');
        return decimate([0, 1, 2, 3], [1, null, 3, 4], [1, 4], [1, 3], 100);
    }"""
    assert await page.evaluate(script) == {"x": [1, 2, 3], "y": [None, 3, 4]}


# ---- events


async def test_events_are_listed_newest_first_in_the_words_of_kubernetes(open_page, served) -> None:
    page = await open_page(served.url)
    rows = page.locator(".event-list li")
    await expect(rows).to_have_count(len(served.run.events))
    newest = served.run.events[-1]
    await expect(rows.first).to_contain_text(newest["kind"])
    await expect(rows.first).to_contain_text(newest["object"])
    await expect(rows.first).to_contain_text(newest["reason"])


@pytest.mark.parametrize(
    ("kind", "category"),
    [("KEDAScalerFailed", "warning"), ("KEDAScaleTargetActivated", "scaling")],
)
async def test_events_of_keda_are_with_their_like(
    open_page, served, kind: str, category: str
) -> None:
    served.run.events.append({**served.run.events[-1], "kind": kind, "object": "ScaledObject/chat"})
    page = await open_page(served.url)
    newest = page.locator(".event-list li").first
    await expect(newest).to_contain_text(kind)
    await expect(newest.locator(f".dot-{category}")).to_have_count(1)


async def test_events_are_filtered_by_kind_and_by_word(open_page, served) -> None:
    page = await open_page(served.url)
    rows = page.locator(".event-list li")
    warnings = sum(event["kind"].startswith("Failed") for event in served.run.events)
    await page.get_by_role("button", name="Warnings").click()
    await expect(rows).to_have_count(len(served.run.events) - warnings)
    await page.get_by_label("Filter events by word").fill("successfulrescale")
    rescales = sum(event["kind"] == "SuccessfulRescale" for event in served.run.events)
    await expect(rows).to_have_count(rescales)
    await expect(page.locator(".event-foot")).to_contain_text(
        f"{rescales} of {len(served.run.events)} events"
    )


async def test_event_chosen_in_the_list_puts_the_cursor_there(open_page, served) -> None:
    page = await open_page(served.url)
    await drawn(page)
    await page.locator(".event-list li", has_text="New size: 4").get_by_role("button").click()
    await expect(page.locator(".cursor-time")).to_have_text("00:13:00")


# ---- staying alive


async def test_page_catches_up_with_a_server_that_came_back_with_another_run(
    open_page, served
) -> None:
    page = await open_page(served.url, ignore="Failed to load resource|ERR_|net::")
    await expect(stage(page, "load")).to_have_text("18.4")
    await served.stop()
    await expect(page.locator("#status")).to_have_text("reconnecting")
    await served.start(10)
    await expect(page.locator("#status")).to_have_text("running")
    await expect(stage(page, "load")).to_have_text("4.6")
    await expect(page.locator(".event-list li")).to_have_count(len(served.run.events))
    await holds(page, "load", {"x": served.run.times})


async def test_nothing_jumps_while_data_streams_in(open_page, served) -> None:
    await served.restart(0)
    page = await open_page(served.url)
    await drawn(page, "utilisation")
    await expect(stage(page, "load")).to_have_text("0")
    await page.evaluate("""() => {
        globalThis.shift = 0;
        const add = (list) => list.getEntries().forEach((entry) => { globalThis.shift += entry.value; });
        new PerformanceObserver(add).observe({ type: 'layout-shift', buffered: false });
    }""")
    for _ in range(8):
        served.run.advance(8)
        await page.wait_for_timeout(550)
    await expect(stage(page, "load")).to_have_text("18.4")
    # 0.1 is where a page stops being "good" (web.dev, Cumulative Layout Shift); new GPUs do take room.
    assert await page.evaluate("globalThis.shift") < 0.1


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_page_follows_the_colour_scheme(open_page, served, scheme: str) -> None:
    page = await open_page(served.url, scheme=scheme)
    await drawn(page)
    colour = {"light": "#2a66b8", "dark": "#7fb0f0"}[scheme]
    assert (await traces(page, "load"))[0]["colour"] == colour


@pytest.mark.parametrize("width", [1280, 1600, 2560, 600])
async def test_page_needs_no_sideways_scrolling(open_page, served, width: int) -> None:
    page = await open_page(served.url, width=width, height=900)
    await drawn(page)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_every_control_has_a_name(open_page, served) -> None:
    page = await open_page(served.url)
    await drawn(page)
    unnamed = await page.evaluate("""() => [...document.querySelectorAll('button, input, select, a[href]')]
        .filter((node) => !(node.textContent.trim() || node.ariaLabel || node.title || node.labels?.length))
        .map((node) => node.outerHTML)""")
    assert unnamed == []


# ---- the report


@pytest.fixture
def report(tmp_path: Path):
    document = FAKE.finished_run().document()
    del document["started"]
    file = tmp_path / "report.html"
    file.write_text(render_report(document), encoding="utf-8")
    return file, document


async def test_report_opens_from_disk_and_shows_the_run(open_page, report) -> None:
    file, document = report
    page = await open_page(file.as_uri())
    await drawn(page)
    totals = page.locator(".totals")
    await expect(totals).to_contain_text("Duration00:30:00")
    await expect(totals).to_contain_text("GPU hours0.9 h")
    # a decision is not yet capacity: both times are there, and the cost has its currency
    await expect(totals).to_contain_text("Load rise to decision30 s")
    await expect(totals).to_contain_text("Load rise to ready pods2 min 30 s")
    await expect(totals).to_contain_text("Cost1.47 USD")
    hpa = page.get_by_role("row", name="gpu-hpa")
    await expect(hpa).to_contain_text("4")
    await expect(page.locator(".event-list li")).to_have_count(len(document["events"]))
    await expect(page.locator(".event-list li").first).to_contain_text("00:00:00")
    line = (await traces(page, "load"))[0]
    assert line["y"] == document["series"][f"load/{WORKLOAD}"]
    assert await ranges(page) == {(0, 1800)}


async def test_report_zooms_like_the_page(open_page, report) -> None:
    file, _ = report
    page = await open_page(file.as_uri(), scheme="dark", width=1600, height=1000)
    await drawn(page)
    await drag(page, "load", 300, 500)
    await expect(page.get_by_role("button", name="Show all again")).to_be_visible()
    ((start, end),) = await ranges(page)
    assert 0 < start < end < 1800
