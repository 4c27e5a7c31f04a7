"""The dashboard of autoscaling: the hops of the loop below each other on one time axis, and their lags."""

from gpuscale.install.boards.model import (
    WIDTH,
    Board,
    BoardSettings,
    LabelVariable,
    Panel,
    Query,
    Row,
    Variable,
    yes_or_no,
)
from gpuscale.install.series_names import API_SERVICES, GPU_RESOURCES, SeriesNames

_HPA = 'namespace="$namespace", horizontalpodautoscaler="$hpa"'
_PODS = 'namespace="$namespace", pod=~"$workload-.*"'
_KSM = "kube_horizontalpodautoscaler"
_RIGHT = "percentunit"


def autoscaling_board(settings: BoardSettings) -> Board:
    """Return the dashboard of autoscaling."""
    names = settings.names
    return Board(
        uid="gpuscale-autoscaling",
        title="gpuscale / Autoscaling",
        description="From a GPU's signal to nodes, for one HPA. Needs kube-state-metrics.",
        variables=_variables(),
        rows=(
            Row("The loop at a glance", (_glance(names),)),
            Row("Hop by hop", _hops(names)),
            Row("Lag of each hop", _lags(names)),
            Row("What holds it back", _states()),
            Row("Metrics API", _metrics_api(names)),
        ),
    )


def _variables() -> tuple[Variable, ...]:
    info = f"{_KSM}_info"
    chosen = f"{info}{{{_HPA}}}"
    return (
        LabelVariable("namespace", "Namespace", info, "namespace", has_all=False),
        LabelVariable(
            "hpa",
            "HPA",
            f'{info}{{namespace="$namespace"}}',
            "horizontalpodautoscaler",
            has_all=False,
        ),
        LabelVariable(
            "workload", "Workload", chosen, "scaletargetref_name", has_all=False, is_hidden=True
        ),
    )


def _of_hpa(metric: str) -> str:
    return f"max({_KSM}_{metric}{{{_HPA}}})"


def _of_metrics(metric: str) -> str:
    return f"max by (metric_name, metric_target_type) ({_KSM}_{metric}{{{_HPA}}})"


def _own_pods(names: SeriesNames) -> str:
    return f'{names.namespace}="$namespace", {names.pod}=~"$workload-.*"'


def _signal(names: SeriesNames) -> str:
    """Return the query of each pod's use of its GPUs: of its own ones, else its part of shared ones."""
    by = f"{names.namespace}, {names.pod}"
    own = f"avg by ({by}) (DCGM_FI_DEV_GPU_UTIL{{{_own_pods(names)}}})"
    part = f"sum by ({by}) (gpuscale_container_gpu_utilization_percent{{{_own_pods(names)}}})"
    return f"({own} or {part})"


_READY = f'sum(kube_pod_status_ready{{{_PODS}, condition="true"}})'
_NODES = f"count(count by (node) (kube_node_status_allocatable{{{GPU_RESOURCES}}} > 0))"


def _glance(names: SeriesNames) -> Panel:
    ratio = f"max({_KSM}_status_target_metric{{{_HPA}}} / {_KSM}_spec_target_metric{{{_HPA}}})"
    return Panel(
        "Signal, value, wanted, running, nodes",
        (
            Query(f"avg({_signal(names)}) / 100", "signal: mean GPU use", axis_unit=_RIGHT),
            Query(ratio, "value served, by its target", axis_unit=_RIGHT),
            Query(_of_hpa("status_desired_replicas"), "wanted"),
            Query(_READY, "running"),
            Query(_NODES, "GPU nodes"),
        ),
        "short",
        "Replicas and nodes on the left, the signal on the right. At 100 % the value is on target.",
        width=WIDTH,
        height=10,
        at_least=0,
        has_steps=True,
    )


def _hops(names: SeriesNames) -> tuple[Panel, ...]:
    legend = f"{{{{{names.pod}}}}}"
    metric = "{{metric_name}}"
    asked = f"sum(kube_pod_container_resource_requests{{{GPU_RESOURCES}}})"
    return (
        _hop(
            "1 Signal: GPU use of the workload's pods",
            (Query(_signal(names), legend), Query(f"avg({_signal(names)})", "mean")),
            "percent",
        ),
        _hop(
            "2 Value served: what the HPA saw",
            (
                Query(_of_metrics("status_target_metric"), metric),
                Query(_of_metrics("spec_target_metric"), f"target of {metric}"),
            ),
            "short",
            "As the HPA's status has it, in the metric's own unit.",
        ),
        _hop(
            "3 Wanted: replicas that the HPA asks for",
            (
                Query(_of_hpa("status_desired_replicas"), "wanted"),
                Query(_of_hpa("spec_min_replicas"), "least"),
                Query(_of_hpa("spec_max_replicas"), "most"),
            ),
            "short",
            steps=True,
        ),
        _hop(
            "4 Running: pods of the workload",
            (
                Query(_READY, "ready"),
                Query(_of_hpa("status_current_replicas"), "there"),
                Query(f'sum(kube_pod_status_phase{{{_PODS}, phase="Pending"}})', "pending"),
            ),
            "short",
            steps=True,
        ),
        _hop(
            "5 Nodes: GPUs in the cluster",
            (
                Query(_NODES, "GPU nodes"),
                Query(f"sum(kube_node_status_allocatable{{{GPU_RESOURCES}}})", "GPUs there"),
                Query(asked, "GPUs asked for"),
            ),
            "short",
            "Of all pools and all pods. With MIG, instances are counted.",
            steps=True,
        ),
    )


