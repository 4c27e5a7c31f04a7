"""The pods of the metrics API: replicas of one server, its arguments, and the files that it gets."""

import re
from pathlib import Path

from gpuscale.ops.install.common import (
    METRICS_API,
    USER_ID,
    WHILE_STARTING,
    Object,
    api_service_names,
    has_api_pods,
    held_config_map,
    http_probe,
    image_reference,
    metadata,
    metrics_api_secret,
    part_name,
    renews_certificate,
    restrained,
    selector,
)
from gpuscale.ops.install.parts import agent_access, prometheus_access
from gpuscale.ops.install.parts.api_sources import (
    REMOTE_WRITE,
    RULES,
    SAMPLES,
    TLS,
    alertmanager_secrets,
    source_arguments,
)
from gpuscale.ops.install.parts.pods import pod_spec
from gpuscale.ops.install.parts.rules import (
    RESOURCE_RULE_FILE,
    RULE_FILE,
    TRIGGER_FILE,
)
from gpuscale.ops.install.parts.workloads import workload
from gpuscale.ops.install.values import Values

PART = METRICS_API
PORT = 6443
_FEDERATION = "/etc/gpuscale/federation"
ROLLING: Object = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
APART: Object = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
}
_QUANTITY = re.compile("([0-9]+)([MG]i)")


def metrics_api_pods(values: Values) -> list[Object]:
    """Return the metrics API's Deployment and its disruption budget; none where it runs elsewhere."""
    if not has_api_pods(values):
        return []
    return [_deployment(values), disruption_budget(values, PART)]


def _deployment(values: Values) -> Object:
    # A new one answers before an old one goes: the HPA is never without an answer.
    replicas = values.spec.metrics_api.replicas
    pod = _pod_spec(values)
    return workload(values, "Deployment", PART, pod, replicas=replicas, strategy=ROLLING)


def _pod_spec(values: Values) -> Object:
    return pod_spec(
        values,
        PART,
        _container(values),
        needs_token=True,
        spread=[APART],
        volumes=[
            {"name": "rules", "configMap": {"name": part_name(values, PART)}},
            _certificate_volume(values),
            *_federation_volumes(values),
            *_store_volumes(values),
            *prometheus_access.volumes(values),
            *agent_access.volumes(values),
        ],
        security={"fsGroup": USER_ID},
    )


def _container(values: Values) -> Object:
    image = values.spec.image
    return {
        "name": "metrics-api",
        "image": image_reference(image),
        "imagePullPolicy": image.pull_policy,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "args": arguments(values),
        "ports": [{"name": "https", "containerPort": PORT}],
        "startupProbe": _probe("/livez", **WHILE_STARTING),
        "livenessProbe": _probe("/livez", periodSeconds=10, timeoutSeconds=5),
        "readinessProbe": _probe("/readyz", periodSeconds=5, timeoutSeconds=5),
        "securityContext": restrained(),
        "volumeMounts": [
            # Folders, so that changed rules and renewed certificates arrive without a restart.
            {"name": "rules", "mountPath": RULES, "readOnly": True},
            {"name": "tls", "mountPath": TLS, **_read_only(values)},
            *(
                {"name": each["name"], "mountPath": _FEDERATION, "readOnly": True}
                for each in _federation_volumes(values)
            ),
            *_store_mounts(values),
            *prometheus_access.mounts(values),
            *agent_access.mounts(values),
        ],
        "env": [
            *_store_environment(values),
            *prometheus_access.environment(values),
            *agent_access.environment(values),
        ],
    }


