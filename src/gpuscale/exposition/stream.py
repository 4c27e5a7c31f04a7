"""The stream of a node agent as lines of JSON: a snapshot of all series, then what changes with each tick.

Every line is one object with `kind` and, but for `end`, `ms`: when the values were measured, in whole
milliseconds since the epoch.

    {"kind":"snapshot","version":1,"ms":…,"series":[[id,name,{label:value,…},value],…]}
    {"kind":"change","ms":…,"values":{"id":value,…},"new":[[id,name,{…},value],…],"gone":[id,…]}
    {"kind":"heartbeat","ms":…}
    {"kind":"end","reason":"…"}

An id stands for one series from the line that brings it until a line says that it is gone, or until the
next snapshot; it is never given to another one on the same stream. Values are JSON numbers, or the texts
`NaN`, `+Inf` and `-Inf`. A `snapshot`, `change` or `heartbeat` may carry `error`: why the latest read
failed. Readers pass over keys that they do not know.

Pure: no I/O and no clock. The encoder serves all subscribers of one agent, the decoder is a subscriber's.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuscale.core.errors import GpuscaleError
from gpuscale.exposition.families import Family

VERSION = 1
MAX_LINE_BYTES = 32 * 1024 * 1024
"""A guard against a stream that is none; a snapshot of 64 GPUs is about 0.5 MiB."""
MAX_SERIES = 200_000
"""What a decoder keeps at most."""

_SHOWN = 60
_MAX_WHOLE = 1 << 1023
_SPECIAL = {"NaN": math.nan, "+Inf": math.inf, "-Inf": -math.inf}


class StreamError(GpuscaleError):
    """A line is not of the stream's format; the subscriber has to start again."""


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """What tells one series from another."""

    name: str
    labels: tuple[tuple[str, str], ...]
    """In printing order."""


Value = int | float


class StreamEncoder:
    """Turns each tick's families into one line for every subscriber."""

    def __init__(self) -> None:
        self._ids: dict[SeriesKey, int] = {}
        self._values: dict[SeriesKey, Value] = {}
        self._next_id = 1
        self._measured_ms = 0
        self._error: str | None = None

    def advance(
        self, families: Iterable[Family], measured_ms: int, error: str | None = None
    ) -> bytes:
        """Return the line that tells what changed since the last tick."""
        values = _values_of(families)
        gone = [self._ids.pop(key) for key in self._values if key not in values]
        new = [key for key in values if key not in self._ids]
        for key in new:
            self._ids[key] = self._next_id
            self._next_id += 1
        changed = {
            str(self._ids[key]): _encoded(value)
            for key, value in values.items()
            if key in self._values and not _same(self._values[key], value)
        }
        self._values, self._measured_ms, self._error = values, measured_ms, error
        if not (changed or new or gone):
            return self._line({"kind": "heartbeat"})
        message: dict[str, object] = {"kind": "change"}
        if changed:
            message["values"] = changed
        if new:
            message["new"] = [self._entry(key) for key in new]
        if gone:
            message["gone"] = gone
        return self._line(message)

    def snapshot(self) -> bytes:
        """Return the line that a new subscriber starts with: every series as of the last tick."""
        series = [self._entry(key) for key in self._values]
        return self._line({"kind": "snapshot", "version": VERSION, "series": series})

    def _entry(self, key: SeriesKey) -> list[object]:
        return [self._ids[key], key.name, dict(key.labels), _encoded(self._values[key])]

    def _line(self, message: dict[str, object]) -> bytes:
        message["ms"] = self._measured_ms
        if self._error is not None:
            message["error"] = self._error
        return _json_line(message)


def end_line(reason: str) -> bytes:
    """Return the last line of a stream, which says why it ends."""
    return _json_line({"kind": "end", "reason": reason})


