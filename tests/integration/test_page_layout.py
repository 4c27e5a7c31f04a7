"""Nothing on page and report is cut, covered or off the screen, from a phone to a 4K screen."""

import json
import re

import pytest

from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale.lab.views.report import render_report
from gpuscale.load.timeline.page import render_timeline
from gpuscale.load.timeline.types import HOPS, Span, Timeline, TimelineMark, Track

playwright = pytest.importorskip(
    "playwright.async_api", reason="needs playwright: pip install -e '.[dev]'"
)
expect = playwright.expect

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("browser"),
    pytest.mark.asyncio(loop_scope="module"),  # one browser serves the whole module
]

SCREENS = [(375, 812), (768, 1024), (1280, 800), (3840, 2160)]

# Every line of text is a box. It must lie on the page and inside what clips it (a list that scrolls up
# and down may hide whole lines, never a part of their width), and no two may cover each other.
FAULTS = """() => {
    const unseen = '.unseen, .skip, .cursor, .callout, .band, script, style, noscript, option';
    const clips = (node) => getComputedStyle(node).overflowX !== 'visible';
    const boxes = [], faults = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const text = walker.currentNode, parent = text.parentElement;
        if (!text.data.trim() || parent.closest(unseen) || !parent.checkVisibility()) continue;
        if (getComputedStyle(parent.closest('thead') ?? parent).clipPath !== 'none') continue;
        const range = document.createRange();
        range.selectNodeContents(text);
        for (const box of range.getClientRects()) {
            let hidden = false;
            for (let node = parent; node !== document.body; node = node.parentElement) {
                if (!clips(node)) continue;
                const frame = node.getBoundingClientRect();
                if (box.bottom <= frame.top + 1 || box.top >= frame.bottom - 1) hidden = true;
                else if (box.left < frame.left - 1 || box.right > frame.right + 1)
                    faults.push(`cut: ${text.data}`);
            }
            if (hidden) continue;
            if (box.left < -0.5 || box.right > innerWidth + 0.5) faults.push(`off the screen: ${text.data}`);
            boxes.push({ box, text: text.data, parent });
        }
    }
    boxes.forEach((one, index) => boxes.slice(index + 1).forEach((other) => {
        const width = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
        const height = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
        // letters of lines that are close reach a little into each other's boxes
        if (width > 1 && height > 0.35 * Math.min(one.box.height, other.box.height))
            faults.push(`${one.text} covers ${other.text}`);
    }));
    const page = document.documentElement;
    if (page.scrollWidth > innerWidth) {
        const wide = [...document.querySelectorAll('main *, header *, section *')]
            .filter((node) => node.getBoundingClientRect().right > innerWidth && !node.closest('.unseen'));
        const names = wide.map((node) => node.outerHTML.slice(0, 60));
        faults.push(`the page is ${page.scrollWidth} pixels wide: ${names}`);
    }
    return faults;
}"""


async def drawn_to_the_end(page) -> None:
    for chart in ("events", "nodes"):
        await page.locator(f'[data-chart="{chart}"]').scroll_into_view_if_needed()
        canvas = page.locator(f'[data-chart="{chart}"] canvas')
        await expect(canvas).to_have_attribute("style", re.compile("width"))
    await page.evaluate("scrollTo(0, 0)")


SELECTED = (
    "external metric s0-prometheus(&LabelSelector{MatchLabels:map[string]string{"
    "scaledobject.keda.sh/name:chat,},MatchExpressions:[]LabelSelectorRequirement{},})"
)
"""A message of the HPA's on a metric of KEDA's."""


def crowded(state):
    """Return a state with the longest names Kubernetes allows, many nodes, and numbers of all sizes."""
    name = "a-service-with-a-name-of-63-letters-as-kubernetes-allows-it-abc"
    assert len(name) == 63
    workload = {**state["workloads"][0], "name": name, "rate": 123456.7, "queue": 98765.4}
    metric = {"name": "m", "value": 5.2e11, "target": 1, "ratio": 5.2e11, "unit": "binary"}
    hpa = {
        **state["hpas"][0],
        "name": name,
        "reference": f"Deployment/{name}",
        "targets": "cpu: <unknown>/80%, 1234567890123m/500Mi + 3 more...",
        "metrics": [metric] * 5,
        "conditions": [{**each, "message": SELECTED} for each in state["hpas"][0]["conditions"]],
    }
    node = {**state["nodes"][0], "pool": "gke-cluster-1-gpu-pool"}
    nodes = [{**node, "name": f"gke-cluster-1-gpu-pool-{i:08x}-abcd"} for i in range(8)]
    pod = {**state["pods"][0], "ready": False}
    pods = [
        {**pod, "name": f"{name[:47]}-7b597b89df-{i:05}", "node": nodes[i]["name"]}
        for i in range(8)
    ]
    job = {"namespace": "a-namespace-that-is-not-the-default", "completions": 10000, "age": 1e6}
    items = [{**job, "name": name, "succeeded": 9999, "running": 1, "pending": 0}]
    agents = {node["name"]: "http://127.0.0.1:39417/metrics" for node in nodes}
    return {
        **state,
        "workloads": [workload, {**workload, "name": "b"}],
        "hpas": [hpa],
        "nodes": nodes,
        "pods": pods,
        "speed": 100.0,
        "t": 1e6,
        "addresses": {**state["addresses"], "nodeAgents": agents},
        "jobs": {"total": 10000, "active": 1, "completed": 9999, "workloads": [], "items": items},
    }


