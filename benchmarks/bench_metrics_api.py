"""`gpuscale metrics-api` and prometheus-adapter, one after the other, before the same load.

    python benchmarks/bench_metrics_api.py            # 10 000 pods in 100 namespaces, and one of 1 000 pods
    python benchmarks/bench_metrics_api.py --quick    # a tenth of everything
    sudo python benchmarks/bench_metrics_api.py --realtime   # where the machine has other work, too

Both run on one core, with the same rules, in front of the same Prometheus and the same API server, and are
asked what 1 000 HPAs ask, each for its ten pods, as the API server passes it on: TLS, its certificate, the
HPA controller's name in headers, so that every request is authenticated and authorised. prometheus-adapter
lists pods no more than five times a second unless told otherwise; here it is told otherwise.

The load comes from `load/main.go`, which is built first: a Go program on the other cores, whose own use of
CPU is in the result. At a rate, a request's time counts from when it was due.

Each kind of load comes three times, and medians count. With `--realtime` the server, Prometheus, the load and
the control plane run before everything else (SCHED_RR), so that other work on the machine takes no turns
between them; caches are shared all the same. How much else there was, the load average in the result says.

Needs the programs of `make cluster-tools`, `prometheus` and Go, and says so where they are missing. It takes
about six minutes. The result goes to benchmarks/results/metrics_api.json.
"""

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import harness
from bench_exporter import children, cpu_seconds, resident_mib
from gpuscale.testing import prometheus as prometheus_process
from gpuscale.testing.cluster import ControlPlane, Settings, missing
from gpuscale.testing.cluster.metrics_apis import (
    MetricsApi,
    gpuscale_metrics_api,
    prometheus_adapter,
)

METRIC = "gpu_util"
SERIES = "DCGM_FI_DEV_GPU_UTIL"
RULES = f"""
rules:
- seriesQuery: '{{__name__=~"DCGM_FI_.*",namespace!="",pod!=""}}'
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  name: {{matches: '^{SERIES}(.*)$', as: '{METRIC}$1'}}
  metricsQuery: 'avg(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
"""
RELIST = "1m"
"""prometheus-adapter's manifests and its Helm chart have this."""
PODS_OF_AN_HPA = 10
HPAS_OF_A_NAMESPACE = 10
LARGE = "large"
CONTROLLER = (
    ("Accept", "application/vnd.kubernetes.protobuf, */*"),
    ("User-Agent", "kube-controller-manager/v1.36.3"),
    ("X-Remote-User", "system:serviceaccount:kube-system:horizontal-pod-autoscaler"),
    ("X-Remote-Group", "system:serviceaccounts"),
    ("X-Remote-Group", "system:serviceaccounts:kube-system"),
    ("X-Remote-Group", "system:authenticated"),
)
CONNECTIONS = 32
STEP_S, SPAN_S = 60, 590
"""Samples are written ahead of time; Prometheus takes ten minutes of future."""
OTHERS_PRIORITY, LOAD_PRIORITY, SERVER_PRIORITY = 1, 2, 3
"""Of Prometheus and the control plane, of the load, and of the server; the highest goes first."""
P99_BUDGET_MS = 10.0
TIMES_BUDGET = 5.0


@dataclass(frozen=True)
class Sizes:
    """How much there is, and for how long it is asked for."""

    namespaces: int
    large: int
    """Pods of the one namespace whose pods are asked for all at once."""
    seconds: float


FULL = Sizes(namespaces=100, large=1_000, seconds=8.0)
QUICK = Sizes(namespaces=10, large=1_000, seconds=3.0)


@dataclass(frozen=True)
class Round:
    """One time of load."""

    told: dict[str, Any]
    """What the load generator said."""
    cpu_s: float
    """Of the server."""
    queries: float
    """That came to Prometheus."""
    resident_mib: float
    """Of the server, afterwards."""

    @property
    def per_second(self) -> float:
        """Return requests per second."""
        return float(self.told["requests"] / self.told["seconds"])


