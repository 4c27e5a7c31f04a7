"""A service as a fluid queue: waiting work, saturation, and how busy each pod's GPUs are.

The model is a fluid one: requests flow at the load's rate, every ready pod works at a fixed largest rate,
what is not worked off waits. All ready pods share the work evenly, as behind a Service, so one number
says how busy each of them is. Requests are conserved: arrived = served + waiting + turned away + given up.

How long they wait is exact where work is left over: first come, first served. Below saturation a fluid never
waits, and requests that come at random do: that part is theory's (`lab.queueing.theory`).

Single requests, which come one by one from outside, join the same queue: each is one more that waits, and it
is served when as many were as stood before it, and itself.
"""

from bisect import bisect_right
from collections import deque

from gpuscale.base.loads import Load
from gpuscale.lab.queueing.tally import Latencies, Spread, WaitTally
from gpuscale.lab.queueing.theory import steady_wait
from gpuscale.lab.sim.load.costs import ServiceModel
from gpuscale.lab.sim.load.recent import RecentCount

_HISTORY = 600
"""Steps of busy time kept; readings look back by one collect interval, which is far shorter."""
_STRETCH_S = 10.0
"""The longest time over which a rate counts as steady."""
_MAX_COHORTS = 10_000
"""Steps of which it is known when their requests came; of a longer queue, two share a time."""
_LIKELY = 20
"""Service times that are looked at for all, each as likely."""
_ALMOST = 1e-9
"""What rounding may have added to a load that pods just carry."""


