"""From a scenario file to the setup of a run, or all faults in it.

The files that a scenario names are read through a function given by the caller; nothing here touches
the disk.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from gpuscale.base.documents.documents import Document, Path, load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.devices import DeviceClasses
from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.kueue import KueueObject
from gpuscale.base.objects.manifests import KubernetesObject, read_manifests
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pod_groups import PodGroup
from gpuscale.base.objects.scaled_object import ScaledObject
from gpuscale.base.objects.workloads import (
    LWS_PREFIX,
    DaemonSet,
    Deployment,
    Job,
    JobSet,
    LeaderWorkerSet,
    Service,
)
from gpuscale.hpa.cluster.nodes import (
    AutoscalerSettings,
    ClusterAutoscaler,
    Karpenter,
    NodePolicyFactory,
)
from gpuscale.hpa.cluster.scheduling import (
    DEFAULT_WEIGHTS,
    SchedulerSettings,
    ScoringStrategy,
    device_requests,
)
from gpuscale.hpa.controller import HpaPolicy, ReplicaPolicyFactory
from gpuscale.hpa.terms import SCALE_TO_ZERO, KubernetesVersion, parse_version
from gpuscale.lab.sim.scenario import model as spec
from gpuscale.lab.sim.scenario.capacity import (
    read_capacity_buffers,
    read_provisioning_requests,
)
from gpuscale.lab.sim.scenario.devices import Claims, check_queued, read_classes
from gpuscale.lab.sim.scenario.hpa_changes import read_hpa_changes
from gpuscale.lab.sim.scenario.instance_types import with_instance_types
from gpuscale.lab.sim.scenario.node_pools import read_currency, read_pools
from gpuscale.lab.sim.scenario.priorities import (
    BUILT_IN,
    Item,
    is_priority_class,
    prioritized,
    read_priority_class,
)
from gpuscale.lab.sim.scenario.queues import check_queues, queue_problems
from gpuscale.lab.sim.scenario.references import ReadFile, References
from gpuscale.lab.sim.scenario.scaled import scaled_object_problems
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.lab.sim.scenario.workloads import read_jobs, read_services
from gpuscale.series.rules import RuleGroups, load_rule_groups
from gpuscale.server.rules import default_config, load_rules
from gpuscale.signals import DEFAULT_COUNTERS, load_counters
from gpuscale.triggers import read_triggers
from gpuscale.triggers.policies import policy_faults

_CHART_RULES = "rules: {default: true}\n"
"""The values with which the adapter's chart adds its default rules, and no others."""
_FREQUENT_LOOPS = KubernetesVersion(1, 35)
"""The first release of the Cluster Autoscaler whose `frequent-loops-enabled` is on."""
P = TypeVar("P")
LoadPolicy = Callable[[str, str], Callable[[], Any] | None]
"""Returns what makes an installed policy, by entry-point group and name; None where there is none."""
REPLICA_POLICIES: Mapping[str, ReplicaPolicyFactory] = {"hpa": HpaPolicy}
NODE_POLICIES: Mapping[str, NodePolicyFactory] = {
    "cluster-autoscaler": ClusterAutoscaler,
    "karpenter": Karpenter,
}


def no_policy(_group: str, _name: str) -> None:
    """Return None: there are built-in policies only."""


def load_setup(
    text: str,
    source: str,
    read: ReadFile,
    load_policy: LoadPolicy = no_policy,
    settings: Sequence[str] = (),
    instance_types: tuple[str, str] | None = None,
) -> Setup:
    """Return the setup of a file's scenario.

    Args:
        text: of the scenario.
        source: what messages call it.
        read: reads the files that it names.
        load_policy: finds the policies that it names and that are not built in.
        settings: fields of it to set, each as `spec.duration=10m`.
        instance_types: text and name of a file of instance types, which go before the scenario's.

    Raises:
        ConfigError: the file, or one that it names, is wrong; with every fault found.
    """
    scenario, document = spec.parse_scenario(text, source, settings)
    return _Resolver(scenario, document, read, load_policy, instance_types).setup()