@dataclass
class Measured:
    """What one server came to."""

    name: str
    rounds: dict[str, list["Round"]] = field(default_factory=dict)
    """By phase."""
    most_mib: float = 0.0
    """The most memory that was resident at any time."""
    new_metric_s: float = 0.0


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--realtime", action="store_true", help="run before all else; needs root")
    parser.add_argument("--only", default="", help="measure just this server, and keep no result")
    given = parser.parse_args()
    if reason := unusable():
        print(f"bench_metrics_api: left out: {reason}")
        return 0
    sizes = QUICK if given.quick else FULL
    with tempfile.TemporaryDirectory(prefix="gpuscale-bench-") as name:
        folder = Path(name)
        load = built_load(folder)
        with ControlPlane(plane_settings()) as plane:
            made_s = asyncio.run(make_pods(plane, sizes))
            with prometheus_of(folder, sizes) as prometheus:
                if given.realtime:
                    run_first(os.getpid(), OTHERS_PRIORITY)
                found = [
                    measure(start, plane, prometheus, folder, load, sizes)
                    for start in (prometheus_adapter, gpuscale_metrics_api)
                    if given.only in start.__name__
                ]
    if given.only:
        for each in found:
            print(*map(harness.line, figures_of(each)), sep="\n")
        return 0
    return write(found, sizes, made_s, given)


