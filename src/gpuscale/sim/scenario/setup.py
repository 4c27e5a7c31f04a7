"""From a scenario file to all that a run starts with, or every reason why it can't start.

The files that a scenario names are read through a function given by the caller; nothing here touches
the disk.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gpuscale.cluster.nodes.policy import ClusterAutoscaler, NodePolicyFactory
from gpuscale.cluster.nodes.pools import AutoscalerSettings, NodePool
from gpuscale.cluster.scheduling.resources import gpu_count
from gpuscale.core.documents.documents import Document, Path, load_documents
from gpuscale.core.errors import ConfigError, NotFoundError, Problem
from gpuscale.core.quantity import Quantity, parse_quantity
from gpuscale.formats.signals.catalogue import SIGNALS
from gpuscale.gpu.counters import DEFAULT_COUNTERS, Counter, load_counters
from gpuscale.gpu.model_table import MODELS
from gpuscale.gpu.models import PCIE_4, GpuModel, expected_models, find_model
from gpuscale.hpa.policy import HpaPolicy, ReplicaPolicyFactory
from gpuscale.hpa.versions import SCALE_TO_ZERO, parse_version
from gpuscale.objects.hpa import HorizontalPodAutoscaler
from gpuscale.objects.manifests import KubernetesObject, read_manifests
from gpuscale.objects.meta import ObjectMeta
from gpuscale.objects.nodes import Taint
from gpuscale.objects.pods import Lifecycle
from gpuscale.objects.scaled_object import ScaledObject
from gpuscale.objects.workloads import Deployment, Job, Service
from gpuscale.plan.naming import policy_faults
from gpuscale.queueing.batching import Batching
from gpuscale.queueing.times import Constant, Times
from gpuscale.rules.config import AdapterConfig, default_config, load_rules
from gpuscale.series.rules.groups import RuleGroups
from gpuscale.series.rules.load import load_rule_groups
from gpuscale.sim.control.cloud import CloudPool
from gpuscale.sim.load.costs import ServiceModel
from gpuscale.sim.load.loads import Load, RampLoad, SineLoad, SpikesLoad, StepsLoad
from gpuscale.sim.load.pod_metrics import Figure, ServedMetrics
from gpuscale.sim.load.traces import load_trace
from gpuscale.sim.scenario import model as spec
from gpuscale.sim.scenario.batching import batching_of
from gpuscale.sim.scenario.scaled import scaled_object_problems
from gpuscale.sim.scenario.times import times_of
from gpuscale.triggers.metadata import read_triggers
from gpuscale.triggers.trigger import Trigger

_CHART_RULES = "rules: {default: true}\n"
"""The values with which the adapter's chart adds its default rules, and no others."""
STOP_MS = 2_000
"""From SIGTERM to gone, for a process that ends when asked; the grace period of 30 s is its upper limit."""
_SIGNALS: Mapping[Figure, str] = {"queue": "waiting", "inFlight": "running", "kvCache": "kv-cache"}
"""What the signals of model servers are called after the server."""
P = TypeVar("P")
ReadFile = Callable[[str], str]
"""Returns the text of a file named in a scenario; raises NotFoundError with a reason."""
LoadPolicy = Callable[[str, str], Callable[[], Any] | None]
"""Returns what makes an installed policy, by entry-point group and name; None where there is none."""
REPLICA_POLICIES: Mapping[str, ReplicaPolicyFactory] = {"hpa": HpaPolicy}
NODE_POLICIES: Mapping[str, NodePolicyFactory] = {"cluster-autoscaler": ClusterAutoscaler}


@dataclass(frozen=True, slots=True)
class StartTimes:
    """How long pods take to come up, in seconds."""

    pull: Times
    cached_pull: Times
    """On a node that has the image."""
    startup: Times


@dataclass(frozen=True, slots=True)
class ServiceSetup:
    """A Deployment, its load, and what a request costs it."""

    deployment: str
    """`namespace/name`."""
    model: ServiceModel
    load: Load
    lifecycle: Lifecycle
    memory_mib: int
    is_one_by_one: bool = False
    """Whether each request is served by itself."""
    is_random: bool = True
    """Whether those come at random."""
    slo: spec.SloSpec | None = None
    metrics: ServedMetrics | None = None
    starts: StartTimes | None = None
    """None: all take what `lifecycle` says."""