def _autoscaler_settings(run: spec.ScenarioSpec) -> AutoscalerSettings:
    """Return the profile's settings in a release, with the flags that the scenario gives."""
    flags, version = run.node_autoscaler, parse_version(run.pipeline.kubernetes_version)
    profile = AutoscalerSettings(frequent_loops_enabled=version >= _FREQUENT_LOOPS)
    if flags.profile:
        cloud = next(iter(flags.profile.id_schemes), "")
        profile = replace(profile, cloud_provider=cloud, **flags.profile.autoscaler_flags)
    known = {each.name for each in fields(AutoscalerSettings)}
    given = {}
    for name in flags.model_fields_set - {"policy", "profile"}:
        value = getattr(flags, name)
        if value is not None:
            given[name if name in known else f"{name}_ms"] = value
    # Of these features whoever uses them has switched them on.
    given["enable_provisioning_requests"] = bool(run.provisioning_requests)
    given["capacity_buffer_pod_injection_enabled"] = bool(run.capacity_buffers)
    return replace(profile, seed=run.seed, **given)


def _scheduler(given: spec.SchedulerSpec) -> SchedulerSettings:
    strategy, ratio = given.scoring_strategy, given.scoring_strategy.requested_to_capacity_ratio
    return SchedulerSettings(
        ScoringStrategy(
            strategy.type,
            tuple((each.name, each.weight) for each in strategy.resources),
            tuple((each.utilization, each.score) for each in ratio.shape) if ratio else (),
        ),
        {**DEFAULT_WEIGHTS, **{str(name): weight for name, weight in given.weights.items()}},
        given.defaulting_type == "System",
        given.percentage_of_nodes_to_score,
    )


_NOT_OF_GANGS = frozenset(
    {
        "schedulingConstraints",
        "resourceClaims",
        "disruptionMode",
        "parentCompositePodGroupName",
        "preemptionPolicy",
    }
)
"""Fields of PodGroups, and of Jobs' `scheduling`, that change where pods go or who ends."""


