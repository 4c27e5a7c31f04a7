"""Deployments, LeaderWorkerSets, Jobs and Services."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.meta import ObjectMeta, read_meta
from gpuscale.base.objects.pods import PodTemplate, read_pod_template
from gpuscale.base.objects.selectors import Selector, selector_of_labels
from gpuscale.base.objects.taints import Toleration


@dataclass(frozen=True, slots=True)
class Deployment:
    """A Deployment: this many pods of one template."""

    metadata: ObjectMeta
    replicas: int
    selector: Selector
    template: PodTemplate

    @property
    def templates(self) -> tuple[tuple[PodTemplate, int], ...]:
        """Return what pods are made from, with how many of each one replica has."""
        return ((self.template, 1),)


@dataclass(frozen=True, slots=True)
class LeaderWorkerSet(Deployment):
    """A LeaderWorkerSet: groups of a leader and its workers.

    Whoever scales it sees a Deployment of leaders: `replicas` counts groups, `selector` is the one of
    `status.hpaPodSelector`, and `template` the leaders'.

    Source: sigs.k8s.io/lws v0.9.0 api/leaderworkerset/v1/leaderworkerset_types.go (fields, defaults),
    pkg/controllers/leaderworkerset_controller.go (updateStatus: the selector).
    """

    worker_template: PodTemplate
    size: int = 1
    """Pods of a group, the leader among them."""
    restart_policy: str = "RecreateGroupOnPodRestart"
    startup_policy: str = "LeaderCreated"
    exclusive_topology: str = ""
    """The label of nodes whose value a group shares with no other; empty: none."""

    @property
    def templates(self) -> tuple[tuple[PodTemplate, int], ...]:
        return (self.template, 1), (self.worker_template, self.size - 1)


GROUP_OF_KIND = {"Deployment": "apps", "LeaderWorkerSet": "leaderworkerset.x-k8s.io"}
"""API group of what can be scaled."""
LWS_PREFIX = "leaderworkerset.sigs.k8s.io"
LWS_NAME, LWS_GROUP = f"{LWS_PREFIX}/name", f"{LWS_PREFIX}/group-index"
LWS_WORKER, LWS_KEY = f"{LWS_PREFIX}/worker-index", f"{LWS_PREFIX}/group-key"
"""Labels of a LeaderWorkerSet's pods."""
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
"""The label of a JobSet's pods that says of which of its templates they are."""
_RESTART_POLICIES = (
    "RecreateGroupOnPodRestart",
    "RecreateGroupAfterStart",
    "None",
    "Default",  # the old name of None
)


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """A DaemonSet: a pod on each node that takes it."""

    metadata: ObjectMeta
    template: PodTemplate


