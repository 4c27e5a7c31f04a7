"""Fits a queue model to a replica: its replay of the levels' arrivals must give the measured latencies."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpuscale.base.streams import stream
from gpuscale.load.calibrate.levels import Baseline, Level, percentile_of
from gpuscale.load.calibrate.queues import (
    BatchQueue,
    LaneQueue,
    Queue,
    SharedQueue,
    SlotQueue,
    shapes,
)

MIN_LEVELS = 3
MIN_ANSWERS = 20
"""With fewer a level has no percentiles worth comparing."""
_COMPARED = (50.0, 90.0, 95.0)
_MOST_ARRIVALS = 3_000
"""Of a level, in a replay: more say little more and cost time."""
_JITTER_MS = 0.5
"""What networks and timers add by chance; also keeps tiny latencies from dominating."""
_OUTLIER = 0.3
"""Differences beyond this (a logarithm) count in proportion, not squared: a disturbed level spoils less."""
_SLOWER = 1.25
"""Workers that take longer than this times what a request takes without load are no workers of their own."""
_DISTURBED = 1.65
"""A level whose mean is so many times that of its replay was slow for another reason than its load."""
_SEEDS = (11, 12, 13, 14)
_RESAMPLES = 200


@dataclass(frozen=True, slots=True)
class Fit:
    """The queue that explains the levels best."""

    queue: Queue
    baseline: Baseline
    difference: float
    """Typical difference between replay and measurement, as a share: 0.05 is 5 %."""
    capacity: tuple[float, float]
    """Capacities between which the right one is, with about 90 % confidence."""
    levels: tuple[Level, ...]
    """What it was fitted to."""

    def replayed(self, level: Level) -> list[list[float]]:
        """Return the latencies, in ms ascending, for a level's arrivals, once for each seed."""
        return list(_replays(self.queue, self.baseline, level, _SEEDS))


def fit_queue(levels: Sequence[Level], baseline: Baseline) -> Fit | None:
    """Return the queue that explains the levels best; None with fewer than three usable levels.

    Workers, lanes that slow each other down, a shared replica and batches are tried, each with several sizes;
    the capacity of each is the one with the smallest sum of squared differences between the logarithms of
    mean, p50, p90, p95 and throughput.
    The confidence comes from drawing levels again and again, with replacement (bootstrap).

    Args:
        levels: those at which the generator was on time.
        baseline: the service without load.
    """
    used = tuple(each for each in levels if each.answered >= MIN_ANSWERS)
    if len(used) < MIN_LEVELS:
        return None
    most = max(each.answered_per_s for each in used)
    has_limit = not all(each.keeps_up() for each in used)
    low, high = (0.85 * most, 1.2 * most) if has_limit else (0.95 * most, 2.5 * most)
    coarse = _grid(low, high, 9)
    screened = []
    for queue, handicap in _candidates(most, baseline.mean_ms / 1000):
        for capacity in coarse:
            tried = queue.with_capacity(capacity)
            if not _is_possible(tried):
                continue
            loss = sum(_loss(tried, baseline, each, _SEEDS[:1]) for each in used)
            screened.append((handicap * loss, handicap, tried))
    screened.sort(key=lambda each: each[0])
    step = (high / low) ** (1 / 8)
    best: tuple[float, Queue, list[float], list[list[float]]] | None = None
    for queue, handicap in _finalists(screened):
        grid = _grid(queue.capacity / step, queue.capacity * step, 21)
        table = [_losses(queue.with_capacity(each), baseline, used) for each in grid]
        totals = [sum(row) for row in table]
        index = totals.index(min(totals))
        if best is None or handicap * totals[index] < best[0]:
            found = queue.with_capacity(_between(grid, totals, index))
            best = (handicap * totals[index], found, grid, table)
    assert best is not None  # noqa: S101 - there always are candidates
    loss, queue, grid, table = best
    terms = len(used) * (len(_COMPARED) + 2)
    return Fit(queue, baseline, math.sqrt(loss / terms), _spread(grid, table, queue), used)


def disturbed_level(fit: Fit) -> Level | None:
    """Return a level that was slowed by something other than its load; None if there is none.

    Its mean is far above that of the replay of its own arrivals, and a level at a higher rate was quicker:
    the load can't be why.
    """
    worst, found = _DISTURBED, None
    for level in fit.levels:
        mean_ms = level.mean_ms
        if mean_ms is None or not any(
            each.rate > level.rate and each.mean_ms is not None and each.mean_ms < mean_ms
            for each in fit.levels
        ):
            continue
        replay = next(iter(_replays(fit.queue, fit.baseline, level, _SEEDS[:1])))
        times = mean_ms / (sum(replay) / len(replay) + _JITTER_MS) if replay else 0.0
        if times > worst:
            worst, found = times, level
    return found


