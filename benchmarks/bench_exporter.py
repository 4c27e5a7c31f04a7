"""What the exporter costs, beside nvitop-exporter on the same machine in the same run.

    python benchmarks/bench_exporter.py                                  # NVML where there is a GPU
    python benchmarks/bench_exporter.py --gpu "simulated:NVIDIA H200:8"  # anywhere

One runs after the other, each with all GPUs of the machine and under the same load: where PyTorch is there,
products of matrices that keep every GPU busy for `--duty` of the time, from before the first until after the
last. Ours collects every second, every 250 ms, and every second with the pods of a kubelet, which is this
process' own; nvitop-exporter every second. All are scraped once a second while their CPU time is taken: all
of the process' threads and of its children, from /proc, over a time in which our slowest calls have their
turn once. `nvidia-smi dmon`, where it is there, prints a line a GPU and second, and is not scraped.
Latencies are of whole scrapes over loopback, each on a connection of its own, by threads in this process;
with many at once, they wait for one another's share of the cores too.

The result goes to benchmarks/results/exporter_<GPUs>x<model>.json, exporter_simulated.json without GPUs, or
where the variable GPUSCALE_BENCH_OUT says. It takes four minutes.
"""

import argparse
import http.client
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

import harness
from gpuscale.agent.gpu.readings import GpuIdentity
from gpuscale.testing.podresources import PodResources

HOST = "127.0.0.1"
START_LIMIT_S = 20.0
WARM_UP_S = 4.0
SCRAPES = 200
PARALLEL = 50
CPU_TIME_S = 30.0
"""As long as the longest period of our slow calls that counts, those for energy and for MIG."""
LOAD = Path(__file__).parents[1] / "tests" / "gpu" / "load.py"
LOAD_S = 300
DMON = ("nvidia-smi", "dmon", "-s", "pucvmet", "-d", "1")
SIMULATED = "simulated:NVIDIA H200:8"
PUBLISHED = (
    "dcgm-exporter, as published: 135-155 MiB (gpu-operator 340), 15-20 % of a core (gpu-monitoring-tools "
    "133), medians of 467-484 MiB (pytorch/ci-infra 1011)"
)
CPU_BUDGET_PERCENT = 1.0
FAST_CPU_BUDGET_PERCENT = 2.0
MEMORY_BUDGET_MIB = 48.0
PODS_MEMORY_BUDGET_MIB = 64.0
P99_BUDGET_MS = 5.0
READY_BUDGET_S = 2.0


@dataclass(frozen=True)
class Exporter:
    """One exporter under test."""

    name: str
    command: tuple[str, ...]
    port: int
    sign: bytes
    """What a scrape holds once per GPU, when they have been read."""
    cpu_at_most: float | None = None
    memory_at_most: float | None = None


@dataclass(frozen=True)
class Measured:
    """What one exporter came to."""

    ready_s: float
    cpu_percent: list[float]
    memory_mib: list[float]
    alone_ms: list[float]
    together_ms: list[float]
    samples: int
    kib: float


def main() -> int:
    """Measure, and return the exit code."""
    given = arguments()
    found = gpus() if given.gpu == "nvml" else ()
    if given.gpu == "nvml" and not found:
        sys.exit("bench_exporter: --gpu nvml: NVML reads no GPU on this machine")
    other = nvitop() if found else None
    number = len(found) or int(given.gpu.rpartition(":")[2])
    duty = given.duty if found and has_torch() else 0.0
    figures = []
    uuids = [gpu.uuid for gpu in found] or ["GPU-0"]
    with (
        tempfile.TemporaryDirectory() as folder,
        PodResources(Path(folder) / "kubelet.sock", uuids) as kubelet,
        loaded(found, duty),
    ):
        for n, uuid in enumerate(uuids):
            kubelet.allocate("ml", f"pod-{n}", uuid)
        exporters = [*ours(given.gpu, kubelet.socket), *([other] if other else [])]
        for exporter in exporters:
            figures += figures_of(exporter, measure(exporter, given.seconds, number), number)
        if found and shutil.which(DMON[0]):
            figures += dmon_figures(given.seconds)
    settings = {
        "gpu": given.gpu,
        "gpus": [gpu.model for gpu in found] or number,
        "duty_of_the_load": duty,
        "cpu_over_s": given.seconds,
        "commands": [" ".join(("python", *exporter.command[1:])) for exporter in exporters],
        "beside": other.name if other else "nvitop-exporter needs a GPU, and to be installed",
        "note": PUBLISHED,
    }
    known = ("h11", "nvidia-ml-py", "nvitop", "nvitop-exporter")
    packages = [name for name in known if is_installed(name)]
    result = result_file(found)
    harness.RESULTS = result.parent
    return harness.write(result.stem, figures, packages=packages, settings=settings)


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="nvml" if gpus() else SIMULATED)
    parser.add_argument(
        "--seconds", type=float, default=CPU_TIME_S, help="over which CPU time is taken"
    )
    parser.add_argument(
        "--duty", type=float, default=0.5, help="of the load on real GPUs; 0 leaves them idle"
    )
    return parser.parse_args()


