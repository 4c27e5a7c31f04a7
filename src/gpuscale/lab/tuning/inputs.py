"""The inputs of `gpuscale tune`: a scenario or a demand file, and an HPA."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuscale.base.documents.documents import Document, load_documents
from gpuscale.base.errors import ConfigError, NotFoundError, Problem, UsageError
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.manifests import read_manifests
from gpuscale.lab.plan.comparing import ReplayedWorkload
from gpuscale.lab.plan.demand import demand_column
from gpuscale.lab.plan.score import Nodes
from gpuscale.lab.plan.waiting import Requests
from gpuscale.lab.scenarios import read_beside
from gpuscale.lab.sim.load.traces import load_trace
from gpuscale.lab.sim.scenario.setup import ServiceSetup, Setup, check_no_groups
from gpuscale.lab.tuning.autoscaler import ControllerDefaults, TunedHpa, autoscaler_of
from gpuscale.lab.tuning.pools import home_of, is_growing, own_pool
from gpuscale.triggers.policies import OF_REQUESTS, POLICIES, ReplaySettings

_HPA = "HorizontalPodAutoscaler"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A file with an HPA in it."""

    name: str
    text: str
    hpa: HorizontalPodAutoscaler
    index: int
    """Of the HPA's document."""
    version: str


@dataclass(frozen=True, slots=True)
class Overrides:
    """Options that override a scenario or defaults; None means not given."""

    start_up_s: float | None = None
    lag_s: float | None = None
    patience_s: float | None = None
    gpus_per_replica: int | None = None
    gpus_per_node: int | None = None
    price_per_hour: float | None = None
    currency: str | None = None
    metric_full: float | None = None

    def service(self, service: ReplaySettings) -> ReplaySettings:
        """Return a service with the options applied."""
        given = {
            "start_up_s": self.start_up_s,
            "lag_s": self.lag_s,
            "patience_s": self.patience_s,
        }
        return service._replace(**{k: v for k, v in given.items() if v is not None})

    def of_pods(self) -> Sequence[str]:
        """Return the given options that would change a scenario's node pool."""
        given = {
            "--start-up": self.start_up_s,
            "--gpus-per-replica": self.gpus_per_replica,
            "--gpus-per-node": self.gpus_per_node,
        }
        return [option for option, value in given.items() if value is not None]

    def nodes(self, nodes: Nodes) -> Nodes:
        """Return nodes with the options applied."""
        price = self.price_per_hour
        found = replace(
            nodes,
            gpus_per_replica=self.gpus_per_replica or nodes.gpus_per_replica,
            gpus_per_node=self.gpus_per_node or nodes.gpus_per_node,
            price_per_hour=nodes.price_per_hour if price is None else price,
            currency=self.currency or nodes.currency or "USD",
        )
        if found.gpus_per_replica > found.gpus_per_node:
            raise UsageError(
                f"found {found.gpus_per_replica} GPUs per replica on nodes of {found.gpus_per_node},"
                " expected a replica that fits a node"
            )
        return found


def of_setup(
    setup: Setup, name: str, workload: str | None, manifest: Manifest | None, given: Overrides
) -> tuple[ReplayedWorkload, TunedHpa]:
    """Return a scenario's workload and its HPA.

    Args:
        setup: the scenario, resolved.
        name: what messages call it.
        workload: which of its Deployments; None where it has one.
        manifest: with an HPA, in place of the scenario's.
        given: what options say.

    Raises:
        UsageError: it has no such workload, or its HPA can't be replayed.
    """
    check_no_groups(setup, "tune")
    chosen = chosen_workload(setup, name, workload)
    if chosen.model.batching is not None:
        raise UsageError(f"{name}: found service.batching, expected gpuSecondsPerRequest")
    pipeline = setup.pipeline
    hpa = manifest.hpa if manifest else _hpa_of(setup, chosen.deployment)
    model = chosen.model
    pool = home_of(setup, chosen)
    start_ms = chosen.lifecycle.image_pull_ms + chosen.lifecycle.startup_ms
    wait_ms = start_ms + (pool.provisioning_ms if is_growing(pool) else 0)
    lag_ms = pipeline.scrape_interval
    lag_ms += pipeline.rule_interval if setup.prometheus_rules.groups else 0
    step_s = pipeline.hpa_sync_period / 1000
    service = ReplaySettings(step_s, start_up_s=wait_ms / 1000, lag_s=lag_ms / 1000)
    nodes = Nodes(
        model.gpus,
        pool.gpus,
        setup.autoscaler.unneeded_time_ms / 1000,
        pool.price_per_hour,
        setup.currency,
    )
    demand = demand_column(
        chosen.load.requests_until, setup.duration_ms / 1000, 1 / model.largest_rate, step_s
    )
    busy_share = model.seconds_per_request * model.largest_rate
    controller = ControllerDefaults(pipeline.downscale_stabilization / 1000, pipeline.tolerance)
    return (
        ReplayedWorkload(
            chosen.deployment,
            demand,
            _bounded(given.service(service), hpa),
            Requests(model.least_seconds, max(1, round(model.largest_rate * model.least_seconds))),
            given.nodes(nodes),
            *own_pool(setup, chosen, pool, given.of_pods()),
        ),
        autoscaler_of(hpa, given.metric_full, busy_share, controller),
    )


