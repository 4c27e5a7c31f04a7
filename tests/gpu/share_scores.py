"""What `shares.py` scores: shares that were served against work that was counted, over the same 10 s.

`served` is the share, `work` the share less what is told to be switching. `best` is what the driver's looks
give to whoever knows besides how much work the GPU did in all, which no agent can know: it shows how much of
an error is that of the looks themselves.
"""

import statistics

WINDOW_S = 10
CLOSE_POINTS = 5


def true_percent(done, since, to):
    """Return the work of some bursts between two times, as percent of the time.

    Each burst is (begin, end, seconds of work), and its work is taken to be spread over it evenly.
    """
    work_s = 0.0
    for began, ended, each_s in done:
        part_s = min(to, ended) - max(since, began)
        if part_s > 0:
            work_s += each_s * part_s / (ended - began)
    return 100 * work_s / (to - since)


def summary(seen):
    """Return the figures of one mix: each container's errors against its own last 10 s."""
    looks = [(stamp_us / 1e6, pid, sm) for _, found in seen["looks"] for pid, stamp_us, sm in found]
    return {
        "name": seen["name"],
        "containers": [scores(seen, n, looks) for n in range(len(seen["loads"]))],
        "device": device_means(seen),
    }


def scores(seen, n, looks):
    """Return the figures of one container."""
    loads = seen["loads"]
    load = loads[n]
    begin = max(each["began"] for each in loads) + WINDOW_S
    end = min(each["ended"] for each in loads)
    rows = []
    for at, _, told in seen["told"]:
        if n in told and begin < at <= end:
            trues = [true_percent(each["done"], at - WINDOW_S, at) for each in loads]
            share, error, switching = told[n]
            part = looked_part(looks, load["pid"], at)
            rows.append(
                (trues[n], share, error or 0.0, switching or 0.0, part * sum(trues) - trues[n])
            )
    true, share, error, switching, best = zip(*rows, strict=True)
    served = [told - each for told, each in zip(share, true, strict=True)]
    work = [told - less for told, less in zip(served, switching, strict=True)]
    return {
        "container": n,
        "readings": len(rows),
        "true_percent": mean(true),
        "served_percent": mean(share),
        "switching_percent": mean(switching),
        "standard_error_served": mean(error),
        "errors": {
            name: {
                "mean": mean(errors),
                "mean_absolute": mean([abs(each) for each in errors]),
                "spread": round(statistics.pstdev(errors), 1),
                "within_5_points_percent": round(
                    100 * statistics.mean(abs(each) <= CLOSE_POINTS for each in errors)
                ),
            }
            for name, errors in (("served", served), ("work", work), ("best", best))
        },
    }


def looked_part(looks, pid, at):
    """Return the part of the use in the last 10 s that the looks gave to a process."""
    window = [(whose, sm) for stamp, whose, sm in looks if at - WINDOW_S < stamp <= at]
    return sum(sm for whose, sm in window if whose == pid) / max(1, sum(sm for _, sm in window))


def device_means(seen):
    """Return the mean of each of the device's values while all loads ran."""
    begin = max(load["began"] for load in seen["loads"]) + 1
    end = min(load["ended"] for load in seen["loads"])
    inside = [values for at, values, _ in seen["told"] if begin < at < end]
    names = sorted({name for values in inside for name in values})
    return {
        name: round(statistics.mean(values[name] for values in inside if name in values), 3)
        for name in names
    }


def after_join(seen):
    """Return [seconds since it joined, served and true of the joined, served and true of the other]."""
    old, new = seen["loads"]
    rows = []
    for at, _, told in seen["told"]:
        if 0 < at - new["began"] <= 26:
            since = max(new["began"], at - WINDOW_S)
            rows.append(
                (
                    round(at - new["began"], 1),
                    told.get(1, (None,))[0],
                    round(true_percent(new["done"], since, at), 1),
                    told.get(0, (None,))[0],
                    round(true_percent(old["done"], at - WINDOW_S, at), 1),
                )
            )
    return rows


def mean(values):
    return round(statistics.mean(values), 1)
