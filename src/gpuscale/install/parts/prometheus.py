"""A small Prometheus of the installation's own, for clusters that have none: it keeps what scaling needs."""

from gpuscale.core.documents import dump_documents
from gpuscale.install.parts import scraping
from gpuscale.install.parts.common import (
    USER_ID,
    Object,
    duration,
    http_probe,
    metadata,
    part_name,
    restrained,
    service_account,
)
from gpuscale.install.parts.rules import RECORDING_FILE
from gpuscale.install.parts.workloads import config_map, service, workload
from gpuscale.install.values import Values

PART = "prometheus"
PORT = 9090
_RBAC = "rbac.authorization.k8s.io"


def address(values: Values) -> str:
    """Return the address of Prometheus as pods see it."""
    found = values.spec.prometheus
    own = f"http://{part_name(values, PART)}.{values.spec.namespace}.svc:{PORT}"
    return found.url if found.kind != "own" and found.url is not None else own


def prometheus_objects(values: Values) -> list[Object]:
    """Return the objects of the installation's own Prometheus; none where another is used."""
    if values.spec.prometheus.kind != "own":
        return []
    return [
        service_account(values, PART),
        *_rights(values),
        _configuration(values),
        service(values, PART, "http", PORT),
        _deployment(values),
    ]


def _rights(values: Values) -> list[Object]:
    name = part_name(values, PART)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": values.spec.namespace}
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
    ]


def _configuration(values: Values) -> Object:
    found: Object = {
        "global": {"scrape_interval": duration(values.spec.prometheus.scrape_interval)},
        "rule_files": [f"/etc/prometheus/rules/{RECORDING_FILE}"],
        "scrape_configs": [scraping.scrape_config(values)] if values.spec.agent.enabled else [],
    }
    return config_map(values, PART, {"prometheus.yml": dump_documents([found])})


def _deployment(values: Values) -> Object:
    pod = {
        "serviceAccountName": part_name(values, PART),
        "automountServiceAccountToken": True,
        "securityContext": {"fsGroup": USER_ID},
        "containers": [_container(values)],
        "volumes": _volumes(values),
    }
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
        "startupProbe": http_probe("/-/ready", "http", periodSeconds=1, failureThreshold=120),
        "livenessProbe": http_probe("/-/healthy", "http", periodSeconds=10, timeoutSeconds=5),
        "readinessProbe": http_probe("/-/ready", "http", periodSeconds=5, timeoutSeconds=5),
        "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": restrained(),
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/prometheus/config", "readOnly": True},
            {"name": "rules", "mountPath": "/etc/prometheus/rules", "readOnly": True},
            {"name": "data", "mountPath": "/prometheus"},
        ],
    }


def _volumes(values: Values) -> list[Object]:
    rules = {"name": part_name(values, scraping.PART), "optional": True}
    return [
        {"name": "config", "configMap": {"name": part_name(values, PART)}},
        {"name": "rules", "configMap": rules},
        {"name": "data", "emptyDir": {"sizeLimit": "2Gi"}},
    ]
