"""Names of cluster objects, from copies that watches keep current.

A copy is begun when its resource is first asked for. Only metadata is fetched, and of that only name,
namespace and labels are kept. What is not yet known is an error, never an empty answer: no objects would
read as no load.
"""

import asyncio
import sys
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import lru_cache

from gpuscale.base.clock import Clock
from gpuscale.base.errors import UnavailableError
from gpuscale.base.objects.selectors import Selector
from gpuscale.kube.client.client import JsonObject, KubeClient
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.kube.informers.records import ObjectRecord
from gpuscale.kube.informers.reflector import Reflector, ReflectorState

_MAX_REMEMBERED = 512
"""Answers for a namespace that are kept until an object of it comes, goes or changes its labels."""


_LATEST_TRY_S = 2.0
"""How long a question waits, in the machine's seconds, for a copy that is too old to be kept up again."""


class ObjectsUnavailableError(UnavailableError):
    """The objects of a resource are unknown."""


@dataclass(frozen=True, slots=True)
class Collection:
    """All objects of one resource."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    field_selector: str = ""
    """Leaves out objects, such as `status.phase=Running`."""

    @property
    def path(self) -> str:
        """Return the list path over all namespaces."""
        prefix = f"/apis/{self.group}" if self.group else "/api"
        return f"{prefix}/{self.version}/{self.plural}"

    @property
    def params(self) -> dict[str, str]:
        """Return the query parameters."""
        return {"fieldSelector": self.field_selector} if self.field_selector else {}

    def __str__(self) -> str:
        name = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{name}({self.field_selector})" if self.field_selector else name


@dataclass(frozen=True, slots=True)
class CopyState:
    """The state of one copy."""

    collection: Collection
    objects: int
    state: ReflectorState
    is_withheld: bool = False
    """Whether nothing is answered from it: it was never listed, or is too old."""


class ObjectCopies:
    """Copies of the requested resources, kept current by `run`.

    Args:
        connection: to the API server; one that reads metadata only, where there is one.
        settings: waits and sizes.
        clock: times the waits.
        first_list_wait_s: how long the first to ask for a resource waits for its list, in the machine's
            seconds.
        max_age_s: how long a copy counts after the API server last said something of it, in the machine's
            seconds.
    """

    def __init__(
        self,
        connection: KubeClient,
        settings: KubeSettings,
        clock: Clock,
        first_list_wait_s: float = 10.0,
        max_age_s: float = float("inf"),
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._clock = clock
        self._first_list_wait_s = first_list_wait_s
        self._max_age_s = max_age_s
        self._copies: dict[Collection, _Copy] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Keep all present and future copies current until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None

    async def ready(self, collection: Collection) -> None:
        """Create a copy if there is none, and wait until it is filled.

        Raises:
            ObjectsUnavailableError: it is not there after the wait, or is unavailable.
        """
        copy = self._copies.get(collection) or self._begin(collection)
        if copy.is_current:
            return
        wait_s = self._first_list_wait_s
        if copy.reflector.state.listed:
            # The request came through the API server, so it may be back.
            wait_s = min(wait_s, _LATEST_TRY_S)
            if copy.reflector.hurry():
                copy.tried.clear()
        try:
            async with asyncio.timeout(wait_s):
                await copy.tried.wait()
        except TimeoutError:
            pass
        copy.check()

    def names(
        self, collection: Collection, namespace: str | None, selector: Selector
    ) -> tuple[str, ...]:
        """Return the names of the selected objects, sorted.

        Raises:
            ObjectsUnavailableError: there is no copy.
        """
        return self._copy(collection).names(namespace or "", selector)

    def records(
        self, collection: Collection, namespace: str | None, selector: Selector
    ) -> tuple[ObjectRecord, ...]:
        """Return the selected objects, sorted by namespace and name; None is every namespace.

        Raises:
            ObjectsUnavailableError: there is no copy.
        """
        return self._copy(collection).records(namespace, selector)

    def states(self) -> tuple[CopyState, ...]:
        """Return each copy's state, sorted by resource."""
        found = (
            CopyState(
                collection, len(copy.reflector.items), copy.reflector.state, not copy.is_current
            )
            for collection, copy in self._copies.items()
        )
        return tuple(sorted(found, key=lambda each: str(each.collection)))

    def _copy(self, collection: Collection) -> "_Copy":
        copy = self._copies.get(collection)
        if copy is None:
            raise ObjectsUnavailableError(f"{collection} are not watched yet")
        copy.check()
        return copy

    def _begin(self, collection: Collection) -> "_Copy":
        if self._group is None:
            raise ObjectsUnavailableError(
                f"{collection} are not watched: the server is not running"
            )
        copy = _Copy(self._connection, self._settings, collection, self._clock, self._max_age_s)
        self._copies[collection] = copy
        self._group.create_task(copy.reflector.run(), name=f"watch {collection}")
        return copy


