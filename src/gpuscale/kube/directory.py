"""Names of the cluster's objects, from copies that are kept up by list and watch.

A copy is begun when its resource is first asked for. Only metadata is fetched, and of that only name,
namespace and labels are kept. What is not yet known is an error, never an empty answer: no objects would
read as no load.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuscale.core.clock import Clock
from gpuscale.core.errors import UnavailableError
from gpuscale.kube.connection import JsonObject, KubeConnection
from gpuscale.kube.reflect import Reflector, ReflectorState
from gpuscale.kube.settings import KubeSettings
from gpuscale.objects.selectors import Selector

_MAX_REMEMBERED = 4096
"""Answers that are kept until an object comes, goes or changes its labels."""


class ObjectsUnavailableError(UnavailableError):
    """It is not known which objects there are."""


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
        """Return where the API server lists them, over all namespaces."""
        prefix = f"/apis/{self.group}" if self.group else "/api"
        return f"{prefix}/{self.version}/{self.plural}"

    @property
    def params(self) -> dict[str, str]:
        """Return what is asked for beside the path."""
        return {"fieldSelector": self.field_selector} if self.field_selector else {}

    def __str__(self) -> str:
        name = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{name}({self.field_selector})" if self.field_selector else name


@dataclass(frozen=True, slots=True)
class CopyState:
    """How one copy does."""

    collection: Collection
    objects: int
    state: ReflectorState


@dataclass(frozen=True, slots=True)
class ObjectRecord:
    """What is kept of an object."""

    namespace: str
    """Empty for an object that has none."""
    name: str
    labels: Mapping[str, str]


class ObjectCopies:
    """Copies of the resources that were asked for. `run` keeps them up.

    Args:
        connection: to the API server; one that reads metadata only, where there is one.
        settings: waits and sizes.
        clock: of the waits.
        first_list_wait_s: how long the first to ask for a resource waits for its list, in the machine's
            seconds.
    """

    def __init__(
        self,
        connection: KubeConnection,
        settings: KubeSettings,
        clock: Clock,
        first_list_wait_s: float = 10.0,
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._clock = clock
        self._first_list_wait_s = first_list_wait_s
        self._copies: dict[Collection, _Copy] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Keep all copies up for as long as the task lives, those that are still to come too."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                await asyncio.Event().wait()
            finally:
                self._group = None

    async def ready(self, collection: Collection) -> None:
        """Begin a copy if there is none, and return once it is there.

        Raises:
            ObjectsUnavailableError: it is not there after the wait, or can't be had.
        """
        copy = self._copies.get(collection) or self._begin(collection)
        if copy.reflector.state.listed:
            return
        try:
            async with asyncio.timeout(self._first_list_wait_s):
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
        """Return how each copy does, sorted by resource."""
        found = (
            CopyState(collection, len(copy.reflector.items), copy.reflector.state)
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
        copy = _Copy(self._connection, self._settings, collection, self._clock)
        self._copies[collection] = copy
        self._group.create_task(copy.reflector.run(), name=f"watch {collection}")
        return copy


class _Copy:
    """One resource's objects, by namespace."""

    def __init__(
        self,
        connection: KubeConnection,
        settings: KubeSettings,
        collection: Collection,
        clock: Clock,
    ) -> None:
        self.collection = collection
        self.tried = asyncio.Event()
        """Set once the first list came, or failed."""
        self.reflector: Reflector[ObjectRecord] = Reflector(
            connection,
            settings,
            collection.path,
            collection.params,
            self._read,
            clock,
            self._changed,
        )
        self._index = _Index()
        self._is_stale = True
        self._differs = False
        """Whether something was read since the last change that the index does not hold."""

    def check(self) -> None:
        """Raise where there was no list yet; a copy that is no longer kept up still counts."""
        state = self.reflector.state
        if not state.listed:
            reason = state.error or "the API server has not listed them yet"
            raise ObjectsUnavailableError(f"{self.collection} are not known: {reason}")

    def names(self, namespace: str, selector: Selector) -> tuple[str, ...]:
        """Return the names of the selected objects, sorted."""
        return self._current().names(namespace, selector)

    def records(self, namespace: str | None, selector: Selector) -> tuple[ObjectRecord, ...]:
        """Return the selected objects, sorted by namespace and name; None is every namespace."""
        return self._current().records(namespace, selector)

    def _current(self) -> "_Index":
        if self._is_stale:
            self._index = _Index.of(self.reflector.items.values())
            self._is_stale = False
        return self._index

    def _read(self, body: JsonObject) -> ObjectRecord | None:
        found = _named(body)
        if (
            found is not None
            and self.reflector.items.get(f"{found.namespace}/{found.name}") != found
        ):
            self._differs = True
        return found

    def _changed(self) -> None:
        if self._differs or len(self.reflector.items) != self._index.count:
            self._is_stale, self._differs = True, False
        self.tried.set()


@dataclass(slots=True)
class _Index:
    """Objects by namespace, and the answers that were already given from them."""

    count: int = 0
    by_namespace: dict[str, list[ObjectRecord]] = field(default_factory=dict)
    answers: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def of(items: Iterable[ObjectRecord]) -> "_Index":
        index = _Index()
        for item in sorted(items, key=lambda each: each.name):
            index.by_namespace.setdefault(item.namespace, []).append(item)
            index.count += 1
        return index

    def names(self, namespace: str, selector: Selector) -> tuple[str, ...]:
        key = (namespace, str(selector))
        if key not in self.answers:
            if len(self.answers) >= _MAX_REMEMBERED:
                self.answers.clear()
            self.answers[key] = tuple(each.name for each in self.records(namespace, selector))
        return self.answers[key]

    def records(self, namespace: str | None, selector: Selector) -> tuple[ObjectRecord, ...]:
        places = sorted(self.by_namespace) if namespace is None else (namespace,)
        return tuple(
            each
            for place in places
            for each in self.by_namespace.get(place, ())
            if selector.matches(each.labels)
        )


def _named(body: JsonObject) -> ObjectRecord | None:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return None
    labels = metadata.get("labels")
    pairs = labels.items() if isinstance(labels, dict) else ()
    return ObjectRecord(
        str(metadata.get("namespace") or ""),
        metadata["name"],
        {str(key): str(value) for key, value in pairs},
    )