def result_file(found: Sequence[GpuIdentity]) -> Path:
    """Return where the result goes: what the environment says, or a name made of the GPUs."""
    named = os.environ.get("GPUSCALE_BENCH_OUT")
    if named:
        return Path(named).with_suffix(".json").absolute()
    if not found:
        return harness.RESULTS / "exporter_simulated.json"
    model = re.sub(r"[^a-z0-9]+", "-", found[0].model.lower()).removeprefix("nvidia-").strip("-")
    return harness.RESULTS / f"exporter_{len(found)}x{model}.json"


@contextmanager
def loaded(found: Sequence[GpuIdentity], duty: float) -> Iterator[None]:
    """Keep every GPU busy for a part of the time, once all of them are."""
    command = (sys.executable, str(LOAD), "--steps", f"{LOAD_S}x{duty}")
    loads: list[subprocess.Popen[str]] = []
    try:
        for gpu in found if duty > 0 else ():
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu.uuid}
            loads.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
            )
        for load in loads:
            wait_until_loaded(load)
        yield
        if any(load.poll() is not None for load in loads):
            sys.exit(f"bench_exporter: a load ended before the last exporter did: {command}")
    finally:
        for load in loads:
            load.kill()
            load.communicate()


def wait_until_loaded(load: "subprocess.Popen[str]") -> None:
    """Return once a load has begun its work."""
    assert load.stdout is not None
    for line in load.stdout:
        if json.loads(line)["event"] == "step":
            return
    sys.exit(f"bench_exporter: a load did not start: {load.args!r}")


def ours(gpu: str, kubelet: Path) -> Iterator[Exporter]:
    """Return gpuscale's exporter in each form that has budgets of its own."""
    pods = ("--kubernetes", f"--pod-resources-kubelet-socket={kubelet}")
    for name, interval, more, cpu, memory in (
        ("gpuscale at 1 s", "1000", (), CPU_BUDGET_PERCENT, MEMORY_BUDGET_MIB),
        ("gpuscale at 250 ms", "250", (), FAST_CPU_BUDGET_PERCENT, MEMORY_BUDGET_MIB),
        ("gpuscale at 1 s, with pods", "1000", pods, None, PODS_MEMORY_BUDGET_MIB),
    ):
        port = free_port()
        options = ("--gpu", gpu, "--collect-interval", interval, "--address", f"{HOST}:{port}")
        command = (sys.executable, "-m", "gpuscale.cli.main", "exporter", *options, *more)
        yield Exporter(name, command, port, b"\nDCGM_FI_DEV_GPU_UTIL{", cpu, memory)


def nvitop() -> Exporter | None:
    """Return nvitop-exporter, where it is installed."""
    if util.find_spec("nvitop_exporter") is None:
        return None
    port = free_port()
    options = ("--interval", "1", "--bind-address", HOST, "--port", str(port))
    command = (sys.executable, "-m", "nvitop_exporter", *options)
    return Exporter("nvitop-exporter at 1 s", command, port, b"\ngpu_utilization_Percentage{")


