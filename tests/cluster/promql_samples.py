"""Series that generated queries select: gauges, counters, histograms, and what is rare, unaligned or odd."""

import math
import random

from gpuscale.series.values import STALE

START = 1_700_000_040
"""Seconds; a multiple of 15 and 60, so that ranges and subquery steps often end exactly on samples."""
STEP = 15
COUNT = 160
END = START + (COUNT - 1) * STEP


def samples(seed):
    """Yield labels, milliseconds and value of every sample.

    Values are multiples of 1/8, but for those that are odd on purpose: both sides know their sums exactly.
    """
    rng = random.Random(seed)
    for node in "ab":
        for gpu in range(3):
            labels = {"node": node, "gpu": str(gpu), "pod": f"p{gpu % 2}", "zone": f"z{gpu // 2}"}
            yield from _dense("util", _gauge(rng), **labels)
            half = [value if i % 2 else None for i, value in enumerate(_gauge(rng))]
            yield from _dense("mem", half, 3, node=node, gpu=str(gpu), kind="used")
    yield from _dense("util_total", _gauge(rng), node="a")
    for path, restart in (("/chat", 0), ("/embed", 700), ("/health", 0)):
        yield from _dense("req_total", _counter(rng, COUNT, restart), 2, path=path, code="200")
        late = [value if i > 70 else None for i, value in enumerate(_counter(rng, COUNT, 900))]
        yield from _dense("req_total", late, 2, path=path, code="500")
    yield from _dense("slow", [i if i % 30 == 0 else None for i in range(COUNT)], kind="gap")
    ended = [
        STALE if i in {50, 90, 159} else i if i < 50 or 70 < i < 90 or i > 100 else None
        for i in range(COUNT)
    ]
    yield from _dense("ended", ended, kind="stale", node="a")
    yield from _dense("ended", [i if i < 100 else None for i in range(COUNT)], node="b")
    odd = [
        (math.nan, math.inf, -math.inf, 1.5, -2.5, 0.0, -0.0, 1e150)[i % 8] for i in range(COUNT)
    ]
    yield from _dense("odd", odd, kind="special")
    yield from _dense("odd", [-1.5 + i / 8 for i in range(COUNT)], kind="plain")
    yield from _dense("flat", [3] * COUNT, kind="same")
    yield from _dense("one", [i / 8 for i in range(COUNT)])
    for node in "ab":
        for pod in ("p0", "p1"):
            yield from _dense("info", [1] * COUNT, node=node, pod=pod, app=f"app-{pod}", team="ml")
    for gpu, kind in ((0, "gauge"), (1, "gauge"), (1, "counter")):
        metadata = {"__type__": kind, "__unit__": "ratio"}
        yield from _dense("typed", _gauge(rng), 1, node="a", gpu=str(gpu), **metadata)
    yield from _dense("huge", [2**53 - 40 + i for i in range(COUNT)], kind="edge")
    yield from _histograms(rng)
    yield from _rare(rng)


def _dense(name, values, shift_s=0, **labels):
    for i, value in enumerate(values):
        if value is not None:
            yield {"__name__": name, **labels}, (START + i * STEP + shift_s) * 1000, float(value)


def _gauge(rng):
    return [rng.randrange(-400, 4000) / 8 for _ in range(COUNT)]


def _counter(rng, count, restart):
    """A counter that restarts twice."""
    values, value = [], rng.choice([0.0, 5000.0, 3.0])
    restarts = {57, 118} if count == COUNT else set(rng.sample(range(1, count), 2))
    for i in range(count):
        value += rng.randrange(1, 40) / 8
        if i in restarts:
            value = restart
        values.append(value)
    return values


def _rare(rng):
    """Targets that share no time: single samples, and such at random distances."""
    for node in "ab":
        for gpu in "012":
            labels = {"node": node, "gpu": gpu}
            yield (
                {"__name__": "lone", **labels},
                END * 1000 - rng.randrange(400_000),
                rng.randrange(99) / 8,
            )
            times = list(_times(rng))
            ends = set(rng.sample(range(len(times)), 2)) if gpu == "2" else set()
            for i, t_ms in enumerate(times):
                value = STALE if i in ends else rng.randrange(-99, 999) / 8
                yield {"__name__": "rare", **labels}, t_ms, value
            times = list(_times(rng))
            counts = _counter(rng, len(times), rng.choice([0, 2, 40]))
            for t_ms, value in zip(times, counts, strict=True):
                yield {"__name__": "rare_total", **labels}, t_ms, value


def _times(rng):
    t_ms, most_ms = START * 1000 + rng.randrange(100_000), rng.choice([20_000, 120_000, 350_000])
    while t_ms <= END * 1000:
        yield t_ms
        t_ms += rng.choice([1, 1_000, 15_000, rng.randrange(1, most_ms), rng.randrange(1, most_ms)])


def _histograms(rng):
    bounds = {
        "chat": ["0.1", "0.5", "1", "2.5", "+Inf"],
        "embed": ["-1", "0", "1.0", "+Inf"],
        "twice": ["1", "1.0", "2", "+Inf"],
        "open": ["1", "2"],
        "empty": ["1", "+Inf"],
    }
    for job, les in bounds.items():
        counts = [500 * (i + 1) if job != "empty" else 0 for i in range(len(les))]
        rows = []
        for _ in range(COUNT):
            grown = 0
            for position in range(len(les)):
                grown += rng.randrange(8) if job != "empty" else 0
                counts[position] += grown
            rows.append(list(counts))
        for position, le in enumerate(les):
            yield from _dense("lat_bucket", [row[position] for row in rows], job=job, le=le)
    yield from _dense("lat_bucket", [9] * COUNT, job="chat", le="bad")
