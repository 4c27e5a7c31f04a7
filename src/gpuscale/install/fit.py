"""Values made to fit a cluster: what `install` changes by itself, and says, and what `init` proposes."""

from dataclasses import dataclass, field
from typing import Any

from gpuscale.install.cluster.detect import Detected, FoundWorkload
from gpuscale.install.providers import DEFAULTS
from gpuscale.install.signals import SIGNALS, SignalName
from gpuscale.install.values import Provider, Values


@dataclass(frozen=True, slots=True)
class Fitted:
    """Values, and a line for each thing that the cluster has to do with them."""

    values: Values
    lines: tuple[str, ...]


def fit(values: Values, found: Detected) -> Fitted:
    """Return values that the cluster can take, with the reason for each change."""
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
    """Return what is there beside the installation, and is left as it is."""
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


@dataclass(frozen=True, slots=True)
class Answers:
    """What a user said; None where nothing was said."""

    workload: FoundWorkload | None = None
    signal: SignalName = "gpu-utilization"
    target: float | None = None
    min_replicas: int = 1
    max_replicas: int = 10
    provider: Provider | None = None
    autoscaler: str | None = None
    namespace: str | None = None
    image: str | None = None
    prometheus_url: str | None = None
    more: dict[str, Any] = field(default_factory=dict)


def proposed(answers: Answers, found: Detected) -> dict[str, Any]:
    """Return a values file as data: what was said, what the cluster suggests, and nothing that is a default.

    Raises:
        ValueError: workload or provider are neither said nor to be seen.
    """
    provider = answers.provider or found.provider
    if answers.workload is None or provider is None:
        raise ValueError("found neither workload nor provider, expected both")
    defaults = DEFAULTS[provider]
    spec: dict[str, Any] = {"provider": provider}
    if answers.namespace is not None:
        spec["namespace"] = answers.namespace
    if answers.image is not None:
        repository, _, tag = answers.image.rpartition(":")
        spec["image"] = {"repository": repository, "tag": tag}
    spec["scale"] = [_scale(answers, answers.workload, found)]
    key, _, rest = defaults.taint.partition("=")
    value, _, effect = rest.partition(":")
    spec["taint"] = {"key": key, "value": value, "effect": effect}
    agent = _agent(answers, found, defaults.device_access)
    if agent:
        spec["agent"] = agent
    prometheus = _prometheus(answers, found)
    if prometheus:
        spec["prometheus"] = prometheus
    if not defaults.has_device_plugin and found.device_plugin is None:
        spec["devicePlugin"] = {"enabled": True}
    head = {"apiVersion": "gpuscale.dev/v1alpha1", "kind": "Values"}
    return {**head, "spec": {**spec, **answers.more}}


def _scale(answers: Answers, workload: FoundWorkload, found: Detected) -> dict[str, Any]:
    target = answers.target if answers.target is not None else SIGNALS[answers.signal].target
    scale: dict[str, Any] = {
        "workload": {
            "kind": workload.kind,
            "name": workload.name,
            "namespace": workload.namespace,
        },
        "signal": answers.signal,
        "target": target,
        "minReplicas": answers.min_replicas,
        "maxReplicas": answers.max_replicas,
        "autoscaler": answers.autoscaler or "hpa",
    }
    if found.hpa_version not in (None, "autoscaling/v2"):
        scale["hpaVersion"] = found.hpa_version
    return scale


def _agent(answers: Answers, found: Detected, access: str) -> dict[str, Any]:
    signal = SIGNALS[answers.signal]
    agent: dict[str, Any] = {}
    is_enough = not signal.of_processes and (answers.prometheus_url or found.prometheus)
    if found.dcgm_exporter is not None and is_enough:
        return {"enabled": False}
    if signal.of_processes:
        agent["attribution"] = "processes"
    if signal.is_alibabas:
        agent["style"] = "both"
    if access == "host":
        agent["deviceAccess"] = "host"
    elif found.runtime_class is not None:
        agent["runtimeClass"] = found.runtime_class
    return agent


def _prometheus(answers: Answers, found: Detected) -> dict[str, Any]:
    if answers.prometheus_url is not None:
        return {"kind": "plain", "url": answers.prometheus_url}
    if found.prometheus is None:
        return {}
    kind = "operator" if found.prometheus.is_operated else "plain"
    release = {"release": found.prometheus.release} if found.prometheus.release else {}
    return {"kind": kind, "url": found.prometheus.url, **release}


def reasons(found: Detected) -> list[str]:
    """Return a line for each thing that was found and has a say in what is proposed."""
    facts = [
        (found.provider, f"provider {found.provider}, by the nodes' ids"),
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
    ]
    return [text for fact, text in facts if fact]
