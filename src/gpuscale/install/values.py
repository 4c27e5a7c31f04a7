"""The values file: all that an installation is made from.

It is small on purpose: what to scale, on which signal, between which limits, on which provider, and a switch
for each part. The same file is the values of the Helm chart. `gpuscale schema values` prints its JSON schema.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from gpuscale import __version__
from gpuscale.core.documents.models import Model, PositiveDuration, parse_file
from gpuscale.core.documents.validation import LABEL_PATTERN
from gpuscale.install.federation import FederatedApi
from gpuscale.install.fields import (
    AlertmanagerUrl,
    CountersCsv,
    ExporterPods,
    LabelSelector,
    Repository,
    RuleFileText,
    Tag,
    Word,
)
from gpuscale.install.pods import (
    FIXED_MIB,
    SERIES_PER_MIB,
    Object,
    PodSettings,
    Resources,
    SecretName,
    ServedPodSettings,
    Toleration,
    max_series,
)
from gpuscale.install.prometheus_auth import KeyReference, PrometheusAuth, PrometheusUrl
from gpuscale.install.scale.jobs import ScaledJob
from gpuscale.install.scale.keda import (
    Keda,
    Scaler,
    asks_prometheus,
    job_set_faults,
    trigger_faults,
)
from gpuscale.install.scale.metrics import MAX_TARGET
from gpuscale.install.scale.scale import Label, Scale, Subdomain
from gpuscale.metricsapi.federation.settings import member_of_flag, together
from gpuscale.objects import nodes
from gpuscale.providers import BUILT_IN, Pool, either
from gpuscale.providers.field import ProviderField, default_provider

MetricSourceName = Literal["prometheus", "streams"]

_EVERY_TAINT: tuple[Object, ...] = ({"operator": "Exists"},)
_AGENT_RESOURCES: Object = {
    # A CPU limit would delay scrapes and save nothing.
    "requests": {"cpu": "20m", "memory": "96Mi"},
    "limits": {"memory": "256Mi"},
}
_API_RESOURCES: Object = {
    "requests": {"cpu": "50m", "memory": "128Mi"},
    "limits": {"memory": "1Gi"},
}
_PROMETHEUS_RESOURCES: Object = {
    "requests": {"cpu": "50m", "memory": "256Mi"},
    "limits": {"memory": "1Gi"},
}
_LEAST_STORE_MIB = 48
SAMPLES_PER_SERIES = 100


class Metadata(Model):
    """The installation's name: the first part of the names of all that is made."""

    name: str = Field(default="gpuscale", pattern=LABEL_PATTERN, max_length=32)
    """The first part of the names of all that is made."""


class Image(Model):
    """The image of the node agent and the metrics API: build it with `make image`, from the Dockerfile."""

    repository: Repository = "gpuscale"
    """Where nodes pull it from, such as `registry.example.com/gpuscale`; the default is in no registry."""
    tag: Tag = __version__
    """A digest may follow it: `0.1.0@sha256:...`."""
    digest: str | None = Field(default=None, pattern=r"^sha256:[0-9a-f]{64}$")
    """Pins the image: nodes pull this one, whatever the tag points to later."""
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """`Never`: every node has the image already, as with `kind load docker-image`."""
    pull_secret: Subdomain | None = None
    """Name of a Secret in the installation's namespace."""

    @model_validator(mode="after")
    def _has_one_digest(self) -> "Image":
        if self.digest is not None and "@" in self.tag:
            raise ValueError("found a digest in tag and in digest, expected it in digest alone")
        return self


