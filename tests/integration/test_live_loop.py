"""`gpuscale up` as a process of its own: the whole loop, sped up, looked at through its servers."""

import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuscale.lab.sim
from live_loop import Loop

SHIPPED = Path(gpuscale.lab.sim.__file__).parent / "scenarios"
GPUSCALE = Path(sys.executable).parent / "gpuscale"
pytestmark = pytest.mark.xdist_group("live")


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    running = Loop(tmp_path_factory.mktemp("up"), "ack-bert", "--speed", "60")
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.process.wait()


def test_the_page_answers_and_names_its_scenario(loop: Loop) -> None:
    assert "<title>" in loop.get("/")
    assert loop.json("/ui/document")["scenario"] == "ack-bert"


def test_the_first_scale_out_is_told_in_kubernetes_words(loop: Loop) -> None:
    loop.wait(
        r"SuccessfulRescale +HorizontalPodAutoscaler/gpu-hpa +New size: 2; "
        r"reason: pods metric DCGM_CUSTOM_PROCESS_SM_UTIL above target",
        60,
    )


def test_every_hop_shows_the_same_value(loop: Loop) -> None:
    loop.wait("SuccessfulRescale", 60)
    state = loop.json("/ui/state")
    agent = next(iter(state["addresses"]["nodeAgents"].values()))
    with urllib.request.urlopen(agent, timeout=30) as response:
        text = response.read().decode()
    exposed = float(re.search(r"^DCGM_CUSTOM_PROCESS_SM_UTIL\{.*\} (\d+)$", text, re.MULTILINE)[1])
    stored = loop.json("/api/v1/query?query=max(DCGM_CUSTOM_PROCESS_SM_UTIL)")
    listed = loop.json(
        "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/*/DCGM_CUSTOM_PROCESS_SM_UTIL"
    )
    values = [exposed, float(stored["data"]["result"][0]["value"][1])]
    values += [float(item["value"]) for item in listed["items"][:1]]
    # 23 % on one pod, or about 11.5 % on each of two once the second is ready
    assert all(value in {11.0, 12.0, 23.0} for value in values), values


def test_values_carry_the_time_they_were_measured(loop: Loop) -> None:
    loop.wait("SuccessfulRescale", 60)
    listed = loop.json(
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/DCGM_CUSTOM_PROCESS_SM_UTIL"
    )
    query = "/api/v1/query?query=timestamp(DCGM_CUSTOM_PROCESS_SM_UTIL)"
    stored = {int(float(row["value"][1])) for row in loop.json(query)["data"]["result"]}
    assert listed["items"]
    for item in listed["items"]:
        moment = time.strptime(item["timestamp"], "%Y-%m-%dT%H:%M:%SZ")
        assert min(abs(time.mktime(moment) - time.timezone - at) for at in stored) <= 16


