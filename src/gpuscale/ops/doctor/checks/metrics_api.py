"""The metrics APIs: their servers, the API server's trust in them, and the HPA controller's rights.

Source: kube-aggregator pkg/controllers/status/remote (reasons of the condition Available); kubernetes v1.36
    plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go (the HPA controller's account).
"""

import base64
import binascii
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cryptography import x509

from gpuscale.base.findings import Checks, Fix, FixRequest, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import ExternalMetric, MetricSpec, ObjectMetric, PodsMetric
from gpuscale.base.words import counted
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.serving import (
    SERVING_CHECKS,
    expired,
    is_expired,
    serving_findings,
)
from gpuscale.ops.doctor.judges import API, ClusterFinding, ClusterJudge
from gpuscale.ops.doctor.snapshot import HpaLook, MetricLook, Snapshot
from gpuscale.ops.install.common import FEDERATES
from gpuscale.server.metricsapi.wire import CUSTOM_GROUP, EXTERNAL_GROUP

_CHECKS = Checks(API, including=(SERVING_CHECKS,))
NO_METRICS_API = _CHECKS.add(
    "no-metrics-api",
    Severity.ERROR,
    "HPAs ask for an API that nobody serves.",
    "Install the metrics API.",
)
API_UNAVAILABLE = _CHECKS.add(
    "api-unavailable",
    Severity.ERROR,
    "An APIService that is not available.",
    "See what the server says; a NetworkPolicy or a firewall may keep it off.",
)
API_CERTIFICATE = _CHECKS.add(
    "api-certificate",
    Severity.ERROR,
    "A server whose certificate the API server does not trust.",
    "Give the APIService the CA of its server's certificate.",
)
API_CERTIFICATE_ENDS = _CHECKS.add(
    "api-certificate-ends",
    Severity.WARNING,
    "A caBundle that ends within two weeks, or has ended.",
    "Make new certificates.",
)
API_NOT_VERIFIED = _CHECKS.add(
    "api-not-verified",
    Severity.NOTE,
    "An APIService that takes any certificate.",
    "Give the APIService the CA of its server's certificate.",
)
API_OF_SOMEBODY_ELSE = _CHECKS.add(
    "api-of-somebody-else",
    Severity.ERROR,
    "The custom metrics API is another's beside gpuscale's.",
    "Take it over, with the way back kept.",
)
KEDA_CONFLICT = _CHECKS.add(
    "keda-conflict",
    Severity.ERROR,
    "KEDA's ScaledObjects, with external metrics served by another.",
    "Put KEDA behind gpuscale (metricsApi.federate), or give the group back to KEDA.",
)
API_WITHOUT_METRICS = _CHECKS.add(
    "api-without-metrics",
    Severity.ERROR,
    "A metrics API that serves no metric: no rules, or no series.",
    "Give it rules, and see that its --prometheus-url is right and Prometheus has series.",
)
HPA_NOT_ALLOWED = _CHECKS.add(
    "hpa-not-allowed",
    Severity.ERROR,
    "The HPA controller may not read a metric.",
    "Allow its account to read metrics.",
)

_KEDA = "keda"
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