_OF_DAEMONS = tuple(
    Toleration(f"node.kubernetes.io/{what}", "Exists", "", effect)
    for what, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
"""What the controller adds; kubernetes v1.37 pkg/controller/daemon/util/daemonset_util.go."""


@dataclass(frozen=True, slots=True)
class Job:
    """A Job: pods of one template until enough of them succeeded."""

    metadata: ObjectMeta
    template: PodTemplate
    completions: int = 1
    parallelism: int = 1
    gang: int | None = None
    """How many of its pods get nodes at once, or none does; None: each by itself."""


@dataclass(frozen=True, slots=True)
class JobSet:
    """A JobSet: Jobs that belong together, each with the name that the controller gives it.

    Source: sigs.k8s.io/jobset v0.12 api/jobset/v1alpha2/jobset_types.go, pkg/util/placement (names).
    """

    metadata: ObjectMeta
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Service:
    """A Service: a name for the pods that its selector finds."""

    metadata: ObjectMeta
    selector: Mapping[str, str] = field(default_factory=dict)


def read_deployment(fields: Fields) -> Deployment:
    """Return the Deployment of a manifest."""
    spec = fields.child("spec", required=True)
    template = read_pod_template(spec)
    selector = spec.selector("selector")
    if selector is None:
        spec.note(("selector",), "this field is required")
    elif not selector.matches(template.labels):
        fix = "give template.metadata.labels what the selector asks for"
        spec.note(
            ("selector",),
            "a selector that matches the template's labels",
            found=str(selector),
            fix=fix,
        )
    return Deployment(
        metadata=read_meta(fields),
        replicas=_count(spec, "replicas", 1),
        selector=selector or selector_of_labels(template.labels),
        template=template,
    )


def read_leader_worker_set(fields: Fields) -> LeaderWorkerSet:
    """Return the LeaderWorkerSet of a manifest."""
    meta, spec = read_meta(fields), fields.child("spec", required=True)
    group = spec.child("leaderWorkerTemplate", required=True)
    size = _count(group, "size", 1)
    if size == 0:
        group.note(("size",), "one or more: the leader counts", found="0")
    worker = read_pod_template(group, "workerTemplate")
    leader = read_pod_template(group, "leaderTemplate") if "leaderTemplate" in group else worker
    restart = group.text("restartPolicy", _RESTART_POLICIES[0])
    if restart not in _RESTART_POLICIES:
        expected = f"one of {', '.join(_RESTART_POLICIES)}"
        group.note(("restartPolicy",), expected, found=repr(restart))
    startup = spec.text("startupPolicy", "LeaderCreated")
    if startup not in {"LeaderCreated", "LeaderReady"}:
        spec.note(("startupPolicy",), "LeaderCreated or LeaderReady", found=repr(startup))
    of_leaders = {LWS_NAME: meta.name, LWS_WORKER: "0"}
    return LeaderWorkerSet(
        metadata=meta,
        replicas=_count(spec, "replicas", 1),
        selector=selector_of_labels(of_leaders),
        template=replace(leader, labels={**leader.labels, **of_leaders}),
        worker_template=replace(worker, labels={**worker.labels, LWS_NAME: meta.name}),
        size=max(1, size),
        restart_policy="None" if restart == "Default" else restart,
        startup_policy=startup,
        exclusive_topology=meta.annotations.get(f"{LWS_PREFIX}/exclusive-topology", ""),
    )


def read_daemon_set(fields: Fields) -> DaemonSet:
    """Return the DaemonSet of a manifest, with the tolerations that the controller gives its pods."""
    template = read_pod_template(fields.child("spec", required=True))
    spec = replace(template.spec, tolerations=(*template.spec.tolerations, *_OF_DAEMONS))
    return DaemonSet(read_meta(fields), replace(template, spec=spec))


def read_job(fields: Fields) -> Job:
    """Return the Job of a manifest."""
    return _job(read_meta(fields), fields.child("spec", required=True))


def read_job_set(fields: Fields) -> JobSet:
    """Return the JobSet of a manifest."""
    meta, jobs = read_meta(fields), list[Job]()
    for item in fields.child("spec", required=True).items("replicatedJobs"):
        role = item.text("name", required=True)
        spec = item.child("template", required=True).child("spec", required=True)
        for index in range(_count(item, "replicas", 1)):
            job = _job(replace(meta, name=f"{meta.name}-{role}-{index}"), spec)
            labels = {
                "jobset.sigs.k8s.io/jobset-name": meta.name,
                REPLICATED_JOB: role,
                "jobset.sigs.k8s.io/job-index": str(index),
            }
            template = replace(job.template, labels={**job.template.labels, **labels})
            jobs.append(replace(job, template=template))
    if not jobs:
        fields.child("spec").note(("replicatedJobs",), "at least one Job")
    return JobSet(meta, tuple(jobs))


def _job(meta: ObjectMeta, spec: Fields) -> Job:
    parallelism = _count(spec, "parallelism", 1)
    policy = spec.child("scheduling").child("schedulingPolicy")
    return Job(
        metadata=meta,
        template=read_pod_template(spec),
        completions=_count(spec, "completions", 1),
        parallelism=parallelism,
        gang=_count(policy.child("gang"), "minCount", parallelism) if "gang" in policy else None,
    )


def read_service(fields: Fields) -> Service:
    """Return the Service of a manifest."""
    return Service(read_meta(fields), fields.child("spec").labels("selector"))


def _count(fields: Fields, key: str, default: int) -> int:
    count = fields.integer(key, default)
    if count is None or count < 0:
        fields.note((key,), "zero or more", found=str(count))
        return default
    return count
