"""The charts' own modules in a real browser: what is on the canvas, odd names and odd numbers."""

import base64
import csv
import io
import json
import re
from pathlib import Path

import pytest

from gpuscale.lab.views.report import render_report

playwright = pytest.importorskip(
    "playwright.async_api", reason="needs playwright: pip install -e '.[dev]'"
)
expect = playwright.expect

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.asyncio(loop_scope="module"),  # one browser serves the whole module
]

DASH = "\N{EN DASH}"  # stands where there is no value, and between the ends of a range

# A chart of 400 x 100 pixels over 0..400 s and 0..100: a second is a pixel across, a unit one up.
PAINTED = """async ({ line, ratio = 1 }) => {
    const { paint } = await import('/static/plot.js');
    const { decimate } = await import('/static/store.js');
    Object.defineProperty(globalThis, 'devicePixelRatio', { value: ratio, configurable: true });
    const canvas = document.createElement('canvas');
    const { t, values, ...style } = line;
    const points = decimate(t, values, [0, t.length], [0, 400], 400);
    paint(canvas, {
        width: 400, height: 100, unit: 1, box: { left: 0, right: 400, top: 0, bottom: 100 },
        x: [0, 400], y: [0, 100], xTicks: [], yTicks: [],
        theme: { font: 'serif', muted: '#000000', grid: '#000000', line: '#000000', surface: '#ffffff' },
        lines: [{ ...points, colour: '#ff0000', ...style }],
    });
    const { data, width, height } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    const columns = [];
    for (let x = 0; x < width; x += 1) {
        const rows = [];
        for (let y = 0; y < height; y += 1) {
            const [red, green, , alpha] = data.slice(4 * (y * width + x), 4 * (y * width + x) + 4);
            if (red > 200 && green < 60 && alpha > 120) rows.push(y);
        }
        columns.push(rows.length ? [rows[0], rows.at(-1)] : null);
    }
    return { size: [width, height], style: canvas.style.width, columns };
}"""


async def painted(page, times, values, ratio=1, **style):
    line = {"t": list(times), "values": list(values), **style}
    return await page.evaluate(PAINTED, {"line": line, "ratio": ratio})


@pytest.fixture
def spikes():
    """40,000 values of 50, one of 95 at 123 s and one of 5 at 300 s: 100 values a pixel."""
    values = [50.0] * 40_000
    values[12_350], values[30_050] = 95.0, 5.0
    return [i / 100 for i in range(40_000)], values


async def test_spikes_among_tens_of_thousands_of_points_stay_visible(
    open_page, served, spikes
) -> None:
    columns = (await painted(await open_page(served.url), *spikes))["columns"]
    # 95 of 100 is 5 pixels from the top, 5 is 95 from the top; elsewhere the line lies at 50
    assert min(rows[0] for rows in columns[122:126] if rows) <= 7
    assert max(rows[1] for rows in columns[299:303] if rows) >= 93
    assert all(48 <= rows[0] <= rows[1] <= 52 for rows in columns[200:280])


async def test_gap_has_no_ink_and_is_not_zero(open_page, served) -> None:
    page = await open_page(served.url)
    values = [50 if not 100 <= second < 200 else None for second in range(401)]
    columns = (await painted(page, range(401), values))["columns"]
    assert all(columns[101:199][i] is None for i in range(98))
    assert all(columns[10:98])
    assert all(columns[202:390])


async def test_filled_area_ends_at_a_gap_and_leaves_nothing_in_it(open_page, served) -> None:
    page = await open_page(served.url)
    values = [50 if not 100 <= second < 200 else None for second in range(401)]
    columns = (await painted(page, range(401), values, fill=True, step=True))["columns"]
    assert columns[101:199] == [None] * 98


async def test_single_value_between_gaps_is_a_dot(open_page, served) -> None:
    columns = (await painted(await open_page(served.url), [100, 200, 300], [None, 50, None]))[
        "columns"
    ]
    inked = [x for x, rows in enumerate(columns) if rows]
    assert 198 <= inked[0] <= inked[-1] <= 202  # a radius of 2 pixels


