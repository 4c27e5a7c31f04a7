"""Runs a load on GPUs: starts its processes, corrects them by the driver's figures, and ends them.

Each share of a GPU is a process of its own, which holds what it holds for as long as its input is open. So
whatever becomes of this process, nothing of a GPU stays taken.
"""

import asyncio
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gpuscale.base.errors import UnavailableError
from gpuscale.base.words import counted
from gpuscale.load.gpu.counted import Counted, LoadCounter
from gpuscale.load.gpu.pacing import LAG_S, Holder
from gpuscale.load.gpu.plan import ChosenGpu, GpuPlan

# -P: modules in the working directory are not imported.
COMMAND = (sys.executable, "-P", "-m", "gpuscale.load.gpu.worker")
_NO_CACHE = {"CUDA_CACHE_DISABLE": "1"}
"""The driver compiles one small kernel; it need not leave files in the home for it."""
LOOK_S = 0.5
_OPEN_S = 60.0
"""A first context on a machine with eight large GPUs takes seconds; a hanging driver takes for ever."""
_LEAD_S = 0.2
"""From the order to begin to the first burst."""
_GOODBYE_S = 5.0
_LINE_BYTES = 1 << 16
_MOST_CONTEXT_BYTES = 2 << 30
"""Of one process; a larger difference comes from another process."""


@dataclass(frozen=True, slots=True)
class GpuLook:
    """A GPU's figures over half a second."""

    at_ms: int
    wanted: float
    own: float | None
    """Percent of the time that our bursts took by the GPU's own clock; None where nothing was heard."""
    counted: float | None
    used_bytes: int | None


@dataclass(slots=True)
class HeldGpu:
    """What was held on one GPU."""

    gpu: ChosenGpu
    looks: list[GpuLook] = field(default_factory=list)
    allocated_bytes: int = 0
    used_before_bytes: int | None = None
    used_bytes: int | None = None
    """As NVML counts it once everything is held, without what was used before."""
    others: tuple[int, ...] = ()
    """Processes that held the GPU before."""
    uncounted: str = ""
    """Why there is no use by NVML."""
    launched: int = 0
    skipped: int = 0
    started_ms: int = 0
    ended_ms: int = 0


OnLook = Callable[[Sequence[HeldGpu]], None]
Note = Callable[[str], None]


class _Share:
    """A process that loads one GPU."""

    def __init__(self, process: Process, name: str) -> None:
        self.process = process
        self._name = name
        self.launched = self.skipped = 0
        self._busy: tuple[float, float] | None = None
        """(Seconds of the monotonic clock, milliseconds busy until then), as last reported."""
        self._looked: tuple[float, float] | None = None

    async def tell(self, **order: object) -> None:
        """Send an order; ignored by a process that has ended."""
        if self.process.stdin is None:
            return
        with suppress(ConnectionError):
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            await self.process.stdin.drain()

    async def hear(self) -> dict[str, Any]:
        """Return the process' next message.

        Raises:
            UnavailableError: it can't go on, or has ended.
        """
        line = await self.process.stdout.readline() if self.process.stdout else b""
        if not line:
            code = await self.process.wait()
            raise UnavailableError(f"{self._name}: a process of the load ended with {code}")
        words: dict[str, Any] = json.loads(line)
        if words["event"] == "failed":
            raise UnavailableError(str(words["error"]))
        return words

    async def expect(self, event: str) -> dict[str, Any]:
        """Return the process' next message, which must come within a minute."""
        try:
            async with asyncio.timeout(_OPEN_S):
                return await self.hear()
        except TimeoutError:
            raise UnavailableError(
                f"{self._name}: the driver did not answer within {_OPEN_S:g} s ({event})"
            ) from None

    async def follow(self) -> None:
        """Read the process' reports until it ends."""
        while True:
            words = await self.hear()
            self._busy = (float(words["at"]), float(words["ms"]))
            self.launched, self.skipped = int(words["launched"]), int(words["skipped"])
            if words["event"] == "end":
                return

    def own_percent(self) -> float | None:
        """Return the process' busy share between its last two reports; None without two."""
        before, now = self._looked, self._busy
        self._looked = now
        if before is None or now is None or now[0] <= before[0]:
            return None
        return (now[1] - before[1]) / (now[0] - before[0]) / 10

    async def end(self) -> None:
        """End the process, by force if necessary."""
        await self.tell(end=True)
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            async with asyncio.timeout(_GOODBYE_S):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


