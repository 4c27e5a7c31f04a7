"""Recording a reader's results, and replaying them as a reader.

A recording is a gzip file of JSON lines (`recording_format`). Replay keeps the recorded pace: each read
gets the latest recorded tick, and its values were measured as long ago as the tick is. Where nothing was
recorded for some time, and after the end, the GPUs are lost: an old value is never served as a new one.
"""

import gzip
import io
import json
import logging
import math
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import BinaryIO, Self, TextIO

from gpuscale import __version__
from gpuscale.agent.gpu.reader import CallStats, GpuReader
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading
from gpuscale.agent.recordings.format import (
    FormatFault,
    Header,
    Tick,
    TickDecoder,
    TickEncoder,
    header_data,
    read_header,
)
from gpuscale.base.errors import ConfigError, NotFoundError, Problem, UnavailableError, UsageError

MAX_TEXT_BYTES = 128 * 1024 * 1024
"""Unpacked; a day of several GPUs at 1 s."""
RECORDING_ENDED = "recording ended"
NOT_RECORDED = "nothing was recorded at this time"
STALE_INTERVALS = 3
"""So many usual times between two ticks after a tick, its values are too old to replay; a guess between
a read that came late and one that never came."""
SINGLE_TICK_MS = 1000
"""How long a recording of one tick plays; a collect interval in common use."""
TICKS_PER_FLUSH = 60
"""How many ticks a crash may cost."""

_UNPACK = "`gzip -dc FILE > FILE.jsonl` keeps what is readable, which can be replayed too"
_CUT_OFF = "if this is the last line of a recording that was cut off, remove it"
_GZIP_MAGIC = b"\x1f\x8b"
_log = logging.getLogger(__name__)


