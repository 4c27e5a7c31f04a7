"""What a control plane and a metrics API cost, and how long requests take, while HPAs are looked at."""

import json
import os
from datetime import datetime
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""In the order in which a control plane starts them."""


def requests(log, offset):
    """Return code and duration in milliseconds of what the HPA controller asked, as the aggregator saw it."""
    with log.open() as lines:
        lines.seek(offset)
        entries = [json.loads(line) for line in lines]
    return [
        (
            each["responseStatus"]["code"],
            1000 * (_time(each["stageTimestamp"]) - _time(each["requestReceivedTimestamp"])),
        )
        for each in entries
        if "/metrics" not in each["requestURI"]
    ]


def _time(text):
    return datetime.fromisoformat(text).timestamp()


def percentile(asked, share):
    return sorted(ms for _, ms in asked)[int(share * (len(asked) - 1))]


def processes(plane, api, values):
    """Return the processes by name, each with its children."""
    pids = {name: child_pids(pid)[0] for name, pid in zip(PROGRAMS, plane.pids, strict=True)}
    pids["metrics-api"] = api.pid
    return pids if values.pid is None else {**pids, "prometheus": values.pid}


def child_pids(pid):
    """Return the processes that any thread of a process has started."""
    return [
        int(child)
        for thread in Path(f"/proc/{pid}/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return own + sum(map(cpu_s, child_pids(pid)))


def peak_mib(pid):
    """Return the most memory that a process and its children had, each at its own time."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (own,) = [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")]
    return own + sum(map(peak_mib, child_pids(pid)))
