"""The metrics API as clients see it: a Service, its certificate, the server's rights, and the APIServices.

The APIServices come last of all that is applied, so that requests move to servers that are there.
"""

import base64

from gpuscale.install.certificates import ServingCertificate
from gpuscale.install.common import (
    CA_SECRET,
    FEDERATES,
    METRICS_API,
    Object,
    account_name,
    cluster_metadata,
    has_api_pods,
    held_config_map,
    metadata,
    metrics_api_secret,
    part_name,
    renews_certificate,
    service_accounts,
)
from gpuscale.install.parts.workloads import service
from gpuscale.install.values import Values

PART = METRICS_API
CUSTOM = ("v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io")
EXTERNAL = ("v1beta1.external.metrics.k8s.io",)
RESOURCE = ("v1beta1.metrics.k8s.io",)
API_SERVICE = "apiregistration.k8s.io/v1"
INJECT = "cert-manager.io/inject-ca-from"
_RBAC = "rbac.authorization.k8s.io"
_CERT_MANAGER = "cert-manager.io/v1"
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
_PRIORITY = 100
"""Of group and version, as in every manifest of prometheus-adapter."""


def metrics_api_objects(values: Values, certificate: ServingCertificate | None) -> list[Object]:
    """Return the metrics API's objects beside what runs it; none where it is off.

    Args:
        values: of the installation.
        certificate: of a server that runs elsewhere; None where cert-manager or the pods make it.
    """
    api = values.spec.metrics_api
    if not api.enabled:
        return []
    return [
        *service_accounts(values, PART),
        *_rights(values),
        *_certificate(values, certificate),
        *_federated_cas(values),
        _service(values),
        *_api_services(values, certificate),
    ]


def _rights(values: Values) -> list[Object]:
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


def _federated_cas(values: Values) -> list[Object]:
    """Return the ConfigMap with the CAs of other metrics APIs; none where no CA is given."""
    bundles = {
        f"{each.name}.crt": each.ca_bundle
        for each in values.spec.metrics_api.federate
        if each.ca_bundle
    }
    if not bundles or not has_api_pods(values):
        return []
    found = metadata(values, PART, name=part_name(values, "metrics-api-federation"))
    return [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": found, "data": bundles}]


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
            "subjects": [_subject(values, part)],
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


def binding(values: Values, part: str, name: str, role: str) -> Object:
    """Return what gives a part's account a ClusterRole."""
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": cluster_metadata(values, part, name=name),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [_subject(values, part)],
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


def _subject(values: Values, part: str = PART) -> Object:
    return {
        "kind": "ServiceAccount",
        "name": account_name(values, part),
        "namespace": values.spec.namespace,
    }


def _certificate(values: Values, certificate: ServingCertificate | None) -> list[Object]:
    if values.spec.metrics_api.certificates == "cert-manager":
        return _asked_of_cert_manager(values)
    if renews_certificate(values):
        # Without data: what the pods write there stays when this is applied again.
        found = metadata(values, PART, name=metrics_api_secret(values))
        return [{"apiVersion": "v1", "kind": "Secret", "metadata": found, "type": "Opaque"}]
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
    services = [each.service for each in values.spec.metrics_api.federate if each.service]
    if services:
        found["annotations"] = {FEDERATES: ",".join(services)}
        if renews_certificate(values):
            secret = f"{values.spec.namespace}/{metrics_api_secret(values)}"
            found["annotations"][CA_SECRET] = secret
    if values.spec.metrics_api.certificates == "cert-manager":
        inject = {INJECT: f"{values.spec.namespace}/{metrics_api_secret(values)}"}
        found["annotations"] = {**found.get("annotations", {}), **inject}
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
