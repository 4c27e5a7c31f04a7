"""A scenario's workloads: services with load and cost of a request, and Jobs."""

import math
from collections.abc import Mapping
from dataclasses import replace

from gpuscale.base.documents.documents import Path
from gpuscale.base.loads import Load, RampLoad, SineLoad, SpikesLoad, StepsLoad
from gpuscale.base.objects.meta import ObjectMeta
from gpuscale.base.objects.pods import Lifecycle
from gpuscale.base.objects.workloads import Deployment, Job, JobSet
from gpuscale.hpa.cluster.scheduling import device_requests
from gpuscale.lab.queueing.batching import Batching
from gpuscale.lab.queueing.times import Constant
from gpuscale.lab.sim.load.costs import ServiceModel
from gpuscale.lab.sim.load.pod_metrics import Figure, RequestProxy, ServedMetrics
from gpuscale.lab.sim.load.signal_series import exposed_by
from gpuscale.lab.sim.load.traces import load_trace
from gpuscale.lab.sim.scenario import model as spec
from gpuscale.lab.sim.scenario.batching import batching_of
from gpuscale.lab.sim.scenario.references import References
from gpuscale.lab.sim.scenario.setup import STOP_MS, JobSetup, ServiceSetup, StartTimes
from gpuscale.lab.sim.scenario.times import times_of
from gpuscale.signals import SIGNALS

_SIGNALS: Mapping[Figure, str] = {"queue": "waiting", "inFlight": "running", "kvCache": "kv-cache"}
"""What the signals of model servers are called after the server."""


def read_services(
    run: spec.ScenarioSpec, deployments: tuple[Deployment, ...], references: References
) -> tuple[ServiceSetup, ...]:
    """Return the Deployments and LeaderWorkerSets that have a load; faults are collected."""
    found: list[ServiceSetup] = []
    for index, workload in enumerate(run.workloads):
        if isinstance(workload, spec.ServiceWorkload):
            kind, field, name = "Deployment", "deployment", workload.deployment
        elif isinstance(workload, spec.GroupWorkload):
            kind, field, name = "LeaderWorkerSet", "leaderWorkerSet", workload.leader_worker_set
        else:
            continue
        path: Path = ("workloads", index)
        known = {o.metadata.key: o for o in deployments if type(o).__name__ == kind}
        deployment = known.get(_key(name))
        load = _load(workload.load, (*path, "load"), references)
        if deployment is None:
            references.note_missing(kind, name, (*path, field), known)
            continue
        gpus = sum(
            count * sum(device_requests(template.spec).values())
            for template, count in deployment.templates
        )
        if gpus == 0:
            fix = "set resources.limits, such as nvidia.com/gpu: 1"
            expected = f"a {kind} whose pods ask for a GPU"
            references.note((*path, field), expected, found=name, fix=fix)
        model = _model(workload.service, gpus, path, references)
        _check_cache(workload, (*path, "metrics"), references)
        if load is not None and model is not None:
            found.append(_service(deployment.metadata.key, workload, load, model))
    return tuple(found)


def read_jobs(
    run: spec.ScenarioSpec,
    jobs: Mapping[str, Job],
    job_sets: Mapping[str, JobSet],
    references: References,
) -> tuple[JobSetup, ...]:
    """Return the Jobs to submit, each at its time; faults are collected."""
    found: list[JobSetup] = []
    for index, workload in enumerate(run.workloads):
        path: Path = ("workloads", index)
        if isinstance(workload, spec.JobWorkload):
            job = jobs.get(_key(workload.job))
            if job is None:
                references.note_missing("Job", workload.job, (*path, "job"), jobs)
            else:
                found.extend(_copies(job.metadata, (job,), workload))
        elif isinstance(workload, spec.JobSetWorkload):
            job_set = job_sets.get(_key(workload.job_set))
            if job_set is None:
                references.note_missing("JobSet", workload.job_set, (*path, "jobSet"), job_sets)
            else:
                found.extend(_copies(job_set.metadata, job_set.jobs, workload))
    return tuple(found)


def _model(
    cost: spec.ServiceSpec, gpus: int, path: Path, references: References
) -> ServiceModel | None:
    """Return the cost of a request to a pod; None if it can't be known."""
    if cost.batching is not None:
        described = cost.batching
        batching = references.parsed(
            references.file(described.file, (*path, "service", "batching", "file")),
            lambda text, name: batching_of(described, text, name),
        )
        return _batched_model(cost, batching, gpus) if batching and gpus else None
    if not gpus or cost.gpu_seconds_per_request is None:
        return None
    model = ServiceModel(
        gpu_seconds=cost.gpu_seconds_per_request,
        other_seconds=cost.other_seconds_per_request,
        concurrency=cost.concurrency,
        queue_limit=cost.queue_limit,
        gpus=gpus,
    )
    servers = cost.servers
    if servers is None:
        return model
    model = replace(
        model,
        servers=servers.per_pod or (1 if servers.time else None),
        times=times_of(servers.time) if servers.time else None,
        timeout_s=servers.timeout or math.inf,
    )
    mean_s, per_pod = model.server_times.mean, model.servers_per_pod
    if per_pod * model.seconds_per_request > mean_s * (1 + 1e-9):
        references.note(
            (*path, "service", "servers"),
            f"at most {mean_s / per_pod * gpus:g} gpuSecondsPerRequest: its GPUs have no more time",
            found=f"{per_pod} servers of {mean_s:g} s with {cost.gpu_seconds_per_request:g}",
        )
    return model


