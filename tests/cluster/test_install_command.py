"""`gpuscale install` to `gpuscale uninstall` on a real Kubernetes: what is there, and that nothing stays."""

import base64
import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuscale.base.errors import GpuscaleError
from gpuscale.ops.install.cluster.ownership import essence
from gpuscale.testing.prometheus import serve
from gpuscale_testing import (
    SimulatedNode,
    aggregated_api,
    simulated_nodes,
    wait_until,
)
from gpuscale_testing.addresses import free_ports
from gpuscale_testing.metrics_apis import gpuscale_metrics_api

sys.path.insert(0, str(Path(__file__).parent))
from all_objects import everything, settled, wait_until_as_before

from rendered_parts import resource_rules

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
NOWHERE = {"externalName": "localhost", "port": 1}
"""A metrics API where nothing listens, so its APIs never become available."""
GPU_NODE = {"k8s.amazonaws.com/accelerator": "nvidia-l4"}
ACCOUNT = "system:serviceaccount:gpuscale:gpuscale-metrics-api"
FOREIGN = "v1beta1.custom.metrics.k8s.io"
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: vision-api}
spec:
  selector: {matchLabels: {app: vision-api}}
  template:
    metadata: {labels: {app: vision-api}}
    spec: {containers: [{name: model, image: none, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
ADAPTER = """
apiVersion: v1
kind: Service
metadata: {{name: prometheus-adapter, namespace: default}}
spec: {{type: ExternalName, externalName: localhost}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {{name: v1beta1.custom.metrics.k8s.io, labels: {{app: prometheus-adapter}}}}
spec:
  group: custom.metrics.k8s.io
  version: v1beta1
  service: {{name: prometheus-adapter, namespace: default, port: {port}}}
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
"""
METRICS_SERVER = """
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io, labels: {k8s-app: metrics-server}}
spec:
  group: metrics.k8s.io
  version: v1beta1
  service: {name: metrics-server, namespace: kube-system}
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
"""


def values(**spec):
    scale = {"workload": {"name": "vision-api"}, "target": 60, "maxReplicas": 4}
    image = {"repository": "registry.example/gpuscale"}
    return json.dumps({"spec": {"provider": "eks", "image": image, "scale": [scale], **spec}})


def faults(said):
    """Return what is said of faults; which cluster it is, and that there is nothing to scale, are none."""
    beside = ("gpuscale: cluster ", "gpuscale: warning: there is no Deployment ")
    return [line for line in said.splitlines() if not line.startswith(beside)]


class Command:
    """The command with its values, on one cluster."""

    def __init__(self, plane, folder) -> None:
        self._plane = plane
        self._folder = folder

    def start(self, name, *arguments, text=None):
        command = [GPUSCALE, name]
        if text is not None:
            path = self._folder / "values.yaml"
            path.write_text(text)
            command.append(path)
        command += [f"--kubeconfig={self._plane.admin}", "--yes", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)

    def run(self, name, *arguments, text=None, code=0):
        process = self.start(name, *arguments, text=text)
        out, err = process.communicate(timeout=200)
        assert process.returncode == code, out + err
        return out.splitlines() if code == 0 else faults(err)

    def install(self, text, *arguments, **more):
        return self.run("install", *arguments, text=text, **more)


@pytest.fixture
def command(plane, tmp_path: Path):
    running = Command(plane, tmp_path)
    yield running
    running.run("uninstall")


@pytest.fixture(scope="module")
def nodes(plane):
    given = SimulatedNode("gpu-installed", gpus=8, labels=GPU_NODE)
    with simulated_nodes(plane, given):
        yield


def test_a_cluster_is_as_it_was_after_install_and_uninstall(plane, nodes, command) -> None:
    before = settled(plane)
    quiet = {"metricsApi": {"enabled": False}}
    lines = command.install(values(**quiet, devicePlugin={"enabled": True, "replicas": 2}))
    assert lines[-1] == f"{len(lines) - 1} created"
    during = everything(plane)
    assert len(during) >= len(before) + len(lines) - 1
    lines = command.run("uninstall")
    assert lines[-1] == "nothing of installation gpuscale is left"
    wait_until_as_before(plane, before)
    assert command.run("uninstall") == ["there is no installation gpuscale"]
    printed = command.run("uninstall", "--output", "yaml")
    assert printed == ["installation: gpuscale", "changes: []"]


def test_a_second_run_changes_nothing_and_changed_values_change_only_that(
    plane, nodes, command
) -> None:
    text = values(metricsApi={"enabled": False}, samples={"bert": True})
    made = len(command.install(text)) - 1
    assert command.install(text) == [f"{made} unchanged"]
    changed = values(
        metricsApi={"enabled": False}, prometheus={"scrapeInterval": "30s"}, networkPolicies=False
    )
    dry = command.install(changed, "--dry-run", "server")
    assert dry[0] == "dry run: nothing was changed"
    lines = command.install(changed)
    assert (
        sorted(lines[:-1])
        == sorted(dry[1:-1])
        == [
            "ConfigMap gpuscale/gpuscale-prometheus configured",
            "Deployment default/bert-intent-detection removed",
            "NetworkPolicy gpuscale/gpuscale-node-agent removed",
            "NetworkPolicy gpuscale/gpuscale-prometheus removed",
            "Service default/bert-intent-detection removed",
        ]
    )


def test_a_dry_run_makes_nothing(plane, command) -> None:
    before = settled(plane)
    lines = command.install(values(), "--dry-run", "server")
    assert lines[-1].endswith(" created")
    printed = command.install(values(), "--dry-run", "server", "--output", "json")
    found = json.loads("\n".join(printed))
    assert (found["installation"], found["dryRun"]) == ("gpuscale", True)
    assert len(found["changes"]) == len(lines) - 2
    namespace = {"kind": "Namespace", "namespace": None, "name": "gpuscale", "outcome": "created"}
    assert found["changes"][0] == namespace
    assert everything(plane) == before


def test_what_fails_is_taken_back_as_a_whole(plane, nodes, command) -> None:
    before = settled(plane)
    lines = command.install(values(metricsApi=NOWHERE), "--timeout", "3s", code=1)
    assert "waited 3 s for APIService v1beta1.custom.metrics.k8s.io" in "\n".join(lines)
    assert "gpuscale: taken back: Namespace gpuscale removed" in lines
    wait_until_as_before(plane, before)


def test_a_failed_upgrade_leaves_what_was_there(plane, nodes, command) -> None:
    text = values(metricsApi={"enabled": False})
    command.install(text)
    before = settled(plane)
    other = values(prometheus={"scrapeInterval": "30s"}, metricsApi=NOWHERE)
    lines = command.install(other, "--timeout", "3s", code=1)
    assert "gpuscale: taken back: ConfigMap gpuscale/gpuscale-prometheus as it was" in lines
    wait_until_as_before(plane, before)
    assert command.install(text)[-1].endswith(" unchanged")


def test_an_interrupted_run_takes_back_what_it_did(plane, nodes, command) -> None:
    before = settled(plane)
    process = command.start("install", text=values(metricsApi=NOWHERE))
    wait_until(lambda: _api_service(plane) is not None, "the APIService to be there")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "gpuscale: interrupted" in err.splitlines()
    wait_until_as_before(plane, before)


def _api_service(plane):
    try:
        return plane.get("apiservice", FOREIGN)
    except GpuscaleError:
        return None


def test_what_is_missing_or_somebody_elses_is_told_before_anything_is_changed(
    plane, command
) -> None:
    before = settled(plane)
    prometheus = {"kind": "operator", "url": "http://p:9090"}
    lines = command.install(values(prometheus=prometheus), code=2)
    assert [line.split(", expected ")[0] for line in lines] == [
        "gpuscale: found no PrometheusRule of monitoring.coreos.com/v1 in the cluster",
        "gpuscale: found no ServiceMonitor of monitoring.coreos.com/v1 in the cluster",
    ]
    scale = {"workload": {"name": "a", "namespace": "ml"}, "target": 60, "maxReplicas": 4}
    assert command.install(values(scale=[scale]), code=2) == [
        "gpuscale: found no namespace ml, expected it to be there: workloads and dashboards go into it"
    ]
    assert everything(plane) == before


def test_a_namespace_of_others_stays_with_what_is_in_it(plane, nodes, command) -> None:
    plane.kubectl("create", "namespace", "gpuscale")
    plane.kubectl("create", "configmap", "theirs", "--namespace=gpuscale")
    lines = command.install(values(metricsApi={"enabled": False}))
    assert lines[0] == "Namespace gpuscale kept"
    command.run("uninstall")
    assert plane.get("configmap", "theirs", "--namespace=gpuscale")
    plane.kubectl("delete", "namespace", "gpuscale")


def test_our_namespace_stays_too_while_others_use_it(plane, nodes, command) -> None:
    command.install(values(metricsApi={"enabled": False}))
    plane.kubectl("create", "configmap", "theirs", "--namespace=gpuscale")
    lines = command.run("uninstall")
    assert "Namespace gpuscale kept" in lines
    assert lines[-1] == "nothing of installation gpuscale is left"
    assert plane.get("configmap", "theirs", "--namespace=gpuscale")
    plane.kubectl("delete", "namespace", "gpuscale")


JOB = "samples-tf-mnist-demo"
FOREIGN_JOB = f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: {JOB}}}
spec:
  suspend: true
  template: {{spec: {{restartPolicy: Never, containers: [{{name: train, image: none}}]}}}}
"""
MADE_ANEW = (
    f"gpuscale: Job default/{JOB} is made anew and its pods start over, because spec.completions "
    "can't be changed"
)


def training(count):
    """Values whose Job has so many completions."""
    off = {"enabled": False}
    return values(metricsApi=off, alerts=off, dashboards=off, samples={"mnistJobs": count})


def job(plane):
    found = plane.get("job", JOB)
    return found["spec"]["completions"], found["metadata"]["uid"]


def pods_of_job(plane):
    return plane.get("pods", f"--selector=job-name={JOB}")["items"]


def both(process):
    """Return what a command printed on each of its streams."""
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    return out.splitlines(), err.splitlines()


def test_a_job_that_can_not_be_changed_is_made_anew_and_that_is_reported(
    plane, nodes, command
) -> None:
    made = len(command.install(training(2))) - 1
    wait_until(lambda: len(pods_of_job(plane)) == 2, "the Job's pods")
    first = job(plane)
    changed = [f"Job default/{JOB} recreated"]
    out, err = both(command.start("install", "--dry-run", "server", text=training(3)))
    assert (out[1:-1], MADE_ANEW in err) == (changed, True)
    assert job(plane) == first
    out, err = both(command.start("install", text=training(3)))
    assert (out, MADE_ANEW in err) == ([*changed, f"{made - 1} unchanged, 1 recreated"], True)
    second = job(plane)
    assert (second[0], second[1] != first[1]) == (3, True)
    owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods_of_job(plane)}
    assert first[1] not in owners
    assert command.install(training(3)) == [f"{made} unchanged"]
    assert job(plane) == second


def test_a_job_is_as_it_was_when_it_can_not_be_made_anew(plane, nodes, command) -> None:
    command.install(training(2))
    wait_until(lambda: len(pods_of_job(plane)) == 2, "the Job's pods")
    _, first = job(plane)
    held = pods_of_job(plane)[0]["metadata"]["name"]
    plane.kubectl("patch", "pod", held, "--type=merge", "-p", _finalizers(["test.dev/held"]))
    try:
        lines = command.install(training(3), "--timeout", "3s", code=1)
    finally:
        plane.kubectl("patch", "pod", held, "--type=json", "-p", _WITHOUT_FINALIZERS)
    assert f"waited 3 s for Job default/{JOB} to be gone" in "\n".join(lines)
    assert f"gpuscale: taken back: Job default/{JOB} as it was, and starts over" in lines
    completions, second = job(plane)
    assert (completions, second != first) == (2, True)


_WITHOUT_FINALIZERS = json.dumps([{"op": "remove", "path": "/metadata/finalizers"}])


def _finalizers(names):
    return json.dumps({"metadata": {"finalizers": names}})


def test_a_job_of_others_is_never_removed(plane, nodes, command) -> None:
    plane.apply(FOREIGN_JOB)
    before = settled(plane)
    try:
        for flags in ((), ("--replace",)):
            *_, line = command.install(training(2), *flags, code=2)
            assert line.startswith(f"gpuscale: Job default/{JOB} is there already, made by ")
            assert line.endswith(
                "; a Job can't be taken over: remove it, or set samples.namespace to another"
            )
        assert everything(plane) == before
    finally:
        plane.kubectl("delete", "job", JOB)


@contextmanager
def metrics_api(plane, folder, port):
    """Run the metrics API as its pods would: with the Secret's certificate and its account's rights."""
    wait_until(lambda: _try(plane, "secret", "gpuscale-metrics-api-tls"), "the Secret", 60)
    secret = plane.get("secret", "gpuscale-metrics-api-tls", "--namespace=gpuscale")
    for name, text in secret["data"].items():
        (folder / name).write_bytes(base64.b64decode(text))
    wait_until(lambda: _try(plane, "configmap", "gpuscale-metrics-api"), "the rules", 60)
    rules = plane.get("configmap", "gpuscale-metrics-api", "--namespace=gpuscale")["data"]
    for name, text in rules.items():
        (folder / name).write_text(text)
    arguments = [
        *(f"--config={folder / name}" for name in sorted(rules)),
        f"--prometheus-url={folder.joinpath('url').read_text()}",
        f"--lister-kubeconfig={plane.kubeconfig(ACCOUNT)}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--tls-cert-file={folder / 'tls.crt'}",
        f"--tls-private-key-file={folder / 'tls.key'}",
        "--metrics-relist-interval=1s",
        "--metrics-max-age=10m",
    ]
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen([GPUSCALE, "metrics-api", *arguments], stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def _try(plane, *what):
    try:
        return plane.get(*what, "--namespace=gpuscale")
    except GpuscaleError:
        return None


def served_by(plane, name=FOREIGN):
    spec = plane.get("apiservice", name)["spec"]
    return spec["service"]["name"], spec.get("insecureSkipTLSVerify", False)


def test_metrics_servers_api_is_not_taken_unasked(plane, command) -> None:
    plane.apply(METRICS_SERVER)
    try:
        api = {"resource": True, "replicas": 1}
        kind = {"kind": "plain", "url": "http://127.0.0.1:1"}
        refused = command.install(values(metricsApi=api, prometheus=kind), code=2)
    finally:
        plane.kubectl("delete", "apiservice/v1beta1.metrics.k8s.io")
    assert refused == [
        "gpuscale: APIService v1beta1.metrics.k8s.io is there already, served by Service "
        "kube-system/metrics-server; --replace takes its place and keeps the way back"
    ]


RESOURCE = "v1beta1.metrics.k8s.io"


def usage(pod):
    """Yield the kubelet's series around now: 0.9 cores and 512 MiB of a container, and those of its node."""
    start_s = int(time.time()) - 360
    container = {"id": "/pod", "namespace": "default", "pod": pod, "container": "model"}
    node = {"id": "/", "instance": "gpu-installed"}
    cpu, memory = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
    for at_s in range(start_s, start_s + 900, 5):
        for labels, cores, mib in ((container, 0.9, 512), (node, 2.5, 3072)):
            yield {"__name__": cpu, **labels}, at_s * 1000, cores * (at_s - start_s)
            yield {"__name__": memory, **labels}, at_s * 1000, mib * 1024.0 * 1024.0


@contextmanager
def metrics_server(plane, url, folder):
    """Stand in for metrics-server: another server of the group, registered as its manifests have it."""
    folder.mkdir()
    rules = folder / "rules.yaml"
    rules.write_text(resource_rules("plain"))
    group, service = ["metrics.k8s.io/v1beta1"], "metrics-server"
    with (
        gpuscale_metrics_api(plane, url, rules, folder) as theirs,
        aggregated_api(plane, group, theirs.port, service=service),
    ):
        yield


def test_metrics_servers_api_is_taken_when_asked_and_given_back(
    plane, nodes, command, tmp_path: Path
) -> None:
    plane.apply(WORKLOAD)
    plane.apply(VIEWER)
    wait_until(lambda: _running(plane, "app=vision-api"), "the workload to run", 60)
    (pod,) = _running(plane, "app=vision-api")
    used = (pod, "512Mi", True)
    (tmp_path / "prometheus").mkdir()
    with (
        serve(usage(pod), tmp_path / "prometheus") as prometheus,
        metrics_server(plane, prometheus.url, tmp_path / "theirs"),
    ):
        (tmp_path / "url").write_text(prometheus.url)
        (port,) = free_ports(1)
        api = {"externalName": "localhost", "port": port, "resource": True}
        text = values(metricsApi=api, prometheus={"kind": "plain", "url": prometheus.url})
        before = plane.get("apiservice", RESOURCE)
        assert top(plane) == used
        process = command.start("install", "--replace", text=text)
        with metrics_api(plane, tmp_path, port):
            out, _ = both(process)
            assert f"APIService {RESOURCE} replaced" in out
            assert served_by(plane, RESOURCE) == ("gpuscale-metrics-api", False)
            assert top(plane) == used
            wait_until(lambda: top(plane, "--as=viewer") == used, "who may view to see it", 60)
            # The way back outlasts another run, which may do without --replace.
            assert command.install(text)[-1].endswith(" unchanged")
            assert f"APIService {RESOURCE} restored" in command.run("uninstall")
        after = plane.get("apiservice", RESOURCE)
        assert essence(after) == essence(before)
        plane.wait(f"apiservice/{RESOURCE}", "condition=Available", timeout_s=60)
        assert top(plane) == used
        wait_until(lambda: top(plane, "--as=viewer") is None, "our role to be gone", 60)
    plane.kubectl("delete", "deployment/vision-api", "rolebinding/viewer")


VIEWER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: User, name: viewer, apiGroup: rbac.authorization.k8s.io}]
"""


def top(plane, *flags):
    """Return the workload's pod, its memory, and whether it has 900m of CPU; None if forbidden."""
    try:
        shown = plane.kubectl("top", "pods", "--selector=app=vision-api", "--no-headers", *flags)
    except GpuscaleError as error:
        if "Forbidden" not in str(error):
            raise
        return None
    pod, cpu, memory = shown.split()
    # A rate is not exact to the last bit.
    return pod, memory, cpu in ("899m", "900m", "901m")


