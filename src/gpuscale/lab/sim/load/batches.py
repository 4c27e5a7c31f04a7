"""Pods that process requests in batches: the larger the batch, the slower each request.

A request joins the ready pod whose batch holds the fewest tokens, as soon as there is a place and, with a KV
cache, room for its prompt and all of its output. What is in a batch of n goes on at 1 / T(n), so a request
that comes or ends changes the pace of all others there. The rest follows from the curve.
"""

import heapq
import math
from dataclasses import dataclass, field

from gpuscale.lab.queueing.batching import Batching
from gpuscale.lab.sim.load.arrivals import Draw
from gpuscale.lab.sim.load.servers import Ended


@dataclass(order=True, slots=True)
class _Request:
    """A request in a batch, ordered by the pod's progress at which it ends."""

    done_at: float
    number: int
    ended: Ended = field(compare=False)
    tokens: float = field(compare=False)
    """Of its output."""
    size: float = field(compare=False)
    """Its work, in requests of the mean size."""


@dataclass(slots=True, eq=False)
class _Pod:
    at_s: float
    """Until when `progress` is computed."""
    progress: float = 0.0
    """Work that each request had which was in the batch all the time."""
    reserved: float = 0.0
    """Tokens that the batch needs in the cache at the most."""
    is_open: bool = True
    version: int = 0
    """Counts changes of the batch."""
    batch: list[_Request] = field(default_factory=list)
    """A heap."""


class Batches:
    """The batches of a service's pods.

    Args:
        batching: the curve, and what requests are like.
        draw: random numbers for the tokens of requests.
    """

    gpu_ratio = 1.0
    """A batch of one keeps a GPU as busy as a full one; DCGM_FI_DEV_GPU_UTIL shows no difference."""

    def __init__(self, batching: Batching, draw: Draw) -> None:
        self.count = 0
        self.working = 0
        self._batching = batching
        self._draw = draw
        self._pods: list[_Pod] = []
        """Those that take requests, oldest first."""
        self._head: float | None = None
        """Output tokens of the head of the line, once anyone asked."""
        self._taken = 0
        self._ends: list[tuple[float, int, int, _Pod]] = []
        """When the next request of a pod is done; void where the pod has another version."""
        self._freest: list[tuple[float, int, int, _Pod]] = []
        """Pods by the tokens that they hold, or by their requests; void likewise."""

    def staff(self, ready_pods: int, moment_s: float) -> None:
        while len(self._pods) > ready_pods:
            self._pods.pop().is_open = False
        while len(self._pods) < ready_pods:
            self._pods.append(_Pod(moment_s))
            self._offer(self._pods[-1])

    def has_room(self) -> bool:
        return self._choose() is not None

    def take(self, came_s: float, moment_s: float) -> None:
        pod = self._choose()
        if pod is None or self._head is None:
            return
        batching, tokens = self._batching, self._head
        self._head = None
        self._go_on(pod, moment_s)
        size = tokens / batching.output_tokens.mean
        self._taken += 1
        request = _Request(pod.progress + size, self._taken, Ended(came_s, moment_s), tokens, size)
        heapq.heappush(pod.batch, request)
        pod.reserved += batching.prompt_tokens + tokens
        self.count += 1
        self.working += len(pod.batch) == 1
        self._changed(pod)

    def forget(self) -> None:
        self._head = None

    def next_end_s(self) -> float:
        ends = self._ends
        while ends and ends[0][2] != ends[0][3].version:
            heapq.heappop(ends)
        return ends[0][0] if ends else math.inf

    def end_next(self) -> Ended:
        moment_s, _, _, pod = self._ends[0]
        self._go_on(pod, moment_s)
        request = heapq.heappop(pod.batch)
        pod.progress = max(pod.progress, request.done_at)
        pod.reserved -= self._batching.prompt_tokens + request.tokens
        self.count -= 1
        self.working -= not pod.batch
        self._changed(pod)
        return request.ended

    def kv_used(self, now_s: float) -> float | None:
        """Return the used share of the ready pods' KV caches, from 0 to 1; None without a cache size."""
        room = self._batching.kv_tokens
        if room is None or not self._pods:
            return None
        held = sum(self._held(pod, now_s) for pod in self._pods)
        return min(1.0, held / room / len(self._pods))

    def _held(self, pod: _Pod, now_s: float) -> float:
        """Return a batch's tokens: prompts, and the output so far."""
        if not pod.batch:
            return 0.0
        pace = 1 / self._batching.curve.seconds(len(pod.batch))
        progress = pod.progress + (now_s - pod.at_s) * pace
        done = (min(1.0, 1 - (each.done_at - progress) / each.size) for each in pod.batch)
        return sum(
            self._batching.prompt_tokens + share * each.tokens
            for share, each in zip(done, pod.batch, strict=True)
        )

    def _choose(self) -> _Pod | None:
        """Return the pod for the first request in the queue; None if it must wait."""
        tokens = self._batching.output_tokens
        if self._head is None:
            self._head = tokens.at(self._draw()) if tokens.spread else tokens.mean
        freest = self._freest
        while freest and (freest[0][2] != freest[0][3].version or not freest[0][3].is_open):
            heapq.heappop(freest)
        if not freest:
            return None
        pod, room = freest[0][3], self._batching.kv_tokens
        if room is None or not pod.batch:  # a request larger than the cache is served alone
            return pod
        return pod if pod.reserved + self._batching.prompt_tokens + self._head <= room else None

    def _go_on(self, pod: _Pod, moment_s: float) -> None:
        if pod.batch:
            seconds = self._batching.curve.seconds(len(pod.batch))
            pod.progress += (moment_s - pod.at_s) / seconds
        pod.at_s = moment_s

    def _changed(self, pod: _Pod) -> None:
        pod.version += 1
        if pod.batch:
            left = max(0.0, pod.batch[0].done_at - pod.progress)
            end_s = pod.at_s + left * self._batching.curve.seconds(len(pod.batch))
            heapq.heappush(self._ends, (end_s, pod.batch[0].number, pod.version, pod))
        else:
            pod.progress = 0.0  # so that it stays exact over weeks
        self._offer(pod)

    def _offer(self, pod: _Pod) -> None:
        if pod.is_open and len(pod.batch) < self._batching.curve.largest:
            self._taken += 1
            heapq.heappush(self._freest, (pod.reserved, self._taken, pod.version, pod))
