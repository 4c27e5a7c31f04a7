"""The stream of a node agent as lines of JSON: a snapshot of all series, then what changes with each tick.

Every line is one object with `kind` and, but for `end`, `ms`: when the values were measured, in whole
milliseconds since the epoch.

    {"kind":"snapshot","version":1,"ms":…,"series":[[id,name,{label:value,…},value],…],
     "families":{name:[type,help],…}}
    {"kind":"change","ms":…,"values":{"id":value,…},"new":[[id,name,{…},value],…],"gone":[id,…],
     "families":{name:[type,help],…}}
    {"kind":"heartbeat","ms":…}
    {"kind":"end","reason":"…"}

An id names one series from the line that brings it until a line says that it is gone, or until the
next snapshot; it is never given to another one on the same stream. Values are JSON numbers, or the texts
`NaN`, `+Inf` and `-Inf`. `families` says of which types the metrics are, and what they mean; a change
brings only those that are new or different, and older agents leave it out. A `snapshot`, `change` or
`heartbeat` may carry `error`: why the latest read failed. Readers pass
over keys that they do not know.

Pure: no I/O and no clock. The encoder serves all subscribers of one agent, the reader is a subscriber's.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Generic, TypeVar, cast

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.exposition.families import Family

VERSION = 1
MAX_LINE_BYTES = 32 * 1024 * 1024
"""A guard against a stream that is none; a snapshot of 64 GPUs is about 0.5 MiB."""
MAX_SERIES = 200_000
"""What a reader keeps at most."""
MAX_FAMILIES_CHARS = 1024 * 1024
"""Characters of types and help that a reader keeps at most; what is beyond is passed over."""

_SHOWN = 60
_MAX_WHOLE = 1 << 1023
_SPECIAL = {"NaN": math.nan, "+Inf": math.inf, "-Inf": -math.inf}


class StreamError(GpuscaleError):
    """A stream's line is malformed; the subscriber must start again."""


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """A series' identity."""

    name: str
    labels: tuple[tuple[str, str], ...]
    """In printing order."""


T = TypeVar("T")
Value = int | float
Meaning = tuple[str, str]
"""Type and help of a family."""


class StreamEncoder:
    """Encodes each collect's families as one line for all subscribers."""

    def __init__(self) -> None:
        self._ids: dict[SeriesKey, int] = {}
        self._values: dict[SeriesKey, Value] = {}
        self._families: dict[str, Meaning] = {}
        self._next_id = 1
        self._measured_ms = 0
        self._error: str | None = None

    def advance(
        self, families: Iterable[Family], measured_ms: int, error: str | None = None
    ) -> bytes:
        """Return a line with the changes since the last one."""
        known = tuple(families)
        values = _values_of(known)
        meanings: dict[str, Meaning] = {each.name: (each.type, each.help) for each in known}
        described = {
            name: meaning
            for name, meaning in meanings.items()
            if self._families.get(name) != meaning
        }
        gone = [self._ids.pop(key) for key in self._values if key not in values]
        new = [key for key in values if key not in self._ids]
        for key in new:
            self._ids[key] = self._next_id
            self._next_id += 1
        changed = {
            str(self._ids[key]): encoded(value)
            for key, value in values.items()
            if key in self._values and not _same(self._values[key], value)
        }
        self._values, self._measured_ms, self._error = values, measured_ms, error
        self._families = meanings
        if not (changed or new or gone or described):
            return self._line({"kind": "heartbeat"})
        message: dict[str, object] = {"kind": "change"}
        if changed:
            message["values"] = changed
        if new:
            message["new"] = [self._entry(key) for key in new]
        if gone:
            message["gone"] = gone
        if described:
            message["families"] = described
        return self._line(message)

    def snapshot(self) -> bytes:
        """Return a snapshot line for a new subscriber: all series as of the last collect."""
        series = [self._entry(key) for key in self._values]
        message: dict[str, object] = {"kind": "snapshot", "version": VERSION, "series": series}
        if self._families:
            message["families"] = self._families
        return self._line(message)

    def _entry(self, key: SeriesKey) -> list[object]:
        return [self._ids[key], key.name, dict(key.labels), encoded(self._values[key])]

    def _line(self, message: dict[str, object]) -> bytes:
        message["ms"] = self._measured_ms
        if self._error is not None:
            message["error"] = self._error
        return _json_line(message)


def end_line(reason: str) -> bytes:
    """Return a stream's last line with the reason for its end."""
    return _json_line({"kind": "end", "reason": reason})


@dataclass(slots=True)
class StreamLine(Generic[T]):
    """A line's wanted changes."""

    touched: list[T] = field(default_factory=list)
    """The series that are new or have another value."""
    values: list[Value] = field(default_factory=list)
    """One for each of these."""
    gone: list[T] = field(default_factory=list)
    """Series that are no more."""
    has_new: bool = False
    is_described: bool = False
    """Whether families are new or different."""


