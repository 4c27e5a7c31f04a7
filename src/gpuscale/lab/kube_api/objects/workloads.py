"""Deployments with their ReplicaSets, DaemonSets and Jobs.

Source: kubernetes v1.36 pkg/controller/deployment (sync.go, util/deployment_util.go, progress.go),
    pkg/controller/replicaset, pkg/controller/daemon, pkg/controller/job: who writes what of a status.
"""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from gpuscale.base.objects.meta import ObjectMeta, OwnerReference
from gpuscale.base.objects.pods import PodTemplate
from gpuscale.base.objects.workloads import Deployment, Job, LeaderWorkerSet
from gpuscale.lab.kube_api.objects.pods import job_labels, pod_spec
from gpuscale.lab.kube_api.objects.run import Json, Run
from gpuscale.server.metricsapi.wire import selector_body

_HASH = "pod-template-hash"
_REVISION = "deployment.kubernetes.io/revision"
_DEFAULT_STRATEGY = {
    "type": "RollingUpdate",
    "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
}


@dataclass(frozen=True, slots=True)
class PodCounts:
    """A workload's pods that are not being deleted: how many, and how many are ready."""

    all: int = 0
    ready: int = 0
    succeeded: int = 0


@dataclass(frozen=True, slots=True)
class DeploymentFacts:
    """Facts about a Deployment that the Deployment itself does not hold."""

    replica_set: str
    """Its name."""
    counts: PodCounts
    generation: int
    available_ms: int
    """When the condition Available last changed."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """Facts about a Job that the Job itself does not hold."""

    manifest: str
    """`namespace/name` of the Job in the files that this is a copy of."""
    counts: PodCounts
    created_ms: int
    completed_ms: int | None
    is_suspended: bool


def deployment_body(run: Run, deployment: Deployment, facts: DeploymentFacts) -> Json:
    """Return a Deployment, with one revision that was rolled out before the run."""
    meta = deployment.metadata
    annotated = replace(meta, annotations={**meta.annotations, _REVISION: "1"})
    written = deepcopy(dict(run.manifest("Deployment", meta.key).get("spec", {})))
    counts = facts.counts
    conditions = [
        run.condition(
            "Progressing",
            True,
            "NewReplicaSetAvailable",
            f'ReplicaSet "{facts.replica_set}" has successfully progressed.',
            run.start_ms,
            lastUpdateTime=run.time(run.start_ms),
        ),
        _available(run, deployment, facts),
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": run.metadata("Deployment", annotated, generation=facts.generation),
        "spec": {
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 10,
            "strategy": _DEFAULT_STRATEGY,
            **written,
            "replicas": deployment.replicas,
            "selector": _selector(deployment),
            "template": _template(run, "Deployment", meta.key, deployment.template),
        },
        "status": {
            "observedGeneration": facts.generation,
            **_given(
                replicas=counts.all,
                updatedReplicas=counts.all,
                readyReplicas=counts.ready,
                availableReplicas=counts.ready,
                unavailableReplicas=max(0, deployment.replicas - counts.ready),
            ),
            "conditions": conditions,
        },
    }


def is_available(deployment: Deployment, ready: int) -> bool:
    """Return whether enough pods are ready for the default `maxUnavailable` of 25 %."""
    return ready >= deployment.replicas - deployment.replicas // 4


def _available(run: Run, deployment: Deployment, facts: DeploymentFacts) -> Json:
    holds = is_available(deployment, facts.counts.ready)
    has = "has" if holds else "does not have"
    return run.condition(
        "Available",
        holds,
        "MinimumReplicasAvailable" if holds else "MinimumReplicasUnavailable",
        f"Deployment {has} minimum availability.",
        facts.available_ms,
        lastUpdateTime=run.time(facts.available_ms),
    )


def replica_set_body(run: Run, deployment: Deployment, facts: DeploymentFacts) -> Json:
    """Return the ReplicaSet of a Deployment's only revision."""
    meta, counts = deployment.metadata, facts.counts
    template_hash = facts.replica_set.rpartition("-")[2]
    template = _template(run, "Deployment", meta.key, deployment.template)
    labels = {**template["metadata"]["labels"], _HASH: template_hash}
    template["metadata"]["labels"] = labels
    selector = _selector(deployment)
    selector["matchLabels"] = {**selector.get("matchLabels", {}), _HASH: template_hash}
    replicas = deployment.replicas
    annotations = {
        "deployment.kubernetes.io/desired-replicas": str(replicas),
        "deployment.kubernetes.io/max-replicas": str(replicas - -replicas // 4),
        _REVISION: "1",
    }
    owner = OwnerReference("Deployment", meta.name)
    own = ObjectMeta(
        facts.replica_set, meta.namespace, labels, annotations, meta.creation_ms, None, owner
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": run.metadata("ReplicaSet", own, generation=facts.generation),
        "spec": {"replicas": replicas, "selector": selector, "template": template},
        "status": {
            "observedGeneration": facts.generation,
            "replicas": counts.all,
            **_given(
                fullyLabeledReplicas=counts.all,
                readyReplicas=counts.ready,
                availableReplicas=counts.ready,
            ),
        },
    }


def daemon_set_body(
    run: Run, meta: ObjectMeta, template: PodTemplate, nodes: int, counts: PodCounts
) -> Json:
    """Return the DaemonSet of the node agents.

    Args:
        run: it belongs to.
        meta: of the DaemonSet.
        template: of its pods.
        nodes: how many there are; each has one pod.
        counts: of those pods.
    """
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": run.metadata("DaemonSet", meta, generation=1),
        "spec": {
            "revisionHistoryLimit": 10,
            "selector": {"matchLabels": dict(template.labels)},
            "template": _template(run, "DaemonSet", meta.key, template),
            "updateStrategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1},
            },
        },
        "status": {
            "currentNumberScheduled": counts.all,
            "desiredNumberScheduled": nodes,
            "numberMisscheduled": 0,
            "numberReady": counts.ready,
            "observedGeneration": 1,
            **_given(
                numberAvailable=counts.ready,
                numberUnavailable=nodes - counts.ready,
                updatedNumberScheduled=counts.all,
            ),
        },
    }


