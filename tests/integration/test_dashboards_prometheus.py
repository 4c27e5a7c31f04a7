"""Every query of every dashboard and alert, asked of a real Prometheus that scrapes our own processes.

Two node agents run as processes: one with simulated GPUs, one that plays a recording of a GPU that is split
by MIG. The metrics API runs as a process too. What only Kubernetes can say comes from a page with upstream's
names. A query must give a number; what variables offer is asked for as Grafana asks for it.
"""

import http.server
import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path

import pytest

from gpuscale.agent.exporter.readers import SEED
from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.simulated import FIRST_PID, SimulatedReader
from gpuscale.agent.nvml.reader import NvmlReader
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.agent.recordings.recording import ReadingRecorder, RecordingReader
from gpuscale.base.clock import ManualClock
from gpuscale.ops.install.rendering import alert_groups, board_files
from gpuscale.ops.install.settings.prometheus import Prometheus
from gpuscale.ops.install.values import Values, ValuesSpec
from gpuscale.signals import DEFAULT_COUNTERS
from gpuscale.testing.nvml import FakeGpu, FakeInstance, FakeNvml, FakeProcess
from gpuscale.testing.podresources import PodResources
from gpuscale_testing.addresses import free_ports

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(300)]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
DATA = Path(__file__).parents[1] / "data"
CLUSTER = DATA / "upstream_metrics" / "cluster.txt"
CGROUPS = DATA / "cgroups"
POD = "vision-api-7d9f8b6c5d-x2f4z"
RULES = """
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL
  resources: {overrides: {Hostname: {resource: node}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
LIMIT_S = 60
GRAFANAS = {"__rate_interval": "1m", "__range": "1h", "__interval": "15s"}
HONOURS = {"honor_labels": True, "exported": False}


@contextmanager
def process(folder, name, *command, **environment):
    with (folder / f"{name}.log").open("w") as log:
        running = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, **environment}
        )
    try:
        yield running
    finally:
        running.terminate()
        running.wait(timeout=60)


class ClusterPage(http.server.BaseHTTPRequestHandler):
    """The page with upstream's names, on which what counts goes on counting."""

    scrapes = 0

    def do_GET(self) -> None:
        ClusterPage.scrapes += 1
        body = CLUSTER.read_text().replace("@SCRAPES@", str(ClusterPage.scrapes)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_) -> None:
        pass


class ServersPage(ClusterPage):
    """Pages of model servers and of what is in front of them, as one pod's; counters go on counting."""

    def do_GET(self) -> None:
        ServersPage.scrapes += 1
        body = "\n".join(self.lines()).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(body)

    @staticmethod
    def text_of(name):
        text = (DATA / "signals" / f"{name}.txt").read_text()
        return text.replace('namespace="ml"', 'namespace="default"')

    def lines(self):
        is_counted = False
        for name in ("vllm", "tgi", "triton", "torchserve", "epp", "dynamo", "proxies", "queues"):
            for line in self.text_of(name).splitlines():
                if line.startswith("# TYPE"):
                    is_counted = line.endswith((" counter", " histogram"))
                if is_counted and not line.startswith("#") and line:
                    series, _, value = line.rpartition(" ")
                    yield f"{series} {float(value) * ServersPage.scrapes}"
                else:
                    yield line


