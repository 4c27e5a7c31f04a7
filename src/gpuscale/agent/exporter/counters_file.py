"""The counters file in use, and its reload while the agent runs.

A file with a fault never replaces a good one: what was loaded last stays. At the start there is none, and the
good rows are served. Log, metrics and `/readyz?verbose` say what is wrong.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from gpuscale.agent.exporter.families.own_metrics import ConfigStatus
from gpuscale.base.errors import ConfigError, GpuscaleError, NotFoundError
from gpuscale.base.watched_files import stamps_of
from gpuscale.signals import DEFAULT_COUNTERS, MAX_TEXT_BYTES, Counter, CountersRead, read_counters

if TYPE_CHECKING:
    from gpuscale.base.clock import Clock  # it loads asyncio, before which the agent decides on TLS

Mode = Literal["replace", "add"]
Counters = tuple[Counter, ...]

_log = logging.getLogger(__name__)


class CountersFile:
    """The counters to serve, from a file that may change.

    Args:
        source: the file, or a text and its name for messages.
        mode: whether the file replaces the built-in list or adds to it.
        clock: gives loads their times.

    Raises:
        ConfigError: the file is no counters file: too large, or without a single good row among bad ones.
        NotFoundError: the file can't be read.
    """

    def __init__(
        self,
        source: Path | tuple[str, str],
        mode: Mode,
        clock: "Clock",
    ) -> None:
        self._source = source
        self._mode = mode
        self._clock = clock
        self._stamps = stamps_of(self._paths)
        self._loaded_ms = clock.now_ms()
        self._error: str | None = None
        self.counters = self._load_first()

    @property
    def status(self) -> ConfigStatus:
        return ConfigStatus(self._loaded_ms, self._error)

    def has_changed(self) -> bool:
        """Return whether the file has changed since it was loaded."""
        return stamps_of(self._paths) != self._stamps

    def give(self, text: str, apply: Callable[[Counters], None]) -> None:
        """Use another given text, if it differs or the last one was refused."""
        if not isinstance(self._source, Path) and (
            self._source[0] != text or self._error is not None
        ):
            self._source = (text, self._source[1])
            self.reload(apply)

    def note_failure(self, error: GpuscaleError) -> None:
        """Record that the given text can't be read now; the loaded counters stay."""
        if str(error) != self._error:
            self._error = str(error)
            _log.error("the counters stay as they were: %s", error)

    def reload(self, apply: Callable[[Counters], None]) -> None:
        """Reload the file and pass changes to `apply`; if either fails, the old counters stay."""
        self._stamps = stamps_of(self._paths)
        try:
            counters = self._load()
            if counters != self.counters:
                apply(counters)
        except GpuscaleError as error:
            self._error = str(error)
            _log.error("the counters stay as they were: %s", error)
            return
        self.counters, self._error = counters, None
        self._loaded_ms = self._clock.now_ms()
        _log.info("counters loaded: %d", len(counters))

    @property
    def _paths(self) -> tuple[Path, ...]:
        return (self._source,) if isinstance(self._source, Path) else ()

    def _load_first(self) -> Counters:
        """Return the valid rows of a file with faults."""
        read = self._read()
        if not read.problems:
            return self._counters(read)
        error = ConfigError(*read.problems)
        if not read.rows:
            raise error
        self._error = str(error)
        _log.error("the good rows of the counters file are served, these are not: %s", error)
        return self._counters(read)

    def _load(self) -> Counters:
        read = self._read()
        if read.problems:
            raise ConfigError(*read.problems)
        return self._counters(read)

    def _read(self) -> CountersRead:
        if isinstance(self._source, Path):
            return read_counters(read_text(self._source, MAX_TEXT_BYTES + 1), str(self._source))
        return read_counters(*self._source)

    def _counters(self, read: CountersRead) -> Counters:
        for note in read.notes:
            _log.warning("%s", note)
        if self._mode == "replace":
            if not read.rows and not read.problems:
                name = self._source if isinstance(self._source, Path) else self._source[1]
                _log.warning("%s lists no counters: no values of the GPUs' fields are served", name)
            return read.rows
        named = {counter.field for counter in read.rows}
        return (*(each for each in DEFAULT_COUNTERS if each.field not in named), *read.rows)


def read_text(path: Path, max_bytes: int) -> str:
    """Return a file's text, up to a limit.

    Raises:
        NotFoundError: the file can't be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(max_bytes).decode(errors="replace")
    except (OSError, ValueError) as error:  # a name with a NUL raises ValueError
        reason = error.strerror if isinstance(error, OSError) else error
        raise NotFoundError(f"can't read {path}: {reason}") from None