class _LoadedGpu:
    """A GPU with the processes that share it."""

    def __init__(self, plan: GpuPlan, gpu: ChosenGpu) -> None:
        self.held = HeldGpu(gpu)
        self.shares: list[_Share] = []
        self._plan = plan
        self._holder = Holder()
        self._looked_s = 0.0

    async def open(self) -> None:
        """Start the processes, and wait until each has a context."""
        gpu = self.held.gpu
        for _ in range(self._plan.processes):
            process = await asyncio.create_subprocess_exec(
                *COMMAND,
                stdin=PIPE,
                stdout=PIPE,
                limit=_LINE_BYTES,
                env={**os.environ, **_NO_CACHE, **gpu.environment},
            )
            self.shares.append(_Share(process, gpu.name))
        for share in self.shares:
            await share.tell(open="" if gpu.environment else gpu.uuid)
        await asyncio.gather(*(share.expect("open") for share in self.shares))

    async def take_memory(self, used_bytes: int | None, note: Note) -> None:
        """Allocate the wanted memory, less the contexts' own."""
        name, wanted, before = (
            self.held.gpu.name,
            self._plan.memory_bytes,
            self.held.used_before_bytes,
        )
        contexts = 0
        if wanted and used_bytes is not None and before is not None:
            contexts = used_bytes - before
            if not 0 <= contexts <= _MOST_CONTEXT_BYTES * len(self.shares):
                note(f"{name}: others' memory changed meanwhile; what contexts take is not counted")
                contexts = 0
            elif contexts > wanted:
                count = len(self.shares)
                note(
                    f"{name}: {counted(count, 'context')} with {contexts >> 20} MiB, more than asked for"
                )
        elif wanted:
            note(
                f"{self.held.gpu.name}: --memory is beside what contexts take, which NVML does not say"
            )
        each = max(0, (wanted or 0) - contexts) // len(self.shares)
        self.held.allocated_bytes = each * len(self.shares)
        for share in self.shares:  # one by one, so that no two count on the same free memory
            await share.tell(allocate=each)
            await share.expect("ready")

    async def begin(self, start_s: float, until_s: float) -> None:
        """Let all processes start at a time of the monotonic clock, taking turns."""
        first_s = min(LOOK_S, self._plan.duration_s)
        own = self._holder.own_percent(self._plan.wanted(0.0, first_s))
        for index, share in enumerate(self.shares):
            await share.tell(
                begin=start_s,
                until=until_s,
                index=index,
                of=len(self.shares),
                percent=own,
                multiprocessors=self._plan.multiprocessors_percent,
            )

    async def look(self, at_s: float, start_ms: int, found: Counted) -> None:
        """Record the time since the last look, and order the next busy share.

        Args:
            at_s: since the load began.
            start_ms: when that was.
            found: what the driver says.
        """
        self.count()
        parts = [share.own_percent() for share in self.shares]
        own = None if None in parts else sum(part for part in parts if part is not None)
        wanted = self._plan.wanted(self._looked_s, at_s)
        self.held.looks.append(
            GpuLook(start_ms + round(at_s * 1000), wanted, own, found.percent, found.used_bytes)
        )
        self.held.uncounted = found.reason
        # NVML's figure is late, so it is compared with the share wanted then. Without NVML, at
        # least the bursts that a busy machine launches late are made up for.
        lag_s, busy = (LAG_S, found.percent) if found.percent is not None else (0.0, own)
        if busy is not None and at_s > 2 * LOOK_S + LAG_S:
            self._holder.look(self._plan.wanted(self._looked_s - lag_s, at_s - lag_s), busy)
        self._looked_s = at_s
        until_s = min(at_s + LOOK_S, self._plan.duration_s)
        if until_s > at_s:
            own_next = self._holder.own_percent(self._plan.wanted(at_s, until_s))
            for share in self.shares:
                await share.tell(percent=round(own_next, 3))

    def count(self) -> None:
        """Record the processes' reports."""
        self.held.launched = sum(share.launched for share in self.shares)
        self.held.skipped = sum(share.skipped for share in self.shares)


