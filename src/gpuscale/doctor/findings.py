"""What a finding is, and every check by its id."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gpuscale.lint.findings import Severity

LINT = "lint/"
"""Before the id of a check that is `gpuscale lint`'s."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is looked for."""

    id: str
    """Stable: scripts may name it."""
    hop: str
    """The part of the chain that it is about."""
    severity: Severity
    meaning: str


@dataclass(frozen=True, slots=True)
class Change:
    """One request that is part of a fix."""

    path: str
    """Of the object to patch, or of the collection to create it in."""
    body: Mapping[str, Any]
    creates: bool = False
    """False: `body` is a merge patch."""


@dataclass(frozen=True, slots=True)
class Fix:
    """What to do."""

    say: str
    """In one sentence."""
    command: str = ""
    """What does it, for a terminal; empty where there is no one command."""
    changes: tuple[Change, ...] = ()
    """What `--fix` does in its place; empty where that might restart or take away something."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, or may be."""

    check: Check
    about: str
    """The object, as `kind/name` or `kind/namespace/name`."""
    what: str
    """What is wrong, in one sentence."""
    evidence: str
    """What shows it."""
    fix: Fix


@dataclass(frozen=True, slots=True)
class Report:
    """All that was found in a cluster."""

    findings: tuple[Finding, ...]
    """In the order of the chain."""
    seen: Mapping[str, int]
    """How much was looked at, by kind."""

    @property
    def is_healthy(self) -> bool:
        """Return whether nothing has to be done; notes are only worth a look."""
        return all(finding.check.severity is Severity.NOTE for finding in self.findings)


_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
ACCESS, NODES, AGENT, PROMETHEUS, API, AUTOSCALER, CAPACITY = HOPS = (
    "access",
    "nodes",
    "node agent",
    "Prometheus",
    "metrics API",
    "autoscaler",
    "capacity",
)
"""The chain, in the order in which it is judged."""


def _checks(*rows: tuple[str, str, Severity, str]) -> Mapping[str, Check]:
    return MappingProxyType({row[0]: Check(*row) for row in rows})


