"""A thread for one GPU, so that a call that never returns holds up nothing else."""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Worker(Generic[T]):
    """Runs one job at a time. The thread is a daemon: a stuck call does not keep the process alive.

    Args:
        name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], T] | None] = SimpleQueue()
        self._done = threading.Event()
        self._result: T | None = None
        self._error: BaseException | None = None
        self._is_busy = False
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        """Return whether a job runs that has not ended."""
        return self._is_busy and not self._done.is_set()

    def start(self, job: Callable[[], T]) -> None:
        """Begin a job; none may be running."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        self._result = self._error = None
        self._done.clear()
        self._is_busy = True
        self._jobs.put(job)

    def wait(self, timeout_s: float) -> bool:
        """Return whether the job has ended within a time."""
        return self._done.wait(max(0.0, timeout_s))

    def take(self) -> T:
        """Return what the ended job returned, or raise what it raised."""
        self._is_busy = False
        result, error = self._result, self._error
        self._result = self._error = None
        if error is not None:
            raise error
        return result  # type: ignore[return-value]  # a job without an error has set it

    def stop(self) -> None:
        """Let the thread end after its job."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                self._result = job()
            except BaseException as error:  # noqa: BLE001 - handed to whoever takes the result
                self._error = error
            self._done.set()