class StreamReader(Generic[T]):
    """Decodes an agent's stream; the caller stores the values.

    Of each series only a handle of the user's is kept, because a subscriber of a thousand agents has some
    hundred thousand of them.

    Args:
        handle: returns the handle of a series, which has to be hashable, from its name and labels; None for a
            series that is not wanted. Types and help of its family are in `families` by then.

    Attributes:
        measured_ms: when the values were measured; None before this connection's snapshot.
        error: why the agent's latest read failed; None when it went well.
        ended: why the stream ended; None while it goes on.
        families: type and help of the metrics that the agent says something of.
    """

    def __init__(self, handle: Callable[[str, Mapping[str, str]], T | None]) -> None:
        self.measured_ms: int | None = None
        self.error: str | None = None
        self.ended: str | None = None
        self.families: dict[str, Meaning] = {}
        self._handle = handle
        self._families_chars = 0
        self._handles: dict[str, T | None] = {}
        """By id."""

    @property
    def series(self) -> list[T]:
        """Return the handles of the agent's current series."""
        return [handle for handle in self._handles.values() if handle is not None]

    @property
    def unwanted(self) -> int:
        return len(self._handles) - len(self.series)

    def restart(self) -> None:
        """Begin a new connection, whose first line is a snapshot; series go on until then."""
        self.measured_ms = self.error = self.ended = None

    def clear(self) -> list[T]:
        handles, self._handles = self.series, {}
        return handles

    def feed(self, line: bytes) -> StreamLine[T]:
        """Decode a line; the last one of a stream gives nothing.

        Raises:
            StreamError: the line is not of the format, or does not follow from the ones before.
        """
        message = _parsed(line)
        kind = message.get("kind")
        found: StreamLine[T] = StreamLine()
        if kind == "end":
            self.ended = str(message.get("reason", ""))
            return found
        if kind == "snapshot":
            self._snapshot(message, found)
        elif self.measured_ms is None:
            raise StreamError(f"found {_shown(kind)} first, expected a snapshot")
        elif kind == "change":
            self._change(message, found)
        elif kind != "heartbeat":
            raise StreamError(
                f"found the kind {_shown(kind)}, expected snapshot, change, heartbeat or end"
            )
        self.measured_ms = _whole(message.get("ms"), "ms")
        error = message.get("error")
        self.error = None if error is None else str(error)
        return found

    def _snapshot(self, message: Mapping[str, object], found: StreamLine[T]) -> None:
        if message.get("version") != VERSION:
            version = _shown(message.get("version"))
            raise StreamError(f"found stream version {version}, expected {VERSION}")
        before, self._handles = self._handles, {}
        self.families.clear()
        self._families_chars = 0
        found.is_described = found.has_new = True
        try:
            self._describe(message.get("families", {}), found)
            self._add_all(message.get("series", []), found)
        except StreamError:
            self._handles = before
            raise
        still_there = set(found.touched)
        found.gone = [
            each for each in before.values() if each is not None and each not in still_there
        ]

    def _change(self, message: Mapping[str, object], found: StreamLine[T]) -> None:
        values = message.get("values", {})
        if not isinstance(values, dict):
            raise StreamError(f"values: found {_shown(values)}, expected a mapping")
        gone = [str(_whole(id_, "gone")) for id_ in _list(message.get("gone", []), "gone")]
        handles = self._handles
        try:
            touched = [handles[id_] for id_ in values]
        except KeyError as error:
            shown = _shown(error.args[0])
            raise StreamError(f"values: found the id {shown}, which stands for nothing") from None
        for handle, value in zip(touched, _decoded_all(list(values.values())), strict=True):
            if handle is not None:
                found.touched.append(handle)
                found.values.append(value)
        if "families" in message:
            self._describe(message["families"], found)
        if "new" in message:
            self._add_all(message["new"], found)
            found.has_new = True
        if gone:
            dropped = [handles.pop(id_, None) for id_ in gone]
            still_there = set(handles.values())
            found.gone = [each for each in dropped if each is not None and each not in still_there]

    def _describe(self, families: object, found: StreamLine[T]) -> None:
        if not isinstance(families, dict):
            raise StreamError(f"families: found {_shown(families)}, expected a mapping")
        for name, meaning in families.items():
            match meaning:
                case [str() as type_, str() as help_]:
                    self._keep_family(str(name), (type_, help_), found)
                case _:
                    raise StreamError(f"families: found {_shown(meaning)}, expected [type, help]")

    def _keep_family(self, name: str, meaning: Meaning, found: StreamLine[T]) -> None:
        chars = self._families_chars + len(name) + sum(map(len, meaning))
        if (before := self.families.get(name)) is not None:
            chars -= len(name) + sum(map(len, before))
        if chars <= MAX_FAMILIES_CHARS:
            self.families[intern(name)] = (intern(meaning[0]), intern(meaning[1]))
            self._families_chars = chars
            found.is_described = True

    def _add_all(self, entries: object, found: StreamLine[T]) -> None:
        for entry in _list(entries, "series"):
            self._add(entry, found)
        if len(self._handles) > MAX_SERIES:
            raise StreamError(f"found more than {MAX_SERIES} series")

    def _add(self, entry: object, found: StreamLine[T]) -> None:
        match entry:
            case [int() as number, str() as name, dict() as labels, value]:
                # The series ids of a thousand agents are mostly equal, and so are many labels.
                id_ = intern(str(number))
            case _:
                raise StreamError(
                    f"series: found {_shown(entry)}, expected [id, name, labels, value]"
                )
        if id_ in self._handles:
            raise StreamError(f"series: found {_shown(entry)} twice")
        handle = self._handle(name, {intern(str(k)): intern(str(v)) for k, v in labels.items()})
        self._handles[id_] = handle
        if handle is not None:
            found.touched.append(handle)
            found.values.append(_decoded(value))


def _values_of(families: Iterable[Family]) -> dict[SeriesKey, Value]:
    return {
        SeriesKey(family.name + sample.suffix, sample.labels): sample.value
        for family in families
        for sample in family.samples
    }


def _same(one: Value, other: Value) -> bool:
    return one == other or (one != one and other != other)


def encoded(value: Value) -> Value | str:
    """Return a value as JSON."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _decoded_all(values: list[object]) -> list[Value]:
    if set(map(type, values)) <= {float}:
        return cast("list[Value]", values)
    return list(map(_decoded, values))


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