async def test_step_keeps_its_value_until_the_next(open_page, served) -> None:
    columns = (await painted(await open_page(served.url), [0, 200, 400], [20, 80, 80], step=True))[
        "columns"
    ]
    # 20 of 100 is 80 pixels from the top until 200 s, then 80 is 20
    assert all(78 <= rows[0] <= rows[1] <= 82 for rows in columns[5:197])
    assert all(18 <= rows[0] <= rows[1] <= 22 for rows in columns[203:395])


@pytest.mark.parametrize("ratio", [1, 2, 3])
async def test_canvas_has_the_pixels_of_the_screen(open_page, served, ratio: int) -> None:
    found = await painted(await open_page(served.url), [0, 400], [50, 50], ratio=ratio)
    assert found["size"] == [400 * ratio, 100 * ratio]
    assert found["style"] == "400px"


# ---- scales

AXIS = """async ([extent, rules]) => {
    const { valueAxis } = await import('/static/axes.js');
    const { range, ticks } = valueAxis(extent, rules);
    return { range, ticks: ticks.map(({ at }) => at), texts: ticks.map(({ text }) => text) };
}"""


@pytest.mark.parametrize(
    ("extent", "rules", "ticks"),
    [
        ((0, 0), {}, [0, 0.5, 1]),
        ((0, 18.4), {}, [0, 10, 20]),  # a third of 18.4 is 6.1, the next round step 10
        ((0, 4.6), {}, [0, 2, 4, 6]),
        ((0, 1), {"whole": True}, [0, 1, 2]),
        ((0, 7), {"whole": True}, [0, 5, 10]),
        ((0, 23), {"tops": [20, 40, 60, 100]}, [0, 20, 40]),
        ((0, 250), {"tops": [20, 40, 60, 100]}, [0, 100, 200, 300]),
        ((0, 0.001), {"least": 1}, [0, 0.5, 1]),
        ((-3, 4), {}, [-4, -2, 0, 2, 4]),  # a quarter of 7 is 1.75, the next round step 2
        ((0, 3e12), {}, [0, 1e12, 2e12, 3e12]),
        ((0, 3e-9), {}, [0, 1e-9, 2e-9, 3e-9]),
    ],
)
async def test_value_axis_has_round_ticks_that_hold_the_values(
    open_page, served, extent, rules, ticks
) -> None:
    page = await open_page(served.url)
    found = await page.evaluate(AXIS, [extent, rules])
    assert found["ticks"] == pytest.approx(ticks)
    assert len(set(found["texts"])) == len(ticks)
    low, high = found["range"]
    assert low <= extent[0] <= extent[1] <= high


async def test_numbers_of_any_size_are_short_and_keep_their_digits(open_page, served) -> None:
    page = await open_page(served.url)
    script = """async (values) => {
        const { number, amount } = await import('/static/format.js');
        const amounts = [[524288000, 'binary'], [0.25, ''], [63, '%'], [null, 'binary'], [1023, 'binary']];
        return [...[...values, NaN, Infinity, null].map(number), ...amounts.map((each) => amount(...each))];
    }"""
    values = [0, 11.5, 0.575, 1234, 12345, 524288000, 0.0032, 1.5e-9, 2e20, -7.25]
    # 524288000 = 500 * 1024 * 1024
    assert await page.evaluate(script, values) == [
        *["0", "11.5", "0.58", "1234", "12,345", "524.3M", "0.0032", "1.5e-9", "2e20", "-7.25"],
        *[DASH, DASH, DASH, "500 Mi", "0.25", "63%", DASH, "1023"],
    ]


# ---- odd runs

STACK = """async (series) => {
    const { ChartStack } = await import('/static/charts.js');
    const { RunStore } = await import('/static/store.js');
    const odd = { nan: NaN, infinity: Infinity };
    for (const values of Object.values(series)) values.forEach((v, i) => (values[i] = odd[v] ?? v));
    const root = document.body.appendChild(document.createElement('section'));
    const store = new RunStore({ series, summary: { requests: { a: {} } }, events: [] });
    const stack = new ChartStack(root, store);
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const of = (id) => stack.charts.find((chart) => chart.id === id);
    return {
        drawn: of('load').plot.drawn, text: of('load').text.textContent,
        value: of('value').plot.drawn, label: of('load').legend.textContent,
    };
}"""


