"""One look at a cluster: everything that is judged, fetched with reads alone.

What can't be read is part of the result, with the reason: a doctor without rights to one thing still looks
at the others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.core.clock import Clock
from gpuscale.core.errors import GpuscaleError
from gpuscale.doctor import facts
from gpuscale.doctor.agents import AgentReader
from gpuscale.doctor.autoscalers import HpaReader, custom_path
from gpuscale.doctor.prometheus import PrometheusReader
from gpuscale.doctor.snapshot import Look, Snapshot
from gpuscale.kube.client.client import JsonObject, KubeClient
from gpuscale.kube.client.errors import ApiStatusError
from gpuscale.metricsapi.wire.paths import CUSTOM_GROUP, EXTERNAL_GROUP
from gpuscale.objects.fields import Fields


@dataclass(frozen=True, slots=True)
class Listed:
    """One kind."""

    plural: str
    path: str
    needs: str
    """As `--resource` of kubectl create clusterrole names it."""
    field_selector: str = ""


KINDS = (
    Listed("nodes", "/api/v1/nodes", "nodes"),
    Listed("pods", "/api/v1/pods", "pods"),
    Listed("services", "/api/v1/services", "services"),
    Listed("daemonsets", "/apis/apps/v1/daemonsets", "daemonsets.apps"),
    Listed("deployments", "/apis/apps/v1/deployments", "deployments.apps"),
    Listed("statefulsets", "/apis/apps/v1/statefulsets", "statefulsets.apps"),
    Listed("resourcequotas", "/api/v1/resourcequotas", "resourcequotas"),
    Listed(
        "apiservices",
        "/apis/apiregistration.k8s.io/v1/apiservices",
        "apiservices.apiregistration.k8s.io",
    ),
    Listed(
        "hpas",
        "/apis/autoscaling/v2/horizontalpodautoscalers",
        "horizontalpodautoscalers.autoscaling",
    ),
    Listed("events", "/api/v1/events", "events", "reason=NotTriggerScaleUp"),
    Listed(
        "autoscaler-status",
        "/api/v1/namespaces/kube-system/configmaps",
        "configmaps",
        "metadata.name=cluster-autoscaler-status",
    ),
    Listed("nodepools", "/apis/karpenter.sh/v1/nodepools", "nodepools.karpenter.sh"),
    Listed("scaledobjects", "/apis/keda.sh/v1alpha1/scaledobjects", "scaledobjects.keda.sh"),
    Listed(
        "servicemonitors",
        "/apis/monitoring.coreos.com/v1/servicemonitors",
        "servicemonitors.monitoring.coreos.com",
    ),
)
"""What a cluster does not have, such as Karpenter's kinds, counts as empty."""


_PAGE = "500"
_NOT_FOUND = 404
_FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class GatherSettings:
    """What to look at, and ways past the API server."""

    namespace: str | None = None
    """Whose HPAs are looked at; None for all."""
    prometheus_url: str | None = None
    """None: found by the metrics server's flags, and asked by way of the API server."""
    agent_urls: Mapping[str, str] = field(default_factory=dict)
    """By node; others are asked by way of the API server."""


