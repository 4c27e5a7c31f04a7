"""Whether an answer is usable: its labels, its number of rows, and whether it can reach the target."""

from collections.abc import Iterator

from gpuscale.base.findings import Checks, Severity
from gpuscale.base.objects.hpa import ExternalMetric, ObjectMetric, PodsMetric
from gpuscale.base.objects.selectors import Selector
from gpuscale.hpa.cluster.scheduling import gpu_count
from gpuscale.hpa.controller import DEFAULT_SETTINGS
from gpuscale.hpa.replicas import tolerances_for_hpa
from gpuscale.hpa.terms import counted_target, counts_average, unit_of_query
from gpuscale.ops.lint.checks.answering import Answered, AskedMetric, resource_of
from gpuscale.ops.lint.checks.hpas import described_resource
from gpuscale.ops.lint.checks.queries import query_findings, renamed_findings
from gpuscale.ops.lint.checks.reach import Aim, reach_findings
from gpuscale.ops.lint.checks.rules import sum_finding
from gpuscale.ops.lint.checks.server_options import Load, server_findings
from gpuscale.ops.lint.checks.targets import unit_findings
from gpuscale.ops.lint.findings import LintFinding
from gpuscale.ops.lint.hpa_places import PlacedMetric
from gpuscale.ops.lint.inputs import Inputs, PlacedHpa
from gpuscale.ops.lint.workloads import Workload, found_kind
from gpuscale.series.promql import Node
from gpuscale.server.rules import KUBERNETES, PODS
from gpuscale.server.rules.queries import (
    ANY_NAME,
    does_not_grow,
    is_one_row,
    selector_fault,
    summed_share,
    values_of,
)
from gpuscale.signals import facts_of

ANSWER_CHECKS = Checks()
EXTERNAL_ROWS_SUMMED = ANSWER_CHECKS.add(
    "external-rows-summed",
    Severity.WARNING,
    "Rows of an external metric that make no sense as a sum.",
    "Aggregate to one row, such as avg(<<.Series>>{<<.LabelMatchers>>}), or use an averageValue target.",
)
EXPORTER_POD = ANSWER_CHECKS.add(
    "exporter-pod",
    Severity.NOTE,
    "A `pod` label that may be the exporter's own pod.",
    "Scrape with honorLabels: true, or map exported_pod and exported_namespace.",
)
SCRAPE_JOB_LABEL = ANSWER_CHECKS.add(
    "scrape-job-label",
    Severity.WARNING,
    "The scrape job's name, taken for a Kubernetes Job's.",
    "Map the label that names the Job, such as job_name, in an override of its own.",
)
SELECTOR_WITHOUT_EFFECT = ANSWER_CHECKS.add(
    "selector-without-effect",
    Severity.WARNING,
    "A metric selector that the rule's query does not use.",
    "Put <<.LabelMatchers>> between the braces of each series of the query.",
)
AVERAGE_OF_A_MEAN = ANSWER_CHECKS.add(
    "average-of-a-mean",
    Severity.WARNING,
    "A mean, a quantile or a time under an average: it is divided by the pods once more.",
    "Write type: Value (KEDA: metricType: Value), or take sum(...) instead of the mean.",
)
LEADERS_WITHOUT_GPUS = ANSWER_CHECKS.add(
    "leaders-without-gpus",
    Severity.WARNING,
    "A metric of pods' GPUs for a LeaderWorkerSet whose leaders have none: its HPA sees leaders alone.",
    "Scale on what leaders serve, such as requests that wait, or on an External metric of the workers' GPUs.",
)

_JOBS = KUBERNETES.find("jobs")