@contextmanager
def page(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def record_split_gpu(path) -> None:
    """Record a GPU with two MIG instances through the stand-in of NVML; a process of the host uses one."""
    host = [FakeProcess(977, sm_percent=10)]
    instances = [
        FakeInstance(
            7, busy_percent=40, tensor_percent=20, used_mib=5000, uuid="MIG-7", processes=host
        ),
        FakeInstance(9, busy_percent=10, tensor_percent=5, used_mib=300, uuid="MIG-9"),
    ]
    clock = ManualClock(1_790_000_000_000)
    library = FakeNvml(
        [FakeGpu(uuid="GPU-split", used_mib=5300, instances=instances)],
        now_us=lambda: clock.now_ms() * 1000,
    )
    # A busy machine must not make a GPU look as if it hung.
    unhurried = NvmlSettings(patience_ms=10_000, deadline_ms=30_000)
    fields = frozenset(counter.field for counter in DEFAULT_COUNTERS)
    nvml = NvmlReader(unhurried, library, clock=clock, present=library.present, fields=fields)
    file = ReadingRecorder.open(str(path))
    reader = RecordingReader(nvml, file)
    for _ in range(10):
        clock.advance(1)
        reader.read(clock.now_ms())
    reader.close()
    file.close()


def agent(stack, folder, node, gpus, socket):
    command = (
        GPUSCALE,
        "exporter",
        f"--gpu={gpus}",
        "--address=127.0.0.1:0",
        "--collect-interval=500ms",
        "--kubernetes",
        f"--pod-resources-kubelet-socket={socket}",
        f"--proc-root={folder / 'proc'}",
    )
    stack.enter_context(process(folder, node, *command, NODE_NAME=node))

    def port():
        found = re.search(r"listening on port (\d+)", (folder / f"{node}.log").read_text())
        return found and int(found[1])

    return until(port, f"{node} to listen")


def simulated_processes(folder) -> None:
    """Lay out the host's processes: those that the simulated GPUs are busy with belong to a pod."""
    shutil.copytree(CGROUPS / "host", folder / "proc")
    for pid in (FIRST_PID, FIRST_PID + 1):
        shutil.copytree(CGROUPS / "host" / "4242", folder / "proc" / str(pid))


def agents(stack, folder):
    simulated_processes(folder)
    (first, second) = SimulatedReader("n1", MODELS["NVIDIA H200"], 2, SEED, lambda *_: ()).gpus()
    kubelet = stack.enter_context(PodResources(folder / "n1.sock", [first.uuid, second.uuid]))
    kubelet.allocate("default", POD, first.uuid)
    record_split_gpu(folder / "split.jsonl.gz")
    mig = "nvidia.com/mig-1g.10gb"
    split = stack.enter_context(PodResources(folder / "n2.sock", ["MIG-7", "MIG-9"], mig))
    split.allocate("ml", "notebook-0", "MIG-7")
    return {
        "n1": agent(stack, folder, "n1", "simulated:NVIDIA H200:2", folder / "n1.sock"),
        "n2": agent(stack, folder, "n2", f"replay:{folder / 'split.jsonl.gz'}", folder / "n2.sock"),
    }


def scrape_job(name, ports, *, honours):
    """Return a job as an installation's; without honor_labels, targets have the labels of their pod."""
    targets = [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {} if honours else {"namespace": "gpuscale", "pod": f"{name}-{node}"},
        }
        for node, port in ports.items()
    ]
    return {
        "job_name": name,
        "scrape_interval": "1s",
        "honor_labels": honours,
        "static_configs": targets,
    }


@contextmanager
def prometheus(folder, name, port, jobs):
    path = folder / f"{name}.yml"
    path.write_text(json.dumps({"scrape_configs": jobs}))
    with process(
        folder,
        name,
        "prometheus",
        f"--config.file={path}",
        f"--storage.tsdb.path={folder / name}",
        f"--web.listen-address=127.0.0.1:{port}",
    ):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory):
    """Yield the address of a Prometheus for each way to scrape."""
    folder = tmp_path_factory.mktemp("dashboards")
    with ExitStack() as stack:
        nodes = agents(stack, folder)
        cluster = stack.enter_context(page(ClusterPage))
        servers = stack.enter_context(page(ServersPage))
        api, *own = free_ports(1 + len(HONOURS))
        ports = dict(zip(HONOURS, own, strict=True))
        (folder / "rules.yaml").write_text(RULES)
        command = (
            GPUSCALE,
            "metrics-api",
            f"--config={folder / 'rules.yaml'}",
            f"--prometheus-url=http://127.0.0.1:{ports['honor_labels']}",
            "--secure-port=0",
            f"--insecure-loopback-port={api}",
            "--metrics-relist-interval=1s",
            "--hop-lag-interval=500ms",
        )
        stack.enter_context(process(folder, "metrics-api", *command))
        stack.enter_context(asking(f"http://127.0.0.1:{api}"))
        addresses = {}
        for name, honours in HONOURS.items():
            jobs = [
                scrape_job("gpuscale-node-agent", nodes, honours=honours),
                {
                    **scrape_job("gpuscale-node-agent-azure", nodes, honours=honours),
                    "metrics_path": "/metrics/azure",
                },
                scrape_job("gpuscale-metrics-api", {"api": api}, honours=honours),
                scrape_job("cluster", {"cluster": cluster}, honours=True),
                {
                    "job_name": "servers",
                    "scrape_interval": "1s",
                    "static_configs": [
                        {
                            "targets": [f"127.0.0.1:{servers}"],
                            "labels": {"namespace": "default", "pod": POD},
                        }
                    ],
                },
            ]
            addresses[name] = stack.enter_context(prometheus(folder, name, ports[name], jobs))
        yield addresses