def _running(plane, selector):
    pods = plane.get("pods", f"--selector={selector}")["items"]
    return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"]


def test_from_install_to_an_hpa_that_scales_and_back(plane, nodes, command, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    plane.apply(WORKLOAD)
    plane.apply(ADAPTER.format(port=port))
    before = settled(plane)
    (tmp_path / "prometheus").mkdir()
    with serve([], tmp_path / "prometheus") as prometheus:
        (tmp_path / "url").write_text(prometheus.url)
        api = {"externalName": "localhost", "port": port}
        kind = {"kind": "plain", "url": prometheus.url}
        text = values(metricsApi=api, prometheus=kind)
        refused = command.install(text, code=2)
        assert refused == [
            "gpuscale: APIService v1beta1.custom.metrics.k8s.io is there already, served by Service "
            "default/prometheus-adapter; --replace takes its place and keeps the way back"
        ]
        # What gpuscale passes requests on to may be taken over, as it goes on to be asked.
        old = {"name": "prometheus-adapter", "target": f"default/prometheus-adapter:{port}"}
        federate = [{**old, "insecure": True, "groups": ["custom"]}]
        text = values(metricsApi={**api, "federate": federate}, prometheus=kind)
        process = command.start("install", text=text)
        with metrics_api(plane, tmp_path, port):
            out, err = process.communicate(timeout=200)
            assert process.returncode == 0, out + err
            assert "APIService v1beta1.custom.metrics.k8s.io replaced" in out.splitlines()
            assert served_by(plane) == ("gpuscale-metrics-api", False)
            (pod,) = plane.get("pods", "-l", "app=vision-api")["items"]
            labels = {"namespace": "default", "pod": pod["metadata"]["name"], "gpu": "0"}
            name = {"__name__": "DCGM_FI_DEV_GPU_UTIL"}
            prometheus.write([({**name, **labels}, round(time.time() * 1000), 100.0)])
            # ceil(1 x 100 / 60) = 2
            wait_until(
                lambda: plane.get("deployment", "vision-api")["spec"]["replicas"] == 2,
                "the HPA to scale",
                90,
            )
            assert command.install(text)[-1].endswith(" unchanged")
            command.run("uninstall")
        assert served_by(plane) == ("prometheus-adapter", True)
    plane.kubectl("scale", "deployment/vision-api", "--replicas=1")
    wait_until(lambda: _names(everything(plane)) == _names(before), "the cluster to be as it was")
    plane.kubectl("delete", "deployment/vision-api", f"apiservice/{FOREIGN}")
    plane.kubectl("delete", "service/prometheus-adapter")


def _names(objects):
    """Return what there is, less pods, whose names are made up."""
    return {key for key in objects if key[0] != "Pod"}
