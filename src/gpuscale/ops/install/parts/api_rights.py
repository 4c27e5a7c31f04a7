"""What the metrics API may do in a cluster, and what others may ask it for."""

from gpuscale.ops.install.common import (
    METRICS_API,
    Object,
    api_service_names,
    cluster_metadata,
    has_api_pods,
    held_config_map,
    metadata,
    metrics_api_secret,
    part_name,
    renews_certificate,
)
from gpuscale.ops.install.parts.workloads import account_subject, binding, bound
from gpuscale.ops.install.values import Values
from gpuscale.server.sources.otlp.settings import PATH as OTLP_PATH

PART = METRICS_API
_RBAC = "rbac.authorization.k8s.io"
READS: tuple[Object, ...] = (
    {
        "apiGroups": [""],
        "resources": ["pods", "nodes", "namespaces", "services"],
        "verbs": ["get", "list", "watch"],
    },
    {
        "apiGroups": ["apps"],
        "resources": ["deployments", "statefulsets"],
        "verbs": ["get", "list", "watch"],
    },
)
"""What it takes to know whose a value is."""


def server_rights(values: Values) -> list[Object]:
    """Return the rights of the metrics API and of those who ask it."""
    api = values.spec.metrics_api
    team_rules = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
    objects = part_name(values, "metrics-api-objects")
    return [
        binding(values, PART, part_name(values, "metrics-api-delegator"), "system:auth-delegator"),
        _auth_reader(values),
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": cluster_metadata(values, PART, name=objects),
            "rules": [*READS, *([team_rules] if api.rules_config_maps else ())],
        },
        binding(values, PART, objects, objects),
        *(agent_finding(values, PART) if values.spec.has_streams else ()),
        *(_peer_reading(values) if values.spec.shares_agents else ()),
        *(_pushing(values) if api.otlp.enabled else ()),
        *([_usage_reader(values)] if api.resource else ()),
        *(_federated_reading(values) if api.federate else ()),
        *(_certificate_keeping(values) if renews_certificate(values) else ()),
        *(
            held_objects(values, PART)
            if has_api_pods(values) and values.spec.serves_triggers
            else ()
        ),
    ]


def _certificate_keeping(values: Values) -> list[Object]:
    """Return the rights to renew the certificate in its Secret, and to have the APIServices trust it."""
    name = part_name(values, "metrics-api-certificate")
    secret = {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [metrics_api_secret(values)],
        "verbs": ["get", "update"],
    }
    trust = {
        "apiGroups": ["apiregistration.k8s.io"],
        "resources": ["apiservices"],
        "resourceNames": list(api_service_names(values)),
        "verbs": ["get", "patch"],
    }
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": cluster_metadata(values, PART, name=name),
            "rules": [trust],
        },
        binding(values, PART, name, name),
        *role(values, PART, name, [secret]),
    ]


def _usage_reader(values: Values) -> Object:
    """Return the right to `kubectl top` for all who may view pods, as metrics-server brings it.

    Source: kubernetes-sigs/metrics-server v0.8 manifests/base/rbac.yaml (system:aggregated-metrics-reader).
    """
    found = cluster_metadata(values, PART, name=part_name(values, "resource-metrics-reader"))
    aggregated = {f"{_RBAC}/aggregate-to-{role}": "true" for role in ("view", "edit", "admin")}
    usage = {
        "apiGroups": ["metrics.k8s.io"],
        "resources": ["pods", "nodes"],
        "verbs": ["get", "list", "watch"],
    }
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {**found, "labels": {**found["labels"], **aggregated}},
        "rules": [usage],
    }


def _federated_reading(values: Values) -> list[Object]:
    """Return the right to get metrics at the other metrics APIs, which ask for it as the API server does."""
    name = part_name(values, "metrics-api-federation")
    metrics = {
        "apiGroups": ["custom.metrics.k8s.io", "external.metrics.k8s.io"],
        "resources": ["*"],
        "verbs": ["get", "list"],
    }
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": cluster_metadata(values, PART, name=name),
            "rules": [metrics],
        },
        binding(values, PART, name, name),
    ]


def agent_finding(values: Values, part: str) -> list[Object]:
    """Return the right to see the pods behind the Services of the agents and of the replicas."""
    slices = {
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["list", "watch"],
    }
    return role(values, part, part_name(values, f"{part}-agents"), [slices])


def held_objects(values: Values, part: str) -> list[Object]:
    """Return where the replicas of a part keep what they decided last, and the right to."""
    name = held_config_map(values, part)
    kept = {
        "apiGroups": [""],
        "resources": ["configmaps"],
        "resourceNames": [name],
        "verbs": ["get", "update"],
    }
    # Without data: what the pods write there stays when this is applied again.
    empty = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(values, part, name=name)}
    return [empty, *role(values, part, name, [kept])]


def role(values: Values, part: str, name: str, rules: list[Object]) -> list[Object]:
    """Return a role of a part's account in its own namespace, and the binding."""
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": metadata(values, part, name=name),
            "rules": rules,
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata(values, part, name=name),
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": [account_subject(values, part)],
        },
    ]


def _peer_reading(values: Values) -> list[Object]:
    """Return the right of replicas to read from each other the agents that each of them follows."""
    name = part_name(values, "metrics-api-peers")
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": cluster_metadata(values, PART, name=name),
            "rules": [{"nonResourceURLs": ["/peers/stream"], "verbs": ["get"]}],
        },
        binding(values, PART, name, name),
    ]


def _pushing(values: Values) -> list[Object]:
    """Return the right to push OTLP metrics, and who has it."""
    name = part_name(values, "metrics-api-push")
    role = {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": cluster_metadata(values, PART, name=name),
        "rules": [{"nonResourceURLs": [OTLP_PATH], "verbs": ["post"]}],
    }
    clients = [
        {"kind": "ServiceAccount", "name": each.name, "namespace": each.namespace}
        for each in values.spec.metrics_api.otlp.clients
    ]
    return [role, *([bound(values, PART, name, name, clients)] if clients else ())]


def _auth_reader(values: Values) -> Object:
    role = "extension-apiserver-authentication-reader"
    name = part_name(values, "metrics-api-auth-reader")
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata(values, PART, name=name, namespace="kube-system"),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
        "subjects": [account_subject(values, PART)],
    }