class ReadingRecorder:
    """Writes readings to a file, or to a text stream of the caller.

    Args:
        target: a path, which is packed with gzip and overwritten, or a stream, which gets plain lines.

    Raises:
        UsageError: the path can't be written.
    """

    def __init__(self, target: str | Path | TextIO) -> None:
        self._file: BinaryIO | None = None
        if isinstance(target, (str, Path)):
            self._file = _writable(Path(target))
            # With no name or date: same text, same bytes.
            packed = gzip.GzipFile("", "wb", fileobj=self._file, mtime=0)
            self._stream: TextIO = io.TextIOWrapper(packed, encoding="ascii", newline="\n")
        else:
            self._stream = target
        self._encoder: TickEncoder | None = None
        self._gpus: tuple[GpuIdentity, ...] = ()
        self._latest_ms = 0
        self._shift_ms = 0
        self._ticks = 0
        self._is_closed = False

    @classmethod
    def open(cls, path: str) -> Self:
        """Return a recorder that writes to a new file at this path.

        Raises:
            UsageError: the path can't be written.
        """
        return cls(path)

    def write(
        self,
        readings: Sequence[GpuReading],
        *,
        now_ms: int | None = None,
        gpus: Sequence[GpuIdentity] | None = None,
    ) -> None:
        """Add one read's result.

        Args:
            readings: each GPU at most once.
            now_ms: of the read; when the newest of the readings was measured if left out.
            gpus: every GPU that should be there; those of the readings if left out.

        Raises:
            ValueError: a value is no finite number, or the recording is closed.
            OSError: the file can't be written any more.
        """
        if now_ms is None:
            now_ms = max(
                (each.measured_ms for each in readings), default=self._latest_ms - self._shift_ms
            )
        present = tuple(each.gpu for each in readings) if gpus is None else tuple(gpus)
        self._add(now_ms, present, tuple(readings), None)

    def write_failure(
        self, now_ms: int, error: str, *, gpus: Sequence[GpuIdentity] | None = None
    ) -> None:
        """Add a failed read with its reason.

        Args:
            now_ms: of the read.
            error: what was wrong.
            gpus: every GPU that should be there; those of the write before if left out.

        Raises:
            OSError: the file can't be written any more.
        """
        self._add(now_ms, self._gpus if gpus is None else tuple(gpus), (), error)

    def close(self) -> None:
        """Finish the file; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._file is None:
            self._stream.flush()
            return
        with self._file:
            self._stream.close()

    def _add(
        self,
        now_ms: int,
        gpus: tuple[GpuIdentity, ...],
        readings: tuple[GpuReading, ...],
        error: str | None,
    ) -> None:
        if self._is_closed:
            raise ValueError("the recording is closed")
        # Ticks must stay in order if the clock is set back, or the file could not be replayed.
        if now_ms + self._shift_ms < self._latest_ms:
            self._shift_ms = self._latest_ms - now_ms
        self._latest_ms = now_ms + self._shift_ms
        if self._shift_ms:
            readings = tuple(
                replace(each, measured_ms=each.measured_ms + self._shift_ms) for each in readings
            )
        self._gpus = gpus
        if self._encoder is None:
            header = Header(f"gpuscale {__version__}", self._latest_ms, gpus)
            self._line(header_data(header))
            self._encoder = TickEncoder(header)
        self._line(self._encoder.encode(Tick(self._latest_ms, gpus, readings, error)))
        self._ticks += 1
        if self._ticks % TICKS_PER_FLUSH == 0:
            self._stream.flush()

    def _line(self, data: dict[str, object]) -> None:
        self._stream.write(json.dumps(data, allow_nan=False, separators=(",", ":")) + "\n")


class RecordingReader:
    """A reader that passes on what another one reads, and records it.

    The recorder is its caller's, who closes it. One that fails (a full disk) is closed here, with one line
    in the log; reading goes on.
    """

    def __init__(self, inner: GpuReader, recorder: ReadingRecorder) -> None:
        self._inner = inner
        self._recorder: ReadingRecorder | None = recorder

    def gpus(self) -> tuple[GpuIdentity, ...]:
        return self._inner.gpus()

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        """Return what the inner reader reads.

        Raises:
            UnavailableError: no GPU can be read at all; this is recorded too.
        """
        try:
            readings = self._inner.read(now_ms)
            gpus = self._inner.gpus()
        except UnavailableError as failure:
            error = str(failure)
            self._record(lambda recorder: recorder.write_failure(now_ms, error))
            raise
        self._record(lambda recorder: recorder.write(readings, now_ms=now_ms, gpus=gpus))
        return readings

    def stats(self) -> tuple[CallStats, ...]:
        return self._inner.stats()

    def close(self) -> None:
        """Close the inner reader; the recording goes on, for a reader that takes its place."""
        self._inner.close()

    def _record(self, write: Callable[[ReadingRecorder], None]) -> None:
        recorder = self._recorder
        if recorder is None:
            return
        try:
            write(recorder)
            return
        except (OSError, ValueError) as failure:
            _log.error("recording stopped: %s", failure)
        self._recorder = None
        try:
            recorder.close()
        except OSError as failure:
            _log.error("the recording could not be finished: %s", failure)


class ReplayReader:
    """Replays a recording at its own pace, from the first read on.

    A read gets the latest tick that is not after it. Its `measured_ms` lies as far before the read as it
    did in the recording, the time since the tick included. Counters start again when a recording loops,
    as they do when a driver is loaded again.

    Args:
        source: a path (packed with gzip or not), or a text stream.
        loop: start again at the end; otherwise the GPUs are lost from then on.
        speed: seconds of the recording per second; above zero.

    Raises:
        NotFoundError: the path can't be read.
        ConfigError: what is there is no recording, or a damaged one.
    """

    def __init__(
        self, source: str | Path | TextIO, *, loop: bool = False, speed: float = 1.0
    ) -> None:
        if not (speed > 0 and math.isfinite(speed)):
            raise UsageError(f"found a replay speed of {speed}, expected a number above 0")
        self._lines = _Lines(*_text_of(source))
        self._loop = loop
        self._speed = speed
        self._origin_ms: int | None = None
        self._player = self._lines.player()
        self._latest = self._player.tick

    @classmethod
    def open(cls, path: str, *, loop: bool = False, speed: float = 1.0) -> Self:
        """Return a reader of the recording at this path.

        Raises:
            NotFoundError: the path can't be read.
            ConfigError: what is there is no recording, or a damaged one.
        """
        return cls(path, loop=loop, speed=speed)

    @property
    def duration_ms(self) -> int:
        """Return the recording's length in milliseconds."""
        return self._lines.end_ms

    def gpus(self) -> tuple[GpuIdentity, ...]:
        """Return the GPUs at the latest read, lost ones included."""
        return self._latest.gpus

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        """Return the recorded readings for the current time.

        Raises:
            UnavailableError: at this time of the recording, no GPU could be read at all.
        """
        if self._origin_ms is None:
            self._origin_ms = now_ms
        elapsed_ms = max(0, int((now_ms - self._origin_ms) * self._speed))
        has_ended = elapsed_ms >= self._lines.end_ms
        if has_ended and self._loop:
            elapsed_ms %= self._lines.end_ms
            has_ended = False
        position = self._lines.position(elapsed_ms)
        if position < self._player.position:
            self._player = self._lines.player()
        self._player.go_to(position)
        tick = self._latest = self._player.tick
        age_ms = elapsed_ms - (tick.now_ms - self._lines.start_ms)
        if has_ended:
            return self._lines.lost(tick.gpus, now_ms, RECORDING_ENDED)
        if age_ms > self._lines.stale_ms:
            return self._lines.lost(tick.gpus, now_ms, NOT_RECORDED)
        if tick.error is not None:
            raise UnavailableError(tick.error)
        aged = ((each, age_ms + tick.now_ms - each.measured_ms) for each in tick.readings)
        return tuple(
            replace(each, measured_ms=now_ms - round(old_ms / self._speed)) for each, old_ms in aged
        )

    def stats(self) -> tuple[CallStats, ...]:
        """Return nothing: there is no library behind these readings."""
        return ()

    def close(self) -> None:
        """Do nothing: the file was read as a whole."""