class SimulatedService:
    """One Deployment's requests over time.

    Args:
        model: cost of a request.
        load: requests over scenario time.
        start_ms: when the scenario starts.
    """

    is_one_by_one = False

    def __init__(self, model: ServiceModel, load: Load, start_ms: int) -> None:
        self.model = model
        self.waiting = 0.0
        self.arrived = 0.0
        self.served = 0.0
        self.rejected = 0.0
        self.timed_out = 0.0
        self.waits = WaitTally()
        """Of those that were served."""
        self.short_s = 0.0
        """For how long more came than the ready pods can do."""
        self.short_pod_s = 0.0
        """How many pods were missing then, times the seconds."""
        self.single = 0
        """Requests that came one by one, of those that arrived."""
        self.manual_rate: float | None = None
        """Set by hand; None follows the load."""
        self._load = load
        self._start_ms = start_ms
        self._now_ms = start_ms
        self._load_rate = 0.0
        self._recent = RecentCount()
        self._times_ms = [start_ms]
        self._busy_s = [0.0]
        self._unkept_s = 0.0
        self._unkept_requests = 0.0
        self._cohorts: deque[tuple[float, float]] = deque()
        """Of those that wait, from the front: the second that they came at, and how many."""
        self._in_cohorts = 0.0
        """How many that are together."""
        self._steady = 0.0
        self._steady_s = 0.0
        self._steady_pods = 0
        self._done_rate = 0.0
        self._pods = 0

    @property
    def in_service(self) -> float:
        """Return the mean number of requests in service, by Little's law."""
        batching = self.model.batching
        if batching is not None and self._pods:
            return self._pods * batching.curve.size_at(self._done_rate / self._pods)
        return self._done_rate * self.model.least_seconds

    @property
    def kv_used(self) -> float | None:
        """Return the used share of the ready pods' KV caches, from 0 to 1; None without a cache size."""
        batching = self.model.batching
        if batching is None or batching.kv_tokens is None or not self._pods:
            return None
        tokens = batching.prompt_tokens + batching.output_tokens.mean / 2
        return min(1.0, self.in_service / self._pods * tokens / batching.kv_tokens)

    @property
    def answered_s(self) -> float:
        """Return the total seconds from arrival to answer, over all served requests."""
        return self.waits.count * ((self.waits.mean_s or 0.0) + self.model.least_seconds)

    @property
    def latencies(self) -> Spread:
        """Return the distribution of seconds from arrival to answer."""
        self._settle()
        times, after_s = self.model.server_times, self.model.after_seconds
        count = _LIKELY if times.spread else 1
        likely = [times.at((number + 0.5) / count) + after_s for number in range(count)]
        return Latencies(self.waits, likely)

    @property
    def rate(self) -> float:
        """Return the requests per second: the load's over the last step, plus single requests."""
        return self._load_rate + self.single_rate

    @property
    def single_rate(self) -> float:
        """Return the rate of single requests over the last five seconds."""
        return self._recent.per_second(self._now_ms)

    def planned_rate(self, now_ms: int) -> float:
        """Return the scenario's rate, ignoring any set by hand."""
        return self._load.rate((now_ms - self._start_ms) / 1000)

    def advance(self, now_ms: int, ready_pods: int) -> None:
        """Advance to now with this many ready pods."""
        self._pass(now_ms, ready_pods)
        step_ms = now_ms - self._times_ms[-1]
        if step_ms > 0:
            self._load_rate = self._unkept_requests / (step_ms / 1000)
            self._times_ms.append(now_ms)
            self._busy_s.append(self._busy_s[-1] + self._unkept_s)
            if len(self._times_ms) > 2 * _HISTORY:
                del self._times_ms[:_HISTORY]
                del self._busy_s[:_HISTORY]
            self._unkept_s = self._unkept_requests = 0.0

    def join(self, now_ms: int, ready_pods: int) -> float | None:
        """Add a single request, and return its place: the number served when it is done.

        None where it was turned away: there is no ready pod, or the queue is full.
        """
        self._pass(now_ms, ready_pods)
        self.arrived += 1
        self.single += 1
        self._recent.add(now_ms)
        if not ready_pods or self.waiting + 1 > self.model.queue_limit:
            self.rejected += 1
            return None
        self.waiting += 1
        return self.served + self.waiting

    def served_at(self, now_ms: int, ready_pods: int) -> float:
        """Advance as `advance` does, and return the number of served requests."""
        self._pass(now_ms, ready_pods)
        return self.served

    def busy_ratio(self, from_ms: int, to_ms: int) -> float:
        """Return the share of a time span in which each ready pod's GPUs were busy, from 0 to 1."""
        if to_ms <= from_ms:
            return 0.0
        busy_s = self._busy_until(to_ms) - self._busy_until(from_ms)
        return min(1.0, busy_s * 1000 / (to_ms - from_ms))

    def _pass(self, now_ms: int, ready_pods: int) -> None:
        """Let requests arrive and be served; the busy time is kept for the next step of `advance`."""
        step_s = (now_ms - self._now_ms) / 1000
        if step_s <= 0:
            return
        if self.manual_rate is None:
            until, start_ms = self._load.requests_until, self._start_ms
            requests = until((now_ms - start_ms) / 1000) - until((self._now_ms - start_ms) / 1000)
        else:
            requests = self.manual_rate * step_s
        self._now_ms, self._pods = now_ms, ready_pods
        self.arrived += requests
        self._unkept_requests += requests
        room = ready_pods * self.model.largest_rate * step_s
        self._count_short(requests, room, step_s)
        done = min(self.waiting + requests, room)
        if self.waiting or done < requests:
            self._settle()
            done = self._work_off(requests, room, step_s)
        else:
            if ready_pods != self._steady_pods or self._steady_s >= _STRETCH_S:
                self._settle()
                self._steady_pods = ready_pods
            self._steady += requests
            self._steady_s += step_s
        self.served += done
        self._done_rate = done / step_s
        batching = self.model.batching
        if ready_pods and batching is not None:
            self._unkept_s += step_s * min(
                1.0, batching.curve.size_at(self._done_rate / ready_pods)
            )
        elif ready_pods:
            self._unkept_s += done * self.model.seconds_per_request / ready_pods

    def _count_short(self, requests: float, room: float, step_s: float) -> None:
        """Record a step with more arrivals than the pods can serve."""
        if requests > room * (1 + _ALMOST):
            self.short_s += step_s
            self.short_pod_s += (requests - room) / self.model.largest_rate

    def _settle(self) -> None:
        """Count the waits of the last period with a steady rate and no backlog."""
        if self._steady:
            model, pods = self.model, self._steady_pods
            times = model.server_times
            rate = self._steady / self._steady_s
            wait = steady_wait(pods * model.servers_per_pod, rate, times.mean, times.spread)
            self.waits.add_exponential(wait.chance, wait.mean_s, self._steady)
        self._steady = self._steady_s = 0.0

    def _work_off(self, requests: float, room: float, step_s: float) -> float:
        """Serve waiting requests in order, as capacity allows, and return how many."""
        now_s = self._now_ms / 1000
        begun_s = now_s - step_s
        cohorts, left = self._cohorts, room
        queued = self._in_cohorts
        others = self.waiting - queued
        if others > _ALMOST:
            cohorts.append((begun_s, others))
            queued += others
        while cohorts and now_s - cohorts[0][0] > self.model.timeout_s:
            count = cohorts.popleft()[1]
            self.timed_out += count
            queued -= count
        if requests:
            cohorts.append((begun_s + step_s / 2, requests))
            queued += requests
        while cohorts and left > 0:
            came_s, count = cohorts.popleft()
            taken = min(count, left)
            at_s = begun_s + step_s * (room - left + taken / 2) / room
            self.waits.add(max(0.0, at_s - came_s), taken)
            left -= taken
            if taken < count:
                cohorts.appendleft((came_s, count - taken))
        # Rounding errors must not add up: without cohorts nothing waits.
        self.waiting = max(0.0, queued - (room - left)) if cohorts else 0.0
        over = self.waiting - self.model.queue_limit
        if over > 0:
            # The latest arrivals are refused.
            self.rejected += over
            self.waiting = self.model.queue_limit
            while over > 0 and cohorts:
                came_s, count = cohorts.pop()
                if count > over:
                    cohorts.append((came_s, count - over))
                over -= count
        self._in_cohorts = self.waiting
        if len(cohorts) > _MAX_COHORTS:
            self._cohorts = _halved(cohorts)
        return room - left

    def _busy_until(self, time_ms: int) -> float:
        """Return the busy seconds up to a time, linear between steps."""
        index = bisect_right(self._times_ms, time_ms) - 1
        if index < 0:
            return self._busy_s[0]
        if index + 1 >= len(self._times_ms):
            return self._busy_s[-1]
        before_ms, after_ms = self._times_ms[index], self._times_ms[index + 1]
        share = (time_ms - before_ms) / (after_ms - before_ms)
        return self._busy_s[index] + (self._busy_s[index + 1] - self._busy_s[index]) * share


def _halved(cohorts: deque[tuple[float, float]]) -> deque[tuple[float, float]]:
    """Return the queue with half as many cohorts, merged in pairs at their mean time."""
    pairs = list(cohorts)
    odd = pairs[-1:] if len(pairs) % 2 else []
    merged = [
        ((first_s * one + second_s * other) / (one + other), one + other)
        for (first_s, one), (second_s, other) in zip(pairs[::2], pairs[1::2], strict=False)
    ]
    return deque(merged + odd)
