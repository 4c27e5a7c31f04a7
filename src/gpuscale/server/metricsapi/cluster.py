"""The cluster's resources and objects, as the metrics APIs look them up.

Source: k8s.io/client-go discovery and restmapper (the resources of each group's preferred version first);
custom-metrics-apiserver v1.30.0 pkg/dynamicmapper. Known differences: the mapper is refreshed, where
prometheus-adapter builds it once; resources that can't be listed are left out, as nothing can be said of
their objects.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping

from gpuscale.base.errors import GpuscaleError, UpstreamError
from gpuscale.base.objects.selectors import Selector
from gpuscale.kube import mapping_of, text_of, texts_of
from gpuscale.kube.client import AGGREGATED_DISCOVERY, JsonObject, KubeClient
from gpuscale.kube.informers import Collection, ObjectCopies, ObjectRecord
from gpuscale.server.metricsapi.wire.statuses import ListError
from gpuscale.server.rules.resources import ResourceMapper, ResourceType

_LOG = logging.getLogger(__name__)
_METRICS_GROUPS = {"custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"}
"""What they list are metrics, and pods and nodes a second time."""


class ClusterObjects:
    """The cluster's objects, answered from copies that watches keep current."""

    def __init__(self, copies: ObjectCopies) -> None:
        self._copies = copies
        self._refused: dict[Collection, int] = {}
        """Questions that were refused since a resource's objects are not known."""

    async def ready(self, resource: ResourceType) -> None:
        """Return once the objects of a resource are known.

        Raises:
            ListError: they are not.
        """
        await self._ready(_collection(resource))

    async def running_pods(
        self, namespace: str | None, selector: Selector
    ) -> tuple[ObjectRecord, ...]:
        """Return the selected pods that run, sorted by namespace and name; None is every namespace.

        Raises:
            ListError: they are not known.
        """
        return await self._records(_RUNNING_PODS, namespace, selector)

    async def nodes(self, selector: Selector) -> tuple[ObjectRecord, ...]:
        """Return the selected nodes, sorted by name.

        Raises:
            ListError: they are not known.
        """
        return await self._records(_NODES, None, selector)

    async def _records(
        self, collection: Collection, namespace: str | None, selector: Selector
    ) -> tuple[ObjectRecord, ...]:
        await self._ready(collection)
        return self._copies.records(collection, namespace, selector)

    async def _ready(self, collection: Collection) -> None:
        try:
            await self._copies.ready(collection)
        except GpuscaleError as error:
            self._refuse(collection, error)
            raise ListError from error
        if self._refused and (count := self._refused.pop(collection, 0)):
            _LOG.info("%s are known again; requests refused meanwhile: %d", collection, count)

    def _refuse(self, collection: Collection, error: GpuscaleError) -> None:
        """Count a failed lookup and log the first one; an HPA controller repeats it many times a second."""
        if collection not in self._refused:
            _LOG.warning("unable to list matching resources: %s", error)
        self._refused[collection] = self._refused.get(collection, 0) + 1

    def names(
        self, resource: ResourceType, namespace: str | None, selector: Selector
    ) -> tuple[str, ...]:
        """Return the names of the selected objects, sorted.

        Raises:
            ListError: the objects are not known.
        """
        collection = _collection(resource)
        try:
            return self._copies.names(collection, namespace, selector)
        except GpuscaleError as error:
            self._refuse(collection, error)
            raise ListError from error


class NoObjects:
    """Takes the place of the cluster's objects without an API server: `*` fails, single names work."""

    def names(
        self, resource: ResourceType, namespace: str | None, selector: Selector
    ) -> tuple[str, ...]:
        """Raise: without an API server no names are known."""
        raise ListError

    async def running_pods(
        self, namespace: str | None, selector: Selector
    ) -> tuple[ObjectRecord, ...]:
        """Raise: without an API server no pods are known."""
        raise ListError

    async def nodes(self, selector: Selector) -> tuple[ObjectRecord, ...]:
        """Raise: without an API server no nodes are known."""
        raise ListError