class _Lines:
    """A checked recording, kept as text, as it would be too large decoded."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        numbered = [each for each in enumerate(text.split("\n"), start=1) if each[1].strip()]
        if not numbered:
            raise ConfigError(Problem(source, None, None, "nothing", "a recording"))
        number, header = numbered[0]
        with self._placed_errors(number):
            self._header = read_header(json.loads(header))
        self._lines = tuple(numbered[1:])
        if not self._lines:
            found, expected = "a header alone", "at least one tick below it"
            raise ConfigError(Problem(source, None, None, found, expected))
        self._fields: dict[GpuIdentity, dict[str, None]] = {}
        """The fields that each GPU ever had."""
        times = []
        for tick in self.player().all_ticks():
            times.append(tick.now_ms)
            for reading in tick.readings:
                fields = self._fields.setdefault(reading.gpu, {})
                fields.update(dict.fromkeys((*reading.values, *reading.absent)))
        gaps = [late - early for early, late in pairwise(times)]
        interval_ms = max(1, int(median(gaps))) if gaps else SINGLE_TICK_MS
        self.start_ms = times[0]
        self.end_ms = times[-1] - times[0] + interval_ms
        self.stale_ms = STALE_INTERVALS * interval_ms
        self._at_ms = tuple(time_ms - times[0] for time_ms in times)

    def __len__(self) -> int:
        return len(self._lines)

    def position(self, elapsed_ms: int) -> int:
        """Return the index of the latest tick up to a time."""
        return max(0, bisect_right(self._at_ms, elapsed_ms) - 1)

    def player(self) -> "_Player":
        return _Player(self, TickDecoder(self._header))

    def decode(self, position: int, decoder: TickDecoder) -> Tick:
        """Return the tick at an index; all earlier ones must have been decoded."""
        number, text = self._lines[position]
        with self._placed_errors(number):
            return decoder.decode(json.loads(text))

    def lost(self, gpus: Sequence[GpuIdentity], now_ms: int, reason: str) -> tuple[GpuReading, ...]:
        """Return readings without values, for GPUs that ever had a field."""
        return tuple(
            GpuReading(gpu, now_ms, {}, dict.fromkeys(self._fields[gpu], reason))
            for gpu in gpus
            if gpu in self._fields
        )

    @contextmanager
    def _placed_errors(self, number: int) -> Iterator[None]:
        """Raise a line's fault as a problem of the file."""
        try:
            yield
        except FormatFault as fault:
            problem = Problem(self._source, number, fault.field, fault.found, fault.expected)
            raise ConfigError(problem) from None
        except (ValueError, RecursionError):
            expected = "a line of JSON"
            problem = Problem(self._source, number, None, "what is not JSON", expected, _CUT_OFF)
            raise ConfigError(problem) from None


class _Player:
    """A forward-only position in a recording."""

    def __init__(self, lines: _Lines, decoder: TickDecoder) -> None:
        self._lines = lines
        self._decoder = decoder
        self.position = 0
        self.tick = lines.decode(0, decoder)

    def go_to(self, position: int) -> None:
        """Go forward to the tick at an index."""
        while self.position < position:
            self.position += 1
            self.tick = self._lines.decode(self.position, self._decoder)

    def all_ticks(self) -> Iterator[Tick]:
        """Yield the current tick and all later ones."""
        yield self.tick
        while self.position + 1 < len(self._lines):
            self.go_to(self.position + 1)
            yield self.tick


def read_recording(source: str | Path | TextIO) -> Iterator[Tick]:
    """Return the ticks of a recording, in order.

    Raises:
        NotFoundError: the path can't be read.
        ConfigError: what is there is no recording, or a damaged one.
    """
    return _Lines(*_text_of(source)).player().all_ticks()


def _writable(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"can't write the recording {path}: {reason}") from None


def _text_of(source: str | Path | TextIO) -> tuple[str, str]:
    """Return the uncompressed text, and its name for messages."""
    if isinstance(source, (str, Path)):
        return _unpacked(Path(source)), str(source)
    name = getattr(source, "name", None)
    shown = name if isinstance(name, str) else "<recording>"
    text = source.read(MAX_TEXT_BYTES + 1)
    _check_size(len(text), shown)
    return text, shown


def _unpacked(path: Path) -> str:
    try:
        with path.open("rb") as raw:
            is_packed = raw.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
        with gzip.open(path) if is_packed else path.open("rb") as stream:
            data = stream.read(MAX_TEXT_BYTES + 1)
        _check_size(len(data), str(path))
        return data.decode()
    except (EOFError, zlib.error, gzip.BadGzipFile):
        found, expected = "a damaged or cut-off gzip file", "a whole one"
        raise ConfigError(Problem(str(path), None, None, found, expected, _UNPACK)) from None
    except UnicodeDecodeError:
        raise ConfigError(Problem(str(path), None, None, "no text", "a recording")) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise NotFoundError(f"can't read the recording {path}: {reason}") from None


def _check_size(size: int, source: str) -> None:
    if size > MAX_TEXT_BYTES:
        expected = f"at most {MAX_TEXT_BYTES // (1024 * 1024)} MiB"
        raise ConfigError(Problem(source, None, None, "a larger recording", expected))
