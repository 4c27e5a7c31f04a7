"""Pods that the scheduler does not try: scheduling gates, unbound volumes, claims without devices.

Source: kubernetes v1.36 pkg/scheduler/framework/plugins (schedulinggates, volumebinding, dynamicresources);
    resource.k8s.io/v1 (ResourceClaim, ResourceClaimTemplate, DeviceClass, ResourceSlice);
    kueue.x-k8s.io/v1beta2 (Workload: condition QuotaReserved), kueue pkg/controller/jobs/pod (the gate).
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from gpuscale.base.findings import Check, Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.hpa.cluster.verdicts import Why
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.facts import once
from gpuscale.ops.doctor.judges import WORKLOAD, ClusterFinding
from gpuscale.ops.doctor.node_pools import karpenters_words, verdict_of
from gpuscale.ops.doctor.snapshot import Snapshot

HELD_CHECKS = Checks(WORKLOAD)
POD_GATED = HELD_CHECKS.add(
    "pod-gated",
    Severity.WARNING,
    "Pods with scheduling gates, which their owner has not taken off.",
    "See who sets the gate, such as a queue of jobs, and why it holds the pod.",
)
JOB_SUSPENDED = HELD_CHECKS.add(
    "job-suspended",
    Severity.WARNING,
    "A Job with GPUs that is suspended for a queue of Kueue, which does not have it or has let it in.",
    "See what Kueue says of it: only its controller resumes the Job.",
)
WORKLOAD_QUEUED = HELD_CHECKS.add(
    "workload-queued",
    Severity.WARNING,
    "A workload with GPUs that Kueue keeps in its queue.",
    "Wait for quota, or see who has that of the queue.",
)
NO_SCHEDULER = HELD_CHECKS.add(
    "no-scheduler",
    Severity.ERROR,
    "Pods that no scheduler has looked at for a minute.",
    "Start the scheduler that the pods name, or correct schedulerName.",
)
VOLUME_NOT_BOUND = HELD_CHECKS.add(
    "volume-not-bound",
    Severity.ERROR,
    "Pods that wait for a PersistentVolumeClaim; more GPUs don't help.",
    "Make the claim, or give it a StorageClass that is there.",
)
CLAIM_NOT_ALLOCATED = HELD_CHECKS.add(
    "claim-not-allocated",
    Severity.ERROR,
    "Pods whose resource claim gets no device: no such class, template, driver or free device.",
    "Install the driver that makes the DeviceClass, or free a device.",
)

_KUEUE_GATE = "kueue.x-k8s.io/admission"
_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_INACTIVE_QUEUE = re.compile(r"ClusterQueue (\S+) (?:is inactive|is stopped)")
_ABSENT_QUEUE = re.compile(r"(LocalQueue|ClusterQueue) (\S+) doesn't exist")
_SCHEDULED_WITHIN_MS = 60_000
_VOLUME_WORDS = ("persistentvolumeclaim", "PersistentVolume", "persistent volume", "volume node")


@dataclass(frozen=True, slots=True)
class HoldReason:
    """Why the scheduler does not try a pod."""

    check: Check
    what: str
    evidence: str
    fix: Fix


def held_back(snapshot: Snapshot, pod: Fields) -> HoldReason | None:
    """Return what keeps the scheduler from trying a pod; None if it tries."""
    if facts.condition(pod, "PodScheduled") == "":
        # A pod whose claims don't exist yet is not scheduled at all.
        return next(_claims(snapshot, pod), None) or _unscheduled(snapshot, pod)
    gates = [each.text("name") for each in pod.child("spec").items("schedulingGates")]
    queued = _queued(snapshot).get(("Pod", facts.namespace(pod), facts.name(pod)))
    if _KUEUE_GATE in gates and queued is not None:
        return queued
    if gates:
        return HoldReason(
            POD_GATED,
            f"Its pods are held by the scheduling gate {', '.join(gates)}.",
            facts.why_waiting(pod),
            Fix(POD_GATED.fix, _describe(pod)),
        )
    return next(chain(_volumes(snapshot, pod), _claims(snapshot, pod)), None)


def queued_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the Jobs and other suspended objects that Kueue queues; gated pods get findings as pods."""
    for (kind, namespace, name), held in _queued(snapshot).items():
        if kind != "Pod":
            where = f"{kind.lower()}/{namespace}/{name}"
            yield held.check.found(where, held.what, held.evidence, held.fix)
    yield from _suspended(snapshot)


