"""Adapts values to a cluster: the changes that `install` makes, and its report of them."""

from dataclasses import dataclass

from gpuscale.ops.install.cluster.detection import TEAM_RULES, Detected
from gpuscale.ops.install.values import Values


@dataclass(frozen=True, slots=True)
class Fitted:
    """Adapted values, and a line for each fact about the cluster that matters to them."""

    values: Values
    lines: tuple[str, ...]


def fit(values: Values, found: Detected) -> Fitted:
    """Return values that the cluster accepts, with a reason for each change."""
    lines: list[str] = []
    spec = values.spec
    if spec.device_plugin.enabled and found.device_plugin is not None:
        plugin = spec.device_plugin.model_copy(update={"enabled": False})
        spec = spec.model_copy(update={"device_plugin": plugin})
        lines.append(f"devicePlugin is left out: DaemonSet {found.device_plugin} is one already")
    if spec.agent.runtime_class is None and found.runtime_class and _is_run_by_class(values):
        agent = spec.agent.model_copy(update={"runtime_class": found.runtime_class})
        spec = spec.model_copy(update={"agent": agent})
        lines.append(
            f"agent.runtimeClass is {found.runtime_class}: the cluster has a class of that name"
        )
    versions = {scale.hpa_version for scale in spec.scale if scale.autoscaler == "hpa"}
    if found.hpa_version is not None and versions - {found.hpa_version}:
        change = {"hpa_version": found.hpa_version}
        scales = tuple(each.model_copy(update=change) for each in spec.scale)
        spec = spec.model_copy(update={"scale": scales})
        lines.append(f"hpaVersion is {found.hpa_version}: the newest that the cluster serves")
    fitted = values.model_copy(update={"spec": spec})
    return Fitted(fitted, (*lines, *_beside(fitted, found)))


def _is_run_by_class(values: Values) -> bool:
    agent = values.spec.agent
    return agent.enabled and agent.device_access == "runtime"


def _beside(values: Values, found: Detected) -> list[str]:
    """Return a line for each foreign part that stays as it is."""
    spec = values.spec
    lines = []
    if spec.agent.enabled and found.dcgm_exporter is not None:
        lines.append(
            f"DaemonSet {found.dcgm_exporter} serves series of the same names as the agent: sums count "
            "GPUs twice while both are scraped; switch one of them off"
        )
    if spec.has_own_prometheus and found.prometheus is not None:
        lines.append(
            f"a Prometheus is there already, at {found.prometheus.url}; ours stays beside it"
        )
    return lines


def reasons(found: Detected) -> list[str]:
    """Return a line for each fact about the cluster that shaped the proposed values."""
    facts = [
        (
            found.provider,
            f"provider {found.provider.name if found.provider else ''}, by the nodes' ids",
        ),
        (found.prometheus, f"Prometheus at {found.prometheus.url if found.prometheus else ''}"),
        (found.dcgm_exporter, f"dcgm-exporter: DaemonSet {found.dcgm_exporter} stays the source"),
        (found.device_plugin, f"device plugin: DaemonSet {found.device_plugin} stays"),
        (found.runtime_class, f"runtime class {found.runtime_class}"),
        (found.has_gpu_operator, "the GPU Operator"),
        (found.has_keda, "KEDA: --autoscaler keda would use it"),
        (
            found.custom_metrics_by,
            f"custom metrics are served by {found.custom_metrics_by}: install with --replace, or set "
            "metricsApi.enabled: false to keep it",
        ),
        (found.external_metrics_by, f"external metrics are served by {found.external_metrics_by}"),
        (found.resource_metrics_by, f"metrics-server: {found.resource_metrics_by}"),
        (
            found.is_known and found.prometheus is None,
            "no Prometheus: without --prometheus-url or --source, values come from the agents' streams",
        ),
        (
            found.is_known and found.resource_metrics_by is None,
            "no metrics-server, for kubectl top and HPAs on CPU: --resource-metrics takes its part, with a "
            "Prometheus that scrapes the kubelets",
        ),
        (found.has_team_rules, f"ConfigMaps with rules of teams, labelled {TEAM_RULES}"),
    ]
    return [text for fact, text in facts if fact]
