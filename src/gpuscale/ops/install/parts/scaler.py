"""The scaler that KEDA asks: replicas behind a headless Service, which share what they decided last.

KEDA's fallback does not apply while no scaler can be reached (kedacore/keda#8056), so there are two, on
different nodes, and KEDA's client spreads its calls over their addresses.
"""

from gpuscale.ops.install.common import (
    SCALER,
    USER_ID,
    WHILE_STARTING,
    Object,
    agent_service,
    cluster_metadata,
    held_config_map,
    http_probe,
    image_reference,
    part_name,
    restrained,
    service_accounts,
)
from gpuscale.ops.install.parts import agent_access, prometheus, prometheus_access
from gpuscale.ops.install.parts.api_pods import APART, ROLLING, disruption_budget
from gpuscale.ops.install.parts.api_rights import READS, agent_finding, held_objects
from gpuscale.ops.install.parts.api_sources import RULES, pod_scraping, store_bounds
from gpuscale.ops.install.parts.pods import pod_spec
from gpuscale.ops.install.parts.rules import PART as RULES_PART
from gpuscale.ops.install.parts.rules import RULE_FILE
from gpuscale.ops.install.parts.workloads import binding, service, workload
from gpuscale.ops.install.pods import max_series
from gpuscale.ops.install.values import Values

PART = SCALER
METRICS_PORT = 8080
_TLS = "/etc/gpuscale/tls"


def scaler_objects(values: Values) -> list[Object]:
    """Return all of the scaler; none where KEDA asks none."""
    if not values.spec.asks_scaler:
        return []
    return [
        *service_accounts(values, PART),
        *_rights(values),
        *held_objects(values, PART),
        _service(values),
        _deployment(values),
        disruption_budget(values, PART),
    ]


def _rights(values: Values) -> list[Object]:
    name = part_name(values, "scaler-objects")
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": cluster_metadata(values, PART, name=name),
            "rules": list(READS),
        },
        binding(values, PART, name, name),
        *(agent_finding(values, PART) if values.spec.has_streams else ()),
    ]


def _service(values: Values) -> Object:
    found = service(values, PART, "grpc", values.spec.scaler.port)
    # Headless: KEDA sees both replicas, and asks the other one when one is gone.
    found["spec"]["clusterIP"] = "None"
    found["spec"]["ports"].append(
        {"name": "metrics", "port": METRICS_PORT, "targetPort": "metrics"}
    )
    return found


def _deployment(values: Values) -> Object:
    pod = pod_spec(
        values,
        PART,
        _container(values),
        needs_token=True,
        spread=[APART],
        volumes=[
            {"name": "rules", "configMap": {"name": part_name(values, RULES_PART)}},
            *_tls_volumes(values),
            *prometheus_access.volumes(values),
            *agent_access.volumes(values),
        ],
        security={"fsGroup": USER_ID},
    )
    replicas = values.spec.scaler.replicas
    return workload(values, "Deployment", PART, pod, replicas=replicas, strategy=ROLLING)


def _tls_volumes(values: Values) -> list[Object]:
    name = values.spec.scaler.tls_secret
    if name is None:
        return []
    return [{"name": "tls", "secret": {"secretName": name, "defaultMode": 0o440}}]


def _container(values: Values) -> Object:
    image = values.spec.image
    has_tls = values.spec.scaler.tls_secret is not None
    tls = {"name": "tls", "mountPath": _TLS, "readOnly": True}
    return {
        "name": "scaler",
        "image": image_reference(image),
        "imagePullPolicy": image.pull_policy,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "args": arguments(values),
        "ports": [
            {"name": "grpc", "containerPort": values.spec.scaler.port},
            {"name": "metrics", "containerPort": METRICS_PORT},
        ],
        "startupProbe": {**http_probe("/healthz", "metrics"), **WHILE_STARTING},
        "livenessProbe": http_probe("/healthz", "metrics", periodSeconds=10, timeoutSeconds=5),
        "readinessProbe": http_probe("/readyz", "metrics", periodSeconds=5, timeoutSeconds=5),
        "securityContext": restrained(),
        "volumeMounts": [
            {"name": "rules", "mountPath": RULES, "readOnly": True},
            *([tls] if has_tls else ()),
            *prometheus_access.mounts(values),
            *agent_access.mounts(values),
        ],
        "env": [*prometheus_access.environment(values), *agent_access.environment(values)],
    }


def arguments(values: Values) -> list[str]:
    """Return the scaler's arguments."""
    spec = values.spec
    return [
        "scaler",
        f"--config={RULES}/{RULE_FILE}",
        *(["--preset=on"] if spec.metrics_api.preset and not spec.scrapes_pods else ()),
        *_source_arguments(values),
        f"--port={spec.scaler.port}",
        f"--metrics-port={METRICS_PORT}",
        *_tls_arguments(values),
        f"--held-configmap={spec.namespace}/{held_config_map(values, PART)}",
    ]


def _source_arguments(values: Values) -> list[str]:
    if not values.spec.has_streams:
        return [
            f"--prometheus-url={prometheus.address(values)}",
            *prometheus_access.arguments(values),
        ]
    return [
        "--source=streams",
        f"--agent-service={values.spec.namespace}/{agent_service(values)}",
        *agent_access.arguments(values),
        *store_bounds(max_series(values.spec.scaler.resources)),
        *pod_scraping(values),
    ]


def _tls_arguments(values: Values) -> list[str]:
    scaler = values.spec.scaler
    if scaler.tls_secret is None:
        return []
    client = [f"--client-ca-file={_TLS}/ca.crt"] if scaler.client_certificates else []
    return [
        f"--tls-cert-file={_TLS}/tls.crt",
        f"--tls-private-key-file={_TLS}/tls.key",
        *client,
    ]
