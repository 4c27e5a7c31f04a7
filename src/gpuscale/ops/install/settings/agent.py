"""The node agent and the device plugin: what runs on each GPU node."""

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from gpuscale.base.documents.models import Model, PositiveDuration
from gpuscale.ops.install.fields import CountersCsv, StartupKey, Word
from gpuscale.ops.install.part_settings import AgentSettings
from gpuscale.ops.install.pods import Object, PodSettings, Resources, ServedPodSettings, Toleration
from gpuscale.ops.install.prometheus_auth import KeyReference
from gpuscale.ops.install.scale.scale import Subdomain

_EVERY_TAINT: tuple[Object, ...] = ({"operator": "Exists"},)
_RESOURCES: Object = {
    # A CPU limit would delay scrapes without saving anything.
    "requests": {"cpu": "20m", "memory": "96Mi"},
    "limits": {"memory": "256Mi"},
}


class AgentTls(Model):
    """TLS of the node agents, by a certificate of yours."""

    secret: Subdomain | None = None
    """Secret with `tls.crt`, `tls.key` and `ca.crt`, as cert-manager makes it; agents are then reached by
    HTTPS alone. A renewed certificate is shown without a restart."""
    server_name: Subdomain | None = None
    """Name in the certificate, which those who scrape check; absent: SERVICE.NAMESPACE.svc of the agents."""


class AgentBasicAuth(Model):
    """Users of the node agents; with `tls`."""

    users_secret: Subdomain | None = None
    """Secret whose keys are users, and whose values are bcrypt hashes of their passwords: agents take these
    users alone. Changes are followed."""
    client_secret: Subdomain | None = None
    """Secret with `username` and `password` of one of them (of type kubernetes.io/basic-auth), for those who
    scrape."""


class Agent(ServedPodSettings):
    """The node agent on each GPU node."""

    strategy_type: ClassVar[str] = "apps_v1.DaemonSetUpdateStrategy"

    enabled: bool = True
    """Whether it is installed."""
    image: Word | None = None
    """Image with the node agent alone, from `make image TARGET=agent`; null: `image`, whose `pullPolicy` and
    `pullSecret` count in either case."""
    collect_interval: PositiveDuration = 1_000
    """How often GPUs are read; it costs less than 1 % of a core."""
    service_name: Subdomain | None = None
    """Name of the agents' Service, and the label `service` of their series, for HPAs that describe it, such
    as dcgm-exporter; absent: the installation's name and node-agent."""
    style: Literal["dcgm", "ack", "both"] = "dcgm"
    """`ack` and `both` add Alibaba's `DCGM_CUSTOM_*` series by process."""
    attribution: Literal["none", "allocations", "processes"] = "allocations"
    """Whose a GPU is. `none`: unknown, and the agent is no root user; `allocations`: by the kubelet, whose
    socket belongs to root; `processes`: also who uses a shared GPU, which takes the host's PID namespace and
    reading pods from the API server."""
    device_access: Literal["runtime", "host"] = "runtime"
    """How the driver gets into the container. `runtime`: NVIDIA's container runtime brings it in, without
    privileges; `host`: from the node's file system, privileged, for nodes without that runtime, as GKE's."""
    runtime_class: Subdomain | None = None
    """Where NVIDIA's runtime is not the nodes' default, as with the GPU Operator, K3s and RKE2: `nvidia`."""
    pod_resources_path: Word = "/var/lib/kubelet/pod-resources"
    """The kubelet's folder; distributions with a root folder of their own have another."""
    ready_taint: StartupKey | None = None
    """Key of a start-up taint that `nodePool` gives new nodes, and that the agent takes off its node, once,
    when every GPU answers and Kubernetes has GPUs of it to give, such as
    startup-taint.cluster-autoscaler.kubernetes.io/gpuscale; null: none."""
    azure_metrics: bool = False
    """Whether `/metrics/azure`, Container Insights' seven metrics, is scraped too: by Prometheus, and with
    `streams` also by the metrics API, which sends it on."""
    tls: AgentTls = AgentTls()
    basic_auth: AgentBasicAuth = AgentBasicAuth()
    custom_metrics: CountersCsv | None = None
    """Text of a counters file (CSV), as dcgm-exporter has it: the fields to read; null: the built-in list."""
    custom_metrics_config_map: KeyReference | None = None
    """A ConfigMap of yours with such a text."""
    settings: AgentSettings = {}
    """Further settings, by the keys of the page on settings, such as `readings: {streamInterval: 100ms}`;
    without those that the installation sets itself."""
    resources: Resources = _RESOURCES
    """Requests and limits of the container; null in place of an amount removes it."""
    tolerations: tuple[Toleration, ...] | None = _EVERY_TAINT
    """Taints of nodes that the pods may run on: all, because readings are wanted of every GPU node."""
    priority_class_name: str | None = Field(default="system-node-critical", max_length=253)
    """Which pods give way when nodes are full."""

    @model_validator(mode="after")
    def _has_one_list(self) -> "Agent":
        if self.custom_metrics is not None and self.custom_metrics_config_map is not None:
            raise ValueError("found customMetrics and customMetricsConfigMap, expected one of them")
        users = self.basic_auth
        if (users.users_secret is None) != (users.client_secret is None):
            text = "found one of basicAuth.usersSecret and basicAuth.clientSecret"
            raise ValueError(f"{text}, expected both or none")
        if users.users_secret is not None and self.tls.secret is None:
            text = "found basicAuth without tls.secret, expected the Secret with a certificate"
            raise ValueError(f"{text}: without TLS everyone on the way could read the password")
        if self.tls.server_name is not None and self.tls.secret is None:
            raise ValueError("found tls.serverName without tls.secret, expected both")
        if self.azure_metrics and self.attribution == "none":
            text = "found azureMetrics with attribution none"
            raise ValueError(
                f"{text}, expected one that ties GPUs to pods, because they are of containers"
            )
        kubernetes = self.settings.get("kubernetes") or {}
        has_labels = kubernetes.get("enablePodLabels") not in (None, False, "false")
        if has_labels and self.attribution != "processes":
            text = f"found settings.kubernetes.enablePodLabels with attribution {self.attribution}"
            raise ValueError(
                f"{text}, expected processes, because labels come from the API server, which only these ask"
            )
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