@once
def _queued(snapshot: Snapshot) -> Mapping[tuple[str, str, str], HoldReason]:
    """Return Kueue's messages about GPU workloads without quota, by owner."""
    found = {}
    for body in snapshot.all("queued-workloads"):
        templates = [each.child("template") for each in body.child("spec").items("podSets")]
        held = _waits_in_queue(body) if any(map(facts.asks_for_gpus, templates)) else None
        if held is not None:
            for owner in body.child("metadata").items("ownerReferences"):
                found[owner.text("kind"), facts.namespace(body), owner.text("name")] = held
    return found


def _waits_in_queue(body: Fields) -> HoldReason | None:
    """Return what a Workload of Kueue waits for: quota, or an admission check; None if it runs."""
    status = body.child("status")
    by_type = {each.text("type"): each for each in status.items("conditions")}
    reserved, admitted = by_type.get("QuotaReserved"), by_type.get("Admitted")
    evicted = by_type.get("Evicted")
    is_evicted = evicted is not None and evicted.text("status") == "True"
    is_admitted = admitted is not None and admitted.text("status") == "True"
    if reserved is None or (is_admitted and not is_evicted):
        return None
    namespace, queue = facts.namespace(body), body.child("spec").text("queueName")
    said, reason = reserved.text("message").rstrip("."), reserved.text("reason")
    evidence = (
        f"Workload {facts.full_name(body)}: QuotaReserved {reserved.text('status')}, {reason}"
    )
    look = (
        f"kubectl describe localqueue -n {namespace} {queue}; kubectl describe "
        f"workloads.kueue.x-k8s.io -n {namespace} {facts.name(body)}"
    )
    is_off = not body.child("spec").boolean("active", default=True)
    if evicted is not None and is_evicted and (is_off or is_admitted):
        name = facts.name(body)
        patch = '{"spec":{"active":true}}'
        return HoldReason(
            WORKLOAD_QUEUED,
            f"Kueue evicted it from the queue {queue}, and does not try again: "
            f"{evicted.text('message').rstrip('.')}.",
            f"Workload {facts.full_name(body)}: Evicted True, {evicted.text('reason')}",
            Fix(
                "Once what its pods waited for is there, set spec.active of the Workload back to true.",
                f"kubectl patch workloads.kueue.x-k8s.io {name} -n {namespace} --type=merge -p '{patch}'",
            )
            if is_off
            else Fix(
                "See whether its pods are gone and its quota is still held: then delete the Workload, which "
                "Kueue makes again.",
                look,
            ),
        )
    if reserved.text("status") == "True":
        for check in status.items("admissionChecks"):
            if check.text("state") != "Ready":
                name, state = check.text("name"), check.text("state")
                return HoldReason(
                    WORKLOAD_QUEUED,
                    f"It has quota of the queue {queue}, and Kueue's admission check {name} is {state}: "
                    f"{check.text('message').rstrip('.')}.",
                    evidence,
                    Fix(
                        "Do what the check's message says; the quota is held meanwhile.",
                        f"kubectl get provisioningrequests -n {namespace}; {look}",
                    ),
                )
        return None
    fix, ending = Fix(WORKLOAD_QUEUED.fix, look), ""
    inactive = _INACTIVE_QUEUE.search(said)
    absent = _ABSENT_QUEUE.search(said)
    if "maximum capacity" in said:
        ending = "; it can never start so"
        fix = Fix(
            "Ask for less in all, or raise the quota of the flavor in its ClusterQueue.", look
        )
    elif inactive is not None:
        fix = Fix(
            f"See why ClusterQueue {inactive[1]} is stopped or not ready: its condition Active says it.",
            f"kubectl describe clusterqueue {inactive[1]}",
        )
    elif absent is not None:
        fix = Fix(
            f"Make {absent[1]} {absent[2]}, or correct the label {_QUEUE_LABEL} of the workload.",
            f"kubectl get localqueue -n {namespace}",
        )
    return HoldReason(
        WORKLOAD_QUEUED, f"Kueue keeps it in the queue {queue}: {said}{ending}.", evidence, fix
    )