def answer_findings(inputs: Inputs, answered: Answered) -> Iterator[LintFinding]:
    """Return the faults of a metric that a rule answers: labels, rows, target."""
    place, where = answered.metric.name, f"rule {answered.serving.rule.origin}"
    workload = workload_of(inputs, answered.metric.placed)
    if answered.serving.certain:
        # What holds of all who ask is said of the rule.
        found = renamed_findings(answered.node, place, where, workload)
        yield from (each for each in found if each.check.severity is Severity.WARNING)
    else:
        yield from query_findings(inputs, answered.node, place, where, workload)
    yield from _labels(inputs, answered)
    yield from _leaders(inputs, answered)
    yield from _selector(answered)
    yield from _mean(answered)
    yield from server_metric_findings(inputs, answered.metric, answered.node)
    yield from _sum(inputs, answered)
    yield from _rows(answered)
    unit = unit_of_query(answered.node)
    in_another = unit and tuple(unit_findings(answered.metric, unit, _evidence(answered)))
    yield from in_another or _reach(answered)


def _labels(inputs: Inputs, answered: Answered) -> Iterator[LintFinding]:
    rule = answered.serving.rule
    spec = answered.spec
    is_pod_label = isinstance(spec, PodsMetric) and rule.labels.label_for(PODS) == "pod"
    if is_pod_label and answered.series.startswith("DCGM_FI_") and not inputs.honors_labels:
        yield EXPORTER_POD.found(
            answered.metric.name,
            f"The label pod of {answered.series} is the exporter's own pod, unless the exporter is "
            "scraped with honorLabels: true.",
            f"{answered.serving.placed.place()} takes it for the pod that uses the GPU.",
        )
    is_job = isinstance(spec, ObjectMetric) and described_resource(spec) == _JOBS
    if is_job and rule.labels.label_for(_JOBS) == "job":
        yield SCRAPE_JOB_LABEL.found(
            answered.metric.described,
            "The label job is the name of Prometheus' scrape job on most series, "
            "not that of a Kubernetes Job.",
            f"{answered.serving.placed.place()} takes it for the Job.",
        )


def _leaders(inputs: Inputs, answered: Answered) -> Iterator[LintFinding]:
    """Return that GPUs of workers don't count.

    Source: lws v0.9.0 pkg/controllers/leaderworkerset_controller.go (updateStatus: HPAPodSelector).
    """
    hpa = answered.metric.placed.hpa
    leaders = inputs.nodes.leaders_without_gpus.get((hpa.metadata.namespace, hpa.target.name))
    is_of_pods = isinstance(answered.spec, PodsMetric) and hpa.target.kind == "LeaderWorkerSet"
    if leaders is None or not is_of_pods or not answered.series.startswith("DCGM_"):
        return
    yield LEADERS_WITHOUT_GPUS.found(
        answered.metric.name,
        f"LeaderWorkerSet {hpa.target.name} shows its HPA leaders alone, and these ask for no GPU: "
        f"{answered.series} has no value for them.",
        f"{leaders.place()}: the leaders' template",
    )


def server_metric_findings(
    inputs: Inputs, metric: PlacedMetric, node: Node
) -> Iterator[LintFinding]:
    """Return what the target's server makes of a metric with such a query."""
    spec = metric.spec
    if not isinstance(spec, AskedMetric):
        return
    is_divided = counts_average(spec)
    load = Load(
        node,
        metric.name,
        metric.target("averageValue" if is_divided else "value"),
        _target(spec),
        is_divided=is_divided,
        is_of_each=isinstance(spec, PodsMetric),
    )
    yield from server_findings(workload_of(inputs, metric.placed), load)


def workload_of(inputs: Inputs, placed: PlacedHpa) -> Workload | None:
    """Return what an HPA scales; None if the files don't include it."""
    target = placed.hpa.target
    key = placed.hpa.metadata.namespace, found_kind(target.kind), target.name
    return inputs.workloads.get(key)


def _selector(answered: Answered) -> Iterator[LintFinding]:
    rule, spec = answered.serving.rule, answered.spec
    name = spec.described_object.name if isinstance(spec, ObjectMetric) else ANY_NAME
    resource = resource_of(spec)
    fault = selector_fault(rule, answered.series, resource, spec.selector or Selector(), name)
    if fault is not None:
        place = answered.metric.name
        yield SELECTOR_WITHOUT_EFFECT.found(place, fault.what, _evidence(answered), fault.fix)


