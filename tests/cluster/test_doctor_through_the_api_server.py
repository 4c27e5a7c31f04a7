"""`gpuscale doctor` with nothing but a kubeconfig: agents and Prometheus are read through the API server.

The installation's own objects are in the cluster, and the programs of its pods run at the pods' address.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from gpuscale.base.errors import UnavailableError
from gpuscale.ops.install.certificates import make_certificate
from gpuscale.ops.install.rendering import manifest, render
from gpuscale.ops.install.values import Values
from gpuscale.testing.podresources import PodResources
from gpuscale_testing import (
    Component,
    ControlPlane,
    Settings,
    SimulatedNode,
    local_address,
    simulated_nodes,
    wait_until,
)

sys.path.insert(0, str(Path(__file__).parent))
from stacked import Stacked

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
AGENT_PROGRAM = Path(__file__).with_name("loaded_agent.py")
"""Its GPUs are 40 % busy."""
GPUS = ["GPU-0", "GPU-1"]
ROLE = Path(__file__).parents[2] / "docs" / "examples" / "doctor-role.yaml"
LIMIT_S = 90.0
ACCOUNT = "system:serviceaccount:gpuscale:gpuscale-metrics-api"
AGENT_PORT, PROMETHEUS_PORT, API_PORT = 9400, 9090, 6443
"""Of the installation's containers."""
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: model, image: none, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
VALUES = {
    "scale": [{"workload": {"name": "web"}, "target": 60, "maxReplicas": 2}],
    "metricsApi": {"replicas": 1},
}
NAMESPACE = "--namespace=gpuscale"
AGENT, API, PROMETHEUS = (
    f"{kind}/gpuscale-{name}"
    for kind, name in (
        ("daemonset", "node-agent"),
        ("deployment", "metrics-api"),
        ("deployment", "prometheus"),
    )
)


def whole(findings):
    """Yield findings and all that is folded under them."""
    for each in findings:
        yield each
        yield from whole(each["same"] + each["consequences"])


