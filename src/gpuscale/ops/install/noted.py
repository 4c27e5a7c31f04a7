"""Warnings about valid values that may not be what was meant; they stop nothing."""

from urllib.parse import urlsplit

from gpuscale.hpa.terms import SCALE_TO_ZERO, KubernetesVersion
from gpuscale.ops.install.common import (
    METRICS_API,
    SCALER,
    account_name,
    has_api_pods,
    image_reference,
)
from gpuscale.ops.install.image import has_registry
from gpuscale.ops.install.prometheus_auth import PrometheusAuth
from gpuscale.ops.install.values import Values


def notes(values: Values, kubernetes: KubernetesVersion | None = None) -> list[str]:
    """Return the warnings about these values, one or two sentences each.

    Args:
        values: of the installation.
        kubernetes: release of the cluster that they are for; None where it is not known.
    """
    return [
        *_scaling(values),
        *_zero(values, kubernetes),
        *_wake_sources(values),
        *_model_servers(values),
        *_streams(values),
        *_azure(values),
        *_sharing(values),
        *_minimum(values),
        *_access(values),
        *_ready_taint(values),
    ]


def _zero(values: Values, kubernetes: KubernetesVersion | None) -> list[str]:
    """Return how to enable HPAs with minReplicas 0, unless the cluster has that."""
    if not any(each.autoscaler == "hpa" and each.min_replicas == 0 for each in values.spec.scale):
        return []
    gate = SCALE_TO_ZERO
    if kubernetes is not None and gate.is_on(kubernetes):
        return []
    which = (
        f"before Kubernetes {gate.beta}" if kubernetes is None else f"on Kubernetes {kubernetes}"
    )
    return [
        f"minReplicas 0 takes the feature gate {gate.name} {which}: start kube-apiserver and "
        f"kube-controller-manager with --feature-gates={gate.name}=true; where you can't, take "
        "autoscaler: keda or minReplicas: 1"
    ]


def _minimum(values: Values) -> list[str]:
    pool = values.spec.node_pool
    if pool is None or pool.autoscaler != "karpenter" or pool.min_nodes == 0:
        return []
    return [
        f"nodePool.minNodes {pool.min_nodes} has no effect with autoscaler: karpenter, whose NodePools have "
        "no minimum: nodes come for pods. For spare nodes, run pause pods with a low priority"
    ]


def image_note(values: Values) -> str | None:
    """Return why no node could pull the installation's image, and what to do; None if one could."""
    spec, image = values.spec, values.spec.image
    is_used = spec.agent.enabled or has_api_pods(values)
    if not is_used or has_registry(image.repository) or image.pull_policy == "Never":
        return None
    version = image.tag.partition("@")[0]
    return (
        f"image {image_reference(image)} names no registry, so nodes can't pull it: push it to one of yours "
        f"(make image IMAGE=REGISTRY/gpuscale:{version} PUSH=1) and name it in spec.image; where every node "
        "has it already (kind load docker-image), set spec.image.pullPolicy: Never"
    )


def _scaling(values: Values) -> list[str]:
    spec = values.spec
    found = []
    if any(scale.autoscaler == "hpa" for scale in spec.scale) and not spec.metrics_api.enabled:
        found.append(
            "metricsApi is off: HPAs get their values from the metrics API that the cluster has"
        )
    pool = spec.node_pool
    if pool is not None:
        most = pool.max_nodes * pool.gpus * _replicas(values)
        wanted = sum(scale.max_replicas for scale in spec.scale)
        if wanted > most:
            found.append(
                f"scale asks for up to {wanted} pods, and nodePool {pool.name} has GPUs for {most} of one "
                "GPU each: the others will stay pending"
            )
    return found