@pytest.mark.kubectl
def test_kubectl_reads_the_metrics_api(loop: Loop) -> None:
    loop.wait("SuccessfulRescale", 60)
    path = (
        "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/pods/*/DCGM_CUSTOM_PROCESS_SM_UTIL"
    )
    result = subprocess.run(
        ["kubectl", f"--server={loop.url}", "get", "--raw", path],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    answer = json.loads(result.stdout)
    assert answer["kind"] == "MetricValueList"
    assert answer["items"][0]["describedObject"]["kind"] == "Pod"


@pytest.mark.prometheus
def test_promtool_queries_the_store(loop: Loop) -> None:
    loop.wait("SuccessfulRescale", 60)
    result = subprocess.run(
        ["promtool", "query", "instant", loop.url, "count(DCGM_FI_DEV_GPU_UTIL)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert re.match(r"\{\} => [12] @\[", result.stdout)


def test_types_and_help_of_scraped_metrics_are_served(loop: Loop) -> None:
    loop.wait("SuccessfulRescale", 60)
    (said,) = loop.json("/api/v1/metadata?metric=DCGM_CUSTOM_PROCESS_SM_UTIL")["data"].values()
    assert said[0]["type"] == "gauge"
    assert said[0]["help"]
    own = loop.get("/metrics")
    assert re.search(r"^gpuscale_metrics_api_store_series [1-9]\d*$", own, re.MULTILINE)
    assert re.search(r"^gpuscale_metrics_api_store_metadata_bytes [1-9]\d*$", own, re.MULTILINE)


def test_a_bad_query_is_refused_with_a_reason(loop: Loop) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        loop.get("/api/v1/query?query=avg(")
    assert caught.value.code == 400
    assert json.loads(caught.value.read())["errorType"] == "bad_data"
    caught.value.close()


def test_a_request_under_another_sites_name_is_refused(loop: Loop) -> None:
    request = urllib.request.Request(loop.url + "/ui/state", headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=30)
    assert caught.value.code == 421
    caught.value.close()


def test_pods_and_nodes_go_again_after_the_load(loop: Loop) -> None:
    loop.wait(r"New size: 1; reason: All metrics below target", 60)
    loop.wait(r"ScaleDown +Node/gpu-\w+ +node removed by cluster autoscaler", 60)

    def pool():
        return loop.json("/ui/document")["summary"]["nodePools"]["gpu"]

    # From its taint on it is there for five seconds, as `node-delete-delay-after-taint` has it.
    until_s = time.monotonic() + 60
    while pool() != {"maxNodes": 2, "finalNodes": 1} and time.monotonic() < until_s:
        time.sleep(0.1)
    assert pool() == {"maxNodes": 2, "finalNodes": 1}


def test_a_load_button_drives_the_loop(loop: Loop) -> None:
    loop.wait("node removed", 90)
    loop.post("/ui/load", {"workload": "bert-intent-detection", "rate": 36.8})
    loop.wait(r"load is now 36.8 requests/s", 10)
    # 36.8/s x 0.05 s = 1.84 GPUs: one pod saturates at 100 against 20, 1 x 5 pods and at most double per sync
    loop.wait(r"load is now 36\.8(?s:.*)New size: [45]; reason: pods metric", 30)


def test_ctrl_c_ends_it_cleanly(loop: Loop) -> None:
    assert loop.stop() == 0
    assert re.search(r"stopped after \d+ s of scenario time", loop.text())
    assert "Traceback" not in loop.text()


def test_it_ends_by_itself_when_told(tmp_path: Path) -> None:
    running = Loop(tmp_path, "aks-mnist-jobs", "--for", "2s", "--speed", "100")
    assert running.process.wait(20) == 0
    assert "TriggeredScaleUp" in running.text()


def test_eks_vision_scales_on_a_service_over_http(tmp_path: Path) -> None:
    running = Loop(tmp_path, "eks-vision", "--speed", "60")
    running.wait("reason: Service metric DCGM_FI_DEV_GPU_UTIL_AVG above target", 60)
    value = running.json(
        "/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/services/dcgm-exporter/DCGM_FI_DEV_GPU_UTIL_AVG"
    )
    assert value["items"][0]["describedObject"]["name"] == "dcgm-exporter"
    assert running.stop(signal.SIGTERM) == 0


def up(*arguments):
    return subprocess.run(
        [GPUSCALE, "up", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_an_address_that_is_not_ours_is_refused() -> None:
    result = up("--host", "203.0.113.1", "--port", "1")
    assert result.returncode == 2
    assert result.stderr == (
        "gpuscale: can't listen on 203.0.113.1:1: Cannot assign requested address; "
        "--host takes an address of this machine\n"
    )


def test_a_port_that_was_asked_for_and_is_taken_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = up("--port", str(port))
    assert (result.returncode, result.stdout) == (2, "")
    assert re.fullmatch(
        rf"gpuscale: port {port} is taken by .+ \(pid {os.getpid()}\): "
        r"choose another with --port, or --port 0 for any that is free\n",
        result.stderr,
    )


def test_another_port_than_the_usual_one_is_announced() -> None:
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # taken already, by another loop on this machine
            stack.enter_context(socket.create_server(("127.0.0.1", 9480)))
        result = up("--for", "1s")
    assert result.returncode == 0
    (told,) = result.stderr.splitlines()
    port = re.fullmatch(r"gpuscale: port 9480 is taken(?: by .+ \(pid \d+\))?, using (\d+)", told)[
        1
    ]
    assert f"page            http://127.0.0.1:{port}/" in result.stdout


def test_all_interfaces_are_printed_as_addresses_that_open(tmp_path: Path) -> None:
    running = Loop(tmp_path, "ack-bert", "--host", "0.0.0.0")
    assert "0.0.0.0" not in running.text()
    addresses = running.json("/ui/state")["addresses"]
    for page in (addresses["page"], *addresses["otherPages"]):
        with urllib.request.urlopen(page, timeout=30) as response:
            assert response.status == 200
    assert (
        "Whoever reaches these addresses can watch the run" in running.wait("(?s).*run and.*", 5)[0]
    )
    assert running.stop() == 0


def test_ipv6_addresses_stand_in_brackets(tmp_path: Path) -> None:
    result = up("--host", "::1", "--port", "0", "--for", "3s")
    assert re.search(r"page +http://\[::1\]:\d+/\n", result.stdout)
    assert re.search(r"node agent +http://\[::1\]:\d+/metrics", result.stdout)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_end_of_the_scenario_is_announced_once_and_the_loop_goes_on(tmp_path: Path) -> None:
    scenario = tmp_path / "short.yaml"
    scenario.write_text(
        (SHIPPED / "ack-bert" / "scenario.yaml")
        .read_text()
        .replace("duration: 35m", "duration: 20s")
        .replace("file: ", "file: shipped:ack-bert/")
    )
    running = Loop(tmp_path, str(scenario), "--speed", "20")
    running.wait("the scenario is over; the loop keeps running and serving: press Ctrl-C", 30)
    running.wait("SuccessfulRescale", 60)  # the load of second 60 comes all the same
    assert running.text().count("the scenario is over") == 1
    offered = dict(
        line.strip().split(": ", 1) for line in running.text().splitlines() if ": gpuscale " in line
    )
    assert [list(pair) for pair in offered.items()] == running.json("/ui/state")["next"]
    kubeconfig = running.wait(r"KUBECONFIG=(\S+)", 5)[1]
    for command in offered.values():
        if command == "gpuscale dashboard":
            continue  # it serves until it is ended; its own tests open it
        done = subprocess.run(
            [
                GPUSCALE,
                *shlex.split(command)[1:],
                *(["--tries", "2"] if " tune " in command else []),
            ],
            cwd=tmp_path,
            env={**os.environ, "KUBECONFIG": kubeconfig},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        # doctor finds something in most clusters
        assert done.returncode <= (command == "gpuscale doctor"), done.stderr
    assert len(offered) == 4
    report = (tmp_path / "run.html").read_text()
    saved = running.get("/ui/report")
    assert saved.startswith(report[: report.index("<style>")])
    assert '"kind":"SuccessfulRescale"' in saved
    running.wait("ReplicasReady", 60)
    hops = running.json("/ui/state")["lags"]["spread"]
    saved = running.get("/ui/report")
    assert all(f'<th scope="row">{name}</th>' in saved for name, *_ in hops)
    assert running.stop() == 0


def test_a_reader_that_has_seen_enough_ends_it() -> None:
    with subprocess.Popen(
        [GPUSCALE, "up", "--port", "0", "--speed", "60"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(60) == 1
    assert errors == ""


def test_prometheus_rules_of_a_file_are_evaluated_served_and_read_again(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "groups:\n- name: mine\n  rules:\n"
        "  - {record: gpus, expr: count(DCGM_FI_DEV_GPU_UTIL)}\n"
        "  - {alert: HasGpus, expr: gpus > 0, annotations: {summary: '{{ $value }} GPUs'}}\n"
    )
    running = Loop(tmp_path, "ack-bert", "--speed", "20", "--prometheus-rules", str(rules))

    def names():
        groups = running.json("/api/v1/rules")["data"]["groups"]
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    def wait_for(expected) -> None:
        deadline = time.monotonic() + 60
        while names() != expected:
            assert time.monotonic() < deadline, (names(), running.text())
            time.sleep(0.2)

    try:
        wait_for({"gpus": "ok", "HasGpus": "ok"})
        (alert,) = running.json("/api/v1/alerts")["data"]["alerts"]
        assert alert["state"] == "firing"
        assert re.fullmatch(r"\d GPUs", alert["annotations"]["summary"])
        labels = f'{{rule_group="{rules};mine"}}'
        assert f"prometheus_rule_group_rules{labels} 2\n" in running.get("/metrics")
        targets = running.json("/api/v1/targets")["data"]["activeTargets"]
        assert {target["health"] for target in targets} == {"up"}
        rules.write_text(
            "groups:\n- name: mine\n  rules:\n  - {record: other, expr: 'sum(DCGM_FI_DEV_GPU_UTIL)'}\n"
        )
        wait_for({"other": "ok"})
        rules.write_text("groups: 1\n")
        running.wait("the last good Prometheus rules stay", 30)
        assert names() == {"other": "ok"}
        assert not running.json("/api/v1/status/runtimeinfo")["data"]["reloadConfigSuccess"]
    finally:
        assert running.stop() == 0


def test_a_bad_prometheus_rule_file_ends_it(tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("groups:\n- name: g\n  rules:\n  - {alert: A, expr: x, for: soon}\n")
    done = subprocess.run(
        [GPUSCALE, "up", "--prometheus-rules", rules, "--port", "0", "--for", "1s"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"{rules}:4: groups[0].rules[0].for: found 'soon'" in done.stderr
