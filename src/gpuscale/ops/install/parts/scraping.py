"""How the installation's series get into Prometheus, and its rules: for an operator, or as files."""

from gpuscale.base.documents.documents import dump_documents
from gpuscale.ops.install.alerts.groups import alert_groups, alert_settings
from gpuscale.ops.install.common import (
    METRICS_API,
    NODE_AGENT,
    SCALER,
    Object,
    agent_service,
    duration,
    has_api_pods,
    metadata,
    metrics_api_secret,
    part_name,
    selector,
)
from gpuscale.ops.install.parts import agent, agent_access
from gpuscale.ops.install.parts.model_servers import server_jobs, server_monitors
from gpuscale.ops.install.parts.rules import ALERTS_FILE, RECORDING_FILE, recording_groups
from gpuscale.ops.install.parts.workloads import config_map
from gpuscale.ops.install.values import Values

PART = "monitoring"
_NOT_THE_AGENTS = "pod|container|namespace|endpoint"
"""Labels of the agent's own pod. An unallocated GPU has no `pod`, and must not get the agent's."""
_NODE_NAME = "__meta_kubernetes_pod_node_name"
MONITORING = "monitoring.coreos.com/v1"
_AZURES = "azmonitoring.coreos.com/v1"
_AZURES_LIMITS: Object = {
    "labelLimit": 63,
    "labelNameLengthLimit": 511,
    "labelValueLengthLimit": 1023,
}
"""Without these of its templates, AKS' managed Prometheus may drop a monitor's series (Microsoft, "Create and
apply Pod and Service Monitors")."""
API_CA_FOLDER = "/etc/prometheus/metrics-api-ca"
"""Where the installation's own Prometheus has the metrics API's CA."""
_TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path


def scraping_objects(values: Values) -> list[Object]:
    """Return what makes Prometheus scrape the installation and evaluate the rules."""
    if values.spec.prometheus.kind == "operator":
        return [*_monitors(values), *_prometheus_rules(values)]
    if values.spec.prometheus.kind == "azure":
        # Rules of a workspace are resources of Azure; no object of the cluster makes one.
        rules = rule_texts(values)
        return [*_monitors(values), *([config_map(values, PART, rules)] if rules else ())]
    if values.spec.prometheus.kind == "own" and not values.spec.has_own_prometheus:
        return []
    files = rule_texts(values)
    jobs = scrape_configs(values)
    if values.spec.prometheus.kind == "plain" and jobs:
        files["scrape-config.yaml"] = dump_documents([jobs])
    return [config_map(values, PART, files)] if files else []


def rule_texts(values: Values) -> dict[str, str]:
    """Return the rule files that Prometheus is to evaluate, by name."""
    groups = _rule_groups(values)
    return {name: dump_documents([{"groups": found}]) for name, found in groups.items()}


def _rule_groups(values: Values) -> dict[str, list[Object]]:
    spec = values.spec
    found = {}
    if spec.recording_rules:
        found[RECORDING_FILE] = recording_groups(honor_labels=spec.prometheus.honor_labels)
    if spec.alerts.enabled:
        found[ALERTS_FILE] = alert_groups(alert_settings(values))
    return found


def scrape_configs(values: Values) -> list[Object]:
    """Return the scrape jobs, for a Prometheus that is configured by a file."""
    agents = [_agent_job(values)] if values.spec.agent.enabled else []
    return [
        *agents,
        *([_azure_job(values)] if agents and values.spec.agent.azure_metrics else ()),
        *([_api_job(values)] if has_api_pods(values) else ()),
        *([_scaler_job(values)] if values.spec.asks_scaler else ()),
        *([] if values.spec.has_streams else server_jobs(values)),
    ]


def _scaler_job(values: Values) -> Object:
    return {"job_name": part_name(values, SCALER), **_pods(values, SCALER, "metrics")}


def _service_of(values: Values, part: str) -> str:
    return agent_service(values) if part == NODE_AGENT else part_name(values, part)


def _agent_job(values: Values) -> Object:
    pods = _pods(values, NODE_AGENT, "metrics")
    # An agent that takes another's place goes on with its series. As series of their own, both would count
    # in sums until those of the old one are marked as ended, two scrapes later.
    pods["relabel_configs"].append({"source_labels": [_NODE_NAME], "target_label": "instance"})
    return {
        "job_name": part_name(values, NODE_AGENT),
        "honor_labels": values.spec.prometheus.honor_labels,
        **agent_access.scrape_settings(values),
        **pods,
    }


def _azure_job(values: Values) -> Object:
    name = f"{part_name(values, NODE_AGENT)}-azure"
    return {**_agent_job(values), "job_name": name, "metrics_path": agent.AZURE_PAGE}


def _api_job(values: Values) -> Object:
    return {
        "job_name": part_name(values, METRICS_API),
        "scheme": "https",
        # Who scrapes needs the right to get /metrics, and says who it is by its service account.
        "authorization": {"credentials_file": _TOKEN_FILE},
        "tls_config": _api_tls(values),
        **_pods(values, METRICS_API, "https"),
    }