def _wake_sources(values: Values) -> list[str]:
    """Return where the series of wake sources must come from, if the installation has no source of them."""
    spec = values.spec
    waking = [*(each.wake for each in spec.scale), *(each.wake for each in spec.jobs)]
    asks = any(each and (each.sources or each.query) for each in waking)
    if not asks and not any(each.metrics for each in spec.jobs):
        return []
    if spec.has_streams:
        if spec.scrapes_pods or spec.metrics_api.otlp.enabled:
            return []
        return [
            "wake sources are not among the node agents' series: set metricsApi.scrapePods, and annotate "
            "the pods that have them (prometheus.io/scrape), name the pods in metricsApi.scrapeSelectedPods, "
            "or take metricsApi.source: prometheus"
        ]
    if spec.prometheus.kind != "own":
        return []
    return [
        "the installation's own Prometheus scrapes the node agents alone: wake sources take a Prometheus "
        "that has their series (prometheus.kind operator or plain)"
    ]


def _model_servers(values: Values) -> list[str]:
    """Return where model servers' series must come from, if the source are streams."""
    spec = values.spec
    if not spec.has_streams or spec.scrapes_pods or spec.metrics_api.otlp.enabled:
        return []
    for scale in spec.scale:
        for name, signal in zip(scale.signal_names, scale.signals, strict=True):
            if signal.kind == "pods" and signal.family.port:
                port = scale.metrics_port or signal.family.port
                return [
                    f"signal {name} is not among the node agents' series: name the pods of "
                    f"{scale.workload.name} in metricsApi.scrapeSelectedPods, with port {port}, or annotate "
                    "them (prometheus.io/scrape) and set metricsApi.scrapePods"
                ]
    return []


def _streams(values: Values) -> list[str]:
    if not values.spec.has_streams or not values.spec.has_own_prometheus:
        return []
    return [
        "a Prometheus is installed for alerts and dashboards only: nothing is scaled by it, and without "
        "both it is left out"
    ]


def _azure(values: Values) -> list[str]:
    """Return what an Azure Monitor workspace needs that no Kubernetes object provides."""
    spec = values.spec
    found = spec.prometheus
    if found.kind == "azure" and not spec.has_streams:
        parts = (METRICS_API, SCALER) if spec.asks_scaler else (METRICS_API,)
        accounts = [f"{spec.namespace}:{account_name(values, part)}" for part in parts]
        return [
            f"identity {found.identity} has to have a federated credential for the service account "
            f"{' and '.join(accounts)}, and the role Monitoring Data Reader on the workspace"
        ]
    host = urlsplit(found.url or "").hostname or ""
    has_credentials = found.auth != PrometheusAuth() or found.kind == "azure"
    if host.endswith(".prometheus.monitor.azure.com") and not has_credentials:
        return [
            "prometheus.url is an Azure Monitor workspace, which refuses who shows no token: set "
            "prometheus.kind: azure and prometheus.identity"
        ]
    return []


def _replicas(values: Values) -> int:
    plugin = values.spec.device_plugin
    return plugin.replicas if plugin.enabled else 1


def _sharing(values: Values) -> list[str]:
    if _replicas(values) == 1:
        return []
    found = []
    if any("gpu-utilization" in scale.signal_names for scale in values.spec.scale):
        found.append(
            "GPUs are shared by time-slicing: gpu-utilization has no pods then; signal gpu-share says "
            "what each pod uses"
        )
    pool = values.spec.node_pool
    if pool is not None and not values.spec.provider.counts_shares:
        found.append(
            "node autoscalers know the GPUs of a node, not the shares that time-slicing makes of them: from "
            "zero nodes they may start one node per pod"
        )
    return found


def _access(values: Values) -> list[str]:
    agent = values.spec.agent
    needs_host = values.spec.provider.needs_host
    if needs_host and agent.enabled and agent.device_access == "runtime":
        return [needs_host]
    if agent.enabled and agent.device_access == "host":
        return [
            "deviceAccess: host makes the agent privileged; it is for nodes without NVIDIA's runtime"
        ]
    return []


def _ready_taint(values: Values) -> list[str]:
    """Return who has to tolerate the taint of new nodes, where another brings the device plugin."""
    key = values.spec.agent.ready_taint
    if key is None or not values.spec.agent.enabled or values.spec.device_plugin.enabled:
        return []
    return [
        f"agent.readyTaint: the cluster's device plugin and driver installer have to tolerate {key}; one "
        "that does not never starts on a new node, whose GPUs then never come"
    ]