class StreamDecoder:
    """Keeps a subscriber's picture of an agent's series up to date, line by line.

    Attributes:
        series: every series with its value, as of the last line.
        measured_ms: when those values were measured; None before the snapshot.
        error: why the agent's latest read failed; None when it went well.
        ended: why the stream ended; None while it goes on.
        touched: the series whose values the last line brought.
        is_reshaped: whether series came or went with the last line.
    """

    def __init__(self) -> None:
        self.series: dict[SeriesKey, Value] = {}
        self.measured_ms: int | None = None
        self.error: str | None = None
        self.ended: str | None = None
        self.touched: list[SeriesKey] = []
        self.is_reshaped = False
        self._keys: dict[int, SeriesKey] = {}

    def feed(self, line: bytes) -> None:
        """Apply one line.

        Raises:
            StreamError: the line is not of the format, or does not follow from the ones before.
        """
        message = _parsed(line)
        kind = message.get("kind")
        self.touched, self.is_reshaped = [], False
        if kind == "end":
            self.ended = str(message.get("reason", ""))
            return
        if kind == "snapshot":
            self._restart(message)
        elif self.measured_ms is None:
            raise StreamError(f"found {_shown(kind)} first, expected a snapshot")
        elif kind == "change":
            self._change(message)
        elif kind != "heartbeat":
            raise StreamError(
                f"found the kind {_shown(kind)}, expected snapshot, change, heartbeat or end"
            )
        self.measured_ms = _whole(message.get("ms"), "ms")
        error = message.get("error")
        self.error = None if error is None else str(error)

    def _restart(self, message: Mapping[str, object]) -> None:
        if message.get("version") != VERSION:
            found = _shown(message.get("version"))
            raise StreamError(f"found stream version {found}, expected {VERSION}")
        self.series.clear()
        self._keys.clear()
        self.is_reshaped = True
        self._add_all(message.get("series", []))

    def _change(self, message: Mapping[str, object]) -> None:
        gone, new = _list(message.get("gone", []), "gone"), _list(message.get("new", []), "new")
        self.is_reshaped = bool(gone or new)
        for id_ in gone:
            self.series.pop(self._keys.pop(_whole(id_, "gone"), _NO_SERIES), None)
        values = message.get("values", {})
        if not isinstance(values, dict):
            raise StreamError(f"values: found {_shown(values)}, expected a mapping")
        for id_text, value in values.items():
            key = (
                self._keys.get(int(id_text)) if id_text.isdecimal() and len(id_text) < 20 else None
            )
            if key is None:
                raise StreamError(
                    f"values: found the id {_shown(id_text)}, which stands for nothing"
                )
            self.series[key] = _decoded(value)
            self.touched.append(key)
        self._add_all(new)

    def _add_all(self, entries: object) -> None:
        for entry in _list(entries, "series"):
            self._add(entry)
        if len(self.series) > MAX_SERIES:
            raise StreamError(f"found more than {MAX_SERIES} series")

    def _add(self, entry: object) -> None:
        match entry:
            case [int() as id_, str() as name, dict() as labels, value]:
                key = SeriesKey(name, tuple((str(k), str(v)) for k, v in labels.items()))
            case _:
                raise StreamError(
                    f"series: found {_shown(entry)}, expected [id, name, labels, value]"
                )
        if id_ in self._keys or key in self.series:
            raise StreamError(f"series: found {_shown(entry)} twice")
        self._keys[id_] = key
        self.series[key] = _decoded(value)
        self.touched.append(key)


_NO_SERIES = SeriesKey("", ())


def _values_of(families: Iterable[Family]) -> dict[SeriesKey, Value]:
    return {
        SeriesKey(family.name + sample.suffix, sample.labels): sample.value
        for family in families
        for sample in family.samples
    }


def _same(one: Value, other: Value) -> bool:
    return one == other or (one != one and other != other)


def _encoded(value: Value) -> Value | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _decoded(value: object) -> Value:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(value, int) and abs(value) >= _MAX_WHOLE:
            raise StreamError("found a whole number that is too large, expected a 64-bit float")
        return value
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    raise StreamError(f"found the value {_shown(value)}, expected a number")


def _json_line(message: Mapping[str, object]) -> bytes:
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.encode(errors="replace") + b"\n"


def _parsed(line: bytes) -> dict[str, object]:
    if len(line) > MAX_LINE_BYTES:
        raise StreamError(f"found a line of {len(line)} bytes, expected at most {MAX_LINE_BYTES}")
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StreamError(f"found {_shown(line)}, expected a line of JSON") from error
    if not isinstance(message, dict):
        raise StreamError(f"found {_shown(message)}, expected a JSON object")
    return message


def _list(value: object, field: str) -> list[object]:
    if not isinstance(value, list):
        raise StreamError(f"{field}: found {_shown(value)}, expected a list")
    return value


def _whole(value: object, field: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise StreamError(f"{field}: found {_shown(value)}, expected a whole number")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
