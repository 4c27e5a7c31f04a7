"""How the CPU time of a simulation grows with services, hours, nodes and pods, at both fidelities.

Four sizes each, doubled, all else the same; the exponent is the slope of the logarithms of CPU time.
Linear is 1. One process for each run, so that none finds another's caches.

    .venv/bin/python benchmarks/bench_simulate_growth.py
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Sequence

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
LINEAR = 1.1


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
    """Return services whose sine loads ask for up to 1.4 times their pods."""
    mean = 0.5 * pods / 0.1 * 0.8
    workloads = "".join(
        f"""
    - deployment: s{index}
      service: {{gpuSecondsPerRequest: 0.1}}
      load: {{shape: sine, mean: {mean}, amplitude: {mean * 0.8}, period: 2h, offset: {index * 7}m}}"""
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


def run(fidelity: str, services: int, hours: float, nodes: int, pods: int) -> None:
    """Simulate once and print the CPU seconds that it took."""
    from gpuscale.sim.scenario.loading import load_setup
    from gpuscale.sim.simulate import simulate

    files = {"m": "---\n".join(manifests(index, pods) for index in range(services)), "r": RULES}
    setup = load_setup(scenario(services, hours, nodes, pods), "s", files.__getitem__)
    started = time.process_time()
    document = simulate(setup, fidelity="lagged" if fidelity == "lagged" else "exact")
    seconds = time.process_time() - started
    how = document.get("fidelity")
    if isinstance(how, dict) and how["used"] != fidelity:
        raise SystemExit(f"simulated exactly: {how['because']}")
    print(json.dumps(seconds))


def measured(fidelity: str, size: tuple[int, float, int, int]) -> float:
    """Return the CPU seconds of a run in a process of its own."""
    command = [sys.executable, __file__, fidelity, *map(str, size)]
    return float(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))


def exponent(amounts: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the slope of the line through the logarithms, by least squares."""
    x, y = [math.log(each) for each in amounts], [math.log(each) for each in seconds]
    mid_x, mid_y = sum(x) / len(x), sum(y) / len(y)
    over = sum((a - mid_x) * (b - mid_y) for a, b in zip(x, y, strict=True))
    return over / sum((a - mid_x) ** 2 for a in x)


def main() -> int:
    """Measure, and return the exit code."""
    if len(sys.argv) > 1:
        fidelity, services, hours, nodes, pods = sys.argv[1:]
        run(fidelity, int(services), float(hours), int(nodes), int(pods))
        return 0
    figures, place = [], ("services", "hours", "nodes", "pods")
    for fidelity in ("exact", "lagged"):
        for name, sizes in SIZES.items():
            amounts = [float(size[place.index(name)]) for size in sizes]
            seconds = [measured(fidelity, size) for size in sizes]
            for amount, each in zip(amounts, seconds, strict=True):
                figures.append(
                    harness.figure(f"{fidelity}: {amount:g} {name}", "CPU-s", [each], note=name)
                )
            grows = exponent(amounts, seconds)
            title = f"{fidelity}: exponent in {name}"
            figures.append(harness.figure(title, "", [grows], at_most=LINEAR))
            print(title, round(grows, 3), [round(each, 2) for each in seconds], flush=True)
    settings = {name: [list(size) for size in sizes] for name, sizes in SIZES.items()}
    return harness.write("simulate_growth", figures, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
