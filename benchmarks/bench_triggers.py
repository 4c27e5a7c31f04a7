"""What watching triggers costs: CPU, memory and how old answers are, by their number.

    python benchmarks/bench_triggers.py [--triggers 100 300 1000 3000] [--seconds 20]

Each trigger is of a workload of three pods, with a metric of pods by a rule and a wake query of its own; half
of the workloads are at zero. Values come from a store in this process, so that what is measured is the watch.
"""

import argparse
import asyncio
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

import harness
from gpuscale.base.clock import WallClock
from gpuscale.base.objects.selectors import Selector, selector_of_labels
from gpuscale.hpa.types import PodInfo
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.trigger_settings import TriggerSettings
from gpuscale.server.metricsapi.triggers.asking import Seeing
from gpuscale.server.metricsapi.triggers.watch import TriggerWatch
from gpuscale.server.metricsapi.triggers.workloads import Workloads
from gpuscale.server.rules.config import load_rules
from gpuscale.server.rules.resources import ResourceType
from gpuscale.server.sources.embedded import EmbeddedSource
from gpuscale.triggers.observation import Missing, PodsSeen
from gpuscale.triggers.trigger import PodLoad, Trigger, WakeQuery, WorkloadRef

PODS = 3
NAMESPACES = 50
RULES = """
rules:
- seriesQuery: gpu_util{}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


class Table(Workloads):
    """Workloads and pods as a table; every second one is at zero."""

    def __init__(self) -> None:
        """Be there at once."""

    def seen(self, namespace: str, workload: WorkloadRef) -> tuple[PodsSeen | Missing, Selector]:
        number = int(workload.name.rpartition("-")[2])
        selector = selector_of_labels({"app": workload.name})
        if number % 2:
            return PodsSeen(0), selector
        return PodsSeen(PODS, tuple(PodInfo(name) for name in pods_of(workload.name))), selector

    def names(
        self, resource: ResourceType, namespace: str | None, selector: Selector
    ) -> tuple[str, ...]:
        (requirement,) = selector.requirements
        return tuple(pods_of(requirement.values[0]))

    async def listed(self, namespace: str, workload: WorkloadRef) -> None:
        """Return at once: a table is there."""

    def starts_s(self, namespace: str, workload: WorkloadRef) -> tuple[float, ...]:
        return ()

    def forget(self, namespace: str, workload: WorkloadRef) -> None:
        """Nothing is learned."""


def pods_of(workload: str) -> list[str]:
    return [f"{workload}-{index}" for index in range(PODS)]


def trigger(number: int) -> Trigger:
    namespace, name = f"team-{number % NAMESPACES}", f"workload-{number}"
    wake = WakeQuery(f'sum(queue_length{{queue="{name}"}})')
    of = WorkloadRef("Deployment", name)
    return Trigger(namespace, f"{name}-load", of, PodLoad("gpu_util"), 60.0, wakes=(wake,))


def fill(store: SeriesStore, triggers: Sequence[Trigger], now_ms: int) -> None:
    for each in triggers:
        assert each.workload is not None
        name = each.workload.name
        store.append({"__name__": "queue_length", "queue": name}, now_ms, 0.0)
        for pod in pods_of(name):
            labels = {"__name__": "gpu_util", "namespace": each.namespace, "pod": pod}
            store.append(labels, now_ms, 50.0)


async def measure(count: int, seconds: float) -> tuple[float, float, list[float]]:
    """Return seconds of CPU for each second, evaluations for each second, and ages of answers."""
    clock, store, table = WallClock(), SeriesStore(), Table()
    triggers = [trigger(number) for number in range(count)]
    fill(store, triggers, clock.now_ms())
    provider = MetricsProvider(load_rules(RULES, "rules"), EmbeddedSource(store), table, clock)
    await provider.relist()
    seeing = Seeing(provider, table, clock, 8.0, 0.9)
    settings = TriggerSettings(questions_per_s=10_000)
    watch = TriggerWatch(seeing, clock, settings, table)
    watch.pin(triggers)
    running = asyncio.create_task(watch.run())
    while any(answer is None for _, answer in watch.answers()):  # noqa: ASYNC110 - until all are known
        await asyncio.sleep(0.2)
    ages: list[float] = []
    cpu_s, began_s = time.process_time(), time.monotonic()
    before = watch.counts.evaluations
    while time.monotonic() - began_s < seconds:
        await asyncio.sleep(1.0)
        now_s = clock.now_ms() / 1000
        ages += [
            now_s - each.evaluated_s
            for each in watch._watched.values()
            if each.is_asleep and each.evaluated_s is not None
        ]
    took_s = time.monotonic() - began_s
    used = (time.process_time() - cpu_s) / took_s
    rate = (watch.counts.evaluations - before) / took_s
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await seeing.close()
    await provider.close()
    return used, rate, ages


async def main() -> int:
    """Measure all numbers; return 1 where a budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--triggers", type=int, nargs="+", default=[100, 300, 1000, 3000])
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    found: list[harness.Figure] = []
    for count in options.triggers:
        used, rate, ages = await measure(count, options.seconds)
        p99 = statistics.quantiles(ages, n=100)[98] if len(ages) > 1 else 0.0
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        figures = [
            harness.figure(f"{count} triggers: CPU", "cores", [used]),
            harness.figure(f"{count} triggers: evaluations", "1/s", [rate]),
            harness.figure(f"{count} triggers: CPU of an evaluation", "ms", [1000 * used / rate]),
            harness.figure(f"{count} triggers: age of answers at zero, p99", "s", [p99]),
            harness.figure(f"{count} triggers: memory, largest so far", "MiB", [rss]),
        ]
        print(*map(harness.line, figures), sep="\n", flush=True)
        found += figures
    return harness.write("triggers", found, settings=vars(options))


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
