"""A load run, in this process or in several, added up second by second."""

import asyncio
import multiprocessing
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection as Pipe

import uvloop

from gpuscale.base.errors import UnavailableError
from gpuscale.load.arrivals import arrival_times
from gpuscale.load.http.sender import Sender
from gpuscale.load.http.target import LoadTarget, resolve
from gpuscale.load.plan import LoadPlan
from gpuscale.load.recording import RunRecording, RunSecond, Second

_LEAD_S = 0.05
"""From the order to start to the first second of a run."""
_SPAWN_S = 1.5
"""The same where processes have to start."""

OnRow = Callable[[RunSecond], None]


def run_load(plan: LoadPlan, processes: int, on_row: OnRow) -> RunRecording:
    """Run a plan to its end; SIGINT and SIGTERM end it early, with what was measured by then.

    Args:
        plan: what to do.
        processes: how many share the requests.
        on_row: called with each second.

    Raises:
        UsageError: the URL or a header can't be used.
        UnavailableError: the host has no address, or a process ended by itself.
    """
    target = resolve(plan.request)
    with new_runner() as runner:
        return runner.run(_run(plan, target, processes, on_row))


def new_runner() -> asyncio.Runner:
    """Return a runner whose event loop is precise enough for sending on time."""
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


async def _run(plan: LoadPlan, target: LoadTarget, processes: int, on_row: OnRow) -> RunRecording:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    ahead_s = _LEAD_S if processes == 1 else _SPAWN_S
    recording = RunRecording(round(1000 * (time.time() + ahead_s)))
    seconds = _one(plan, target, stop) if processes == 1 else _several(plan, processes, stop)
    async for parts in seconds:
        planned = 0.0
        if plan.load is not None:
            index = parts[0].index
            start_s, end_s = min(index, plan.duration_s), min(index + 1, plan.duration_s)
            planned = plan.load.requests_until(end_s) - plan.load.requests_until(start_s)
        on_row(recording.add(parts, planned))
    return recording


async def _one(
    plan: LoadPlan, target: LoadTarget, stop: asyncio.Event
) -> AsyncIterator[list[Second]]:
    sender = Sender(plan, target, _due(plan, 0, 1))
    async for second in sender.run(time.monotonic() + _LEAD_S, stop):
        yield [second]


def _due(plan: LoadPlan, index: int, processes: int) -> Iterator[float]:
    """Return one process' times: every n-th request."""
    if plan.load is None:
        return iter(())
    times = arrival_times(plan.load, plan.duration_s, plan.arrivals, plan.seed)
    return islice(times, index, None, processes)


async def _several(
    plan: LoadPlan, processes: int, stop: asyncio.Event
) -> AsyncIterator[list[Second]]:
    """Yield each second once all running processes have reported it."""
    context = multiprocessing.get_context("spawn")
    start_s = time.monotonic() + _SPAWN_S
    pipes: list[Pipe] = []
    workers = []
    for index in range(processes):
        ours, theirs = context.Pipe()
        worker = context.Process(
            target=_work, args=(plan, index, processes, start_s, theirs), daemon=True
        )
        worker.start()
        theirs.close()
        pipes.append(ours)
        workers.append(worker)
    stopping = asyncio.create_task(_send_stop(stop, pipes))
    try:
        open_pipes = list(pipes)
        while open_pipes:
            received = await asyncio.gather(
                *(asyncio.to_thread(_receive, each) for each in open_pipes)
            )
            open_pipes = [each for each, second in zip(open_pipes, received, strict=True) if second]
            if parts := [second for second in received if second is not None]:
                yield parts
                for second in parts:
                    second.release()
        for worker in workers:
            await asyncio.to_thread(worker.join)
            if worker.exitcode:
                raise UnavailableError(f"a process of the load ended with {worker.exitcode}")
    finally:
        stopping.cancel()
        for worker in workers:
            worker.kill()


async def _send_stop(stop: asyncio.Event, pipes: list[Pipe]) -> None:
    await stop.wait()
    for pipe in pipes:
        try:
            pipe.send(None)
        except OSError:
            continue  # that process has ended


def _receive(pipe: Pipe) -> Second | None:
    try:
        second: Second = pipe.recv()
    except (EOFError, ConnectionError):
        return None
    return second


def _work(plan: LoadPlan, index: int, processes: int, start_s: float, pipe: Pipe) -> None:
    """Run one process' share; it ends when the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with new_runner() as runner:
        runner.run(_share(plan, index, processes, start_s, pipe))


async def _share(plan: LoadPlan, index: int, processes: int, start_s: float, pipe: Pipe) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(pipe.fileno())
        # Closing a socket with unread data resets it, and loses what was sent before.
        with suppress(EOFError, OSError):
            pipe.recv()
        stop.set()

    loop.add_reader(pipe.fileno(), end)
    target = resolve(plan.request)
    requests = target.requests(index, processes)
    sender = Sender(plan, target, _due(plan, index, processes), requests)
    async for second in sender.run(start_s, stop):
        pipe.send(second)
