"""Waking from zero: seconds from the first queued item to one pod asked for, on three roads.

A real control plane, KEDA and Prometheus, `gpuscale scaler` and `gpuscale metrics-api`. Time begins when
Prometheus has the item: how often it scrapes comes on top, for all roads alike. Each road has workloads
of its own, whose items come at random times; KEDA polls every 30 s and the HPA controller looks every 15 s,
as both do by default. Takes about eight minutes, and what `make cluster-tools keda-tools` builds.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import harness
from gpuscale_testing import Settings, aggregated_api, missing
from gpuscale_testing.keda import EXTERNAL_METRICS
from gpuscale_testing.metrics_apis import gpuscale_metrics_api
from gpuscale_testing.programs.toolset import CONTROL_PLANE, KEDA

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "cluster"))
from keda_objects import apply, deployment, prometheus_trigger, scaled_object
from keda_world import KedaWorld

POLLING_S, SYNC_S = 30.0, 15.0
SPREAD_S = 30.0
"""Items come within this time: at any point of both periods."""
PUSH_LIMIT_S = 2.0
HPA_LIMIT_S = SYNC_S + 1.0
AWAY_S = 180.0
SEED = 1
PUSH, HPA, OWN = "push", "hpa", "keda-prometheus"


class WakeWorld(KedaWorld):  # type: ignore[misc]
    """All parts, with gpuscale's metrics API as the external metrics API: waking by KEDA needs none."""

    def __init__(self, folder: Path) -> None:
        gates = {"HPAScaleToZero": True}
        settings = Settings(hpa_sync_period_s=SYNC_S, feature_gates=gates)
        super().__init__(folder, settings, registered=False)

    def put_items(self, counts: Mapping[str, int]) -> None:
        """Return once Prometheus has these lengths of queues."""
        now_ms = round(time.time() * 1000)
        self.database.write(
            ({"__name__": "queue_length", "workload": name}, now_ms, float(count))
            for name, count in counts.items()
        )

    def keys(self, name: str) -> dict[str, str]:
        """Return the keys of a trigger that has the queue wake a workload."""
        queue = self.queue(name)
        keys = {"workload": f"deployment/{name}", "query": queue, "target": "10"}
        return {**keys, "wakeQuery": queue, "wakeDeadline": "5s", "metricName": name}

    def queue(self, name: str) -> str:
        """Return the length of a queue in PromQL."""
        return f'queue_length{{workload="{name}"}}'

    def hpa(self, name: str) -> dict[str, Any]:
        """Return an HPA on gpuscale's external metric of this name."""
        external = {
            "metric": {"name": name},
            "target": {"type": "AverageValue", "averageValue": 10},
        }
        return {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 0,
                "maxReplicas": 4,
                "metrics": [{"type": "External", "external": external}],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            },
        }

    def serve_external_metrics(self, stack: ExitStack, names: Sequence[str]) -> None:
        """Serve a trigger for each name as external metric until the stack ends."""
        rules, triggers = self.folder / "rules.yaml", self.folder / "triggers.yaml"
        rules.write_text("rules: []\n")
        entries = [{"namespace": "default", **self.keys(name)} for name in names]
        triggers.write_text(json.dumps({"triggers": entries}))
        flags = [f"--triggers={triggers}"]
        api = stack.enter_context(
            gpuscale_metrics_api(self.plane, self.prometheus_url, rules, self.folder, more=flags)
        )
        stack.enter_context(aggregated_api(self.plane, [EXTERNAL_METRICS], api.port))


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workloads", type=int, default=10, help="of each road")
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    if reason := missing([*CONTROL_PLANE, *KEDA]):
        print(f"left out: {reason}")
        return 0
    names = {
        road: [f"{road}-{number}" for number in range(arguments.workloads)]
        for road in (PUSH, HPA, OWN)
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        WakeWorld(Path(folder)) as world,
        ExitStack() as stack,
    ):
        world.serve_external_metrics(stack, names[HPA])
        make_workloads(world, names)
        took = measure(world, names, arguments.rounds)
    return harness.write(
        "wake",
        figures(took),
        packages=["grpcio"],
        programs={"prometheus": ("prometheus", "--version")},
        settings={
            "keda_polling_s": POLLING_S,
            "hpa_sync_s": SYNC_S,
            "workloads_of_each_road": arguments.workloads,
            "rounds": arguments.rounds,
            "seed": SEED,
            "begins": "when Prometheus has the item",
            "ends": "when the API server shows spec.replicas of 1",
        },
    )


def make_workloads(world: WakeWorld, names: dict[str, list[str]]) -> None:
    """Make all Deployments, and what scales each; returns once all are at zero."""
    every = [name for group in names.values() for name in group]
    world.put_items(dict.fromkeys(every, 0))
    polling = {"polling_s": int(POLLING_S), "cooldown_s": 5, "most": 4}
    for name in names[PUSH]:
        trigger = world.push_trigger(world.keys(name))
        apply(world.plane, deployment(name), scaled_object(name, trigger, **polling))
    for name in names[OWN]:
        trigger = prometheus_trigger(world.prometheus_url, world.queue(name), 10)
        apply(world.plane, deployment(name), scaled_object(name, trigger, **polling))
    for name in names[HPA]:
        # One that was never scaled to zero by an HPA counts as paused.
        apply(world.plane, deployment(name, replicas=1), world.hpa(name))
    for name in every:
        world.watch.await_count(name, 0, timeout_s=AWAY_S)


def measure(world: WakeWorld, names: dict[str, list[str]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each wake, by road."""
    rng = random.Random(SEED)
    took: dict[str, list[float]] = {road: [] for road in names}
    roads = {name: road for road, group in names.items() for name in group}
    for _ in range(rounds):
        began = time.monotonic()
        queued = {}
        for offset_s, name in sorted((rng.uniform(0, SPREAD_S), name) for name in roads):
            time.sleep(max(0.0, began + offset_s - time.monotonic()))
            world.put_items({name: 1})
            queued[name] = time.monotonic()
        for name, road in roads.items():
            asked = world.watch.await_count(name, 1, timeout_s=AWAY_S)
            took[road].append(asked - queued[name])
        world.put_items(dict.fromkeys(roads, 0))
        for name in roads:
            world.watch.await_count(name, 0, timeout_s=AWAY_S)
    return took


def figures(took: dict[str, list[float]]) -> list[harness.Figure]:
    """Return the median and the 99th percentile of each road."""
    limits = {PUSH: PUSH_LIMIT_S, HPA: HPA_LIMIT_S}
    words = {
        PUSH: "KEDA with gpuscale's scaler, by push",
        HPA: "plain HPA on gpuscale's metric",
        OWN: "KEDA with its own prometheus trigger",
    }
    found = []
    for road, seconds in took.items():
        note = f"{len(seconds)} wakes, {min(seconds):.2f} to {max(seconds):.2f} s"
        for name, share, limit in (("p50", 0.5, None), ("p99", 0.99, limits.get(road))):
            value = harness.quantile(seconds, share)
            found.append(
                harness.figure(f"{words[road]}: {name}", "s", [value], at_most=limit, note=note)
            )
    return found


if __name__ == "__main__":
    sys.exit(main())
