"""What `gpuscale money --savings` takes of 20 services in a real Prometheus that has 14 days of them.

    python benchmarks/bench_savings.py [--folder FOLDER]

Each service has 2 to 12 pods with a GPU each, a day's rhythm of its own with noise, and an HPA that keeps
GPUs at 30 to 50 %; a sample a minute. FOLDER keeps what Prometheus holds for the next time. Times are CPU
seconds of the command; Prometheus' own are beside them. A run on one service before compiles the policies.
"""

import argparse
import math
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import harness
from gpuscale.testing.prometheus import Prometheus, Sample, serve

SERVICES, DAYS, EVERY_S = 20, 14, 60
DAY_S = 86_400
START_S = 1_767_225_600
END_S = START_S + DAYS * DAY_S
SLICE_S = 1800
BUDGET_S = 120.0
MOST_PODS = 12
GPU = {"resource": "nvidia_com_gpu"}
GPUSCALE = Path(sys.executable).parent / "gpuscale"


def constant() -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield the series that never change."""
    for node in range(SERVICES * MOST_PODS // 8):
        yield {"__name__": "kube_node_status_allocatable", "node": f"node-{node}", **GPU}, 8
        yield {"__name__": "kube_node_info", "node": f"node-{node}"}, 1
    for number in range(SERVICES):
        name = f"chat-{number}"
        made = {"owner_kind": "Deployment", "owner_name": name, "replicaset": f"{name}-7c9d"}
        yield {"__name__": "kube_replicaset_owner", "namespace": "ml", **made}, 1
        own = {"namespace": "ml", "horizontalpodautoscaler": name}
        to = {"scaletargetref_kind": "Deployment", "scaletargetref_name": name}
        metric = {"metric_name": "DCGM_FI_DEV_GPU_UTIL", "metric_target_type": "average"}
        spec = "kube_horizontalpodautoscaler_spec_"
        yield {"__name__": "kube_horizontalpodautoscaler_info", **own, **to}, 1
        yield {"__name__": f"{spec}min_replicas", **own}, 2
        yield {"__name__": f"{spec}max_replicas", **own}, MOST_PODS
        yield {"__name__": f"{spec}target_metric", **own, **metric}, target(number)


def target(number: int) -> int:
    return 30 + number


def changing(at_s: int, draw: random.Random) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield what each service has at a moment."""
    for number in range(SERVICES):
        name = f"chat-{number}"
        rhythm = math.sin(2 * math.pi * (at_s / DAY_S + number / SERVICES))
        demand = max(0.1, 1.6 + 1.2 * rhythm + draw.gauss(0, 0.1))
        pods = min(MOST_PODS, max(2, math.ceil(demand / target(number) * 100)))
        of = {"namespace": "ml", "deployment": name}
        yield {"__name__": "kube_deployment_spec_replicas", **of}, pods
        yield {"__name__": "kube_deployment_status_replicas_ready", **of}, pods
        for index in range(pods):
            pod = {"namespace": "ml", "pod": f"{name}-7c9d-aaa{index:02}"}
            node = {"node": f"node-{(number * MOST_PODS + index) // 8}"}
            held = {**pod, **node, "container": "main", **GPU}
            made = {"owner_kind": "ReplicaSet", "owner_name": f"{name}-7c9d"}
            yield {"__name__": "kube_pod_container_resource_limits", **held}, 1
            yield {"__name__": "kube_pod_container_resource_requests", **held}, 1
            yield {"__name__": "kube_pod_status_phase", **pod, "phase": "Running"}, 1
            yield {"__name__": "kube_pod_owner", **pod, **made}, 1
            gpu = {**pod, "UUID": f"{name}-{index}", "gpu": "0", "modelName": "NVIDIA L4"}
            yield {"__name__": "DCGM_FI_DEV_GPU_UTIL", **gpu}, min(100, 100 * demand / pods)


def fill(prometheus: Prometheus) -> None:
    draw, always = random.Random(1), list(constant())
    for begin_s in range(START_S, END_S, SLICE_S):
        found: list[Sample] = []
        for at_s in range(begin_s, begin_s + SLICE_S, EVERY_S):
            rows = [*always, *changing(at_s, draw)]
            found += [(labels, at_s * 1000, value) for labels, value in rows]
        prometheus.write(found)


def run(url: str, most: int) -> float:
    """Return the CPU seconds that the command takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [
            *(GPUSCALE, "money", "--savings", f"--prometheus-url={url}", f"--until={END_S}"),
            *(f"--most={most}", "--gpu-price=*=2", "-o", "json"),
        ],
        check=True,
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def of_process(pid: int) -> float:
    """Return the CPU seconds of a process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as other:
        folder = given.folder or Path(other)
        folder.mkdir(exist_ok=True)
        is_filled = (folder / "data").exists()
        with serve([], folder) as prometheus:
            if not is_filled:
                fill(prometheus)
            run(prometheus.url, 1)
            took, asked = [], []
            for _ in range(given.runs):
                before = of_process(prometheus.pid)
                took.append(run(prometheus.url, SERVICES))
                asked.append(of_process(prometheus.pid) - before)
    figures = [
        harness.figure(f"{SERVICES} services, {DAYS} days", "s", took, at_most=BUDGET_S),
        harness.figure("Prometheus meanwhile", "s", asked),
    ]
    return harness.write(
        "savings",
        figures,
        packages=("numpy", "numba"),
        programs={"prometheus": ["prometheus", "--version"]},
        settings={"services": SERVICES, "days": DAYS, "every_s": EVERY_S},
    )


if __name__ == "__main__":
    sys.exit(main())
