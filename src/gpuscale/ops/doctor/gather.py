"""Takes a snapshot of a cluster with read requests only.

What can't be read is part of the result, with the reason: a doctor without rights to one thing still looks
at the others.
"""

import asyncio
import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.findings import Fix, Unseen
from gpuscale.base.objects.fields import Fields
from gpuscale.hpa.terms import version_or_none
from gpuscale.kube import fields_of
from gpuscale.kube.client import ApiStatusError, JsonObject, KubeClient
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.agents import AgentReader
from gpuscale.ops.doctor.autoscalers import HpaReader, custom_path
from gpuscale.ops.doctor.direct import at_once
from gpuscale.ops.doctor.judges import CAPACITY, KINDS, Listed
from gpuscale.ops.doctor.live_objects import READ, STATUS, live_cluster
from gpuscale.ops.doctor.node_pools import is_unready
from gpuscale.ops.doctor.prometheus import PrometheusReader
from gpuscale.ops.doctor.rights import server_rights
from gpuscale.ops.doctor.scalers import ScalerReader
from gpuscale.ops.doctor.snapshot import Look, Snapshot
from gpuscale.ops.lint.cluster import Cluster
from gpuscale.ops.lint.node_inputs import CUSTOM_KINDS
from gpuscale.server.metricsapi.wire import CUSTOM_GROUP, EXTERNAL_GROUP
from gpuscale.server.sources.http import SourceAccess

_PAGE = "500"
_NOT_FOUND = 404
_FORBIDDEN = 403
_CUSTOM = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+/v[a-z0-9]+")
"""API versions of custom resources, as objects name them."""
_MOST_SECRETS = 50
"""With CAs of scalers; what is one cluster's rarely has more than one."""


@dataclass(frozen=True, slots=True)
class GatherSettings:
    """The namespace and kubeconfig of a snapshot, and addresses that bypass the API server."""

    namespace: str | None = None
    """Whose HPAs are looked at; None for all."""
    prometheus_url: str | None = None
    """None: found by the metrics server's flags, and asked by way of the API server."""
    prometheus_access: SourceAccess | None = None
    """What requests to that address carry."""
    agent_urls: Mapping[str, str] = field(default_factory=dict)
    """By node; others are asked by way of the API server."""
    agent_access: SourceAccess | None = None
    """What requests to those addresses carry."""
    reads_secrets: bool = True
    """Whether CAs are read from Secrets; without them, certificates are not judged."""


