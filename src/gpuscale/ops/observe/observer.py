"""Reads an HPA as a sync of its controller would: requests, and the controller's memory."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from urllib.parse import quote

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError, NotFoundError
from gpuscale.base.objects.hpa import CrossVersionObjectReference, HorizontalPodAutoscaler
from gpuscale.base.objects.manifests import read_stored_hpa
from gpuscale.base.objects.selectors import Selector, parse_selector
from gpuscale.hpa import Condition, HpaState, Scale, needs_metrics
from gpuscale.hpa.terms import (
    SCALED_TO_ZERO,
    SCALING_ACTIVE,
    SCALING_DISABLED,
    settings_of,
    version_or_none,
)
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import ApiStatusError, ApiUnreachableError, JsonObject, KubeClient
from gpuscale.ops.doctor.direct import at_once
from gpuscale.ops.observe.answers import conditions_of, count
from gpuscale.ops.observe.discovery import Discovery
from gpuscale.ops.observe.document import Sight
from gpuscale.ops.observe.history import read_history
from gpuscale.ops.observe.lookup import could_not_look, find_hpas, list_all, name_of
from gpuscale.ops.observe.metrics import MetricReader
from gpuscale.ops.observe.nodes import NodeOutlook
from gpuscale.ops.observe.words import refusal_text

_NOT_OURS = (None, 401, 403)
"""Codes of refusals that say nothing of what the controller would be answered."""
_REFUSALS = (ApiStatusError, ApiUnreachableError)


class Observer:
    """Reads HPAs. What several of them share, such as a target's scale, is read once.

    Args:
        client: to the API server.
        clock: that ages count back from.
    """

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._discovery = Discovery(client)
        self._metrics = MetricReader(client, self._discovery)
        self._nodes = NodeOutlook(client, clock)
        self._known: dict[str, asyncio.Future[dict[str, Selector]]] = {}
        """Of each namespace the selectors of its HPAs, by key."""
        self._version: asyncio.Future[str | None] | None = None

    async def look(self, body: JsonObject) -> Sight:
        """Return what the controller would read of an HPA now.

        Raises:
            ConfigError: the HPA has a field that can't be read.
            UnreadableError: what the answer depends on can't be read.
        """
        hpa = _read_hpa(body)
        now_ms = self._clock.now_ms()
        namespace = hpa.metadata.namespace
        unknown: tuple[str, ...] = ()
        try:
            events = await self._events_on("HorizontalPodAutoscaler", namespace, hpa.metadata.name)
        except _REFUSALS as refusal:
            events = []
            unknown = (f"Its events, which say when it scaled: {refusal.said or refusal}.",)
        steps: list[JsonObject] = []
        if hpa.behavior is not None and hpa.target.kind == "Deployment":
            # A Deployment records its changes as events; they are optional.
            with suppress(*_REFUSALS):
                steps = await self._events_on("Deployment", namespace, hpa.target.name)
        if self._version is None:  # all looks share one request
            self._version = asyncio.ensure_future(self._client.git_version())
        sight = Sight(
            body,
            hpa,
            now_ms,
            history=read_history(body, events, hpa, now_ms, steps),
            unknown=unknown,
            kubernetes=version_or_none(await self._version),
        )
        scale, error = await self._scale(hpa.target, namespace)
        if error:
            return replace(sight, scale_error=error)
        sight = replace(sight, scale=scale)
        text = text_of(mapping_of(scale.get("status")).get("selector"))
        selector = _parsed(text)
        if selector is None or not _looks_at_metrics(sight):
            return sight
        path = f"/api/v1/namespaces/{namespace}/pods"
        try:
            pods = await list_all(self._client, path, {"labelSelector": text})
        except _REFUSALS as refusal:
            what = f"hpa/{hpa.metadata.name}: the target's pods"
            raise could_not_look(refusal, what) from refusal
        selecting, more = await self._selecting(hpa, selector, pods) if pods else ((), ())
        # The controller reads metrics only if it knows the target's pods.
        asked = range(len(hpa.metrics) if len(selecting) < 2 else 0)
        observed = [await self._metrics.read(sight, index, text) for index in asked]
        return replace(
            sight,
            pods=pods,
            selecting_hpas=selecting,
            observed=observed,
            unknown=(*unknown, *more),
            nodes=await self._nodes.of(pods),
        )

    async def _events_on(self, kind: str, namespace: str, name: str) -> list[JsonObject]:
        fields = f"involvedObject.kind={kind},involvedObject.name={name}"
        path = f"/api/v1/namespaces/{namespace}/events"
        return await list_all(self._client, path, {"fieldSelector": fields})

    async def _scale(
        self, target: CrossVersionObjectReference, namespace: str
    ) -> tuple[JsonObject, str]:
        """Return a target's scale, or the controller's error message."""
        if target.api_version.count("/") > 1:
            return {}, f"unexpected GroupVersion string: {target.api_version}"
        what = f"the scale of {target.kind}/{target.name} in namespace {namespace}"
        try:
            resource = await self._discovery.resource(target)
        except NotFoundError as error:
            return {}, str(error)
        except _REFUSALS as error:
            raise could_not_look(error, what) from error
        name = quote(target.name, safe="")
        path = f"{resource.base}/namespaces/{namespace}/{resource.plural}/{name}/scale"
        try:
            return await self._client.get(path), ""
        except _REFUSALS as error:
            if error.code in _NOT_OURS:
                raise could_not_look(error, what) from error
            return {}, refusal_text(error, f"{resource.plural} {target.name}")

    # Other HPAs

    async def _selecting(
        self, hpa: HorizontalPodAutoscaler, selector: Selector, pods: list[JsonObject]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the HPAs whose selector matches one of the pods, and errors while finding them."""
        labels = [mapping_of(mapping_of(pod.get("metadata")).get("labels")) for pod in pods]
        texts = [{k: v for k, v in each.items() if isinstance(v, str)} for each in labels]
        try:
            others = await self._selectors(hpa.metadata.namespace)
        except GpuscaleError as error:
            return (), (f"Whether other HPAs select the same pods: {error}.",)
        others = {**others, hpa.metadata.key: selector}
        found = sorted(key for key, each in others.items() if any(map(each.matches, texts)))
        return tuple(found), ()

    async def _selectors(self, namespace: str) -> dict[str, Selector]:
        """Return the selectors that the controller has stored for the namespace's HPAs.

        It learns one at a sync that looks at metrics, so an HPA that is paused may not have any.
        """
        if namespace not in self._known:
            self._known[namespace] = asyncio.ensure_future(self._read_selectors(namespace))
        return await self._known[namespace]

    async def _read_selectors(self, namespace: str) -> dict[str, Selector]:
        bodies = [body for body in await find_hpas(self._client, namespace) if _is_active(body)]
        selectors = await at_once(self._selector_of(body) for body in bodies)
        return {
            f"{namespace}/{name_of(body)}": selector
            for body, selector in zip(bodies, selectors, strict=True)
            if selector is not None
        }

    async def _selector_of(self, body: JsonObject) -> Selector | None:
        try:
            hpa = _read_hpa(body)
            scale, _ = await self._scale(hpa.target, hpa.metadata.namespace)
        except GpuscaleError:
            return None
        return _parsed(text_of(mapping_of(scale.get("status")).get("selector")))


