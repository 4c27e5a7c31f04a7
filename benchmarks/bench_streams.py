"""What following node agents costs a replica: memory, CPU, age of values, and whether it answers meanwhile.

    python benchmarks/bench_streams.py [--seconds 60] [--fill 900] [--nodes 125 250 500 1000]

Agents of 8 GPUs come out of one process (`load/agents.py`). Each says what a real one says, with new values
for half of its series every second. `gpuscale metrics-api --source streams` follows them with a rule for each
of `--metrics` fields. It is asked for single pods at the rate of 1 000 HPAs, 66 requests a second, and by
probes ten times a second. CPU and memory are those of both of its processes together; with the largest number
of nodes they are measured once the store holds all that it keeps, 15 minutes by default.
"""

import argparse
import asyncio
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

import harness
from load.agents import PODS_NAMESPACES, address

GPUSCALE = Path(sys.executable).parent / "gpuscale"
AGENTS = Path(__file__).parent / "load" / "agents.py"
GPUS = 8
FIELDS = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_DEV_POWER_USAGE",
)
RULE = """
- seriesQuery: {name}{{pod!=""}}
  resources: {{overrides: {{namespace: {{resource: namespace}}, pod: {{resource: pod}}}}}}
  metricsQuery: avg(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
"""
_REQUESTS_PER_S = 66
_PROBES = ("/livez", "/readyz", "/apis")
_PROBE_S = 0.1
_AGE_S = 2.0
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Run:
    """What was measured with one number of nodes."""

    cpu: float = 0.0
    """Cores, of both processes."""
    rss_mib: list[float] = field(default_factory=list)
    """Of both processes, at the beginning and at the end."""
    each_mib: tuple[float, ...] = ()
    """Of the serving process and the collector, at the end."""
    ages_s: list[float] = field(default_factory=list)
    """The oldest current value of all pods, each time it was asked for."""
    probe_s: list[float] = field(default_factory=list)
    answer_s: list[float] = field(default_factory=list)
    wrong: int = 0
    """Requests without a value."""
    most_streams: int = 0
    """Of one agent."""
    ready_s: float = 0.0
    """From the start until all agents are followed."""
    store: dict[str, float] = field(default_factory=dict)


async def measure(
    nodes: int, fill_s: float, seconds: float, template: Path, folder: Path, metrics: int
) -> Run:
    """Return what one number of nodes costs, so many seconds after all of them are followed."""
    run = Run()
    port, agents_port = harness_port(), harness_port()
    rules = folder / "rules.yaml"
    rules.write_text("rules:" + "".join(RULE.format(name=name) for name in FIELDS[:metrics]))
    serving = [
        sys.executable,
        AGENTS,
        "--template",
        template,
        "--count",
        nodes,
        "--port",
        agents_port,
    ]
    async with process(*serving, waits_for=b"listening"), aiohttp.ClientSession() as session:
        command = (
            *(GPUSCALE, "metrics-api", "--source=streams", "--secure-port=0"),
            *(f"--insecure-loopback-port={port}", f"--config={rules}"),
            *(f"--agent={address(number)}:{agents_port}" for number in range(nodes)),
        )
        started = time.monotonic()
        async with process(*command) as server:
            url = f"http://127.0.0.1:{port}"
            await all_answer(session, url, nodes)
            run.ready_s = time.monotonic() - started
            await asyncio.sleep(10)
            pids = [server.pid, *children(server.pid)]
            run.rss_mib.append(sum(map(rss_mib, pids)))
            await asyncio.sleep(fill_s)
            before, began = sum(map(cpu_s, pids)), time.monotonic()
            tasks = (
                ask_for_pods(session, url, nodes, run),
                probe(session, url, run),
                ask_for_ages(session, url, run),
            )
            running = [asyncio.create_task(task) for task in tasks]
            await asyncio.sleep(seconds)
            run.cpu = (sum(map(cpu_s, pids)) - before) / (time.monotonic() - began)
            run.each_mib = tuple(map(rss_mib, pids))
            run.rss_mib.append(sum(run.each_mib))
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            stats = await text_of(session, f"http://{address(0)}:{agents_port}/stats")
            run.most_streams = json.loads(stats)["most"]
            run.store = await store_of(session, url)
    return run