def _mean(answered: Answered) -> Iterator[LintFinding]:
    """Report what does not grow with the pods and is divided by them.

    Source: kubernetes pkg/controller/podautoscaler/replica_calculator.go (GetExternalPerPodMetricReplicas,
        GetObjectPerPodMetricReplicas: the value over the target is the count).
    """
    spec = answered.spec
    what = None if isinstance(spec, PodsMetric) else does_not_grow(answered.node)
    target = _target(spec)
    if what is None or not counts_average(spec) or not target:
        return
    yield AVERAGE_OF_A_MEAN.found(
        answered.metric.target("averageValue"),
        f"{what} does not grow with the pods, and averageValue asks for value / target of them: at "
        f"{2 * target:g} it asks for 2, whether there is 1 pod or 50.",
        _evidence(answered),
        "Write type: Value and value in place of averageValue.",
    )


def _sum(inputs: Inputs, answered: Answered) -> Iterator[LintFinding]:
    share = summed_share(answered.node)
    target = _target(answered.spec)
    if share is None or target is None or target > share:
        return
    if not isinstance(answered.spec, PodsMetric) and counts_average(answered.spec):
        return
    workload = workload_of(inputs, answered.metric.placed)
    gpus = None if workload is None else gpu_count(workload.pods.spec)
    if gpus == 1 and isinstance(answered.spec, PodsMetric):
        return
    why = f"two make {2 * share:g}, held against a target of {target:g}"
    if gpus is not None and gpus > 1 and isinstance(answered.spec, PodsMetric):
        why = f"the {gpus} of a pod make {gpus * share:g}, held against a target of {target:g}"
    place = answered.metric.name
    yield sum_finding(place, answered.serving.placed, answered.series, share, why)


def _rows(answered: Answered) -> Iterator[LintFinding]:
    spec = answered.spec
    if not isinstance(spec, ExternalMetric) or counts_average(spec) or is_one_row(answered.node):
        return
    values = values_of(answered.node)
    target = _target(spec)
    if values is None or not values.is_bounded or target is None or target > values.high:
        return
    yield EXTERNAL_ROWS_SUMMED.found(
        answered.metric.name,
        f"The controller adds up all rows of an external metric, and a row of this one is up to "
        f"{values.high:g}: with more rows a target of {target:g} is passed without any load.",
        _evidence(answered),
    )


def _reach(answered: Answered) -> Iterator[LintFinding]:
    values, target = values_of(answered.node), _target(answered.spec)
    if values is None or not values.is_bounded or values.high <= 0 or not target:
        return
    spec, hpa = answered.spec, answered.metric.placed.hpa
    if isinstance(spec, ExternalMetric) and not is_one_row(answered.node):
        return
    yield from reach_findings(
        Aim(
            place=answered.metric.target("averageValue" if counts_average(spec) else "value"),
            high=values.high,
            target=target,
            is_divided=not isinstance(spec, PodsMetric) and counts_average(spec),
            least=max(1, hpa.min_replicas or 1),
            most=hpa.max_replicas,
            tolerance=tolerances_for_hpa(hpa, DEFAULT_SETTINGS).scale_up,
            evidence=_evidence(answered),
            way_out="Use type: Value, which multiplies the count, or a Pods metric.",
        )
    )


def _evidence(answered: Answered) -> str:
    facts = facts_of(answered.series)
    unit = {"%": "a percentage", "ratio": "a ratio"}.get(facts.unit if facts else "", "")
    placed = answered.serving.placed
    query = placed.text("metricsQuery")
    where = f"{placed.place('metricsQuery')}: {query}" if query else f"rule {placed.rule.origin}"
    return f"{answered.series} is {unit}; {where}" if unit else where


def _target(spec: AskedMetric) -> float | None:
    quantity = counted_target(spec)
    return None if quantity is None else float(quantity)
