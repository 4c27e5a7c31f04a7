"""A small Prometheus of the installation's own, for clusters that have none: it keeps what scaling needs."""

from gpuscale.base.documents.documents import dump_documents
from gpuscale.ops.install.common import (
    PROMETHEUS,
    USER_ID,
    WHILE_STARTING,
    Object,
    account_name,
    cluster_metadata,
    duration,
    has_api_pods,
    http_probe,
    metadata,
    metrics_api_secret,
    part_name,
    restrained,
    service_accounts,
)
from gpuscale.ops.install.parts import agent_access, model_servers, scraping
from gpuscale.ops.install.parts.pods import pod_spec
from gpuscale.ops.install.parts.workloads import config_map, service, workload
from gpuscale.ops.install.values import Values

PART = PROMETHEUS
PORT = 9090
_RBAC = "rbac.authorization.k8s.io"


def address(values: Values) -> str:
    """Return the address of Prometheus as pods see it."""
    found = values.spec.prometheus
    own = f"http://{part_name(values, PART)}.{values.spec.namespace}.svc:{PORT}"
    return found.url if found.kind != "own" and found.url is not None else own


def prometheus_objects(values: Values) -> list[Object]:
    """Return the objects of the installation's own Prometheus; none where another is used, or none."""
    if not values.spec.has_own_prometheus:
        return []
    return [
        *service_accounts(values, PART),
        *_rights(values),
        _configuration(values),
        service(values, PART, "http", PORT),
        _deployment(values),
    ]


def _rights(values: Values) -> list[Object]:
    name = part_name(values, PART)
    account = account_name(values, PART)
    subject = {"kind": "ServiceAccount", "name": account, "namespace": values.spec.namespace}
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": metadata(values, PART),
            "rules": [
                {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
            ],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata(values, PART),
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": [subject],
        },
        *(_api_rights(values, subject) if has_api_pods(values) else ()),
        *([] if values.spec.has_streams else model_servers.server_rights(values, subject)),
    ]


def _api_rights(values: Values, subject: Object) -> list[Object]:
    """Return what the metrics API asks of its scrapers."""
    name = part_name(values, "prometheus-metrics")
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": cluster_metadata(values, PART, name=name),
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": cluster_metadata(values, PART, name=name),
            "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        },
    ]


def _configuration(values: Values) -> Object:
    found: Object = {
        "global": {"scrape_interval": duration(values.spec.prometheus.scrape_interval)},
        "rule_files": ["/etc/prometheus/rules/*.yaml"],
        "scrape_configs": scraping.scrape_configs(values),
    }
    return config_map(values, PART, {"prometheus.yml": dump_documents([found])})


def _deployment(values: Values) -> Object:
    pod = pod_spec(
        values,
        PART,
        _container(values),
        needs_token=True,
        volumes=_volumes(values),
        security={"fsGroup": USER_ID},
    )
    return workload(values, "Deployment", PART, pod, replicas=1)


def _container(values: Values) -> Object:
    return {
        "name": "prometheus",
        "image": values.spec.prometheus.image,
        "args": [
            "--config.file=/etc/prometheus/config/prometheus.yml",
            "--storage.tsdb.path=/prometheus",
            "--storage.tsdb.retention.time=1d",
            "--storage.tsdb.retention.size=1500MB",
            # Changed configuration and rules are taken without a restart, which would lose the series.
            "--enable-feature=auto-reload-config",
        ],
        "ports": [{"name": "http", "containerPort": PORT}],
        "startupProbe": {**http_probe("/-/ready", "http"), **WHILE_STARTING},
        "livenessProbe": http_probe("/-/healthy", "http", periodSeconds=10, timeoutSeconds=5),
        "readinessProbe": http_probe("/-/ready", "http", periodSeconds=5, timeoutSeconds=5),
        "securityContext": restrained(),
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/prometheus/config", "readOnly": True},
            {"name": "rules", "mountPath": "/etc/prometheus/rules", "readOnly": True},
            {"name": "data", "mountPath": "/prometheus"},
            *_api_mounts(values),
            *agent_access.prometheus_mounts(values),
        ],
    }


def _volumes(values: Values) -> list[Object]:
    rules = {"name": part_name(values, scraping.PART), "optional": True}
    return [
        {"name": "config", "configMap": {"name": part_name(values, PART)}},
        {"name": "rules", "configMap": rules},
        {"name": "data", "emptyDir": {"sizeLimit": "2Gi"}},
        *_api_volumes(values),
        *agent_access.prometheus_volumes(values),
    ]


def _api_mounts(values: Values) -> list[Object]:
    mount = {
        "name": "metrics-api-ca",
        "mountPath": scraping.API_CA_FOLDER,
        "readOnly": True,
    }
    return [mount] if has_api_pods(values) else []


def _api_volumes(values: Values) -> list[Object]:
    if not has_api_pods(values):
        return []
    # The CA alone: the Secret has the server's key too. cert-manager may make it later than this pod.
    secret = {
        "secretName": metrics_api_secret(values),
        "optional": True,
        "items": [{"key": "ca.crt", "path": "ca.crt"}],
    }
    return [{"name": "metrics-api-ca", "secret": secret}]
