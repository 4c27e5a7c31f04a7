"""The metrics API: where its values come from, what it serves, and how it is reached."""

from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field

from gpuscale.base.documents.models import Model
from gpuscale.base.errors import ConfigError
from gpuscale.ops.install.federation import FederatedApi
from gpuscale.ops.install.fields import AlertmanagerUrl, ExporterPods, LabelSelector, RuleFileText
from gpuscale.ops.install.part_settings import MetricsApiSettings
from gpuscale.ops.install.pods import (
    FIXED_MIB,
    SERIES_PER_MIB,
    Object,
    Resources,
    ServedPodSettings,
    max_series,
)
from gpuscale.ops.install.scale.scale import Label, Subdomain
from gpuscale.ops.install.settings.collected import Otlp, SelectedPods
from gpuscale.server.metricsapi.federation import member_of_flag, together
from gpuscale.server.rules import load_rules
from gpuscale.server.sources.feeds import MAX_CHOICES

MetricSourceName = Literal["prometheus", "streams"]
_RESOURCES: Object = {
    "requests": {"cpu": "50m", "memory": "128Mi"},
    "limits": {"memory": "1Gi"},
}
_LEAST_STORE_MIB = 48


class IdleFirst(Model):
    """A Deployment whose scale-ins take the pods with the least work."""

    namespace: Label
    """Its namespace."""
    workload: Subdomain
    """Its name."""
    metric: str = Field(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:.-]*$", max_length=253)
    """What its pods do, as the metrics API serves it: requests in flight, the queue, GPU use."""


