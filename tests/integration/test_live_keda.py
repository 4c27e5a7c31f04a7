"""KEDA in `gpuscale up`: metrics as its metrics server answers them, and requests that wake a workload."""

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

import gpuscale.lab.sim
from live_loop import Loop

pytestmark = pytest.mark.xdist_group("live")
SHIPPED = Path(gpuscale.lab.sim.__file__).parent / "scenarios" / "keda-zero-quick"
GROUP = "/apis/external.metrics.k8s.io/v1beta1"
SELECTOR = "labelSelector=" + quote("scaledobject.keda.sh/name=chat", safe="")


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    """The shipped scenario without its load: what comes is what a test sends."""
    folder = tmp_path_factory.mktemp("up")
    shipped = (SHIPPED / "scenario.yaml").read_text()
    scenario = folder / "scenario.yaml"
    scenario.write_text(
        shipped.replace("rate: 6", "rate: 0").replace(
            "file: scaled-object", "file: shipped:keda-zero-quick/scaled-object"
        )
    )
    running = Loop(folder, str(scenario), "--speed", "20")
    yield running
    running.kill()


def answer(url: str) -> tuple[int, str]:
    """Return status and text."""
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metric(loop: Loop, name: str, selector: str = SELECTOR) -> tuple[int, dict]:
    status, text = answer(f"{loop.url}{GROUP}/namespaces/default/{name}?{selector}")
    return status, json.loads(text)


def eventually(loop: Loop, name: str) -> dict:
    """Return a metric's answer, once the loop's first scrape has made one possible."""
    deadline = time.monotonic() + 60
    while (found := metric(loop, name))[0] != 200:
        assert time.monotonic() < deadline, (found, loop.text())
        time.sleep(0.1)
    return found[1]


# As KEDA's own page on its metrics server shows it, whatever ScaledObjects there are.
def test_discovery_lists_what_kedas_does(loop: Loop) -> None:
    deadline = time.monotonic() + 60  # before the first discovery no list is given
    while (listed := answer(loop.url + GROUP))[0] == 503:
        assert time.monotonic() < deadline, (listed, loop.text())
        time.sleep(0.1)
    assert json.loads(listed[1]) == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "external.metrics.k8s.io/v1beta1",
        "resources": [
            {
                "name": "externalmetrics",
                "singularName": "",
                "namespaced": True,
                "kind": "ExternalMetricValueList",
                "verbs": ["get"],
            }
        ],
    }
    assert "external.metrics.k8s.io" in [each["name"] for each in loop.json("/apis")["groups"]]


def test_an_idle_workloads_metrics_are_zero_and_its_replicas_too(loop: Loop) -> None:
    listed = eventually(loop, "s0-prometheus")
    (item,) = listed.pop("items")
    assert listed == {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
    }
    # KEDA's scalers give no labels (GenerateMetricInMili in pkg/scalers/scaler.go).
    assert item.pop("timestamp")
    assert item == {"metricName": "s0-prometheus", "metricLabels": None, "value": "0"}
    deployment = loop.json("/apis/apps/v1/namespaces/default/deployments/chat")
    assert deployment["spec"]["replicas"] == 0


# The messages are those of KEDA 2.21's provider.go, server.go and scale_handler.go.
@pytest.mark.parametrize(
    ("name", "selector", "message"),
    [
        ("s0-prometheus", "", "scaledObject name is not specified"),
        (
            "s9-prometheus",
            SELECTOR,
            "rpc error: code = Unknown desc = error when getting metric values "
            "no matching metrics found for s9-prometheus",
        ),
        (
            "s0-prometheus",
            SELECTOR.replace("chat", "other"),
            "rpc error: code = Unknown desc = error when getting metric values "
            'error getting scalers ScaledObject.keda.sh "other" not found',
        ),
    ],
)
def test_what_keda_refuses_is_refused_in_its_words(
    loop: Loop, name: str, selector: str, message: str
) -> None:
    eventually(loop, "s0-prometheus")
    status, body = metric(loop, name, selector)
    assert (status, body["kind"], body["message"]) == (500, "Status", message)


@pytest.mark.kubectl
def test_kubectl_reads_it(loop: Loop) -> None:
    eventually(loop, "s0-prometheus")
    path = f"{GROUP}/namespaces/default/s0-prometheus?{SELECTOR}"
    done = subprocess.run(
        ["kubectl", f"--server={loop.url}", "get", "--raw", path],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(done.stdout)["items"][0]["value"] == "0"


def test_why_says_what_answers(loop: Loop) -> None:
    eventually(loop, "s0-prometheus")
    _, explained = metric(loop, "s0-prometheus", f"{SELECTOR}&why=json")
    assert [(hop["hop"], hop["state"]) for hop in explained["hops"]] == [
        ("ScaledObject", "ok"),
        ("answer", "ok"),
    ]
    _, missing = metric(loop, "s9-prometheus", f"{SELECTOR}&why=json")
    assert missing["failedHop"] == "answer"


def test_requests_that_find_no_pod_wake_the_workload(loop: Loop) -> None:
    """Refused requests wait nowhere, so the queue stays empty; their rate is what wakes."""
    eventually(loop, "s2-prometheus")
    url = loop.wait(r"service +(http://127\.0\.0\.1:\d+/)", 30)[1]
    assert answer(url) == (503, "no pod is ready\n")
    woken = r"KEDAScaleTargetActivated .*Scaled apps/v1.Deployment default/chat from 0 to 1"
    # One request on a busy machine can fall out of the rate's window before KEDA polls: a client asks again.
    deadline = time.monotonic() + 120
    while (found := answer(url))[0] == 503:
        assert time.monotonic() < deadline, loop.text()
        time.sleep(0.1)
    loop.wait(f"{woken}, triggered by s2-prometheus", 10)
    assert found[0] == 200
    assert json.loads(found[1])["service"] == "default/chat"
    # The HPA asks for the same metrics over the same API.
    loop.wait("ReplicasReady +Deployment/chat", 60)
    deadline = time.monotonic() + 60
    hpa = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/keda-hpa-chat"
    while True:
        status = loop.json(hpa)["status"]
        metrics = {
            each["external"]["metric"]["name"] for each in status.get("currentMetrics") or ()
        }
        if metrics == {"s0-prometheus", "s1-prometheus", "s2-prometheus"}:
            break
        assert time.monotonic() < deadline, (status, loop.text())
        time.sleep(0.1)
    assert loop.stop() == 0
    assert "Traceback" not in loop.text()


def test_no_first_poll_comes_before_an_evaluation(tmp_path: Path) -> None:
    """`gpuscale scaler` has KEDA's first call wait for it, so a cluster has no such event."""
    running = Loop(tmp_path, "in-flight-credit", "--speed", "20")
    try:
        scaled = "/apis/keda.sh/v1alpha1/namespaces/default/scaledobjects"
        deadline = time.monotonic() + 60
        while not all(
            "Ready" in [condition["type"] for condition in each["status"]["conditions"]]
            for each in running.json(scaled)["items"]
        ):
            assert time.monotonic() < deadline, running.text()
            time.sleep(0.1)
        events = running.json("/api/v1/namespaces/default/events")["items"]
        assert [each for each in events if each["involvedObject"]["kind"] == "ScaledObject"] == []
    finally:
        running.kill()
