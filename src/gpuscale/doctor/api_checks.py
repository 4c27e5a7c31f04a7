"""The metrics APIs: who serves them, whether the API server trusts it, and whether the HPA may ask.

Source: kube-aggregator pkg/controllers/status/remote (reasons of the condition Available); kubernetes v1.36
    plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go (the HPA controller's account).
"""

import base64
import binascii
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cryptography import x509

from gpuscale.doctor import facts
from gpuscale.doctor.facts import found
from gpuscale.doctor.findings import Change, Finding, Fix
from gpuscale.doctor.snapshot import HpaLook, MetricLook, Snapshot
from gpuscale.metricsapi.groups import CUSTOM_GROUP, EXTERNAL_GROUP
from gpuscale.objects.fields import Fields
from gpuscale.objects.hpa import ExternalMetric, MetricSpec, ObjectMetric, PodsMetric

_SOON = timedelta(days=14)
_INSTALL = "gpuscale install values.yaml"
_RBAC = "rbac.authorization.k8s.io"
_ROLE = "gpuscale-hpa-reads-metrics"
HPA_ACCOUNT = ("kube-system", "horizontal-pod-autoscaler")
"""Namespace and name of the service account that the HPA controller asks with."""
_HAS_NO_SUCH_API = ": 404"
"""prometheus-adapter without rules for a group does not serve the group."""
_UNAVAILABLE = {
    "ServiceNotFound": "Install the server again, or delete the APIService that it left behind.",
    "ServiceAccessError": "Install the server again, or delete the APIService that it left behind.",
    "ServicePortError": "Give the APIService the port of its Service.",
    "EndpointsNotFound": "Start the server: the Service has no pod behind it.",
    "MissingEndpoints": "Start the server: no pod behind the Service is ready.",
}


def api_findings(snapshot: Snapshot) -> Iterator[Finding]:
    """Return what is wrong between the API server and who serves metrics."""
    yield from _missing(snapshot)
    for body in snapshot.all("apiservices"):
        if body.child("spec").text("group") in (CUSTOM_GROUP, EXTERNAL_GROUP):
            yield from _availability(snapshot, body)
            yield from _trust(snapshot, body)
    yield from _owner(snapshot)
    yield from _keda(snapshot)
    yield from _empty(snapshot)
    yield from _rights(snapshot)


def group_of(spec: MetricSpec) -> str | None:
    """Return the API group that answers for a metric; None for the one of cpu and memory."""
    match spec:
        case PodsMetric() | ObjectMetric():
            return CUSTOM_GROUP
        case ExternalMetric():
            return EXTERNAL_GROUP
        case _:
            return None


def _services(snapshot: Snapshot, group: str) -> tuple[Fields, ...]:
    return tuple(
        body for body in snapshot.all("apiservices") if body.child("spec").text("group") == group
    )


def _asking(snapshot: Snapshot, group: str) -> tuple[HpaLook, ...]:
    return tuple(
        look
        for look in snapshot.hpas
        if any(group_of(metric.spec) == group for metric in look.metrics)
    )


def _missing(snapshot: Snapshot) -> Iterator[Finding]:
    if snapshot.hides("apiservices"):
        return
    for group in (CUSTOM_GROUP, EXTERNAL_GROUP):
        asking = _asking(snapshot, group)
        if asking and not _services(snapshot, group):
            option = "" if group == CUSTOM_GROUP else "; metricsApi.external: true"
            yield found(
                "no-metrics-api",
                f"apiservice/{group}",
                f"Nobody serves {group}, which {facts.counted(asking, 'HPA')} asked for.",
                f"{asking[0].about} is one of them",
                Fix(f"Install the metrics API{option}.", _INSTALL),
            )


def _availability(snapshot: Snapshot, body: Fields) -> Iterator[Finding]:
    name = facts.name(body)
    for each in body.child("status").items("conditions"):
        if each.text("type") != "Available" or each.text("status") == "True":
            continue
        reason, message = each.text("reason"), each.text("message")
        evidence = f"{reason}: {message}"
        if "x509" in message or "certificate" in message:
            yield found(
                "api-certificate",
                f"apiservice/{name}",
                f"The API server does not trust the certificate of {facts.server_of(body)}.",
                evidence,
                _bundle(snapshot, body),
            )
            continue
        if _HAS_NO_SUCH_API in message:
            yield _without_metrics(facts.server_of(body), name, evidence)
            continue
        usual = "See what the server says; a NetworkPolicy or a firewall may keep it off."
        service = facts.service_fields(body.child("spec").child("service"))
        yield found(
            "api-unavailable",
            f"apiservice/{name}",
            f"{name} of {facts.server_of(body)} is not available, and HPAs on it are blind.",
            evidence,
            Fix(
                _UNAVAILABLE.get(reason, usual),
                f"kubectl get service,endpointslice,pod -n {facts.namespace(service)}",
            ),
        )