@contextmanager
def asking(url):
    """Ask the metrics API for a value again and again, as an HPA does."""
    ended = threading.Event()
    path = f"{url}/apis/custom.metrics.k8s.io/v1beta2/nodes/n1/DCGM_FI_DEV_GPU_UTIL"

    def ask() -> None:
        while not ended.wait(0.5):
            with suppress(OSError), urllib.request.urlopen(path, timeout=30) as answer:
                answer.read()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def get(url, path, **parameters):
    """Return the data of an answer; None while there is no Prometheus yet."""
    query = urllib.parse.urlencode(parameters)
    try:
        with urllib.request.urlopen(f"{url}{path}?{query}", timeout=60) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.SERVICE_UNAVAILABLE:
            return None  # it listens, and still opens its database
        pytest.fail(f"{parameters}: {error.read().decode()}")
    except OSError:
        return None


def until(ask, what):
    """Return the first answer that is something."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        found = ask()
        if found:
            return found
        time.sleep(0.5)
    pytest.fail(f"nothing within {LIMIT_S} s: {what}")


def filled(text, chosen):
    """Return a query as Grafana sends it."""
    return re.sub(r"\$\{?(\w+)\}?", lambda found: chosen[found[1]], text)


def choose(url, board):
    """Return a value for each of a dashboard's variables; those of a label come from their own query."""
    chosen = dict(GRAFANAS)
    for variable in board["templating"]["list"]:
        name = variable["name"]
        if variable["type"] == "textbox":
            chosen[name] = variable["query"]
        if variable["type"] == "query":
            selector, label = re.fullmatch(
                r"label_values\((.+), (\w+)\)", variable["query"]["query"]
            ).groups()
            path, wanted = f"/api/v1/label/{label}/values", filled(selector, chosen)
            values = until(lambda at=path, of=wanted: get(url, at, **{"match[]": of}), name)
            chosen[name] = variable["allValue"] if variable["includeAll"] else values[0]
    return chosen


def numbers(url, target, query):
    """Return the finite values that a target's query gives."""
    now = time.time()
    if target["instant"]:
        data = get(url, "/api/v1/query", query=query, time=now)
        points = [each["value"] for each in data["result"]] if data else []
    else:
        span = {"start": now - 60, "end": now, "step": 1}
        data = get(url, "/api/v1/query_range", query=query, **span)
        points = [point for each in data["result"] for point in each["values"]] if data else []
    return [float(value) for _, value in points if math.isfinite(float(value))]


def boards(*, honours):
    installation = Values(spec=ValuesSpec(prometheus=Prometheus(honor_labels=honours)))
    return [json.loads(text) for text in board_files(installation).values()]


TARGETS = [
    pytest.param(
        way,
        board["uid"],
        panel["title"],
        index,
        id=f"{way}-{board['uid']}-{panel['title']}-{index}",
    )
    for way in HONOURS
    for board in boards(honours=True)
    for panel in board["panels"]
    for index, _ in enumerate(panel.get("targets", ()))
]


def panel_of(document, title):
    (found,) = [each for each in document["panels"] if each["title"] == title and "targets" in each]
    return found


@pytest.fixture(scope="module")
def opened(world):
    """Return every dashboard with its variables chosen."""
    found = {}
    for way, honours in HONOURS.items():
        for board in boards(honours=honours):
            found[way, board["uid"]] = (board, choose(world[way], board))
    return found


@pytest.mark.parametrize(("way", "uid", "title", "index"), TARGETS)
def test_every_query_gives_numbers(world, opened, way, uid, title, index) -> None:
    document, chosen = opened[way, uid]
    target = panel_of(document, title)["targets"][index]
    query = filled(target["expr"], chosen)
    until(lambda: numbers(world[way], target, query), query)