def api_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the faults between the API server and the servers of metrics."""
    yield from _missing(snapshot)
    for body in snapshot.all("apiservices"):
        if body.child("spec").text("group") in (CUSTOM_GROUP, EXTERNAL_GROUP):
            yield from _availability(snapshot, body)
            yield from _trust(snapshot, body)
    yield from serving_findings(snapshot)
    yield from _owner(snapshot)
    yield from _keda(snapshot)
    yield from _empty(snapshot)
    yield from _rights(snapshot)


def group_of(spec: MetricSpec) -> str | None:
    """Return the API group of a metric; None for cpu and memory, which are Resource metrics."""
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


def _missing(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    if snapshot.hides("apiservices"):
        return
    for group in (CUSTOM_GROUP, EXTERNAL_GROUP):
        asking = _asking(snapshot, group)
        if asking and not _services(snapshot, group):
            yield NO_METRICS_API.found(
                f"apiservice/{group}",
                f"Nobody serves {group}, which {counted(len(asking), 'HPA')} asked for.",
                f"{asking[0].about} is one of them",
                _serve(group, asking[0]),
            )


def _serve(group: str, look: HpaLook) -> Fix:
    """Return how to install a server for an API group."""
    if group == CUSTOM_GROUP:
        return Fix("Install the metrics API.", _INSTALL)
    name = next(each.spec.name for each in look.metrics if group_of(each.spec) == group)
    return Fix(
        f"Install what gives {name}: KEDA or your cloud's adapter for theirs, or gpuscale's metrics API "
        f"with metricsApi.external: true and an external rule that gives {name}.",
        f"kubectl get hpa -n {look.namespace} {look.hpa.metadata.name} -o yaml",
    )


def _availability(snapshot: Snapshot, body: Fields) -> Iterator[ClusterFinding]:
    name = facts.name(body)
    for each in body.child("status").items("conditions"):
        if each.text("type") != "Available" or each.text("status") == "True":
            continue
        reason, message = each.text("reason"), each.text("message")
        evidence = f"{reason}: {message}"
        if is_expired(message):
            yield expired(name, body, evidence)
            continue
        if "x509" in message or "certificate" in message:
            yield API_CERTIFICATE.found(
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
        yield API_UNAVAILABLE.found(
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
        (FixRequest(f"/apis/apiregistration.k8s.io/v1/apiservices/{name}", patch),),
    )


def _trust(snapshot: Snapshot, body: Fields) -> Iterator[ClusterFinding]:
    name, spec = facts.name(body), body.child("spec")
    if spec.boolean("insecureSkipTLSVerify"):
        yield API_NOT_VERIFIED.found(
            f"apiservice/{name}",
            "The API server takes any certificate from who answers for metrics.",
            "insecureSkipTLSVerify: true",
            _bundle(snapshot, body),
        )
    ends = _end(spec.text("caBundle"))
    if ends is not None and ends < datetime.fromtimestamp(snapshot.now_ms / 1000, UTC) + _SOON:
        yield API_CERTIFICATE_ENDS.found(
            f"apiservice/{name}",
            f"The CA that the API server knows {facts.server_of(body)} by ends at {ends:%Y-%m-%d}.",
            "caBundle",
            Fix(API_CERTIFICATE_ENDS.fix, _INSTALL),
        )


def _end(bundle: str) -> datetime | None:
    try:
        certificates = x509.load_pem_x509_certificates(base64.b64decode(bundle))
    except (ValueError, binascii.Error):
        return None
    return max(each.not_valid_after_utc for each in certificates)


def _owner(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    if not facts.own_services(snapshot):
        return
    for body in _services(snapshot, CUSTOM_GROUP):
        server = facts.server_of(body)
        if server != "gpuscale":
            yield API_OF_SOMEBODY_ELSE.found(
                f"apiservice/{facts.name(body)}",
                f"It is served by {server}; gpuscale's metrics API is installed and asked nothing.",
                f"service {facts.full_name(facts.service_fields(body.child('spec').child('service')))}",
                Fix(
                    API_OF_SOMEBODY_ELSE.fix,
                    f"{_INSTALL} --replace",
                ),
            )


def _keda(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    scaled = snapshot.all("scaledobjects")
    for body in _services(snapshot, EXTERNAL_GROUP):
        server = facts.server_of(body)
        if scaled and server != "KEDA" and not _federates_keda(body):
            service = {"name": "keda-operator-metrics-apiserver", "namespace": "keda", "port": 443}
            yield KEDA_CONFLICT.found(
                f"apiservice/{facts.name(body)}",
                f"KEDA can't answer for {counted(len(scaled), 'ScaledObject')}: {server} serves the group.",
                f"ScaledObject {facts.full_name(scaled[0])}; a cluster has one server per group",
                Fix(
                    KEDA_CONFLICT.fix,
                    f"kubectl patch apiservice {facts.name(body)} --type=merge "
                    f"-p '{json.dumps({'spec': {'service': service}})}'",
                ),
            )


def _federates_keda(body: Fields) -> bool:
    """Return whether the server of an APIService forwards KEDA's metrics to KEDA."""
    services = body.child("metadata").labels("annotations").get(FEDERATES, "")
    return any(_KEDA in each for each in services.split(","))


def _empty(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    for group, look in snapshot.served.items():
        asking, services = _asking(snapshot, group), _services(snapshot, group)
        are_up = any(facts.condition(body, "Available") == "True" for body in services)
        if look.fault or look.items or not asking or not are_up:
            continue
        server = facts.server_of(services[0])
        yield _without_metrics(server, group, f"/apis/{group} lists no resources")


def _without_metrics(server: str, name: str, evidence: str) -> ClusterFinding:
    return API_WITHOUT_METRICS.found(
        f"apiservice/{name}",
        f"{server} answers, and serves no metric at all.",
        evidence,
        Fix(
            API_WITHOUT_METRICS.fix,
            "gpuscale lint rules.yaml",
        ),
    )


def _rights(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    reported: set[str] = set()
    for look in snapshot.hpas:
        for metric in look.metrics:
            group = group_of(metric.spec)
            if metric.allowed is not False or group is None or group in reported:
                continue
            reported.add(group)
            yield _denied(look, metric, group)


def _denied(look: HpaLook, metric: MetricLook, group: str) -> ClusterFinding:
    namespace, name = HPA_ACCOUNT
    role = f"{_ROLE}-{group.partition('.')[0]}"
    meta = {"name": role}
    rule = {"apiGroups": [group], "resources": ["*"], "verbs": ["get", "list"]}
    reference = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
    base = f"/apis/{_RBAC}/v1"
    return HPA_NOT_ALLOWED.found(
        look.about,
        f"The HPA controller may not read {group}.",
        f"SubjectAccessReview: {metric.denied_why or 'no rule allows it'}",
        Fix(
            HPA_NOT_ALLOWED.fix,
            f"kubectl create clusterrole {role} --verb=get,list --resource='*.{group}' && "
            f"kubectl create clusterrolebinding {role} --clusterrole={role} "
            f"--serviceaccount={namespace}:{name}",
            (
                FixRequest(
                    f"{base}/clusterroles", {"metadata": meta, "rules": [rule]}, creates=True
                ),
                FixRequest(
                    f"{base}/clusterrolebindings",
                    {"metadata": meta, "roleRef": reference, "subjects": [subject]},
                    creates=True,
                ),
            ),
        ),
    )


JUDGE = ClusterJudge("metrics-api", _CHECKS, api_findings)
