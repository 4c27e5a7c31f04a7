"""Sends one level: requests on schedule, signals meanwhile, and an early end if it fails."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuscale.load.calibrate.levels import (
    IN_FLIGHT,
    PERCENTILES,
    RATE,
    Baseline,
    Level,
    Objective,
    percentile_of,
)
from gpuscale.load.calibrate.queues import poisson
from gpuscale.load.http.sender import Sender
from gpuscale.load.http.target import LoadTarget
from gpuscale.load.http.waiting import Alarm
from gpuscale.load.plan import LoadPlan, LoadRequest, RunLimits
from gpuscale.load.recording import RequestCounts, Second, new_histogram, percentile_ms
from gpuscale.load.shapes import constant

ReadSignals = Callable[[], Awaitable[Mapping[str, float]]]
"""Returns the value of each signal that has one now."""
_LEAD_S = 0.1
_ALONE_S = 3.0
_ALONE_REQUESTS = 300
_ALONE_LEAST = 5
_ALONE_MOST_S = 60.0
_MOMENTS_S = 0.01
"""Between two looks at how late this process is."""
_DRAIN_S = 30.0
_HOPELESS = 5.0
"""Times the objective: a level whose seconds are beyond it is cut, it has said what it had to say."""


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """One rate to hold."""

    rate: float
    warmup_s: float
    length_s: float
    seed: int


@dataclass(slots=True)
class Loader:
    """Sends levels to one URL.

    Args:
        request: what is sent.
        target: where.
        objective: what users were promised; levels far beyond it are cut short.
        read_signals: of the replica; None reads none.
        stop: the user has had enough.
    """

    request: LoadRequest
    target: LoadTarget
    objective: Objective
    read_signals: ReadSignals | None
    stop: asyncio.Event
    bounds: RunLimits = field(default_factory=lambda: RunLimits(connections=2_000, waiting=5_000))
    every_s: float = 1.0
    """How often signals are read."""

    async def alone(self) -> tuple[Baseline, RequestCounts]:
        """Return the latencies of sequential requests, without the first few, and the counts."""
        ended = asyncio.Event()
        plan = LoadPlan(
            self.request,
            None,
            _ALONE_MOST_S,
            users=1,
            bounds=replace(self.bounds, requests=_ALONE_REQUESTS),
        )
        sender = Sender(plan, self.target, iter(()))
        histogram, counts = new_histogram(), RequestCounts()
        relay = asyncio.create_task(_relay(self.stop, ended))
        late_ms: list[float] = []
        watching = asyncio.create_task(_watch_lateness(late_ms))
        try:
            async for second in sender.run(time.monotonic() + _LEAD_S, ended):
                histogram.add(second.service)
                counts.add(second.counts)
                answered = histogram.get_total_count()
                if second.index + 1 >= _ALONE_S and answered >= _ALONE_LEAST:
                    ended.set()
        finally:
            relay.cancel()
            watching.cancel()
        parts = [(index + 0.5) * 100 / 200 for index in range(200)]
        found = [each for part in parts if (each := percentile_ms(histogram, part)) is not None]
        late = percentile_of(sorted(late_ms), 99) if late_ms else 0.0
        return Baseline(tuple(found), late), counts

    async def level(self, plan: LevelPlan) -> Level:
        """Return one rate's measurement; it ends early if it fails or the user stops it."""
        unit = poisson(int(plan.rate * plan.length_s * 1.3) + 100, plan.seed)
        arrivals = [due for each in unit if (due := each / plan.rate) < plan.length_s]
        ended = asyncio.Event()
        relay = asyncio.create_task(_relay(self.stop, ended))
        load = LoadPlan(
            self.request, constant(plan.rate), plan.length_s, bounds=self.bounds, seed=plan.seed
        )
        sent: list[float] = []
        sender = Sender(load, self.target, iter(arrivals), turned_to=sent)
        taken = _Taken(plan, self.objective)
        start_s = time.monotonic() + _LEAD_S
        reading = asyncio.create_task(self._read(taken, start_s + plan.warmup_s))
        try:
            async for second in sender.run(start_s, ended):
                taken.add(second)
                if second.index + 1 >= plan.length_s or taken.cut:
                    ended.set()
        finally:
            relay.cancel()
            reading.cancel()
        level = taken.level(sent, interrupted=self.stop.is_set())
        return replace(
            level,
            signals={
                **{name: tuple(values) for name, values in taken.signals.items()},
                # By Little's law, which is more exact than counting at intervals.
                IN_FLIGHT: ()
                if level.mean_ms is None
                else (level.answered_per_s * level.mean_ms / 1000,),
                RATE: (level.answered_per_s,) if level.answered else (),
            },
        )

    async def drain(self, baseline: Baseline) -> None:
        """Wait until the service has recovered from an overload, so that single requests are quick again."""
        end_s = time.monotonic() + _DRAIN_S
        while time.monotonic() < end_s and not self.stop.is_set():
            plan = LoadPlan(
                self.request, None, 5.0, users=1, bounds=replace(self.bounds, requests=3)
            )
            histogram = new_histogram()
            async for second in Sender(plan, self.target, iter(())).run(
                time.monotonic(), self.stop
            ):
                histogram.add(second.service)
            found = percentile_ms(histogram, 100)
            if found is not None and found <= 2 * baseline.percentile_ms(99) + 5:
                return
            await asyncio.sleep(0.2)

    async def _read(self, taken: "_Taken", start_s: float) -> None:
        if self.read_signals is None:
            return
        await asyncio.sleep(max(0.0, start_s - time.monotonic()))
        while True:
            began_s = time.monotonic()
            for name, value in (await self.read_signals()).items():
                taken.signals.setdefault(name, []).append(value)
            await asyncio.sleep(max(0.05, self.every_s - (time.monotonic() - began_s)))


