"""`gpuscale metrics-api` and prometheus-adapter, at the rates that HPA controllers ask at.

    python benchmarks/bench_metrics_api.py                 # about nine minutes
    python benchmarks/bench_metrics_api.py --seconds 600   # ten minutes a round, three hours in all
    python benchmarks/bench_metrics_api.py --pods 10000 --rates 66   # a part of it; keeps no result
    sudo python benchmarks/bench_metrics_api.py --realtime # where the machine has other work, too

An HPA controller asks for each metric of each HPA every 15 seconds: 5 requests a second are 75 HPAs, 66 are
1 000, 330 are 5 000. Each HPA has its turn, the same every 15 seconds; the first of them does not count.
Besides, there is one round as fast as it goes, from 32 connections: no controller asks so, and what it says
is how far a server is from its end.

Both servers get the same rules, in front of the same Prometheus and the same API server, and are asked as the
API server asks: TLS, its certificate, the HPA controller's name in headers, so that every request is
authenticated and authorised. By default prometheus-adapter lists pods no more than five times a
second; here it may list any number of times. The CPU of Prometheus counts beside that of the server, with
all that it does meanwhile: discovery, and what a server asks of its own accord.

The load comes from `load/main.go`, which is built first. At a rate, a request's time counts from when it was
due. With `--realtime` the servers, Prometheus, the load and the control plane run before everything else
(SCHED_RR), so that other work on the machine takes no turns between them. How much else there was, the load
average in the result says.

Needs the programs of `make cluster-tools`, `prometheus` and Go, and says so where they are missing. The
result goes to benchmarks/results/metrics_api.json.
"""

import argparse
import asyncio
import compileall
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gpuscale
import harness
from bench_exporter import children, cpu_seconds, resident_mib
from gpuscale.testing import prometheus as prometheus_process
from gpuscale_testing import ControlPlane, Settings, missing
from gpuscale_testing.metrics_apis import (
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
PODS_OF_A_NAMESPACE = 100
SYNC_S = 15
"""From one time that a controller asks for an HPA to the next."""
CONTROLLER = (
    ("Accept", "application/vnd.kubernetes.protobuf, */*"),
    ("User-Agent", "kube-controller-manager/v1.36.3"),
    ("X-Remote-User", "system:serviceaccount:kube-system:horizontal-pod-autoscaler"),
    ("X-Remote-Group", "system:serviceaccounts"),
    ("X-Remote-Group", "system:serviceaccounts:kube-system"),
    ("X-Remote-Group", "system:authenticated"),
)
WORKERS = 5
"""Requests that a controller has on their way at most, by default."""
TICK_S = 0.01
"""In which CPU time is counted; nothing takes less."""
FLAT_OUT = 0
"""As a rate: as fast as it goes."""
CONNECTIONS = 32
STEP_S, SPAN_S = 60, 590
"""Samples are written ahead of time; Prometheus takes ten minutes of future."""
SCRAPE_S = 15
"""Pods have their samples at different times within this, as if they were scraped one after the other."""
OTHERS_PRIORITY, LOAD_PRIORITY, SERVER_PRIORITY = 1, 2, 3
"""Of Prometheus and the control plane, of the load, and of the server; the highest goes first."""
ROUNDS = {10: (5,), 1_000: (66,), 10_000: (5, 66, 330, FLAT_OUT)}
"""Requests a second, by the number of pods."""
PODS_OF_AN_HPA = {5: 10, 66: 10, 330: 2, FLAT_OUT: 10}
"""Where there are as many."""


@dataclass(frozen=True)
class Round:
    """One kind of load on one server."""

    told: dict[str, Any]
    """What the load generator said."""
    cpu_s: float
    """Of the server."""
    prometheus_cpu_s: float
    queries: float
    """That came to Prometheus."""
    resident_mib: float
    """Of the server, afterwards."""

    @property
    def seconds(self) -> float:
        """Return how long it took."""
        return float(self.told["seconds"])


@dataclass
class Measured:
    """What one server came to."""

    name: str
    rounds: dict[tuple[int, int], Round] = field(default_factory=dict)
    """By pods and rate."""
    start_cpu_s: dict[int, float] = field(default_factory=dict)
    """From the start to the first answer with values, by pods."""
    most_mib: float = 0.0
    """The most memory that was resident at any time."""


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="of a round")
    parser.add_argument("--pods", type=int, nargs="*", default=[], help="only with so many pods")
    parser.add_argument(
        "--rates", type=int, nargs="*", default=[], help="only these; 0 is flat out"
    )
    parser.add_argument("--realtime", action="store_true", help="run before all else; needs root")
    parser.add_argument("--only", default="", help="measure just this server")
    given = parser.parse_args()
    if reason := unusable():
        print(f"bench_metrics_api: left out: {reason}")
        return 0
    plan = {
        pods: [rate for rate in rates if not given.rates or rate in given.rates]
        for pods, rates in ROUNDS.items()
        if not given.pods or pods in given.pods
    }
    compile_ahead()
    starts = {"prometheus-adapter": prometheus_adapter, "gpuscale": gpuscale_metrics_api}
    found = {name: Measured(name) for name in starts if given.only in name}
    with tempfile.TemporaryDirectory(prefix="gpuscale-bench-") as name:
        folder = Path(name)
        bench = Bench(folder, built_load(folder), given.seconds)
        with ControlPlane(plane_settings()) as plane, prometheus_of(folder) as prometheus:
            if given.realtime:
                run_first(os.getpid(), OTHERS_PRIORITY)
            made = 0
            for pods, rates in plan.items():
                asyncio.run(make_pods(plane, made, pods))
                made = pods
                for server, measured in found.items():
                    bench.measure(starts[server], measured, plane, prometheus, pods, rates)
    if given.only or given.pods or given.rates:
        for measured in found.values():
            print(*map(harness.line, figures_of(measured)), sep="\n")
        if len(found) == 2:
            print(*map(harness.line, compared(*found.values())), sep="\n")
        return 0
    return write(list(found.values()), given)