@dataclass(frozen=True, slots=True)
class JobSetup:
    """One Job to be submitted at one moment."""

    job: Job
    manifest: str
    """`namespace/name` of the Job in the manifests that this is a copy of."""
    at_ms: int
    lifecycle: Lifecycle
    utilization_ratio: float
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Setup:
    """All that a run starts with."""

    name: str
    description: str
    duration_ms: int
    seed: int
    pipeline: spec.Pipeline
    scan_interval_ms: int
    autoscaler: AutoscalerSettings
    replica_policy: ReplicaPolicyFactory
    node_policy: NodePolicyFactory
    pools: tuple[CloudPool, ...]
    currency: str
    """Of all prices."""
    deployments: tuple[Deployment, ...]
    services: tuple[Service, ...]
    hpas: tuple[HorizontalPodAutoscaler, ...]
    """Of the manifests; those that KEDA makes come with `scaled_objects`."""
    scaled_objects: tuple[ScaledObject, ...]
    workloads: tuple[ServiceSetup, ...]
    jobs: tuple[JobSetup, ...]
    rules: AdapterConfig
    rules_text: str
    """The file that `rules` was read from."""
    prometheus_rules: RuleGroups
    counters: tuple[Counter, ...]
    manifests: tuple[Mapping[str, object], ...]
    """The Kubernetes objects as their files have them, for an API server."""
    triggers: tuple[Trigger, ...] = ()
    """Those that are served as external metrics; KEDA's come with `scaled_objects`."""


def no_policy(_group: str, _name: str) -> None:
    """Return None: only the built-in policies are there."""


def load_setup(
    text: str,
    source: str,
    read: ReadFile,
    load_policy: LoadPolicy = no_policy,
    settings: Sequence[str] = (),
) -> Setup:
    """Return the setup of a file's scenario.

    Args:
        text: of the scenario.
        source: what messages call it.
        read: reads the files that it names.
        load_policy: finds the policies that it names and that are not built in.
        settings: fields of it to set, each as `spec.duration=10m`.

    Raises:
        ConfigError: the file, or one that it names, is wrong; with every fault found.
    """
    scenario, document = spec.parse_scenario(text, source, settings)
    return _Resolver(scenario, document, read, load_policy).setup()


