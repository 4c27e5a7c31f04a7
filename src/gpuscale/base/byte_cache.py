"""Caches with limits on bytes: each has its own, and an accountant limits their sum.

What a cache holds often comes from outside: texts of requests, names, answers. A bound on the number of
entries is no bound then, as one of them may be as large as a request. An entry above `MAX_ENTRY_BYTES` is not
kept at all, so that a few large ones cannot push out what others use.

Threads may share a cache.
"""

import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import wraps
from typing import Generic, TypeVar, cast

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MAX_TEXT = 4 * 1024
"""Characters of a text up to which anything is remembered for it."""
MAX_ENTRY_BYTES = 64 * 1024
"""Of what is remembered for one such text."""
ENTRY_BYTES = 200
"""What an entry takes besides its key and value: its place in the table, the number of its bytes."""
MAX_BYTES = 24 * 1024 * 1024
"""Of all caches together, with what is held beside them."""
_LEAST_SHARE = 0.25
"""Of these bytes, which caches have however much is held beside them."""


class Accountant:
    """Keeps the sum of all caches below a number of bytes.

    Args:
        most_bytes: where they have more, the largest cache drops what was used longest ago.
    """

    def __init__(self, most_bytes: int = MAX_BYTES) -> None:
        self.most_bytes = most_bytes
        self.lock = threading.RLock()
        """Held while a cache is changed."""
        self._caches: weakref.WeakSet[ByteCache[Hashable, object]] = weakref.WeakSet()
        self._held: dict[str, int] = {}

    def add(self, cache: "ByteCache[K, V]") -> None:
        """Register a cache while it is referenced."""
        self._caches.add(cast("ByteCache[Hashable, object]", cache))

    def hold(self, name: str, size: int) -> None:
        """Reserve bytes that no cache can free; caches shrink accordingly.

        Args:
            name: in metrics, in place of what was held under it before.
            size: in bytes.
        """
        with self.lock:
            self._held[name] = size
            self.balance()

    def balance(self) -> None:
        """Shrink caches until their sum is within the limit."""
        held = sum(self._held.values())
        most = max(self.most_bytes - held, round(_LEAST_SHARE * self.most_bytes))
        while sum(cache.bytes for cache in self._caches) > most:
            max(self._caches, key=lambda cache: cache.bytes).drop_oldest()

    def bytes_by_name(self) -> dict[str, int]:
        """Return the bytes of caches and reservations by name, sorted."""
        found = dict(self._held)
        for cache in self._caches:
            found[cache.name] = found.get(cache.name, 0) + cache.bytes
        return dict(sorted(found.items()))

    def total(self) -> int:
        """Return the total bytes of caches and reservations."""
        return sum(cache.bytes for cache in self._caches) + sum(self._held.values())


ACCOUNTANT = Accountant()
"""Of this process."""


class ByteCache(Generic[K, V]):
    """A cache of values by key; the least recently used go first.

    Args:
        name: in metrics.
        most_bytes: of keys, values and what holds them, as far as it is known.
        accountant: of the bytes of all caches.
        most_entry_bytes: a larger entry is not kept.
    """

    def __init__(
        self,
        name: str,
        most_bytes: int,
        accountant: Accountant = ACCOUNTANT,
        most_entry_bytes: int = MAX_ENTRY_BYTES,
    ) -> None:
        self.name = name
        self.bytes = 0
        self._most_bytes = most_bytes
        self._most_entry_bytes = most_entry_bytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._accountant = accountant
        accountant.add(self)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[K]:
        """Yield the keys, least recently used first."""
        return iter(self._entries)

    def get(self, key: K) -> V | None:
        """Return the value of a key; None where there is none."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        with suppress(KeyError):  # another thread has made room meanwhile
            self._entries.move_to_end(key)
        return entry[0]

    def peek(self, key: K) -> V | None:
        """Return the value of a key, without marking it as used."""
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def put(self, key: K, value: V, size: int) -> bool:
        """Store a value, and return whether there was room.

        Args:
            key: of the value.
            value: not None.
            size: bytes of key and value, such as `deep_bytes` gives.
        """
        size += ENTRY_BYTES
        with self._accountant.lock:
            self.drop(key)
            if size > self._most_entry_bytes:
                return False
            self._entries[key] = (value, size)
            self.bytes += size
            while self.bytes > self._most_bytes:
                self.drop_oldest()
            self._accountant.balance()
            return key in self._entries

    def resize(self, key: K, size: int) -> None:
        """Update the size of a key's value, without marking it as used."""
        with self._accountant.lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries[key] = (entry[0], size + ENTRY_BYTES)
                self.bytes += size + ENTRY_BYTES - entry[1]

    def drop(self, key: K) -> None:
        with self._accountant.lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                self.bytes -= entry[1]

    def drop_oldest(self) -> None:
        """Drop the least recently used value."""
        with self._accountant.lock:
            _, (_, size) = self._entries.popitem(last=False)
            self.bytes -= size

    def clear(self) -> None:
        """Forget everything."""
        with self._accountant.lock:
            self._entries.clear()
            self.bytes = 0


def remembered(
    name: str, most_bytes: int, size: Callable[[object], int] | None = None
) -> Callable[[Callable[[str], V]], Callable[[str], V]]:
    """Return a decorator that caches a function of texts, up to `MAX_TEXT` characters long.

    Args:
        name: of the cache in metrics.
        most_bytes: of the cache.
        size: bytes of a value; None is `deep_bytes`.
    """
    measure = size or deep_bytes

    def decorate(function: Callable[[str], V]) -> Callable[[str], V]:
        cache: ByteCache[str, V] = ByteCache(name, most_bytes)

        @wraps(function)
        def call(text: str) -> V:
            found = cache.get(text)
            if found is None:
                found = function(text)
                if len(text) <= MAX_TEXT:
                    cache.put(text, found, deep_bytes(text) + measure(found))
            return found

        return call

    return decorate


def deep_bytes(value: object) -> int:
    """Return the bytes of texts, numbers, collections and dataclasses with all that is in them.

    What is in there twice counts twice; members of an Enum, which are there anyway, count nothing.
    """
    # The exact type first: this runs for every cached answer, and most are tuples of texts.
    kind = type(value)
    if kind in _PLAIN:
        return sys.getsizeof(value)
    if value is None or isinstance(value, _THERE_ANYWAY):
        return 0
    size = sys.getsizeof(value)
    if kind is tuple:
        return size + sum(map(deep_bytes, cast("tuple[object, ...]", value)))
    names = _FIELDS.get(kind)
    if names is None:
        names = tuple(each.name for each in fields(value)) if is_dataclass(value) else ()
        _FIELDS[kind] = names
    if names:
        return size + sum([deep_bytes(getattr(value, name)) for name in names])
    if isinstance(value, dict):
        return size + sum(deep_bytes(key) + deep_bytes(each) for key, each in value.items())
    if isinstance(value, tuple | list | set | frozenset):
        return size + sum(map(deep_bytes, value))
    return size


_PLAIN = frozenset({str, bytes, int, float})
_THERE_ANYWAY = (bool, Enum, type)

_FIELDS: dict[type, tuple[str, ...]] = {}
"""Of each class that was met; empty for one that is no dataclass."""
