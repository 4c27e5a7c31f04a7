"""How the node agents' series get into Prometheus, and the recording rules: for an operator, or as files."""

from collections.abc import Mapping, Sequence

from gpuscale.core.documents import dump_documents
from gpuscale.install.parts import agent
from gpuscale.install.parts.common import Object, duration, metadata, part_name, selector
from gpuscale.install.parts.rules import RECORDING_FILE, recording_groups
from gpuscale.install.parts.workloads import config_map
from gpuscale.install.values import Values

PART = "monitoring"
_NOT_THE_AGENTS = "pod|container|namespace|endpoint"
"""Labels of the agent's own pod. A GPU that nobody uses has no `pod`, and must not get the agent's."""
MONITORING = "monitoring.coreos.com/v1"


def scraping_objects(
    values: Values, alert_groups: Sequence[Mapping[str, object]] = ()
) -> list[Object]:
    """Return what makes Prometheus scrape the agents and evaluate the rules."""
    groups = rule_groups(values, alert_groups)
    if values.spec.prometheus.kind == "operator":
        return [*_monitors(values), *_prometheus_rules(values, groups)]
    files = {RECORDING_FILE: dump_documents([{"groups": groups}])} if groups else {}
    if values.spec.prometheus.kind == "plain" and values.spec.agent.enabled:
        files["scrape-config.yaml"] = dump_documents([[scrape_config(values)]])
    return [config_map(values, PART, files)] if files else []


def rule_groups(
    values: Values, alert_groups: Sequence[Mapping[str, object]] = ()
) -> list[Mapping[str, object]]:
    """Return all rule groups that Prometheus is to evaluate."""
    spec = values.spec
    recorded = recording_groups(honor_labels=spec.prometheus.honor_labels)
    return [*(recorded if spec.recording_rules else ()), *alert_groups]


def scrape_config(values: Values) -> Object:
    """Return the scrape job of the node agents, for a Prometheus that is configured by a file."""
    spec = values.spec
    component = selector(values, agent.PART)["app.kubernetes.io/component"]
    return {
        "job_name": part_name(values, agent.PART),
        "honor_labels": spec.prometheus.honor_labels,
        "scrape_interval": duration(spec.prometheus.scrape_interval),
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [spec.namespace]}}],
        "relabel_configs": [
            _keep("__meta_kubernetes_pod_label_app_kubernetes_io_component", component),
            _keep("__meta_kubernetes_pod_label_app_kubernetes_io_instance", values.metadata.name),
            _keep("__meta_kubernetes_pod_container_port_name", "metrics"),
            {"source_labels": ["__meta_kubernetes_pod_node_name"], "target_label": "node"},
            {"target_label": "service", "replacement": part_name(values, agent.PART)},
        ],
    }


def _keep(label: str, value: str) -> Object:
    return {"source_labels": [label], "regex": value, "action": "keep"}


def _monitors(values: Values) -> list[Object]:
    if not values.spec.agent.enabled:
        return []
    prometheus = values.spec.prometheus
    interval = duration(prometheus.scrape_interval)
    relabelings: list[Object] = []
    if prometheus.honor_labels:
        relabelings.append({"action": "labeldrop", "regex": _NOT_THE_AGENTS})
    endpoint = {
        "port": "metrics",
        "honorLabels": prometheus.honor_labels,
        "interval": interval,
        "relabelings": relabelings,
    }
    monitor: Object = {
        "apiVersion": MONITORING,
        "kind": "ServiceMonitor",
        "metadata": _selected(values, metadata(values, agent.PART)),
        "spec": {
            "selector": {"matchLabels": selector(values, agent.PART)},
            "namespaceSelector": {"matchNames": [values.spec.namespace]},
            "attachMetadata": {"node": False},
            "endpoints": [endpoint],
        },
    }
    return [monitor]


def _prometheus_rules(values: Values, groups: Sequence[Mapping[str, object]]) -> list[Object]:
    if not groups:
        return []
    return [
        {
            "apiVersion": MONITORING,
            "kind": "PrometheusRule",
            "metadata": _selected(values, metadata(values, PART)),
            "spec": {"groups": list(groups)},
        }
    ]


def _selected(values: Values, found: Object) -> Object:
    release = values.spec.prometheus.release
    if release is None:
        return found
    return {**found, "labels": {**found["labels"], "release": release}}
