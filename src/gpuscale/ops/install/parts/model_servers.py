"""How Prometheus scrapes model servers: the pods of workloads that are scaled on what these serve themselves.

Pods are found by how a workload's pods are called, because values don't know its labels, and by the port that
a container names. So nothing else in the namespace is scraped, and no pod needs an annotation.

Source: the Prometheus Operator's PodMonitor, whose endpoints without a port take every port of a pod; the
labels are those of Prometheus' discovery of pods.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuscale.ops.install.common import Object, duration, metadata, part_name
from gpuscale.ops.install.scale.scale import Scale, Workload
from gpuscale.ops.install.values import Values

PART = "model-servers"
POD_SUFFIX = {"Deployment": "-[a-z0-9]{1,10}-[a-z0-9]{5}", "StatefulSet": "-[0-9]+"}
_META = "__meta_kubernetes"


@dataclass(frozen=True, slots=True)
class MetricsPort:
    """One port of a workload's pods that serves metrics."""

    workload: Workload
    port: int
    path: str

    @property
    def pods(self) -> str:
        """An expression of the names of its pods."""
        return f"{self.workload.name.replace('.', '[.]')}{POD_SUFFIX[self.workload.kind]}"


def served(values: Values) -> list[MetricsPort]:
    """Return what has to be scraped of the workloads, each once."""
    return list(dict.fromkeys(each for scale in values.spec.scale for each in _of(scale)))


def _of(scale: Scale) -> Iterator[MetricsPort]:
    for signal in scale.signals:
        if signal.kind == "pods" and signal.family.port:
            port = scale.metrics_port or signal.family.port
            yield MetricsPort(scale.workload, port, signal.family.path)


def namespaces(values: Values) -> list[str]:
    """Return where the workloads are."""
    return list(dict.fromkeys(each.workload.namespace for each in served(values)))


def server_monitors(values: Values) -> list[Object]:
    """Return the PodMonitor of the workloads; none where none of them is scaled on what it serves."""
    found = served(values)
    if not found:
        return []
    interval = duration(values.spec.prometheus.scrape_interval)
    endpoints = [
        {
            "path": each.path,
            "interval": interval,
            "relabelings": [
                {"sourceLabels": [source], "regex": regex, "action": "keep"}
                for source, regex in _kept(each)
            ],
        }
        for each in found
    ]
    return [
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PodMonitor",
            "metadata": metadata(values, PART),
            "spec": {
                "selector": {},
                "namespaceSelector": {"matchNames": namespaces(values)},
                "podMetricsEndpoints": endpoints,
            },
        }
    ]


def server_jobs(values: Values) -> list[Object]:
    """Return the scrape jobs of the workloads, for a Prometheus that is configured by a file."""
    return [
        {
            "job_name": f"{part_name(values, PART)}-{index}",
            "scrape_interval": duration(values.spec.prometheus.scrape_interval),
            "metrics_path": each.path,
            "kubernetes_sd_configs": [
                {"role": "pod", "namespaces": {"names": [each.workload.namespace]}}
            ],
            "relabel_configs": [
                *(
                    {"source_labels": [source], "regex": regex, "action": "keep"}
                    for source, regex in _kept(each)
                ),
                {"source_labels": [f"{_META}_namespace"], "target_label": "namespace"},
                {"source_labels": [f"{_META}_pod_name"], "target_label": "pod"},
                {"source_labels": [f"{_META}_pod_node_name"], "target_label": "node"},
            ],
        }
        for index, each in enumerate(served(values), start=1)
    ]


def _kept(served_port: MetricsPort) -> list[tuple[str, str]]:
    """Return the labels of discovery that select a port, and what they have to be."""
    return [
        (f"{_META}_namespace", served_port.workload.namespace),
        (f"{_META}_pod_name", served_port.pods),
        (f"{_META}_pod_container_port_number", str(served_port.port)),
    ]


def server_rights(values: Values, subject: Object) -> list[Object]:
    """Return what lets the installation's own Prometheus see the pods of other namespaces."""
    group = "rbac.authorization.k8s.io"
    found: list[Object] = []
    for namespace in namespaces(values):
        if namespace == values.spec.namespace:
            continue
        made = metadata(values, PART, namespace=namespace)
        pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
        role = {"apiGroup": group, "kind": "Role", "name": made["name"]}
        found += [
            {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": made, "rules": [pods]},
            {
                "apiVersion": f"{group}/v1",
                "kind": "RoleBinding",
                "metadata": made,
                "roleRef": role,
                "subjects": [subject],
            },
        ]
    return found