def _check_cache(workload: spec.ServedWorkload, path: Path, references: References) -> None:
    """Refuse a metric name for cache usage if the cache size is unknown."""
    metrics, batching = workload.metrics, workload.service.batching
    if metrics is None or metrics.names.kv_cache is None or metrics.kv_cache_requests:
        return
    if batching is None or batching.kv_cache_tokens is None:
        expected = "its size, there or as service.batching.kvCacheTokens"
        references.note(path, expected, found="names.kvCache without kvCacheRequests")


def _load(load: spec.LoadSpec, path: Path, references: References) -> Load | None:
    match load:
        case spec.TraceSpec():
            return references.parsed(
                references.file(load.file, (*path, "file")),
                lambda text, name: load_trace(
                    text,
                    name,
                    time_column=load.time_column,
                    rate_column=load.rate_column,
                    scale=load.scale,
                ),
            )
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


def _key(name: str) -> str:
    return name if "/" in name else f"default/{name}"


def _batched_model(cost: spec.ServiceSpec, batching: Batching, gpus: int) -> ServiceModel:
    """Return the cost of a request in a full batch."""
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
    key: str, workload: spec.ServedWorkload, load: Load, model: ServiceModel
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
        None if workload.metrics is None else _served(workload.metrics, key),
        StartTimes(pull, cached, startup),
    )


def _served(metrics: spec.MetricsSpec, key: str) -> ServedMetrics:
    """Return a workload's exposed metrics: under the names of its server, or under given names."""
    namespace, _, name = key.partition("/")
    of = metrics.of or name
    names: dict[Figure, str] = {}
    for figure, signal in _SIGNALS.items():
        known = SIGNALS.get(f"{metrics.server}-{signal}")
        if known is not None and known.kind == "pods" and not known.matchers:
            names[figure] = known.series
    of_pods = exposed_by(metrics.server, of, namespace, by_pods=True) if metrics.server else ()
    usual = set(names.values())
    given = metrics.names
    named: tuple[tuple[Figure, str | None], ...] = (
        ("requests", given.requests),
        ("inFlight", given.in_flight),
        ("queue", given.queue),
        ("kvCache", given.kv_cache),
        ("latency", given.latency),
    )
    names |= {figure: name for figure, name in named if name is not None}
    fronts = []
    for family in filter(None, dict.fromkeys((metrics.server, metrics.front))):
        series = exposed_by(family, of, namespace, by_pods=False)
        labels = {"job": family, "instance": f"{family}-{of}", "namespace": namespace}
        if series:
            fronts.append(RequestProxy(labels, series))
    return ServedMetrics(
        names,
        metrics.interval,
        metrics.kv_cache_requests,
        tuple(each for each in of_pods if each.name not in usual),
        tuple(fronts),
        metrics.first_token,
        metrics.tokens_per_request,
    )


def _copies(
    of: ObjectMeta, jobs: tuple[Job, ...], workload: spec.JobWorkload | spec.JobSetWorkload
) -> list[JobSetup]:
    """Return the setups of each submission; several copies get numbered names.

    Args:
        of: the Job or JobSet of the manifests.
        jobs: that it stands for, whose names begin with its own.
        workload: how often it is run, and what one run does.
    """
    run = workload.run
    lifecycle = Lifecycle(workload.image_pull, 0, run.duration, STOP_MS)
    copies: list[JobSetup] = []
    for number in range(run.copies):
        stem = of.name if run.copies == 1 else f"{of.name}-{number + 1}"
        named = tuple(_named(each, stem + each.metadata.name[len(of.name) :]) for each in jobs)
        with_jobs = named if isinstance(workload, spec.JobSetWorkload) else ()
        at_ms, busy = run.at + number * run.every, run.utilization / 100
        copies += [
            JobSetup(each, of.key, stem, at_ms, lifecycle, busy, run.memory_mib, with_jobs)
            for each in named
        ]
    return copies


def _named(job: Job, name: str) -> Job:
    copy = replace(job, metadata=replace(job.metadata, name=name))
    if job.gang is None:
        return copy
    # The Job controller makes a PodGroup for each Job.
    grouped = replace(job.template.spec, scheduling_group=name)
    return replace(copy, template=replace(job.template, spec=grouped))
