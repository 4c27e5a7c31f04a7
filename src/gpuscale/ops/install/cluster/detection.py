"""What a cluster already has that an installation must fit in with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from gpuscale.base.objects.gpu_resources import gpu_kind, has_fraction
from gpuscale.kube.client import KubeClient
from gpuscale.ops.install.cluster.kinds import NODES, STATEFUL_SETS, kind_named
from gpuscale.ops.install.cluster.ownership import owner
from gpuscale.ops.install.scale.scale import HpaVersion
from gpuscale.ops.providers import Provider, every

TEAM_RULES = "gpuscale.dev/rules=true"
"""Labels that teams' ConfigMaps with rules have by custom."""
_OPERATED = "operated-prometheus"
_PROMETHEUS_PORTS = (9090, 80)
_DAEMON_SETS, _DEPLOYMENTS, _CONFIG_MAPS = map(kind_named, ("DaemonSet", "Deployment", "ConfigMap"))
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"


@dataclass(frozen=True, slots=True)
class FoundPrometheus:
    """A Prometheus, and how its scrape targets are configured."""

    is_operated: bool
    url: str
    release: str | None = None
    """Value of the label `release` by which it selects monitors; None where it takes any."""


@dataclass(frozen=True, slots=True)
class FoundWorkload:
    """A workload whose pods request GPUs."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Detected:
    """The detected parts of a cluster. Names are `namespace/name`."""

    is_known: bool = False
    """Whether a cluster was looked at; else what is missing here may well be there."""
    provider: Provider | None = None
    hpa_version: HpaVersion | None = None
    """The newest that the cluster serves."""
    prometheus: FoundPrometheus | None = None
    dcgm_exporter: str | None = None
    device_plugin: str | None = None
    has_gpu_operator: bool = False
    has_keda: bool = False
    runtime_class: str | None = None
    """`nvidia`, where the cluster has a class of that name."""
    custom_metrics_by: str | None = None
    """Service that serves custom.metrics.k8s.io, where that is somebody else's."""
    external_metrics_by: str | None = None
    resource_metrics_by: str | None = None
    has_team_rules: bool = False
    """Whether ConfigMaps have the labels `TEAM_RULES`."""
    workloads: tuple[FoundWorkload, ...] = ()


async def detect(client: KubeClient) -> Detected:
    """Return what the cluster already has.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    daemon_sets = await _items(client, _DAEMON_SETS.everywhere)
    services = {each["metadata"]["name"]: each for each in await _items(client, _API_SERVICES)}
    return Detected(
        is_known=True,
        provider=_provider(await _items(client, NODES.everywhere)),
        hpa_version=await _hpa_version(client),
        prometheus=await _prometheus(client),
        dcgm_exporter=_first(daemon_sets, "dcgm-exporter"),
        device_plugin=_first(daemon_sets, "k8s-device-plugin", "nvidia-device-plugin"),
        has_gpu_operator=await client.find("/apis/nvidia.com/v1") is not None,
        has_keda=await client.find("/apis/keda.sh/v1alpha1") is not None,
        runtime_class=await _runtime_class(client),
        custom_metrics_by=_server(services, "custom.metrics.k8s.io"),
        external_metrics_by=_server(services, "external.metrics.k8s.io"),
        resource_metrics_by=_server(services, ".metrics.k8s.io"),
        has_team_rules=bool(await _items(client, _CONFIG_MAPS.everywhere, TEAM_RULES)),
        workloads=await _workloads(client),
    )


async def _items(
    client: KubeClient, path: str, selector: str | None = None
) -> Sequence[Mapping[str, Any]]:
    listed = await client.get(path, {"labelSelector": selector} if selector else None)
    items: Sequence[Mapping[str, Any]] = listed.get("items") or []
    return items


def _provider(nodes: Sequence[Mapping[str, Any]]) -> Provider | None:
    known = every()
    for node in nodes:
        identity = node["spec"].get("providerID", "")
        labels = node["metadata"].get("labels", {})
        for provider in known:
            if provider.runs(identity, labels):
                return provider
    return None


async def _hpa_version(client: KubeClient) -> HpaVersion | None:
    group = await client.find("/apis/autoscaling") or {}
    served = {each["groupVersion"] for each in group.get("versions", [])}
    return next((each for each in get_args(HpaVersion) if each in served), None)


async def _prometheus(client: KubeClient) -> FoundPrometheus | None:
    path = "/apis/monitoring.coreos.com/v1/prometheuses"
    if await client.find(path) is not None:
        for body in await _items(client, path):
            metadata, spec = body["metadata"], body["spec"]
            selector = spec.get("serviceMonitorSelector") or {}
            release = selector.get("matchLabels", {}).get("release")
            url = f"http://prometheus-operated.{metadata['namespace']}.svc:9090"
            return FoundPrometheus(is_operated=True, url=url, release=release)
    for selector in ("app.kubernetes.io/name=prometheus", "app=prometheus"):
        for service in await _items(client, "/api/v1/services", selector):
            port = _prometheus_port(service)
            if port is not None and owner(service) is None:
                metadata = service["metadata"]
                url = f"http://{metadata['name']}.{metadata['namespace']}.svc:{port}"
                return FoundPrometheus(is_operated=False, url=url)
    return None


def _prometheus_port(service: Mapping[str, Any]) -> int | None:
    if _OPERATED in service["metadata"].get("labels", {}):
        return None
    ports = [each["port"] for each in service["spec"].get("ports", [])]
    return next((port for port in _PROMETHEUS_PORTS if port in ports), None)


def _first(bodies: Sequence[Mapping[str, Any]], *names: str) -> str | None:
    """Return the first foreign DaemonSet with one of these names in its own name or an image's."""
    for body in bodies:
        metadata = body["metadata"]
        containers = body["spec"]["template"]["spec"]["containers"]
        texts = [metadata["name"], *(each.get("image", "") for each in containers)]
        if owner(body) is None and any(name in text for name in names for text in texts):
            return f"{metadata['namespace']}/{metadata['name']}"
    return None


async def _runtime_class(client: KubeClient) -> str | None:
    found = await client.find("/apis/node.k8s.io/v1/runtimeclasses/nvidia")
    return None if found is None else "nvidia"


def _server(services: Mapping[str, Mapping[str, Any]], group: str) -> str | None:
    """Return the Service behind an API group; a group that starts with a dot matches as a suffix."""
    for name, body in services.items():
        _, _, rest = name.partition(".")
        service = body["spec"].get("service")
        if rest == group.removeprefix(".") and service and owner(body) is None:
            return f"{service['namespace']}/{service['name']}"
    return None


async def _workloads(client: KubeClient) -> tuple[FoundWorkload, ...]:
    found = []
    for kind, path in (
        ("Deployment", _DEPLOYMENTS.everywhere),
        ("StatefulSet", STATEFUL_SETS.everywhere),
    ):
        for body in await _items(client, path):
            if _asks_for_gpus(body["spec"]["template"]):
                metadata = body["metadata"]
                found.append(FoundWorkload(kind, metadata["namespace"], metadata["name"]))
    return tuple(found)


def _asks_for_gpus(template: Mapping[str, Any]) -> bool:
    metadata = template.get("metadata") or {}
    if has_fraction(metadata.get("annotations") or {}, metadata.get("labels") or {}):
        return True
    containers = template["spec"]["containers"]
    limits = [each.get("resources", {}).get("limits", {}) for each in containers]
    return any(gpu_kind(name) is not None for names in limits for name in names)