class Gatherer:
    """Looks at a cluster.

    Args:
        client: to the API server.
        clock: for ages.
        settings: what to look at.
        report: gets what is looked at now, as it takes a while on a large cluster.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        settings: GatherSettings,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._settings = settings
        self._report = report

    async def snapshot(self) -> Snapshot:
        """Return what there is to see.

        Raises:
            ApiUnreachableError: the API server does not answer, or is not ready.
            ApiStatusError: it does not accept us, or lets us see nothing at all.
        """
        await self._client.check_ready()
        autoscaling = await self._client.get("/apis/autoscaling")
        versions = [each["groupVersion"] for each in autoscaling.get("versions") or ()]
        looks = {}
        for kind in KINDS:
            self._report(f"looking at {kind.plural}")
            looks[kind.plural] = await self._list(kind)
        if all(look.fault for look in looks.values()):
            fault = looks[KINDS[0].plural].fault
            raise ApiStatusError(
                _FORBIDDEN,
                f"{fault}; nor may it see anything else: give it the role in docs/doctor.md",
            )
        seen = Snapshot(self._clock.now_ms(), versions, looks)
        agents = AgentReader(self._client, self._settings.agent_urls)
        prometheus = PrometheusReader(self._client, self._settings.prometheus_url)
        hpas = HpaReader(self._client, custom_path(seen), self._settings.namespace)
        self._report(f"asking the node agents of {len(list(seen.all('nodes')))} nodes")
        seen_by_agents = await agents.read(seen)
        self._report("asking Prometheus")
        seen_by_prometheus = await prometheus.read(seen, self._clock.now_ms())
        self._report("asking what serves the metrics")
        served, bundles = await self._discovered(seen), await self._bundles(seen)
        self._report("following the HPAs' metrics")
        return Snapshot(
            now_ms=seen.now_ms,
            hpa_versions=versions,
            looks=looks,
            agents=seen_by_agents,
            prometheus=seen_by_prometheus,
            served=served,
            bundles=bundles,
            hpas=await hpas.read(seen),
            rule_maps=await self._rule_maps(seen),
        )

    async def _list(self, kind: Listed) -> Look:
        params = {"limit": _PAGE}
        if kind.field_selector:
            params["fieldSelector"] = kind.field_selector
        items: list[JsonObject] = []
        try:
            while True:
                page = await self._client.get(kind.path, params)
                items.extend(each for each in page.get("items") or () if isinstance(each, dict))
                params["continue"] = str((page.get("metadata") or {}).get("continue") or "")
                if not params["continue"]:
                    return Look(items)
        except ApiStatusError as error:
            if error.code == _NOT_FOUND:
                return Look()
            return Look(fault=str(error), needs=kind.needs)
        except GpuscaleError as error:
            return Look(fault=str(error), needs=kind.needs)

    async def _discovered(self, seen: Snapshot) -> dict[str, Look]:
        groups = {body.child("spec").text("group") for body in seen.all("apiservices")}
        paths = {
            CUSTOM_GROUP: custom_path(seen),
            EXTERNAL_GROUP: f"/apis/{EXTERNAL_GROUP}/v1beta1",
        }
        found = {}
        for group in groups & paths.keys():
            try:
                answer = await self._client.get(paths[group])
                found[group] = Look(answer.get("resources") or ())
            except GpuscaleError as error:
                found[group] = Look(fault=str(error))
        return found

    async def _bundles(self, seen: Snapshot) -> dict[str, str]:
        """Return the CA that each server of ours has in its Secret."""
        found = {}
        for body in seen.all("apiservices"):
            if facts.server_of(body) != "gpuscale":
                continue
            service = facts.service_fields(body.child("spec").child("service"))
            path = (
                f"/api/v1/namespaces/{facts.namespace(service)}/secrets/{facts.name(service)}-tls"
            )
            secret = await self._maybe(path)
            bundle = (secret.get("data") or {}).get("ca.crt")
            if isinstance(bundle, str):
                found[facts.name(body)] = bundle
        return found

    async def _rule_maps(self, seen: Snapshot) -> Sequence[JsonObject]:
        """Return the ConfigMaps with rules: those that metrics servers mount, and gpuscale's own."""
        wanted: dict[str, None] = {}
        for body, _, _ in facts.metrics_servers(seen):
            for name in _mounted(body):
                wanted[f"/api/v1/namespaces/{facts.namespace(body)}/configmaps/{name}"] = None
        for body in facts.own_services(seen):
            place = f"{facts.namespace(body)}/configmaps/{facts.name(body)}"
            wanted[f"/api/v1/namespaces/{place}"] = None
        found = [await self._maybe(path) for path in wanted]
        return [
            {**body, "apiVersion": "v1", "kind": "ConfigMap"} for body in found if body.get("data")
        ]

    async def _maybe(self, path: str) -> JsonObject:
        """Return an object that makes findings better, or nothing."""
        try:
            return await self._client.get(path)
        except GpuscaleError:
            return {}


def _mounted(body: Fields) -> list[str]:
    volumes = body.child("spec").child("template").child("spec").items("volumes")
    return [name for each in volumes if (name := each.child("configMap").text("name"))]