def _candidates(most: float, base_s: float) -> Iterator[tuple[Queue, float]]:
    """Yield queues, and by what factor a rarer kind must be better before it is preferred."""
    busy = max(1.0, most * base_s)
    sizes = {1, *(max(1, round(busy * part)) for part in (0.5, 0.75, 0.9, 1.0, 1.1, 1.3, 1.7))}
    for slots in sorted(sizes):
        yield SlotQueue(most, slots, base_s), 1.0
    for alone in sorted({1.0, *(max(1.0, busy * part) for part in (0.75, 1.0, 1.3))}):
        yield SharedQueue(most, alone, base_s), 1.2
    for slots in (2, 4, 8):
        yield LaneQueue(most, slots, base_s), 1.2
    slots = 2
    while slots <= 256:
        if slots >= 0.95 * busy and slots <= 64 * busy:
            yield BatchQueue(most, slots, base_s), 1.2
        slots *= 2


def _is_possible(queue: Queue) -> bool:
    if isinstance(queue, SlotQueue):
        return queue.service_s <= _SLOWER * queue.base_s
    if isinstance(queue, LaneQueue):
        return queue.part > 0
    return not isinstance(queue, BatchQueue) or queue.seconds[0] >= 0


def _finalists(screened: Sequence[tuple[float, float, Queue]]) -> Iterator[tuple[Queue, float]]:
    """Yield the best queues of each kind, with more worker queues, as the grid is coarse."""
    left: dict[type[Queue], int] = {SlotQueue: 3, LaneQueue: 1, SharedQueue: 1, BatchQueue: 1}
    seen: set[Queue] = set()
    for _, handicap, queue in screened:
        alike = queue.with_capacity(0.0)
        if left[type(queue)] and alike not in seen:
            seen.add(alike)
            left[type(queue)] -= 1
            yield queue, handicap


def _losses(queue: Queue, baseline: Baseline, levels: Sequence[Level]) -> list[float]:
    """Return the distance between replay and measurement, for each level."""
    varies = baseline.percentile_ms(90) > 1.3 * baseline.percentile_ms(50)
    seeds = _SEEDS if varies else _SEEDS[:1]
    return [_loss(queue, baseline, each, seeds) for each in levels]


def _loss(queue: Queue, baseline: Baseline, level: Level, seeds: Sequence[int]) -> float:
    total = 0.0
    for latencies in _replays(queue, baseline, level, seeds):
        if len(latencies) < MIN_ANSWERS // 2:
            total += 10.0
            continue
        pairs = [
            (percentile_of(latencies, each), level.percentile_ms[each])
            for each in _COMPARED
            if each in level.percentile_ms
        ]
        if level.mean_ms is not None:
            pairs.append((sum(latencies) / len(latencies), level.mean_ms))
        total += sum(
            _far(math.log((ours + _JITTER_MS) / (theirs + _JITTER_MS))) for ours, theirs in pairs
        )
        if len(level.arrivals) <= _MOST_ARRIVALS:
            # Throughput is measured more exactly than latency: 2 % of difference counts like 10 %.
            total += _far(5 * math.log(len(latencies) / max(1, level.answered)))
    return total / len(seeds)


def _far(difference: float) -> float:
    size = abs(difference)
    return size * size if size <= _OUTLIER else _OUTLIER * (2 * size - _OUTLIER)


def _replays(
    queue: Queue, baseline: Baseline, level: Level, seeds: Sequence[int]
) -> Iterator[list[float]]:
    """Yield, for each seed of the service times, the ascending latencies in ms of the measured time."""
    arrivals = [due for due in level.arrivals[:_MOST_ARRIVALS] if due < level.end_s]
    end_s = level.end_s
    if len(level.arrivals) > _MOST_ARRIVALS:
        end_s = min(end_s, level.arrivals[_MOST_ARRIVALS])
    for seed in seeds:
        shape = shapes(baseline.latencies_ms, len(arrivals), seed)
        yield sorted(
            1000 * latency
            for at, latency in queue.answers(arrivals, shape)
            if level.warmup_s <= at < end_s
        )


def _grid(low: float, high: float, count: int) -> list[float]:
    return [low * (high / low) ** (index / (count - 1)) for index in range(count)]


def _between(grid: Sequence[float], totals: Sequence[float], index: int) -> float:
    """Return the minimum of a parabola through the smallest total and its neighbours."""
    if not 0 < index < len(grid) - 1:
        return grid[index]
    before, here, after = totals[index - 1 : index + 2]
    bend = before - 2 * here + after
    shift = 0.0 if bend <= 0 else max(-0.5, min(0.5, 0.5 * (before - after) / bend))
    ratio = grid[1] / grid[0]
    return grid[index] * math.exp(shift * math.log(ratio))


def _spread(
    grid: Sequence[float], table: Sequence[Sequence[float]], queue: Queue
) -> tuple[float, float]:
    """Return the 5th and 95th percentile of the best capacity, over bootstrap draws of the levels."""
    draw = stream(1, "levels")
    count = len(table[0])
    found = []
    for _ in range(_RESAMPLES):
        drawn = draw.choices(range(count), k=count)
        totals = [sum(row[each] for each in drawn) for row in table]
        found.append(_between(grid, totals, totals.index(min(totals))))
    found.sort()
    return (
        min(queue.capacity, percentile_of(found, 5)),
        max(queue.capacity, percentile_of(found, 95)),
    )
