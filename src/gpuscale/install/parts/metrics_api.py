"""The metrics API: two replicas behind a Service, their rights and certificate, and the APIServices.

The APIServices come last of all that is applied, so that requests move to servers that are there.
"""

import base64

from gpuscale.install.certificates import ServingCertificate
from gpuscale.install.parts import agent, prometheus
from gpuscale.install.parts.common import (
    METRICS_API,
    USER_ID,
    Object,
    cluster_metadata,
    http_probe,
    image_reference,
    metadata,
    metrics_api_secret,
    part_name,
    pull_secrets,
    restrained,
    selector,
    service_account,
)
from gpuscale.install.parts.resource_rules import RESOURCE_RULE_FILE
from gpuscale.install.parts.rules import PROMETHEUS_RULE_FILE, RULE_FILE
from gpuscale.install.parts.workloads import service, workload
from gpuscale.install.values import Values

PART = METRICS_API
PORT = 6443
CUSTOM = ("v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io")
EXTERNAL = ("v1beta1.external.metrics.k8s.io",)
RESOURCE = ("v1beta1.metrics.k8s.io",)
API_SERVICE = "apiregistration.k8s.io/v1"
INJECT = "cert-manager.io/inject-ca-from"
_RBAC = "rbac.authorization.k8s.io"
_CERT_MANAGER = "cert-manager.io/v1"
_SAMPLES = "/var/lib/gpuscale/samples"
_REMOTE_WRITE = "/etc/gpuscale/remote-write"
_PRIORITY = 100
"""Of group and version, as in every manifest of prometheus-adapter."""


def metrics_api_objects(values: Values, certificate: ServingCertificate | None) -> list[Object]:
    """Return the metrics API's objects; none where it is off.

    Args:
        values: of the installation.
        certificate: to be shown by the servers; None where cert-manager makes it.
    """
    api = values.spec.metrics_api
    if not api.enabled:
        return []
    servers = [] if api.external_name else [_deployment(values), _disruption_budget(values)]
    return [
        service_account(values, PART),
        *_rights(values),
        *_certificate(values, certificate),
        _service(values),
        *servers,
        *_api_services(values, certificate),
    ]


def _rights(values: Values) -> list[Object]:
    reads = {
        "apiGroups": [""],
        "resources": ["pods", "nodes", "namespaces", "services"],
        "verbs": ["get", "list", "watch"],
    }
    scaled = {
        "apiGroups": ["apps"],
        "resources": ["deployments", "statefulsets"],
        "verbs": ["get", "list", "watch"],
    }
    api = values.spec.metrics_api
    team_rules = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}
    objects = part_name(values, "metrics-api-objects")
    return [
        _binding(values, part_name(values, "metrics-api-delegator"), "system:auth-delegator"),
        _auth_reader(values),
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": cluster_metadata(values, PART, name=objects),
            "rules": [reads, scaled, *([team_rules] if api.rules_config_maps else ())],
        },
        _binding(values, objects, objects),
        *(_agent_finding(values) if values.spec.has_streams else ()),
        *([_usage_reader(values)] if api.resource else ()),
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


def _agent_finding(values: Values) -> list[Object]:
    """Return the right to see who stands behind the agents' Service, in their namespace only."""
    name = part_name(values, "metrics-api-agents")
    slices = {
        "apiGroups": ["discovery.k8s.io"],
        "resources": ["endpointslices"],
        "verbs": ["list", "watch"],
    }
    return [
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "Role",
            "metadata": metadata(values, PART, name=name),
            "rules": [slices],
        },
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata(values, PART, name=name),
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": name},
            "subjects": [_subject(values)],
        },
    ]


def _binding(values: Values, name: str, role: str) -> Object:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": cluster_metadata(values, PART, name=name),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [_subject(values)],
    }


def _auth_reader(values: Values) -> Object:
    role = "extension-apiserver-authentication-reader"
    name = part_name(values, "metrics-api-auth-reader")
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata(values, PART, name=name, namespace="kube-system"),
        "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": role},
        "subjects": [_subject(values)],
    }


def _subject(values: Values) -> Object:
    return {
        "kind": "ServiceAccount",
        "name": part_name(values, PART),
        "namespace": values.spec.namespace,
    }