def _certificate_volume(values: Values) -> Object:
    if renews_certificate(values):
        # The server's own copy, for a start while the API server does not answer.
        return {"name": "tls", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
    secret = {"secretName": metrics_api_secret(values), "defaultMode": 0o440}
    return {"name": "tls", "secret": secret}


def _federation_volumes(values: Values) -> list[Object]:
    items = [
        {"key": f"{each.name}.crt", "path": f"{each.name}/ca.crt"}
        for each in values.spec.metrics_api.federate
        if each.ca_bundle
    ]
    cas = {"name": part_name(values, "metrics-api-federation"), "items": items}
    return [{"name": "federation", "configMap": cas}] if items else []


def _read_only(values: Values) -> Object:
    return {} if renews_certificate(values) else {"readOnly": True}


def _store_volumes(values: Values) -> list[Object]:
    """Return where samples are saved and what says where to send them; both are there with streams alone."""
    if not values.spec.has_streams:
        return []
    api = values.spec.metrics_api
    return [
        # As long as the pod is there, and on its node: replicas have all samples anyway.
        {"name": "samples", "emptyDir": {"sizeLimit": volume_size(api.store_size)}},
        {
            "name": "remote-write",
            "secret": {
                "secretName": api.remote_write_secret,
                "optional": True,
                "defaultMode": 0o440,
            },
        },
        *(
            {"name": Path(folder).name, "secret": {"secretName": secret, "defaultMode": 0o440}}
            for folder, secret in alertmanager_secrets(values)
        ),
    ]


def volume_size(store_size: str) -> str:
    """Return the limit of the volume of a store.

    Twice the store's own: a pod beyond its limit is evicted, and file systems take whole blocks.
    """
    found = _QUANTITY.fullmatch(store_size)
    if found is None:
        raise ValueError(f"found {store_size!r}, expected a quantity such as 1Gi")
    return f"{2 * int(found[1])}{found[2]}"


def _store_mounts(values: Values) -> list[Object]:
    if not values.spec.has_streams:
        return []
    return [
        {"name": "samples", "mountPath": SAMPLES},
        {"name": "remote-write", "mountPath": REMOTE_WRITE, "readOnly": True},
        *(
            {"name": Path(folder).name, "mountPath": folder, "readOnly": True}
            for folder, _ in alertmanager_secrets(values)
        ),
    ]


def _store_environment(values: Values) -> list[Object]:
    if not values.spec.has_streams:
        return []
    return [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]


def arguments(values: Values) -> list[str]:
    """Return the server's arguments."""
    api = values.spec.metrics_api
    return [
        "metrics-api",
        # Before the other, so that a user's own resourceRules are taken instead.
        *([f"--config={RULES}/{RESOURCE_RULE_FILE}"] if api.resource else ()),
        f"--config={RULES}/{RULE_FILE}",
        *([f"--rules-configmaps={api.rules_config_maps}"] if api.rules_config_maps else ()),
        *(["--preset=on"] if api.preset and not values.spec.scrapes_pods else ()),
        *(f"--federate={each.flag()}" for each in api.federate),
        *_trigger_arguments(values),
        *source_arguments(values),
        f"--secure-port={PORT}",
        *_certificate_arguments(values),
        # A new workload's metrics are there within seconds, and stay while it has no pods for a moment.
        "--metrics-relist-interval=15s",
        "--metrics-max-age=10m",
    ]


def _trigger_arguments(values: Values) -> list[str]:
    if not values.spec.serves_triggers:
        return []
    held = f"{values.spec.namespace}/{held_config_map(values, PART)}"
    return [f"--triggers={RULES}/{TRIGGER_FILE}", f"--held-configmap={held}"]


def _certificate_arguments(values: Values) -> list[str]:
    if not renews_certificate(values):
        return [f"--tls-cert-file={TLS}/tls.crt", f"--tls-private-key-file={TLS}/tls.key"]
    return [
        f"--cert-dir={TLS}",
        f"--tls-secret={values.spec.namespace}/{metrics_api_secret(values)}",
        f"--tls-secret-apiservices={','.join(api_service_names(values))}",
        f"--service-name={part_name(values, PART)}",
        f"--service-namespace={values.spec.namespace}",
    ]


def _probe(path: str, **periods: int) -> Object:
    return http_probe(path, "https", scheme="HTTPS", **periods)


def disruption_budget(values: Values, part: str) -> Object:
    """Return the budget of a part's replicas."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(values, part),
        "spec": {
            # One at a time, which also lets a single replica move.
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(values, part)},
        },
    }
