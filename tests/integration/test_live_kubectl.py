"""kubectl against `gpuscale up`, as people use it; columns are those of Kubernetes 1.36."""

import json
import re
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from lightkube import Client, KubeConfig
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.autoscaling_v2 import HorizontalPodAutoscaler
from lightkube.resources.core_v1 import Pod

from live_loop import GPUSCALE, Loop

pytestmark = [pytest.mark.xdist_group("live"), pytest.mark.kubectl]


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    running = Loop(tmp_path_factory.mktemp("up"), "ack-bert", "--speed", "60")
    running.wait("SuccessfulRescale .* New size: 2", 60)
    yield running
    if running.process.poll() is None:
        running.stop()  # a kill would leave its kubeconfig behind


def kubectl(loop: Loop, *arguments: str, code: int = 0) -> str:
    """Return what kubectl prints, with what it complains of."""
    done = subprocess.run(
        ["kubectl", f"--server={loop.url}", *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def heads(text: str) -> list[list[str]]:
    """Return the headings of the tables in a text."""
    lines = [line for line in text.splitlines() if line.startswith(("NAME", "LAST"))]
    return [re.split(r" {2,}", line.strip()) for line in lines]


@pytest.mark.parametrize(
    ("kinds", "columns"),
    [
        ("hpa", ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]),
        ("pods", ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]),
        ("no", ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]),
        ("deploy", ["NAME", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]),
        ("rs", ["NAME", "DESIRED", "CURRENT", "READY", "AGE"]),
        ("svc", ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]),
        ("events", ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]),
        ("ns", ["NAME", "STATUS", "AGE"]),
    ],
)
def test_get_has_the_columns_of_kubernetes(loop: Loop, kinds: str, columns: list[str]) -> None:
    assert heads(kubectl(loop, "get", kinds)) == [columns]


def test_several_kinds_come_at_once(loop: Loop) -> None:
    text = kubectl(loop, "get", "hpa,pods,nodes,deploy,jobs,events")
    assert "horizontalpodautoscaler.autoscaling/gpu-hpa" in text
    assert "deployment.apps/bert-intent-detection" in text


def test_wide_shows_where_pods_run(loop: Loop) -> None:
    text = kubectl(loop, "get", "pods", "-o", "wide", "-l", "app=bert-intent-detection")
    head = heads(text)[0]
    assert head[5:] == ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
    first = json.loads(kubectl(loop, "get", "pods", "-l", "app", "-o", "json"))["items"][0]
    assert first["spec"]["nodeName"] in text


def test_names_and_numbers_are_those_of_the_page(loop: Loop) -> None:
    shown = kubectl(loop, "get", "hpa", "gpu-hpa", "-o", "json")
    page = loop.json("/ui/state")
    spec = json.loads(shown)["spec"]
    hpa = page["hpas"][0]
    assert (spec["minReplicas"], spec["maxReplicas"]) == (hpa["min"], hpa["max"])
    nodes = kubectl(loop, "get", "nodes", "-o", "name").split()
    assert {f"node/{node['name']}" for node in loop.json("/ui/state")["nodes"]} >= set(nodes[:1])


def test_describe_hpa_has_metrics_conditions_and_events(loop: Loop) -> None:
    text = kubectl(loop, "describe", "hpa", "gpu-hpa")
    assert '"DCGM_CUSTOM_PROCESS_SM_UTIL" on pods:' in text
    assert re.search(r"AbleToScale +True", text)
    assert re.search(r"Normal +SuccessfulRescale .* horizontal-pod-autoscaler +New size: 2;", text)


@pytest.mark.parametrize("what", ["pods", "nodes", "deploy", "rs", "svc", "ds", "ns"])
def test_describe_reads_every_kind(loop: Loop, what: str) -> None:
    assert "Name:" in kubectl(loop, "describe", what)


def test_top_shows_nodes_and_pods(loop: Loop) -> None:
    assert re.search(r"gpu-\w+ +\d+m +\d+% +\d+Mi +\d+%", kubectl(loop, "top", "nodes"))
    assert re.search(r"bert-intent-detection-\S+ +\d+m +\d+Mi", kubectl(loop, "top", "pods"))


