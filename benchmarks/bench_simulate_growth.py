"""How the CPU time of a simulation grows with services, hours, nodes and pods, by formula and without.

Four sizes each, doubled, all else the same; the exponent is the slope of the logarithms of CPU time.
Linear is 1. One process for each run, so that none finds another's caches. Fleets grow in nodes and
services at once, with hundreds of pods for each HPA, and their memory is measured too.

    .venv/bin/python benchmarks/bench_simulate_growth.py
    .venv/bin/python benchmarks/bench_simulate_growth.py day    # the largest fleet for a day
"""

import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import harness

RULES = """rules:
  - seriesQuery: DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}
    resources:
      overrides:
        exported_namespace: {resource: namespace}
        exported_pod: {resource: pod}
    name: {as: gpu_util}
    metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
SIZES = {
    "services": [(count, 0.25, max(1, count // 4), 1) for count in (8, 16, 32, 64)],
    "hours": [(1, hours, 2, 2) for hours in (1.0, 2.0, 4.0, 8.0)],
    "nodes": [(1, 0.25, nodes, 4) for nodes in (32, 64, 128, 256)],
    "pods": [(1, 0.25, pods // 4, pods) for pods in (32, 64, 128, 256)],
}
"""What grows, to services, hours, nodes of 8 GPUs, and pods of each service."""
FLEETS = [(nodes // 125, nodes, 625) for nodes in (1_250, 2_500, 5_000, 10_000)]
"""Services, nodes of 8 GPUs, and pods of each service: their names are too long for one query."""
FLEET_HOURS = {"pipeline": 1 / 30, "formula": 0.5}
RUNS = 3
"""Of each small size; the fastest counts, since others work on the machine too."""
LINEAR = 1.1


@dataclass(frozen=True, slots=True)
class Cost:
    """What a run took."""

    cpu_s: float
    peak_gib: float
    """Of the whole process."""


def manifests(index: int, pods: int) -> str:
    """Return a Deployment and its HPA, which may double it."""
    return f"""apiVersion: apps/v1
