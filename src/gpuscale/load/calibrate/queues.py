"""Queues that a replica may be, replayed on given arrivals: when each request would be answered.

A replay has the very arrivals that a level had, so chance in them is in both, and a few seconds of load
say as much about a service as minutes would in a comparison with a formula.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from gpuscale.base.streams import stream

Answered = tuple[float, float]
"""When a request is answered, and how long after it was due; seconds."""


class Queue(Protocol):
    """One replica as a queue."""

    @property
    def capacity(self) -> float:
        """Return the largest rate that it keeps up with, requests per second."""
        ...

    @property
    def slots(self) -> int:
        """Return how many requests it works on at once, at most."""
        ...

    @property
    def words(self) -> str:
        """Return what it is, for a report."""
        ...

    def with_capacity(self, capacity: float) -> "Queue":
        """Return the same queue with another capacity."""
        ...

    def answers(self, arrivals: Sequence[float], shape: Sequence[float]) -> Iterator[Answered]:
        """Yield each request's answer.

        Args:
            arrivals: seconds, ascending.
            shape: how long each request takes, where 1 is the mean; as many as arrivals.
        """
        ...


@dataclass(frozen=True, slots=True)
class SlotQueue:
    """Workers with one request each, the longest waiting first; and a delay that takes no worker."""

    capacity: float
    slots: int
    base_s: float
    """Mean latency without load."""

    @property
    def service_s(self) -> float:
        """Return how long a request holds its worker."""
        return self.slots / self.capacity

    @property
    def words(self) -> str:
        """Return what it is."""
        if self.slots == 1:
            return f"one request at a time, {1000 * self.service_s:.3g} ms each"
        return f"{self.slots} requests at a time, {1000 * self.service_s:.3g} ms each"

    def with_capacity(self, capacity: float) -> "SlotQueue":
        """Return the same queue with another capacity."""
        return replace(self, capacity=capacity)

    def answers(self, arrivals: Sequence[float], shape: Sequence[float]) -> Iterator[Answered]:
        """Yield each request's answer."""
        service, beside = self.service_s, max(0.0, self.base_s - self.service_s)
        if self.slots == 1:
            free = 0.0
            for due, part in zip(arrivals, shape, strict=True):
                free = (max(free, due)) + service * part
                yield free + beside, free + beside - due
            return
        ends = [0.0] * self.slots
        heapify(ends)
        for due, part in zip(arrivals, shape, strict=True):
            end = max(due, ends[0]) + service * part
            heapreplace(ends, end)
            yield end + beside, end + beside - due


@dataclass(frozen=True, slots=True)
class SharedQueue:
    """Requests that share the replica: up to `alone` at full speed, more of them slower in proportion."""

    capacity: float
    alone: float
    """Requests that don't slow each other down."""
    base_s: float
    """Mean latency without load."""

    @property
    def slots(self) -> int:
        """Return a bound that a service with threads has somewhere; it hardly matters."""
        return max(1, round(self.alone)) * 16

    @property
    def words(self) -> str:
        """Return what it is."""
        return f"requests share the replica; {self.alone:.3g} don't slow each other down"

    def with_capacity(self, capacity: float) -> "SharedQueue":
        """Return the same queue with another capacity."""
        return replace(self, capacity=capacity)

    def answers(self, arrivals: Sequence[float], shape: Sequence[float]) -> Iterator[Answered]:
        """Yield each request's answer, in the order of answers.

        All requests get the same share, so their order is that of the work done for each since time 0 at
        which they are finished; a heap keeps it (processor sharing in virtual time).
        """
        service = self.alone / self.capacity
        beside = max(0.0, self.base_s - service)
        working: list[tuple[float, float]] = []
        now = done = 0.0
        for due, part in zip((*arrivals, float("inf")), (*shape, 0.0), strict=True):
            while working:
                speed = min(1.0, self.alone / len(working))
                end = now + (working[0][0] - done) / speed
                if end > due:
                    break
                done, start = heappop(working)
                now = end
                yield end + beside, end + beside - start
            if working:
                done += (due - now) * min(1.0, self.alone / len(working))
            now = due
            heappush(working, (done + service * part, due))