def compile_ahead() -> None:
    """Compile all modules, as `pip install` and the image do; an environment for development may not be."""
    for folder in (sysconfig.get_path("purelib"), *gpuscale.__path__):
        compileall.compile_dir(folder, quiet=2)


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
    absent = [name for name in ("prometheus", "go") if shutil.which(name) is None]
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


def namespace_of(pod: int) -> str:
    """Return the namespace of a pod."""
    return f"team-{pod // PODS_OF_A_NAMESPACE:03}"


def name_of(pod: int) -> str:
    """Return the name of a pod."""
    app, replica = divmod(pod % PODS_OF_A_NAMESPACE, 10)
    return f"app-{app}-5d9c7b6f4-x{replica:04}"


async def make_pods(plane: ControlPlane, first: int, end: int) -> None:
    """Make namespaces and pods that no scheduler places."""
    client = plane.client()
    try:
        at_once = asyncio.Semaphore(32)

        async def make(path: str, body: dict[str, Any]) -> None:
            async with at_once:
                await client.create(path, body)

        known = {namespace_of(pod) for pod in range(first)}
        async with asyncio.TaskGroup() as group:
            for name in sorted({namespace_of(pod) for pod in range(first, end)} - known):
                body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                group.create_task(make("/api/v1/namespaces", body))
        async with asyncio.TaskGroup() as group:
            for pod in range(first, end):
                path = f"/api/v1/namespaces/{namespace_of(pod)}/pods"
                group.create_task(make(path, pod_body(pod)))
    finally:
        await client.close()