def _suspended(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Yield the Jobs that wait for a queue of Kueue and that no Workload explains."""
    for job in snapshot.all("jobs"):
        queue = facts.labels(job).get(_QUEUE_LABEL, "")
        place = ("Job", facts.namespace(job), facts.name(job))
        if (
            not queue
            or not job.child("spec").boolean("suspend")
            or place in _queued(snapshot)
            or not facts.asks_for_gpus(job.child("spec").child("template"))
            or not snapshot.serves("queued-workloads")
        ):
            continue
        owner, maker = _workload_owners(snapshot).get(place), facts.controller(job)
        if maker is not None and (maker[0], place[1], maker[1]) in _workload_owners(snapshot):
            continue  # Kueue holds what made it, such as a JobSet.
        known = f"its Workload {owner} is let in" if owner else "Kueue has no Workload for it"
        yield JOB_SUSPENDED.found(
            f"job/{facts.full_name(job)}",
            f"It is suspended for the queue {queue}, and {known}: nothing resumes it.",
            f"spec.suspend: true; {_QUEUE_LABEL}={queue}; {owner or 'no Workload'}",
            Fix(
                JOB_SUSPENDED.fix,
                f"kubectl describe job -n {facts.namespace(job)} {facts.name(job)}; kubectl get pods -A "
                "-l control-plane=controller-manager,app.kubernetes.io/name=kueue",
            ),
        )


@once
def _workload_owners(snapshot: Snapshot) -> Mapping[tuple[str, str, str], str]:
    """Return the names of Workloads, by the object that each is for."""
    return {
        (owner.text("kind"), facts.namespace(body), owner.text("name")): facts.name(body)
        for body in snapshot.all("queued-workloads")
        for owner in body.child("metadata").items("ownerReferences")
    }


def _describe(pod: Fields) -> str:
    return f"kubectl describe pod -n {facts.namespace(pod)} {facts.name(pod)}"


def _unscheduled(snapshot: Snapshot, pod: Fields) -> HoldReason | None:
    created = pod.child("metadata").time_ms("creationTimestamp")
    if created is None or snapshot.now_ms - created < _SCHEDULED_WITHIN_MS:
        return None
    scheduler = pod.child("spec").text("schedulerName", "default-scheduler")
    return HoldReason(
        NO_SCHEDULER,
        f"The scheduler {scheduler} has not looked at its pods for a minute.",
        f"schedulerName: {scheduler}; no condition PodScheduled",
        Fix(
            NO_SCHEDULER.fix,
            f"kubectl get pods -A | grep scheduler; {_describe(pod)}",
        ),
    )


def _volumes(snapshot: Snapshot, pod: Fields) -> Iterator[HoldReason]:
    said = facts.why_waiting(pod)
    if snapshot.hides("volumeclaims"):
        return
    claims = facts.by_full_name(snapshot, "volumeclaims")
    for volume in pod.child("spec").items("volumes"):
        name = volume.child("persistentVolumeClaim").text("claimName")
        if not name:
            continue
        place = f"{facts.namespace(pod)}/{name}"
        claim = claims.get(place)
        command = f"kubectl describe persistentvolumeclaim -n {facts.namespace(pod)} {name}"
        if claim is None:
            yield HoldReason(
                VOLUME_NOT_BOUND,
                f"There is no PersistentVolumeClaim {place}, which its pods mount.",
                said,
                Fix("Make the claim, or take the volume out of the pod template.", command),
            )
        elif claim.child("status").text("phase") != "Bound" and any(
            word in said for word in _VOLUME_WORDS
        ):
            yield _unbound(snapshot, claim, said, command)


def _unbound(snapshot: Snapshot, claim: Fields, said: str, command: str) -> HoldReason:
    place, of = facts.full_name(claim), claim.child("spec").text("storageClassName")
    classes = _names(snapshot, "storageclasses")
    evidence, say = said, "See why its provisioner does not make the volume."
    if snapshot.serves("storageclasses") and of and of not in classes:
        evidence = f"there is no StorageClass {of}; {said}"
        known = f", such as {next(iter(classes))}" if classes else ""
        say = (
            f"Make StorageClass {of}, or make the claim again with one that is there{known}: the class "
            "of a claim can't change."
        )
    elif not of:
        evidence = f"it names no StorageClass; {said}"
        say = (
            "Make a PersistentVolume that matches it, or make the claim again with a StorageClass."
        )
    return HoldReason(
        VOLUME_NOT_BOUND,
        f"Its pods wait for PersistentVolumeClaim {place}, which is not bound.",
        evidence,
        Fix(say, command),
    )


@once
def _names(snapshot: Snapshot, plural: str) -> Collection[str]:
    """Return the names of a kind's cluster-wide objects."""
    return {facts.name(each): None for each in snapshot.all(plural)}.keys()


def _claims(snapshot: Snapshot, pod: Fields) -> Iterator[HoldReason]:
    said, namespace = facts.why_waiting(pod), facts.namespace(pod)
    claims = facts.claims_of(pod.child("spec"))
    for each in claims:
        template = each.text("resourceClaimTemplateName")
        plural, kind = ("claimtemplates", "ResourceClaimTemplate")
        if not template:
            plural, kind = ("resourceclaims", "ResourceClaim")
        name = template or each.text("resourceClaimName")
        if snapshot.serves(plural) and f"{namespace}/{name}" not in facts.by_full_name(
            snapshot, plural
        ):
            yield HoldReason(
                CLAIM_NOT_ALLOCATED,
                f"There is no {kind} {namespace}/{name}, which its pods claim a device by.",
                said,
                Fix(f"Make {kind} {name}.", f"kubectl get {kind.lower()} -n {namespace}"),
            )
            return
    if claims:
        yield from _devices(snapshot, pod, said)


def _devices(snapshot: Snapshot, pod: Fields, said: str) -> Iterator[HoldReason]:
    lacking = next(
        (
            each
            for each in verdict_of(snapshot, pod).reasons
            if each.why in (Why.NO_CLASS, Why.NO_DEVICE)
        ),
        None,
    )
    if lacking is not None and lacking.why is Why.NO_CLASS:
        yield HoldReason(
            CLAIM_NOT_ALLOCATED,
            f"Its pods claim a device of DeviceClass {lacking.key}, which is not there.",
            said,
            Fix(
                "Install the driver for dynamic resource allocation that makes DeviceClass "
                f"{lacking.key}.",
                "kubectl get deviceclass,resourceslice",
            ),
        )
    elif lacking is not None and not snapshot.all("resourceslices"):
        yield HoldReason(
            CLAIM_NOT_ALLOCATED,
            "Its pods claim a device, and no driver offers any: there is no ResourceSlice.",
            said,
            Fix(
                "See whether the driver for dynamic resource allocation runs on the GPU nodes.",
                "kubectl get resourceslice; kubectl get pods -A",
            ),
        )
    elif "claim" in said and facts.full_name(pod) not in karpenters_words(snapshot):
        expression = lacking.wanted[0] if lacking is not None and lacking.wanted else ""
        yield HoldReason(
            CLAIM_NOT_ALLOCATED,
            "Its pods claim a device, and no device of the cluster matches its selector."
            if expression
            else "Its pods claim a device, and none that is free matches.",
            said,
            Fix(
                f"Loosen {expression}, or add a node with such a device."
                if expression
                else "Free a device, let a node come, or loosen the selectors of the claim.",
                "kubectl get resourceclaim -A; kubectl get resourceslice -o yaml",
            ),
        )
