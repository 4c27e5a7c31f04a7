"""How much memory the node agent takes, by what it is asked to do.

    python benchmarks/bench_agent_memory.py                                  # NVML where there is a GPU
    python benchmarks/bench_agent_memory.py --gpu "simulated:NVIDIA H200:8"  # anywhere

Four agents run side by side and are scraped once a second for three minutes: one of GPUs alone, one that asks
a kubelet for pods, one that takes a start-up taint off its node too, and one that asks an API server for pods
and serves both styles. Kubelet and API server
are this process' own, with 30 pods on the node. Resident memory counts pages that processes share once for
each; the proportional part counts them once in all. The figures are those of the last minute.

The result goes to benchmarks/results/agent_memory_<GPUs>x<model>.json, agent_memory_simulated.json without
GPUs, or where the variable GPUSCALE_BENCH_OUT says.
"""

import argparse
import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import harness
from bench_exporter import HOST, SIMULATED, free_port, gpus, result_file, scrape
from gpuscale.testing.api_server import PODS, FakeApiServer
from gpuscale.testing.podresources import PodResources

SECONDS = 180
TOLD_SECONDS = 60
NODE_PODS = 30
NODE = "node-1"
BUDGETS_MIB = {
    "GPUs alone": 48.0,
    "pods from the kubelet": 64.0,
    "pods from the kubelet, a start-up taint": 64.0,
    "API server, both styles": 64.0,
}
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ ")


async def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="nvml" if gpus() else SIMULATED)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    given = parser.parse_args()
    found = gpus() if given.gpu == "nvml" else ()
    uuids = [each.uuid for each in found] or ["GPU-0"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kubelet = stack.enter_context(PodResources(folder / "kubelet.sock", uuids))
        kubelet.allocate("ml", "pod-0", uuids[0])
        async with FakeApiServer() as server:
            for n in range(NODE_PODS):
                await server.put(PODS, pod(n))
            server.others[f"/api/v1/nodes/{NODE}"] = {
                "metadata": {"name": NODE},
                "status": {"allocatable": {"nvidia.com/gpu": "8"}},
            }
            kubeconfig = server.kubeconfig(folder)
            agents = {}
            for name, options in forms(kubelet.socket, kubeconfig).items():
                port = free_port()
                command = (
                    *(
                        "env",
                        f"NODE_NAME={NODE}",
                        sys.executable,
                        "-m",
                        "gpuscale.cli.main",
                        "exporter",
                        "--gpu",
                        given.gpu,
                    ),
                    *("--address", f"{HOST}:{port}", *options),
                )
                agents[name] = (started(command, stack), port)
            seen = await asyncio.to_thread(watch, agents, given.seconds)
    figures = list(figures_of(seen))
    result = result_file(found)
    harness.RESULTS = result.parent
    settings = {"gpu": given.gpu, "seconds": given.seconds, "pods": NODE_PODS}
    name = result.stem.replace("exporter_", "agent_memory_")
    return harness.write(name, figures, packages=("nvidia-ml-py",), settings=settings)


def forms(socket: Path, kubeconfig: Path) -> dict[str, tuple[str, ...]]:
    """Return the options of each agent."""
    kubelet = ("--kubernetes", "--pod-resources-kubelet-socket", str(socket))
    server = (
        *("--kubernetes-enable-pod-uid", "--kubernetes-enable-pod-labels"),
        *("--kubeconfig", str(kubeconfig), "--style", "dcgm,ack"),
    )
    taint = ("--ready-taint", "startup-taint.gpuscale.dev/gpu", "--kubeconfig", str(kubeconfig))
    return {
        "GPUs alone": (),
        "pods from the kubelet": kubelet,
        "pods from the kubelet, a start-up taint": (*kubelet, *taint),
        "API server, both styles": (*kubelet, *server),
    }


def started(command: Sequence[str], stack: ExitStack) -> "subprocess.Popen[bytes]":
    """Start an agent that ends with the stack."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    stack.callback(process.wait, 10)
    stack.callback(process.terminate)
    return process


def pod(number: int) -> dict[str, object]:
    """Return a pod about as large as they are."""
    labels = {"app": f"app-{number}", "pod-template-hash": "7d4b9c", "team": "ml"}
    name = f"pod-{number}"
    return {
        "metadata": {"namespace": "ml", "name": name, "uid": f"uid-{number}", "labels": labels},
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "image": "image:1"}]},
        "status": {"phase": "Running"},
    }


def watch(
    agents: dict[str, tuple["subprocess.Popen[bytes]", int]], seconds: int
) -> dict[str, list[dict[str, float]]]:
    """Scrape each agent once a second, and return what it took in the last of them."""
    seen: dict[str, list[dict[str, float]]] = {name: [] for name in agents}
    began = time.monotonic()
    for n in range(seconds):
        time.sleep(max(0.0, began + n + 1 - time.monotonic()))
        for name, (process, port) in agents.items():
            if process.poll() is not None:
                sys.exit(f"bench_agent_memory: {name}: ended with {process.returncode}")
            try:
                scrape(port)
            except OSError:
                continue  # not listening yet
            if n >= seconds - TOLD_SECONDS:
                seen[name].append(memory_mib(process.pid))
    return seen


def memory_mib(pid: int) -> dict[str, float]:
    """Return resident and proportional MiB, and the proportional ones by what is mapped."""
    found = {"resident": 0.0, "proportional": 0.0}
    what = ""
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if _MAPPING.match(line):
            what = kind_of(line.split(maxsplit=5)[5:])
        elif line.startswith("Rss:"):
            found["resident"] += int(line.split()[1]) / 1024
        elif line.startswith("Pss:"):
            mib = int(line.split()[1]) / 1024
            found["proportional"] += mib
            found[what] = found.get(what, 0.0) + mib
    return found


def kind_of(path: Iterable[str]) -> str:
    """Return what a mapping is: a library by name, the heap, or other."""
    name = next(iter(path), "")
    if "nvidia" in name:
        return "the driver's files"
    if ".so" in name or "/python" in name:
        return "libraries and the interpreter"
    return "heap and other memory"


def figures_of(seen: dict[str, list[dict[str, float]]]) -> Iterator[harness.Figure]:
    """Return the figures of each agent."""
    for name, rows in seen.items():
        if not rows:
            sys.exit(f"bench_agent_memory: {name}: answered no scrape in the last minute")
        for key in rows[-1]:
            values = [row.get(key, 0.0) for row in rows]
            budget = BUDGETS_MIB[name] if key == "resident" else None
            yield harness.figure(f"{name}: {key}", "MiB", values, at_most=budget)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
