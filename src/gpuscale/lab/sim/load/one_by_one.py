"""A service that serves its requests one by one: servers, a queue, and clients that give up.

The ready pods' servers are one group, as behind a balancer that knows which is free. Every request draws its
own service time, or has a place in a batch (`lab.sim.load.batches`); one that is being served when its pod
goes is still served to its end. Nothing is averaged, so waits, latencies and the queue are those of the
model: M/M/c, M/D/c or whatever the scenario makes of it.
"""

from collections import deque

from gpuscale.base.loads import Load
from gpuscale.lab.queueing.tally import Spread, WaitTally
from gpuscale.lab.sim.load.arrivals import Arrivals, Draw
from gpuscale.lab.sim.load.batches import Batches
from gpuscale.lab.sim.load.costs import ServiceModel
from gpuscale.lab.sim.load.servers import Servers, Slots
from gpuscale.lab.sim.load.service import SimulatedService

MAX_REQUESTS = 1_000_000
"""Of one service in a run, two to four seconds of work; beyond it `SimulatedService` takes theory's waits."""


class OneByOne(SimulatedService):
    """One Deployment's requests, served one by one.

    Args:
        model: cost of a request.
        load: requests over scenario time.
        start_ms: when the scenario starts.
        draw: random numbers for service times, or for the tokens of requests.
        arrivals: when requests come.
    """

    is_one_by_one = True

    def __init__(
        self, model: ServiceModel, load: Load, start_ms: int, draw: Draw, arrivals: Arrivals
    ) -> None:
        super().__init__(model, load, start_ms)
        self.seen = WaitTally()
        """Latencies of those that were served."""
        self.waiting_s = 0.0
        """Time that requests spent in the line, of all of them together."""
        self._arrivals = arrivals
        self._batches = Batches(model.batching, draw) if model.batching else None
        times, per_pod = model.server_times, model.servers_per_pod
        gpu_ratio = model.seconds_per_request / times.mean
        self._servers: Servers = self._batches or Slots(per_pod, times, draw, gpu_ratio)
        self.line: deque[float] = deque()
        """Seconds at which those came that wait."""
        self._at_s = 0.0
        self._busy_area_s = 0.0

    @property
    def in_service(self) -> float:
        """Return the number of requests in service."""
        return self._servers.count

    @property
    def kv_used(self) -> float | None:
        if self._batches is None:
            return None
        return self._batches.kv_used((self._now_ms - self._start_ms) / 1000)

    @property
    def answered_s(self) -> float:
        return (self.seen.mean_s or 0.0) * self.seen.count if self._batches else super().answered_s

    @property
    def latencies(self) -> Spread:
        return self.seen

    def _pass(self, now_ms: int, ready_pods: int) -> None:
        step_s = (now_ms - self._now_ms) / 1000
        if step_s <= 0:
            return
        from_s, to_s = (self._now_ms - self._start_ms) / 1000, (now_ms - self._start_ms) / 1000
        self._now_ms = now_ms
        before_s = self._busy_area_s
        self._servers.staff(ready_pods, from_s)
        room = ready_pods * self.model.largest_rate * step_s
        self._count_short(
            self._load.requests_until(to_s) - self._load.requests_until(from_s), room, step_s
        )
        self._begin(from_s)
        for moment in self._arrivals.between(from_s, to_s):
            self._finish(moment)
            self._come(moment)
        self._finish(to_s)
        self._go_to(to_s)
        self._give_up(to_s)
        self.waiting = float(len(self.line))
        if ready_pods:
            busy_s = (self._busy_area_s - before_s) * self._servers.gpu_ratio
            self._unkept_s += busy_s / ready_pods

    def _come(self, moment_s: float) -> None:
        self._go_to(moment_s)
        self.arrived += 1
        self._unkept_requests += 1
        if not self.line and self._servers.has_room():
            self._serve(moment_s, moment_s)
            return
        self._give_up(moment_s)
        if len(self.line) + 1 > self.model.queue_limit:
            self.rejected += 1
        else:
            self.line.append(moment_s)

    def _finish(self, until_s: float) -> None:
        """Finish the requests that end by a given time, and start others on their servers."""
        while (moment_s := self._servers.next_end_s()) <= until_s:
            self._go_to(moment_s)
            ended = self._servers.end_next()
            self.served += 1
            if ended is not None:
                self.waits.add(ended.began_s - ended.came_s)
                self.seen.add(moment_s - ended.came_s)
            self._begin(moment_s)

    def _begin(self, moment_s: float) -> None:
        """Start waiting requests on the free servers."""
        if self.line:
            self._give_up(moment_s)
        while self.line and self._servers.has_room():
            self._serve(self.line.popleft(), moment_s)

    def _serve(self, came_s: float, moment_s: float) -> None:
        took_s = self._servers.take(came_s, moment_s)
        if took_s is not None:
            self.waits.add(moment_s - came_s)
            self.seen.add(moment_s - came_s + took_s + self.model.after_seconds)

    def _give_up(self, moment_s: float) -> None:
        while self.line and moment_s - self.line[0] > self.model.timeout_s:
            came_s = self.line.popleft()
            self._servers.forget()
            self.timed_out += 1
            # Its client gave up at the end of its patience, maybe before this look.
            self.waiting_s -= moment_s - came_s - self.model.timeout_s

    def _go_to(self, moment_s: float) -> None:
        elapsed_s = moment_s - self._at_s
        self._busy_area_s += elapsed_s * self._servers.working
        self.waiting_s += elapsed_s * len(self.line)
        self._at_s = moment_s
