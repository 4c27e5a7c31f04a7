"""Which figure of a fluid run an HPA's metric shows: GPU utilization, served or waiting requests."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.hpa import (
    ExternalMetric,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
    selector_fault,
)
from gpuscale.base.objects.selectors import Operator
from gpuscale.lab.plan.fleet.manifest_hpa import MEAN, TOTAL, WHOLE_TOTAL
from gpuscale.lab.sim.fluid.gpu_use import gpu_operator
from gpuscale.lab.sim.load.pod_metrics import Figure
from gpuscale.lab.sim.load.requests import RUNNING, WAITING
from gpuscale.lab.sim.scenario.setup import ServiceSetup, Setup
from gpuscale.series import METRIC_NAME
from gpuscale.series.promql import metric_names, parse_query, tree
from gpuscale.server.rules import AdapterRule

EXPECTED = (
    "one metric whose rule is one sum, avg, min or max of GPU use in percent, or of requests that the"
    " workload's pods serve or have waiting"
)
_OPERATORS = {"sum": TOTAL, "avg": MEAN, "min": MEAN, "max": MEAN}
"""All ready pods are alike, so the least and the most are the mean."""
_OF_DEPLOYMENT: Mapping[str, Figure] = {RUNNING: "inFlight", WAITING: "queue"}
"""Series with one value for a Deployment, in whole requests."""


@dataclass(frozen=True, slots=True)
class FluidSignal:
    """A metric's value as a weighted sum of busy pods and waiting work."""

    busy: float
    """The value of one pod that is busy all the time."""
    waiting: float
    """The value of work that waits, for each second of a pod."""
    shows: int
    """MEAN, TOTAL or WHOLE_TOTAL of the pods, as `lab.plan.fleet.manifest_hpa` has them."""
    interval_ms: int
    """Between two scrapes."""
    unit: float = 0.0
    """A pod's value is a multiple of it; 0 for any value."""


def signal_of(setup: Setup, workload: ServiceSetup, metric: MetricSpec) -> FluidSignal | None:
    """Return the signal of a metric of a workload's HPA; None if a fluid run doesn't have it."""
    model = workload.model
    if not isinstance(metric, PodsMetric | ObjectMetric | ExternalMetric):
        return None
    if not isinstance(metric, ExternalMetric):
        namespace = workload.deployment.partition("/")[0]
        used = gpu_operator(setup, namespace, metric)
        if used is not None:
            return _of_gpus(setup, workload, metric, used)
    if any(each.name == metric.name for each in setup.triggers):
        return None
    found = _rule_of(setup, workload, metric)
    if found is None or not _is_own(setup, workload, metric, found[1]):
        return None
    rule, series = found
    operator = _operator(rule, series)
    if operator is None:
        return None
    figure = _figures(workload)[series]
    shows = WHOLE_TOTAL if series in _OF_DEPLOYMENT else _OPERATORS[operator]
    own = workload.metrics if series not in _OF_DEPLOYMENT else None
    return FluidSignal(
        busy=model.largest_rate * model.least_seconds if figure == "inFlight" else 0.0,
        waiting=model.largest_rate if figure == "queue" else 0.0,
        shows=MEAN if isinstance(metric, PodsMetric) else shows,
        interval_ms=setup.pipeline.scrape_interval if own is None else own.interval_ms,
    )


def _of_gpus(
    setup: Setup, workload: ServiceSetup, metric: PodsMetric | ObjectMetric, operator: str
) -> FluidSignal | None:
    """Return the signal of aggregated GPU utilization; None if other GPUs are in it too."""
    model = workload.model
    is_whole = isinstance(metric, ObjectMetric)
    if is_whole:
        # The object's series include all GPUs. Idle ones add nothing to a sum or a maximum.
        may_idle = any(pool.gpus != model.gpus for pool in setup.pools)
        if len(setup.deployments) != 1 or (operator in {"avg", "min"} and may_idle):
            return None
    is_sum = operator == "sum"
    busy = 100 * min(1.0, model.largest_rate * model.seconds_per_request)
    return FluidSignal(
        busy=busy * model.gpus if is_sum else busy,
        waiting=0.0,
        shows=TOTAL if is_whole and is_sum else MEAN,
        interval_ms=setup.pipeline.scrape_interval,
        unit=model.gpus if is_sum else 1,  # a GPU reports whole per cents
    )