def pod_body(pod: int) -> dict[str, Any]:
    """Return a pod with as much in it as one usually has in its labels and annotations."""
    place = pod % PODS_OF_A_NAMESPACE
    groups = {f"by-{size}": f"{size}-{place // size}" for size in (1, 2, 10)}
    common = {"pod-template-hash": "5d9c7b6f4", "app.kubernetes.io/part-of": "inference"}
    metadata = {"name": name_of(pod), "labels": {**groups, **common}}
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    container = {"name": "model", "image": "none", "resources": limits}
    spec = {"schedulerName": "nobody", "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@contextmanager
def prometheus_of(folder: Path) -> Iterator[prometheus_process.Prometheus]:
    """Run an empty Prometheus."""
    place = folder / "prometheus"
    place.mkdir()
    with prometheus_process.serve([], place) as running:
        yield running


def samples(pods: int, written_ms: dict[int, int]) -> Iterator[prometheus_process.Sample]:
    """Yield the samples of all pods from now on that are not there yet, and note the newest of each."""
    now_ms = int(time.time() * 1000)
    for pod in range(pods):
        labels = {
            "__name__": SERIES,
            "namespace": namespace_of(pod),
            "pod": name_of(pod),
            "container": "model",
            "gpu": str(pod % 8),
            "UUID": f"GPU-{pod:08}",
            "device": f"nvidia{pod % 8}",
            "modelName": "NVIDIA H200",
            "Hostname": f"gpu-{pod // 8:04}",
            "job": "gpu-metrics",
            "instance": f"10.0.{pod // 200}.{pod % 200}:9400",
        }
        # The pods of a node are scraped together.
        t_ms = now_ms - now_ms % (1000 * STEP_S) - pod // 8 * 977 % (1000 * SCRAPE_S)
        t_ms = max(t_ms, written_ms.get(pod, 0) + 1000 * STEP_S)
        while t_ms < now_ms + 1000 * SPAN_S:
            yield labels, t_ms, float(pod * 7 % 101)
            written_ms[pod] = t_ms
            t_ms += 1000 * STEP_S


def hpa_paths(pods: int, rate: int) -> list[str]:
    """Return what an HPA controller asks for in turn, neighbours in time in different namespaces."""
    size = min(PODS_OF_AN_HPA[rate], max(1, pods // (rate * SYNC_S))) if rate else 10
    hpas = [
        (namespace, group)
        for group in range(min(pods, PODS_OF_A_NAMESPACE) // size)
        for namespace in range(max(1, pods // PODS_OF_A_NAMESPACE))
    ]
    return [
        f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/team-{namespace:03}/pods/%2A/{METRIC}"
        f"?labelSelector=by-{size}%3D{size}-{group}"
        for namespace, group in hpas[: rate * SYNC_S or None]
    ]


@dataclass(frozen=True)
class Bench:
    """What all rounds have in common."""

    folder: Path
    load: Path
    """The load generator."""
    seconds: float
    """Of a round."""
    written_ms: dict[int, int] = field(default_factory=dict)
    """The newest sample of each pod."""

    def measure(
        self,
        start: Callable[..., Any],
        measured: Measured,
        plane: ControlPlane,
        prometheus: prometheus_process.Prometheus,
        pods: int,
        rates: list[int],
    ) -> None:
        """Start a server, take its figures, and end it."""
        rules = self.folder / "rules.yaml"
        rules.write_text(RULES)
        flags = [f"--metrics-relist-interval={RELIST}", "--metrics-max-age=10m"]
        prometheus.write(samples(pods, self.written_ms))
        with start(
            plane, prometheus.url, rules, self.folder / f"{measured.name}-{pods}", more=flags
        ) as api:
            load = [str(self.load)]
            if os.sched_getscheduler(0) == os.SCHED_RR:
                run_first(api.pid, SERVER_PRIORITY)
                load = ["chrt", "-r", str(LOAD_PRIORITY), *load]
            ask_until(api, plane, hpa_paths(pods, rates[0])[0])
            measured.start_cpu_s[pods] = cpu_seconds(api.pid)
            for rate in rates:
                prometheus.write(samples(pods, self.written_ms))
                # What a server learns from one turn of the HPAs to the next, it knows by then.
                warm_s, seconds = (SYNC_S + 1, self.seconds) if rate else (3, 8)
                paths = hpa_paths(pods, rate)
                done = run(load, api, plane, prometheus, paths, rate, warm_s, seconds)
                measured.rounds[pods, rate] = done
                print(f"{api.name}: {pods} pods, {rate}/s: {done}", file=sys.stderr, flush=True)
            measured.most_mib = max(measured.most_mib, most_mib(api.pid))


def run(
    load: list[str],
    api: MetricsApi,
    plane: ControlPlane,
    prometheus: prometheus_process.Prometheus,
    paths: list[str],
    rate: float,
    warm_s: float,
    seconds: float,
) -> Round:
    """Put a load on a server, and return what came of it once it had gone on for a while."""
    settings = {
        "address": f"127.0.0.1:{api.port}",
        "certificate": str(plane.front_proxy.certificate),
        "key": str(plane.front_proxy.key),
        "headers": CONTROLLER,
        "paths": paths,
        "connections": WORKERS if rate else CONNECTIONS,
        "rate": rate,
        "warm_seconds": warm_s,
        "seconds": seconds,
    }
    pipe = subprocess.PIPE
    with subprocess.Popen(load, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        json.dump(settings, process.stdin)
        process.stdin.close()
        process.stdout.readline()
        queries = query_count(prometheus)
        cpu, prometheus_cpu = cpu_seconds(api.pid), cpu_seconds(prometheus.pid)
        told = json.loads(process.stdout.read())
        cpu = cpu_seconds(api.pid) - cpu
        prometheus_cpu = cpu_seconds(prometheus.pid) - prometheus_cpu
        queries = query_count(prometheus) - queries
    return Round(told, cpu, prometheus_cpu, queries, resident_mib(api.pid))


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


def write(found: list[Measured], given: argparse.Namespace) -> int:
    """Write the result, and return the exit code."""
    figures = [figure for each in found for figure in figures_of(each)]
    settings = {
        "pods_and_rates": {str(pods): rates for pods, rates in ROUNDS.items()},
        "pods_of_an_hpa": {str(rate): size for rate, size in PODS_OF_AN_HPA.items()},
        "seconds_of_a_round": given.seconds,
        "load_average": os.getloadavg(),
        "realtime": given.realtime,
        "relist_interval": RELIST,
    }
    programs = {"prometheus": ["prometheus", "--version"], "go": ["go", "version"]}
    packages = ("aiohttp", "pyopenssl", "cryptography")
    figures += compared(*found)
    return harness.write(
        "metrics_api", figures, packages=packages, programs=programs, settings=settings
    )


def figures_of(measured: Measured) -> list[harness.Figure]:
    """Return one server's figures."""
    found = []
    for (pods, rate), done in measured.rounds.items():
        at = f"{measured.name}: {pods:,} pods, {rate}/s" if rate else f"{measured.name}: flat out"
        told = done.told
        note = f"statuses {told['statuses']}; {told['unsent']} not answered in their time"
        requests = max(1, told["requests"])
        values = [
            ("own CPU", "cores", done.cpu_s / done.seconds),
            ("CPU of Prometheus", "cores", done.prometheus_cpu_s / done.seconds),
            ("queries to Prometheus", "1/s", done.queries / done.seconds),
            ("p50", "ms", told["p50_ms"]),
            ("p99", "ms", told["p99_ms"]),
            ("resident memory", "MiB", done.resident_mib),
        ]
        if not rate:
            note = f"32 connections, as fast as it goes: no controller asks so; {note}"
            values = [
                ("requests", "1/s", requests / done.seconds),
                ("own CPU of a request", "ms", 1000 * done.cpu_s / requests),
                ("CPU of Prometheus for a request", "ms", 1000 * done.prometheus_cpu_s / requests),
            ]
        found += [
            harness.figure(f"{at}: {what}", unit, [value], note=note)
            for what, unit, value in values
        ]
    for pods, seconds in measured.start_cpu_s.items():
        label = f"{measured.name}: CPU to the first answer, {pods:,} pods"
        found.append(harness.figure(label, "s", [seconds]))
    label = f"{measured.name}: most resident memory"
    return [*found, harness.figure(label, "MiB", [measured.most_mib])]


def compared(theirs: Measured, ours: Measured) -> list[harness.Figure]:
    """Return our figures as parts of theirs."""
    found = []

    def ratio(what: str, mine: float, other: float, at_most: float | None = None) -> None:
        found.append(
            harness.figure(f"times: {what}", "x", [mine / (other or TICK_S)], at_most=at_most)
        )

    for (pods, rate), mine in ours.rounds.items():
        other = theirs.rounds[pods, rate]
        is_goal = pods == 10_000
        if not rate:
            mine_s, other_s = (each.cpu_s / max(1, each.told["requests"]) for each in (mine, other))
            ratio("own CPU of a request, flat out", mine_s, other_s, 0.1)
            continue
        at = f"{pods:,} pods, {rate}/s"
        has_budget = is_goal and rate in (5, 66)
        budget = 0.5 if has_budget else None
        ratio(f"own CPU, {at}", mine.cpu_s, other.cpu_s, budget)
        ratio(f"CPU of Prometheus, {at}", mine.prometheus_cpu_s, other.prometheus_cpu_s, budget)
        budget = 0.2 if is_goal and rate == 66 else None
        ratio(f"p99, {at}", mine.told["p99_ms"], other.told["p99_ms"], budget)
        if is_goal and rate == 66:
            ratio(f"resident memory, {at}", mine.resident_mib, other.resident_mib, 1.0)
            label = f"resident memory, {at}"
            found.append(harness.figure(label, "MiB", [mine.resident_mib], at_most=75.0))
    for pods, seconds in ours.start_cpu_s.items():
        budget = 1.0 if pods == 10_000 else None
        ratio(f"CPU to the first answer, {pods:,} pods", seconds, theirs.start_cpu_s[pods], budget)
    return found


if __name__ == "__main__":
    sys.exit(main())