def dmon_figures(seconds: float) -> Iterator[harness.Figure]:
    """Return what `nvidia-smi dmon` takes, which prints the same readings and serves nobody."""
    process = subprocess.Popen(DMON, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(WARM_UP_S)
        begin, begin_cpu_s = time.perf_counter(), cpu_seconds(process.pid)
        time.sleep(seconds)
        used = 100 * (cpu_seconds(process.pid) - begin_cpu_s) / (time.perf_counter() - begin)
        memory_mib = resident_mib(process.pid)
    finally:
        process.terminate()
        process.wait(10)
    yield harness.figure(f"{' '.join(DMON)}: CPU", "% of core", [used])
    yield harness.figure(f"{' '.join(DMON)}: resident memory", "MiB", [memory_mib])


def measure(exporter: Exporter, seconds: float, gpus: int) -> Measured:
    """Start an exporter, take its figures, and end it."""
    started = time.perf_counter()
    process = subprocess.Popen(
        exporter.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until_ready(exporter, process, gpus)
        ready_s = time.perf_counter() - started
        time.sleep(WARM_UP_S)
        cpu, memory = spent(process.pid, exporter.port, seconds)
        alone = [scrape(exporter.port)[0] for _ in range(SCRAPES)]
        with ThreadPoolExecutor(PARALLEL) as pool:
            together = [took_ms for took_ms, _ in pool.map(scrape, [exporter.port] * SCRAPES * 3)]
        body = scrape(exporter.port)[1]
        lines = [line for line in body.splitlines() if line and not line.startswith(b"#")]
        return Measured(ready_s, cpu, memory, alone, together, len(lines), len(body) / 1024)
    finally:
        process.terminate()
        process.wait(10)


def wait_until_ready(exporter: Exporter, process: "subprocess.Popen[bytes]", gpus: int) -> None:
    """Return once a scrape holds readings of every GPU."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            sys.exit(f"{exporter.name} ended with {process.returncode}: {exporter.command}")
        try:
            if scrape(exporter.port)[1].count(exporter.sign) >= gpus:
                return
        except OSError:
            pass
        time.sleep(0.02)
    sys.exit(f"{exporter.name} has not served {gpus} GPUs within {START_LIMIT_S:g} s")


def spent(pid: int, port: int, seconds: float) -> tuple[list[float], list[float]]:
    """Return percent of one core over the time, and resident MiB at each scrape."""
    memory = []
    begin, begin_cpu = time.perf_counter(), cpu_seconds(pid)
    end = begin + seconds
    while time.perf_counter() < end:
        scrape(port)
        memory.append(resident_mib(pid))
        time.sleep(max(0.0, min(1.0, end - time.perf_counter())))
    took = time.perf_counter() - begin
    return [100 * (cpu_seconds(pid) - begin_cpu) / took], memory


def scrape(port: int) -> tuple[float, bytes]:
    """Return the milliseconds that a scrape took, and its text."""
    started = time.perf_counter()
    connection = http.client.HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("GET", "/metrics")
        body = connection.getresponse().read()
    finally:
        connection.close()
    return (time.perf_counter() - started) * 1000, body


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, of its threads and of its children, living ones included."""
    own = stat_fields(pid)
    ticks = sum(int(own[n]) for n in (11, 12, 13, 14))  # utime, stime, cutime, cstime
    living = sum(cpu_seconds(child) for child in children(pid))
    return ticks / os.sysconf("SC_CLK_TCK") + living


def resident_mib(pid: int) -> float:
    """Return resident memory of a process and its children."""
    pages = int(stat_fields(pid)[21])
    own = pages * os.sysconf("SC_PAGE_SIZE") / 1024**2
    return own + sum(resident_mib(child) for child in children(pid))


def stat_fields(pid: int) -> list[str]:
    """Return /proc/PID/stat from the state on; the name before it may hold anything."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def children(pid: int) -> list[int]:
    """Return the children of every thread of a process."""
    found = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (thread / "children").read_text().split()]
    return found


def figures_of(exporter: Exporter, measured: Measured, gpus: int) -> list[harness.Figure]:
    """Return an exporter's figures; budgets are ours."""
    name, cpu = exporter.name, measured.cpu_percent
    is_ours = exporter.memory_at_most is not None
    alone, together = sorted(measured.alone_ms), sorted(measured.together_ms)
    ready_at_most = READY_BUDGET_S if is_ours else None
    p99_at_most = P99_BUDGET_MS if is_ours else None
    return [
        harness.figure(
            f"{name}: CPU", "% of core", cpu, at_most=exporter.cpu_at_most, note=f"{gpus} GPUs"
        ),
        harness.figure(f"{name}: CPU, per GPU", "% of core", [each / gpus for each in cpu]),
        harness.figure(
            f"{name}: resident memory", "MiB", measured.memory_mib, at_most=exporter.memory_at_most
        ),
        harness.figure(
            f"{name}: start to all GPUs served", "s", [measured.ready_s], at_most=ready_at_most
        ),
        harness.figure(f"{name}: scrape p50, one scraper", "ms", [quantile(alone, 0.5)]),
        harness.figure(
            f"{name}: scrape p99, one scraper", "ms", [quantile(alone, 0.99)], at_most=p99_at_most
        ),
        harness.figure(f"{name}: scrape p50, {PARALLEL} at once", "ms", [quantile(together, 0.5)]),
        harness.figure(f"{name}: scrape p99, {PARALLEL} at once", "ms", [quantile(together, 0.99)]),
        harness.figure(f"{name}: samples", "samples", [measured.samples]),
        harness.figure(f"{name}: size of a scrape", "KiB", [measured.kib]),
    ]


def quantile(values: list[float], share: float) -> float:
    """Return the value that this share of the sorted values does not exceed."""
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]


def gpus() -> tuple[GpuIdentity, ...]:
    """Return the GPUs that NVML reads on this machine."""
    from gpuscale.agent.nvml.reader import NvmlReader
    from gpuscale.base.errors import UnavailableError

    try:
        reader = NvmlReader()
        found = reader.gpus()
        reader.close()
    except UnavailableError:
        return ()
    return found


def has_torch() -> bool:
    """Return whether loads can run; asked in a process of its own, which CUDA keeps for itself."""
    code = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    return done.returncode == 0


def is_installed(package: str) -> bool:
    """Return whether a distribution's version is known."""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