class Agent(ServedPodSettings):
    """The node agent on each GPU node."""

    strategy_type: ClassVar[str] = "apps_v1.DaemonSetUpdateStrategy"

    enabled: bool = True
    """Whether it is installed."""
    collect_interval: PositiveDuration = 1_000
    """How often GPUs are read; it costs less than 1 % of a core."""
    service_name: Subdomain | None = None
    """Name of the agents' Service, and the label `service` of their series, for HPAs that describe it, such
    as dcgm-exporter; absent: the installation's name and node-agent."""
    style: Literal["dcgm", "ack", "both"] = "dcgm"
    """`ack` and `both` add Alibaba's `DCGM_CUSTOM_*` series by process."""
    attribution: Literal["none", "allocations", "processes"] = "allocations"
    """Whose a GPU is. `none`: unknown, and the agent is no root user; `allocations`: by the kubelet, whose
    socket belongs to root; `processes`: also who uses a shared GPU, which takes the host's PID namespace."""
    device_access: Literal["runtime", "host"] = "runtime"
    """How the driver gets into the container. `runtime`: NVIDIA's container runtime brings it in, without
    privileges; `host`: from the node's file system, privileged, for nodes without that runtime, as GKE's."""
    runtime_class: Subdomain | None = None
    """Where NVIDIA's runtime is not the nodes' default, as with the GPU Operator, K3s and RKE2: `nvidia`."""
    pod_resources_path: Word = "/var/lib/kubelet/pod-resources"
    """The kubelet's folder; distributions with a root folder of their own have another."""
    custom_metrics: CountersCsv | None = None
    """Text of a counters file (CSV), as dcgm-exporter has it: the fields to read; null: the built-in list."""
    custom_metrics_config_map: KeyReference | None = None
    """A ConfigMap of yours with such a text."""
    resources: Resources = _AGENT_RESOURCES
    """Requests and limits of the container; null in place of an amount removes it."""
    tolerations: tuple[Toleration, ...] | None = _EVERY_TAINT
    """Taints of nodes that the pods may run on: all, because readings are wanted of every GPU node."""
    priority_class_name: str | None = Field(default="system-node-critical", max_length=253)
    """Which pods give way when nodes are full."""

    @model_validator(mode="after")
    def _has_one_list(self) -> "Agent":
        if self.custom_metrics is not None and self.custom_metrics_config_map is not None:
            raise ValueError("found customMetrics and customMetricsConfigMap, expected one of them")
        return self


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
    serves their queues. Who may annotate pods may then name any pod as the one that a series is of."""
    external: bool = False
    """Serves external.metrics.k8s.io too; a cluster has one server for it, and KEDA wants to be it, unless it
    is federated."""
    federate: tuple[FederatedApi, ...] = Field(default=(), max_length=8)
    """Other metrics APIs that answer what is not ours, such as KEDA. Their APIServices are taken over, and
    given back when the installation is removed."""
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
    """With `scrapePods`: annotated pods whose series may name other pods, NAMESPACE or NAMESPACE/LABEL=VALUE,
    separated by commas; absent: those of the usual GPU operators and monitoring."""
    store_size: str = Field(default="1Gi", pattern=r"^[1-9][0-9]*(Mi|Gi)$", max_length=12)
    """With `streams`: what the samples on disk may take in each pod, so that a container that is restarted
    keeps its windows; at least 16Mi."""
    remote_write_secret: Subdomain = "gpuscale-remote-write"  # noqa: S105 - its name
    """With `streams`: Secret of yours with `remote-write.yaml`, which says where to send all samples, and the
    files that it names. It need not be there."""
    remote_write_port: int = Field(default=9090, ge=1, le=65_535)
    """Port of a receiver of samples that the network policy lets pods go to, beside 443, 6443 and 8443."""
    external_name: Subdomain | None = None
    """Host on which a metrics API of yours runs instead of pods, to work on it beside a cluster."""
    port: int = Field(default=443, ge=1, le=65_535)
    """Of its Service."""
    resources: Resources = _API_RESOURCES
    """Requests and limits of the container. With `streams`, the memory limit also says how many series and
    samples are kept."""
    priority_class_name: str | None = Field(default="system-cluster-critical", max_length=253)
    """Which pods give way when nodes are full."""

    @property
    def max_series(self) -> int | None:
        """How many series the memory limit has room for; None without one."""
        return max_series(self.resources)

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


class Prometheus(ServedPodSettings):
    """Where series are kept."""

    kind: Literal["own", "operator", "plain"] = "own"
    """`own`: a small one is installed; `operator`: the Prometheus Operator's, by ServiceMonitor and
    PrometheusRule; `plain`: another, which finds the agents by their Service's annotations."""
    url: PrometheusUrl | None = None
    """Its address as pods see it; needed unless it is `own`."""
    auth: PrometheusAuth = PrometheusAuth()
    """How the metrics API proves to it who it is; not for `own`."""
    release: Word | None = None
    """Value of the label `release` that an operator's Prometheus selects monitors and rules by."""
    honor_labels: bool = True
    """Whether scraped `pod` and `namespace` stay as they are; without, they arrive as `exported_pod`."""
    scrape_interval: PositiveDuration = 15_000
    """From one scrape of an agent to the next."""
    image: Word = "quay.io/prometheus/prometheus:v3.5.0"
    """Of the installation's own; a digest may follow the tag."""
    resources: Resources = _PROMETHEUS_RESOURCES
    """Of the installation's own, as are the fields about pods: requests and limits of the container."""

    @model_validator(mode="after")
    def _reachable(self) -> "Prometheus":
        if self.kind != "own" and self.url is None:
            raise ValueError(f"found kind {self.kind} without url, expected where Prometheus is")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"found url {self.url!r}, expected http://... or https://...")
        if self.kind == "own" and self.auth != PrometheusAuth():
            raise ValueError("found auth with kind own, expected operator or plain, with a url")
        return self