CHECKS = _checks(
    ("cannot-see", ACCESS, _W, "Something that can't be looked at, and the rights it takes."),
    # Nodes
    ("no-gpu-nodes", NODES, _E, "Pods want GPUs, no node has one, and nothing adds nodes."),
    ("gpu-node-not-ready", NODES, _W, "A node with GPUs that is not Ready."),
    ("gpu-node-unlabelled", NODES, _W, "A node with GPUs and no label that tells so."),
    (
        "accelerator-label-missing",
        NODES,
        _W,
        "No label by which Cluster Autoscaler knows that GPUs are still to come, so it buys twice.",
    ),
    ("no-device-plugin", NODES, _E, "A GPU node without a device plugin, and so without GPUs."),
    ("device-plugin-taint", NODES, _E, "A taint that keeps the device plugin off a GPU node."),
    ("device-plugin-not-ready", NODES, _E, "A device plugin that does not run on its node."),
    ("no-allocatable-gpu", NODES, _E, "A device plugin that finds no GPU: the driver is missing."),
    ("gpus-unhealthy", NODES, _W, "Fewer GPUs to allocate than the node has."),
    ("taint-not-tolerated", NODES, _E, "A workload that no GPU node takes, for their taints."),
    # Node agent
    ("no-node-agent", AGENT, _E, "Neither a node agent nor dcgm-exporter."),
    ("node-without-agent", AGENT, _E, "A GPU node whose GPUs nobody measures."),
    ("agent-not-ready", AGENT, _E, "An agent that is not ready."),
    ("probe-too-early", AGENT, _W, "An agent that its liveness probe kills while it starts."),
    ("agent-unreachable", AGENT, _W, "An agent whose metrics can't be read from here."),
    ("driver-unreadable", AGENT, _E, "An agent that can read no GPU: no driver, or no access."),
    ("gpu-unreadable", AGENT, _E, "One GPU that can't be read."),
    ("fewer-gpus-read", AGENT, _W, "An agent that sees fewer GPUs than its node gives."),
    ("old-reading", AGENT, _W, "Readings that are older than a minute."),
    ("no-gpu-util", AGENT, _E, "GPUs without DCGM_FI_DEV_GPU_UTIL, which is off or is MIG's lack."),
    ("attribution-lost", AGENT, _E, "An agent that can't tell which pods have its GPUs."),
    ("no-pod-labels", AGENT, _E, "GPUs are in use, and their series name no pod."),
    # Prometheus
    (
        "wrong-prometheus-address",
        PROMETHEUS,
        _E,
        "A metrics server that is told of a Service or port that is not there.",
    ),
    ("prometheus-unreachable", PROMETHEUS, _W, "A Prometheus that can't be asked from here."),
    ("no-scrape-target", PROMETHEUS, _E, "A Prometheus that does not scrape the agents."),
    ("target-down", PROMETHEUS, _E, "An agent that Prometheus can't scrape."),
    ("no-series", PROMETHEUS, _E, "Agents are scraped, and there are no GPU series."),
    (
        "pod-is-exported-pod",
        PROMETHEUS,
        _E,
        "The workload's pod is in exported_pod, and pod is the agent's: honorLabels is off.",
    ),
    ("old-series", PROMETHEUS, _W, "Series whose last sample is older than two minutes."),
    # Metrics API
    ("no-metrics-api", API, _E, "HPAs ask for an API that nobody serves."),
    ("api-unavailable", API, _E, "An APIService that is not available."),
    ("api-certificate", API, _E, "A server whose certificate the API server does not trust."),
    ("api-certificate-ends", API, _W, "A caBundle that ends within two weeks, or has ended."),
    ("api-not-verified", API, _N, "An APIService that takes any certificate."),
    ("api-of-somebody-else", API, _E, "The custom metrics API is another's beside gpuscale's."),
    ("keda-conflict", API, _E, "KEDA's ScaledObjects, with external metrics served by another."),
    (
        "api-without-metrics",
        API,
        _E,
        "A metrics API that serves no metric: no rules, or no series.",
    ),
    ("hpa-not-allowed", API, _E, "The HPA controller may not read a metric."),
    # Autoscaler
    ("old-api-version", AUTOSCALER, _E, "An HPA whose manifest the cluster refuses from now on."),
    ("no-scale-target", AUTOSCALER, _E, "An HPA of something that is not there."),
    ("no-gpu-request", AUTOSCALER, _W, "Scaled by a GPU metric, and no container asks for a GPU."),
    (
        "no-value",
        AUTOSCALER,
        _E,
        "A metric without a value; told hop by hop where gpuscale serves it.",
    ),
    ("pods-without-value", AUTOSCALER, _W, "Some ready pods have no value."),
    ("old-value", AUTOSCALER, _W, "A value that was measured more than two minutes ago."),
    ("not-scaling", AUTOSCALER, _W, "A condition of the HPA that says it can't scale."),
    ("at-max", AUTOSCALER, _W, "More replicas are wanted than maxReplicas."),
    ("min-is-max", AUTOSCALER, _W, "minReplicas is maxReplicas, so nothing scales."),
    # Capacity
    ("quota-full", CAPACITY, _E, "A ResourceQuota whose GPUs are all used, and more are wanted."),
    ("quota-below-max", CAPACITY, _W, "A ResourceQuota with fewer GPUs than maxReplicas take."),
    ("no-node-autoscaler", CAPACITY, _E, "Pods wait for GPUs, and nothing adds nodes."),
    ("template-without-gpu", CAPACITY, _E, "A node autoscaler that knows of no GPU in its pools."),
    ("autoscaler-unhealthy", CAPACITY, _W, "Cluster Autoscaler says that it is not healthy."),
    (
        "autoscaler-stopped",
        CAPACITY,
        _E,
        "Cluster Autoscaler has written no status for 10 minutes.",
    ),
    ("node-pool-limit", CAPACITY, _E, "A Karpenter NodePool that is at its limit of GPUs."),
    ("pods-wait-long", CAPACITY, _W, "Pods that have waited for GPUs for over 15 minutes."),
)
"""Every check by its id, in the order in which the docs list them."""