class _Resolver:
    """Follows a scenario's references, collecting what is wrong."""

    def __init__(
        self,
        scenario: spec.Scenario,
        document: Document,
        read: ReadFile,
        load_policy: LoadPolicy,
    ) -> None:
        self._scenario = scenario
        self._spec = scenario.spec
        self._document = document
        self._read = read
        self._load_policy = load_policy
        self._problems: list[Problem] = []
        self._manifests: list[Mapping[str, object]] = []
        self._scaled: list[tuple[ScaledObject, Document]] = []

    def setup(self) -> Setup:
        objects = self._objects()
        has_objects = not self._problems
        deployments = tuple(o for o in objects if isinstance(o, Deployment))
        jobs = {o.metadata.key: o for o in objects if isinstance(o, Job)}
        hpas = tuple(o for o in objects if isinstance(o, HorizontalPodAutoscaler))
        scaled_objects = tuple(o for o in objects if isinstance(o, ScaledObject))
        rules_text, rules = self._rules()
        prometheus_rules = self._prometheus_rules()
        triggers = self._triggers()
        counters = self._counters()
        pools = self._pools()
        currency = self._currency()
        workloads = self._services(deployments) if has_objects else ()
        runs = self._jobs(jobs) if has_objects else ()
        if has_objects:
            self._check_targets(hpas, deployments)
            self._check_scaled_objects(hpas, deployments)
            self._check_zero(hpas)
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
        if self._problems:
            raise ConfigError(*self._problems)
        autoscaler = self._spec.node_autoscaler
        return Setup(
            name=self._scenario.metadata.name,
            description=self._spec.description.strip(),
            duration_ms=self._spec.duration,
            seed=self._spec.seed,
            pipeline=self._spec.pipeline,
            scan_interval_ms=autoscaler.scan_interval,
            autoscaler=AutoscalerSettings(
                unneeded_time_ms=autoscaler.unneeded_time,
                delay_after_add_ms=autoscaler.delay_after_add,
            ),
            replica_policy=replica_policy,
            node_policy=node_policy,
            pools=pools,
            currency=currency,
            deployments=deployments,
            services=(*(o for o in objects if isinstance(o, Service)), self._agent_service()),
            hpas=hpas,
            scaled_objects=scaled_objects,
            workloads=workloads,
            jobs=runs,
            rules=rules,
            rules_text=rules_text,
            prometheus_rules=prometheus_rules,
            counters=counters,
            manifests=tuple(self._manifests),
            triggers=triggers,
        )

    def _note(
        self, path: Path, expected: str, *, found: str | None = None, fix: str | None = None
    ) -> None:
        self._problems.append(
            self._document.problem(("spec", *path), expected, found=found, fix=fix)
        )

    def _text(self, ref: spec.FileRef, path: Path) -> tuple[str, str] | None:
        """Return a reference's text and the name to use in messages, or None once noted."""
        if ref.inline is not None:
            return ref.inline, f"{self._document.source}#{path[0]}"
        return self._file(str(ref.file), (*path, "file"))

    def _file(self, name: str, path: Path) -> tuple[str, str] | None:
        try:
            return self._read(name), name
        except NotFoundError as error:
            self._note(path, "a file that can be read", found=str(error))
            return None

    def _policy(
        self, group: str, name: str, built_in: Mapping[str, Callable[[], P]], path: Path
    ) -> Callable[[], P]:
        """Return what makes a policy, built in or of a plug-in."""
        factory = built_in.get(name) or self._load_policy(group, name)
        if factory is not None:
            return factory
        expected = f"{' or '.join(built_in)}, or the name of an installed entry point of {group}"
        self._note(path, expected, found=repr(name))
        return next(iter(built_in.values()))

    def _objects(self) -> list[KubernetesObject]:
        objects: list[KubernetesObject] = []
        for index, ref in enumerate(self._spec.manifests):
            text = self._text(ref, ("manifests", index))
            if text is None:
                continue
            try:
                documents = load_documents(*text)
                found = read_manifests(documents)
                objects.extend(found)
                self._scaled += [
                    (each, document)
                    for each, document in zip(found, documents, strict=True)
                    if isinstance(each, ScaledObject)
                ]
                self._manifests += [each.data for each in documents if isinstance(each.data, dict)]
            except ConfigError as error:
                self._problems.extend(error.problems)
        return objects

    def _rules(self) -> tuple[str, AdapterConfig]:
        text = self._text(self._spec.rules, ("rules",)) if self._spec.rules else None
        if text is not None:
            try:
                return text[0], load_rules(*text)
            except ConfigError as error:
                self._problems.extend(error.problems)
        return _CHART_RULES, default_config()

    def _prometheus_rules(self) -> RuleGroups:
        ref = self._spec.recording_rules
        text = self._text(ref, ("recordingRules",)) if ref else None
        if text is not None:
            try:
                return load_rule_groups(*text)
            except ConfigError as error:
                self._problems.extend(error.problems)
        return RuleGroups()

    def _triggers(self) -> tuple[Trigger, ...]:
        text = self._text(self._spec.triggers, ("triggers",)) if self._spec.triggers else None
        if text is not None:
            try:
                return read_triggers(*text, policy_faults)
            except ConfigError as error:
                self._problems.extend(error.problems)
        return ()

    def _counters(self) -> tuple[Counter, ...]:
        text = self._text(self._spec.counters, ("counters",)) if self._spec.counters else None
        if text is not None:
            try:
                return load_counters(*text)
            except ConfigError as error:
                self._problems.extend(error.problems)
        return DEFAULT_COUNTERS

    def _pools(self) -> tuple[CloudPool, ...]:
        described = tuple(map(_described_model, self._spec.gpu_models))
        for index, model in enumerate(described):
            if find_model(model.name, described[:index]) is not None:
                where: Path = ("gpuModels", index, "name")
                self._note(where, "each model's name once", found=repr(model.name))
        models = (*described, *MODELS.values())
        pools: list[CloudPool] = []
        seen: set[str] = set()
        for index, pool in enumerate(self._spec.node_pools):
            path: Path = ("nodePools", index)
            if pool.name in seen:
                self._note((*path, "name"), "each pool's name once", found=repr(pool.name))
            seen.add(pool.name)
            found = find_model(pool.gpu_model, models)
            if found is None:
                expected = expected_models(pool.gpu_model, models)
                is_list = expected.startswith("one of")
                fix = "others can be described in spec.gpuModels" if is_list else None
                self._note((*path, "gpuModel"), expected, found=repr(pool.gpu_model), fix=fix)
            pools.append(self._pool(pool, found or models[0], path))
        return tuple(pools)

    def _currency(self) -> str:
        """Return the one currency of the pools' prices."""
        priced = [
            (index, pool.currency)
            for index, pool in enumerate(self._spec.node_pools)
            if pool.price_per_hour is not None
        ]
        currency = priced[0][1] if priced else self._spec.node_pools[0].currency
        for index, other in priced:
            if other != currency:
                path: Path = ("nodePools", index, "currency")
                expected = f"{currency}, as the other prices: costs are added up"
                self._note(path, expected, found=repr(other))
        return currency

    def _pool(self, pool: spec.NodePoolSpec, model: GpuModel, path: Path) -> CloudPool:
        allocatable = {
            "cpu": self._quantity(pool.cpu, (*path, "cpu")),
            "memory": self._quantity(pool.memory, (*path, "memory")),
            "pods": parse_quantity(110),
            model.resource: parse_quantity(pool.gpus),
        }
        labels = dict(pool.labels)
        if pool.instance_type:
            labels.setdefault("node.kubernetes.io/instance-type", pool.instance_type)
        taints = tuple(Taint(taint.key, taint.value, taint.effect) for taint in pool.taints)
        return CloudPool(
            NodePool(pool.name, pool.min, pool.max, allocatable, labels, taints),
            model,
            pool.gpus,
            times_of(pool.provisioning_time),
            pool.price_per_hour,
            pool.provider.name,
        )

    def _quantity(self, text: str, path: Path) -> Quantity:
        try:
            return parse_quantity(text)
        except ValueError as error:
            self._note(path, str(error), found=repr(text))
            return Quantity(0)

    def _services(self, deployments: tuple[Deployment, ...]) -> tuple[ServiceSetup, ...]:
        known = {deployment.metadata.key: deployment for deployment in deployments}
        found: list[ServiceSetup] = []
        for index, workload in enumerate(self._spec.workloads):
            if not isinstance(workload, spec.ServiceWorkload):
                continue
            path: Path = ("workloads", index)
            deployment = known.get(_key(workload.deployment))
            load = self._load(workload.load, (*path, "load"))
            if deployment is None:
                self._note_missing("Deployment", workload.deployment, (*path, "deployment"), known)
                continue
            gpus = gpu_count(deployment.template.spec)
            if gpus == 0:
                fix = "set resources.limits, such as nvidia.com/gpu: 1"
                expected = "a Deployment whose pods ask for a GPU"
                self._note((*path, "deployment"), expected, found=workload.deployment, fix=fix)
            model = self._model(workload.service, gpus, path)
            self._check_cache(workload, (*path, "metrics"))
            if load is not None and model is not None:
                found.append(_service(deployment.metadata.key, workload, load, model))
        return tuple(found)

    def _model(self, cost: spec.ServiceSpec, gpus: int, path: Path) -> ServiceModel | None:
        """Return what a request costs a pod; None where it can't be known."""
        if cost.batching is not None:
            text = self._file(cost.batching.file, (*path, "service", "batching", "file"))
            try:
                batching = text and batching_of(cost.batching, *text)
            except ConfigError as error:
                self._problems.extend(error.problems)
                return None
            return _batched_model(cost, batching, gpus) if batching and gpus else None
        if not gpus or cost.gpu_seconds_per_request is None:
            return None
        model = _service_model(cost, cost.gpu_seconds_per_request, gpus)
        self._check_servers(cost, model, gpus, path)
        return model

    def _check_cache(self, workload: spec.ServiceWorkload, path: Path) -> None:
        """Refuse a name for the use of a cache whose size is not known."""
        metrics, batching = workload.metrics, workload.service.batching
        if metrics is None or metrics.names.kv_cache is None or metrics.kv_cache_requests:
            return
        if batching is None or batching.kv_cache_tokens is None:
            expected = "its size, there or as service.batching.kvCacheTokens"
            self._note(path, expected, found="names.kvCache without kvCacheRequests")

    def _check_servers(
        self, cost: spec.ServiceSpec, model: ServiceModel, gpus: int, path: Path
    ) -> None:
        """Refuse servers that together need more than all of a pod's GPU time."""
        if cost.servers is None:
            return
        mean_s, per_pod = model.server_times.mean, model.servers_per_pod
        if per_pod * model.seconds_per_request > mean_s * (1 + 1e-9):
            most = mean_s / per_pod * gpus
            self._note(
                (*path, "service", "servers"),
                f"at most {most:g} gpuSecondsPerRequest: its GPUs have no more time",
                found=f"{per_pod} servers of {mean_s:g} s with {cost.gpu_seconds_per_request:g}",
            )

    def _jobs(self, jobs: Mapping[str, Job]) -> tuple[JobSetup, ...]:
        found: list[JobSetup] = []
        for index, workload in enumerate(self._spec.workloads):
            if not isinstance(workload, spec.JobWorkload):
                continue
            job = jobs.get(_key(workload.job))
            if job is None:
                self._note_missing("Job", workload.job, ("workloads", index, "job"), jobs)
                continue
            found.extend(_copies(job, workload))
        return tuple(found)

    def _note_missing(self, kind: str, name: str, path: Path, known: Mapping[str, object]) -> None:
        there = ", ".join(known) or f"no {kind}"
        self._note(path, f"a {kind} of the manifests (there: {there})", found=repr(name))

    def _check_targets(
        self, hpas: tuple[HorizontalPodAutoscaler, ...], deployments: tuple[Deployment, ...]
    ) -> None:
        known = {deployment.metadata.key for deployment in deployments}
        for hpa in hpas:
            target = f"{hpa.metadata.namespace}/{hpa.target.name}"
            if hpa.target.kind != "Deployment" or target not in known:
                found = f"{hpa.target.kind} {target} in HorizontalPodAutoscaler {hpa.metadata.name}"
                there = ", ".join(sorted(known)) or "none"
                self._note(
                    ("manifests",), f"a Deployment of the manifests (there: {there})", found=found
                )

    def _check_scaled_objects(
        self, hpas: tuple[HorizontalPodAutoscaler, ...], deployments: tuple[Deployment, ...]
    ) -> None:
        known = {deployment.metadata.key: deployment for deployment in deployments}
        before: list[ScaledObject] = []
        for scaled, document in self._scaled:
            self._problems += scaled_object_problems(scaled, document, known, hpas, before)
            before.append(scaled)

    def _check_zero(self, hpas: tuple[HorizontalPodAutoscaler, ...]) -> None:
        pipeline = self._spec.pipeline
        is_on = pipeline.hpa_scale_to_zero
        if is_on is None:
            is_on = SCALE_TO_ZERO.is_on(parse_version(pipeline.kubernetes_version))
        for hpa in hpas:
            if hpa.min_replicas == 0 and not is_on:
                found = f"minReplicas 0 in HorizontalPodAutoscaler {hpa.metadata.name}"
                self._note(
                    ("manifests",),
                    f"1 or more: in Kubernetes {pipeline.kubernetes_version} the gate HPAScaleToZero is off",
                    found=found,
                    fix='set pipeline.hpaScaleToZero: true, or pipeline.kubernetesVersion: "1.37"',
                )

    def _load(self, load: spec.LoadSpec, path: Path) -> Load | None:
        if isinstance(load, spec.TraceSpec):
            return self._trace(load, path)
        return _shape(load)

    def _trace(self, load: spec.TraceSpec, path: Path) -> Load | None:
        text = self._file(load.file, (*path, "file"))
        if text is None:
            return None
        try:
            return load_trace(
                *text, time_column=load.time_column, rate_column=load.rate_column, scale=load.scale
            )
        except ConfigError as error:
            self._problems.extend(error.problems)
            return None

    def _agent_service(self) -> Service:
        """The Service that the node agents stand behind; Object metrics may describe it."""
        name = self._spec.pipeline.agent_service
        labels = {"app.kubernetes.io/name": name}
        return Service(ObjectMeta(name, self._spec.pipeline.agent_namespace, labels), labels)