@dataclass(frozen=True, slots=True)
class LaneQueue:
    """Lanes with one request each that slow each other down, the longest waiting first.

    Threads of one interpreter are such lanes: what holds its lock is done by one at a time. Of `n` at work
    each runs at 1 / (1 + part (n - 1)) of its speed alone, so with a part of 1 more lanes do no more, and
    beyond 1 less (threads that keep handing the lock over). That is Amdahl's law with a serial part, in the
    form of N. Gunther, "A Simple Capacity Model of Massively Parallel Transaction Systems", CMG 1993.
    """

    capacity: float
    slots: int
    base_s: float
    """Mean latency without load: what a request takes while no other one is at work."""

    @property
    def part(self) -> float:
        """Return how much each further request at work slows the others down, as a share."""
        return max(0.0, self._full_s / self.base_s - 1) / max(1, self.slots - 1)

    @property
    def _full_s(self) -> float:
        """Return what a request takes while all lanes are at work."""
        return self.slots / self.capacity

    @property
    def words(self) -> str:
        """Return what it is."""
        return (
            f"{self.slots} requests at a time that slow each other down: {1000 * self.base_s:.3g} ms alone, "
            f"{1000 * self._full_s:.3g} ms with {self.slots} at work"
        )

    def with_capacity(self, capacity: float) -> "LaneQueue":
        """Return the same queue with another capacity."""
        return replace(self, capacity=capacity)

    def answers(self, arrivals: Sequence[float], shape: Sequence[float]) -> Iterator[Answered]:
        """Yield each request's answer, in the order of answers.

        All that are at work get the same speed, so a heap keeps the order of their ends, as in `SharedQueue`.
        """
        base_s, slower = self.base_s, self.part
        working: list[tuple[float, float]] = []
        waiting: deque[tuple[float, float]] = deque()
        now = done = 0.0
        for due, part in zip((*arrivals, float("inf")), (*shape, 0.0), strict=True):
            while working:
                end = now + (working[0][0] - done) * (1 + slower * (len(working) - 1))
                if end > due:
                    done += (due - now) / (1 + slower * (len(working) - 1))
                    break
                done, start = heappop(working)
                now = end
                yield end, end - start
                if waiting:
                    next_due, next_part = waiting.popleft()
                    heappush(working, (done + base_s * next_part, next_due))
            now = due
            if len(working) < self.slots:
                heappush(working, (done + base_s * part, due))
            else:
                waiting.append((due, part))


@dataclass(frozen=True, slots=True)
class BatchQueue:
    """A batch of all that waits, up to `slots`, then the next one; larger batches take longer."""

    capacity: float
    slots: int
    base_s: float
    """Latency without load: a batch of one."""

    @property
    def seconds(self) -> tuple[float, float]:
        """Return what a batch takes, and what each request adds to it."""
        full = self.slots / self.capacity
        each = max(0.0, (full - self.base_s) / max(1, self.slots - 1))
        return full - each * self.slots, each

    @property
    def words(self) -> str:
        """Return what it is."""
        fixed, each = self.seconds
        return f"batches of up to {self.slots}, {1000 * fixed:.3g} ms + {1000 * each:.3g} ms for each request"

    def with_capacity(self, capacity: float) -> "BatchQueue":
        """Return the same queue with another capacity."""
        return replace(self, capacity=capacity)

    def answers(self, arrivals: Sequence[float], shape: Sequence[float]) -> Iterator[Answered]:
        """Yield each request's answer; the batch decides how long each takes, not its shape."""
        fixed, each = self.seconds
        index, now, count = 0, 0.0, len(arrivals)
        while index < count:
            start = max(now, arrivals[index])
            last = index
            while last < count and last - index < self.slots and arrivals[last] <= start:
                last += 1
            now = start + fixed + each * (last - index)
            for due in arrivals[index:last]:
                yield now, now - due
            index = last


def poisson(count: int, seed: int) -> tuple[float, ...]:
    """Return arrivals at one request a second on average; the same seed gives the same ones."""
    draw = stream(seed, "arrivals").expovariate
    now, times = 0.0, []
    for _ in range(count):
        now += draw(1.0)
        times.append(now)
    return tuple(times)


def shapes(spread: Sequence[float], count: int, seed: int) -> tuple[float, ...]:
    """Return how long requests take, where 1 is the mean, drawn from what was measured.

    Args:
        spread: measured times, ascending; divided by their mean here.
        count: how many are wanted.
        seed: the same one gives the same ones.
    """
    mean = sum(spread) / len(spread)
    draw: Callable[[], float] = stream(seed, "service").random
    most = len(spread) - 1
    taken = []
    for _ in range(count):
        place = draw() * most
        index = min(int(place), most - 1) if most else 0
        low = spread[index]
        high = spread[min(index + 1, most)]
        taken.append((low + (high - low) * (place - index)) / mean)
    return tuple(taken)