def run_first(pid: int, priority: int) -> None:
    """Give a process, its threads and its children, those to come too, the machine before all others."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(ProcessLookupError):
            os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(priority))
    for child in children(pid):
        run_first(child, priority)


def unusable() -> str:
    """Return what is missing; empty if everything is there."""
    if reason := missing(["prometheus-adapter"]) or missing():
        return reason
    absent = [name for name in ("prometheus", "go", "taskset") if shutil.which(name) is None]
    return f"needs the program {absent[0]}" if absent else ""


def built_load(folder: Path) -> Path:
    """Return the load generator, built."""
    program = folder / "load"
    source = Path(__file__).parent / "load" / "main.go"
    subprocess.run(["go", "build", "-o", str(program), str(source)], check=True)
    return program


def plane_settings() -> Settings:
    """Return a control plane that lets pods be made without waiting for anything."""
    flags = [
        "--disable-admission-plugins=ServiceAccount",
        "--max-requests-inflight=4000",
        "--max-mutating-requests-inflight=2000",
        "--enable-priority-and-fairness=false",
    ]
    return Settings(extra_flags={"kube-apiserver": flags})


def namespaces(sizes: Sizes) -> Iterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """Yield namespaces, each with its pods and their labels."""
    for number in range(sizes.namespaces):
        pods = []
        for app in range(HPAS_OF_A_NAMESPACE):
            for replica in range(PODS_OF_AN_HPA):
                labels = {"app": f"app-{app}", **({"first": "yes"} if not replica else {})}
                pods.append((f"app-{app}-5d9c7b6f4-x{replica:04}", labels))
        yield f"team-{number:03}", pods
    pods = [(f"large-{number:05}", {"app": LARGE}) for number in range(sizes.large)]
    yield LARGE, pods


async def make_pods(plane: ControlPlane, sizes: Sizes) -> float:
    """Make namespaces and pods that nobody schedules, and return the seconds it took."""
    started = time.perf_counter()
    client = plane.client()
    try:
        at_once = asyncio.Semaphore(32)

        async def make(path: str, body: dict[str, Any]) -> None:
            async with at_once:
                await client.create(path, body)

        async with asyncio.TaskGroup() as group:
            for name, _ in namespaces(sizes):
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                group.create_task(make("/api/v1/namespaces", body))
        async with asyncio.TaskGroup() as group:
            for name, pods in namespaces(sizes):
                for pod, labels in pods:
                    path = f"/api/v1/namespaces/{name}/pods"
                    group.create_task(make(path, pod_body(pod, labels)))
    finally:
        await client.close()
    return time.perf_counter() - started


def pod_body(name: str, labels: dict[str, str]) -> dict[str, Any]:
    """Return a pod with as much in it as one usually has in its labels and annotations."""
    common = {"pod-template-hash": "5d9c7b6f4", "app.kubernetes.io/part-of": "inference"}
    metadata = {"name": name, "labels": {**labels, **common}}
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "model", "image": "none", "resources": limits}
    spec = {"schedulerName": "nobody", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@contextmanager
def prometheus_of(folder: Path, sizes: Sizes) -> Iterator[prometheus_process.Prometheus]:
    """Run a Prometheus that holds a series per pod."""
    place = folder / "prometheus"
    place.mkdir()
    with prometheus_process.serve(samples(sizes), place) as running:
        yield running


def samples(sizes: Sizes, series: str = SERIES) -> Iterator[prometheus_process.Sample]:
    """Yield the samples of all pods from now on."""
    now_ms = int(time.time() * 1000)
    for namespace, pods in namespaces(sizes):
        for number, (pod, _) in enumerate(pods):
            labels = {
                "__name__": series,
                "namespace": namespace,
                "pod": pod,
                "container": "model",
                "gpu": str(number % 8),
                "UUID": f"GPU-{namespace}-{number:05}",
                "device": f"nvidia{number % 8}",
                "modelName": "NVIDIA H200",
                "Hostname": f"gpu-{number // 8:04}",
                "job": "gpu-metrics",
                "instance": f"10.0.{number // 200}.{number % 200}:9400",
            }
            for offset_s in range(0, SPAN_S, STEP_S):
                yield labels, now_ms + 1000 * offset_s, float(number * 7 % 101)


def measure(
    start: Callable[..., Any],
    plane: ControlPlane,
    prometheus: prometheus_process.Prometheus,
    folder: Path,
    load: Path,
    sizes: Sizes,
) -> Measured:
    """Start a server on one core, take its figures, and end it."""
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    flags = [f"--metrics-relist-interval={RELIST}", "--metrics-max-age=10m"]
    server_core, other_cores = cores()
    load_command = ["taskset", "-c", other_cores, str(load)]
    with start(
        plane,
        prometheus.url,
        rules,
        folder,
        more=flags,
        prefix=["taskset", "-c", server_core],
    ) as api:
        if os.sched_getscheduler(0) == os.SCHED_RR:
            run_first(api.pid, SERVER_PRIORITY)
            load_command = ["chrt", "-r", str(LOAD_PRIORITY), *load_command]
        ask_until(api, plane, hpa_paths(sizes)[0])
        found = Measured(api.name)
        for phase in [each for each in phases(sizes) for _ in range(each.rounds)]:
            done = run_phase(phase, api, plane, prometheus, load_command)
            found.rounds.setdefault(phase.name, []).append(done)
        found.most_mib = most_mib(api.pid)
        found.new_metric_s = new_metric_s(api, plane, prometheus)
    return found


def cores() -> tuple[str, str]:
    """Return a core for the server, and those for the load."""
    first, *others = sorted(os.sched_getaffinity(0))
    return str(first), ",".join(map(str, others or [first]))


@dataclass(frozen=True)
class Phase:
    """One kind of load."""

    name: str
    paths: list[str]
    seconds: float
    rate: float = 0.0
    connections: int = CONNECTIONS
    rounds: int = 3


SATURATION = "HPAs of 10 pods, as fast as it goes"
RATES = (500, 2_000)


def at_rate(rate: int) -> str:
    """Return the name of the phase at a rate."""
    return f"HPAs of 10 pods, {rate:,} requests/s"


ONE, TEN, THOUSAND = "* of 1 pod", "* of 10 pods", "* of 1 000 pods"


def phases(sizes: Sizes) -> list[Phase]:
    """Return the load in the order it comes."""
    hpas = hpa_paths(sizes)
    first = [f"{path},first=yes" for path in hpas]
    large = [f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{LARGE}/pods/%2A/{METRIC}"]
    s = sizes.seconds
    return [
        Phase("warm-up", hpas, s / 2, rounds=1),
        Phase(SATURATION, hpas, s),
        *(Phase(at_rate(rate), hpas, s, rate) for rate in RATES),
        Phase(ONE, first, s / 2),
        Phase(THOUSAND, large, s / 2),
    ]


def hpa_paths(sizes: Sizes) -> list[str]:
    """Return what the HPA controller asks for, neighbours in time in different namespaces."""
    return [
        f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/team-{number:03}/pods/%2A/{METRIC}"
        f"?labelSelector=app%3Dapp-{app}"
        for app in range(HPAS_OF_A_NAMESPACE)
        for number in range(sizes.namespaces)
    ]


def run_phase(
    phase: Phase,
    api: MetricsApi,
    plane: ControlPlane,
    prometheus: prometheus_process.Prometheus,
    load: list[str],
) -> Round:
    """Put a load on a server, and return what came of it."""
    settings = {
        "address": f"127.0.0.1:{api.port}",
        "certificate": str(plane.front_proxy.certificate),
        "key": str(plane.front_proxy.key),
        "headers": CONTROLLER,
        "paths": phase.paths,
        "connections": phase.connections,
        "rate": phase.rate,
        "seconds": phase.seconds,
    }
    queries, cpu = query_count(prometheus), cpu_seconds(api.pid)
    done = subprocess.run(
        load,
        input=json.dumps(settings),
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    print(f"{api.name}: {phase.name}: {told}", file=sys.stderr, flush=True)
    spent, asked = cpu_seconds(api.pid) - cpu, query_count(prometheus) - queries
    return Round(told, spent, asked, resident_mib(api.pid))


def most_mib(pid: int) -> float:
    """Return the most memory that was resident in a process so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    sys.exit(f"bench_metrics_api: /proc/{pid}/status tells no VmHWM")