def _certificate(values: Values, certificate: ServingCertificate | None) -> list[Object]:
    if values.spec.metrics_api.certificates == "cert-manager":
        return _asked_of_cert_manager(values)
    if certificate is None:
        return []
    files = {
        "ca.crt": certificate.ca,
        "tls.crt": certificate.certificate,
        "tls.key": certificate.key,
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": metadata(values, PART, name=metrics_api_secret(values)),
            "type": "kubernetes.io/tls",
            "data": {
                name: base64.b64encode(text.encode()).decode() for name, text in files.items()
            },
        }
    ]


def _asked_of_cert_manager(values: Values) -> list[Object]:
    issuer = values.spec.metrics_api.issuer
    if issuer is not None:
        return [_serving(values, {"kind": "ClusterIssuer", "name": issuer})]
    ca, self_signed = part_name(values, "metrics-api-ca"), part_name(values, "self-signed")
    authority = {
        "isCA": True,
        "commonName": ca,
        "secretName": ca,
        "privateKey": {"algorithm": "ECDSA", "size": 256},
        "issuerRef": {"kind": "Issuer", "name": self_signed},
    }
    return [
        _cert_manager(values, "Issuer", self_signed, {"selfSigned": {}}),
        _cert_manager(values, "Certificate", ca, authority),
        _cert_manager(values, "Issuer", ca, {"ca": {"secretName": ca}}),
        _serving(values, {"kind": "Issuer", "name": ca}),
    ]


def _serving(values: Values, issuer: Object) -> Object:
    name = part_name(values, PART)
    host = f"{name}.{values.spec.namespace}.svc"
    spec = {
        "secretName": metrics_api_secret(values),
        "dnsNames": [host, f"{host}.cluster.local"],
        "privateKey": {"algorithm": "ECDSA", "size": 256},
        "usages": ["digital signature", "server auth"],
        "issuerRef": issuer,
    }
    return _cert_manager(values, "Certificate", metrics_api_secret(values), spec)


def _cert_manager(values: Values, kind: str, name: str, spec: Object) -> Object:
    return {
        "apiVersion": _CERT_MANAGER,
        "kind": kind,
        "metadata": metadata(values, PART, name=name),
        "spec": spec,
    }


def _service(values: Values) -> Object:
    api = values.spec.metrics_api
    found = service(values, PART, "https", api.port)
    if api.external_name is not None:
        found["spec"] = {"type": "ExternalName", "externalName": api.external_name}
    return found


def _deployment(values: Values) -> Object:
    # A new one answers before an old one goes: the HPA is never without an answer.
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    replicas = values.spec.metrics_api.replicas
    pod = _pod_spec(values)
    return workload(values, "Deployment", PART, pod, replicas=replicas, strategy=rolling)


def _pod_spec(values: Values) -> Object:
    apart = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": selector(values, PART)},
    }
    return {
        "serviceAccountName": part_name(values, PART),
        "automountServiceAccountToken": True,
        **pull_secrets(values.spec.image),
        "priorityClassName": "system-cluster-critical",
        "topologySpreadConstraints": [apart],
        "containers": [_container(values)],
        "volumes": [
            {"name": "rules", "configMap": {"name": part_name(values, PART)}},
            {
                "name": "tls",
                "secret": {"secretName": metrics_api_secret(values), "defaultMode": 0o440},
            },
            *_store_volumes(values),
        ],
        "securityContext": {"fsGroup": USER_ID},
    }


def _container(values: Values) -> Object:
    image = values.spec.image
    return {
        "name": "metrics-api",
        "image": image_reference(image),
        "imagePullPolicy": image.pull_policy,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "args": arguments(values),
        "ports": [{"name": "https", "containerPort": PORT}],
        "startupProbe": _probe("/livez", periodSeconds=1, failureThreshold=60),
        "livenessProbe": _probe("/livez", periodSeconds=10, timeoutSeconds=5),
        "readinessProbe": _probe("/readyz", periodSeconds=5, timeoutSeconds=5),
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": restrained(),
        "volumeMounts": [
            # Folders, so that changed rules and renewed certificates arrive without a restart.
            {"name": "rules", "mountPath": "/etc/gpuscale/rules", "readOnly": True},
            {"name": "tls", "mountPath": "/etc/gpuscale/tls", "readOnly": True},
            *_store_mounts(values),
        ],
        **_store_environment(values),
    }


def _store_volumes(values: Values) -> list[Object]:
    """Return where samples are saved and what says where to send them; both are there with streams alone."""
    if not values.spec.has_streams:
        return []
    secret = values.spec.metrics_api.remote_write_secret
    return [
        # As long as the pod is there, and on its node: replicas have all samples anyway.
        {"name": "samples", "emptyDir": {}},
        {
            "name": "remote-write",
            "secret": {"secretName": secret, "optional": True, "defaultMode": 0o440},
        },
    ]


