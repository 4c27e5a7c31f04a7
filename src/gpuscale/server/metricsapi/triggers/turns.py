"""Turns among namespaces: one that has much to ask does not make the others wait."""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class NamespaceTurns(Generic[T]):
    """Things to do, one namespace after the other; within one, what is new comes first."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, tuple[deque[T], deque[T]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, namespace: str, thing: T, *, is_first: bool = False) -> None:
        firsts, others = self._queues.setdefault(namespace, (deque(), deque()))
        (firsts if is_first else others).append(thing)
        self._count += 1

    def peek(self) -> T:
        """Return what `take` would."""
        firsts, others = next(iter(self._queues.values()))
        return (firsts or others)[0]

    def take(self) -> T:
        """Return the first thing of the namespace whose turn it is; there is one."""
        namespace, (firsts, others) = next(iter(self._queues.items()))
        thing = (firsts or others).popleft()
        self._count -= 1
        if firsts or others:
            self._queues.move_to_end(namespace)
        else:
            del self._queues[namespace]
        return thing


class RateBudget:
    """So many a second, and a second's worth at once, one at least.

    Args:
        per_s: how many.
        now_s: monotonic time.
    """

    def __init__(self, per_s: float, now_s: float) -> None:
        self._per_s = per_s
        self._most = max(1.0, per_s)
        self._left = self._most
        self._at_s = now_s

    def spend(self, count: int, now_s: float) -> bool:
        """Return whether something was left; one turn may run into debt, so that large ones come too."""
        self._left = min(self._most, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._left <= 0:
            return False
        self._left -= count
        return True