def _read_hpa(body: JsonObject) -> HorizontalPodAutoscaler:
    return read_stored_hpa(body, f"hpa/{name_of(body)}")


def _parsed(selector: str) -> Selector | None:
    """Parse a selector; None if it matches no pods for the controller."""
    try:
        return parse_selector(selector) or None
    except ValueError:
        return None


def _looks_at_metrics(sight: Sight) -> bool:
    """Return whether the controller's next sync reads metrics."""
    status = mapping_of(sight.scale.get("status"))
    current = count(mapping_of(sight.scale.get("spec")).get("replicas"))
    scale = Scale(current, count(status.get("replicas")), text_of(status.get("selector")))
    conditions = tuple(
        Condition(SCALED_TO_ZERO, text_of(each.get("status")), "", "", 0)
        for each in conditions_of(sight.body)
        if each.get("type") == SCALED_TO_ZERO
    )
    settings = settings_of(sight.kubernetes)
    if conditions:
        settings = replace(settings, scale_to_zero=True)
    return needs_metrics(sight.hpa, scale, HpaState(conditions=conditions), settings)


def _is_active(body: JsonObject) -> bool:
    """Return whether an HPA has got as far as its target's pods."""
    active = [each for each in conditions_of(body) if each.get("type") == SCALING_ACTIVE]
    return any(each.get("reason") != SCALING_DISABLED.reason for each in active)