def _api_tls(values: Values) -> Object:
    if values.spec.prometheus.kind == "own":
        return {"ca_file": f"{API_CA_FOLDER}/ca.crt", "server_name": _api_host(values)}
    # Only a Prometheus of the installation's own has the CA at hand.
    return {"insecure_skip_verify": True}


def _api_host(values: Values) -> str:
    return f"{part_name(values, METRICS_API)}.{values.spec.namespace}.svc"


def _pods(values: Values, part: str, port: str) -> Object:
    spec = values.spec
    component = selector(values, part)["app.kubernetes.io/component"]
    return {
        "scrape_interval": duration(spec.prometheus.scrape_interval),
        "kubernetes_sd_configs": [{"role": "pod", "namespaces": {"names": [spec.namespace]}}],
        "relabel_configs": [
            _keep("__meta_kubernetes_pod_label_app_kubernetes_io_component", component),
            _keep("__meta_kubernetes_pod_label_app_kubernetes_io_instance", values.metadata.name),
            _keep("__meta_kubernetes_pod_container_port_name", port),
            {"source_labels": [_NODE_NAME], "target_label": "node"},
            {"target_label": "service", "replacement": _service_of(values, part)},
        ],
    }


def _keep(label: str, value: str) -> Object:
    return {"source_labels": [label], "regex": value, "action": "keep"}


def _monitors(values: Values) -> list[Object]:
    agents = [_agent_monitor(values)] if values.spec.agent.enabled else []
    # The metrics API wants the right to get /metrics, which AKS' scraper does not have.
    is_azures = values.spec.prometheus.kind == "azure"
    return [
        *agents,
        *([_api_monitor(values)] if has_api_pods(values) and not is_azures else ()),
        *([_monitor(values, SCALER, {"port": "metrics"})] if values.spec.asks_scaler else ()),
        *([] if values.spec.has_streams else _server_monitors(values)),
    ]


def _server_monitors(values: Values) -> list[Object]:
    return [
        _monitored(values, {**each, "metadata": _selected(values, each["metadata"])})
        for each in server_monitors(values)
    ]


def _agent_monitor(values: Values) -> Object:
    prometheus = values.spec.prometheus
    # As in a scrape job: the series of a node go on whichever pod the agent is.
    relabelings: list[Object] = [{"sourceLabels": [_NODE_NAME], "targetLabel": "instance"}]
    if prometheus.honor_labels:
        relabelings.append({"action": "labeldrop", "regex": _NOT_THE_AGENTS})
    endpoint = {
        "port": "metrics",
        "honorLabels": prometheus.honor_labels,
        **agent_access.endpoint_settings(values),
        "relabelings": relabelings,
    }
    # Its targets have the same labels, so what both have, such as `up`, needs another.
    path: Object = {"targetLabel": "metrics_path", "replacement": agent.AZURE_PAGE}
    azure = {**endpoint, "path": agent.AZURE_PAGE, "relabelings": [*relabelings, path]}
    return _monitor(
        values, NODE_AGENT, endpoint, *([azure] if values.spec.agent.azure_metrics else ())
    )


def _api_monitor(values: Values) -> Object:
    secret = {"name": metrics_api_secret(values), "key": "ca.crt"}
    endpoint = {
        "port": "https",
        "scheme": "https",
        # Prometheus' own; the operator's charts give it the right to get /metrics.
        "bearerTokenFile": _TOKEN_FILE,
        "tlsConfig": {"ca": {"secret": secret}, "serverName": _api_host(values)},
    }
    return _monitor(values, METRICS_API, endpoint)


def _monitor(values: Values, part: str, *endpoints: Object) -> Object:
    interval = duration(values.spec.prometheus.scrape_interval)
    found = {
        "apiVersion": MONITORING,
        "kind": "ServiceMonitor",
        "metadata": _selected(values, metadata(values, part)),
        "spec": {
            "selector": {"matchLabels": selector(values, part)},
            "namespaceSelector": {"matchNames": [values.spec.namespace]},
            "attachMetadata": {"node": False},
            "endpoints": [{**each, "interval": interval} for each in endpoints],
        },
    }
    return _monitored(values, found)


def _monitored(values: Values, monitor: Object) -> Object:
    """Return a monitor as the Prometheus takes it that is there."""
    if values.spec.prometheus.kind != "azure":
        return monitor
    return {**monitor, "apiVersion": _AZURES, "spec": {**monitor["spec"], **_AZURES_LIMITS}}


def _prometheus_rules(values: Values) -> list[Object]:
    groups = [group for found in _rule_groups(values).values() for group in found]
    if not groups:
        return []
    return [
        {
            "apiVersion": MONITORING,
            "kind": "PrometheusRule",
            "metadata": _selected(values, metadata(values, PART)),
            "spec": {"groups": groups},
        }
    ]


def _selected(values: Values, found: Object) -> Object:
    release = values.spec.prometheus.release
    if release is None:
        return found
    return {**found, "labels": {**found["labels"], "release": release}}