async def stacked(open_page, served, series):
    """Return what the charts of a run of these series show, on a page that has nothing else."""
    page = await open_page(f"{served.url}static/axes.js")
    return await page.evaluate(STACK, series)


async def test_run_without_a_point_says_so(open_page, served) -> None:
    found = await stacked(open_page, served, {"t": []})
    assert found["drawn"]["range"] == [0, 1]
    assert found["text"] == "From 00:00:00 to 00:00:01. No data yet."


async def test_run_of_one_point_shows_it(open_page, served) -> None:
    found = await stacked(open_page, served, {"t": [0], "load/a": [4.6]})
    assert found["drawn"]["lines"][0]["y"] == [4.6]
    assert "a: first 4.6 at 00:00:00" in found["text"]


async def test_series_of_nothing_but_gaps_is_named_and_draws_nothing(open_page, served) -> None:
    found = await stacked(open_page, served, {"t": [0, 15], "load/a": [None, None]})
    assert found["drawn"]["lines"][0]["y"] == [None, None]
    assert found["text"].endswith("a: no data.")
    assert found["label"] == f"a{DASH}"


async def test_what_is_not_a_number_is_a_gap(open_page, served) -> None:
    series = {"t": [0, 15, 30, 45], "load/a": [1, "nan", "infinity", 2]}
    found = await stacked(open_page, served, series)
    assert found["drawn"]["lines"][0]["y"] == [1, None, None, 2]
    assert "highest 2 at 00:00:45" in found["text"]


@pytest.mark.parametrize("value", [1e-12, 1e300, 1e308, 5e-324])
async def test_huge_and_tiny_values_are_drawn(open_page, served, value: float) -> None:
    series = {"t": [0, 15], "load/a": [value, value], "hpa/h/value": [-value, value]}
    found = await stacked(open_page, served, series)
    assert found["drawn"]["lines"][0]["y"] == [value, value]
    assert found["value"]["lines"][0]["y"] == [-value, value]


NASTY = "<img src=x onerror=globalThis.pwned=1>\"'\n</script><script>globalThis.pwned=1</script>"
NAMES = [NASTY, "__proto__", "constructor", "a/b", "${style}", "&lt;b&gt;", ""]


def hostile_document(document):
    """Return the run with every name replaced by one that means something to HTML or JavaScript."""
    series = {"t": document["series"]["t"]}
    points = len(series["t"])
    for i, name in enumerate(NAMES):
        for key in (f"load/{name}", f"pod/default/{name}", f"gpu/{name}/0", f"jobs/{name}/running"):
            series[key] = [float(i)] * points
        series |= {f"hpa/{name}/value": [1.0] * points, f"hpa/{name}/target": [2.0] * points}
    event = {
        "t": 15.0,
        "kind": NASTY,
        "object": f"Pod/{NASTY}",
        "from": 1,
        "to": 2,
        "reason": NASTY,
    }
    summary = {
        **document["summary"],
        "requests": {name: {NASTY: NASTY} for name in NAMES},
        NASTY: NASTY,
    }
    return {
        **document,
        "scenario": NASTY,
        "description": NASTY,
        "series": series,
        "events": [event],
        "summary": summary,
    }


async def check_nothing_ran(page) -> None:
    assert await page.evaluate("globalThis.pwned ?? null") is None
    assert await page.locator("img, main script").count() == 0
    await expect(page.locator(".event-list")).to_contain_text("<img src=x")
    legend = page.locator('[data-chart="load"] .legend-name')
    await expect(legend).to_have_count(len(NAMES))
    button = page.locator('[data-chart="load"] .legend-item').first
    await button.click()
    await expect(button).to_have_attribute("aria-pressed", "false")


async def test_names_never_become_markup_in_the_report(open_page, served, tmp_path: Path) -> None:
    served.run.advance(4)
    document = hostile_document(served.run.document())
    del document["started"]
    file = tmp_path / "report.html"
    file.write_text(render_report(document), encoding="utf-8")
    page = await open_page(file.as_uri())
    await check_nothing_ran(page)
    await expect(page.locator(".totals")).to_contain_text("<img src=x")