class DevicePlugin(PodSettings):
    """NVIDIA's device plugin, without which a node has no `nvidia.com/gpu`."""

    enabled: bool = False
    """Whether it is installed. Managed clusters and the GPU Operator bring one."""
    strategy_type: ClassVar[str] = "apps_v1.DaemonSetUpdateStrategy"
    image: Word = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
    """A digest may follow the tag."""
    replicas: int = Field(default=1, ge=1, le=64)
    """Pods that take turns on one GPU; 1 is no sharing. Memory is not kept apart."""
    mig_strategy: Literal["none", "single", "mixed"] = "none"
    """How MIG instances are offered: not at all, as `nvidia.com/gpu`, or under names of their own."""
    tolerations: tuple[Toleration, ...] | None = _EVERY_TAINT
    """Taints of nodes that the pods may run on: all, because without the plugin a node has no GPUs."""
    priority_class_name: str | None = Field(default="system-node-critical", max_length=253)
    """Which pods give way when nodes are full."""


class Alerts(Model):
    """Alert rules, beside the recording rules."""

    enabled: bool = True
    """Whether Prometheus gets the alert rules."""
    idle: PositiveDuration = 1_800_000
    """How long a GPU may do nothing for the pod that has it."""
    node_start: PositiveDuration = 900_000
    """How long a pod may wait for a GPU: a little longer than a node takes."""
    docs_url: Word = "docs/alerts.md"
    """Where the page about alerts is for you; each alert leads to its section there."""


class Dashboards(Model):
    """Grafana's dashboards, as ConfigMaps that its sidecar loads."""

    enabled: bool = True
    """Whether the ConfigMaps are made."""
    namespace: Label | None = None
    """Where Grafana looks for them; absent: the installation's."""
    label: str = Field(default="grafana_dashboard", pattern=r"^[A-Za-z0-9][A-Za-z0-9_./-]*$")
    """Label that the sidecar selects by; its value is 1."""
    folder: str = Field(default="gpuscale", pattern=r"^[^\x00-\x1f]+$", max_length=64)
    """Folder in Grafana, where the sidecar is told to heed the annotation `grafana_folder`."""
    gpu_hour_price: float = Field(default=2.5, ge=0, le=MAX_TARGET)
    """What a GPU costs per hour; the dashboard's own variable can be changed there."""
    currency: Literal["USD", "EUR", "GBP", "JPY", "KRW", "CNY", "INR"] = "USD"
    """Of gpuHourPrice."""


