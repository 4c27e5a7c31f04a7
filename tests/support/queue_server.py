"""A replica whose theory is known, as a real HTTP server: workers with given service times, or a batch.

Answers come when the queue says so, not when a loop gets round to it: each request's end is computed from its
arrival and the ends before it, so a busy machine delays single answers and never the queue itself.

`/metrics` has `requests_running`, `requests_handled_total`, and `gpu_busy`, which is 100 for half a second
after any work, as a duty cycle over a window is.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Callable
from heapq import heapify, heapreplace


class Replica:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.ends: list[float] = [0.0] * options.workers
        heapify(self.ends)
        self.draw = random.Random(7)
        self.running = self.handled = self.taken = 0
        self.worked_s = 0.0
        self.waiting: list[Callable[[], None]] = []
        self.is_batching = False
        self.at_work: list[tuple[float, Callable[[], None]]] = []
        self.at_s = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.start_s = asyncio.get_running_loop().time()

    def service_s(self, now_s: float) -> float:
        service: float = self.options.service_ms / 1000
        if self.options.slower_per_s:
            service *= 1 + self.options.slower_per_s * (now_s - self.start_s)
        return service * (self.draw.expovariate(1.0) if self.options.exponential else 1.0)

    def end_s(self, now_s: float) -> float:
        end = max(now_s, self.ends[0]) + self.service_s(now_s)
        heapreplace(self.ends, end)
        return end

    def join_batch(self, finish: Callable[[], None]) -> None:
        """Wait for the next batch; it starts when the last one ends, or at once."""
        self.waiting.append(finish)
        if not self.is_batching:
            self.start_batch(asyncio.get_running_loop().time())

    def start_batch(self, start_s: float) -> None:
        taken, self.waiting = self.waiting[: self.options.batch], self.waiting[self.options.batch :]
        self.is_batching = bool(taken)
        if not taken:
            return
        end_s = start_s + (self.options.service_ms + self.options.each_ms * len(taken)) / 1000

        def end() -> None:
            for finish in taken:
                finish()
            self.start_batch(end_s)

        asyncio.get_running_loop().call_at(end_s, end)

    def join_lane(self, finish: Callable[[], None]) -> None:
        """Wait for a lane; those at work slow each other down."""
        now_s = asyncio.get_running_loop().time()
        self.work_until(now_s)
        self.waiting.append(finish)
        self.fill_lanes(now_s)
        self.wake()

    def fill_lanes(self, now_s: float) -> None:
        while self.waiting and len(self.at_work) < self.options.workers:
            self.at_work.append((self.service_s(now_s), self.waiting.pop(0)))

    def slowness(self) -> float:
        """Return what a second of work takes now."""
        return 1 + float(self.options.slower) * (len(self.at_work) - 1)

    def work_until(self, now_s: float) -> None:
        """Do the work that is due by now, each end when the queue says so."""
        while self.at_work:
            left_s, finish = min(self.at_work, key=lambda each: each[0])
            end_s = self.at_s + left_s * self.slowness()
            if end_s > now_s:
                done_s = (now_s - self.at_s) / self.slowness()
                self.at_work = [(left - done_s, each) for left, each in self.at_work]
                break
            self.at_work = [(left - left_s, each) for left, each in self.at_work]
            self.at_work.remove((0.0, finish))
            self.at_s = end_s
            finish()
            self.fill_lanes(end_s)
        self.at_s = now_s

    def wake(self) -> None:
        """Come back when the next one ends."""
        if self.timer is not None:
            self.timer.cancel()
        self.timer = None
        if self.at_work:
            end_s = self.at_s + min(left for left, _ in self.at_work) * self.slowness()
            self.timer = asyncio.get_running_loop().call_at(end_s, self.end_lanes)

    def end_lanes(self) -> None:
        self.work_until(asyncio.get_running_loop().time())
        self.wake()

    def page(self) -> str:
        return (
            f"requests_running {self.running}\n"
            f"requests_handled_total {self.handled}\n"
            f"gpu_busy {100 if asyncio.get_running_loop().time() - self.worked_s < 0.5 else 0}\n"
        )


class Connection(asyncio.Protocol):
    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        replica, loop = self.replica, asyncio.get_running_loop()
        if data.startswith(b"GET /metrics"):
            self.answer("200 OK", replica.page())
            return
        replica.taken += 1
        if replica.options.dies_after and replica.taken > replica.options.dies_after:
            raise SystemExit(3)
        if replica.options.most_running and replica.running >= replica.options.most_running:
            self.answer("429 Too Many Requests", "slow down")
            return
        replica.running += 1
        if replica.options.batch:
            replica.join_batch(self.finish)
        elif replica.options.slower:
            replica.join_lane(self.finish)
        else:
            loop.call_at(replica.end_s(loop.time()), self.finish)

    def finish(self) -> None:
        self.replica.running -= 1
        self.replica.worked_s = asyncio.get_running_loop().time()
        self.replica.handled += 1
        self.answer("200 OK", "ok", self.replica.options.header)

    def answer(self, status: str, body: str, header: str = "") -> None:
        more = f"{header}\r\n" if header else ""
        self.transport.write(
            f"HTTP/1.1 {status}\r\n{more}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--service-ms", type=float, default=8.0)
    parser.add_argument("--batch", type=int, default=0, help="At most so many at once, each batch.")
    parser.add_argument(
        "--each-ms", type=float, default=0.0, help="That a request adds to its batch."
    )
    parser.add_argument(
        "--slower",
        type=float,
        default=0.0,
        help="Part by which each other worker at work slows one.",
    )
    parser.add_argument("--exponential", action="store_true")
    parser.add_argument("--slower-per-s", type=float, default=0.0)
    parser.add_argument("--dies-after", type=int, default=0)
    parser.add_argument("--most-running", type=int, default=0)
    parser.add_argument("--header", default="")
    options = parser.parse_args()
    replica = Replica(options)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(replica), "127.0.0.1", 0, backlog=1024
    )
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