def _store_mounts(values: Values) -> list[Object]:
    if not values.spec.has_streams:
        return []
    return [
        {"name": "samples", "mountPath": _SAMPLES},
        {"name": "remote-write", "mountPath": _REMOTE_WRITE, "readOnly": True},
    ]


def _store_environment(values: Values) -> Object:
    if not values.spec.has_streams:
        return {}
    name = {"fieldRef": {"fieldPath": "metadata.name"}}
    return {"env": [{"name": "POD_NAME", "valueFrom": name}]}


def arguments(values: Values) -> list[str]:
    """Return the server's arguments."""
    api = values.spec.metrics_api
    return [
        "metrics-api",
        # Before the other, so that a user's own resourceRules are taken instead.
        *([f"--config=/etc/gpuscale/rules/{RESOURCE_RULE_FILE}"] if api.resource else ()),
        f"--config=/etc/gpuscale/rules/{RULE_FILE}",
        *([f"--rules-configmaps={api.rules_config_maps}"] if api.rules_config_maps else ()),
        *_source_arguments(values),
        f"--secure-port={PORT}",
        "--tls-cert-file=/etc/gpuscale/tls/tls.crt",
        "--tls-private-key-file=/etc/gpuscale/tls/tls.key",
        # A new workload's metrics are there within seconds, and stay while it has no pods for a moment.
        "--metrics-relist-interval=15s",
        "--metrics-max-age=10m",
    ]


def _source_arguments(values: Values) -> list[str]:
    if not values.spec.has_streams:
        return [f"--prometheus-url={prometheus.address(values)}"]
    return [
        "--source=streams",
        f"--agent-service={values.spec.namespace}/{part_name(values, agent.PART)}",
        f"--store-directory={_SAMPLES}",
        f"--store-directory-size-limit={values.spec.metrics_api.store_size}",
        f"--remote-write-config={_REMOTE_WRITE}",
        # Each replica sends all samples; what keeps them can tell the copies apart.
        "--remote-write-label=replica=$(POD_NAME)",
        *_prometheus_rules(values),
        *_pod_scraping(values),
    ]


def _prometheus_rules(values: Values) -> list[str]:
    if not values.spec.metrics_api.prometheus_rules:
        return []
    return [f"--prometheus-rules=/etc/gpuscale/rules/{PROMETHEUS_RULE_FILE}"]


def _pod_scraping(values: Values) -> list[str]:
    if not values.spec.scrapes_pods:
        return ["--scrape-annotated-pods=false"]
    # The preset has rules for model servers; the rules of the file come before it.
    pods = values.spec.metrics_api.exporter_pods
    exporters = [f"--exporter-pods={pods}"] if pods else []
    return ["--scrape-annotated-pods=true", "--preset=on", *exporters]


def _probe(path: str, **periods: int) -> Object:
    return http_probe(path, "https", scheme="HTTPS", **periods)


def _disruption_budget(values: Values) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(values, PART),
        "spec": {
            # One at a time, which also lets a single replica move.
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(values, PART)},
        },
    }


def api_service_names(values: Values) -> tuple[str, ...]:
    """Return the names of the APIServices that the installation wants to own."""
    api = values.spec.metrics_api
    if not api.enabled:
        return ()
    return (*CUSTOM, *(EXTERNAL if api.external else ()), *(RESOURCE if api.resource else ()))


def _api_services(values: Values, certificate: ServingCertificate | None) -> list[Object]:
    return [_api_service(values, certificate, name) for name in api_service_names(values)]


def _api_service(values: Values, certificate: ServingCertificate | None, name: str) -> Object:
    version, group = name.split(".", 1)
    found = cluster_metadata(values, PART, name=name)
    trust: Object = {}
    if values.spec.metrics_api.certificates == "cert-manager":
        found["annotations"] = {INJECT: f"{values.spec.namespace}/{metrics_api_secret(values)}"}
    elif certificate is not None:
        trust = {"caBundle": base64.b64encode(certificate.ca.encode()).decode()}
    service = {
        "namespace": values.spec.namespace,
        "name": part_name(values, PART),
        "port": values.spec.metrics_api.port,
    }
    return {
        "apiVersion": API_SERVICE,
        "kind": "APIService",
        "metadata": found,
        "spec": {
            "group": group,
            "version": version,
            "service": service,
            "groupPriorityMinimum": _PRIORITY,
            "versionPriority": _PRIORITY,
            **trust,
        },
    }
