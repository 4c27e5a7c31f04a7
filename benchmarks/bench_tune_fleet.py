"""How much tuning together saves where services share node pools: three fleets of public traces.

    python benchmarks/bench_tune_fleet.py [--traces FOLDER] [--days 14] [--tries 32] [--fleet NAME]...

Each service has an HPA at 60 % of its GPUs with Kubernetes' own behavior, and each pool at least one node.
`each alone` is every HPA tuned by itself, on the pools as they are. Both are scored on the last third of the
days, which no search has seen, in a replay that packs pods on nodes one by one. Traces are as in
policy_traces.py; each request service has half of the clients of ServeGen's m-small, in its own time zone.
"""

import argparse
import csv
import gzip
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

import harness
import policy_traces
from gpuscale.base.documents.documents import dump_documents
from gpuscale.base.promises import promise_terms
from gpuscale.lab.plan.fleet.state import Table
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.tuning import Overrides, TuningRequest, answer_together, fleet_text, of_fleet
from gpuscale.triggers.policies.policy import Numbers

FOLDER = Path(__file__).parents[2] / "shared" / "data" / "traces"
STEP_S = policy_traces.STEP_S
LIMIT_S = 1200.0
"""Ten minutes on two cores."""
_SERVEGEN = "servegen-2025/m-small_clients.csv.gz"
_RULES = """\
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}
  resources:
    overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


@dataclass(frozen=True, slots=True)
class Member:
    """A service of a fleet."""

    name: str
    demand: Numbers
    """In pods, every 15 s."""
    gpus: int
    pool: str
    start_up_s: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of a fleet."""

    name: str
    gpu_model: str
    gpus: int
    price_per_hour: float


def clients(folder: Path, services: int, peak: float) -> list[Numbers]:
    """Return services of such a peak: each with half of m-small's clients, and its day shifted by hours."""
    rates, variances = _by_client(folder / _SERVEGEN)
    draw, each = numpy.random.default_rng(1), round(policy_traces.WINDOW_S / STEP_S)
    found = []
    for index in range(services):
        half = draw.permutation(len(rates))[: len(rates) // 2]
        mean, variance = rates[half].sum(axis=0), variances[half].sum(axis=0)
        shape = numpy.where(mean > 0, mean**2 / numpy.maximum(variance, 1e-9), 0.0)
        scale = numpy.where(mean > 0, variance / numpy.maximum(mean, 1e-9), 0.0)
        drawn = draw.gamma(numpy.repeat(shape, each), 1.0) * numpy.repeat(scale, each)
        drawn = numpy.roll(drawn, round(index % 8 * 3 * 3600 / STEP_S))
        found.append(drawn * (peak / numpy.quantile(drawn, 0.999)))
    return found


def _by_client(path: Path) -> tuple[Table, Table]:
    """Return mean and variance of a step's requests, by client and window."""
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file))
    width = round(policy_traces.WINDOW_S)
    shape = (
        1 + max(int(each["client"]) for each in rows),
        1 + max(int(float(each["window_start_s"])) // width for each in rows),
    )
    mean, variance = numpy.zeros(shape), numpy.zeros(shape)
    for each in rows:
        at = int(each["client"]), int(float(each["window_start_s"])) // width
        mean[at] = float(each["rate_rps"]) * STEP_S
        variance[at] = mean[at] * max(float(each["interarrival_cv"] or 0), 0.1) ** 2
    return mean, variance


def batch(folder: Path, peak: float) -> Iterator[tuple[str, Numbers]]:
    """Yield batch clusters' demand, scaled to a peak."""
    for trace in policy_traces.traces(folder):
        if trace.name.startswith(("helios", "philly")):
            yield trace.name.lower(), trace.demand * (peak / numpy.quantile(trace.demand, 0.999))


def requests_fleet(folder: Path) -> tuple[list[Member], list[Pool]]:
    """Return twenty request services on one pool."""
    sizes = (1, 1, 2, 1, 4)
    members = [
        Member(f"chat-{index:02}", demand, sizes[index % 5], "h100", 120)
        for index, demand in enumerate(clients(folder, 20, 12.0))
    ]
    return members, [Pool("h100", "NVIDIA H100 80GB HBM3", 8, 32.0)]


def batch_fleet(folder: Path) -> tuple[list[Member], list[Pool]]:
    """Return four batch clusters on one pool."""
    members = [
        Member(name, demand, gpus, "a100", 60)
        for (name, demand), gpus in zip(batch(folder, 20.0), (1, 2, 4, 2), strict=True)
    ]
    return members, [Pool("a100", "NVIDIA A100-SXM4-80GB", 8, 20.0)]


def mixed_fleet(folder: Path) -> tuple[list[Member], list[Pool]]:
    """Return request services and batch on two pools at two prices."""
    members = [
        Member(f"chat-{index}", demand, (1, 2)[index % 2], ("h100", "l4")[index % 2], 90)
        for index, demand in enumerate(clients(folder, 6, 16.0))
    ]
    members += [
        Member(name, demand, 4, pool, 60)
        for (name, demand), pool in zip(list(batch(folder, 12.0))[:2], ("h100", "l4"), strict=True)
    ]
    return members, [
        Pool("h100", "NVIDIA H100 80GB HBM3", 8, 32.0),
        Pool("l4", "NVIDIA L4", 4, 4.0),
    ]


FLEETS: dict[str, Callable[[Path], tuple[list[Member], list[Pool]]]] = {
    "requests": requests_fleet,
    "batch": batch_fleet,
    "mixed": mixed_fleet,
}


def setup_of(name: str, members: list[Member], pools: list[Pool], days: float) -> Setup:
    """Return a fleet's scenario; its traces are files in memory."""
    files = {"rules.yaml": _RULES}
    manifests: list[dict[str, Any]] = []
    workloads = []
    for each in members:
        demand = each.demand[: round(days * 86_400 / STEP_S)]
        text = io.StringIO()
        text.write("time,rate\n")
        for at, rate in enumerate(demand):
            text.write(f"{at * STEP_S:g},{rate:.5g}\n")
        files[f"{each.name}.csv"] = text.getvalue()
        manifests += _manifests(each, int(1.5 * demand.max()) + 1, float(demand[0]))
        workloads.append(
            {
                "deployment": each.name,
                "imagePull": "0s",
                "startup": f"{each.start_up_s}s",
                "service": {"gpuSecondsPerRequest": 1.0, "concurrency": 1},
                "load": {
                    "shape": "trace",
                    "file": f"{each.name}.csv",
                    "timeColumn": "time",
                    "rateColumn": "rate",
                },
            }
        )
    files["manifests.yaml"] = dump_documents(manifests)
    scenario = {
        "apiVersion": "gpuscale.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": name},
        "spec": {
            "duration": f"{round(days * 24)}h",
            "manifests": [{"file": "manifests.yaml"}],
            "nodePools": [
                {
                    "name": pool.name,
                    "gpuModel": pool.gpu_model,
                    "gpus": pool.gpus,
                    "min": 1,
                    "max": 200,
                    "cpu": "192",
                    "memory": "2Ti",
                    "provisioningTime": "180s",
                    "pricePerHour": pool.price_per_hour,
                    "labels": {"pool": pool.name},
                }
                for pool in pools
            ],
            "rules": {"file": "rules.yaml"},
            "nodeAutoscaler": {"unneededTime": "10m", "delayAfterAdd": "10m"},
            "workloads": workloads,
        },
    }
    return load_setup(dump_documents([scenario]), "scenario.yaml", files.__getitem__)