def test_field_selectors_choose(loop: Loop) -> None:
    about = "involvedObject.name=gpu-hpa,involvedObject.kind=HorizontalPodAutoscaler"
    lines = kubectl(loop, "get", "events", "--field-selector", about).splitlines()[1:]
    assert lines
    assert all("horizontalpodautoscaler/gpu-hpa" in line for line in lines)
    node = kubectl(loop, "get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
    names = kubectl(
        loop, "get", "pods", "-A", "--field-selector", f"spec.nodeName={node}", "-o", "json"
    )
    assert {each["spec"]["nodeName"] for each in json.loads(names)["items"]} == {node}


def test_an_unknown_field_is_refused(loop: Loop) -> None:
    text = kubectl(loop, "get", "pods", "--field-selector", "spec.color=red", code=1)
    assert '"spec.color" is not a known field selector' in text


def test_what_is_not_there_is_named(loop: Loop) -> None:
    assert 'deployments.apps "nothing" not found' in kubectl(
        loop, "get", "deploy", "nothing", code=1
    )


def test_sort_by_and_jsonpath(loop: Loop) -> None:
    kubectl(loop, "get", "events", "--sort-by=.lastTimestamp")
    sorted_names = kubectl(loop, "get", "pods", "-A", "--sort-by=.metadata.name")
    names = [line.split()[1] for line in sorted_names.splitlines()[1:]]
    assert names == sorted(names)
    assert kubectl(loop, "get", "hpa", "gpu-hpa", "-o", "jsonpath={.spec.maxReplicas}") == "10"


def test_chunks_add_up(loop: Loop) -> None:
    whole = kubectl(loop, "get", "events", "-o", "name").split()
    chunked = kubectl(loop, "get", "events", "-o", "name", "--chunk-size=3").split()
    assert set(whole) <= set(chunked)


def test_a_watch_goes_on(loop: Loop) -> None:
    watching = subprocess.Popen(
        ["kubectl", f"--server={loop.url}", "get", "hpa", "-w", "--no-headers"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith("gpu-hpa")
        # The load button changes what the HPA sees within a few of its looks.
        loop.post("/ui/load", {"workload": "bert-intent-detection", "rate": 9.2})
        assert watching.stdout.readline().startswith("gpu-hpa")
    finally:
        watching.kill()
        watching.communicate()
        loop.post("/ui/load", {"workload": "bert-intent-detection", "rate": None})


@pytest.mark.parametrize(
    "command",
    [
        ("scale", "deploy/bert-intent-detection", "--replicas=3"),
        ("delete", "pod", "-l", "app=bert-intent-detection"),
        ("label", "node", "--all", "a=b"),
        ("autoscale", "deploy/bert-intent-detection", "--max=3"),
        ("rollout", "restart", "deploy/bert-intent-detection"),
    ],
)
def test_a_write_is_refused_with_what_to_do_instead(loop: Loop, command: tuple[str, ...]) -> None:
    text = kubectl(loop, *command, code=1)
    assert "which is only read here" in text
    assert "gpuscale rehearse" in text


def test_logs_say_that_there_is_no_container(loop: Loop) -> None:
    text = kubectl(loop, "logs", "deploy/bert-intent-detection", code=1)
    assert "has no containers" in text


def test_reading_is_allowed_and_writing_is_not(loop: Loop) -> None:
    assert kubectl(loop, "auth", "can-i", "list", "pods").startswith("yes")
    assert kubectl(loop, "auth", "can-i", "delete", "pods", code=1).startswith("no")


def test_explain_says_what_a_field_is(loop: Loop) -> None:
    text = kubectl(loop, "explain", "hpa.spec.metrics.pods.target")
    assert "FIELD: target <MetricTarget>" in text
    assert re.search(r"averageValue\t<string>", text)
    assert 'field "nothing" does not exist' in kubectl(loop, "explain", "hpa.nothing", code=1)


def test_rules_and_user_are_listed(loop: Loop) -> None:
    rules = kubectl(loop, "auth", "can-i", "--list")
    assert re.search(r"deployments\.apps +\[\] +\[\] +\[get list watch\]", rules)
    assert "system:anonymous" in kubectl(loop, "auth", "whoami")


def test_a_node_has_a_lease_and_a_service_endpoints(loop: Loop) -> None:
    node = kubectl(loop, "describe", "node")
    assert re.search(r"RenewTime: +\w+, \d", node)
    assert "0001" not in node
    service = kubectl(loop, "describe", "svc", "bert-intent-detection-svc")
    assert re.search(r"Endpoints: +10\.64\.\d+\.\d+:80", service)


def test_resources_and_version_are_listed(loop: Loop) -> None:
    listed = kubectl(loop, "api-resources")
    for name in ("horizontalpodautoscalers", "deployments", "jobs", "events"):
        assert name in listed
    assert re.search(
        r"^Server Version: v1\.36\.0\+gpuscale", kubectl(loop, "version"), re.MULTILINE
    )


def kubeconfig(loop: Loop) -> Path:
    return Path(loop.wait(r"export KUBECONFIG=(\S+)", 30)[1])


def test_the_kubeconfig_is_private_and_leads_here(loop: Loop) -> None:
    path = kubeconfig(loop)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    done = subprocess.run(
        ["kubectl", f"--kubeconfig={path}", "get", "hpa", "-o", "name"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "horizontalpodautoscaler.autoscaling/gpu-hpa\n"


def test_lightkube_lists_and_watches(loop: Loop) -> None:
    client = Client(config=KubeConfig.from_file(kubeconfig(loop)))
    names = {pod.metadata.name for pod in client.list(Pod, namespace="*", chunk_size=1)}
    assert any(name.startswith("bert-intent-detection-") for name in names)
    assert client.get(HorizontalPodAutoscaler, "gpu-hpa").spec.maxReplicas == 10
    type_, deployment = next(iter(client.watch(Deployment, namespace="default")))
    assert (type_, deployment.metadata.name) == ("ADDED", "bert-intent-detection")


def test_decide_explains_the_loops_own_hpa(loop: Loop) -> None:
    done = subprocess.run(
        [GPUSCALE, "decide", "hpa/gpu-hpa", "-o", "json", "--kubeconfig", kubeconfig(loop)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "DCGM_CUSTOM_PROCESS_SM_UTIL" in done.stdout


def test_a_foreign_host_is_refused(loop: Loop) -> None:
    request = urllib.request.Request(f"{loop.url}/api/v1/pods", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=30)
    refused.value.close()
    assert refused.value.code == 421