class Samples(Model):
    """Workloads to try it with."""

    namespace: Label = "default"
    """Where they are made; it has to be there."""
    bert: bool = False
    """Intent detection by BERT, a Deployment and a Service."""
    vision_image: Word | None = None
    """Image of a vision API that listens on 8080; a Deployment and a Service."""
    mnist_jobs: int = Field(default=0, ge=0, le=1000)
    """Training runs on MNIST, one GPU each, all at once."""


class Taint(Model):
    """What keeps other pods off GPU nodes."""

    key: Word
    """Key of the taint."""
    value: Word
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    """What it does to pods that do not tolerate it."""


class NodePool(Model):
    """A pool of GPU nodes, rendered as the provider wants it; `install` leaves it to you."""

    name: str = Field(default="gpu", pattern=r"^[a-z][a-z0-9]*$", max_length=12)
    """AKS allows 12 lower-case letters and digits."""
    autoscaler: Literal["cluster-autoscaler", "karpenter"] = "cluster-autoscaler"
    """What adds and removes the nodes."""
    cluster: Word
    """Name of the cluster, as the provider knows it."""
    region: Word
    """Region of the cluster, or its location."""
    resource_group: Word | None = None
    """Of AKS."""
    zone: Word | None = None
    """One pool per zone keeps volumes and nodes together; absent: the provider chooses."""
    networks: tuple[Word, ...] = ()
    """Ids of the VSwitches of ACK."""
    instance_type: Word
    """Type of the machines, as the provider names it."""
    gpu: Word
    """The accelerator's name as the provider spells it, such as nvidia-l4."""
    gpus: int = Field(default=1, ge=1, le=16)
    """Per node."""
    min_nodes: int = Field(default=0, ge=0, le=1000)
    """Nodes that stay without load."""
    max_nodes: int = Field(default=8, ge=1, le=1000)
    """Nodes at most."""
    spot: bool = False
    """Whether nodes may be taken back by the provider, at a lower price."""
    disk_gib: int = Field(default=200, ge=30, le=4096)
    """GPU images have gigabytes."""

    @model_validator(mode="after")
    def _ordered(self) -> "NodePool":
        if self.min_nodes > self.max_nodes:
            text = f"found minNodes {self.min_nodes} above maxNodes {self.max_nodes}"
            raise ValueError(f"{text}, expected minNodes <= maxNodes")
        return self


