"""KEDA: its pods, the external scalers of its triggers, and the conditions of its objects.

Source: KEDA v2.21 apis/keda/v1alpha1 (condition_types.go, scaledobject_types.go: annotations, conditions),
    pkg/scaling/executor, pkg/fallback (reasons), controllers/keda (the HPA's name, events).
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from cryptography import x509

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.base.words import counted
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.judges import AUTOSCALER, ClusterFinding
from gpuscale.ops.doctor.scalers import (
    ScaledTrigger,
    keda_deployments,
    operator_of,
    scaler_pods,
    scaler_services,
    triggers,
)
from gpuscale.ops.doctor.snapshot import Snapshot
from gpuscale.ops.lint.checks.limits import ANNOTATION, PAUSES, SCALED_PAUSED
from gpuscale.server.metricsapi.wire import EXTERNAL_GROUP

KEDA_CHECKS = Checks(AUTOSCALER)
KEDA_NOT_RUNNING = KEDA_CHECKS.add(
    "keda-not-running",
    Severity.ERROR,
    "KEDA's operator or metrics server, without a pod that is ready.",
    "See why its pods are not ready.",
)
KEDA_WRITES_CA = KEDA_CHECKS.add(
    "keda-writes-ca",
    Severity.WARNING,
    "KEDA's operator writes its own CA into the APIService that gpuscale serves.",
    "Start KEDA's operator with --enable-apiservice-patching=false.",
)
SCALER_ABSENT = KEDA_CHECKS.add(
    "scaler-absent",
    Severity.ERROR,
    "A trigger whose scalerAddress names no Service, or a port that it does not have.",
    "Correct scalerAddress to SERVICE.NAMESPACE:PORT of the scaler.",
)
SCALER_NOT_READY = KEDA_CHECKS.add(
    "scaler-not-ready",
    Severity.ERROR,
    "An external scaler without a pod that is ready, for which KEDA's fallback does not apply.",
    "See why its pods are not ready.",
)
SCALER_ALONE = KEDA_CHECKS.add(
    "scaler-alone",
    Severity.WARNING,
    "An external scaler with one ready pod; KEDA's fallback does not apply while that is away.",
    "Run two replicas of the scaler.",
)
SCALER_CA_ENDS = KEDA_CHECKS.add(
    "scaler-ca-ends",
    Severity.WARNING,
    "The CA that KEDA trusts a scaler by ends within two weeks, or has ended.",
    "Put the CA of the scaler's new certificate into the Secret.",
)
NO_PUSH_STREAM = KEDA_CHECKS.add(
    "no-push-stream",
    Severity.WARNING,
    "Triggers of type external-push without a stream to the scaler, so that waking waits for a poll.",
    "See the operator's log for the scaler's address; a NetworkPolicy or a proxy may cut streams off.",
)
SCALED_NOT_READY = KEDA_CHECKS.add(
    "scaled-not-ready",
    Severity.ERROR,
    "A ScaledObject or ScaledJob that KEDA says is not ready, with its events.",
    "See its message and events.",
)
FALLBACK_ACTIVE = KEDA_CHECKS.add(
    "fallback-active",
    Severity.WARNING,
    "A ScaledObject whose fallback replicas stand in, as a trigger fails.",
    "See which trigger fails; its source may be down.",
)
KEDA_HPA_ABSENT = KEDA_CHECKS.add(
    "keda-hpa-absent",
    Severity.ERROR,
    "A ScaledObject whose HPA is not there.",
    "Let KEDA make it again: restart its operator, and see its log.",
)
KEDA_HPA_BLIND = KEDA_CHECKS.add(
    "keda-hpa-blind",
    Severity.ERROR,
    "A ScaledObject whose HPA gets no metrics.",
    "Ask for the metric as the HPA does, and see KEDA's metrics server.",
)

_SOON = timedelta(days=14)
_PARTS = (
    ("keda-operator", "operator", "nothing is scaled between 0 and 1"),
    ("metrics-apiserver", "metrics server", "HPAs of KEDA get no metrics"),
)
"""How the names of KEDA's Deployments end, what they are, and what fails without them."""
_PATCHING = "--enable-apiservice-patching"
_MOST_EVENTS = 3


