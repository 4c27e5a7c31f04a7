"""The object store of the live run's API server: versions, and a log of recent changes.

Nothing here knows the simulation: `take` gets all objects as they are now, and finds out itself what changed.
"""

import base64
import binascii
import json
import secrets
from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from gpuscale.base.errors import GpuscaleError

Json = dict[str, Any]
Key = tuple[str, str]
"""Namespace, empty where there is none, and name."""
MAX_CHANGES = 10_000
"""Changes that are kept for watches; a client that watches from before them has to list again."""
MAX_PAGED = 64
"""Lists that are being read page by page at the same time; the one not asked for the longest is dropped."""


class ExpiredError(GpuscaleError):
    """A resource version or list continuation is too old."""


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """An object that is not rendered to JSON yet."""

    resource: str
    """As `Kind.resource` has it."""
    namespace: str
    name: str
    known: tuple[object, ...]
    """All that its text is made of; equal facts give an equal text."""
    body: Callable[[], Json]


@dataclass(frozen=True, slots=True)
class Stored:
    """An object with its resource version."""

    resource: str
    key: Key
    version: int
    known: tuple[object, ...]
    body: Json


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """A change of one object."""

    version: int
    before: Stored | None
    """None where the object is new."""
    after: Stored | None
    """None where it is gone."""
    last: Stored
    """What a watch shows: the object now or, with the version of its end, before it went."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list."""

    items: tuple[Stored, ...]
    version: int
    token: str = ""
    """Where the next part begins; empty at the end."""
    remaining: int = 0


class Store:
    """All objects of a run.

    Args:
        first_version: which later runs at the same address don't go below, so that clients of an earlier
            run find out that their versions are gone.
    """

    def __init__(self, first_version: int) -> None:
        self.version = first_version
        self._objects: dict[str, dict[Key, Stored]] = {}
        self._changes: deque[ObjectChange] = deque(maxlen=MAX_CHANGES)
        self._dropped_version = first_version
        self._pages: OrderedDict[str, tuple[tuple[Stored, ...], int]] = OrderedDict()

    def take(self, facts: Iterable[ObjectFacts]) -> bool:
        """Set the store's content to these objects, and return whether anything changed."""
        before_version = self.version
        seen: dict[str, set[Key]] = {}
        for each in facts:
            key = (each.namespace, each.name)
            seen.setdefault(each.resource, set()).add(key)
            known = self._objects.setdefault(each.resource, {}).get(key)
            if known is None or known.known != each.known:
                self._write(each, key, known)
        for resource, objects in self._objects.items():
            for key in [key for key in objects if key not in seen.get(resource, ())]:
                self._delete(objects.pop(key))
        return self.version != before_version

    def get(self, resource: str, key: Key) -> Stored | None:
        return self._objects.get(resource, {}).get(key)

    def all(self, resource: str, namespace: str | None) -> list[Stored]:
        """Return a resource's objects, sorted by namespace and name; None means all namespaces."""
        objects = self._objects.get(resource, {})
        return [objects[key] for key in sorted(objects) if namespace is None or key[0] == namespace]

    def page(self, items: Iterable[Stored], limit: int) -> Page:
        """Return the first `limit` items of a list (0 for all); the rest is kept for the next pages."""
        return self._page(tuple(items), self.version, limit, 0, secrets.token_urlsafe(12))

    def next_page(self, token: str, limit: int) -> Page:
        """Return the page that a continuation token stands for.

        Raises:
            ExpiredError: the list is no longer kept.
            ValueError: not a token.
        """
        name, start = _read_token(token)
        if name not in self._pages:
            raise ExpiredError(
                "The provided continue parameter is too old to display a consistent list result. "
                "Start a new list without the continue parameter."
            )
        items, version = self._pages[name]
        return self._page(items, version, limit, start, name)

    def changes_since(self, version: int) -> list[ObjectChange]:
        """Return the changes after a resource version, oldest first.

        Raises:
            ExpiredError: that is too long ago, or was never reached.
        """
        if not self._dropped_version <= version <= self.version:
            what = "large" if version > self.version else "old"
            raise ExpiredError(f"too {what} resource version: {version} ({self.version})")
        start = bisect_right(self._changes, version, key=lambda each: each.version)
        return [self._changes[index] for index in range(start, len(self._changes))]

    def _page(
        self, items: tuple[Stored, ...], version: int, limit: int, start: int, name: str
    ) -> Page:
        end = len(items) if limit <= 0 else start + limit
        if end >= len(items):
            self._pages.pop(name, None)
            return Page(items[start:], version)
        self._pages[name] = (items, version)
        self._pages.move_to_end(name)
        while len(self._pages) > MAX_PAGED:
            self._pages.popitem(last=False)
        return Page(items[start:end], version, _token(name, end), len(items) - end)

    def _write(self, facts: ObjectFacts, key: Key, before: Stored | None) -> None:
        body = facts.body()
        objects = self._objects[facts.resource]
        if before is not None and _versioned(body, before.version) == before.body:
            # A controller that finds nothing new writes nothing to a real API server.
            objects[key] = replace(before, known=facts.known)
            return
        self.version += 1
        stored = Stored(
            facts.resource, key, self.version, facts.known, _versioned(body, self.version)
        )
        objects[key] = stored
        self._note(ObjectChange(self.version, before, stored, stored))

    def _delete(self, before: Stored) -> None:
        self.version += 1
        last = Stored(
            before.resource,
            before.key,
            self.version,
            before.known,
            _versioned(before.body, self.version),
        )
        self._note(ObjectChange(self.version, before, None, last))

    def _note(self, change: ObjectChange) -> None:
        if len(self._changes) == MAX_CHANGES:
            self._dropped_version = self._changes[0].version
        self._changes.append(change)


def _versioned(body: Json, version: int) -> Json:
    return {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}


def _token(name: str, start: int) -> str:
    return base64.urlsafe_b64encode(json.dumps([name, start]).encode()).decode()


def _read_token(token: str) -> tuple[str, int]:
    try:
        name, start = json.loads(base64.urlsafe_b64decode(token.encode()))
    except (ValueError, TypeError, RecursionError, binascii.Error):
        raise ValueError("continue key is not valid: it is none of this server's") from None
    if not isinstance(name, str) or not isinstance(start, int) or start < 0:
        raise ValueError("continue key is not valid: it is none of this server's")
    return name, start
