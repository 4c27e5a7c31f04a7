"""What requests are worked on with: a GPU, or the time that one would have taken.

Both kinds work on some requests at once and let a bounded number of others wait, first come, first served.
A simulated device gives the right answer after the right time, and keeps nothing busy meanwhile.
"""

import argparse
import asyncio
import math
import random
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from common.lanes import Lanes

T = TypeVar("T")
_MOST_DURATIONS = 1_000_000


class FullError(Exception):
    """As many requests wait as may."""


class Device(ABC):
    """Works on requests, and counts them.

    Args:
        gpu: its name; None where its time is simulated.
        queue_limit: how many may wait.
    """

    kind: str
    """`gpu` or `simulated`; every answer and the metrics page say it."""

    def __init__(self, gpu: str | None, queue_limit: int) -> None:
        self.gpu = gpu
        self.waiting = 0
        self.working = 0
        self._queue_limit = queue_limit

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, once it had its turn.

        Raises:
            FullError: too many requests wait already.
        """
        if self.waiting >= self._queue_limit:
            raise FullError
        return await self._run(work)

    @abstractmethod
    async def _run(self, work: Callable[[], T]) -> T: ...


class GpuDevice(Device):
    """A GPU that `lanes` threads give work to."""

    kind = "gpu"

    def __init__(self, gpu: str, lanes: int, queue_limit: int) -> None:
        super().__init__(gpu, queue_limit)
        self._turns = asyncio.Semaphore(lanes)
        self._threads = ThreadPoolExecutor(lanes)

    async def _run(self, work: Callable[[], T]) -> T:
        self.waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self.waiting -= 1
        self.working += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self.working -= 1
            self._turns.release()


class SimulatedDevice(Device):
    """Answers after the time that a GPU would have taken.

    A turn begins when the one before it was due to end, not when this process noticed it, so a busy machine
    makes single answers late and leaves the throughput as it is.

    Args:
        seconds: draws how long the next request takes.
    """

    kind = "simulated"

    def __init__(self, lanes: int, queue_limit: int, seconds: Callable[[], float]) -> None:
        super().__init__(None, queue_limit)
        self._lanes = Lanes(lanes)
        self._seconds = seconds

    async def _run(self, work: Callable[[], T]) -> T:
        now = asyncio.get_running_loop().time()
        turn = self._lanes.admit(now, self._seconds())
        if turn.start > now:
            self.waiting += 1
            try:
                await _sleep_until(turn.start)
            finally:
                self.waiting -= 1
        self.working += 1
        try:
            result = work()
            await _sleep_until(turn.end)
            return result
        finally:
            self.working -= 1


async def _sleep_until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - asyncio.get_running_loop().time()))


def service_times(mean_s: float, shape: str, seed: int) -> Callable[[], float]:
    """Return a function that draws the time of one request after the other.

    Args:
        mean_s: the mean of the shapes that have one.
        shape: `constant`, `exponential`, or a file with times that were measured on a GPU, one a line, in
            milliseconds; they are drawn with equal chances.
        seed: the same seed draws the same times.

    Raises:
        ValueError: no such shape, or a file that has something else than such times.
    """
    draw = random.Random(seed)  # noqa: S311 - a queue, no secret
    if shape == "constant":
        return lambda: mean_s
    if shape == "exponential":
        return lambda: draw.expovariate(1 / mean_s)
    measured = _read_times(Path(shape))
    return lambda: draw.choice(measured)


def _read_times(path: Path) -> list[float]:
    if not path.is_file():
        raise ValueError(f"found {path}, expected constant, exponential or a file with times in ms")
    times: list[float] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            milliseconds = float(line)
        except ValueError:
            milliseconds = math.nan
        if not 0 <= milliseconds < math.inf or number > _MOST_DURATIONS:
            raise ValueError(
                f"{path}:{number}: found {line!r}, expected milliseconds, one number a line, "
                f"at most {_MOST_DURATIONS} lines"
            )
        times.append(milliseconds / 1000)
    if not times:
        raise ValueError(f"{path}: found no times, expected at least one")
    return times


def add_device_options(parser: argparse.ArgumentParser, service_ms: float) -> None:
    """Add the options that every sample has for its device.

    Args:
        parser: of the sample.
        service_ms: what one request takes unless it is said otherwise.
    """
    parser.add_argument(
        "--device",
        choices=("auto", "gpu", "simulated"),
        default="auto",
        help="auto takes a GPU where there is one with a model, and simulates its cost elsewhere",
    )
    parser.add_argument("--lanes", type=positive, default=1, help="requests worked on at once")
    parser.add_argument("--queue", type=positive, default=1000, help="requests that may wait")
    parser.add_argument(
        "--service-ms", type=milliseconds, default=service_ms, help="simulated time of one request"
    )
    parser.add_argument(
        "--service-times",
        default="constant",
        help="constant, exponential, or a file with measured milliseconds, one a line",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the times that are drawn")


def choose(
    parser: argparse.ArgumentParser,
    options: argparse.Namespace,
    model: str | None,
    load: Callable[[str], tuple[str, T]],
    stand_in: T,
) -> tuple[Device, T]:
    """Return what requests are worked on with, and the work, by the options and by what this machine has.

    Args:
        parser: says what is wrong with the options.
        options: that were given.
        model: for the GPU; None where none was given.
        load: loads a model onto the GPU, and returns the GPU's name and the work.
        stand_in: the work where there is no GPU.
    """
    if options.device == "gpu" and model is None:
        parser.error("--device gpu needs a model")
    if options.device != "simulated" and model is not None:
        try:
            gpu, work = load(model)
            return GpuDevice(gpu, options.lanes, options.queue), work
        except (ImportError, RuntimeError, OSError) as error:
            if options.device == "gpu":
                sys.exit(f"{parser.prog}: can't work on a GPU: {error}")
            print(f"{parser.prog}: no GPU is used: {error}", file=sys.stderr)
    try:
        seconds = service_times(options.service_ms / 1000, options.service_times, options.seed)
    except ValueError as error:
        parser.error(f"--service-times: {error}")
    return SimulatedDevice(options.lanes, options.queue, seconds), stand_in


def positive(text: str) -> int:
    """Return a whole number of 1 to 100 000."""
    number = int(text)
    if not 1 <= number <= 100_000:
        raise ValueError
    return number


def seconds(text: str) -> float:
    """Return a time above zero, at most an hour."""
    number = float(text)
    if not 0 < number <= 3_600:
        raise ValueError
    return number


def milliseconds(text: str) -> float:
    """Return a time above zero, at most an hour."""
    number = float(text)
    if not 0 < number <= 3_600_000:
        raise ValueError
    return number
