"""Metrics of a model server beside its options: what they can't pass, and what never falls."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuscale.base.findings import Checks, Severity
from gpuscale.ops.lint.findings import LintFinding, Place
from gpuscale.ops.lint.servers import number_of, servers_in
from gpuscale.ops.lint.workloads import Workload
from gpuscale.series.promql import Node
from gpuscale.server.rules.queries import as_measured, reads

SERVER_CHECKS = Checks()
MEMORY_AT_START = SERVER_CHECKS.add(
    "memory-at-start",
    Severity.WARNING,
    "GPU memory as the metric of a server that takes its memory when it starts.",
    "Scale on the requests that wait or run in it.",
)
ABOVE_SERVER_LIMIT = SERVER_CHECKS.add(
    "above-server-limit",
    Severity.WARNING,
    "A target above what the server takes at a time, by its own options.",
    "Choose a target below the limit, raise the limit, or scale on what waits.",
)

_MEMORY = ("_FB_USED", "_FB_FREE", "_FB_TOTAL", "_FB_RESERVED", "_MEM_USED", "_FB_USED_PERCENT")
_OF_ALL_PODS = "sum"


@dataclass(frozen=True, slots=True)
class Load:
    """What an autoscaler goes by: an HPA's metric, or a trigger."""

    node: Node
    """The query of its value."""
    metric: Place
    aim: Place
    """Of the target."""
    target: float | None
    is_divided: bool
    """Whether the value is divided by the pods, as averageValue has it, before it is compared."""
    is_of_each: bool
    """Whether each pod has a value of its own, and their mean is compared."""


def server_findings(workload: Workload | None, load: Load) -> Iterator[LintFinding]:
    """Return what the servers of a workload's pods make of a metric, and of its target."""
    if workload is None:
        return
    names = {each.series for each in reads(load.node)}
    of_memory = all(name and any(part in name for part in _MEMORY) for name in names) and names
    measured, target = as_measured(load.node), load.target
    # Of a total only a share is compared, and of a mean all of it.
    is_one_pods = load.is_of_each or (
        measured is not None and (measured[1] == _OF_ALL_PODS) is load.is_divided
    )
    for server, container in servers_in(workload):
        if of_memory and server.memory:
            yield MEMORY_AT_START.found(
                load.metric,
                f"Container {container.text('name')} takes its share of the GPU's memory when it starts, and "
                "keeps it: the metric says nothing of the load.",
                f"image {container.text('image')}, whose option {server.memory} is that share",
                "Scale on the requests that wait or run in it: "
                f"{server.family}-waiting, {server.family}-running.",
            )
            return
        limit = number_of(container, server.limits)
        is_running = measured is not None and measured[0] == server.running
        if not is_running or not is_one_pods or limit is None or target is None:
            continue
        option, most = limit
        if target >= most:
            yield ABOVE_SERVER_LIMIT.found(
                load.aim,
                f"The server takes {most} at a time ({option}), and the target is {target:g}: however many "
                "wait, the metric does not pass it.",
                f"{container.place('args')}: {option} {most}",
            )
            return