EVENTS_BELOW_CHARTS = """() => {
    const box = (name) => document.querySelector(name).getBoundingClientRect();
    return box('.events').top - box('.charts').bottom;
}"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory):
    """A report with the longest names of the shipped scenarios, and many pods and GPUs."""
    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(render_report(simulate(find_setup("eks-vision"))), encoding="utf-8")
    return file.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SCREENS)
async def test_page_shows_all_of_its_text(open_page, served, width, height, scheme: str) -> None:
    page = await open_page(served.url, scheme=scheme, width=width, height=height)
    await expect(page.locator('[data-stage="load"] [data-part="value"]')).to_have_text("18.4")
    await drawn_to_the_end(page)
    faults = await page.evaluate(FAULTS)
    assert faults == []


@pytest.mark.parametrize(("width", "height"), SCREENS)
async def test_crowded_page_shows_all_of_its_text(open_page, served, width, height) -> None:
    state = crowded(served.run.state())
    served.run.state = lambda: state
    page = await open_page(served.url, width=width, height=height)
    await expect(page.locator('[data-stage="load"] [data-part="value"]')).to_have_text("123,457")
    await drawn_to_the_end(page)
    if (
        width == 1280
    ):  # two columns, of which the side is the longer: events follow the charts all the same
        assert await page.evaluate(EVENTS_BELOW_CHARTS) == pytest.approx(14, abs=1)  # 0.875rem
    faults = await page.evaluate(FAULTS)
    assert faults == []


@pytest.mark.parametrize(("width", "height"), SCREENS)
async def test_report_shows_all_of_its_text(open_page, report, width, height) -> None:
    page = await open_page(report, width=width, height=height)
    await drawn_to_the_end(page)
    faults = await page.evaluate(FAULTS)
    assert faults == []


async def test_text_cut_or_covered_is_found(open_page, served) -> None:
    """The check itself: a name that is cut, and one printed over another."""
    page = await open_page(served.url)
    await drawn_to_the_end(page)
    await page.evaluate("""() => {
        const add = (style, text) => {
            const node = document.createElement('p');
            Object.assign(node.style, style);
            node.textContent = text;
            document.body.prepend(node);
        };
        add({ width: '40px', overflow: 'hidden', whiteSpace: 'nowrap' }, 'a name that is cut');
        add({ height: '0px' }, 'printed over');
        add({ position: 'absolute', left: '1270px', top: '300px', whiteSpace: 'nowrap' }, 'over the edge');
    }""")
    faults = " ".join(await page.evaluate(FAULTS))
    assert "cut: a name that is cut" in faults
    assert "printed over covers" in faults
    assert "off the screen: over the edge" in faults


async def test_wide_screen_is_used(open_page, served) -> None:
    """At 3840 pixels text is half as large again, and the columns go from edge to edge."""
    page = await open_page(served.url, width=3840, height=2160)
    await drawn_to_the_end(page)
    found = json.loads(
        await page.evaluate("""() => JSON.stringify({
            text: parseFloat(getComputedStyle(document.body).fontSize),
            columns: new Set([...document.querySelectorAll('.charts, .panel')]
                .filter((node) => node.checkVisibility())
                .map((node) => Math.round(node.getBoundingClientRect().left))).size,
            left: document.querySelector('.charts').getBoundingClientRect().left,
            right: document.querySelector('.events').getBoundingClientRect().right,
            bottom: document.querySelector('main').getBoundingClientRect().bottom,
        })""")
    )
    assert found["text"] >= 1.45 * 13
    assert found["columns"] == 4  # charts, load and HPA, GPUs and pods, events
    assert found["left"] < 60
    assert found["right"] > 3840 - 75
    assert found["bottom"] > 0.85 * 2160


@pytest.fixture(scope="module")
def timeline_of_load(tmp_path_factory: pytest.TempPathFactory):
    """A timeline with long names, every hop, two units in one of them, and more lanes than have a label."""
    name = "a-service-with-a-name-of-63-letters-as-kubernetes-allows-it-abc"
    points = tuple((1000 * second, float(second % 97)) for second in range(600))
    tracks = [Track(name, f"unit of {hop}", hop, points) for hop in HOPS]
    tracks.append(Track("ratio", "%", "latency", points))
    marks = (
        TimelineMark(5000, "SuccessfulRescale", f"HorizontalPodAutoscaler/{name}", "New size: 2"),
    )
    states = ("pending", "running", "a state of one's own")
    spans = tuple(
        Span(f"{name}-{lane}", state, 1000 * lane + 9000 * place, 1000 * lane + 9000 * (place + 1))
        for lane in range(90)
        for place, state in enumerate(states)
    )
    run = Timeline(f"http://{name}.example/predict", 0, 600_000, tuple(tracks), marks, spans)
    file = tmp_path_factory.mktemp("timeline") / "timeline.html"
    totals = {"Latency p99": "1.2 s", "A promise that is not kept": "errors: found 3 %"}
    file.write_text(render_timeline(run, totals), encoding="utf-8")
    return file.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), SCREENS)
async def test_timeline_shows_all_of_its_text(
    open_page, timeline_of_load, width, height, scheme: str
) -> None:
    page = await open_page(timeline_of_load, scheme=scheme, width=width, height=height)
    for chart in ("events", "spans"):
        await page.locator(f'[data-chart="{chart}"]').scroll_into_view_if_needed()
        canvas = page.locator(f'[data-chart="{chart}"] canvas')
        await expect(canvas).to_have_attribute("style", re.compile("width"))
    faults = await page.evaluate(FAULTS)
    assert faults == []