def of_demand(
    file: str,
    time_column: str,
    column: str | None,
    seconds_per_request: float | None,
    manifest: Manifest | None,
    given: Overrides,
) -> tuple[ReplayedWorkload, TunedHpa]:
    """Return the workload of a CSV demand file, and an HPA.

    Args:
        file: its name.
        time_column: says when.
        column: says how much; None takes `rate` with seconds per request, otherwise `demand`.
        seconds_per_request: that one pod works on it; None where the column has pods.
        manifest: with the HPA; None for the defaults.
        given: what options say.

    Raises:
        UsageError: too little is known, or the HPA can't be replayed.
        ConfigError: a file is wrong; with every line up to the tenth.
    """
    if given.start_up_s is None:
        raise UsageError("found no --start-up, expected how long a pod takes from order to ready")
    is_rate = seconds_per_request is not None
    try:
        text = read_beside(Path(), file)
    except NotFoundError as error:
        raise ConfigError(Problem(file, None, None, None, str(error).split(": ")[0])) from None
    load = load_trace(
        text,
        file,
        time_column=time_column,
        rate_column=column or ("rate" if is_rate else "demand"),
        scale=1.0,
        unit="requests per second" if is_rate else "pods",
    )
    if load.end_s == 0:
        expected = "two or more: each holds until the next one"
        raise ConfigError(Problem(file, None, None, "one row", expected))
    hpa = manifest.hpa if manifest else None
    service = _bounded(given.service(ReplaySettings()), hpa)
    try:
        demand = demand_column(
            load.requests_until, load.end_s, seconds_per_request or 1.0, service.step_s
        )
    except ValueError as error:
        raise ConfigError(Problem(file, None, None, None, f"{time_column}: {error}")) from None
    name = hpa.target.name if hpa else Path(file).name
    return (
        ReplayedWorkload(
            name,
            demand,
            service,
            Requests(seconds_per_request or 1.0),
            given.nodes(Nodes()),
            knows_requests=is_rate,
        ),
        autoscaler_of(hpa, given.metric_full, 1.0, ControllerDefaults()),
    )


def manifest_of(name: str, text: str, hpa_name: str | None = None) -> Manifest:
    """Return a file with its only HPA, or the one of a name.

    Raises:
        ConfigError: it has none or several, or is wrong.
    """
    documents = load_documents(text, name)
    found = [
        each
        for each in documents
        if _kind(each) == _HPA and (hpa_name is None or _name(each) == hpa_name)
    ]
    if len(found) != 1:
        expected = f"one {_HPA}" + (f" {hpa_name}" if hpa_name else "")
        names = ", ".join(map(_name, found)) or "none"
        raise ConfigError(Problem(name, None, None, names, expected))
    hpa = read_manifests(found)[0]
    assert isinstance(hpa, HorizontalPodAutoscaler)  # noqa: S101 - its kind says so
    version = str(found[0].data["apiVersion"]) if isinstance(found[0].data, dict) else ""
    return Manifest(name, text, hpa, found[0].index, version)


def _kind(document: Document) -> object:
    return document.data.get("kind") if isinstance(document.data, dict) else None


def _name(document: Document) -> str:
    data = document.data
    metadata = data.get("metadata") if isinstance(data, dict) else None
    return str(metadata.get("name")) if isinstance(metadata, dict) else ""


def _bounded(service: ReplaySettings, hpa: HorizontalPodAutoscaler | None) -> ReplaySettings:
    if hpa is None:
        return service
    least = 1 if hpa.min_replicas is None else hpa.min_replicas
    return service._replace(least=float(least), most=float(hpa.max_replicas))


def chosen_workload(setup: Setup, name: str, workload: str | None) -> ServiceSetup:
    """Return the workload of a Deployment, with or without its namespace; the only one for None.

    Raises:
        UsageError: there is none, or there are several.
    """
    known = [each.deployment for each in setup.workloads]
    if not known:
        raise UsageError(f"{name}: found no Deployment with a load, expected one to tune")
    found = [
        each
        for each in setup.workloads
        if workload in {None, each.deployment, each.deployment.rpartition("/")[2]}
    ]
    if len(found) != 1:
        expected = f"--workload with one of: {', '.join(known)}"
        raise UsageError(
            f"{name}: found {workload or f'{len(known)} workloads'}, expected {expected}"
        )
    return found[0]


def _hpa_of(setup: Setup, deployment: str) -> HorizontalPodAutoscaler | None:
    namespace, _, name = deployment.rpartition("/")
    return next(
        (
            each
            for each in setup.hpas
            if each.target.name == name and each.metadata.namespace == namespace
        ),
        None,
    )


def policy_names(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the policies of these names: all for None, none for `none`.

    Raises:
        UsageError: there is no such policy.
    """
    known = (*POLICIES, *OF_REQUESTS)
    if names is None:
        return known
    if list(names) == ["none"]:
        return ()
    for name in names:
        if name not in known:
            raise UsageError(f"--policy: found {name!r}, expected none, or of: {', '.join(known)}")
    return tuple(dict.fromkeys(names))