class _Resolver:
    """Resolves a scenario's references, and collects faults."""

    def __init__(
        self,
        scenario: spec.Scenario,
        document: Document,
        read: ReadFile,
        load_policy: LoadPolicy,
        instance_types: tuple[str, str] | None,
    ) -> None:
        self._scenario = scenario
        self._spec = scenario.spec
        self._references = References(document, read)
        self._instance_types = instance_types
        self._load_policy = load_policy
        self._manifests: list[Mapping[str, object]] = []
        self._priorities = dict(BUILT_IN)
        self._scaled: list[tuple[ScaledObject, Document]] = []

    def setup(self) -> Setup:
        objects = self._objects()
        has_objects = not self._references.problems
        priorities, references, run = self._priorities, self._references, self._spec
        whole = with_instance_types(run, references, self._instance_types)
        classes = read_classes(objects, whole.node_pools, references)
        pools = read_pools(whole, classes, references)
        is_karpenter = run.node_autoscaler.policy == "karpenter"
        claims = Claims(objects, classes, pools, references, is_karpenter=is_karpenter)
        if classes is not None:
            self._check_scored(classes)

        def completed(item: Item) -> Item:
            return claims.resolved(prioritized(item, priorities, references))

        deployments = tuple(completed(o) for o in objects if isinstance(o, Deployment))
        jobs = {o.metadata.key: completed(o) for o in objects if isinstance(o, Job)}
        job_sets = {
            o.metadata.key: replace(o, jobs=tuple(map(completed, o.jobs)))
            for o in objects
            if isinstance(o, JobSet)
        }
        daemon_sets = tuple(
            prioritized(o, priorities, references) for o in objects if isinstance(o, DaemonSet)
        )
        self._check_daemons(daemon_sets)
        hpas = tuple(o for o in objects if isinstance(o, HorizontalPodAutoscaler))
        scaled_objects = tuple(o for o in objects if isinstance(o, ScaledObject))
        adapter = references.text(run.rules, ("rules",))
        rules = references.parsed(adapter, load_rules)
        prometheus = references.text(run.recording_rules, ("recordingRules",))
        prometheus_rules = references.parsed(prometheus, load_rule_groups)
        triggers = references.parsed(
            references.text(run.triggers, ("triggers",)),
            lambda text, name: read_triggers(text, name, policy_faults),
        )
        counters = references.parsed(references.text(run.counters, ("counters",)), load_counters)
        currency = read_currency(whole, references)
        workloads = read_services(run, deployments, references) if has_objects else ()
        runs = read_jobs(run, jobs, job_sets, references) if has_objects else ()
        hpa_changes = read_hpa_changes(run, hpas, references) if has_objects else ()
        by_key = {each.metadata.key: each for each in deployments}
        templates = {key: each.template for key, each in by_key.items()}
        templates.update((key, each.template) for key, each in jobs.items())
        requests = read_provisioning_requests(run, templates, references) if has_objects else ()
        buffers = read_capacity_buffers(run, templates, by_key, references) if has_objects else ()
        if has_objects:
            check_queues(objects, references)
            check_queued((*jobs.values(), *job_sets.values()), references)
            self._check_targets(hpas, deployments)
            known = {deployment.metadata.key: deployment for deployment in deployments}
            before: list[ScaledObject] = []
            for scaled, document in self._scaled:
                references.problems += scaled_object_problems(scaled, document, known, hpas, before)
                before.append(scaled)
            self._check_zero((*hpas, *(each.hpa for each in hpa_changes)))
        replica_policy = self._policy(
            "gpuscale.replica_policies",
            self._spec.replica_policy,
            REPLICA_POLICIES,
            ("replicaPolicy",),
        )
        node_policy = self._policy(
            "gpuscale.node_policies",
            self._spec.node_autoscaler.policy,
            NODE_POLICIES,
            ("nodeAutoscaler", "policy"),
        )
        if self._references.problems:
            raise ConfigError(*self._references.problems)
        autoscaler, name = self._spec.node_autoscaler, self._spec.pipeline.agent_service
        labels = {"app.kubernetes.io/name": name}
        # The node agents' Service, which Object metrics may describe.
        agents = Service(ObjectMeta(name, self._spec.pipeline.agent_namespace, labels), labels)
        return Setup(
            name=self._scenario.metadata.name,
            description=self._spec.description.strip(),
            duration_ms=self._spec.duration,
            seed=self._spec.seed,
            pipeline=self._spec.pipeline,
            scan_interval_ms=autoscaler.scan_interval,
            autoscaler=_autoscaler_settings(run),
            replica_policy=replica_policy,
            node_policy=node_policy,
            pools=pools,
            currency=currency,
            deployments=deployments,
            services=(*(o for o in objects if isinstance(o, Service)), agents),
            hpas=hpas,
            scaled_objects=scaled_objects,
            workloads=workloads,
            jobs=runs,
            rules=rules or default_config(),
            rules_text=adapter[0] if adapter else _CHART_RULES,
            prometheus_rules=prometheus_rules or RuleGroups(),
            counters=DEFAULT_COUNTERS if counters is None else counters,
            manifests=tuple(self._manifests),
            budgets=tuple(o for o in objects if isinstance(o, PodDisruptionBudget)),
            triggers=triggers or (),
            hpa_changes=hpa_changes,
            provisioning_requests=requests,
            capacity_buffers=buffers,
            scheduler=_scheduler(run.scheduler),
            pod_groups=tuple(o for o in objects if isinstance(o, PodGroup)),
            daemon_sets=daemon_sets,
            queues=tuple(o for o in objects if isinstance(o, KueueObject)),
        )

    def _policy(
        self, group: str, name: str, built_in: Mapping[str, Callable[[], P]], path: Path
    ) -> Callable[[], P]:
        """Return a policy, built-in or from a plug-in."""
        factory = built_in.get(name) or self._load_policy(group, name)
        if factory is not None:
            return factory
        expected = f"{' or '.join(built_in)}, or the name of an installed entry point of {group}"
        self._references.note(path, expected, found=repr(name))
        return next(iter(built_in.values()))

    def _objects(self) -> list[KubernetesObject]:
        objects: list[KubernetesObject] = []
        for index, ref in enumerate(self._spec.manifests):
            text = self._references.text(ref, ("manifests", index))
            if text is None:
                continue
            try:
                documents = load_documents(*text)
                classes = [each for each in documents if is_priority_class(each)]
                self._priorities.update(map(read_priority_class, classes))
                documents = tuple(each for each in documents if each not in classes)
                found = read_manifests(documents)
                for each, document in zip(found, documents, strict=True):
                    self._check_groups(each, document, objects)
                    objects.append(each)
                self._scaled += [
                    (each, document)
                    for each, document in zip(found, documents, strict=True)
                    if isinstance(each, ScaledObject)
                ]
                self._manifests += [each.data for each in documents if isinstance(each.data, dict)]
            except ConfigError as error:
                self._references.problems.extend(error.problems)
        return objects

    def _check_groups(
        self, item: KubernetesObject, document: Document, before: Sequence[KubernetesObject]
    ) -> None:
        """Note what of groups and queues is not simulated."""
        self._references.problems += queue_problems(item, document)
        if isinstance(item, PodGroup | Job):
            spec = Fields(document, document.data).child("spec")
            scheduling = spec if isinstance(item, PodGroup) else spec.child("scheduling")
            for name in _NOT_OF_GANGS & scheduling.data.keys():
                scheduling.note((name,), "none: it is not simulated", found="one")
            self._references.problems += spec.problems
        if isinstance(item, JobSet):
            self._check_job_set(document)
        if not isinstance(item, Deployment):
            return
        key = item.metadata.key
        for other in before:
            is_same = isinstance(other, Deployment) and other.metadata.key == key
            if is_same and type(other) is not type(item):
                found = f"{type(item).__name__} {key} beside {type(other).__name__} {key}"
                fix = "the simulation knows what is scaled by its name"
                path: Path = ("metadata", "name")
                problem = document.problem(path, "different names", found=found, fix=fix)
                self._references.problems.append(problem)
        subgroups = f"{LWS_PREFIX}/subgroup-exclusive-topology"
        if isinstance(item, LeaderWorkerSet) and subgroups in item.metadata.annotations:
            path = ("metadata", "annotations", subgroups)
            expected = "none: places of subgroups are not simulated"
            self._references.problems.append(document.problem(path, expected, found="one"))

    def _check_job_set(self, document: Document) -> None:
        fields = Fields(document, document.data)
        spec = fields.child("spec")
        if spec.child("startupPolicy").text("startupPolicyOrder", "AnyOrder") != "AnyOrder":
            spec.note(("startupPolicy",), "AnyOrder: others are not simulated", found="InOrder")
        if spec.child("successPolicy").text("operator", "All") != "All":
            spec.note(("successPolicy",), "All: others are not simulated", found="Any")
        for each in spec.items("replicatedJobs"):
            if each.data.get("dependsOn"):
                each.note(("dependsOn",), "none: it is not simulated", found="one")
        annotation = "alpha.jobset.sigs.k8s.io/exclusive-topology"
        if annotation in fields.child("metadata").child("annotations"):
            path: Path = ("metadata", "annotations", annotation)
            fields.note(path, "none: it is not simulated", found="one")
        self._references.problems += fields.problems

    def _check_scored(self, classes: DeviceClasses) -> None:
        """Refuse points for resources that devices serve, which are not counted."""
        for index, each in enumerate(self._spec.scheduler.scoring_strategy.resources):
            if each.name in classes.by_resource:
                self._references.note(
                    ("scheduler", "scoringStrategy", "resources", index, "name"),
                    "a resource that no DeviceClass serves: points for others are not simulated",
                    found=each.name,
                )

    def _check_daemons(self, daemon_sets: Sequence[DaemonSet]) -> None:
        agent = self._spec.pipeline.agent_namespace, self._spec.pipeline.agent_service
        for each in daemon_sets:
            meta, found = each.metadata, f"DaemonSet {each.metadata.name}"
            if device_requests(each.template.spec) or each.template.spec.claims:
                expected = "DaemonSets that ask for no GPU: others have to get those"
                self._references.note(("manifests",), expected, found=f"{found} with GPUs")
            if (meta.namespace, meta.name) == agent:
                expected = (
                    "none of this name: it is that of the node agents, which are there anyway"
                )
                self._references.note(("manifests",), expected, found=found)

    def _check_targets(
        self, hpas: tuple[HorizontalPodAutoscaler, ...], deployments: tuple[Deployment, ...]
    ) -> None:
        known = {each.metadata.key: type(each).__name__ for each in deployments}
        for hpa in hpas:
            target = f"{hpa.metadata.namespace}/{hpa.target.name}"
            if hpa.target.kind != known.get(target):
                found = f"{hpa.target.kind} {target} in HorizontalPodAutoscaler {hpa.metadata.name}"
                there = ", ".join(sorted(known)) or "none"
                self._references.note(
                    ("manifests",),
                    f"a Deployment or LeaderWorkerSet of the manifests (there: {there})",
                    found=found,
                )

    def _check_zero(self, hpas: tuple[HorizontalPodAutoscaler, ...]) -> None:
        pipeline = self._spec.pipeline
        is_on = pipeline.hpa_scale_to_zero
        if is_on is None:
            is_on = SCALE_TO_ZERO.is_on(parse_version(pipeline.kubernetes_version))
        for hpa in hpas:
            if hpa.min_replicas == 0 and not is_on:
                found = f"minReplicas 0 in HorizontalPodAutoscaler {hpa.metadata.name}"
                self._references.note(
                    ("manifests",),
                    f"1 or more: in Kubernetes {pipeline.kubernetes_version} the gate HPAScaleToZero is off",
                    found=found,
                    fix='set pipeline.hpaScaleToZero: true, or pipeline.kubernetesVersion: "1.37"',
                )