class MetricsApi(ServedPodSettings):
    """The custom metrics API, which the HPA controller asks."""

    enabled: bool = True
    """Whether it is installed."""
    replicas: int = Field(default=2, ge=1, le=10)
    """Servers that answer; with two, a node can fail."""
    source: MetricSourceName = "prometheus"
    """Where values come from. `prometheus`: queries; `streams`: the node agents themselves, as soon as
    they read them, and without a Prometheus."""
    share_agents: bool = True
    """With `streams`: each replica follows a part of the node agents, and gets the others from the other
    replicas; without, each follows all of them."""
    scrape_pods: bool = False
    """With `streams`: also scrapes pods annotated `prometheus.io/scrape: "true"`, such as model servers, and
    serves their queues. Their series are of the pod itself, except those of `exporterPods`."""
    scrape_selected_pods: tuple[SelectedPods, ...] = Field(default=(), max_length=MAX_CHOICES)
    """With `streams`: also scrapes these pods, which need no annotation, as a PodMonitor would, and serves
    their queues."""
    otlp: Otlp = Otlp()
    external: bool = False
    """Serves external.metrics.k8s.io too; a cluster has one server for it, and KEDA wants to be it, unless it
    is federated."""
    federate: tuple[FederatedApi, ...] = Field(default=(), max_length=8)
    """Other metrics APIs that answer what is not ours, such as KEDA. Their APIServices are taken over, and
    given back when the installation is removed."""
    idle_first: tuple[IdleFirst, ...] = Field(default=(), max_length=64)
    """Deployments whose pods with the least work get the lowest deletion costs before a scale-in; this takes
    the right to patch pods in their namespaces."""
    resource: bool = False
    """Serves metrics.k8s.io too, CPU and memory of pods and nodes, in metrics-server's place."""
    certificates: Literal["generated", "cert-manager"] = "generated"
    """`generated`: made and renewed by the pods themselves; `cert-manager`: made and renewed by it."""
    issuer: Subdomain | None = None
    """A ClusterIssuer of cert-manager; absent: a CA of the installation's own."""
    rules: str | None = Field(default=None, max_length=900_000)
    """Text of a prometheus-adapter rule file; absent: rules for all signals."""
    preset: bool = False
    """Serves the preset too, after the rules: all GPU metrics, and queues of model servers."""
    rules_config_maps: LabelSelector | None = None
    """Labels of ConfigMaps with rules of teams, such as `gpuscale.dev/rules=true`; absent: none are read."""
    prometheus_rules: RuleFileText | None = None
    """With `streams`: text of a Prometheus rule file, whose recording and alerting rules are evaluated."""
    alertmanagers: tuple[AlertmanagerUrl, ...] = Field(default=(), max_length=16)
    """With `prometheusRules`: addresses that alerts are sent to, such as http://alertmanager.monitoring:9093,
    all of one port."""
    alertmanager_ca_secret: Subdomain | None = None
    """With `alertmanagers`: Secret of yours with `ca.crt`, the CAs of their certificates."""
    alertmanager_token_secret: Subdomain | None = None
    """With `alertmanagers`: Secret of yours with `token`, a bearer token for them."""
    exporter_pods: ExporterPods | None = None
    """With `scrapePods` or `scrapeSelectedPods`: scraped pods whose series may name other pods, NAMESPACE or
    NAMESPACE/LABEL=VALUE, separated by commas; absent: those of the usual GPU operators and monitoring."""
    store_size: str = Field(default="1Gi", pattern=r"^[1-9][0-9]*(Mi|Gi)$", max_length=12)
    """With `streams`: what the samples on disk may take in each pod, so that a container that is restarted
    keeps its windows; at least 16Mi."""
    remote_write_secret: Subdomain = "gpuscale-remote-write"  # noqa: S105 - its name
    """With `streams`: Secret of yours with `remote-write.yaml`, which says where to send all samples, and the
    files that it names. It need not be there."""
    remote_write_port: int = Field(default=9090, ge=1, le=65_535)
    """Port of a receiver of samples that the network policy lets pods go to, beside 443, 6443 and 8443."""
    settings: MetricsApiSettings = {}
    """Further settings, by the keys of the page on settings, such as `metrics: {valueMaxAge: 1m}`; without
    those that the installation sets itself."""
    external_name: Subdomain | None = None
    """Host on which a metrics API of yours runs instead of pods, to work on it beside a cluster."""
    port: int = Field(default=443, ge=1, le=65_535)
    """Of its Service."""
    resources: Resources = _RESOURCES
    """Requests and limits of the container. With `streams`, the memory limit also says how many series and
    samples are kept."""
    priority_class_name: str | None = Field(default="system-cluster-critical", max_length=253)
    """Which pods give way when nodes are full."""

    @property
    def has_external_metrics(self) -> bool:
        """Whether its rules, those that teams may add, or a federated server have external metrics."""
        if self.rules_config_maps or any(each.is_external for each in self.federate):
            return True
        try:
            return bool(self.rules and load_rules(self.rules, "metricsApi.rules").external_rules)
        except ConfigError:
            return True  # faults of the rules are reported elsewhere

    @property
    def scrapes_pods(self) -> bool:
        """Whether pods beside the node agents are scraped."""
        return self.scrape_pods or bool(self.scrape_selected_pods)

    @property
    def max_series(self) -> int | None:
        """How many series the memory limit has room for; None without one."""
        return max_series(self.resources)

    def source_faults(self) -> list[str]:
        if self.exporter_pods and not self.scrapes_pods:
            text = "found metricsApi.exporterPods without metricsApi.scrapePods"
            return [
                f"{text}, expected scrapePods: true or scrapeSelectedPods, because no others name pods"
            ]
        if self.source == "prometheus":
            reasons = {
                "scrapePods": (self.scrape_pods, "a Prometheus scrapes by itself"),
                "scrapeSelectedPods": (self.scrape_selected_pods, "a Prometheus scrapes by itself"),
                "otlp": (self.otlp.enabled, "a Prometheus takes OTLP by itself"),
                "prometheusRules": (self.prometheus_rules, "a Prometheus has rules of its own"),
            }
            return [
                f"found metricsApi.{field} with metricsApi.source prometheus, expected source: "
                f"streams, because {reason}"
                for field, (is_set, reason) in reasons.items()
                if is_set
            ][:1]
        most = self.max_series
        if self.enabled and most is not None and most < SERIES_PER_MIB * _LEAST_STORE_MIB:
            text = f"found metricsApi.resources.limits.memory {self.resources['limits']['memory']}"
            return [
                f"{text} with source streams, expected at least {FIXED_MIB + _LEAST_STORE_MIB}Mi, "
                "because samples are kept in memory"
            ]
        if self.otlp.enabled and self.replicas > 1:
            text = f"found metricsApi.otlp.enabled with replicas {self.replicas}"
            return [f"{text}, expected replicas: 1, because replicas don't share what is pushed"]
        return []

    def federation_faults(self) -> list[str]:
        faults: list[str] = []
        flags = [each.flag() for each in self.federate]
        together([member_of_flag(flag) for flag in flags], faults.append)
        faults += [
            f"found {each.name} in metricsApi.federate without metricsApi.external, expected external: true"
            for each in self.federate
            if each.is_external and not self.external
        ]
        return faults

    def alertmanager_faults(self) -> list[str]:
        if not self.alertmanagers:
            if self.alertmanager_ca_secret or self.alertmanager_token_secret:
                text = "found a Secret for Alertmanagers without metricsApi.alertmanagers"
                return [f"{text}, expected their addresses"]
            return []
        if not self.prometheus_rules:
            text = "found metricsApi.alertmanagers without metricsApi.prometheusRules"
            return [f"{text}, expected the rules whose alerts are sent"]
        urls = [urlsplit(each) for each in self.alertmanagers]
        ports = {url.port or {"http": 80, "https": 443}[url.scheme] for url in urls}
        if len(ports) > 1:
            shown = ", ".join(map(str, sorted(ports)))
            return [f"found metricsApi.alertmanagers with ports {shown}, expected one port"]
        if self.alertmanager_token_secret and any(url.scheme == "http" for url in urls):
            text = "found metricsApi.alertmanagerTokenSecret with an Alertmanager at http"
            return [f"{text}, expected https"]
        return []