def _key(name: str) -> str:
    return name if "/" in name else f"default/{name}"


def _described_model(model: spec.GpuModelSpec) -> GpuModel:
    """Return a described model; what the scenario can't say is typical of a server's card."""
    memory_mib = round(model.memory_gib * 1024)
    idle_w = model.power_watts / 10 if model.idle_watts is None else model.idle_watts
    return GpuModel(
        name=model.name,
        vendor=model.vendor,
        memory_mib=memory_mib,
        reserved_mib=memory_mib // 100 if model.vendor == "NVIDIA" else 0,
        idle_power_w=idle_w,
        max_power_w=model.power_watts,
        idle_sm_clock_mhz=min(210, model.sm_clock_mhz),
        max_sm_clock_mhz=model.sm_clock_mhz,
        idle_memory_clock_mhz=min(405, model.memory_clock_mhz),
        memory_clock_mhz=model.memory_clock_mhz,
        idle_temp_c=32,
        max_temp_c=75,
        thermal_time_constant_s=45,
        pcie_bytes_per_s=PCIE_4,
        has_profiling=model.vendor == "NVIDIA",
        has_row_remapping=model.vendor == "NVIDIA",
    )


def _service_model(cost: spec.ServiceSpec, gpu_seconds: float, gpus: int) -> ServiceModel:
    model = ServiceModel(
        gpu_seconds=gpu_seconds,
        other_seconds=cost.other_seconds_per_request,
        concurrency=cost.concurrency,
        queue_limit=cost.queue_limit,
        gpus=gpus,
    )
    servers = cost.servers
    if servers is None:
        return model
    return replace(
        model,
        servers=servers.per_pod or (1 if servers.time else None),
        times=times_of(servers.time) if servers.time else None,
        timeout_s=servers.timeout or math.inf,
    )