async def test_names_never_become_markup_on_the_page(open_page, served) -> None:
    run = served.run
    document, state = hostile_document(run.document()), run.state()
    state["workloads"] = [{**state["workloads"][0], "name": name} for name in NAMES]
    state["hpas"] = [
        {**state["hpas"][0], "name": name, "targets": NASTY, "explanation": [NASTY]}
        for name in NAMES
    ]
    state["nodes"] = [{**state["nodes"][0], "name": name, "pool": NASTY} for name in NAMES]
    state["pods"] = [{**state["pods"][0], "name": name, "phase": NASTY} for name in NAMES]
    state["figures"] = [[NASTY, NASTY]]
    state["addresses"] = {"prometheus": "javascript:globalThis.pwned=1"}
    job = {"completions": 1, "succeeded": 0, "running": 0, "pending": 1, "age": 5}
    state["jobs"] = {
        "total": len(NAMES),
        "active": 0,
        "completed": 0,
        "workloads": [],
        "items": [{"name": name, "namespace": "default", **job} for name in NAMES],
    }
    totals = {"points": len(document["series"]["t"]), "events": 1}
    run.document = lambda: document
    run.state = lambda: state
    run.since = lambda points, events: {
        "points": totals["points"],
        "t": [],
        "series": {},
        "events": [],
        "totals": totals,
    }
    page = await open_page(served.url)
    await check_nothing_ran(page)
    await expect(page.locator("#job-table tbody tr")).to_have_count(len(NAMES))
    await expect(page.locator("#addresses a")).not_to_have_attribute("href", re.compile("."))


# ---- what a chart says, fades and keeps


async def test_chart_says_in_words_what_it_shows(open_page, served) -> None:
    page = await open_page(served.url)
    plot = page.locator('[data-chart="load"] .plot')
    await expect(plot).to_have_attribute("aria-describedby", "chart-load-text")
    # the load of the fake run: nothing, 4.6 from 120 s, 9.2 from 420 s, 18.4 from 780 s
    text = page.locator("#chart-load-text")
    await expect(text).to_contain_text("lowest 0 at 00:00:00, highest 18.4 at 00:13:00, last 18.4")
    warnings = sum(event["kind"].startswith("Failed") for event in served.run.events)
    text = page.locator("#chart-events-text")
    await expect(text).to_contain_text(f"Load 3, Scaling 3, Pods 12, Nodes 6, Warnings {warnings}")


async def test_other_lines_fade_while_one_is_pointed_at(open_page, served) -> None:
    page = await open_page(served.url)
    item = page.locator('[data-chart="replicas"] .legend-item').first
    await item.hover()
    lines = page.locator('[data-chart="replicas"] .plot')
    for _ in range(100):
        faint = await lines.evaluate("node => node.drawn.lines.map((line) => line.faint)")
        if any(faint):
            break
        await page.wait_for_timeout(50)
    assert faint[0] is False
    assert all(faint[1:])


def shown(start, end):
    return f"{start} {DASH} {end}"


async def test_link_shows_the_same_times_and_events(open_page, served) -> None:
    page = await open_page(f"{served.url}#from=300&to=600&words=rescale&hide=pods,load")
    await expect(page.locator(".toolbar .range")).to_have_text(shown("00:05:00", "00:10:00"))
    await expect(page.get_by_label("Filter events by word")).to_have_value("rescale")
    await expect(page.get_by_role("button", name="Pods", exact=True).last).to_have_attribute(
        "aria-pressed", "false"
    )
    await page.get_by_role("button", name="10 min").click()
    await page.get_by_label("Filter events by word").fill("")
    await expect(page.locator(".toolbar .range")).to_have_text(shown("00:05:30", "00:15:30"))
    assert await page.evaluate("location.hash") == "#hide=load%2Cpods&window=600"
    again = await open_page(await page.evaluate("location.href"))
    await expect(again.locator(".toolbar .range")).to_have_text(shown("00:05:30", "00:15:30"))
    await again.evaluate("location.hash = 'from=60&to=120'")
    await expect(again.locator(".toolbar .range")).to_have_text(shown("00:01:00", "00:02:00"))