def job_body(run: Run, job: Job, facts: JobFacts) -> Json:
    """Return a Job."""
    meta = replace(job.metadata, creation_ms=facts.created_ms)
    uid = run.uid("Job", meta.key)
    written = deepcopy(dict(run.manifest("Job", facts.manifest).get("spec", {})))
    template = _template(run, "Job", facts.manifest, job.template)
    template["metadata"]["labels"] |= job_labels(uid, meta.name)
    counts = facts.counts
    done_ms = facts.completed_ms
    created = run.time(facts.created_ms)
    status: Json = {
        **({} if facts.is_suspended else {"startTime": created}),
        **_given(active=counts.all, succeeded=counts.succeeded),
        "ready": counts.ready,
        "terminating": 0,
        "uncountedTerminatedPods": {},
    }
    if facts.is_suspended:
        why = ("JobSuspended", "Job suspended")
        suspended = run.condition("Suspended", True, *why, facts.created_ms, lastProbeTime=created)
        status["conditions"] = [suspended]
    if done_ms is not None:
        why = ("CompletionsReached", "Reached expected number of succeeded pods")
        status["completionTime"] = run.time(done_ms)
        status["conditions"] = [
            run.condition(kind, True, *why, done_ms, lastProbeTime=run.time(done_ms))
            for kind in ("SuccessCriteriaMet", "Complete")
        ]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": run.metadata("Job", meta, generation=1),
        "spec": {
            "backoffLimit": 6,
            "completionMode": "NonIndexed",
            "manualSelector": False,
            "podReplacementPolicy": "TerminatingOrFailed",
            **written,
            "suspend": facts.is_suspended,
            "completions": job.completions,
            "parallelism": job.parallelism,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}},
            "template": template,
        },
        "status": status,
    }


def leader_worker_set_body(run: Run, item: LeaderWorkerSet, groups: int, ready: int) -> Json:
    """Return a LeaderWorkerSet.

    Args:
        run: it belongs to.
        item: as it is now.
        groups: how many have a leader.
        ready: of how many all pods are ready.
    """
    meta = item.metadata
    is_whole = ready >= item.replicas
    kind, reason, message = (
        ("Available", "AllGroupsReady", "All replicas are ready")
        if is_whole
        else ("Progressing", "GroupsProgressing", "Replicas are progressing")
    )
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": run.metadata("LeaderWorkerSet", meta, generation=1),
        "spec": {
            **deepcopy(dict(run.manifest("LeaderWorkerSet", meta.key).get("spec", {}))),
            "replicas": item.replicas,
        },
        "status": {
            **_given(replicas=groups, readyReplicas=ready, updatedReplicas=groups),
            "hpaPodSelector": str(item.selector),
            "conditions": [run.condition(kind, True, reason, message, run.start_ms)],
        },
    }


def stateful_set_body(
    run: Run, item: LeaderWorkerSet, name: str, counts: PodCounts, selected: Mapping[str, str]
) -> Json:
    """Return the StatefulSet of the leaders, or of the workers of a group.

    Args:
        run: it belongs to.
        item: whose it is.
        name: its own.
        counts: of its pods.
        selected: the labels of its pods that it selects by.
    """
    meta, is_worker = item.metadata, name != item.metadata.name
    owner = OwnerReference("Pod" if is_worker else "LeaderWorkerSet", name)
    own = ObjectMeta(name, meta.namespace, dict(selected), {}, meta.creation_ms, None, owner)
    template = item.worker_template if is_worker else item.template
    written = run.template("LeaderWorkerSet", meta.key, of_workers=is_worker)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": run.metadata("StatefulSet", own, generation=1),
        "spec": {
            "replicas": item.size - 1 if is_worker else item.replicas,
            "selector": {"matchLabels": dict(selected)},
            "serviceName": meta.name,
            "podManagementPolicy": "Parallel",
            "template": _completed(written, template),
        },
        "status": {
            "replicas": counts.all,
            **_given(readyReplicas=counts.ready, availableReplicas=counts.ready),
        },
    }


def _template(run: Run, kind: str, key: str, template: PodTemplate) -> Json:
    return _completed(run.template(kind, key), template)


def _completed(written: Mapping[str, Any], template: PodTemplate) -> Json:
    metadata = {**written.get("metadata", {}), "labels": dict(template.labels)}
    spec = pod_spec(written.get("spec", {}), template.spec.containers)
    return {"metadata": metadata, "spec": spec}


def _selector(deployment: Deployment) -> Json:
    return dict(selector_body(deployment.selector) or {})


def _given(**counts: int) -> Json:
    """Return the counts without zeros, as Kubernetes' types write them."""
    return {name: count for name, count in counts.items() if count}