def _figures(workload: ServiceSetup) -> Mapping[str, Figure]:
    """Return the workload's series that a fluid run has, by name."""
    served = workload.metrics.names if workload.metrics else {}
    own = {name: figure for figure, name in served.items() if figure in {"inFlight", "queue"}}
    return {**_OF_DEPLOYMENT, **own}


def _rule_of(
    setup: Setup, workload: ServiceSetup, metric: MetricSpec
) -> tuple[AdapterRule, str] | None:
    """Return the first rule that serves a metric, and the workload's series that it reads."""
    is_external = isinstance(metric, ExternalMetric)
    for rule in setup.rules.external_rules if is_external else setup.rules.rules:
        try:
            names = metric_names(parse_query(rule.series_query))
        except GpuscaleError:
            continue
        if names is None:
            return None  # it may read any series
        for series in sorted(names):
            if rule.api_name(series) == metric.name:
                is_of_pods = is_external or series not in _OF_DEPLOYMENT
                return (rule, series) if series in _figures(workload) and is_of_pods else None
    return None


def _operator(rule: AdapterRule, series: str) -> str | None:
    """Return the operator of a rule that is one aggregation of a plain series."""
    if rule.parts or rule.only_in:
        return None
    try:
        root = parse_query(rule.example(series)).root
    except GpuscaleError:
        return None
    match root:
        case tree.Aggregate(operator, tree.Select(matchers, moment), None, _, _):
            labels = {each.name for each in matchers} - {METRIC_NAME, "namespace", "pod"}
            is_plain = moment == tree.Moment() and not labels
            return operator if is_plain and operator in _OPERATORS else None
    return None


def _is_own(setup: Setup, workload: ServiceSetup, metric: MetricSpec, series: str) -> bool:
    """Return whether a metric covers this workload's series only."""
    if isinstance(metric, ExternalMetric):
        return _chooses(setup, workload, metric, series)
    if not isinstance(metric, PodsMetric | ObjectMetric) or metric.selector is not None:
        return False
    if isinstance(metric, ObjectMetric):
        described, namespace = metric.described_object, workload.deployment.partition("/")[0]
        if described.kind == "Service":
            return _selects_only(setup, f"{namespace}/{described.name}", workload)
        return described.kind == "Namespace" and not _others(setup, workload, series)
    return True


def _chooses(setup: Setup, workload: ServiceSetup, metric: ExternalMetric, series: str) -> bool:
    """Return whether an External metric's selector excludes all other workloads' series."""
    if selector_fault(metric):
        return False
    requirements = metric.selector.requirements if metric.selector else ()
    label = "deployment" if series in _OF_DEPLOYMENT else "job"
    name = workload.deployment.partition("/")[2]
    for each in requirements:
        if each.key != label or each.operator not in {Operator.EQUALS, Operator.IN}:
            return False
        if each.values != (name,):
            return False
    return bool(requirements) or not _others(setup, workload, series)


def _others(setup: Setup, workload: ServiceSetup, series: str) -> bool:
    return any(each is not workload and series in _figures(each) for each in setup.workloads)


def _selects_only(setup: Setup, service: str, workload: ServiceSetup) -> bool:
    """Return whether a Service selects the pods of this workload and no other."""
    namespace = service.partition("/")[0]
    selectors = [each.selector for each in setup.services if each.metadata.key == service]
    behind = [
        each.metadata.key
        for each in setup.deployments
        if each.metadata.namespace == namespace
        and selectors
        and selectors[0].items() <= each.template.labels.items()
    ]
    return behind == [workload.deployment]
