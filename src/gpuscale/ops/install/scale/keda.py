"""How KEDA scales: its scaler, how it polls, and what holds while a trigger fails."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field

from gpuscale.base.documents.models import Model
from gpuscale.ops.install.fields import Uuid
from gpuscale.ops.install.part_settings import ScalerSettings
from gpuscale.ops.install.pods import Object, Resources, ServedPodSettings
from gpuscale.ops.install.scale.azure_monitor import AzureMonitorMetric
from gpuscale.ops.install.scale.jobs import ScaledJob
from gpuscale.ops.install.scale.metrics import QueryMetric
from gpuscale.ops.install.scale.scale import Scale, Subdomain

_RESOURCES: Object = {
    "requests": {"cpu": "50m", "memory": "128Mi"},
    "limits": {"memory": "1Gi"},
}


class Keda(Model):
    """How the ScaledObjects of scales with `autoscaler: keda` are made."""

    trigger: Literal["scaler", "prometheus"] = "scaler"
    """`scaler`: KEDA asks gpuscale's scaler, which knows wake sources and holds its decisions; `prometheus`:
    KEDA asks a Prometheus itself."""
    polling_interval_seconds: int = Field(default=15, ge=1, le=3600)
    """How often KEDA looks whether a workload that may have no pod has to have one; pushes come at once."""
    cooldown_period_seconds: int = Field(default=300, ge=0, le=86_400)
    """From the last activity, or from the beginning, until the pods go to zero."""
    failure_threshold: int = Field(default=3, ge=0, le=1000)
    """How many failures in a row bring the fallback: the pods that there are, one at least."""
    azure_identity: Uuid | None = None
    """Client id of the identity that KEDA asks Azure with, by Azure's workload identity: for metrics of type
    AzureMonitor, and with `trigger: prometheus` for a workspace; absent: `prometheus.identity`."""
    tls_secret: Subdomain | None = None
    """With `scaler.tlsSecret`: Secret of yours in each workload's namespace, with `ca.crt` of the scaler's
    certificate; and with `scaler.clientCertificates`, `tls.crt` and `tls.key` of KEDA's own."""


class Scaler(ServedPodSettings):
    """The scaler that KEDA asks; it is installed where a scale has `autoscaler: keda`, and with `jobs`."""

    strategy_type: ClassVar[str] = "apps_v1.DeploymentStrategy"

    enabled: bool = True
    """Whether it may be installed."""
    replicas: int = Field(default=2, ge=1, le=10)
    """Servers that answer; KEDA's own fallback does not apply while none of them can be reached."""
    port: int = Field(default=6000, ge=1, le=65_535)
    """Of its Service."""
    tls_secret: Subdomain | None = None
    """Secret of yours with `tls.crt` and `tls.key`, for its Service's name; absent: plain text."""
    settings: ScalerSettings = {}
    """Further settings, by the keys of the page on settings, such as `limits: {maxStreams: 16000}`; without
    those that the installation sets itself."""
    client_certificates: bool = False
    """With `tlsSecret`: takes only clients with a certificate of the CA in its `ca.crt`."""
    resources: Resources = _RESOURCES
    """Requests and limits of the container. With `metricsApi.source: streams`, the memory limit also says how
    many series and samples are kept."""
    priority_class_name: str | None = Field(default="system-cluster-critical", max_length=253)
    """Which pods give way when nodes are full."""


def trigger_faults(scale: Scale, keda: Keda, scaler: Scaler, *, is_served: bool) -> list[str]:
    """Return why no server would serve a scale's triggers.

    Args:
        scale: one workload.
        keda: how KEDA asks.
        scaler: whom it asks.
        is_served: whether the metrics API serves external metrics.
    """
    if scale.has_served_triggers and not is_served:
        named = [n for n, each in zip(scale.signal_names, scale.signals, strict=True) if each.query]
        what = "wake" if scale.wake else f"signal {named[0]}" if named else "a query"
        text = f"{what} with autoscaler hpa"
        return [f"{text}, expected metricsApi.external: true, because that serves it"]
    if scale.autoscaler != "keda" or not scale.trigger_keys:
        return []
    if keda.trigger == "prometheus" and scale.combined_metrics:
        text = f"combined {scale.combined_metrics[0].combined} with keda.trigger prometheus"
        return [f"{text}, expected keda.trigger: scaler, because a rule of ours serves it"]
    if keda.trigger == "prometheus" and scale.has_policy:
        return ["a policy with keda.trigger prometheus, expected keda.trigger: scaler"]
    if keda.trigger == "prometheus" and scale.has_credit:
        return ["credit with keda.trigger prometheus, expected keda.trigger: scaler"]
    if keda.trigger == "prometheus" and scale.wake is not None:
        return ["wake with keda.trigger prometheus, expected keda.trigger: scaler"]
    if keda.trigger == "scaler" and not scaler.enabled:
        text = "autoscaler keda with scaler.enabled false"
        return [f"{text}, expected scaler.enabled: true, or keda.trigger: prometheus"]
    return []


def job_set_faults(jobs: Sequence[ScaledJob], scaler: Scaler) -> list[str]:
    """Return why KEDA could not create some of the Jobs."""
    names = [(each.namespace, each.name) for each in jobs]
    faults = [
        f"found jobs[{index}].name twice, expected each name once per namespace"
        for index, name in enumerate(names)
        if name in names[:index]
    ]
    if jobs and not scaler.enabled:
        faults.append("found jobs with scaler.enabled false, expected scaler.enabled: true")
    return faults


def asks_azure(scale: Scale) -> bool:
    """Return whether KEDA queries Azure Monitor for a scale."""
    return any(isinstance(each, AzureMonitorMetric) for each in scale.entries)


def asks_prometheus(scale: Scale, keda: Keda) -> bool:
    """Return whether KEDA itself queries a Prometheus for a scale."""
    if scale.autoscaler != "keda":
        return False
    return keda.trigger == "prometheus" or any(
        isinstance(each, QueryMetric) and each.target_type == "Value" for each in scale.entries
    )