def query_count(prometheus: prometheus_process.Prometheus) -> float:
    """Return how many instant queries came to Prometheus so far."""
    counted = 0.0
    with urllib.request.urlopen(f"{prometheus.url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    for line in lines:
        if line.startswith("prometheus_http_requests_total") and 'handler="/api/v1/query"' in line:
            counted += float(line.rpartition(" ")[2])
    return counted


def new_metric_s(
    api: MetricsApi, plane: ControlPlane, prometheus: prometheus_process.Prometheus
) -> float:
    """Return the seconds from a metric's first sample in Prometheus until it is served."""
    namespace, pod = "team-000", "app-0-5d9c7b6f4-x0000"
    name = f"{SERIES}_{'a' if api.name == 'gpuscale' else 'b'}"
    labels = {"__name__": name, "namespace": namespace, "pod": pod}
    prometheus.write([(labels, int(time.time() * 1000), 1.0)])
    metric = name.replace(SERIES, METRIC)
    path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/pods/%2A/{metric}"
    return ask_until(api, plane, path)


def ask_until(api: MetricsApi, plane: ControlPlane, path: str, limit_s: float = 150.0) -> float:
    """Return the seconds until a path has items."""
    started = time.perf_counter()
    while time.perf_counter() - started < limit_s:
        with suppress(OSError), closing(api.connect(plane.front_proxy)) as connection:
            connection.putrequest("GET", path)
            for name, value in CONTROLLER[2:]:
                connection.putheader(name, value)
            connection.endheaders()
            response = connection.getresponse()
            if response.status == 200 and json.loads(response.read())["items"]:
                return time.perf_counter() - started
        time.sleep(0.05)
    sys.exit(f"bench_metrics_api: {api.name} has no items at {path}: {api.component.log_tail()}")


def write(found: list[Measured], sizes: Sizes, made_s: float, given: argparse.Namespace) -> int:
    """Write the result, and return the exit code."""
    figures = [figure for each in found for figure in figures_of(each)]
    theirs, ours = found
    figures += compared(theirs, ours)
    settings = {
        "pods": sizes.namespaces * HPAS_OF_A_NAMESPACE * PODS_OF_AN_HPA,
        "namespaces": sizes.namespaces,
        "further_pods_in_one_namespace": sizes.large,
        "hpas": len(hpa_paths(sizes)),
        "connections": CONNECTIONS,
        "seconds_of_a_round": sizes.seconds,
        "pods_made_in_s": round(made_s, 1),
        "cores": {"server": cores()[0], "load": cores()[1]},
        "load_average": os.getloadavg(),
        "realtime": given.realtime,
        "relist_interval": RELIST,
        "load_generator_cores_used": {
            each.name: {
                phase: round(rounds[0].told["cpu_seconds"] / rounds[0].told["seconds"], 2)
                for phase, rounds in each.rounds.items()
            }
            for each in found
        },
    }
    name = "metrics_api_quick" if given.quick else "metrics_api"
    programs = {"prometheus": ["prometheus", "--version"], "go": ["go", "version"]}
    packages = ("aiohttp", "pyopenssl", "cryptography")
    return harness.write(name, figures, packages=packages, programs=programs, settings=settings)


def figures_of(measured: Measured) -> list[harness.Figure]:
    """Return one server's figures."""
    name = measured.name
    found = []
    for phase, label in ((SATURATION, TEN), (ONE, ONE), (THOUSAND, THOUSAND)):
        rounds = measured.rounds[phase]
        rates = [each.per_second for each in rounds]
        note = f"as fast as it goes; statuses {rounds[0].told['statuses']}"
        found.append(harness.figure(f"{name}: {label}", "requests/s", rates, note=note))
    for rate in RATES:
        found += figures_at(measured, rate)
    label = f"{name}: most resident memory, with * of 1 000 pods"
    found.append(harness.figure(label, "MiB", [measured.most_mib]))
    label = f"{name}: a new metric in Prometheus is served"
    found.append(harness.figure(label, "s", [measured.new_metric_s]))
    return found


def figures_at(measured: Measured, rate: int) -> list[harness.Figure]:
    """Return what came of requests at a rate."""
    rounds = measured.rounds[at_rate(rate)]
    at = f"at {rate:,} requests/s"
    has_budget = measured.name == "gpuscale" and rate == RATES[-1]
    late = statistics.median(each.told["unsent"] for each in rounds)
    note = f"{late:.0f} requests not answered in their time; statuses {rounds[0].told['statuses']}"

    def figure(
        what: str, unit: str, values: list[float], at_most: float | None = None
    ) -> harness.Figure:
        return harness.figure(
            f"{measured.name}: {what} {at}", unit, values, at_most=at_most, note=note
        )

    return [
        figure("p50", "ms", [each.told["p50_ms"] for each in rounds]),
        figure(
            "p99",
            "ms",
            [each.told["p99_ms"] for each in rounds],
            P99_BUDGET_MS if has_budget else None,
        ),
        figure("resident memory", "MiB", [each.resident_mib for each in rounds]),
        figure("CPU", "cores", [each.cpu_s / each.told["seconds"] for each in rounds]),
        figure(
            "CPU of a request",
            "us",
            [1e6 * each.cpu_s / max(1, each.told["requests"]) for each in rounds],
        ),
        figure(
            "queries to Prometheus",
            "queries/s",
            [each.queries / each.told["seconds"] for each in rounds],
        ),
    ]


def compared(theirs: Measured, ours: Measured) -> list[harness.Figure]:
    """Return how many times as fast ours is, and how many times as large."""
    times = [
        mine.per_second / other.per_second
        for mine, other in zip(ours.rounds[SATURATION], theirs.rounds[SATURATION], strict=True)
    ]
    memory = ours.most_mib / theirs.most_mib
    return [
        harness.figure(
            "times the requests/s of prometheus-adapter", "x", times, at_least=TIMES_BUDGET
        ),
        harness.figure("times its most resident memory", "x", [memory], at_most=1.0),
    ]


if __name__ == "__main__":
    sys.exit(main())
