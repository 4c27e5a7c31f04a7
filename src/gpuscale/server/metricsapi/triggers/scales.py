"""The replica count in a workload's spec, from a watched object or from its scale subresource."""

import asyncio
import logging
from dataclasses import dataclass

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.selectors import Selector, parse_selector, selector_of_expressions
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import ApiStatusError, JsonObject, KubeClient
from gpuscale.triggers import Missing, WorkloadRef

_LOG = logging.getLogger(__name__)
_POLL_S = 2.0
_AT_ONCE = 8
_KIND_KNOWN_S = 600.0
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class WorkloadScale:
    """A workload's replica count and pod selector."""

    desired: int
    selector: Selector


def read_scale(body: JsonObject) -> WorkloadScale | None:
    """Return the scale of a Deployment or StatefulSet; None without a selector."""
    spec = mapping_of(body.get("spec"))
    replicas = spec.get("replicas", 1)
    selector = _selector(mapping_of(spec.get("selector")))
    if selector is None or not isinstance(replicas, int):
        return None
    return WorkloadScale(replicas, selector)


def _selector(body: object) -> Selector | None:
    found = mapping_of(body)
    labels = {key: str(value) for key, value in mapping_of(found.get("matchLabels")).items()}
    items = found.get("matchExpressions")
    expressions = []
    for item in map(mapping_of, items if isinstance(items, list) else ()):
        values = item.get("values")
        texts = tuple(map(str, values if isinstance(values, list) else ()))
        expressions.append((text_of(item.get("key")), text_of(item.get("operator")), texts))
    if not labels and not expressions:
        return None
    try:
        return selector_of_expressions(labels, tuple(expressions))
    except ValueError:
        return None


@dataclass(slots=True)
class _Polled:
    scale: WorkloadScale | Missing
    known_ms: int | None = None
    """When the API server last gave it."""


class PolledScales:
    """Scale subresources of unwatched kinds, polled by `run`.

    Args:
        client: of the API server.
        clock: measures ages and waits.
        max_age_s: how long a scale counts after it was given.
    """

    def __init__(self, client: KubeClient, clock: Clock, max_age_s: float) -> None:
        self._client = client
        self._clock = clock
        self._max_age_ms = max_age_s * 1000
        self._scales: dict[tuple[str, WorkloadRef], _Polled] = {}
        self._collections: dict[tuple[str, str], tuple[str, int]] = {}
        """Path up to the namespace with `{}` in its place, and when it was found; by group and kind."""

    def scale(self, namespace: str, workload: WorkloadRef) -> WorkloadScale | Missing:
        """Return the latest polled scale."""
        key = (namespace, workload)
        found = self._scales.get(key)
        if found is None:
            found = self._scales[key] = _Polled(
                Missing(f"the scale of {workload.kind} {workload.name} is not known yet")
            )
        if found.known_ms is None or isinstance(found.scale, Missing):
            return found.scale
        age_ms = self._clock.now_ms() - found.known_ms
        if age_ms > self._max_age_ms:
            words = f"the scale of {workload.kind} {workload.name} was last given"
            return Missing(f"{words} {age_ms / 1000:.0f} s ago")
        return found.scale

    def is_known(self, namespace: str, workload: WorkloadRef) -> bool:
        """Return whether the API server has answered for this scale; a new one is added to the polling."""
        self.scale(namespace, workload)
        return self._scales[namespace, workload].known_ms is not None

    def forget(self, namespace: str, workload: WorkloadRef) -> None:
        self._scales.pop((namespace, workload), None)

    async def run(self) -> None:
        """Poll until cancelled."""
        at_once = asyncio.Semaphore(_AT_ONCE)
        while True:
            if self._scales:
                await asyncio.gather(*(self._ask(key, at_once) for key in list(self._scales)))
            await self._clock.sleep(_POLL_S)

    async def _ask(self, key: tuple[str, WorkloadRef], at_once: asyncio.Semaphore) -> None:
        namespace, workload = key
        async with at_once:
            try:
                scale: WorkloadScale | Missing = await self._fetch(namespace, workload)
            except ApiStatusError as error:
                if error.code == _NOT_FOUND:
                    self._collections.pop((workload.api_version, workload.kind.lower()), None)
                scale = Missing(f"the scale of {workload.kind} {workload.name}: {error}")
            except GpuscaleError as error:
                _LOG.debug("scale of %s %s: %s", workload.kind, workload.name, error)
                return
        polled = self._scales.get(key)
        if polled is not None:
            polled.scale, polled.known_ms = scale, self._clock.now_ms()

    async def _fetch(self, namespace: str, workload: WorkloadRef) -> WorkloadScale | Missing:
        collection = await self._collection(workload)
        if collection is None:
            return Missing(f"there is no kind {workload.kind} in {workload.api_version}")
        path = f"{collection.format(namespace)}/{workload.name}/scale"
        body = await self._client.get(path)
        spec, status = mapping_of(body.get("spec")), mapping_of(body.get("status"))
        replicas, text = spec.get("replicas", 0), text_of(status.get("selector"))
        if not isinstance(replicas, int) or not text:
            return Missing(f"the scale of {workload.kind} {workload.name} has no selector")
        try:
            return WorkloadScale(replicas, parse_selector(text))
        except ValueError as error:
            return Missing(f"the scale of {workload.kind} {workload.name}: {error}")

    async def _collection(self, workload: WorkloadRef) -> str | None:
        known = self._collections.get((workload.api_version, workload.kind.lower()))
        now_ms = self._clock.now_ms()
        if known is not None and now_ms - known[1] < _KIND_KNOWN_S * 1000:
            return known[0]
        prefix = "/api/v1"
        if workload.api_version != "v1":
            version = workload.api_version
            if "/" not in version:
                group = await self._client.get(f"/apis/{version}")
                version = text_of(mapping_of(group.get("preferredVersion")).get("groupVersion"))
            prefix = f"/apis/{version}"
        body = await self._client.get(prefix)
        resources = body.get("resources")
        for item in map(mapping_of, resources if isinstance(resources, list) else ()):
            name = text_of(item.get("name"))
            if text_of(item.get("kind")).lower() == workload.kind.lower() and "/" not in name:
                path = f"{prefix}/namespaces/{{}}/{name}"
                self._collections[workload.api_version, workload.kind.lower()] = (path, now_ms)
                return path
        return None
