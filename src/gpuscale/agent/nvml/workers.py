"""Threads that read GPUs, arranged so that a hanging call blocks nothing else.

In good times there is one thread, which reads one GPU after the other: what the first of them has brought
into the processor's caches serves them all, and nothing waits for a thread to wake up. Where a GPU does not
answer, its thread is left with it, and another one goes on with the rest.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_TOGETHER_S = 0.05
"""How long all jobs of a run are waited for before each is waited for by itself."""


class Work(Generic[T]):
    """One GPU's current job and its result."""

    def __init__(self) -> None:
        self._job: Callable[[], T] | None = None
        self._ended = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._has_begun = False

    @property
    def is_busy(self) -> bool:
        """Return whether a job runs that has not ended."""
        return self._has_begun and not self._ended.is_set()

    def begin(self, job: Callable[[], T]) -> None:
        """Set a job for a thread to run; none may be running."""
        self._job = job
        self._result = self._error = None
        self._has_begun = False
        self._ended.clear()

    def run(self) -> None:
        job, self._job = self._job, None
        if job is None:
            return
        self._has_begun = True
        try:
            self._result = job()
        except BaseException as error:  # noqa: BLE001 - handed to the caller that takes the result
            self._error = error
        self._ended.set()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the job's end, and return whether it has ended."""
        return self._ended.wait(max(0.0, timeout_s))

    def take(self) -> T:
        """Return the ended job's result, or raise its error."""
        result, error = self._result, self._error
        self._result = self._error = None
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # a job without an error has set it


class Lanes:
    """The threads of one reader. They are daemons: a stuck call does not keep the process alive.

    Args:
        name: of the threads, before their number.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lanes: list[_Lane] = []

    def run(self, works: Sequence[Work[T]], patience_s: float, deadline_s: float) -> None:
        """Run jobs, and return when all have ended or at the deadline.

        Args:
            works: with a job each; what has not been begun by the deadline is not begun later.
            patience_s: how long one job is waited for before another thread goes on beside it.
            deadline_s: for all of them together.
        """
        end = time.monotonic() + deadline_s
        queue = deque(works)
        self._start(queue)
        if works:
            # Normally all jobs have ended when the last one does, so that this thread wakes up
            # once.
            works[-1].wait(min(_TOGETHER_S, deadline_s))
        for work in works:
            while not work.wait(min(patience_s, end - time.monotonic())):
                if time.monotonic() >= end:
                    queue.clear()
                    return
                if queue:
                    self._start(queue)

    def stop(self) -> None:
        """Let the threads end, each after its job."""
        for lane in self._lanes:
            lane.stop()
        self._lanes.clear()

    def _start(self, queue: "deque[Work[T]]") -> None:
        lane = next((each for each in self._lanes if not each.is_busy), None)
        if lane is None:
            lane = _Lane(f"{self._name}-{len(self._lanes)}")
            self._lanes.append(lane)
        lane.start(queue)


class _Lane:
    """One thread."""

    def __init__(self, name: str) -> None:
        self.is_busy = False
        self._queues: SimpleQueue[deque[Work[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def start(self, queue: "deque[Work[Any]]") -> None:
        """Run jobs from a queue, beside other threads."""
        self.is_busy = True
        self._queues.put(queue)

    def stop(self) -> None:
        self._queues.put(None)

    def _run(self) -> None:
        while (queue := self._queues.get()) is not None:
            while queue:
                try:
                    work = queue.popleft()
                except IndexError:  # another thread took the job
                    break
                work.run()
            self.is_busy = False