kind: Deployment
metadata: {{name: s{index}}}
spec:
  replicas: {pods}
  selector: {{matchLabels: {{app: s{index}}}}}
  template:
    metadata: {{labels: {{app: s{index}}}}}
    spec: {{containers: [{{name: main, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: s{index}}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: s{index}}}
  minReplicas: {pods}
  maxReplicas: {2 * pods}
  metrics: [{{type: Pods, pods: {{metric: {{name: gpu_util}},
    target: {{type: AverageValue, averageValue: 50}}}}}}]
"""


def scenario(services: int, hours: float, nodes: int, pods: int) -> str:
    """Return services whose sine loads ask for up to 1.4 times their pods, evenly spread over a period.

    So a service has as much to do in a short run whatever their number.
    """
    mean, period_s = 0.5 * pods / 0.1 * 0.8, 7200
    workloads = "".join(
        f"""
    - deployment: s{index}
      service: {{gpuSecondsPerRequest: 0.1}}
      load: {{shape: sine, mean: {mean}, amplitude: {mean * 0.8}, period: {period_s}s,
        offset: {index * period_s // services}s}}"""
        for index in range(services)
    )
    return f"""apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {{name: growth}}
spec:
  duration: {int(hours * 3600)}s
  manifests: [{{file: m}}]
  rules: {{file: r}}
  nodePools: [{{name: gpu, gpuModel: L4, gpus: 8, min: {nodes}, max: {nodes}, cpu: "64", memory: 512Gi}}]
  workloads:{workloads}
"""


def run(way: str, services: int, hours: float, nodes: int, pods: int) -> None:
    """Simulate once and print the CPU seconds that it took, and the memory in GiB."""
    from gpuscale.lab.sim.scenario.loading import load_setup
    from gpuscale.lab.sim.simulation import simulate

    files = {"m": "---\n".join(manifests(index, pods) for index in range(services)), "r": RULES}
    setup = load_setup(scenario(services, hours, nodes, pods), "s", files.__getitem__)
    started = time.process_time()
    document: Any = simulate(setup, through_pipeline=way == "pipeline")
    seconds = time.process_time() - started
    how = document["fidelity"]
    if how["used"] != way:
        raise SystemExit(f"found no formula: {how['because']}")
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(json.dumps([seconds, peak_gib]))


def measured(way: str, size: tuple[int, float, int, int]) -> Cost:
    """Return what a run takes in a process of its own."""
    command = [sys.executable, __file__, way, *map(str, size)]
    return Cost(*json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))


def exponent(amounts: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the slope of the line through the logarithms, by least squares."""
    x, y = [math.log(each) for each in amounts], [math.log(each) for each in seconds]
    mid_x, mid_y = sum(x) / len(x), sum(y) / len(y)
    over = sum((a - mid_x) * (b - mid_y) for a, b in zip(x, y, strict=True))
    return over / sum((a - mid_x) ** 2 for a in x)


def grown(way: str) -> list[harness.Figure]:
    """Return how the cost grows with each of services, hours, nodes and pods."""
    figures, place = [], ("services", "hours", "nodes", "pods")
    for name, sizes in SIZES.items():
        amounts = [float(size[place.index(name)]) for size in sizes]
        seconds = [min(measured(way, size).cpu_s for _ in range(RUNS)) for size in sizes]
        for amount, each in zip(amounts, seconds, strict=True):
            title, note = f"{way}: {amount:g} {name}", f"the fastest of {RUNS} runs"
            figures.append(harness.figure(title, "CPU-s", [each], note=note))
        figures.append(slope(f"{way}: exponent in {name}", amounts, seconds))
    return figures


def grown_fleets(way: str) -> list[harness.Figure]:
    """Return how the cost grows with a fleet."""
    hours, figures, seconds = FLEET_HOURS[way], [], []
    for services, nodes, pods in FLEETS:
        cost = measured(way, (services, hours, nodes, pods))
        seconds.append(cost.cpu_s)
        figures += fleet_figures(f"{way}: fleet of {nodes} nodes", cost, services, hours, pods)
        print(way, nodes, cost, flush=True)
    amounts = [float(nodes) for _, nodes, _ in FLEETS]
    return [*figures, slope(f"{way}: exponent in fleets", amounts, seconds)]


def fleet_figures(
    title: str, cost: Cost, services: int, hours: float, pods: int
) -> list[harness.Figure]:
    """Return the figures of one fleet."""
    note = f"{hours * 60:g} min, {services} HPAs, {services * pods} pods at the least"
    return [
        harness.figure(title, "CPU-s", [cost.cpu_s], note=note),
        harness.figure(f"{title}, peak memory", "GiB", [cost.peak_gib], note=note),
    ]


def slope(title: str, amounts: Sequence[float], seconds: Sequence[float]) -> harness.Figure:
    """Return the exponent as a figure."""
    grows = exponent(amounts, seconds)
    print(title, round(grows, 3), [round(each, 2) for each in seconds], flush=True)
    return harness.figure(title, "", [grows], at_most=LINEAR)


def day() -> int:
    """Measure the largest fleet for a day."""
    services, nodes, pods = FLEETS[-1]
    cost = measured("formula", (services, 24.0, nodes, pods))
    figures = fleet_figures(f"formula: fleet of {nodes} nodes", cost, services, 24.0, pods)
    settings = {"services": services, "nodes": nodes, "pods": pods, "gpus_per_node": 8}
    return harness.write("simulate_day", figures, settings=settings)


def main() -> int:
    """Measure, and return the exit code."""
    if sys.argv[1:] == ["day"]:
        return day()
    if len(sys.argv) > 1:
        way, services, hours, nodes, pods = sys.argv[1:]
        run(way, int(services), float(hours), int(nodes), int(pods))
        return 0
    figures = []
    for way in FLEET_HOURS:
        figures += grown(way) + grown_fleets(way)
    settings = {
        **{name: [list(size) for size in sizes] for name, sizes in SIZES.items()},
        "fleets": [list(size) for size in FLEETS],
        "fleet_hours": FLEET_HOURS,
    }
    return harness.write("simulate_growth", figures, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
