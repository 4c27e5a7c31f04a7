"""Alerts about scaling: the metrics API, the HPAs, and pods that wait for a node."""

from gpuscale.core.golang.durations import format_duration
from gpuscale.install.alerts.alert import Alert, AlertSettings
from gpuscale.install.series_names import API_SERVICES, GPU_METRICS, GPU_RESOURCES

_MINUTE_MS = 60_000
_HPA = "namespace, horizontalpodautoscaler"
_HAVE_REPLICA_SETS = "Deployment|Rollout"
"""Kinds whose pods belong to ReplicaSets; of Kubernetes, and of Argo."""
_LAG_S = 90
"""Scrape intervals of 15 s, an HPA that looks every 15 s, and as much again."""


def scaling_alerts(settings: AlertSettings) -> tuple[Alert, ...]:
    """Return the alerts about scaling, in the order of the loop."""
    api = _metrics_api_alerts(settings) if settings.has_metrics_api else ()
    return (_api_unavailable(), *api, *_hpa_alerts(), _pending(settings))


def _api_unavailable() -> Alert:
    return Alert(
        "GpuMetricsApiUnavailable",
        "critical",
        ("API server",),
        f"max by (name) (aggregator_unavailable_apiservice{{{API_SERVICES}}}) == 1",
        5 * _MINUTE_MS,
        "APIService {{ $labels.name }} is unavailable",
        "The API server can't reach the metrics API. HPAs keep their replica counts, whatever the load is.",
        "kubectl describe apiservice NAME tells why: no ready pod, a port that the control plane can't "
        "reach, or a caBundle that does not fit the certificate.",
    )


def _metrics_api_alerts(settings: AlertSettings) -> tuple[Alert, ...]:
    job = f'job="{settings.names.api_job}"'
    return (
        Alert(
            "GpuMetricsApiDown",
            "critical",
            ("metrics API",),
            f"sum by (job) (up{{{job}}}) == 0 or absent(up{{{job}}})",
            5 * _MINUTE_MS,
            "No replica of {{ $labels.job }} can be scraped",
            "The metrics API is away, or Prometheus may not ask it for its metrics.",
            "kubectl get pods -l app.kubernetes.io/component=metrics-api, their logs, and /readyz?verbose."
            " With 403 at Prometheus' page /targets, its service account lacks the right to get /metrics.",
        ),
        Alert(
            "GpuMetricsApiSourceFailing",
            "critical",
            ("metrics API",),
            f"sum by (job) (rate(gpuscale_metrics_api_source_failures_total{{{job}}}[5m])) > 0",
            5 * _MINUTE_MS,
            "{{ $labels.job }} gets no answers from Prometheus",
            "HPAs get an error instead of a value, and keep their replica counts.",
            "Check --prometheus-url, a NetworkPolicy in between, and Prometheus itself; the server's log "
            "has the error.",
        ),
        Alert(
            "GpuMetricsApiRulesRefused",
            "warning",
            ("metrics API",),
            f"max by (job, source) (gpuscale_metrics_api_rule_source_last_reload_successful{{{job}}} == 0)",
            5 * _MINUTE_MS,
            "Rules of {{ $labels.source }} are refused",
            "The last good rules are served on; what was changed since is not in effect.",
            "gpuscale lint FILE names line and fault, as the server's log does.",
        ),
        Alert(
            "GpuMetricLate",
            "warning",
            ("metrics API",),
            f'max by (job, metric) (gpuscale_metrics_api_hop_lag_seconds{{{job},hop="total"}}) > {_LAG_S}',
            10 * _MINUTE_MS,
            "Values of {{ $labels.metric }} are {{ $value | humanizeDuration }} old when they are served",
            "HPAs act on a load that has passed: too late up, too late down.",
            "The dashboard Autoscaling shows the lag of each hop. Shorten the scrape interval, or let the "
            "metrics API follow the agents' streams (--source streams).",
        ),
        Alert(
            "GpuMetricStale",
            "critical",
            ("metrics API",),
            f"sum by (job, metric) (increase(gpuscale_metrics_api_stale_values_total{{{job}}}[5m])) > 0",
            5 * _MINUTE_MS,
            "Values of {{ $labels.metric }} are left out because they are too old",
            "The series are there, but were measured longer ago than --value-max-age allows. HPAs get no "
            "value.",
            "Look for GpuReadingsStale and GpuNodeAgentDown first; then for clocks that differ between "
            "nodes.",
        ),
    )