def _hop(
    title: str, queries: tuple[Query, ...], unit: str, text: str = "", *, steps: bool = False
) -> Panel:
    return Panel(title, queries, unit, text, width=WIDTH, height=6, at_least=0, has_steps=steps)


def _lags(names: SeriesNames) -> tuple[Panel, ...]:
    hop_lag = f'gpuscale_metrics_api_hop_lag_seconds{{job="{names.api_job}", hop!="total"}}'
    by = "on (namespace, pod, uid)"
    scheduled = f"kube_pod_status_scheduled_time{{{_PODS}}}"
    reconciled = "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds_bucket"
    return (
        Panel(
            "GPU to value: scrape, store, answer",
            (Query(f"max by (hop) ({hop_lag})", "{{hop}}"),),
            "s",
            "From the measurement to its scrape, from there to the question, from the request to values; "
            "the worst of all metrics.",
            at_least=0,
            is_stacked=True,
        ),
        Panel(
            "Value to decision: a round of the HPA controller, 90 %",
            (
                Query(
                    f"histogram_quantile(0.9, sum by (le) (rate({reconciled}[$__rate_interval])))",
                    "reconcile",
                ),
            ),
            "s",
            "Where the controller manager is scraped. A round comes every 15 s unless it was told otherwise.",
            at_least=0,
        ),
        Panel(
            "Pod to node: created to scheduled",
            (Query(f"{scheduled} - {by} kube_pod_created{{{_PODS}}}", "{{pod}}"),),
            "s",
            "Seconds if a GPU was free; minutes if a node had to come.",
            at_least=0,
        ),
        Panel(
            "Node to ready: scheduled to ready",
            (Query(f"kube_pod_status_ready_time{{{_PODS}}} - {by} {scheduled}", "{{pod}}"),),
            "s",
            "Pulling the image, loading the model, the readiness probe; anew each time it gets ready.",
            at_least=0,
        ),
    )


def _condition(sign: str) -> str:
    """Return the query of conditions: of the one that should not be true, or of those that should."""
    matchers = f'{_HPA}, status="true", condition{sign}"ScalingLimited"'
    return f"max by (condition) ({_KSM}_status_condition{{{matchers}}})"


def _states() -> tuple[Panel, ...]:
    unscheduled = 'kube_pod_status_scheduled{condition="false"} == 1'
    waiting = (
        f"count(({unscheduled}) and on (namespace, pod) "
        f"kube_pod_container_resource_requests{{{GPU_RESOURCES}}}) or 0 * sum(kube_node_info)"
    )
    return (
        yes_or_no(
            "Conditions of the HPA",
            (
                Query(_condition("!="), "{{condition}}"),
                Query(f"1 - {_condition('=')}", "not {{condition}}"),
            ),
            "ScalingActive: it gets values. ScalingLimited: it wants more or less than it may.",
        ),
        Panel(
            "Pods that wait for a GPU, all workloads",
            (Query(waiting, "waiting"),),
            "short",
            at_least=0,
            has_steps=True,
        ),
    )


def _metrics_api(names: SeriesNames) -> tuple[Panel, ...]:
    job = f'job="{names.api_job}"'
    prefix = "gpuscale_metrics_api"
    nothing_yet = f"0 * sum(up{{{job}}})"
    seconds = f"{prefix}_request_duration_seconds_bucket{{{job}}}"
    asked = f"{prefix}_source_request_duration_seconds_bucket{{{job}}}"
    return (
        yes_or_no(
            "Available",
            (
                Query(
                    f"1 - max by (name) (aggregator_unavailable_apiservice{{{API_SERVICES}}})",
                    "{{name}}",
                ),
                Query(f"max by (instance) (up{{{job}}})", "scrape of {{instance}}"),
            ),
            "As the API server sees it, and as Prometheus does.",
        ),
        Panel(
            "Requests",
            (
                Query(
                    f"sum by (group, code) (rate({prefix}_requests_total{{{job}}}[$__rate_interval]))",
                    "{{group}} {{code}}",
                ),
            ),
            "reqps",
            at_least=0,
        ),
        Panel(
            "Time to answer, 90 %",
            (
                Query(
                    f"histogram_quantile(0.9, sum by (le, group) (rate({seconds}[$__rate_interval])))",
                    "{{group}}",
                ),
                Query(
                    f"histogram_quantile(0.9, sum by (le) (rate({asked}[$__rate_interval])))",
                    "of it Prometheus",
                ),
            ),
            "s",
            at_least=0,
        ),
        Panel(
            "Trouble",
            (
                Query(
                    _trouble(f"{prefix}_rejected_requests_total", job, nothing_yet), "turned away"
                ),
                Query(
                    _trouble(f"{prefix}_source_failures_total", job, nothing_yet),
                    "Prometheus silent",
                ),
                Query(_trouble(f"{prefix}_stale_values_total", job, nothing_yet), "values too old"),
            ),
            "reqps",
            at_least=0,
        ),
        Panel(
            "Age of values",
            (Query(f"max by (metric) ({prefix}_value_age_seconds{{{job}}})", "{{metric}}"),),
            "s",
            "Since the latest answer's values were measured; it grows while nobody asks.",
            at_least=0,
        ),
        Panel(
            "Metrics that are listed",
            (Query(f"max by (group) ({prefix}_discovered_metrics{{{job}}})", "{{group}}"),),
            "short",
            at_least=0,
            has_steps=True,
        ),
    )


def _trouble(counter: str, job: str, nothing_yet: str) -> str:
    """Return a counter's rate; 0 where it has not begun and the server can be scraped."""
    return f"sum(rate({counter}{{{job}}}[$__rate_interval])) or {nothing_yet}"
