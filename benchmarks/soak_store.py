"""The store under hours of churn: flat memory, and no wrong value.

    python benchmarks/soak_store.py --hours 8
    python benchmarks/soak_store.py --real-minutes 30

Without `--real-minutes` time is virtual. Four agents stream at 100 ms and are replaced, a target has pods
that come and go, one floods the store with new names, one has a clock that runs ahead, and once an hour a
burst fills the store. Every minute each answer is right or refused with a reason. Exits with 1 otherwise, or
if memory grew by more than 5 % from the first half of the run to the second.
"""

import argparse
import gc
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpuscale.base.errors import UncoveredError
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.scraping.streamed import StreamedTarget
from gpuscale.series.scraping.target import TargetSeries
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Vector

RETENTION_MS = 900_000
MAX_SERIES = 10_000
MAX_SAMPLES = 550_000
TICK_MS = 100
SCRAPE_MS = 5_000
CHECK_MS = 60_000
HOUR_MS = 3_600_000
AGENTS = 4
SERIES_OF_AGENT = 40
LIFE_OF_AGENT_MS = 600_000
PODS = 100
LIFE_OF_POD_MS = 120_000
BURST_SERIES = 1_500
BURST_AT_MS, BURST_FOR_MS = 2_400_000, 300_000
"""Of each hour."""
MOST_GROWTH = 1.05


@dataclass(slots=True)
class Agent:
    """One node agent, until it is replaced."""

    name: str
    target: StreamedTarget
    since_ms: int