class Gatherer:
    """Takes snapshots of a cluster.

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
        """Return a snapshot.

        Raises:
            ApiUnreachableError: the API server does not answer, or is not ready.
            ApiStatusError: it does not accept us, or lets us see nothing at all.
        """
        await self._client.check_ready()
        autoscaling = await self._client.get("/apis/autoscaling")
        versions = [each["groupVersion"] for each in autoscaling.get("versions") or ()]
        self._report(f"listing {len(KINDS)} kinds of objects")
        listed = await at_once(self._list(kind) for kind in KINDS)
        looks = {kind.plural: look for kind, look in zip(KINDS, listed, strict=True)}
        if all(look.fault for look in looks.values() if look.is_served):
            fault = looks[KINDS[0].plural].fault
            raise ApiStatusError(
                _FORBIDDEN,
                f"{fault}; nor may it see anything else: give it the role in docs/doctor.md",
            )
        looks |= await self._custom_resources(Snapshot(self._clock.now_ms(), versions, looks))
        seen = Snapshot(self._clock.now_ms(), versions, looks)
        agents = AgentReader(self._client, self._settings.agent_urls, self._settings.agent_access)
        prometheus = PrometheusReader(
            self._client, self._settings.prometheus_url, self._settings.prometheus_access
        )
        hpas = HpaReader(self._client, custom_path(seen), self._settings.namespace, self._report)
        self._report(f"asking {len(facts.agent_pods(seen))} node agents and Prometheus")
        async with asyncio.TaskGroup() as group:
            by_agents = group.create_task(agents.read(seen))
            by_prometheus = group.create_task(prometheus.read(seen, self._clock.now_ms()))
        self._report("asking what serves the metrics")
        served, secrets = await self._discovered(seen), await self._secrets(seen)
        scalers = ScalerReader(self._client)
        return replace(
            seen,
            agents=by_agents.result().looks,
            agents_passed_over=by_agents.result().passed_over,
            prometheus=by_prometheus.result(),
            served=served,
            bundles={name: text for name, (text, _) in secrets.items() if text},
            certificates={name: text for name, (_, text) in secrets.items() if text},
            hpas=await hpas.read(seen),
            rule_maps=await self._rule_maps(seen),
            rights=await server_rights(self._client, seen),
            scalers=await scalers.read(seen),
            scaler_cas=await self._scaler_cas(seen),
            node_classes=await self._node_classes(seen),
            kubernetes=version_or_none(await self._client.git_version()),
        )

    async def objects(self) -> Cluster:
        """Return the objects that checks of files are about, and no more: one look for `gpuscale lint`.

        Raises:
            ApiUnreachableError: the API server does not answer, or is not ready.
            ApiStatusError: it does not accept us, or lets us see nothing at all.
        """
        await self._client.check_ready()
        kinds = [each for each in KINDS if each.plural in (*READ, STATUS)]
        self._report(f"listing {len(kinds)} kinds of objects")
        listed = await at_once(self._list(kind) for kind in kinds)
        looks = {kind.plural: look for kind, look in zip(kinds, listed, strict=True)}
        if all(look.fault for look in looks.values() if look.is_served):
            raise ApiStatusError(_FORBIDDEN, looks["hpas"].fault)
        seen = Snapshot(self._clock.now_ms(), (), looks)
        looks |= await self._custom_resources(seen)
        seen = replace(
            seen,
            looks=looks,
            rule_maps=await self._rule_maps(seen),
            kubernetes=version_or_none(await self._client.git_version()),
        )
        workloads = (plural for plural in facts.WORKLOADS.values() if seen.serves(plural))
        return replace(
            live_cluster(seen),
            complete=frozenset(READ[plural][1] for plural in workloads),
            unseen=tuple(
                Unseen(
                    "",
                    plural,
                    look.fault,
                    Fix("Give the account the right.", facts.allowing(plural, look.needs)),
                )
                for plural, look in looks.items()
                if look.fault
            ),
        )

    async def capacity(self) -> Snapshot:
        """Return what says whether nodes come for pods, and no more."""
        kinds = {
            each.plural: each
            for each in KINDS
            if CAPACITY in each.hops or each.plural == "deployments"
        }
        listed = await at_once(self._list(kind) for kind in kinds.values())
        seen = Snapshot(self._clock.now_ms(), (), dict(zip(kinds, listed, strict=True)))
        return replace(seen, node_classes=await self._node_classes(seen))

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
            if error.code == _NOT_FOUND and kind.older_path:
                return await self._list(replace(kind, path=kind.older_path, older_path=""))
            if error.code == _NOT_FOUND:
                return Look(is_served=False)
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

    async def _secrets(self, seen: Snapshot) -> dict[str, tuple[str, str]]:
        """Return each gpuscale server's CA (base64) and certificate, from its Secret."""
        found = {}
        for body in seen.all("apiservices"):
            if facts.server_of(body) != "gpuscale":
                continue
            service = facts.service_fields(body.child("spec").child("service"))
            place = f"/api/v1/namespaces/{facts.namespace(service)}/secrets/{facts.name(service)}"
            renewed = (await self._maybe(f"{place}-serving")).get("data")
            data = renewed or (await self._maybe(f"{place}-tls")).get("data") or {}
            found[facts.name(body)] = (str(data.get("ca.crt") or ""), _decoded(data.get("tls.crt")))
        return found

    async def _scaler_cas(self, seen: Snapshot) -> dict[str, str]:
        """Return the CAs by which KEDA trusts external scalers, as far as they can be read."""
        keys: dict[str, str] = {}
        for body in seen.all("triggerauthentications"):
            for each in body.child("spec").items("secretTargetRef"):
                if each.text("parameter") == "caCert":
                    keys[f"{facts.namespace(body)}/{each.text('name')}"] = each.text("key")
        found = {}
        for place, key in list(keys.items())[:_MOST_SECRETS]:
            namespace, _, name = place.partition("/")
            data = (await self._maybe(f"/api/v1/namespaces/{namespace}/secrets/{name}")).get("data")
            if text := _decoded((data or {}).get(key)):
                found[place] = text
        return found

    async def _node_classes(self, seen: Snapshot) -> dict[str, Fields]:
        """Return the node classes of pools that pods may wait for, or that are not Ready."""
        found: dict[str, Fields] = {}
        has_waiting = bool(facts.unplaced_pods(seen))
        for pool in seen.all("nodepools"):
            reference = pool.child("spec").child("template").child("spec").child("nodeClassRef")
            group, kind, name = (reference.text(key) for key in ("group", "kind", "name"))
            is_asked = has_waiting or is_unready(pool)
            if not is_asked or not (group and kind and name) or f"{kind}/{name}" in found:
                continue
            served = await self._maybe(f"/apis/{group}")
            version = (served.get("preferredVersion") or {}).get("version")
            body = await self._maybe(f"/apis/{group}/{version}/{kind.lower()}es/{name}")
            if body:
                found[f"{kind}/{name}"] = fields_of(body)
        return found

    async def _rule_maps(self, seen: Snapshot) -> Sequence[JsonObject]:
        """Return the ConfigMaps with rules: those mounted in metrics servers, and gpuscale's."""
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

    async def _custom_resources(self, seen: Snapshot) -> dict[str, Look]:
        """Return the custom resources that checks know, or that autoscalers scale, by `PLURAL.GROUP`.

        Only what the cluster serves is asked for. Of what is scaled the definition of its kind is there too.
        """
        references = (
            body.child("spec").child("scaleTargetRef")
            for plural in ("hpas", "scaledobjects")
            for body in seen.all(plural)
        )
        scaled = {
            (each.text("apiVersion"), each.text("kind"))
            for each in references
            if _CUSTOM.fullmatch(each.text("apiVersion"))
        }
        served = {
            str(each.get("name")): str((each.get("preferredVersion") or {}).get("groupVersion"))
            for each in (await self._maybe("/apis")).get("groups") or ()
        }
        known = {(served[group], kind) for group, kind in CUSTOM_KINDS if group in served}
        versions = sorted({version for version, _ in scaled | known})
        listed = await at_once(self._maybe(f"/apis/{version}") for version in versions)
        plurals = {
            (version, each.get("kind")): str(each.get("name"))
            for version, found in zip(versions, listed, strict=True)
            for each in found.get("resources") or ()
            if "/" not in str(each.get("name"))
        }
        asked = sorted(each for each in scaled | known if each in plurals)
        names = {each: f"{plurals[each]}.{each[0].partition('/')[0]}" for each in asked}
        looks = await at_once(
            self._list(Listed(plurals[each], f"/apis/{each[0]}/{plurals[each]}", names[each], ()))
            for each in asked
        )
        found: dict[str, Look] = {}
        for each, look in zip(asked, looks, strict=True):
            typed = [{"apiVersion": each[0], "kind": each[1], **item} for item in look.items]
            found[names[each]] = replace(look, items=typed)
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        defined = await at_once(
            self._maybe(f"{path}/{names[each]}") for each in asked if each in scaled
        )
        typed = [
            {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", **each}
            for each in defined
            if each
        ]
        return {**found, "customresourcedefinitions.apiextensions.k8s.io": Look(typed)}

    async def _maybe(self, path: str) -> JsonObject:
        """Return an optional object, which improves findings; None if it can't be read."""
        if "/secrets/" in path and not self._settings.reads_secrets:
            return {}
        try:
            return await self._client.get(path)
        except GpuscaleError:
            return {}


def _mounted(body: Fields) -> list[str]:
    volumes = body.child("spec").child("template").child("spec").items("volumes")
    return [name for each in volumes if (name := each.child("configMap").text("name"))]


def _decoded(text: object) -> str:
    try:
        return base64.b64decode(str(text or "")).decode(errors="replace")
    except ValueError:
        return ""