async def _watch_lateness(late_ms: list[float]) -> None:
    """Measure how late this process gets the processor, at times of its own.

    Users who wait for answers have no moment at which a request is due, and so nothing to be late for.
    """
    with Alarm() as alarm:
        due_s = time.monotonic()
        while True:
            due_s += _MOMENTS_S
            while (ahead_s := due_s - time.monotonic()) > 0:
                await alarm.wait(ahead_s)
            late_ms.append(1000 * (time.monotonic() - due_s))
            # The event loop gets a turn in between, however late the requests are.
            await asyncio.sleep(0)


async def _relay(stop: asyncio.Event, ended: asyncio.Event) -> None:
    await stop.wait()
    ended.set()


class _Taken:
    """The sum of a level's seconds, without the warm-up."""

    def __init__(self, plan: LevelPlan, objective: Objective) -> None:
        self.cut = ""
        self.signals: dict[str, list[float]] = {}
        self.in_flight: list[float] = []
        self._plan, self._objective = plan, objective
        self._counts = RequestCounts()
        self._latency, self._lateness = new_histogram(), new_histogram()
        self._end_s = plan.warmup_s
        self._bad_seconds = 0

    def add(self, second: Second) -> None:
        """Add a second, and notice if it is useless to go on."""
        if not self._plan.warmup_s <= second.index < self._plan.length_s:
            return
        self._end_s = second.index + 1
        self._counts.add(second.counts)
        self._latency.add(second.latency)
        self._lateness.add(second.lateness)
        self.in_flight.append(float(second.in_flight))
        latency = new_histogram()
        latency.add(second.latency)
        middle = percentile_ms(latency, 50)
        due = second.counts.sent + second.counts.not_sent
        is_bad = (middle or 0.0) > _HOPELESS * self._objective.limit_ms
        fails = _failed(second.counts) > 0.5 * max(1, due)
        is_bad = is_bad or fails or (middle is None and second.in_flight > 10)
        self._bad_seconds = self._bad_seconds + 1 if is_bad else 0
        if self._bad_seconds >= 2:
            self.cut = "most requests failed" if fails else "latency was far beyond the objective"

    def level(self, arrivals: Sequence[float], *, interrupted: bool) -> Level:
        """Return the level as it stands."""
        counts, answered = self._counts, self._latency.get_total_count()
        wanted = dict.fromkeys((*PERCENTILES, self._objective.percentile))
        failed = _failed(counts)
        faults: Counter[str] = Counter(counts.faults)
        faults.update(
            {f"HTTP {key}": count for key, count in counts.statuses.items() if key >= 300}
        )
        if counts.not_sent:
            faults["not sent"] = counts.not_sent
        return Level(
            rate=self._plan.rate,
            arrivals=arrivals,
            warmup_s=self._plan.warmup_s,
            end_s=float(self._end_s),
            answered=sum(count for key, count in counts.statuses.items() if key < 300),
            failed=failed,
            mean_ms=float(self._latency.get_mean_value()) / 1000 if answered else None,
            percentile_ms={
                each: value
                for each in wanted
                if (value := percentile_ms(self._latency, each)) is not None
            },
            late_ms=percentile_ms(self._lateness, 99) or 0.0,
            in_flight=sum(self.in_flight) / len(self.in_flight) if self.in_flight else 0.0,
            faults=dict(faults),
            cut="interrupted" if interrupted else self.cut,
        )


def _failed(counts: RequestCounts) -> int:
    """Return the number of requests without a useful response."""
    refused = sum(count for key, count in counts.statuses.items() if key >= 300)
    return refused + sum(counts.faults.values()) + counts.not_sent