class World:
    """Everything that writes to the store.

    Args:
        start_ms: of the run.
    """

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.store = SeriesStore(RETENTION_MS, MAX_SERIES, MAX_SAMPLES)
        self.agents: list[Agent | None] = [None] * AGENTS
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self._good = ScrapeTarget(self.store, {"job": "good"})
        self._flood = ScrapeTarget(self.store, {"job": "flood"})
        self._ahead = ScrapeTarget(self.store, {"job": "ahead"})
        self._burst = [
            self.store.ref({"__name__": "burst", "id": str(number)})
            for number in range(BURST_SERIES)
        ]

    def step(self, now_ms: int) -> None:
        """Write what is due at a time, and check the answers once a minute."""
        for place in range(AGENTS):
            self._stream(place, now_ms)
        elapsed_ms = now_ms - self.start_ms
        if elapsed_ms % 1_000 == 0 and 0 <= elapsed_ms % HOUR_MS - BURST_AT_MS < BURST_FOR_MS:
            self.store.append_many(self._burst, [1.0] * BURST_SERIES, now_ms)
        if elapsed_ms % SCRAPE_MS == 0:
            self._scrape(now_ms)
        if elapsed_ms % CHECK_MS == 0:
            self._check(now_ms)

    def pods(self, now_ms: int) -> list[str]:
        """Return the pods that are there; each one's life begins at another time."""
        lives = ((now_ms + number * 1_200) // LIFE_OF_POD_MS for number in range(PODS))
        return [f"p{number}-{life}" for number, life in enumerate(lives)]

    def _stream(self, place: int, now_ms: int) -> None:
        agent = self.agents[place]
        offset_ms = place * LIFE_OF_AGENT_MS // AGENTS
        life = (now_ms - self.start_ms + offset_ms) // LIFE_OF_AGENT_MS
        name = f"n{place}-{life}"
        if agent is None or agent.name != name:
            if agent is not None:
                agent.target.gone(now_ms)
            labels = TargetSeries(self.store, {"node": name}, honor_labels=True)
            agent = self.agents[place] = Agent(name, StreamedTarget(self.store, labels), now_ms)
            agent.target.connected()
            series = [[i, f"m{i % 10}", {"gpu": str(i // 10)}, 0] for i in range(SERIES_OF_AGENT)]
            message = {"kind": "snapshot", "version": 1, "ms": now_ms, "series": series}
        else:
            value = (now_ms - agent.since_ms) / 1000
            values = {str(i): value for i in range(0, SERIES_OF_AGENT, 2)}
            message = {"kind": "change", "ms": now_ms, "values": values}
        agent.target.feed(json.dumps(message).encode(), now_ms)

    def _scrape(self, now_ms: int) -> None:
        seconds = (now_ms - self.start_ms) / 1000
        steady = f"steady_total {seconds * 10}\n"
        pods = "".join(f'util{{pod="{pod}"}} {seconds}\n' for pod in self.pods(now_ms))
        result = self._good.ingest(steady + pods, now_ms)
        if result.refused or result.problem is not None:
            self.faults.append(f"{now_ms}: the good target's scrape failed: {result}")
        new = "".join(f'flood{{id="{now_ms}-{number}"}} 1\n' for number in range(300))
        self.outcomes[f"flood {self._flood.ingest(new, now_ms).limit or 'taken'}"] += 1
        self._ahead.ingest(f"x 1 {now_ms + 599_000}\n", now_ms)

    def _check(self, now_ms: int) -> None:
        seconds = (now_ms - self.start_ms) / 1000
        for minutes in (5, 10, 14):
            # Prometheus extrapolates to the whole range once there are samples at both of its ends.
            expected = [min(minutes * 60, seconds) * 10] if seconds else []
            self._expect(f"increase(steady_total[{minutes}m])", now_ms, expected)
        self._expect("count(util)", now_ms, [PODS])
        self._expect("min(util)", now_ms, [seconds])
        values = [(now_ms - agent.since_ms) / 1000 for agent in self.agents if agent is not None]
        self._expect('m0{gpu="0"}', now_ms, values)
        self._expect("count(m0)", now_ms, [AGENTS * SERIES_OF_AGENT / 10])
        bound = MAX_SAMPLES + MAX_SERIES  # an end is always taken
        if self.store.stats().samples > bound:
            self.faults.append(f"{now_ms}: found {self.store.stats().samples} samples")

    def _expect(self, query: str, now_ms: int, expected: Iterable[float]) -> None:
        try:
            value = instant(self.store, query, now_ms)
            assert isinstance(value, Vector)
            found = sorted(row.value for row in value.samples)
        except UncoveredError:
            self.outcomes["refused"] += 1
            return
        wanted = sorted(expected)
        is_right = len(found) == len(wanted) and all(
            abs(one - other) <= 1e-6 * max(1.0, abs(other))
            for one, other in zip(found, wanted, strict=True)
        )
        self.outcomes["right" if is_right else "wrong"] += 1
        if not is_right:
            self.faults.append(f"{now_ms}: {query} is {found[:5]}, expected {wanted[:5]}")


def resident_mib() -> float:
    """Return how much memory this process holds."""
    gc.collect()
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def main() -> int:
    """Run; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=8.0, help="of virtual time")
    parser.add_argument("--real-minutes", type=float, help="run in real time, for so long")
    options = parser.parse_args()
    is_real = options.real_minutes is not None
    length_ms = round(options.real_minutes * 60_000 if is_real else options.hours * HOUR_MS)
    part_ms = max(CHECK_MS, min(HOUR_MS, length_ms // 6) // CHECK_MS * CHECK_MS)
    world = World(1_760_000_000_000)
    held: list[float] = []
    began = time.monotonic()
    for elapsed_ms in range(0, length_ms + 1, TICK_MS):
        if is_real:
            time.sleep(max(0.0, began + elapsed_ms / 1000 - time.monotonic()))
        world.step(world.start_ms + elapsed_ms)
        if elapsed_ms and elapsed_ms % part_ms == 0:
            held.append(resident_mib())
            stats = world.store.stats()
            print(
                f"{elapsed_ms / HOUR_MS:5.2f} h: {held[-1]:6.1f} MiB, {stats.series} series, "
                f"{stats.samples} samples, {stats.covered_ms // 1000} s covered, "
                f"{stats.cut} cut, {dict(world.outcomes)}",
                flush=True,
            )
    for fault in world.faults[:20]:
        print(fault, file=sys.stderr)
    # By half of the run the store has been full, and everything has come and gone.
    half = (len(held) + 1) // 2
    growth = max(held[half:]) / max(held[:half]) if held[half:] else 1.0
    print(f"most memory in the second half, of the most in the first: {growth:.3f}")
    return int(bool(world.faults) or growth > MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