def _manifests(each: Member, most: int, first: float) -> list[dict[str, Any]]:
    labels = {"app": each.name}
    limits = {"nvidia.com/gpu": each.gpus, "cpu": 8 * each.gpus}
    container = {"name": "main", "image": "i", "resources": {"limits": limits}}
    pods = {"containers": [container], "nodeSelector": {"pool": each.pool}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": each.name},
        "spec": {
            "replicas": max(1, round(first / 0.6)),
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pods},
        },
    }
    target = {"type": "AverageValue", "averageValue": 60}
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": each.name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": each.name},
            "minReplicas": 1,
            "maxReplicas": most,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {"metric": {"name": "DCGM_FI_DEV_GPU_UTIL"}, "target": target},
                }
            ],
        },
    }
    return [deployment, hpa]


def measured(name: str, folder: Path, days: float, asked: TuningRequest) -> list[harness.Figure]:
    """Return a fleet's figures."""
    members, pools = FLEETS[name](folder)
    found = of_fleet(setup_of(name, members, pools, days), name, (), Overrides())
    started, before_s = time.perf_counter(), time.process_time()
    result = answer_together(found, asked)
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - before_s
    print(fleet_text(result))
    today, alone, together = result.document["rows"]
    before = today["nodeHours"]
    saved, own = (100 * (1 - row["nodeHours"] / before) for row in (together, alone))
    kept, kept_alone, kept_today = (
        sum(each["isKept"] for each in row["workloads"]) for row in (together, alone, today)
    )
    note = f"{len(members)} services, {days:g} days, {asked.promise}"
    return [
        harness.figure("node-hours saved together", "%", [saved], note=note),
        harness.figure("node-hours saved each alone", "%", [own]),
        harness.figure("together more than alone", "points", [saved - own], at_least=5),
        harness.figure("promises kept together", "", [kept], at_least=len(members)),
        harness.figure("promises kept each alone", "", [kept_alone]),
        harness.figure("promises kept today", "", [kept_today]),
        harness.figure("cost today", "USD", [today["cost"]]),
        harness.figure("cost each alone", "USD", [alone["cost"]]),
        harness.figure("cost together", "USD", [together["cost"]]),
        harness.figure("took", "s", [wall_s]),
        harness.figure("took of processors", "s", [cpu_s], at_most=LIMIT_S),
    ]


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--traces", type=Path, default=FOLDER)
    parser.add_argument("--days", type=float, default=14.0)
    parser.add_argument("--tries", type=int, default=32)
    parser.add_argument("--promise", default="short=0.5%")
    parser.add_argument("--fleet", action="append", choices=FLEETS)
    given = parser.parse_args()
    promise = Promise(promise_terms("--promise", (given.promise,)))
    asked = TuningRequest((), promise, 0.33, given.tries, 1, os.cpu_count() or 1)
    code = 0
    for name in given.fleet or FLEETS:
        figures = measured(name, given.traces, given.days, asked)
        for each in figures:
            print(f"{each.name:<30} {each.median:>10.2f} {each.unit}")
        packages = ["numba", "numpy", "joblib"]
        code = max(code, harness.write(f"tune_fleet_{name}", figures, packages=packages))
    return code


if __name__ == "__main__":
    sys.exit(main())
