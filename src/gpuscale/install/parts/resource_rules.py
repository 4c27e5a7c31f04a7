"""The rules of `metrics.k8s.io`: CPU and memory of containers and nodes, from the kubelets' cAdvisor series.

Source: kubelet's /metrics/cadvisor (google/cadvisor metrics/prometheus.go): `id="/"` is the whole node.
"""

from typing import Literal

from gpuscale.install.common import Object

RESOURCE_RULE_FILE = "resource-rules.yaml"
_CONTAINER = '<<.LabelMatchers>>,container!="",container!="POD",pod!=""'
"""Without the sums over a pod and the container that holds its network."""
_NODE = '<<.LabelMatchers>>,id="/"'
_WINDOW = "3m"
"""Two samples are in it where the kubelets are scraped every minute, and one scrape fails."""
_NODE_LABELS = {"operator": "node", "own": "node", "plain": "instance"}
"""What holds a node's name: the operator's kubelet Service gives `node`, discovery of nodes `instance`."""


def resource_rules(kind: Literal["own", "operator", "plain"]) -> Object:
    """Return the rules for a kind of Prometheus, as prometheus-adapter reads them."""
    cpu, memory = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
    labels = {"namespace": "namespace", "pod": "pod", _NODE_LABELS[kind]: "node"}
    overrides = {label: {"resource": resource} for label, resource in labels.items()}
    return {
        "resourceRules": {
            "cpu": {
                "containerQuery": _sum(f"rate({cpu}{{{_CONTAINER}}}[{_WINDOW}])"),
                "nodeQuery": _sum(f"rate({cpu}{{{_NODE}}}[{_WINDOW}])"),
                "resources": {"overrides": overrides},
                "containerLabel": "container",
            },
            "memory": {
                "containerQuery": _sum(f"{memory}{{{_CONTAINER}}}"),
                "nodeQuery": _sum(f"{memory}{{{_NODE}}}"),
                "resources": {"overrides": overrides},
                "containerLabel": "container",
            },
            "window": _WINDOW,
        }
    }


def _sum(query: str) -> str:
    return f"sum({query}) by (<<.GroupBy>>)"
