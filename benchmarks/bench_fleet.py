"""Fleets: many services on shared nodes for days, the largest that is promised, and how the cost grows.

    python benchmarks/bench_fleet.py

Demands are daily waves, whose peaks lie within four hours, and the policy is the HPA on demand by its kernel.
Growth is the slope of CPU time over size, both as logarithms, at four sizes; of each size the fastest of
three runs counts, since others work on the machine too. The two that are promised also run as a user has
them: `gpuscale simulate SCENARIO --fidelity fluid`, from reading the file to the printed summary.
"""

import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy

import bench_simulate_growth
import harness
from gpuscale.lab.plan.fleet.fleet import FleetPool, FleetRun, FleetService, replay_fleet
from gpuscale.lab.plan.fleet.state import Table
from gpuscale.triggers.policies.hpa import HPA_ON_DEMAND

DAY_S = 86_400
POOLS = 4
GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class Size:
    """How large a fleet is; its nodes are there from the start, so that all of them count."""

    services: int = 100
    days: float = 1.0
    step_s: float = 60.0
    nodes: int = 1_000
    pods: int = 1_000
    """At the peak, about."""


def fleet(size: Size) -> tuple[list[FleetService], list[FleetPool], Table]:
    """Return a fleet of a size and its demand."""
    peak = size.pods / size.services
    services = [
        FleetService(
            f"service-{at}",
            f"pool-{at % POOLS}",
            HPA_ON_DEMAND,
            HPA_ON_DEMAND.settings(),
            most=math.ceil(2 * peak) + 10,
        )
        for at in range(size.services)
    ]
    nodes = size.nodes // POOLS
    pools = [
        FleetPool(f"pool-{at}", GPUS_PER_NODE, nodes, first=nodes, coming_s=300.0)
        for at in range(POOLS)
    ]
    steps = round(size.days * DAY_S / size.step_s)
    angle = numpy.arange(steps)[:, None] * (2 * math.pi * size.step_s / DAY_S)
    # At a target of 60 % a wave of 0.6 x pods at its top asks for the pods of the peak.
    wave = 0.6 * (0.55 + 0.45 * numpy.sin(angle + 0.5 * numpy.sin(numpy.arange(size.services))))
    return services, pools, peak * wave


def run(size: Size) -> tuple[FleetRun, float, float]:
    """Return a run with its seconds, by the clock and of the CPU."""
    made = fleet(size)
    clock_s, cpu_s = time.perf_counter(), time.process_time()
    result = replay_fleet(*made, size.step_s)
    return result, time.perf_counter() - clock_s, time.process_time() - cpu_s


def growth(name: str, sizes: list[Size], counts: list[float]) -> harness.Figure:
    """Return the exponent with which CPU time grows."""
    seconds = [min(run(size)[2] for _ in range(3)) for size in sizes]
    points = [[math.log(each) for each in values] for values in (counts, seconds)]
    slope = statistics.linear_regression(*points).slope
    measured = ", ".join(
        f"{count:,g}: {each:.3f} s" for count, each in zip(counts, seconds, strict=True)
    )
    return harness.figure(f"growth with {name}", "exponent", [slope], at_most=1.1, note=measured)


def commanded(
    title: str, services: int, hours: float, nodes: int, pods: int, step: str
) -> Iterator[harness.Figure]:
    """Yield what the command takes, compiled code found on the disk: seconds of its CPU, and memory.

    It works on one core. Before this process has grown: memory that a child begins with counts as its own.
    """
    text = bench_simulate_growth.scenario(services, hours, nodes, pods)
    with tempfile.TemporaryDirectory() as folder:
        manifests = (bench_simulate_growth.manifests(index, pods) for index in range(services))
        Path(folder, "m").write_text("---\n".join(manifests))
        Path(folder, "r").write_text(bench_simulate_growth.RULES)
        pipeline = f"  pipeline: {{hpaSyncPeriod: {step}, scrapeInterval: {step}}}\n"
        file = Path(folder, "s.yaml")
        file.write_text(text.replace("  nodePools:", f"{pipeline}  nodePools:"))
        command = [sys.executable, "-m", "gpuscale.cli.main", "simulate", str(file)]
        seconds, cpu, gib = [], [], []
        for _ in range(3):
            started = time.perf_counter()
            child = subprocess.Popen([*command, "--fidelity", "fluid"], stdout=subprocess.DEVNULL)
            _, status, used = os.wait4(child.pid, 0)
            if status:
                raise SystemExit(f"{title}: {os.waitstatus_to_exitcode(status)}")
            seconds.append(time.perf_counter() - started)
            cpu.append(used.ru_utime + used.ru_stime)
            gib.append(used.ru_maxrss / 1024**2)
    note = f"{services} HPAs; {min(seconds):.2f} s by the clock at the least"
    yield harness.figure(f"simulate: {title}", "CPU-s", cpu, at_most=10.0, note=note)
    yield harness.figure(f"simulate: {title}, peak memory", "GiB", gib, at_most=4.0)


def main() -> int:
    """Measure, and return the exit code."""
    large_fleet = "10 000 nodes, 80 000 GPUs, 50 000 pods, a day at 60 s"
    figures = [
        *commanded(large_fleet, 80, 24.0, 10_000, 625, "60s"),
        *commanded("14 days x 100 services at 15 s", 100, 336.0, 25, 1, "15s"),
    ]
    large = Size(services=1_000, nodes=10_000, pods=52_000)
    services, pools, demand = fleet(replace(large, days=0.01))
    replay_fleet(
        services, pools, demand, large.step_s, say=lambda line: print(line, file=sys.stderr)
    )
    result, clock_s, cpu_s = run(large)
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    pods = int(result.columns.placed.sum(axis=1).max())
    figures += [
        harness.figure(
            "10 000 nodes, 80 000 GPUs, a day at 60 s",
            "s",
            [clock_s],
            note=f"1 000 services, {pods:,} pods at the peak, {result.pods:,} in all; CPU {cpu_s:.2f} s",
        ),
        harness.figure("peak memory of that process", "GiB", [peak_gib], at_most=4.0),
    ]
    runs = [run(Size(days=14, step_s=15.0)) for _ in range(3)]
    figures.append(
        harness.figure(
            "14 days x 100 services at 15 s",
            "s",
            [each[1] for each in runs],
            at_most=10.0,
            note=f"CPU {min(each[2] for each in runs):.2f} s at the least",
        )
    )
    base = Size(services=200, nodes=2_000, pods=4_000)
    factors = [1, 2, 4, 8]
    grown = {
        # Twice the services have twice the pods.
        "services": [replace(base, services=100 * f, pods=2_000 * f) for f in factors],
        "days": [replace(base, days=float(f)) for f in factors],
        "nodes": [replace(base, nodes=1_250 * f) for f in factors],
        "pods": [replace(base, pods=6_250 * f, nodes=10_000) for f in factors],
    }
    for name, sizes in grown.items():
        figures.append(growth(name, sizes, [getattr(size, name) for size in sizes]))
    for each in figures:
        print(f"{each.name:<42} {each.median:>8.3g} {each.unit}  {each.note}")
    settings = {"policy": HPA_ON_DEMAND.name, "pools": POOLS, "gpus_per_node": GPUS_PER_NODE}
    return harness.write("fleet", figures, packages=["numba", "numpy"], settings=settings)


if __name__ == "__main__":
    sys.exit(main())
