# mypy: disable-error-code="call-arg"
"""Node agents found by the EndpointSlices of a real API server, with least rights, and no Prometheus."""

import asyncio
import json
import os
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import unused_port

from gpuscale.agent.exporter.agent import NodeAgent
from gpuscale.agent.exporter.routes import ServeOptions
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.simulated import GpuWork, SimulatedReader
from gpuscale.base.clock import WallClock
from gpuscale.ops.install.rendering import manifest, render
from gpuscale.ops.install.values import Values
from gpuscale.server.metricsapi.process import MetricsApiServer
from gpuscale.server.metricsapi.settings import read_settings
from gpuscale.signals import load_counters
from gpuscale_testing.certificates import Authority

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

RIGHTS = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: streams}
rules:
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
- {apiGroups: [""], resources: [pods], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: streams}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: streams}
subjects: [{kind: User, name: streams, apiGroup: rbac.authorization.k8s.io}]
"""
RULES = """
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{pod!=""}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {as: gpu_util}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- seriesQuery: waiting{pod!=""}
  resources: {template: <<.Resource>>}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
COUNTERS = load_counters("DCGM_FI_DEV_GPU_UTIL, gauge, Busy.", "my.csv")
DOMAIN = ".agents.test"
"""An EndpointSlice can't hold a loopback address, so agents have names, which lead to loopback."""


NAMES = f"""
import socket

look_up = socket.getaddrinfo


def here(host, *arguments, **options):
    name = host.decode() if isinstance(host, bytes) else host
    local = "127.0.0.1" if name and name.endswith({DOMAIN!r}) else host
    return look_up(local, *arguments, **options)


socket.getaddrinfo = here
"""


@pytest.fixture
def names_lead_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have the collector, which is a process of its own, look names up another way."""
    (tmp_path / "sitecustomize.py").write_text(NAMES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)


@asynccontextmanager
async def agent(node, pod, busy):
    """A node agent with one simulated GPU that a pod uses."""
    work = lambda *_: (GpuWork(101, "python", busy, 0.1, 4000),)  # noqa: E731
    reader = SimulatedReader(node, MODELS["Tesla T4"], 1, 1, work)
    owners = Attribution({reader.gpus()[0].uuid: (ContainerRef("default", pod, "main"),)}, {})
    serve = ServeOptions(stream_interval_s=0.2)
    running = NodeAgent(
        reader,
        lambda _: owners,
        COUNTERS,
        FamilyOptions(node),
        WallClock(),
        30.0,
        serve=serve,
        reader_blocks=False,
    )
    port = await running.start("127.0.0.1", 0)
    try:
        yield port
    finally:
        await running.stop()


@asynccontextmanager
async def exporter(text):
    """Something else that is scraped."""

    async def answer(_request):
        return web.Response(text=text)

    app = web.Application()
    app.router.add_get("/metrics", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


FLAGS = {
    "source": "streams",
    "agent-service": "default/gpuscale-exporter",
    "scrape-interval": "1s",
}


@asynccontextmanager
async def metrics_api(plane, folder, rules=RULES, user="streams", given=FLAGS):
    (folder / "rules.yaml").write_text(rules)
    port = unused_port()
    flags = {
        **given,
        "config": folder / "rules.yaml",
        "lister-kubeconfig": await asyncio.to_thread(plane.kubeconfig, user),
        "secure-port": 0,
        "insecure-loopback-port": port,
    }
    settings = read_settings({name: [str(value)] for name, value in flags.items()})
    stop, listening = asyncio.Event(), asyncio.Event()
    server = MetricsApiServer(settings)
    task = asyncio.create_task(server.run(stop, lambda _: listening.set()))
    waiting = asyncio.create_task(listening.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert listening.is_set(), task.exception()
        yield f"http://127.0.0.1:{port}"
    finally:
        waiting.cancel()
        stop.set()
        await task


def slice_of(node, port, service="gpuscale-exporter"):
    body = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"agents-{node}",
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "FQDN",
        "ports": [{"name": "metrics", "port": port}],
        "endpoints": [{"addresses": [f"{node}{DOMAIN}"], "conditions": {"ready": True}}],
    }
    return json.dumps(body)


def pod_of(name, annotations=None):
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"nodeSelector": {"no": "node"}, "containers": [{"name": "main", "image": "none"}]},
    }
    return json.dumps(body)


async def annotated_pod(plane, name, port) -> None:
    """Make a pod that is to be scraped at a port of this machine."""
    annotations = {"prometheus.io/scrape": "true", "prometheus.io/port": str(port)}
    await asyncio.to_thread(plane.apply, pod_of(name, annotations))
    status = {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    patch = ("--subresource=status", "--type=merge", "-p", json.dumps({"status": status}))
    await asyncio.to_thread(plane.kubectl, "patch", "pod", name, *patch)


async def values(url, metric):
    path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/{metric}"
    async with aiohttp.ClientSession() as session, session.get(url + path) as answer:
        if answer.status != 200:
            return await answer.text()
        items = (await answer.json())["items"]
    return {item["describedObject"]["name"]: item["value"] for item in items}


async def until(ask, expected, limit_s=60) -> None:
    found = None
    try:
        async with asyncio.timeout(limit_s):
            while True:
                found = await ask()
                if found == expected:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"found {found}, expected {expected}")


async def test_values_come_from_agents_that_the_cluster_names(
    plane, names_lead_here, tmp_path: Path
) -> None:
    async def apply(text) -> None:
        await asyncio.to_thread(plane.apply, text)

    async def kubectl(*arguments) -> None:
        await asyncio.to_thread(plane.kubectl, *arguments)

    await apply(RIGHTS)
    for name in ("bert-0", "bert-1"):
        await apply(pod_of(name))
    try:
        async with (
            agent("n1", "bert-0", 0.23) as first,
            agent("n2", "bert-1", 0.71) as second,
            exporter("waiting 4\n") as queue,
            metrics_api(plane, tmp_path) as url,
        ):
            await apply(slice_of("n1", first))
            await until(lambda: values(url, "gpu_util"), {"bert-0": "23"})
            await apply(slice_of("n2", second))
            await until(lambda: values(url, "gpu_util"), {"bert-0": "23", "bert-1": "71"})
            await annotated_pod(plane, "vllm-0", queue)
            await until(lambda: values(url, "waiting"), {"vllm-0": "4"})
            await kubectl("delete", "endpointslice", "agents-n1")
            await until(lambda: values(url, "gpu_util"), {"bert-1": "71"})
    finally:
        await kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
        await kubectl(
            "delete", "endpointslices", "-l", "kubernetes.io/service-name=gpuscale-exporter"
        )


RIGHT_KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
TEAM_RULES = """
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{pod!=""}
  name: {as: teams_util}
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


