"""`gpuscale dashboard` beside Kubernetes' HPA controller: the page has what kubectl shows, and goes on."""

import json
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from gpuscale_testing import (
    SimulatedNode,
    aggregated_api,
    serving_name,
    simulated_nodes,
    wait_until,
)

sys.path.insert(0, str(Path(__file__).parent))
from served_metrics import GROUP_VERSIONS, SM_UTIL, MetricsServer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(400)]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
NAMESPACE = "board"
HPAS = {
    # name: replicas of the Deployment, target, maximum; a pod has 23.5 %
    "grows": (1, "10", 9),  # ceil(23.5 / 10) = 3, and then 3 x 2.35 = 8, and then 9
    "stays": (2, "23", 9),  # 1.02 times its target
    "at-most": (2, "5", 2),
    "paused": (0, "20", 9),
}
DECIDED = ("grows", "stays", "at-most")
"""Those that look at a metric."""


def objects():
    for name, (replicas, target, most) in HPAS.items():
        labels = {"app": name}
        container = {
            "name": "model",
            "image": "none",
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }
        meta = {"name": name, "namespace": NAMESPACE}
        yield {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }
        metric = {
            "metric": {"name": SM_UTIL},
            "target": {"type": "AverageValue", "averageValue": target},
        }
        yield {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": meta,
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 1,
                "maxReplicas": most,
                "metrics": [{"type": "Pods", "pods": metric}],
            },
        }


def measure(plane, metrics) -> None:
    for pod in plane.get("pods", "-n", NAMESPACE)["items"]:
        name = pod["metadata"]["name"]
        metrics.put(SM_UTIL, 23.5, PodName=name, NamespaceName=NAMESPACE, NodeName="h200")


@pytest.fixture(scope="module")
def world(plane):
    """Deployments with values of 23.5 a pod, and HPAs on them that have settled."""
    certificate = plane.serving_certificate(serving_name("gpuscale"))
    with (
        simulated_nodes(plane, SimulatedNode("h200", gpus=64)),
        MetricsServer(plane, certificate).running() as metrics,
        aggregated_api(plane, GROUP_VERSIONS, metrics.port, service="gpuscale", ca_bundle=plane.ca),
    ):
        plane.kubectl("create", "namespace", NAMESPACE)
        made = list(objects())
        plane.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))

        def is_settled():
            measure(plane, metrics)
            found = plane.get("deployment/grows", "-n", NAMESPACE)["status"]
            return found.get("readyReplicas") == 9 and all(
                each["status"].get("conditions")
                for each in plane.get("hpa", "-n", NAMESPACE)["items"]
            )

        wait_until(is_settled, "all HPAs to be done", 90.0)
        yield metrics


@pytest.fixture(scope="module")
def address(plane, world, tmp_path_factory):
    """The address of a dashboard that looks every second."""
    out = tmp_path_factory.mktemp("board") / "out"
    words = [str(GPUSCALE), "dashboard", "--port=0", "--every=1", f"--kubeconfig={plane.admin}"]
    with out.open("w") as written:
        board = subprocess.Popen(words, stdout=written, stderr=subprocess.STDOUT)

    def found():
        assert board.poll() is None, out.read_text()
        line = re.search(r"page  (http://\S+)\n", out.read_text())
        return line and line[1]

    try:
        yield wait_until(found, "the page's address", 60.0)
    finally:
        board.terminate()
        assert board.wait(30) == 0, out.read_text()


def asked(address, path, **query):
    words = urllib.parse.urlencode(query)
    with urllib.request.urlopen(f"{address}/ui/{path}?{words}", timeout=30) as response:
        return json.load(response)


def shown(state):
    """Return what the page shows of each HPA that `kubectl get hpa` shows too."""
    return {
        each["name"].removeprefix(f"{NAMESPACE}/"): (
            *(each["reference"], each["targets"]),
            *(str(each["min"]), str(each["max"]), str(each["current"])),
        )
        for each in state["hpas"]
    }


def of_kubectl(plane):
    text = plane.kubectl("get", "hpa", "-n", NAMESPACE, "--no-headers")
    rows = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    return {row[0]: tuple(row[1:6]) for row in rows}


def reasons(body):
    return {each["type"]: each["reason"] for each in body["conditions"]}


def agree(plane, address, metrics):
    measure(plane, metrics)
    return shown(asked(address, "state")) == of_kubectl(plane)


def test_the_page_has_what_kubectl_shows(plane, world, address) -> None:
    wait_until(lambda: agree(plane, address, world), "the page to be as kubectl says", 60.0)
    assert set(of_kubectl(plane)) == set(HPAS)
    state = asked(address, "state")
    (node,) = state["nodes"]
    assert (node["name"], node["ready"]) == ("h200", True)
    by_name = {each["name"].removeprefix(f"{NAMESPACE}/"): each for each in state["hpas"]}
    assert by_name["grows"]["metrics"][0]["value"] == 23.5

    def says_the_same():
        written = {
            each["metadata"]["name"]: reasons(each["status"])
            for each in plane.get("hpa", "-n", NAMESPACE)["items"]
        }
        hpas = asked(address, "state")["hpas"]
        own = {each["name"].removeprefix(f"{NAMESPACE}/"): reasons(each) for each in hpas}
        return {each: own[each] for each in DECIDED} == {each: written[each] for each in DECIDED}

    wait_until(says_the_same, "the page's reasons to be the controller's", 60.0)
    # 2 x 23.5 / 5 = 9.4, and a step goes to 2 x 2 or 4 at most
    answer = asked(address, "what-if", hpa=f"{NAMESPACE}/at-most", max=20)
    assert (answer["current"], answer["asItIs"], answer["desired"]) == (2, 2, 4)
    assert any("10" in each for each in answer["explanation"])


async def test_a_browser_shows_it_without_a_complaint(plane, world, address, tmp_path) -> None:
    api = pytest.importorskip("playwright.async_api", reason="needs playwright")
    async with api.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--headless", "--no-sandbox"]
        )
        page = await browser.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        await page.goto(address)
        table = page.get_by_role("region", name="Rows of workloads")
        for name, (_, targets, _, _, replicas) in of_kubectl(plane).items():
            row = table.get_by_role("row").filter(has_text=f"{NAMESPACE}/{name}")
            await api.expect(row).to_be_visible(timeout=30_000)
            cells = [each.strip() for each in await row.get_by_role("cell").all_inner_texts()]
            value, target = targets.split("/")
            shown_value = "23.5" if value == "23500m" else "unknown"
            expected = {"Value": shown_value, "Target": target, "Replicas": replicas}
            heads = await table.get_by_role("columnheader").all_inner_texts()
            found = dict(zip(heads[-len(cells) :], cells, strict=True))
            assert {each: found[each] for each in expected} == expected, (name, found)
        await page.screenshot(path=tmp_path / "page.png", full_page=True)
        await browser.close()
    assert said == []


def test_it_goes_on_after_the_api_server_was_away(plane, world, address) -> None:
    wait_until(lambda: agree(plane, address, world), "the page to be as kubectl says", 60.0)
    before = asked(address, "state")
    plane.kill("kube-apiserver")
    try:
        wait_until(lambda: asked(address, "state").get("fault"), "it to say so", 60.0)
        away = asked(address, "state")
        assert "can't be reached" in away["fault"]
        assert shown(away) == shown(before)
    finally:
        plane.restart("kube-apiserver")
    wait_until(lambda: not asked(address, "state").get("fault"), "it to look again", 60.0)
    wait_until(lambda: agree(plane, address, world), "the page to be as kubectl says", 60.0)
    assert asked(address, "state")["t"] > before["t"]
