"""The values file: all that an installation is made from.

It is small on purpose: what to scale, on which signal, between which limits, on which provider, and a switch
for each part. The same file is the values of the Helm chart. `gpuscale schema values` prints its JSON schema.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import model_validator

from gpuscale.base.documents.models import Model, parse_file
from gpuscale.base.objects import taints
from gpuscale.base.objects.taints import STARTUP_PREFIX, Toleration, untolerated
from gpuscale.ops.install.pods import SecretName
from gpuscale.ops.install.scale.jobs import ScaledJob
from gpuscale.ops.install.scale.keda import (
    Keda,
    Scaler,
    asks_azure,
    asks_prometheus,
    job_set_faults,
    trigger_faults,
)
from gpuscale.ops.install.scale.scale import Label, Scale
from gpuscale.ops.install.settings.agent import Agent, DevicePlugin
from gpuscale.ops.install.settings.identity import Image, Metadata
from gpuscale.ops.install.settings.metrics_api import MetricsApi
from gpuscale.ops.install.settings.observing import Alerts, Dashboards
from gpuscale.ops.install.settings.prometheus import Prometheus
from gpuscale.ops.install.settings.workloads import NodePool, Samples, Taint
from gpuscale.ops.providers import BUILT_IN, Pool, either
from gpuscale.ops.providers.field import ProviderField, default_provider


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
    def has_own_prometheus(self) -> bool:
        """Whether a Prometheus is installed: with streams, only alerts and dashboards want one."""
        is_wanted = not self.has_streams or self.alerts.enabled or self.dashboards.enabled
        return self.prometheus.kind == "own" and is_wanted

    @property
    def keda_identity(self) -> str | None:
        """Who KEDA is to an Azure Monitor workspace: its own identity, or that of all who ask."""
        return self.keda.azure_identity or self.prometheus.identity

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
        for fault in (
            *self._source_faults(),
            *self._scale_faults(),
            *self._pool_faults(),
            *self._ready_taint_faults(),
        ):
            raise ValueError(fault)
        api = self.metrics_api
        if api.external and not (self.serves_triggers or api.has_external_metrics):
            raise ValueError(
                "found metricsApi.external with nothing to serve, expected externalRules in "
                "metricsApi.rules, a wake or a query of a scale, metricsApi.rulesConfigMaps, or a federated "
                "server of external metrics: without any the API is not served, and who has it now loses it"
            )
        return self

    @property
    def scrapes_pods(self) -> bool:
        return self.has_streams and self.metrics_api.scrapes_pods

    def _source_faults(self) -> list[str]:
        if self.scaler.client_certificates and self.scaler.tls_secret is None:
            text = "found scaler.clientCertificates without scaler.tlsSecret"
            return [f"{text}, expected the Secret with its certificate"]
        if (self.keda.tls_secret is None) != (self.scaler.tls_secret is None):
            return ["found one of keda.tlsSecret and scaler.tlsSecret, expected both or none"]
        if self.has_streams and not self.agent.enabled:
            text = "found metricsApi.source streams with agent.enabled false"
            return [f"{text}, expected agent.enabled: true, because the streams are the agents'"]
        if self.prometheus.kind == "azure" and self.agent.enabled and self.agent.tls.secret:
            text = "found agent.tls with prometheus.kind azure, expected another kind"
            return [f"{text}: AKS' managed Prometheus does not get Secrets of this namespace"]
        if faults := [*self.metrics_api.source_faults(), *self._idle_settings()]:
            return faults
        if faults := self.metrics_api.federation_faults():
            raise ValueError("; ".join(faults))
        if faults := self.metrics_api.alertmanager_faults():
            return faults
        if not self.metrics_api.enabled or not self.metrics_api.resource:
            return []
        kubelets = "because CPU and memory are the kubelets' series"
        if self.has_streams:
            text = "found metricsApi.resource with metricsApi.source streams"
            return [f"{text}, expected source: prometheus, {kubelets}"]
        if self.prometheus.kind == "own":
            text = "found metricsApi.resource with prometheus.kind own"
            return [
                f"{text}, expected operator, plain or azure, {kubelets}, which it does not scrape"
            ]
        return []

    def _idle_settings(self) -> Iterator[str]:
        """Yield source settings that the chosen server doesn't have."""
        of_scaler = "streams" if self.has_streams else "prometheus"
        for name, settings, source in (
            ("metricsApi", self.metrics_api.settings, self.metrics_api.source),
            ("scaler", self.scaler.settings, of_scaler),
        ):
            other = "prometheus" if source == "streams" else "streams"
            if settings.get(other):
                text = f"found {name}.settings.{other} with values from {source}"
                yield f"{text}, expected {name}.settings.{source}, because the others are not read"

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
        sets = {
            (scale.workload.namespace, scale.workload.name)
            for scale in self.scale
            if scale.workload.kind == "StatefulSet"
        }
        faults += [
            f"found {each.namespace}/{each.workload} in metricsApi.idleFirst, expected a Deployment: a "
            "StatefulSet always loses its highest ordinal"
            for each in self.metrics_api.idle_first
            if (each.namespace, each.workload) in sets
        ]
        asks = self.keda.trigger == "prometheus" or any(asks_azure(each) for each in self.scale)
        if self.keda.azure_identity is not None and not asks:
            text = "found keda.azureIdentity with keda.trigger scaler, expected trigger: prometheus"
            faults.append(f"{text}, or a metric of type AzureMonitor: KEDA asks Azure itself")
        combined = dict.fromkeys(each for scale in self.scale for each in scale.combined_metrics)
        names = [each.combined for each in combined]
        faults += [
            f"found combined {name} with other parts or another target, expected another name for these"
            for name in dict.fromkeys(name for name in names if names.count(name) > 1)
        ]
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
        if asks_azure(scale) and self.keda_identity is None:
            faults.append(
                "metrics of type AzureMonitor without keda.azureIdentity, expected its client id"
            )
        faults += self._combined_faults(scale)
        has_means = any(each.metric == "object" for each in scale.signal_metrics)
        if has_means and not self.recording_rules:
            faults.append("metric object without recordingRules, expected recordingRules: true")
        if asks_prometheus(scale, self.keda) and self._has_no_prometheus():
            text = "autoscaler keda without a Prometheus"
            faults.append(f"{text}, expected alerts or dashboards to be on, or prometheus.url")
        has_gpus = any(each.is_of_gpus for each in scale.signals)
        if has_gpus and self.agent.enabled and self.agent.attribution == "none":
            faults.append("agent.attribution none, expected one that ties GPUs to pods")
        for name, signal in zip(scale.signal_names, scale.signals, strict=True):
            if not signal.is_of_gpus:
                continue
            wrong_style = "dcgm" if signal.is_alibabas else "ack"
            if self.agent.enabled and self.agent.style == wrong_style:
                text = f"signal {name} with agent.style {wrong_style}"
                faults.append(f"{text}, expected another style, or both")
            if self.agent.enabled and signal.of_processes and self.agent.attribution != "processes":
                faults.append(f"signal {name}, expected agent.attribution: processes")
        return faults

    def _combined_faults(self, scale: Scale) -> list[str]:
        faults = []
        has_labels = self.has_streams or self.prometheus.honor_labels
        for each in scale.combined_metrics:
            what = f"combined {each.combined}"
            if scale.autoscaler == "hpa" and not self.metrics_api.enabled:
                text = f"{what} without metricsApi, expected metricsApi.enabled: true"
                faults.append(f"{text}, because no other metrics API has such rules")
            if any(part.source.is_of_gpus for part in each.parts) and not has_labels:
                text = f"{what} of GPUs without prometheus.honorLabels"
                faults.append(
                    f"{text}, expected honorLabels: true, for all parts to have one label"
                )
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
        key = self.agent.ready_taint
        knows = provider.takes_startup_taints or pool.autoscaler == "karpenter"
        if key and not knows and not key.startswith(STARTUP_PREFIX):
            return [
                f"found agent.readyTaint {key} with a nodePool on {provider.name}, expected a key that "
                f"begins with {STARTUP_PREFIX}: its autoscaler takes others for taints that stay"
            ]
        return provider.pool_faults(self.pool(pool))

    def _ready_taint_faults(self) -> Iterator[str]:
        """Yield which of the parts that the taint's going waits for would be kept off by it."""
        key = self.agent.ready_taint
        if key is None or not self.agent.enabled:
            return
        for name, part in (("agent", self.agent), ("devicePlugin", self.device_plugin)):
            given = [
                Toleration(
                    each.get("key", ""),
                    each.get("operator", "Equal"),
                    each.get("value", ""),
                    each.get("effect", ""),
                )
                for each in part.tolerations or ()
            ]
            if part.enabled and untolerated((taints.Taint(key, "true"),), given) is not None:
                yield f"found {name}.tolerations without agent.readyTaint, expected one for {key} too"

    def pool(self, pool: NodePool) -> Pool:
        """Return a node pool as its provider makes it."""
        ready = self.agent.ready_taint
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
            taint=taints.Taint(self.taint.key, self.taint.value, self.taint.effect),
            slices=self.device_plugin.replicas,
            has_own_plugin=self.device_plugin.enabled,
            ready_taint=taints.Taint(ready, "true") if ready and self.agent.enabled else None,
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
    """Parse a values file.

    Raises:
        ConfigError: not one YAML document, or fields that are missing, unknown or wrong; all of them.
    """
    return parse_file(Values, text, source)[0]
