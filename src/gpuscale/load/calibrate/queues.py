"""Queue models of a replica, replayed on given arrivals: the end of each request.

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
        """Return the largest sustainable rate in requests per second."""
        ...

    @property
    def slots(self) -> int:
        """Return the largest number of requests in service at once."""
        ...

    @property
    def words(self) -> str:
        """Return a description for a report."""
        ...

    def with_capacity(self, capacity: float) -> "Queue":
        """Return the queue with another capacity."""
        ...

    def answers(self, arrivals: Sequence[float], shape: Sequence[float]) -> Iterator[Answered]:
        """Yield each request's end.

        Args:
            arrivals: seconds, ascending.
            shape: how long each request takes, where 1 is the mean; as many as arrivals.
        """
        ...


@dataclass(frozen=True, slots=True)
class SlotQueue:
    """Workers that serve one request each, first come first served, plus a delay without worker."""

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
        """Return the queue with another capacity."""
        return replace(self, capacity=capacity)

    def answers(self, arrivals: Sequence[float], shape: Sequence[float]) -> Iterator[Answered]:
        """Yield each request's end."""
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
    """Processor sharing: up to `alone` requests run at full speed, more of them slower in proportion."""

    capacity: float
    alone: float
    """Requests that don't slow each other down."""
    base_s: float
    """Mean latency without load."""

    @property
    def slots(self) -> int:
        """Return a generous limit, as a service with threads has one somewhere."""
        return max(1, round(self.alone)) * 16

    @property
    def words(self) -> str:
        """Return what it is."""
        return f"requests share the replica; {self.alone:.3g} don't slow each other down"

    def with_capacity(self, capacity: float) -> "SharedQueue":
        """Return the queue with another capacity."""
        return replace(self, capacity=capacity)

    def answers(self, arrivals: Sequence[float], shape: Sequence[float]) -> Iterator[Answered]:
        """Yield each request's end, in order of ends.

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
    """Lanes with one request each that slow each other down, first come first served.

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
        """Return by which share each further request slows the others."""
        return max(0.0, self._full_s / self.base_s - 1) / max(1, self.slots - 1)

    @property
    def _full_s(self) -> float:
        """Return a request's duration while all lanes are busy."""
        return self.slots / self.capacity

    @property
    def words(self) -> str:
        """Return what it is."""
        return (
            f"{self.slots} requests at a time that slow each other down: {1000 * self.base_s:.3g} ms alone, "
            f"{1000 * self._full_s:.3g} ms with {self.slots} at work"
        )

    def with_capacity(self, capacity: float) -> "LaneQueue":
        """Return the queue with another capacity."""
        return replace(self, capacity=capacity)

    def answers(self, arrivals: Sequence[float], shape: Sequence[float]) -> Iterator[Answered]:
        """Yield each request's end, in order of ends.

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
    """Batching: all waiting requests, up to `slots`, form the next batch; larger batches take longer."""

    capacity: float
    slots: int
    base_s: float
    """Latency without load: a batch of one."""

    @property
    def seconds(self) -> tuple[float, float]:
        """Return a batch's duration, and what each request adds to it."""
        full = self.slots / self.capacity
        each = max(0.0, (full - self.base_s) / max(1, self.slots - 1))
        return full - each * self.slots, each

    @property
    def words(self) -> str:
        """Return what it is."""
        fixed, each = self.seconds
        return f"batches of up to {self.slots}, {1000 * fixed:.3g} ms + {1000 * each:.3g} ms for each request"

    def with_capacity(self, capacity: float) -> "BatchQueue":
        """Return the queue with another capacity."""
        return replace(self, capacity=capacity)

    def answers(self, arrivals: Sequence[float], shape: Sequence[float]) -> Iterator[Answered]:
        """Yield each request's end; durations follow from the batch, not from the request's own shape."""
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
    """Return Poisson arrivals at one request a second; an equal seed gives equal arrivals."""
    draw = stream(seed, "arrivals").expovariate
    now, times = 0.0, []
    for _ in range(count):
        now += draw(1.0)
        times.append(now)
    return tuple(times)


def shapes(spread: Sequence[float], count: int, seed: int) -> tuple[float, ...]:
    """Return relative durations of requests (mean 1), drawn from measured ones.

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