class ValuesSpec(Model):
    """All that an installation is made from."""

    provider: ProviderField = default_provider()
    """Which cloud runs the cluster: labels, taints and drivers of its GPU nodes."""
    namespace: Label = "gpuscale"
    """Where the installation is; Helm takes its own --namespace instead."""
    image: Image = Image()
    image_pull_secrets: tuple[SecretName, ...] = ()
    """Secrets with credentials for registries, as `- name: NAME`, for the pods of all parts."""
    scale: tuple[Scale, ...] = ()
    jobs: tuple[ScaledJob, ...] = ()
    """Jobs that KEDA makes as there is work for them."""
    taint: Taint = Taint(key="nvidia.com/gpu", value="present")
    """Of the GPU nodes; node pools get it, and samples tolerate it."""
    agent: Agent = Agent()
    metrics_api: MetricsApi = MetricsApi()
    prometheus: Prometheus = Prometheus()
    keda: Keda = Keda()
    scaler: Scaler = Scaler()
    device_plugin: DevicePlugin = DevicePlugin()
    recording_rules: bool = True
    """The `_AVG` series."""
    alerts: Alerts = Alerts()
    dashboards: Dashboards = Dashboards()
    network_policies: bool = True
    """Whether each part gets a NetworkPolicy."""
    samples: Samples = Samples()
    node_pool: NodePool | None = None

    @property
    def has_streams(self) -> bool:
        """Whether the metrics API follows the node agents' streams."""
        return self.metrics_api.enabled and self.metrics_api.source == "streams"

    @property
    def shares_agents(self) -> bool:
        """Whether replicas of the metrics API share the node agents."""
        return self.has_streams and self.metrics_api.share_agents

    @property
    def has_own_prometheus(self) -> bool:
        """Whether a Prometheus is installed: with streams, only alerts and dashboards want one."""
        is_wanted = not self.has_streams or self.alerts.enabled or self.dashboards.enabled
        return self.prometheus.kind == "own" and is_wanted

    @property
    def asks_scaler(self) -> bool:
        """Whether KEDA asks gpuscale's scaler."""
        return bool(self.jobs) or (
            self.keda.trigger == "scaler"
            and any(each.autoscaler == "keda" and each.trigger_keys for each in self.scale)
        )

    @property
    def serves_triggers(self) -> bool:
        """Whether the metrics API serves triggers for HPAs."""
        return self.metrics_api.enabled and any(each.has_served_triggers for each in self.scale)

    @model_validator(mode="after")
    def _works_together(self) -> "ValuesSpec":
        for fault in (*self._source_faults(), *self._scale_faults(), *self._pool_faults()):
            raise ValueError(fault)
        return self

    @property
    def scrapes_pods(self) -> bool:
        return self.has_streams and self.metrics_api.scrape_pods

    def _source_faults(self) -> list[str]:
        if self.scaler.client_certificates and self.scaler.tls_secret is None:
            text = "found scaler.clientCertificates without scaler.tlsSecret"
            return [f"{text}, expected the Secret with its certificate"]
        if (self.keda.tls_secret is None) != (self.scaler.tls_secret is None):
            return ["found one of keda.tlsSecret and scaler.tlsSecret, expected both or none"]
        if self.has_streams and not self.agent.enabled:
            text = "found metricsApi.source streams with agent.enabled false"
            return [f"{text}, expected agent.enabled: true, because the streams are the agents'"]
        if self.has_streams and self.metrics_api.max_series is not None:
            least = FIXED_MIB + _LEAST_STORE_MIB
            if self.metrics_api.max_series < SERIES_PER_MIB * _LEAST_STORE_MIB:
                limit = self.metrics_api.resources["limits"]["memory"]
                text = f"found metricsApi.resources.limits.memory {limit} with source streams"
                return [f"{text}, expected at least {least}Mi, because samples are kept in memory"]
        if self.metrics_api.scrape_pods and self.metrics_api.source != "streams":
            text = "found metricsApi.scrapePods with metricsApi.source prometheus"
            return [f"{text}, expected source: streams, because a Prometheus scrapes by itself"]
        if self.metrics_api.prometheus_rules and self.metrics_api.source != "streams":
            text = "found metricsApi.prometheusRules with metricsApi.source prometheus"
            return [f"{text}, expected source: streams, because a Prometheus has rules of its own"]
        if faults := self.metrics_api.federation_faults():
            raise ValueError("; ".join(faults))
        if faults := self.metrics_api.alertmanager_faults():
            return faults
        if self.metrics_api.exporter_pods and not self.metrics_api.scrape_pods:
            text = "found metricsApi.exporterPods without metricsApi.scrapePods"
            return [f"{text}, expected scrapePods: true, because no others name pods"]
        if not self.metrics_api.enabled or not self.metrics_api.resource:
            return []
        kubelets = "because CPU and memory are the kubelets' series"
        if self.has_streams:
            text = "found metricsApi.resource with metricsApi.source streams"
            return [f"{text}, expected source: prometheus, {kubelets}"]
        if self.prometheus.kind == "own":
            text = "found metricsApi.resource with prometheus.kind own"
            return [f"{text}, expected operator or plain, {kubelets}, which it does not scrape"]
        return []

    def _scale_faults(self) -> list[str]:
        faults: list[str] = []
        seen: set[tuple[str, str]] = set()
        for index, scale in enumerate(self.scale):
            where = f"scale[{index}]"
            name = (scale.workload.namespace, scale.workload.name)
            if name in seen:
                faults.append(
                    f"found {where}.workload twice, expected each name once per namespace"
                )
            seen.add(name)
            faults += [f"found {where}: {fault}" for fault in self._faults_of(scale)]
        return [*faults, *job_set_faults(self.jobs, self.scaler)]

    def _faults_of(self, scale: Scale) -> list[str]:
        faults = []
        federated = {each.name for each in self.metrics_api.federate}
        if scale.autoscaler == "keda" and self.metrics_api.external and "keda" not in federated:
            faults.append(
                "autoscaler keda beside metricsApi.external, expected external: false, because KEDA "
                "serves external.metrics.k8s.io, or keda in metricsApi.federate"
            )
        is_served = self.metrics_api.enabled and self.metrics_api.external
        faults += trigger_faults(scale, self.keda, self.scaler, is_served=is_served)
        has_means = any(each.metric == "object" for each in scale.signal_metrics)
        if has_means and not self.recording_rules:
            faults.append("metric object without recordingRules, expected recordingRules: true")
        if asks_prometheus(scale, self.keda) and self._has_no_prometheus():
            text = "autoscaler keda without a Prometheus"
            faults.append(f"{text}, expected alerts or dashboards to be on, or prometheus.url")
        if scale.signal_metrics and self.agent.enabled and self.agent.attribution == "none":
            faults.append("agent.attribution none, expected one that ties GPUs to pods")
        for name, signal in zip(scale.signal_names, scale.signals, strict=True):
            wrong_style = "dcgm" if signal.is_alibabas else "ack"
            if self.agent.enabled and self.agent.style == wrong_style:
                text = f"signal {name} with agent.style {wrong_style}"
                faults.append(f"{text}, expected another style, or both")
            if self.agent.enabled and signal.of_processes and self.agent.attribution != "processes":
                faults.append(f"signal {name}, expected agent.attribution: processes")
        return faults

    def _has_no_prometheus(self) -> bool:
        return self.prometheus.kind == "own" and not self.has_own_prometheus

    def _pool_faults(self) -> Sequence[str]:
        pool = self.node_pool
        if pool is None:
            return []
        provider = self.provider
        if provider.pool_files is None:
            able = either(*(each.name for each in BUILT_IN if each.pool_files))
            return [f"found nodePool with provider {provider.name}, expected {able}"]
        if pool.autoscaler == "karpenter" and provider.karpenter is None:
            able = either(*(each.name for each in BUILT_IN if each.karpenter))
            return [f"found karpenter on {provider.name}, expected {able}"]
        return provider.pool_faults(self.pool(pool))

    def pool(self, pool: NodePool) -> Pool:
        """Return a node pool as its provider makes it."""
        return Pool(
            name=pool.name,
            cluster=pool.cluster,
            region=pool.region,
            resource_group=pool.resource_group,
            zone=pool.zone,
            networks=pool.networks,
            instance_type=pool.instance_type,
            gpu=pool.gpu,
            gpus=pool.gpus,
            min_nodes=pool.min_nodes,
            max_nodes=pool.max_nodes,
            spot=pool.spot,
            disk_gib=pool.disk_gib,
            taint=nodes.Taint(self.taint.key, self.taint.value, self.taint.effect),
            slices=self.device_plugin.replicas,
            has_own_plugin=self.device_plugin.enabled,
        )


class Values(Model):
    """A values file."""

    api_version: Literal["gpuscale.dev/v1alpha1"] = "gpuscale.dev/v1alpha1"
    """Version of this format."""
    kind: Literal["Values"] = "Values"
    """What the file is."""
    metadata: Metadata = Metadata()
    spec: ValuesSpec


def parse_values(text: str, source: str) -> Values:
    """Return what a values file says.

    Raises:
        ConfigError: not one YAML document, or fields that are missing, unknown or wrong; all of them.
    """
    return parse_file(Values, text, source)[0]
