"""Metrics servers: RBAC of their accounts, certificates, and the server of cpu and memory.

Source: kube-aggregator pkg/controllers/status/remote (condition Available); Go crypto/x509 verify.go.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from cryptography import x509

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import ContainerResourceMetric, ResourceMetric
from gpuscale.base.words import counted
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.judges import API, ClusterFinding
from gpuscale.ops.doctor.snapshot import HpaLook, Snapshot
from gpuscale.server.metricsapi.wire import RESOURCE_GROUP

SERVING_CHECKS = Checks(API)
SERVER_LACKS_RIGHT = SERVING_CHECKS.add(
    "server-lacks-right",
    Severity.ERROR,
    "A metrics server whose account may not ask the API server who asks it, so it refuses everyone.",
    "Bind its account to system:auth-delegator and extension-apiserver-authentication-reader.",
)
CERTIFICATE_EXPIRED = SERVING_CHECKS.add(
    "certificate-expired",
    Severity.ERROR,
    "A server whose certificate has expired, or is not valid yet.",
    "Make a new certificate: delete the Secret and install again, or see cert-manager.",
)
CERTIFICATE_ENDS = SERVING_CHECKS.add(
    "certificate-ends",
    Severity.WARNING,
    "A serving certificate that ends within two weeks.",
    "Make a new certificate: install again, or see cert-manager.",
)
NO_RESOURCE_METRICS = SERVING_CHECKS.add(
    "no-resource-metrics",
    Severity.ERROR,
    "HPAs with a cpu or memory metric, and nothing that serves metrics.k8s.io: they never scale down.",
    "Install metrics-server, or take the Resource metric out of the HPA.",
)

_EXPIRED = ("has expired or is not yet valid", "certificate has expired")
_SOON = timedelta(days=14)


def is_expired(message: str) -> bool:
    """Return whether a connection failed because a certificate is expired or not yet valid."""
    return any(word in message for word in _EXPIRED)


def serving_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the faults that keep installed metrics servers from answering."""
    yield from _rights(snapshot)
    yield from _ends(snapshot)
    yield from _resource_metrics(snapshot)


def _rights(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    lacking: dict[tuple[str, str], list[str]] = {}
    for right in snapshot.rights:
        if not right.allowed:
            lacking.setdefault((right.account, right.role), []).append(right.what)
    for (account, role), whats in lacking.items():
        namespace, _, name = account.partition("/")
        bound = f"{namespace}:{name}"
        if role.startswith("system:"):
            command = (
                f"kubectl create clusterrolebinding {name}-delegator --clusterrole={role} "
                f"--serviceaccount={bound}"
            )
        else:
            command = (
                f"kubectl create rolebinding -n kube-system {name}-auth-reader --role={role} "
                f"--serviceaccount={bound}"
            )
        yield SERVER_LACKS_RIGHT.found(
            f"serviceaccount/{account}",
            f"The metrics server's account lacks {role}, so it can't check who asks it.",
            f"SubjectAccessReview: it may not {', '.join(whats)}",
            Fix(f"Bind the account to {role}, or install again.", command),
        )


def expired(name: str, body: Fields, evidence: str) -> ClusterFinding:
    """Return a finding about the expired certificate of an APIService's server."""
    service = facts.service_fields(body.child("spec").child("service"))
    secret = f"-n {facts.namespace(service)} {facts.name(service)}-tls"
    return CERTIFICATE_EXPIRED.found(
        f"apiservice/{name}",
        f"The certificate of {facts.server_of(body)} has expired, or is not valid yet.",
        evidence,
        Fix(
            "Make a new certificate: delete the Secret and install again; where cert-manager makes it, "
            "see its Certificate. If it is not valid yet, set the clocks.",
            f"kubectl delete secret {secret} && gpuscale install values.yaml",
        ),
    )


def _ends(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    now = datetime.fromtimestamp(snapshot.now_ms / 1000, UTC)
    reported = set()
    for body in snapshot.all("apiservices"):
        name = facts.name(body)
        text = snapshot.certificates.get(name, "")
        try:
            certificate = x509.load_pem_x509_certificate(text.encode())
        except ValueError:
            continue
        ends = certificate.not_valid_after_utc
        service = facts.full_name(facts.service_fields(body.child("spec").child("service")))
        if ends > now + _SOON or service in reported:
            continue
        reported.add(service)
        if ends <= now:
            yield expired(name, body, f"its Secret's certificate ended at {ends:%Y-%m-%d %H:%M}")
        else:
            yield CERTIFICATE_ENDS.found(
                f"apiservice/{name}",
                f"The certificate of {facts.server_of(body)} ends at {ends:%Y-%m-%d}.",
                f"Secret {service}-tls",
                Fix(CERTIFICATE_ENDS.fix, "gpuscale install values.yaml"),
            )


def _resource_metrics(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    if snapshot.hides("apiservices"):
        return
    asking = [look for look in snapshot.hpas if _resources(look)]
    services = [
        body
        for body in snapshot.all("apiservices")
        if body.child("spec").text("group") == RESOURCE_GROUP
    ]
    if not asking:
        return
    first = asking[0]
    said = f"{counted(len(asking), 'HPA')} ask for {_resources(first)[0]}, such as {first.about}"
    if not services:
        yield NO_RESOURCE_METRICS.found(
            f"apiservice/{RESOURCE_GROUP}",
            f"Nothing serves {RESOURCE_GROUP}; an HPA with such a metric never scales down.",
            said,
            Fix(NO_RESOURCE_METRICS.fix, _without(first)),
        )
    for body in services:
        if facts.condition(body, "Available") not in ("True", ""):
            condition = next(
                each
                for each in body.child("status").items("conditions")
                if each.text("type") == "Available"
            )
            yield NO_RESOURCE_METRICS.found(
                f"apiservice/{facts.name(body)}",
                f"{facts.server_of(body)} does not answer for {RESOURCE_GROUP}; HPAs with such a metric "
                "never scale down.",
                f"{condition.text('reason')}: {condition.text('message')}; {said}",
                Fix(
                    "See why it does not run.",
                    "kubectl get pods -A -l k8s-app=metrics-server",
                ),
            )


def _resources(look: HpaLook) -> list[str]:
    return [
        each.spec.name
        for each in look.metrics
        if isinstance(each.spec, ResourceMetric | ContainerResourceMetric)
    ]


def _without(look: HpaLook) -> str:
    """Return the command that removes an HPA's first Resource metric, if it has other metrics."""
    index = next(
        index
        for index, each in enumerate(look.metrics)
        if isinstance(each.spec, ResourceMetric | ContainerResourceMetric)
    )
    patch = json.dumps([{"op": "remove", "path": f"/spec/metrics/{index}"}])
    place = ("-n", look.namespace, "--type=json", "-p", patch)
    return facts.quoted("kubectl", "patch", "hpa", look.hpa.metadata.name, *place)