def installed(folder):
    """What an installation in `default` renders for its metrics API: its rights, flags and rules.

    What it mounts lies in a folder: no Secret for remote write, an empty volume for samples, and what other
    replicas are trusted by; there are none.
    """
    api = {
        "source": "streams",
        "scrapePods": True,
        "rulesConfigMaps": "gpuscale.dev/rules=true",
    }
    values = Values.model_validate({"spec": {"namespace": "default", "metricsApi": api}})
    objects = [
        each
        for each in render(values)
        if each["metadata"]["labels"]["app.kubernetes.io/component"] == "metrics-api"
    ]
    rights = [each for each in objects if each["kind"] in RIGHT_KINDS]
    (deployment,) = [each for each in objects if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    pairs = (each.removeprefix("--").split("=", 1) for each in container["args"][1:])
    flags = {name: text for name, text in pairs if not name.startswith("tls-")}
    for name in ("remote-write-config", "store-directory"):
        (folder / name).mkdir()
        flags[name] = str(folder / name)
    (folder / "peers").mkdir()
    flags["peers-ca-file"] = str(Authority(folder / "peers", "replicas").certificate)
    (folder / "token").write_text("of-no-account")
    flags["peers-token-file"] = str(folder / "token")
    (rules,) = [each for each in objects if each["kind"] == "ConfigMap"]
    recording = folder / "recording.yaml"
    recording.write_text(rules["data"]["recording.yaml"])
    assert flags["prometheus-rules"] == "/etc/gpuscale/rules/recording.yaml"
    flags["prometheus-rules"] = str(recording)
    return manifest(rights), flags, rules["data"]["rules.yaml"]


async def test_an_installations_rights_flags_and_rules_are_enough(
    plane, names_lead_here, tmp_path: Path
) -> None:
    rights, flags, rules = installed(tmp_path)
    team = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "team", "labels": {"gpuscale.dev/rules": "true"}},
        "data": {"rules.yaml": TEAM_RULES},
    }
    given = (rights, pod_of("bert-0"), json.dumps(team))
    for text in given:
        await asyncio.to_thread(plane.apply, text)
    user = "system:serviceaccount:default:gpuscale-metrics-api"
    service = "gpuscale-node-agent"
    try:
        async with (
            agent("n3", "bert-0", 0.42) as port,
            exporter("vllm:num_requests_waiting 7\n") as queue,
            metrics_api(plane, tmp_path, rules, user, flags) as url,
        ):
            await asyncio.to_thread(plane.apply, slice_of("n3", port, service))
            await until(lambda: values(url, "DCGM_FI_DEV_GPU_UTIL"), {"bert-0": "42"})
            await until(lambda: values(url, "teams_util"), {"bert-0": "42"})
            await annotated_pod(plane, "vllm-1", queue)
            # By the preset: no rule of the installation's own file is about model servers.
            await until(lambda: values(url, "vllm_num_requests_waiting"), {"vllm-1": "7"})
    finally:
        for text in (*given, pod_of("vllm-1"), slice_of("n3", 1, service)):
            path = tmp_path / "given"
            path.write_text(text)
            remove = ("delete", "--ignore-not-found", "--force", "--grace-period=0")
            await asyncio.to_thread(plane.kubectl, *remove, "-f", str(path))
