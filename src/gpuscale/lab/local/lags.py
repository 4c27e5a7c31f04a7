"""The way of a change from the load to ready pods, hop by hop."""

from itertools import islice
from typing import Any

from gpuscale.lab.sim.document.document import ranked_seconds
from gpuscale.lab.sim.scale_outs import HOPS
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
    took_ms: dict[str, list[int]] = {name: [] for name in (*HOPS, "in all")}
    for _, each in ready:
        for name, start_ms, end_ms in each:
            took_ms[name].append(end_ms - start_ms)
        took_ms["in all"].append(each[-1][2] - each[0][1])
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
            [name, len(times), ranked_seconds(times, 50), ranked_seconds(times, 95)]
            for name, times in took_ms.items()
            if times
        ],
    }