async def hold(
    plan: GpuPlan,
    gpus: Sequence[ChosenGpu],
    counter: LoadCounter,
    stop: asyncio.Event,
    on_look: OnLook,
    note: Note,
) -> tuple[HeldGpu, ...]:
    """Load the GPUs until the plan is over or `stop` is set, and return what was done.

    Args:
        plan: what to do on each.
        gpus: which.
        counter: what the driver counts.
        stop: ends it early.
        on_look: called every half second.
        note: called with what the user should know.

    Raises:
        UnavailableError: a GPU has not the memory, or its driver does not answer.
    """
    loaded = [_LoadedGpu(plan, gpu) for gpu in gpus]
    held = tuple(each.held for each in loaded)
    try:
        for gpu in held:
            found = counter.look(gpu.gpu.uuid)
            gpu.used_before_bytes, gpu.others = found.used_bytes, found.pids
            if found.pids:
                count = len(found.pids)
                others = "1 other process" if count == 1 else f"{count} other processes"
                note(f"{gpu.gpu.name}: {others} on it; what they use counts as held")
            if found.reason:
                note(
                    f"{gpu.gpu.name}: no use by NVML; corrected by what our own kernels take: {found.reason}"
                )
        await asyncio.gather(*(each.open() for each in loaded))
        await asyncio.to_thread(counter.refresh)
        for each in loaded:
            await each.take_memory(counter.look(each.held.gpu.uuid).used_bytes, note)
        await asyncio.to_thread(counter.refresh)
        for gpu in held:
            used, before = counter.look(gpu.gpu.uuid).used_bytes, gpu.used_before_bytes
            gpu.used_bytes = None if used is None or before is None else used - before
        await _run(plan, loaded, counter, stop, on_look)
    finally:
        await asyncio.gather(*(share.end() for each in loaded for share in each.shares))
    return held


async def _run(
    plan: GpuPlan,
    loaded: Sequence[_LoadedGpu],
    counter: LoadCounter,
    stop: asyncio.Event,
    on_look: OnLook,
) -> None:
    held = [each.held for each in loaded]
    start_s = time.monotonic() + _LEAD_S
    start_ms = time.time_ns() // 1_000_000 + round(_LEAD_S * 1000)
    for each in loaded:
        each.held.started_ms = each.held.ended_ms = start_ms
        await each.begin(start_s, start_s + plan.duration_s)
    following = [asyncio.create_task(share.follow()) for each in loaded for share in each.shares]
    ending: asyncio.Future[Any] = asyncio.gather(*following)
    stopping: asyncio.Future[Any] = asyncio.create_task(stop.wait())
    number = 0
    try:
        while not stop.is_set() and not ending.done():
            number += 1
            wait_s = start_s + min(number * LOOK_S, plan.duration_s) - time.monotonic()
            await asyncio.wait(
                {stopping, ending}, timeout=max(0.0, wait_s), return_when=asyncio.FIRST_COMPLETED
            )
            await asyncio.to_thread(counter.refresh)
            at_s = min(time.monotonic() - start_s, plan.duration_s)
            for each in loaded:
                await each.look(at_s, start_ms, counter.look(each.held.gpu.uuid))
                each.held.ended_ms = start_ms + round(at_s * 1000)
            on_look(held)
            if at_s >= plan.duration_s:
                break
        for each in loaded:
            for share in each.shares:
                await share.tell(end=True)
        async with asyncio.timeout(_GOODBYE_S):
            await ending
        for each in loaded:
            each.count()
    except TimeoutError:
        raise UnavailableError(
            f"a process of the load did not end within {_GOODBYE_S:g} s; it was killed"
        ) from None
    finally:
        stopping.cancel()
        ending.cancel()
        await asyncio.gather(stopping, *following, return_exceptions=True)