_NODES = Collection("", "v1", "nodes")
_RUNNING_PODS = Collection("", "v1", "pods", "status.phase=Running")


def _collection(resource: ResourceType) -> Collection:
    return Collection(resource.group, resource.version, resource.plural)


async def read_mapper(connection: KubeClient) -> ResourceMapper:
    """Return the resources of the cluster, in the API server's order of preference.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
        UpstreamError: the answer names no resource.
    """
    found: list[ResourceType] = []
    for root in ("/api", "/apis"):
        body = await connection.get(root, accept=AGGREGATED_DISCOVERY)
        if body.get("kind") == "APIGroupDiscoveryList":
            found += aggregated_types(body)
        else:
            found += await _read_piecemeal(connection, root, body)
    if not found:
        raise UpstreamError("the API server's discovery names no resource")
    return ResourceMapper(found)


def aggregated_types(body: JsonObject) -> list[ResourceType]:
    """Return the resources of an APIGroupDiscoveryList; what can't be read is left out."""
    found: dict[tuple[str, str], ResourceType] = {}
    for group in _objects(body.get("items")):
        name = text_of(mapping_of(group.get("metadata")).get("name"))
        for version in _objects(group.get("versions")):
            for each in _objects(version.get("resources")):
                kind = text_of(mapping_of(each.get("responseKind")).get("kind"))
                _add(
                    found,
                    name,
                    text_of(version.get("version")),
                    text_of(each.get("resource")),
                    text_of(each.get("singularResource")),
                    kind,
                    each.get("verbs"),
                    namespaced=each.get("scope") == "Namespaced",
                )
    return list(found.values())


def listed_types(group: str, version: str, body: JsonObject) -> list[ResourceType]:
    """Return the resources of an APIResourceList; what can't be read is left out."""
    found: dict[tuple[str, str], ResourceType] = {}
    for each in _objects(body.get("resources")):
        _add(
            found,
            group,
            version,
            text_of(each.get("name")),
            text_of(each.get("singularName")),
            text_of(each.get("kind")),
            each.get("verbs"),
            namespaced=each.get("namespaced") is True,
        )
    return list(found.values())


def _add(
    found: dict[tuple[str, str], ResourceType],
    group: str,
    version: str,
    plural: str,
    singular: str,
    kind: str,
    verbs: object,
    *,
    namespaced: bool,
) -> None:
    """Add a resource, unless a preferred version of it was added before or it has no `list` verb."""
    is_listed = isinstance(verbs, list) and "list" in verbs
    if not (plural and kind and version) or "/" in plural or not is_listed:
        return
    if group in _METRICS_GROUPS or (group, plural) in found:
        return
    singular = singular or kind.lower()
    found[group, plural] = ResourceType(plural, singular, kind, group, version, namespaced)


async def _read_piecemeal(
    connection: KubeClient, root: str, body: JsonObject
) -> list[ResourceType]:
    found: dict[tuple[str, str], ResourceType] = {}
    for group, version in _group_versions(body):
        path = f"{root}/{group}/{version}" if group else f"{root}/{version}"
        try:
            answer = await connection.get(path)
        except GpuscaleError as error:
            _LOG.warning("the resources of %s are not known: %s", path, error)
            continue
        for each in listed_types(group, version, answer):
            found.setdefault((each.group, each.plural), each)
    return list(found.values())


def _group_versions(body: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield group and version of an APIVersions or APIGroupList, the preferred of each group first."""
    for version in texts_of(body.get("versions")):
        if version:
            yield "", version
    for group in _objects(body.get("groups")):
        name = text_of(group.get("name"))
        preferred = text_of(mapping_of(group.get("preferredVersion")).get("version"))
        versions = [text_of(each.get("version")) for each in _objects(group.get("versions"))]
        if name not in _METRICS_GROUPS:
            yield from ((name, each) for each in dict.fromkeys([preferred, *versions]) if each)


def _objects(value: object) -> Iterable[Mapping[str, object]]:
    items = value if isinstance(value, list) else ()
    return (item for item in items if isinstance(item, dict))