@pytest.mark.parametrize(
    "fragment", ["charts", "from=x&to=9", "from=9&to=1", "window=-1e999", "hide=,,&words=%00"]
)
async def test_address_that_says_nothing_is_passed_over(open_page, served, fragment: str) -> None:
    page = await open_page(f"{served.url}#{fragment}")
    await expect(page.locator(".toolbar .range")).to_have_text(shown("00:00:00", "00:20:00"))


async def test_sixty_lines_of_many_points_are_thinned_to_the_pixels(open_page, served) -> None:
    page = await open_page(served.url)
    script = """async () => {
        const { decimate } = await import('/static/store.js');
        const t = Array.from({ length: 50000 }, (_, i) => i);
        const counts = [];
        for (let line = 0; line < 60; line += 1) {
            const values = t.map((i) => Math.sin(i * (line + 1)));
            counts.push(decimate(t, values, [0, t.length], [0, 50000], 800).x.length);
        }
        return JSON.stringify(counts);
    }"""
    # a first, lowest, highest and last value for each of 800 columns of pixels
    assert max(json.loads(await page.evaluate(script))) <= 4 * 801


# ---- files


async def saved(page, name):
    async with page.expect_download() as saving:
        await page.get_by_role("button", name=name, exact=True).click()
    download = await saving.value
    return download.suggested_filename, Path(await download.path()).read_bytes()


PICTURE = """async ([text, id]) => {
    const picture = new Image();
    picture.src = `data:image/png;base64,${text}`;
    await picture.decode();
    const pixels = (image, width, height, top) => {
        const canvas = document.createElement('canvas');
        [canvas.width, canvas.height] = [width, height];
        const context = canvas.getContext('2d');
        context.drawImage(image, 0, -top);
        return context.getImageData(0, 0, width, height).data;
    };
    const chart = document.querySelector(`[data-chart=${id}] canvas`);
    const { width, height } = chart;
    const top = picture.height - height;
    const [there, here] = [pixels(picture, width, height, top), pixels(chart, width, height, 0)];
    let [opaque, other] = [0, 0];
    for (let at = 0; at < here.length; at += 4) {
        if (here[at + 3] < 255) continue;
        opaque += 1;
        if ([0, 1, 2].some((part) => Math.abs(here[at + part] - there[at + part]) > 2)) other += 1;
    }
    const head = pixels(picture, width, top, 0);
    const [edge, clear] = [[...head.slice(0, 4)], head.every((value, at) => at % 4 < 3 || value === 255)];
    const inked = head.some((value, at) => value !== head[at % 4]);
    return { wide: picture.width - width, top, opaque, other, edge, clear, inked };
}"""


@pytest.mark.parametrize("chart", ["events", "utilisation"])
async def test_a_picture_of_a_chart_is_what_the_page_shows_below_its_legend(
    open_page, served, chart: str
) -> None:
    page = await open_page(served.url)
    await expect(page.locator(f'[data-chart="{chart}"] canvas')).to_be_visible()
    title = {"events": "Events", "utilisation": "GPU utilisation"}[chart]
    name, picture = await saved(page, f"{title} as PNG")
    assert name == f"{chart}.png"
    found = await page.evaluate(PICTURE, [base64.b64encode(picture).decode(), chart])
    assert (found["wide"], found["other"]) == (0, 0)
    assert found["opaque"] > 100
    # --surface of the light theme, no transparent background, and words above the chart
    assert found["edge"] == [0xFD, 0xFD, 0xFC, 0xFF]
    assert found["clear"]
    assert found["inked"]
    assert found["top"] >= 32  # a line of the title and one of the legend


async def test_events_are_saved_as_text_that_no_spreadsheet_runs(open_page, served) -> None:
    served.run.events.append(
        {"t": 930, "kind": "Ready", "object": "=1+2", "from": None, "to": -4, "reason": 'a "b", c'}
    )
    page = await open_page(served.url)
    await expect(page.locator('[data-chart="events"] canvas')).to_be_visible()
    _, text = await saved(page, "Events as CSV")
    rows = list(csv.reader(io.StringIO(text.decode())))
    assert rows[0] == ["time", "kind", "object", "from", "to", "reason"]
    assert rows[-1] == ["930", "Ready", " =1+2", "", "-4", 'a "b", c']
    assert len(rows) == 1 + len(served.run.events)
