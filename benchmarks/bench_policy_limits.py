"""What a policy could save that knows the distribution of demand ahead, and not the demand itself.

    python benchmarks/bench_policy_limits.py --traces FOLDER

Within each ten minutes of a ServeGen trace demand is drawn, step by step, from a gamma distribution, and no
policy can know the draw. Here the policy knows the distribution of each window before it begins, starts pods
in no time, and spends the short steps that the promise allows where they save most: in each window it has the
number c with the least c + price x P(demand > c), at the price that uses up the promise. Its share of the
oracle's saving is a limit, in the mean over draws, of what any policy reaches on such a trace.
"""

import argparse
import sys
from pathlib import Path

import numpy

import harness
import policy_traces
from bench_policies import ALLOWED, FOLDER
from gpuscale.lab.plan.bounds import bounds
from gpuscale.lab.plan.promise import Promise
from gpuscale.triggers.policies.policy import Numbers
from gpuscale.triggers.policies.replaying import ReplaySettings

DRAWS = 20_000
"""Of each window, from which the chance of a demand above each number of pods is taken."""


Chances = numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float64]]


def least_mean(exceeded: Chances, weight: Numbers, promise: float) -> float:
    """Return the mean of pods that keeps the promise at the least.

    Args:
        exceeded: chance that demand is above so many pods, by window and number of pods.
        weight: of each window; together 1.
        promise: share of steps that may be short.
    """
    counts = numpy.arange(exceeded.shape[1], dtype=numpy.float64)
    low, high = 1e-3, 1e9
    mean = float(counts[-1])
    for _ in range(60):
        price = (low * high) ** 0.5
        costs = counts + price * exceeded
        costs[:, 0] = numpy.inf  # one pod stays, as in the benchmark
        best = costs.argmin(axis=1)
        if float((exceeded[numpy.arange(len(best)), best] * weight).sum()) <= promise:
            mean, high = float((best * weight).sum()), price
        else:
            low = price
    return mean


def share_of(trace: policy_traces.Trace, drawn_from: list[tuple[float, float]]) -> float:
    """Return the share of the oracle's saving on the second half of a trace, in percent."""
    steps = len(trace.demand)
    first, each = steps // 2, steps // len(drawn_from)
    draw = numpy.random.default_rng(2)
    most = int(trace.demand.max()) + 2
    exceeded, weights = [], []
    for window, (shape, scale) in enumerate(drawn_from):
        scored = min(each, (window + 1) * each - first)
        if scored > 0:
            drawn = numpy.sort(draw.gamma(shape, 1.0, DRAWS) * scale)
            exceeded.append(1 - numpy.searchsorted(drawn, numpy.arange(most), side="right") / DRAWS)
            weights.append(float(scored))
    weight = numpy.array(weights) / sum(weights)
    mean = least_mean(numpy.array(exceeded), weight, ALLOWED)
    service = ReplaySettings(step_s=policy_traces.STEP_S, start_up_s=trace.start_up_s)
    limits = bounds(trace.demand[first:], service, Promise())
    return 100 * (limits.share(mean * (steps - first) * service.step_s / 3600) or 0.0)


def main() -> int:
    """Work the limits out, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--traces", type=Path, default=FOLDER)
    given = parser.parse_args()
    figures = [
        harness.figure(f"{trace.name}: limit", "%", [share_of(trace, drawn_from)])
        for trace, drawn_from in policy_traces.known_distributions(given.traces)
    ]
    if not figures:
        print(f"{given.traces}: found no trace whose demand is drawn", file=sys.stderr)
        return 2
    settings = {"promise": ALLOWED, "draws": DRAWS}
    return harness.write("policy_limits", figures, packages=["numpy"], settings=settings)


if __name__ == "__main__":
    sys.exit(main())