def _hpas_of_gpus() -> str:
    """Return a vector of the HPAs that look at a GPU, or that scale pods with a request for one.

    Source: kube-state-metrics v2.17 docs/metrics/workload (horizontalpodautoscaler, pod). ReplicaSets are
    called as what owns them, with a hash behind.
    """
    info, name, kind = (
        "kube_horizontalpodautoscaler_info",
        "scaletargetref_name",
        "scaletargetref_kind",
    )
    hashed = _renamed(_owned('{owner_kind="ReplicaSet"}'), name, "owner_name", "(.+)-[^-]+")
    direct = _renamed(_renamed(_owned(), name, "owner_name"), kind, "owner_kind")
    return (
        f"(kube_horizontalpodautoscaler_spec_target_metric{{{GPU_METRICS}}} "
        f'or {info}{{{kind}=~"{_HAVE_REPLICA_SETS}"}} and on (namespace, {name}) {hashed} '
        f'or {info}{{{kind}!~"{_HAVE_REPLICA_SETS}"}} and on (namespace, {kind}, {name}) {direct})'
    )


def _owned(matchers: str = "") -> str:
    """Return the owners of pods that request a GPU."""
    requests = f"kube_pod_container_resource_requests{{{GPU_RESOURCES}}} > 0"
    return f"kube_pod_owner{matchers} and on (namespace, pod) ({requests})"


def _renamed(vector: str, label: str, source: str, pattern: str = "(.+)") -> str:
    return f'label_replace({vector}, "{label}", "$1", "{source}", "{pattern}")'


def _hpa_alerts() -> tuple[Alert, ...]:
    is_of_gpus = f"and on ({_HPA}) {_hpas_of_gpus()}"
    return (
        Alert(
            "GpuHpaBlind",
            "critical",
            ("kube-state-metrics",),
            f"(max by ({_HPA}) (kube_horizontalpodautoscaler_status_condition"
            '{condition="ScalingActive",status="false"}) == 1) '
            f"and on ({_HPA}) (kube_horizontalpodautoscaler_status_current_replicas > 0) {is_of_gpus}",
            10 * _MINUTE_MS,
            "HPA {{ $labels.namespace }}/{{ $labels.horizontalpodautoscaler }} gets no value and does not "
            "scale",
            "Its condition ScalingActive is False: it keeps its replica count, whatever the load is.",
            "kubectl describe hpa NAME has the reason; gpuscale metrics-api why follows the metric to the "
            "hop that gives nothing.",
        ),
        Alert(
            "GpuHpaAtMaximum",
            "warning",
            ("kube-state-metrics",),
            f"(max by ({_HPA}) (kube_horizontalpodautoscaler_status_desired_replicas) "
            f">= max by ({_HPA}) (kube_horizontalpodautoscaler_spec_max_replicas)) "
            f"and on ({_HPA}) (kube_horizontalpodautoscaler_status_condition"
            '{condition="ScalingLimited",status="true"} == 1) '
            f"and on ({_HPA}) (max by ({_HPA}) (kube_horizontalpodautoscaler_spec_max_replicas) "
            f"> max by ({_HPA}) (kube_horizontalpodautoscaler_spec_min_replicas)) {is_of_gpus}",
            15 * _MINUTE_MS,
            "HPA {{ $labels.namespace }}/{{ $labels.horizontalpodautoscaler }} wants more than its {{ "
            "$value }} replicas",
            "The load is above its target, and the HPA may not add pods: requests wait or fail.",
            "Raise maxReplicas, and with it the node pool's limit and the GPU quota; or raise the target "
            "if latency is still good.",
        ),
    )


def _pending(settings: AlertSettings) -> Alert:
    waited = format_duration(settings.node_start_ms)
    return Alert(
        "GpuPodsPending",
        "warning",
        ("kube-state-metrics",),
        '(max by (namespace, pod) (kube_pod_status_scheduled{condition="false"}) == 1) '
        f"and on (namespace, pod) (kube_pod_container_resource_requests{{{GPU_RESOURCES}}} > 0)",
        settings.node_start_ms,
        f"Pod {{{{ $labels.namespace }}}}/{{{{ $labels.pod }}}} waits for a GPU for more than {waited}",
        "A new node should have come by now (alerts.nodeStart).",
        "kubectl describe pod has the scheduler's and the node autoscaler's words: no quota, the pool's "
        "maximum, no machines of that type in the zone, or a taint that the pod does not tolerate.",
    )
