"""The metrics API as clients see it: a Service, its certificate, and the APIServices; and its rights.

The APIServices come last of all that is applied, so that requests move to servers that are there.
"""

import base64

from gpuscale.ops.install.certificates import IssuedCertificate
from gpuscale.ops.install.common import (
    CA_SECRET,
    FEDERATES,
    METRICS_API,
    Object,
    api_service_names,
    cluster_metadata,
    has_api_pods,
    metadata,
    metrics_api_secret,
    part_name,
    renews_certificate,
    service_accounts,
)
from gpuscale.ops.install.parts.api_rights import server_rights
from gpuscale.ops.install.parts.workloads import service
from gpuscale.ops.install.values import Values

PART = METRICS_API
API_SERVICE = "apiregistration.k8s.io/v1"
INJECT = "cert-manager.io/inject-ca-from"
_CERT_MANAGER = "cert-manager.io/v1"
_PRIORITY = 100
"""Of group and version, as in every manifest of prometheus-adapter."""


def metrics_api_objects(values: Values, certificate: IssuedCertificate | None) -> list[Object]:
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
        *server_rights(values),
        *_certificate(values, certificate),
        *_federated_cas(values),
        _service(values),
        *_api_services(values, certificate),
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


def _certificate(values: Values, certificate: IssuedCertificate | None) -> list[Object]:
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


def _api_services(values: Values, certificate: IssuedCertificate | None) -> list[Object]:
    return [_api_service(values, certificate, name) for name in api_service_names(values)]


def _api_service(values: Values, certificate: IssuedCertificate | None, name: str) -> Object:
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
