"""In-flight credit against what else scales a model server: pods, and requests that waited for 3 s at most.

    python benchmarks/bench_credit.py [--seeds 5]

The same load for all, in virtual time (`closed_loop`): 2 requests a second, up to 10 within eight minutes,
two minutes or at once, 20 minutes there, then 1. What is needed at 10 a second is 7 full pods; 10 pods have
the target's load. Each entrant runs with a limit of 30 pods, which nothing should come near, and of 8, as in
llm-d's benchmark.
"""

import argparse
import math
import sys
from collections.abc import Callable

import closed_loop
import harness
from closed_loop import PER_POD, SERVICE_S, TARGET, Rate, Served, autoscaler, ramp
from gpuscale.manifests import HorizontalPodAutoscaler

LOW, HIGH = 3, 30
LENGTH_S = 2700
SHAPES = {
    "ramp of 8 min": ramp(2, 10, 480, 1200, 1),
    "ramp of 2 min": ramp(2, 10, 120, 1200, 1),
    "step": ramp(2, 10, 0, 1200, 1),
}
NEEDED = math.ceil(10 * SERVICE_S / TARGET)
"""Pods with the target's load at the peak, by Little's law."""
CHANCE = 2
"""Pods beyond what is needed. An HPA with 10 pods stays up to 10 * 24 * 1.1 = 264 in flight and asks beyond
that for 264 / 24 = 11, rounded up: 12, so that there is no step to 11. By Poisson, 221 in the mean are more
than 264 at 0.2 % of all moments, which is in about half of all sets of five runs. Nothing waits then, and no
credit is given."""
Entrant = tuple[Callable[[], Served] | None, HorizontalPodAutoscaler | None, int]


def entrants(high: int) -> dict[str, Entrant]:
    """Return what is compared: the value, the HPA, and pods at the start."""
    on_load = autoscaler(TARGET, LOW, high)
    return {
        "HPA on the queue, 5 a pod": (lambda: closed_loop.queue, autoscaler(5, LOW, high), LOW),
        "HPA on requests in flight": (lambda: closed_loop.in_flight, on_load, LOW),
        "the same with credit": (closed_loop.with_credit, on_load, LOW),
        "llm-d slo-aware": (
            closed_loop.llm_d,
            autoscaler(1, LOW, high, closed_loop.LLM_D_BEHAVIOR),
            LOW,
        ),
        "static": (None, None, min(NEEDED, high)),
    }


def measured(name: str, rate: Rate, entrant: Entrant, seeds: int) -> list[harness.Figure]:
    """Return the figures of one entrant on one shape."""
    served, hpa, begin = entrant
    made = [None if served is None else served() for _ in range(seeds)]
    runs = [closed_loop.run(rate, made[i], hpa, begin, LENGTH_S, i + 1) for i in range(seeds)]
    print(
        f"{name:58} most {max(r.most_pods for r in runs):3}  "
        f"mean {sum(r.mean_pods for r in runs) / seeds:5.2f}  "
        f"within the SLO {100 * sum(r.within_slo for r in runs) / seeds:5.1f} %",
        flush=True,
    )
    is_judged = "with credit" in name and "ramp" in name
    most = harness.figure(
        f"{name}: most pods",
        "pods",
        [r.most_pods for r in runs],
        at_most=NEEDED + CHANCE if is_judged else None,
    )
    mean = harness.figure(f"{name}: mean pods", "pods", [r.mean_pods for r in runs])
    slo = harness.figure(f"{name}: waited at most 3 s", "%", [100 * r.within_slo for r in runs])
    return [most, mean, slo]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    figures = []
    for shape, rate in SHAPES.items():
        for high in (HIGH, 8):
            for name, entrant in entrants(high).items():
                figures += measured(f"{shape}, at most {high}: {name}", rate, entrant, seeds)
    settings = {
        "needed_full": math.ceil(10 / PER_POD),
        "needed_at_target": NEEDED,
        "start_s": list(closed_loop.START_S),
        "seeds": seeds,
    }
    return harness.write("credit", figures, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
