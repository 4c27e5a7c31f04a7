"""A calibrated workload on a cluster: its only replica, and the metrics of its HPA.

Nothing is changed: what has to be another way is said, with the command for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from gpuscale.base.errors import (
    ConfigError,
    GpuscaleError,
    NotFoundError,
    UsageError,
)
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler, PodsMetric
from gpuscale.base.objects.manifests import read_stored_hpa
from gpuscale.base.objects.metric_values import items_of, read_pod_values
from gpuscale.base.objects.selectors import Selector, selector_of_expressions
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import JsonObject, KubeClient, KubeSettings
from gpuscale.ops.observe import find_hpas, list_all, name_of

_API = "/apis/custom.metrics.k8s.io/v1beta2"


@dataclass(frozen=True, slots=True)
class Replica:
    """The one replica of a workload."""

    namespace: str
    workload: str
    pod: str
    url: str
    """Of its first port; empty where it names none. It is reached from inside the cluster only."""
    hpa: HorizontalPodAutoscaler | None
    metrics: tuple[str, ...]
    """Pods metrics of its HPA."""


async def find_replica(settings: KubeSettings, namespace: str, name: str) -> Replica:
    """Return the replica of a Deployment.

    Raises:
        NotFoundError: there is no such Deployment.
        UsageError: it has more or fewer ready replicas than one, or an HPA would change that; all of it.
        UnavailableError, UpstreamError: the cluster can't be asked.
    """
    async with KubeClient(settings) as client:
        await client.check_ready()
        found = await client.find(
            f"/apis/apps/v1/namespaces/{namespace}/deployments/{quote(name, safe='')}"
        )
        if found is None:
            raise NotFoundError(f"deployment/{name}: not found in namespace {namespace}")
        spec, status = mapping_of(found.get("spec")), mapping_of(found.get("status"))
        hpa = await _hpa_of(client, namespace, name)
        faults = list(_faults(namespace, name, spec, status, hpa))
        if faults:
            raise UsageError("\n".join(faults))
        selector = str(_selector_of(mapping_of(spec.get("selector"))))
        pods = [
            each
            for each in await list_all(
                client, f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": selector}
            )
            if _is_ready(each)
        ]
        if len(pods) != 1:
            raise UsageError(
                f"deployment/{name}: found {len(pods)} ready pods with its labels, expected "
                f"one: pods of another workload?"
            )
        metrics = (
            tuple(each.name for each in hpa.metrics if isinstance(each, PodsMetric)) if hpa else ()
        )
        return Replica(namespace, name, name_of(pods[0]), _url_of(pods[0]), hpa, metrics)


def _selector_of(body: Mapping[str, object]) -> Selector:
    labels, expressions = mapping_of(body.get("matchLabels")), body.get("matchExpressions")
    found = []
    for each in map(mapping_of, expressions if isinstance(expressions, list) else ()):
        values = each.get("values")
        texts = tuple(map(str, values)) if isinstance(values, list) else ()
        found.append((text_of(each.get("key")), text_of(each.get("operator")), texts))
    return selector_of_expressions(
        {key: text_of(value) for key, value in labels.items()}, tuple(found)
    )


async def _hpa_of(client: KubeClient, namespace: str, name: str) -> HorizontalPodAutoscaler | None:
    try:
        bodies = await find_hpas(client, namespace)
    except NotFoundError:
        return None
    for body in bodies:
        try:
            hpa = read_stored_hpa(body, f"hpa/{name_of(body)}")
        except ConfigError:
            continue  # the controller can't use it either
        if (hpa.target.kind, hpa.target.name) == ("Deployment", name):
            return hpa
    return None


def _faults(
    namespace: str,
    name: str,
    spec: Mapping[str, object],
    status: Mapping[str, object],
    hpa: HorizontalPodAutoscaler | None,
) -> Sequence[str]:
    faults = []
    ready = status.get("readyReplicas", 0)
    if spec.get("replicas", 1) != 1 or ready != 1:
        faults.append(
            f"deployment/{name}: found {spec.get('replicas', 1)} replicas, {ready} ready, "
            f"expected one of one: "
            f"kubectl scale -n {namespace} deployment/{name} --replicas=1"
        )
    if hpa is not None and hpa.max_replicas > 1:
        patch = '{"spec":{"minReplicas":1,"maxReplicas":1}}'
        back = (
            f'{{"spec":{{"minReplicas":{hpa.min_replicas or 1},"maxReplicas":{hpa.max_replicas}}}}}'
        )
        command = f"kubectl patch -n {namespace} hpa {hpa.metadata.name} -p"
        faults.append(
            f"hpa/{hpa.metadata.name}: found maxReplicas {hpa.max_replicas}: it would add "
            f"replicas meanwhile; before: "
            f"{command} '{patch}', and after: {command} '{back}'"
        )
    return faults


def _is_ready(pod: Mapping[str, object]) -> bool:
    conditions = mapping_of(pod.get("status")).get("conditions")
    return isinstance(conditions, list) and any(
        mapping_of(each).get("type") == "Ready" and mapping_of(each).get("status") == "True"
        for each in conditions
    )


def _url_of(pod: JsonObject) -> str:
    address = text_of(mapping_of(pod.get("status")).get("podIP"))
    containers = mapping_of(pod.get("spec")).get("containers")
    for container in containers if isinstance(containers, list) else []:
        ports = mapping_of(container).get("ports")
        for port in ports if isinstance(ports, list) else []:
            number = mapping_of(port).get("containerPort")
            if address and isinstance(number, int):
                host = f"[{address}]" if ":" in address else address
                return f"http://{host}:{number}/"
    return ""


class ClusterReader:
    """Reads the replica's metrics from the metrics API, as the HPA sees them.

    Args:
        settings: of the cluster.
        replica: whose.
    """

    def __init__(self, settings: KubeSettings, replica: Replica) -> None:
        self.problem = ""
        self._replica = replica
        self._client = KubeClient(settings)

    async def close(self) -> None:
        """Close the connection."""
        await self._client.close()

    async def read(self) -> Mapping[str, float]:
        """Return the value of each of the HPA's Pods metrics that has one now."""
        self.problem = ""
        replica, found = self._replica, {}
        pod = quote(replica.pod, safe="")
        for metric in replica.metrics:
            path = f"{_API}/namespaces/{replica.namespace}/pods/{pod}/{quote(metric, safe='')}"
            try:
                values = read_pod_values(items_of(await self._client.get(path)))
            except (GpuscaleError, ValueError) as error:
                self.problem = f"{metric}: {error}"
                continue
            if values:
                found[metric] = values[0].value_milli / 1000
        return found