def _batched_model(cost: spec.ServiceSpec, batching: Batching, gpus: int) -> ServiceModel:
    """Return what a request costs where pods work in batches: as much as in a full one."""
    curve = batching.curve
    if batching.kv_tokens is not None:
        each = batching.prompt_tokens + batching.output_tokens.mean
        curve = curve.cut(max(1, min(curve.largest, int(batching.kv_tokens / each))))
    return ServiceModel(
        gpu_seconds=gpus * curve.seconds(curve.largest) / curve.largest,
        other_seconds=0.0,
        concurrency=curve.largest,
        queue_limit=cost.queue_limit,
        gpus=gpus,
        servers=curve.largest,
        times=Constant(curve.seconds(curve.largest)),
        timeout_s=(cost.batching and cost.batching.timeout) or math.inf,
        batching=batching,
    )


def _service(
    key: str, workload: spec.ServiceWorkload, load: Load, model: ServiceModel
) -> ServiceSetup:
    pull, startup = times_of(workload.image_pull), times_of(workload.startup)
    lifecycle = Lifecycle(round(1000 * pull.mean), round(1000 * startup.mean), stop_ms=STOP_MS)
    cached = pull if workload.image_cached is None else times_of(workload.image_cached)
    return ServiceSetup(
        key,
        model,
        load,
        lifecycle,
        workload.service.memory_mib,
        workload.service.servers is not None or workload.service.batching is not None,
        workload.arrivals == "poisson",
        workload.slo,
        None if workload.metrics is None else _served(workload.metrics),
        StartTimes(pull, cached, startup),
    )


