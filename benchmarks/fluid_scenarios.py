"""Scenarios drawn by number, as different as `simulate --fidelity fluid` takes them.

Each number gives the same scenario everywhere: one to three Deployments with an HPA each, on one node pool.
The adapter's rule is a sum, mean or largest value of a pod's GPUs, which exact runs have a formula for.
"""

import random
from typing import Any

from gpuscale.base.documents.documents import dump_documents
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import Setup

_HOURS = 3
_RULES = """\
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}
  resources:
    overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}}
  metricsQuery: OPERATOR(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


def drawn_setup(number: int) -> Setup:
    """Return the scenario of a number."""
    scenario, manifests = drawn(number)
    operator = random.Random(f"rule {number}").choice(["sum", "avg", "max"])
    files = {
        "drawn.yaml": dump_documents(manifests),
        "rules.yaml": _RULES.replace("OPERATOR", operator),
    }
    return load_setup(dump_documents([scenario]), "scenario.yaml", files.__getitem__)


def drawn(number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a scenario and its manifests."""
    draw = random.Random(number)
    gpus = draw.choice([1, 2, 4, 8])
    workloads: list[dict[str, Any]] = []
    manifests: list[dict[str, Any]] = []
    needed = 0
    for name in ("chat", "code", "image")[: draw.choice([1, 1, 1, 2, 3])]:
        per_pod = draw.choice([each for each in (1, 1, 2, 4) if each <= gpus])
        most = draw.choice([4, 8, 16])
        needed += most * per_pod
        seconds = draw.choice([0.05, 0.2, 1.0, 3.0])
        workloads.append(
            {
                "deployment": name,
                "imagePull": f"{draw.choice([0, 15, 60])}s",
                "startup": f"{draw.choice([5, 20, 60, 180])}s",
                "service": {
                    "gpuSecondsPerRequest": seconds,
                    "concurrency": draw.choice([4, 32]),
                    "queueLimit": draw.choice([20, 200, 10_000]),
                },
                "load": _load(draw, most * draw.uniform(0.2, 0.8) / seconds),
            }
        )
        manifests += _manifests(draw, name, per_pod, most)
    at_least = draw.choice([0, 1, 2])
    scenario = {
        "apiVersion": "gpuscale.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": f"drawn-{number}"},
        "spec": {
            "duration": f"{_HOURS}h",
            "manifests": [{"file": "drawn.yaml"}],
            "nodePools": [
                {
                    "name": "gpu",
                    "gpuModel": "NVIDIA L4",
                    "gpus": gpus,
                    "min": at_least,
                    "max": max(at_least, 1, -(-needed // gpus) + draw.choice([-1, 0, 4])),
                    "cpu": "256",
                    "memory": "2Ti",
                    "provisioningTime": f"{draw.choice([30, 90, 240])}s",
                }
            ],
            "rules": {"file": "rules.yaml"},
            "nodeAutoscaler": {
                "unneededTime": draw.choice(["1m", "5m", "10m"]),
                "delayAfterAdd": draw.choice(["0s", "5m", "10m"]),
            },
            "workloads": workloads,
        },
    }
    return scenario, manifests


def _load(draw: random.Random, most: float) -> dict[str, Any]:
    """Return a load of up to so many requests a second."""
    low = most * draw.uniform(0.05, 0.5)
    shape = draw.choice(["constant", "steps", "ramp", "sine", "spikes"])
    if shape == "constant":
        return {"shape": shape, "rate": most}
    if shape == "steps":
        rates = [draw.uniform(0.0, most) for _ in range(6)]
        steps = [{"at": f"{30 * index}m", "rate": rate} for index, rate in enumerate(rates)]
        return {"shape": shape, "steps": steps}
    if shape == "ramp":
        ends = draw.sample([low, most], 2)
        return {"shape": shape, "fromRate": ends[0], "toRate": ends[1], "end": f"{_HOURS}h"}
    if shape == "sine":
        mean = (low + most) / 2
        period = f"{draw.choice([20, 60, 180])}m"
        return {"shape": shape, "mean": mean, "amplitude": most - mean, "period": period}
    every = draw.choice([10, 20, 45])
    length = draw.choice([1, 3, 8])
    return {
        "shape": shape,
        "base": low,
        "peak": most,
        "every": f"{every}m",
        "length": f"{length}m",
        "first": f"{draw.choice([2, 7])}m",
    }


def _manifests(draw: random.Random, name: str, per_pod: int, most: int) -> list[dict[str, Any]]:
    labels = {"app": name}
    # CPU decides which node a pod goes to.
    cpu = draw.choice([None, "4", "16"])
    limits = {"nvidia.com/gpu": per_pod} | ({"cpu": cpu} if cpu else {})
    container = {"name": "main", "image": "i", "resources": {"limits": limits}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": draw.choice([1, 2, 3]),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }
    target = {"type": "AverageValue", "averageValue": draw.choice([40, 60, 80])}
    spec: dict[str, Any] = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": draw.choice([1, 2]),
        "maxReplicas": most,
        "metrics": [
            {"type": "Pods", "pods": {"metric": {"name": "DCGM_FI_DEV_GPU_UTIL"}, "target": target}}
        ],
    }
    window_s = draw.choice([None, 0, 60, 300])
    if window_s is not None:
        spec["behavior"] = {"scaleDown": {"stabilizationWindowSeconds": window_s}}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": spec,
    }
    return [deployment, hpa]
