"""CPU and memory of pods and nodes, from results of the `resourceRules` queries. No I/O.

Source: prometheus-adapter v0.12.0 pkg/resourceprovider (provider.go). Known differences: a row that is NaN
or infinite is left out, where upstream makes 0 of NaN; and a container of which only one of the two was
measured has only that one, where upstream adds a 0 for the other. To an HPA a 0 is an order to scale in,
and a missing value is not.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.base.errors import UpstreamError
from gpuscale.series import Value, Vector, VectorSample
from gpuscale.server.rules.queries.plan import to_milli
from gpuscale.server.rules.resource_rules import ResourceRule, ResourceRules
from gpuscale.server.rules.resources import NODES, PODS, ResourceType


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU in thousandths of a core and memory in thousandths of a byte; None if not measured."""

    cpu_milli: int | None = None
    memory_milli: int | None = None


@dataclass(frozen=True, slots=True)
class PodContainersUsage:
    """What the containers of a pod use."""

    containers: Mapping[str, Usage] = field(default_factory=dict)
    """By name, sorted."""
    measured_ms: int = 0
    """The earliest of all rows."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """The usage of a node."""

    usage: Usage
    measured_ms: int


def pods_usage(rules: ResourceRules, cpu: Value, memory: Value) -> dict[str, PodContainersUsage]:
    """Return the usage of the pods that have rows in both results, by name.

    Raises:
        UpstreamError: one of the results is no vector.
    """
    cpu_rows = _by_object(rules.cpu, PODS, cpu)
    memory_rows = _by_object(rules.memory, PODS, memory)
    return {
        pod: _pod_usage(rules, cpu_rows[pod], memory_rows[pod])
        for pod in cpu_rows
        if pod in memory_rows
    }


def nodes_usage(rules: ResourceRules, cpu: Value, memory: Value) -> dict[str, NodeUsage]:
    """Return the usage of the nodes with rows in both results, by name; a node's first row counts.

    Raises:
        UpstreamError: one of the results is no vector.
    """
    cpu_rows = _by_object(rules.cpu, NODES, cpu)
    memory_rows = _by_object(rules.memory, NODES, memory)
    return {
        node: _node_usage(cpu_rows[node][0], memory_rows[node][0])
        for node in cpu_rows
        if node in memory_rows
    }


def _by_object(
    rule: ResourceRule, resource: ResourceType, value: Value
) -> dict[str, list[VectorSample]]:
    """Return the rows that are numbers, by the name of their pod or node."""
    if not isinstance(value, Vector):
        raise UpstreamError(f"a query of resourceRules gave a {type(value).__name__}")
    label = rule.labels.label_for(resource)
    rows: dict[str, list[VectorSample]] = {}
    for sample in value.samples:
        if math.isfinite(sample.value):
            rows.setdefault(sample.labels.get(label, ""), []).append(sample)
    return rows


def _pod_usage(
    rules: ResourceRules, cpu: Sequence[VectorSample], memory: Sequence[VectorSample]
) -> PodContainersUsage:
    cpu_milli = _by_container(rules.cpu, cpu)
    memory_milli = _by_container(rules.memory, memory)
    containers = {
        name: Usage(cpu_milli.get(name), memory_milli.get(name))
        for name in sorted(cpu_milli.keys() | memory_milli.keys())
    }
    return PodContainersUsage(containers, min(row.measured_ms for row in (*cpu, *memory)))


def _by_container(rule: ResourceRule, rows: Iterable[VectorSample]) -> dict[str, int]:
    return {row.labels.get(rule.container_label, ""): _milli(row) for row in rows}


def _node_usage(cpu: VectorSample, memory: VectorSample) -> NodeUsage:
    return NodeUsage(
        Usage(_milli(cpu), _milli(memory)),
        min(cpu.measured_ms, memory.measured_ms),
    )


def _milli(row: VectorSample) -> int:
    """Return thousandths; a negative usage counts as 0."""
    return max(0, to_milli(row.value))
