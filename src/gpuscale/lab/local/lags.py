"""The way of a change from the load to ready pods, hop by hop."""

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any

from gpuscale.lab.sim.world import World

MOST = 500
"""Scale-outs that are looked at, the newest; pages ask twice a second."""


def lags(world: World) -> dict[str, Any]:
    """Return the latest scale-out that is ready, and how long hops take.

    `latest` has `workload`, `from`, `to` (replicas), `at` (scenario time in seconds) and `hops`: name, start
    and end of each, in seconds from `at`. `spread` has for each hop its name, in how many scale-outs it was,
    and the seconds that half and 95 % of them stay within, by nearest rank.
    """
    newest = islice(reversed(world.scale_outs.all), MOST)
    ready = [(each, each.hops()) for each in newest if each.path is not None][::-1]
    if not ready:
        return {"latest": None, "spread": []}
    latest, hops = ready[-1]
    took_s: dict[str, list[float]] = {}
    for _, each in ready:
        for name, start_ms, end_ms in each:
            took_s.setdefault(name, []).append((end_ms - start_ms) / 1000)
        took_s.setdefault("in all", []).append((each[-1][2] - each[0][1]) / 1000)
    took_s["in all"] = took_s.pop("in all")  # last, however late a hop first came
    return {
        "latest": {
            "workload": latest.deployment.rpartition("/")[2],
            "from": latest.before,
            "to": latest.after,
            "at": world.seconds(hops[0][1]),
            "hops": [
                [name, (start_ms - hops[0][1]) / 1000, (end_ms - hops[0][1]) / 1000]
                for name, start_ms, end_ms in hops
            ],
        },
        "spread": [
            [name, len(times), ranked(times, 50), ranked(times, 95)]
            for name, times in took_s.items()
        ],
    }


def ranked(times: Sequence[float], percent: int) -> float:
    """Return the smallest time that this percentage of times stays within."""
    return sorted(times)[math.ceil(percent * len(times) / 100) - 1]
