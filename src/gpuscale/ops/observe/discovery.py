"""The resource of a kind, and the version of the custom metrics API, chosen as the controller does.

Source: k8s.io/client-go v0.36 restmapper/discovery.go, discovery/aggregated_discovery.go; k8s.io/metrics
v0.36 pkg/client/custom_metrics/discovery.go.
"""

import asyncio
from dataclasses import dataclass

from gpuscale.base.errors import NotFoundError
from gpuscale.base.objects.hpa import CrossVersionObjectReference
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import (
    AGGREGATED_DISCOVERY,
    ApiStatusError,
    ApiUnreachableError,
    JsonObject,
    KubeClient,
)
from gpuscale.ops.observe.words import no_kind_text
from gpuscale.server.metricsapi.wire import CUSTOM_GROUP, CUSTOM_VERSIONS

_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource, as it appears in URL paths."""

    base: str
    """Path of its group and version."""
    plural: str
    group: str

    @property
    def qualified(self) -> str:
        """Return the plural name with the group, such as `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


class Discovery:
    """Discovers an API server's groups and resources, requesting each once.

    Args:
        client: to the API server.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._documents: dict[str, asyncio.Future[JsonObject]] = {}

    async def resource(self, reference: CrossVersionObjectReference) -> Resource:
        """Return the resource of a reference's kind; only the group of its `apiVersion` matters.

        Raises:
            NotFoundError: no API has the kind; in the controller's words.
            ApiStatusError: discovery was refused.
            ApiUnreachableError: no answer.
        """
        group = reference.api_version.rpartition("/")[0]
        for base in await self._bases(group):
            for each in _entries(await self._document(base), "resources"):
                name = text_of(each.get("name"))
                if each.get("kind") == reference.kind and name and "/" not in name:
                    return Resource(base, name, group)
        raise NotFoundError(no_kind_text(reference.kind, group))

    async def custom_path(self) -> str:
        """Return the custom metrics API's path in the version that the controller picks.

        Raises:
            NotFoundError: there is none; in the controller's words.
            ApiStatusError: discovery was refused.
            ApiUnreachableError: no answer.
        """
        versions = _custom_versions(await self._document("/apis", AGGREGATED_DISCOVERY))
        if versions is None:
            raise NotFoundError(f"no custom metrics API ({CUSTOM_GROUP}) registered")
        for version in versions:
            if version in CUSTOM_VERSIONS:
                return f"/apis/{CUSTOM_GROUP}/{version}"
        raise NotFoundError("no known available metric versions found")

    async def _bases(self, group: str) -> tuple[str, ...]:
        if not group:
            return ("/api/v1",)
        versions = _versions(await self._document(f"/apis/{group}"))
        return tuple(f"/apis/{group}/{version}" for version in versions)

    async def _document(self, path: str, accept: str = "application/json") -> JsonObject:
        """Return the discovery document at a path; empty if the API is missing or unreachable."""
        if path not in self._documents:
            self._documents[path] = asyncio.ensure_future(self._read(path, accept))
        return await self._documents[path]

    async def _read(self, path: str, accept: str) -> JsonObject:
        try:
            return await self._client.get(path, accept=accept)
        except ApiStatusError as error:
            if error.code != _NOT_FOUND:
                raise
        except ApiUnreachableError as error:
            if error.code is None:
                raise
        return {}  # an aggregated API that is down lists no kinds


def _custom_versions(groups: JsonObject) -> tuple[str, ...] | None:
    """Return the reachable versions of the custom metrics API; None if it is not registered."""
    for each in _entries(groups, "groups"):  # of servers without aggregated discovery
        if each.get("name") == CUSTOM_GROUP:
            return _versions(each)
    for each in _entries(groups, "items"):
        if mapping_of(each.get("metadata")).get("name") == CUSTOM_GROUP:
            found = _entries(each, "versions")
            reached = (version for version in found if version.get("freshness") != "Stale")
            return tuple(text_of(version.get("version")) for version in reached)
    return None


def _versions(group: JsonObject) -> tuple[str, ...]:
    """Return the versions of a group, the preferred one first."""
    preferred = text_of(mapping_of(group.get("preferredVersion")).get("version"))
    others = (text_of(each.get("version")) for each in _entries(group, "versions"))
    return tuple(dict.fromkeys(filter(None, (preferred, *others))))


def _entries(body: JsonObject, key: str) -> tuple[JsonObject, ...]:
    items = body.get(key)
    return tuple(e for e in (items if isinstance(items, list) else ()) if isinstance(e, dict))