def _served(metrics: spec.MetricsSpec) -> ServedMetrics:
    """Return what pods serve: a server's gauges under their current names, and those with a name."""
    names: dict[Figure, str] = {}
    for figure, signal in _SIGNALS.items():
        known = SIGNALS.get(f"{metrics.server}-{signal}")
        if known is not None and known.how == "gauge" and not known.matchers:
            names[figure] = known.series
    given = metrics.names
    named: tuple[tuple[Figure, str | None], ...] = (
        ("requests", given.requests),
        ("inFlight", given.in_flight),
        ("queue", given.queue),
        ("kvCache", given.kv_cache),
        ("latency", given.latency),
    )
    names |= {figure: name for figure, name in named if name is not None}
    return ServedMetrics(names, metrics.interval, metrics.kv_cache_requests)


def _copies(job: Job, workload: spec.JobWorkload) -> list[JobSetup]:
    """Return one setup per submission; several get numbered names, as a script that creates them would."""
    run = workload.run
    lifecycle = Lifecycle(workload.image_pull, 0, run.duration, STOP_MS)
    copies: list[JobSetup] = []
    for number in range(run.copies):
        name = job.metadata.name if run.copies == 1 else f"{job.metadata.name}-{number + 1}"
        copy = replace(job, metadata=replace(job.metadata, name=name))
        at_ms = run.at + number * run.every
        copies.append(
            JobSetup(
                copy, job.metadata.key, at_ms, lifecycle, run.utilization / 100, run.memory_mib
            )
        )
    return copies


def _shape(
    load: spec.ConstantSpec | spec.StepsSpec | spec.RampSpec | spec.SineSpec | spec.SpikesSpec,
) -> Load:
    match load:
        case spec.ConstantSpec():
            return StepsLoad(((0.0, load.rate),))
        case spec.StepsSpec():
            return StepsLoad(tuple((step.at / 1000, step.rate) for step in load.steps))
        case spec.RampSpec():
            return RampLoad(load.from_rate, load.to_rate, load.start / 1000, load.end / 1000)
        case spec.SineSpec():
            return SineLoad(load.mean, load.amplitude, load.period / 1000, load.offset / 1000)
        case spec.SpikesSpec():
            return SpikesLoad(
                load.base, load.peak, load.every / 1000, load.length / 1000, load.first / 1000
            )