class _Copy:
    """One resource's objects, by namespace."""

    def __init__(
        self,
        connection: KubeClient,
        settings: KubeSettings,
        collection: Collection,
        clock: Clock,
        max_age_s: float,
    ) -> None:
        self.collection = collection
        self._max_age_s = max_age_s
        self.tried = asyncio.Event()
        """Set once the list, or the latest try to keep it up, came or failed."""
        self.reflector: Reflector[ObjectRecord] = Reflector(
            connection,
            settings,
            collection.path,
            collection.params,
            self._read,
            clock,
            self.tried.set,
            self._removed,
        )
        self._index = _Index()
        self._indexed: Mapping[str, ObjectRecord] | None = None
        """The copy that the index is of; after a new list there is another one."""
        self._touched: set[str] = set()
        """Namespaces in which an object came, went or changed its labels since they were indexed."""

    @property
    def is_current(self) -> bool:
        """Return whether there is a list that is current, or was a moment ago."""
        state = self.reflector.state
        return state.listed and state.age_s() <= self._max_age_s

    def check(self) -> None:
        """Raise if there is no list yet, or the watch has been silent for too long.

        A pod that came or went since would count for the wrong one: absent is better than stale.
        """
        state = self.reflector.state
        if not state.listed:
            reason = state.error or "the API server has not listed them yet"
            raise ObjectsUnavailableError(f"{self.collection} are not known: {reason}")
        if not self.is_current:
            reason = state.error or "the API server is silent"
            raise ObjectsUnavailableError(
                f"{self.collection} have not been kept up for {state.age_s():.0f} s: {reason}"
            )

    def names(self, namespace: str, selector: Selector) -> tuple[str, ...]:
        """Return the names of the selected objects, sorted."""
        return self._current().names(namespace, selector)

    def records(self, namespace: str | None, selector: Selector) -> tuple[ObjectRecord, ...]:
        """Return the selected objects, sorted by namespace and name; None is every namespace."""
        return self._current().records(namespace, selector)

    def _current(self) -> "_Index":
        items = self.reflector.items
        if items is not self._indexed:
            self._index = _Index.of(items.values())
            self._indexed = items
        elif self._touched:
            self._index.replace(self._touched, items.values())
        self._touched.clear()
        return self._index

    def _read(self, body: JsonObject) -> ObjectRecord | None:
        found = _named(body)
        if found is not None:
            before = self.reflector.items.get(f"{found.namespace}/{found.name}")
            if before != found:
                self._touched.add(found.namespace)
        return found

    def _removed(self, key: str) -> None:
        self._touched.add(key.partition("/")[0])


@dataclass(slots=True)
class _Place:
    """One namespace's objects, with cached answers."""

    records: list[ObjectRecord] = field(default_factory=list)
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class _Index:
    """Objects by namespace."""

    places: dict[str, _Place] = field(default_factory=dict)

    @staticmethod
    def of(items: Iterable[ObjectRecord]) -> "_Index":
        index = _Index()
        index._add(items)
        return index

    def replace(self, namespaces: AbstractSet[str], items: Iterable[ObjectRecord]) -> None:
        """Rebuild these namespaces' index; others keep their cached answers."""
        for namespace in namespaces:
            self.places.pop(namespace, None)
        self._add(item for item in items if item.namespace in namespaces)

    def _add(self, items: Iterable[ObjectRecord]) -> None:
        for item in sorted(items, key=lambda each: each.name):
            self.places.setdefault(item.namespace, _Place()).records.append(item)

    def names(self, namespace: str, selector: Selector) -> tuple[str, ...]:
        place = self.places.get(namespace)
        if place is None:
            return ()
        text = str(selector)
        found = place.names.get(text)
        if found is None:
            if len(place.names) >= _MAX_REMEMBERED:
                place.names.clear()
            found = tuple(each.name for each in self.records(namespace, selector))
            place.names[text] = found
        return found

    def records(self, namespace: str | None, selector: Selector) -> tuple[ObjectRecord, ...]:
        places = sorted(self.places) if namespace is None else (namespace,)
        return tuple(
            each
            for place in places
            if place in self.places
            for each in self.places[place].records
            if selector.matches(each.labels)
        )


def _named(body: JsonObject) -> ObjectRecord | None:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return None
    labels = metadata.get("labels")
    pairs = labels.items() if isinstance(labels, dict) else ()
    return ObjectRecord(
        sys.intern(str(metadata.get("namespace") or "")),
        metadata["name"],
        _shared(tuple((str(key), str(value)) for key, value in pairs)),
    )


@lru_cache(maxsize=4096)
def _shared(pairs: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return a shared copy of labels: pods of one workload have equal ones, which saves memory."""
    return dict(pairs)