async def store_of(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """Return what the store holds; the collector's figures are missing while it is too busy to report."""
    names = ("store_series", "store_samples", "store_retention_seconds")
    async with asyncio.timeout(60):
        while True:
            text = await text_of(session, f"{url}/metrics")
            if "gpuscale_metrics_api_store_series " in text:
                return {name: value_in(text, f"gpuscale_metrics_api_{name}") for name in names}
            await asyncio.sleep(0.5)


async def all_answer(session: aiohttp.ClientSession, url: str, nodes: int) -> None:
    """Return once all agents are followed and the metric is there."""
    async with asyncio.timeout(300):
        while True:
            try:
                text = await text_of(session, f"{url}/readyz?verbose")
            except aiohttp.ClientError:
                text = ""
            if f"{nodes} of {nodes} targets answer" in text:
                return
            await asyncio.sleep(0.2)


async def ask_for_pods(session: aiohttp.ClientSession, url: str, nodes: int, run: Run) -> None:
    """Ask for one pod after the other, as the HPA controller does."""
    chosen = random.Random(2)
    waiting: set[asyncio.Task[None]] = set()

    async def ask(path: str) -> None:
        started = time.monotonic()
        async with session.get(url + path) as answer:
            items = (await answer.json()).get("items", []) if answer.status == 200 else []
        run.answer_s.append(time.monotonic() - started)
        run.wrong += len(items) != 1

    due = time.monotonic()
    try:
        while True:
            node, gpu = chosen.randrange(nodes), chosen.randrange(GPUS)
            base = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/team-{node % PODS_NAMESPACES}"
            task = asyncio.create_task(ask(f"{base}/pods/web-{node}-{gpu}/{FIELDS[0]}"))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            due += 1 / _REQUESTS_PER_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
    finally:
        for task in waiting:
            task.cancel()


async def probe(session: aiohttp.ClientSession, url: str, run: Run) -> None:
    """Ask what kubelets and aggregators ask, one after the other."""
    for path in itertools.cycle(_PROBES):
        started = time.monotonic()
        await text_of(session, url + path)
        run.probe_s.append(time.monotonic() - started)
        await asyncio.sleep(_PROBE_S)


async def ask_for_ages(session: aiohttp.ClientSession, url: str, run: Run) -> None:
    """Ask how old the oldest current value is."""
    query = f"max(time() - timestamp({FIELDS[0]}))"
    while True:
        async with session.get(f"{url}/prometheus/api/v1/query", params={"query": query}) as answer:
            (row,) = (await answer.json())["data"]["result"]
        run.ages_s.append(float(row["value"][1]))
        await asyncio.sleep(_AGE_S)


@asynccontextmanager
async def process(
    *command: object, waits_for: bytes = b""
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program, from its first line on if one is waited for."""
    pipe = asyncio.subprocess.PIPE if waits_for else asyncio.subprocess.DEVNULL
    running = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=pipe, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        if waits_for and running.stdout is not None:
            found = await running.stdout.readline()
            if waits_for not in found:
                raise RuntimeError(f"found {found!r}, expected {waits_for!r}")
        yield running
    finally:
        if running.returncode is None:
            running.terminate()
        await running.wait()


async def snapshot(folder: Path) -> Path:
    """Return the first line of a real agent's stream, with as many GPUs as nodes have here."""
    port = harness_port()
    command = (
        GPUSCALE,
        "exporter",
        f"--gpu=simulated:NVIDIA H200:{GPUS}",
        f"--address=127.0.0.1:{port}",
    )
    path = folder / "snapshot.jsonl"
    async with process(*command), aiohttp.ClientSession(read_bufsize=1 << 20) as session:
        for _ in range(100):
            try:
                async with session.get(f"http://127.0.0.1:{port}/stream") as answer:
                    path.write_bytes(await answer.content.readline())
                    return path
            except aiohttp.ClientError:
                await asyncio.sleep(0.1)
    raise RuntimeError("the agent does not answer")


async def text_of(session: aiohttp.ClientSession, url: str) -> str:
    """Return the text of an answer."""
    async with session.get(url) as answer:
        return await answer.text()


def value_in(text: str, name: str) -> float:
    """Return the value of a series without labels."""
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))


def harness_port() -> int:
    """Return a port that is free now."""
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def children(pid: int) -> list[int]:
    """Return the processes that a process started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in found.split()]


def cpu_s(pid: int) -> float:
    """Return the seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def rss_mib(pid: int) -> float:
    """Return the memory that a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def figures(nodes: int, run: Run, *, is_largest: bool) -> list[harness.Figure]:
    """Return the figures of a run; the budgets hold for the largest number of nodes."""
    store = ", ".join(f"{name} {value:.0f}" for name, value in run.store.items())
    note = f"{store}; {run.most_streams} connection to each agent; ready after {run.ready_s:.1f} s"
    probes = sorted(run.probe_s)
    p99 = probes[int(0.99 * (len(probes) - 1))]
    figure = harness.figure
    return [
        figure(f"{nodes} nodes: CPU", "cores", [run.cpu], at_most=0.5 if is_largest else None),
        figure(
            f"{nodes} nodes: memory",
            "MiB",
            run.rss_mib[-1:],
            at_most=512 if is_largest else None,
            note=f"{run.rss_mib[0]:.0f} at the beginning; {note}",
        ),
        figure(
            f"{nodes} nodes: age of the oldest value",
            "s",
            run.ages_s,
            at_most=1.5 if is_largest else None,
            note=f"{run.wrong} of {len(run.answer_s)} requests without a value",
        ),
        figure(f"{nodes} nodes: answer for a pod", "s", [statistics.median(run.answer_s)]),
        figure(
            f"{nodes} nodes: probes, p99",
            "s",
            [p99],
            at_most=0.1 if is_largest else None,
            note=f"longest {probes[-1]:.3f} s",
        ),
    ]


async def main() -> int:
    """Measure all sizes; return 1 where a budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--fill", type=float, default=900)
    parser.add_argument("--nodes", type=int, nargs="+", default=[125, 250, 500, 1000])
    parser.add_argument("--metrics", type=int, default=len(FIELDS))
    options = parser.parse_args()
    found: list[harness.Figure] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        template = await snapshot(folder)
        for nodes in options.nodes:
            is_largest = nodes == max(options.nodes)
            fill_s = options.fill if is_largest else 0.0
            run = await measure(nodes, fill_s, options.seconds, template, folder, options.metrics)
            found += figures(nodes, run, is_largest=is_largest)
            print(*map(harness.line, found[-5:]), sep="\n", flush=True)
    return harness.write("streams", found, settings=vars(options))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