class Installed(Stacked):
    """A cluster with gpuscale installed, and its pods' programs."""

    def __init__(self, folder) -> None:
        self.folder = folder
        self.programs = {}

    def logs(self):
        own = "\n".join(f"--- {name}\n{each.log_tail()}" for name, each in self.programs.items())
        return f"{own}\n{self.plane.logs()}"

    def run(self, command, user):
        """Return exit code and document of a command, which gets a kubeconfig and nothing else."""
        done = subprocess.run(
            [GPUSCALE, command, f"--kubeconfig={self.plane.kubeconfig(user)}", "--output=json"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def doctor(self, user="reader"):
        return self.run("doctor", user)

    def top(self):
        code, document = self.run("top", "reader")
        assert code == 0
        return document

    def healthy(self, user="reader"):
        """Return the document once the doctor finds nothing."""

        def look():
            code, document = self.doctor(user)
            self.last = document
            return code == 0 and not document["findings"] and document

        try:
            return wait_until(look, "the doctor to find nothing", LIMIT_S)
        except UnavailableError as error:
            raise AssertionError(f"{error}: {json.dumps(self.last, indent=1)}") from error

    def named(self, check, evidence="", user="reader"):
        """Return the finding of a check once the doctor names it with this evidence."""

        def look():
            self.last = [*whole(self.doctor(user)[1]["findings"])]
            named = (each for each in self.last if each["id"] == check)
            return next((each for each in named if evidence in each["evidence"]), None)

        try:
            return wait_until(look, f"the doctor to name {check} with {evidence!r}", LIMIT_S)
        except UnavailableError as error:
            raise AssertionError(f"{error}: {json.dumps(self.last, indent=1)}") from error

    @contextmanager
    def killed(self, name):
        """Have a program away until the block ends."""
        self.programs[name].kill()
        try:
            yield
        finally:
            self.programs[name].restart()
            self.wait_until_up(name)

    @contextmanager
    def patched(self, thing, *changes):
        """Have fields of an object of the installation changed until the block ends; all its pods follow."""
        before = self.plane.get(thing, NAMESPACE)
        self.plane.kubectl("patch", thing, NAMESPACE, "--type=json", "-p", json.dumps(changes))
        self._rolled_out(thing)
        try:
            yield
        finally:
            back = [{**each, "value": _at(before, each["path"])} for each in changes]
            self.plane.kubectl("patch", thing, NAMESPACE, "--type=json", "-p", json.dumps(back))
            self._rolled_out(thing)

    def _rolled_out(self, thing) -> None:
        if not thing.startswith("service/"):
            self.plane.kubectl("rollout", "status", thing, NAMESPACE, f"--timeout={LIMIT_S:g}s")

    @contextmanager
    def program(self, name, *command):
        """Have a program instead of the one of this name, until the block ends."""
        self.programs[name].end_stop()
        with self._running(f"another {name}", *command):
            yield
        self.programs[name].restart()
        self.wait_until_up(name)

    @contextmanager
    def _running(self, name, *command):
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        self.programs[name] = Component(name, [str(word) for word in command], folder, 2.0)
        try:
            yield
        finally:
            self.programs[name].end_stop()

    def wait_until_up(self, name) -> None:
        """Return once a program answers."""
        port, path = {
            "agent": (AGENT_PORT, "/readyz"),
            "prometheus": (PROMETHEUS_PORT, "/-/ready"),
        }[name]

        def look():
            with (
                closing(HTTPConnection(self.address, port, timeout=5.0)) as connection,
                suppress(OSError, HTTPException),
            ):
                connection.request("GET", path)
                return connection.getresponse().status == 200

        wait_until(look, f"{name} to answer", LIMIT_S)

    def _start(self, stack) -> None:
        self.address = stack.enter_context(local_address())
        routing = {"kube-apiserver": ["--enable-aggregator-routing=true"]}
        settings = Settings(hpa_sync_period_s=1.0, extra_flags=routing)
        self.plane = stack.enter_context(ControlPlane(settings))
        node = SimulatedNode(
            "gpu-1",
            gpus=2,
            labels={"nvidia.com/gpu.present": "true"},
            pod_address=self.address,
        )
        stack.enter_context(simulated_nodes(self.plane, node))
        self.plane.apply(WORKLOAD)
        ready = "jsonpath={.status.readyReplicas}=1"
        self.plane.wait("deployment/web", ready, timeout_s=LIMIT_S)
        values = Values.model_validate({"spec": VALUES})
        certificate = make_certificate(values, round(time.time() * 1000))
        self.plane.apply(manifest(render(values)))
        self._start_agent(stack)
        self._start_prometheus(stack)
        self._start_api(stack, certificate)
        trust = {"spec": {"caBundle": certificate.data()["ca.crt"]}}  # its pods would write it
        for version in ("v1beta1", "v1beta2"):
            name = f"apiservice/{version}.custom.metrics.k8s.io"
            self.plane.kubectl("patch", name, "--type=merge", "-p", json.dumps(trust))
            self.plane.wait(name, "condition=Available", timeout_s=LIMIT_S)
        self.plane.apply(ROLE.read_text())
        self.bind("reader", "gpuscale-doctor")

    def bind(self, user, role) -> None:
        self.plane.kubectl(
            *("create", "clusterrolebinding", f"{user}-{role}"),
            *(f"--clusterrole={role}", f"--user={user}"),
        )

    def _start_agent(self, stack) -> None:
        socket = self.folder / "kubelet.sock"
        kubelet = stack.enter_context(PodResources(socket, GPUS))
        (pod,) = self.plane.get("pods", "-l", "app=web")["items"]
        kubelet.allocate("default", pod["metadata"]["name"], GPUS[0])
        self.agent_command = [
            *("env", "NODE_NAME=gpu-1", sys.executable, AGENT_PROGRAM, self.folder / "busy"),
            *(",".join(GPUS), "exporter", "--gpu=nvml", "--kubernetes"),
            *(f"--pod-resources-kubelet-socket={socket}", "--collect-interval=500ms"),
            f"--address={self.address}:{AGENT_PORT}",
        ]
        stack.enter_context(self._running("agent", *self.agent_command))
        self.wait_until_up("agent")

    def _start_prometheus(self, stack) -> None:
        configuration = self.folder / "prometheus.yml"
        job = {
            "job_name": "gpuscale-node-agent",
            "honor_labels": True,
            "static_configs": [{"targets": [f"{self.address}:{AGENT_PORT}"]}],
        }
        timing = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        configuration.write_text(json.dumps({"global": timing, "scrape_configs": [job]}))
        self.prometheus_command = [
            *(shutil.which("prometheus"), f"--config.file={configuration}", "--log.level=warn"),
            f"--storage.tsdb.path={self.folder / 'prometheus' / 'data'}",
            f"--web.listen-address={self.address}:{PROMETHEUS_PORT}",
        ]
        stack.enter_context(self._running("prometheus", *self.prometheus_command))
        self.wait_until_up("prometheus")

    def _start_api(self, stack, certificate) -> None:
        rules = self.plane.get("configmap/gpuscale-metrics-api", NAMESPACE)["data"]
        files = {
            "rules.yaml": rules["rules.yaml"],
            "tls.crt": certificate.certificate,
            "tls.key": certificate.key,
        }
        for name, text in files.items():
            (self.folder / name).write_text(text)
        command = [
            *(GPUSCALE, "metrics-api", f"--config={self.folder / 'rules.yaml'}"),
            f"--prometheus-url=http://{self.address}:{PROMETHEUS_PORT}",
            f"--lister-kubeconfig={self.plane.kubeconfig(ACCOUNT)}",
            *(f"--secure-port={API_PORT}", f"--bind-address={self.address}"),
            f"--tls-cert-file={self.folder / 'tls.crt'}",
            f"--tls-private-key-file={self.folder / 'tls.key'}",
            *("--metrics-relist-interval=1s", "--metrics-max-age=10s"),
        ]
        stack.enter_context(self._running("metrics API", *command))


def _at(body, path):
    """Return what a JSON pointer leads to."""
    for word in path.strip("/").split("/"):
        body = body[int(word)] if isinstance(body, list) else body[word]
    return body


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):
    with Installed(tmp_path_factory.mktemp("installed")) as running:
        yield running


# Healthy, and in one trouble after another


def test_a_kubeconfig_is_all_that_it_takes(cluster) -> None:
    seen = cluster.healthy()["seen"]
    assert (seen["nodes"], seen["agents"], seen["HPAs"], seen["metrics"]) == (1, 1, 1, 1)


def test_top_shows_what_kubectl_and_the_agent_say(cluster) -> None:
    plane = cluster.plane
    shown = cluster.top()
    assert shown["unseen"] == []
    (pod,) = plane.get("pods", "-l", "app=web")["items"]
    owned, free = shown["gpus"]
    assert (owned["node"], owned["index"], owned["use_percent"]) == ("gpu-1", "0", 40)
    assert owned["owners"] == [f"default/{pod['metadata']['name']}"]
    assert (free["index"], free["owners"]) == ("1", [])
    (node,) = shown["nodes"]
    assert (node["name"], node["status"], node["gpus"], node["asked_gpus"]) == (
        *("gpu-1", "Ready"),
        *(2, 1),
    )
    (row,) = shown["workloads"]
    named, reference, *targets, least, most, replicas, _ = plane.kubectl(
        "get", "hpa", row["name"], "--no-headers"
    ).split()
    assert (row["name"], row["target"]) == (named, reference)
    assert row["metrics"] == " ".join(targets)
    assert (row["least"], row["most"], row["replicas"]) == (int(least), int(most), int(replicas))
    assert (row["running"], row["pending"]) == (1, 0)


def test_top_goes_on_without_an_agent(cluster) -> None:
    with cluster.killed("agent"):
        shown = cluster.top()
    assert shown["gpus"] == []
    assert [each["name"] for each in shown["nodes"]] == ["gpu-1"]
    (why,) = shown["unseen"]
    assert why.startswith("GPU values of gpu-1: ")
    assert "connection refused" in why
    cluster.healthy()


def text_of(finding):
    return f"{finding['fix']} {finding['command']}"


def test_an_agent_that_crashed_while_its_pod_is_ready(cluster) -> None:
    with cluster.killed("agent"):
        finding = cluster.named("agent-unreachable", "connection refused")
        down = cluster.named("target-down")
    assert f"{cluster.address}:{AGENT_PORT}" in finding["evidence"]
    assert "kubectl logs -n gpuscale gpuscale-node-agent-" in finding["command"]
    assert f"--agent gpu-1=http://127.0.0.1:{AGENT_PORT}" in finding["command"]
    assert "proxy" not in text_of(finding)
    assert f"{cluster.address}:{AGENT_PORT}" in down["evidence"]
    cluster.healthy()


def container_port(port):
    path = "/spec/template/spec/containers/0/ports/0/containerPort"
    return {"op": "replace", "path": path, "value": port}


def test_an_agent_whose_pod_names_a_port_at_which_nobody_listens(cluster) -> None:
    with cluster.patched(AGENT, container_port(9401)):
        finding = cluster.named("agent-unreachable", f"{cluster.address}:9401")
    assert "listens at port 9401" in finding["fix"]
    assert "9401  # and: gpuscale doctor --agent gpu-1=http://127.0.0.1:9401" in finding["command"]
    cluster.healthy()


def test_an_agent_whose_pod_names_the_port_of_something_else(cluster) -> None:
    with cluster.patched(AGENT, container_port(PROMETHEUS_PORT)):
        finding = cluster.named("no-gpu-util", f"port {PROMETHEUS_PORT} serves go_")
    assert "where the agent listens" in finding["fix"]
    cluster.healthy()


def test_an_agent_with_tls_is_asked_by_https(cluster) -> None:
    configuration = cluster.folder / "agent-web.yml"
    pair = cluster.plane.serving_certificate("gpuscale-node-agent.gpuscale.svc")
    files = {"cert_file": str(pair.certificate), "key_file": str(pair.key)}
    configuration.write_text(json.dumps({"tls_server_config": files}))
    probes = [
        f"/spec/template/spec/containers/0/{each}Probe/httpGet/scheme"
        for each in ("startup", "liveness", "readiness")
    ]
    https = [{"op": "replace", "path": path, "value": "HTTPS"} for path in probes]
    with cluster.program("agent", *cluster.agent_command, f"--web-config-file={configuration}"):
        cluster.named("agent-silent", "EOF")
        with cluster.patched(AGENT, *https):

            def is_read():
                document = cluster.doctor()[1]
                named = {each["id"] for each in whole(document["findings"])}
                unseen = {each["hop"] for each in document["notLookedAt"]}
                # Prometheus still asks by HTTP.
                is_silent = {"agent-silent", "agent-unreachable"} & named
                return "target-down" in named and not is_silent and not unseen

            wait_until(is_read, "the doctor to read the agent", LIMIT_S)
    cluster.healthy()


def test_without_the_rights_to_proxy_each_fix_gives_one(cluster) -> None:
    plane = cluster.plane
    role = plane.get("clusterrole/gpuscale-doctor")
    role["metadata"] = {"name": "watcher"}
    role["rules"] = [rule for rule in role["rules"] if "pods/proxy" not in rule["resources"]]
    plane.apply(json.dumps(role))
    cluster.bind("watcher", "watcher")
    agent = cluster.named("agent-unreachable", user="watcher")
    prometheus = cluster.named("prometheus-unreachable", user="watcher")
    assert {each["id"] for each in cluster.last} == {"agent-unreachable", "prometheus-unreachable"}
    assert 'cannot get resource "pods/proxy"' in agent["evidence"]
    assert 'cannot get resource "services/proxy"' in prometheus["evidence"]
    for finding in (agent, prometheus):
        subprocess.run(
            ["sh", "-c", finding["command"].replace("USER", "watcher")],
            env={**os.environ, "KUBECONFIG": str(plane.admin)},
            check=True,
            timeout=60,
        )
    cluster.healthy("watcher")


def test_a_prometheus_that_crashed(cluster) -> None:
    with cluster.killed("prometheus"):
        finding = cluster.named("prometheus-unreachable", "connection refused")
    assert f"{cluster.address}:{PROMETHEUS_PORT}" in finding["evidence"]
    forward = f"kubectl port-forward -n gpuscale svc/gpuscale-prometheus 9090:{PROMETHEUS_PORT}"
    assert forward in finding["command"]
    assert "proxy" not in text_of(finding)
    cluster.healthy()


def test_a_prometheus_whose_service_leads_nowhere(cluster) -> None:
    nobody = {"op": "replace", "path": "/spec/selector", "value": {"app": "nobody"}}
    with cluster.patched("service/gpuscale-prometheus", nobody):
        finding = cluster.named("prometheus-unreachable", "no endpoints available for service")
    assert "-l kubernetes.io/service-name=gpuscale-prometheus" in finding["command"]
    cluster.healthy()


def under_a_prefix(cluster):
    return "http://gpuscale-prometheus:9090/prometheus", ["--web.route-prefix=/prometheus"]


def with_tls(cluster):
    pair = cluster.plane.serving_certificate("gpuscale-prometheus.gpuscale.svc")
    configuration = cluster.folder / "web.yml"
    files = {"cert_file": str(pair.certificate), "key_file": str(pair.key)}
    configuration.write_text(json.dumps({"tls_server_config": files}))
    return "https://gpuscale-prometheus.gpuscale.svc:9090", [f"--web.config.file={configuration}"]


@pytest.mark.parametrize("kind", [under_a_prefix, with_tls])
def test_a_prometheus_is_asked_where_the_metrics_api_is_reported(cluster, kind) -> None:
    url, flags = kind(cluster)
    path = "/spec/template/spec/containers/0/args"
    arguments = _at(cluster.plane.get(API, NAMESPACE), path)
    told = [f"--prometheus-url={url}" if "--prometheus-url" in each else each for each in arguments]
    with cluster.program("prometheus", *cluster.prometheus_command, *flags):
        cluster.named("prometheus-unreachable")
        with cluster.patched(API, {"op": "replace", "path": path, "value": told}):

            def is_asked():
                hops = {each["hop"] for each in cluster.doctor()[1]["findings"]}
                return hops and "Prometheus" not in hops

            wait_until(is_asked, "the doctor to find nothing wrong with Prometheus", LIMIT_S)
    cluster.healthy()