# n1 has two H200, n2 one H100 that is split: 3 GPUs on 2 nodes, at 2.5 each.
@pytest.mark.parametrize(
    ("uid", "title", "value"),
    [
        ("gpuscale-gpus", "GPUs", 3),
        ("gpuscale-gpus", "Nodes with GPUs", 2),
        ("gpuscale-gpus", "GPUs that can't be read", 0),
        ("gpuscale-cost", "Cost per hour", 7.5),
    ],
)
@pytest.mark.parametrize("way", HONOURS)
def test_totals_add_up(world, opened, way, uid: str, title: str, value: float) -> None:
    document, chosen = opened[way, uid]
    (target,) = panel_of(document, title)["targets"]
    query = filled(target["expr"], chosen)
    until(lambda: numbers(world[way], target, query) == [value], f"{query} to be {value}")


@pytest.mark.parametrize("way", HONOURS)
def test_only_what_a_pod_has_counts_for_its_namespace(world, opened, way) -> None:
    """One GPU belongs to default, an instance of another to ml; the third is nobody's."""
    document, chosen = opened[way, "gpuscale-cost"]
    title = "Cost per hour by namespace, whole GPUs"
    query = filled(panel_of(document, title)["targets"][0]["expr"], chosen)
    label = "namespace" if HONOURS[way] else "exported_namespace"

    def found():
        data = get(world[way], "/api/v1/query", query=query)
        rows = data["result"] if data else []
        costs = {each["metric"].get(label): float(each["value"][1]) for each in rows}
        return costs == {"default": 2.5, "ml": 2.5}

    until(found, query)


# Switched off in the built-in counters file; counted from the first event on.
NOT_ALWAYS_THERE = {
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
    "gpuscale_metrics_api_source_failures_total",
    "gpuscale_metrics_api_stale_values_total",
    # Of a GPU that several pods use, when no pod is known to.
    "gpuscale_exporter_unattributed",
    # Of a GPU that something is wrong with.
    "gpuscale_gpu_health_problem",
    # Of triggers, which nothing here has, and of the scaler.
    "gpuscale_scaler_held_seconds",
    "gpuscale_trigger_count",
}
EXPRESSIONS = {
    rule["alert"]: rule["expr"]
    for group in alert_groups(Values(spec=ValuesSpec()))  # without a scaler
    for rule in group["rules"]
}


@pytest.fixture(scope="module")
def settled(world):
    """Return the address of a Prometheus that has all that alerts ask for."""
    wanted = {
        name
        for expr in EXPRESSIONS.values()
        for name in re.findall(r"(?:DCGM_FI|gpuscale|kube|aggregator)_\w+(?=[{)\[ ]|$)", expr)
    }
    url = world["honor_labels"]

    def missing():
        return wanted - NOT_ALWAYS_THERE - set(get(url, "/api/v1/label/__name__/values") or ())

    until(lambda: not missing(), f"a series of each of {wanted}")
    return url


def test_xids_have_the_labels_that_alerts_go_by(settled) -> None:
    labels = ("Hostname", "gpu", "UUID", "err_code", "err_msg")
    matchers = ",".join(f'{label}!=""' for label in labels)
    query = f"count(count by (UUID) (DCGM_FI_DEV_XID_ERRORS{{{matchers}}}))"
    until(lambda: instant(settled, query) == {(): 3.0}, query)


def instant(url, query):
    """Return the values of a query by their labels."""
    data = get(url, "/api/v1/query", query=query)
    return {
        tuple(sorted(each["metric"].items())): float(each["value"][1])
        for each in (data["result"] if data else ())
    }


# One pod of the page with upstream's names waits for a GPU.
WAITING = {"GpuPodsPending": [{"namespace": "default", "pod": "vision-api-7d9f8b6c5d-q8r7k"}]}


@pytest.mark.parametrize("alert", EXPRESSIONS)
def test_where_all_is_well_only_the_pod_that_waits_is_reported(settled, alert) -> None:
    def told():
        return [dict(labels) for labels in instant(settled, EXPRESSIONS[alert])]

    until(lambda: told() == WAITING.get(alert, []), f"{alert} tells {told()}")