def _bundle(snapshot: Snapshot, body: Fields) -> Fix:
    name = facts.name(body)
    bundle = snapshot.bundles.get(name)
    if bundle is None:
        return Fix(
            "Give the APIService the CA of its server's certificate, which has to name "
            "SERVICE.NAMESPACE.svc.",
            f"kubectl patch apiservice {name} --type=merge "
            """-p '{"spec":{"insecureSkipTLSVerify":false,"caBundle":"BASE64"}}'""",
        )
    patch = {"spec": {"insecureSkipTLSVerify": False, "caBundle": bundle}}
    return Fix(
        "Give the APIService the CA that its server's Secret holds.",
        f"kubectl patch apiservice {name} --type=merge "
        f"""-p '{{"spec":{{"insecureSkipTLSVerify":false,"caBundle":"{bundle}"}}}}'""",
        (Change(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}", patch),),
    )


def _trust(snapshot: Snapshot, body: Fields) -> Iterator[Finding]:
    name, spec = facts.name(body), body.child("spec")
    if spec.boolean("insecureSkipTLSVerify"):
        yield found(
            "api-not-verified",
            f"apiservice/{name}",
            "The API server takes any certificate from who answers for metrics.",
            "insecureSkipTLSVerify: true",
            _bundle(snapshot, body),
        )
    ends = _end(spec.text("caBundle"))
    if ends is not None and ends < datetime.fromtimestamp(snapshot.now_ms / 1000, UTC) + _SOON:
        yield found(
            "api-certificate-ends",
            f"apiservice/{name}",
            f"The CA that the API server knows {facts.server_of(body)} by ends at {ends:%Y-%m-%d}.",
            "caBundle",
            Fix("Make new certificates.", _INSTALL),
        )


def _end(bundle: str) -> datetime | None:
    try:
        certificates = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except (ValueError, binascii.Error):
        return None
    return max(each.not_valid_after_utc for each in certificates)


def _owner(snapshot: Snapshot) -> Iterator[Finding]:
    if not facts.own_services(snapshot):
        return
    for body in _services(snapshot, CUSTOM_GROUP):
        server = facts.server_of(body)
        if server != "gpuscale":
            yield found(
                "api-of-somebody-else",
                f"apiservice/{facts.name(body)}",
                f"It is served by {server}; gpuscale's metrics API is installed and asked nothing.",
                f"service {facts.full_name(facts.service_fields(body.child('spec').child('service')))}",
                Fix(
                    "Take it over, with the way back kept.",
                    f"{_INSTALL} --replace",
                ),
            )


def _keda(snapshot: Snapshot) -> Iterator[Finding]:
    scaled = snapshot.all("scaledobjects")
    for body in _services(snapshot, EXTERNAL_GROUP):
        server = facts.server_of(body)
        if scaled and server != "KEDA":
            service = {"name": "keda-operator-metrics-apiserver", "namespace": "keda", "port": 443}
            yield found(
                "keda-conflict",
                f"apiservice/{facts.name(body)}",
                f"KEDA can't answer for {facts.counted(scaled, 'ScaledObject')}: {server} serves the group.",
                f"ScaledObject {facts.full_name(scaled[0])}; a cluster has one server per group",
                Fix(
                    "Give the group back to KEDA (metricsApi.external: false, or no externalRules).",
                    f"kubectl patch apiservice {facts.name(body)} --type=merge "
                    f"-p '{json.dumps({'spec': {'service': service}})}'",
                ),
            )


def _empty(snapshot: Snapshot) -> Iterator[Finding]:
    for group, look in snapshot.served.items():
        asking, services = _asking(snapshot, group), _services(snapshot, group)
        are_up = any(facts.condition(body, "Available") == "True" for body in services)
        if look.fault or look.items or not asking or not are_up:
            continue
        server = facts.server_of(services[0])
        yield _without_metrics(server, group, f"/apis/{group} lists no resources")


def _without_metrics(server: str, name: str, evidence: str) -> Finding:
    return found(
        "api-without-metrics",
        f"apiservice/{name}",
        f"{server} answers, and serves no metric at all.",
        evidence,
        Fix(
            "Give it rules, and see that its --prometheus-url is right and Prometheus has series.",
            "gpuscale lint rules.yaml",
        ),
    )


def _rights(snapshot: Snapshot) -> Iterator[Finding]:
    told: set[str] = set()
    for look in snapshot.hpas:
        for metric in look.metrics:
            group = group_of(metric.spec)
            if metric.allowed is not False or group is None or group in told:
                continue
            told.add(group)
            yield _denied(look, metric, group)


def _denied(look: HpaLook, metric: MetricLook, group: str) -> Finding:
    namespace, name = HPA_ACCOUNT
    role = f"{_ROLE}-{group.partition('.')[0]}"
    meta = {"name": role}
    rule = {"apiGroups": [group], "resources": ["*"], "verbs": ["get", "list"]}
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    base = f"/apis/{_RBAC}/v1"
    return found(
        "hpa-not-allowed",
        look.about,
        f"The HPA controller may not read {group}.",
        f"SubjectAccessReview: {metric.denied_why or 'no rule allows it'}",
        Fix(
            "Allow its account to read metrics.",
            f"kubectl create clusterrole {role} --verb=get,list --resource='*.{group}' && "
            f"kubectl create clusterrolebinding {role} --clusterrole={role} "
            f"--serviceaccount={namespace}:{name}",
            (
                Change(f"{base}/clusterroles", {"metadata": meta, "rules": [rule]}, creates=True),
                Change(
                    f"{base}/clusterrolebindings",
                    {"metadata": meta, "roleRef": reference, "subjects": [subject]},
                    creates=True,
                ),
            ),
        ),
    )
