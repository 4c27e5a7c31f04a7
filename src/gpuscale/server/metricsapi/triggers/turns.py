"""Fair turns between namespaces: one with many queries does not delay the others."""

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class NamespaceTurns(Generic[T]):
    """A queue with a turn for each namespace; within one, new items come first."""

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
        """Return what `take` would, and leave it in the queue."""
        firsts, others = next(iter(self._queues.values()))
        return (firsts or others)[0]

    def take(self) -> T:
        """Take the first item of the next namespace; the queue must not be empty."""
        namespace, (firsts, others) = next(iter(self._queues.items()))
        thing = (firsts or others).popleft()
        self._count -= 1
        if firsts or others:
            self._queues.move_to_end(namespace)
        else:
            del self._queues[namespace]
        return thing


class RateBudget:
    """A token bucket: a rate a second, and a burst of one second's worth, at least one.

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
        """Take tokens; return whether any were left. A large item may overdraw, or it would never run."""
        self._left = min(self._most, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._left <= 0:
            return False
        self._left -= count
        return True