def keda_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the faults of KEDA and of its ScaledObjects and ScaledJobs."""
    scaled = [*snapshot.all("scaledobjects"), *snapshot.all("scaledjobs")]
    if not scaled:
        return
    yield from _own_pods(snapshot)
    yield from _written_ca(snapshot)
    yield from _scalers(snapshot)
    yield from _authorities(snapshot)
    for kind in ("scaledobjects", "scaledjobs"):
        for body in snapshot.all(kind):
            about = f"{kind[:-1]}/{facts.full_name(body)}"
            pauses = _pauses(body)
            if pauses and kind == "scaledjobs":
                yield _paused(about, body, pauses)
            yield from _conditions(snapshot, about, body, is_paused=bool(pauses))
    for body in snapshot.all("scaledobjects"):
        yield from _hpa(snapshot, body)


# KEDA's own pods


def _own_pods(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    for body in keda_deployments(snapshot):
        for ending, what, effect in _PARTS:
            if not facts.name(body).endswith(ending):
                continue
            ready = body.child("status").integer("readyReplicas") or 0
            if ready:
                continue
            place = facts.full_name(body)
            yield KEDA_NOT_RUNNING.found(
                f"deployment/{place}",
                f"KEDA's {what} has no pod that is ready: {effect}.",
                f"readyReplicas: 0 of {body.child('spec').integer('replicas') or 0}",
                Fix(
                    KEDA_NOT_RUNNING.fix,
                    f"kubectl describe deployment,pod -n {facts.namespace(body)}",
                ),
            )


def _written_ca(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    ours = [
        body
        for body in snapshot.all("apiservices")
        if body.child("spec").text("group") == EXTERNAL_GROUP
        and facts.server_of(body) == "gpuscale"
    ]
    for body in keda_deployments(snapshot):
        if not facts.name(body).endswith("keda-operator") or not ours:
            continue
        flags = facts.flags_of(body)
        rotates = flags.get("--enable-cert-rotation", "false") != "false"
        if rotates and flags.get(_PATCHING, "true") != "false":
            yield KEDA_WRITES_CA.found(
                f"apiservice/{facts.name(ours[0])}",
                "KEDA's operator writes its own CA here, and the API server then does not trust gpuscale.",
                f"Deployment {facts.full_name(body)} has --enable-cert-rotation, and not {_PATCHING}=false",
                Fix(
                    KEDA_WRITES_CA.fix,
                    f"kubectl edit deployment -n {facts.namespace(body)} {facts.name(body)}",
                ),
            )


# Scalers


def _scalers(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    for trigger in triggers(snapshot):
        if trigger.service is None or snapshot.hides("services"):
            continue
        if trigger.fault:
            yield SCALER_ABSENT.found(
                trigger.about,
                f"Its scaler {trigger.address} is not there: {trigger.fault}.",
                f"triggers[{trigger.index}].metadata.scalerAddress: {trigger.address}",
                Fix(SCALER_ABSENT.fix, trigger.edit),
            )
    if snapshot.hides("pods"):
        return
    for body, users in scaler_services(snapshot).items():
        yield from _scaler_pods(snapshot, body, users)


def _scaler_pods(
    snapshot: Snapshot, service: str, users: tuple[ScaledTrigger, ...]
) -> Iterator[ClusterFinding]:
    pods = scaler_pods(snapshot, service)
    ready = [pod for pod in pods if facts.is_ready(pod)]
    namespace = service.partition("/")[0]
    whose = f"{users[0].about} and {counted(len(users), 'trigger')} in all name it"
    if not ready:
        yield SCALER_NOT_READY.found(
            f"service/{service}",
            f"No pod of this scaler is ready, and {counted(len(users), 'trigger')} of KEDA ask it.",
            f"{counted(len(pods), 'pod')} behind the Service; {whose}",
            Fix(SCALER_NOT_READY.fix, f"kubectl describe pod -n {namespace}"),
        )
        return
    if len(ready) == 1:
        yield SCALER_ALONE.found(
            f"service/{service}",
            "One pod of this scaler is ready: while it restarts, KEDA neither wakes nor falls back.",
            f"pod {facts.full_name(ready[0])}; {whose}",
            Fix(SCALER_ALONE.fix, f"kubectl get deployment -n {namespace}"),
        )
    pushed = [each for each in users if each.kind == "external-push" and not each.is_paused]
    looks = [look for look in snapshot.scalers if look.service == service]
    if not pushed or not looks or any(look.fault or look.streams is None for look in looks):
        return
    streams = sum(look.streams or 0 for look in looks)
    if streams < len(pushed):
        yield NO_PUSH_STREAM.found(
            f"service/{service}",
            f"{streams:g} of {counted(len(pushed), 'push trigger')} have a stream to this scaler.",
            f"{pushed[0].about} is one of them; gpuscale_scaler_streams of {counted(len(looks), 'pod')}",
            Fix(NO_PUSH_STREAM.fix, f"kubectl logs -n {_operator_place(snapshot)}"),
        )


def _operator_place(snapshot: Snapshot) -> str:
    namespace, name = operator_of(snapshot)
    return f"{namespace} deployment/{name}"


def _authorities(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    now = datetime.fromtimestamp(snapshot.now_ms / 1000, UTC)
    for place, text in snapshot.scaler_cas.items():
        try:
            certificates = x509.load_pem_x509_certificates(text.encode())
        except ValueError:
            certificates = []
        ends = max((each.not_valid_after_utc for each in certificates), default=None)
        if ends is not None and ends >= now + _SOON:
            continue
        said = "is no certificate" if ends is None else f"ends at {ends:%Y-%m-%d}"
        namespace, _, name = place.partition("/")
        yield SCALER_CA_ENDS.found(
            f"secret/{place}",
            f"The CA that KEDA trusts a scaler by {said}.",
            "caCert of a TriggerAuthentication",
            Fix(SCALER_CA_ENDS.fix, f"kubectl get secret -n {namespace} {name} -o yaml"),
        )


# What KEDA's objects say


def _pauses(body: Fields) -> Mapping[str, str]:
    annotations = body.child("metadata").labels("annotations")
    given = {key: annotations.get(ANNOTATION + key) for key in PAUSES}
    return {key: text for key, text in given.items() if text is not None and text != "false"}


def _paused(about: str, body: Fields, pauses: Mapping[str, str]) -> ClusterFinding:
    place = ("kubectl", "annotate", about.partition("/")[0], "-n", facts.namespace(body))
    command = facts.quoted(*place, facts.name(body), *(f"{ANNOTATION}{each}-" for each in pauses))
    key, text = next(iter(pauses.items()))
    return SCALED_PAUSED.found(
        about,
        f"It is paused: {PAUSES[key].format(text)}.",
        f"annotation {ANNOTATION}{key}: {text}",
        Fix(SCALED_PAUSED.fix, command),
    )


def _conditions(
    snapshot: Snapshot, about: str, body: Fields, *, is_paused: bool
) -> Iterator[ClusterFinding]:
    found = {each.text("type"): each for each in body.child("status").items("conditions")}
    kind, _, place = about.partition("/")
    namespace, _, name = place.partition("/")
    describe = f"kubectl describe {kind} -n {namespace} {name}"
    ready = found.get("Ready")
    # KEDA sets conditions to Unknown without a reason before its first look.
    if ready is not None and ready.text("status") != "True" and ready.text("reason"):
        said = f"{ready.text('reason')}: {ready.text('message')}"
        events = "; ".join(
            each for each in _events(snapshot, kind, namespace, name) if each != said
        )
        yield SCALED_NOT_READY.found(
            about,
            f"KEDA says that Ready is {ready.text('status')}: {ready.text('reason')}.",
            f"{said}; {events}" if events else said,
            Fix(SCALED_NOT_READY.fix, describe),
        )
    fallback = found.get("Fallback")
    if fallback is not None and fallback.text("status") == "True":
        given = body.child("spec").child("fallback")
        yield FALLBACK_ACTIVE.found(
            about,
            f"A trigger fails, and its fallback of {given.integer('replicas') or 0} replicas stands in.",
            fallback.text("message"),
            Fix(FALLBACK_ACTIVE.fix, describe),
        )
    active = found.get("HPAActive")
    if active is not None and active.text("status") == "False" and not is_paused:
        if active.text("reason") == "ScalingDisabled":
            return
        yield KEDA_HPA_BLIND.found(
            about,
            f"Its HPA {body.child('status').text('hpaName')} can't scale: {active.text('reason')}.",
            active.text("message"),
            Fix(KEDA_HPA_BLIND.fix, describe),
        )


def _events(snapshot: Snapshot, kind: str, namespace: str, name: str) -> list[str]:
    """Return KEDA's latest warning events about an object."""
    found = _events_by_object(snapshot).get((kind, namespace, name), [])
    found = sorted(found, key=lambda each: each.text("lastTimestamp") or each.text("eventTime"))
    lines = (f"{each.text('reason')}: {each.text('message')}" for each in reversed(found))
    return list(dict.fromkeys(lines))[:_MOST_EVENTS]


@facts.once
def _events_by_object(snapshot: Snapshot) -> Mapping[tuple[str, str, str], list[Fields]]:
    found: dict[tuple[str, str, str], list[Fields]] = {}
    for each in snapshot.all("keda-events"):
        about = each.child("involvedObject")
        key = about.text("kind").lower(), about.text("namespace"), about.text("name")
        found.setdefault(key, []).append(each)
    return found


@facts.once
def _hpas_by_name(snapshot: Snapshot) -> frozenset[tuple[str, str]]:
    return frozenset((look.namespace, look.hpa.metadata.name) for look in snapshot.hpas)


def _hpa(snapshot: Snapshot, body: Fields) -> Iterator[ClusterFinding]:
    namespace, name = facts.namespace(body), facts.name(body)
    own = body.child("status").text("hpaName")
    named = _hpas_by_name(snapshot)
    if own and named and (namespace, own) not in named and not _pauses(body):
        yield KEDA_HPA_ABSENT.found(
            f"scaledobject/{namespace}/{name}",
            f"Its HPA {own} is not there, so nothing scales it between 1 and more.",
            f"status.hpaName: {own}",
            Fix(KEDA_HPA_ABSENT.fix, f"kubectl logs -n {_operator_place(snapshot)}"),
        )
