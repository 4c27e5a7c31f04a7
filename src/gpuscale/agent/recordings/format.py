"""Recorded readings as lines of JSON: what changed from one read to the next.

The first line is the header, every other line a tick: the result of one read. Numbers in brackets are
positions in the list of GPUs, which the header starts and `new` extends.

```
{"gpuscale_recording": 1, "recorded_by": "...", "start_ms": 1790000000000, "gpus": [{"index": 0, ...}]}
{"t": 0, "read": [0], "gpu": {"0": {"v": {"DCGM_FI_DEV_GPU_UTIL": 40}, "a": {"not supported": ["..."]}}}}
{"t": 1000, "gpu": {"0": {"v": {"DCGM_FI_DEV_GPU_UTIL": 55}}}}
{"t": 2000, "error": "the driver is not loaded"}
```

| key | what it holds | when it is left out |
| --- | --- | --- |
| `t` | milliseconds since `start_ms` | never |
| `new` | GPUs seen for the first time | there are none |
| `gpus` | positions of the GPUs that should be there | as in the tick before; at first, all of the header |
| `read` | positions of the GPUs that were read, in order | as in the tick before; at first, none |
| `error` | why nothing at all could be read | the read went well |
| `gpu` | by position: what is different in a GPU's reading from its last one | nothing is |

Of one GPU: `v` values, `-v` fields that lost their value, `a` reasons with the fields that are absent for
them, `-a` fields that are absent no more, `p` all processes (with the number of looks where use is sampled),
`e` all event counts, `lag` milliseconds from the measurement to the read. A GPU starts with nothing and a lag
of 0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuscale.agent.gpu.readings import (
    EventCount,
    GpuIdentity,
    GpuInstance,
    GpuReading,
    ProcessReading,
)

VERSION = 1
MAX_GPUS = 4096
"""In one recording, MIG instances and GPUs that were swapped included."""
MAX_INTEGER = 2**64
"""No driver counts further."""
_LATEST_MS = 2**53
"""Far beyond any date, and exact in every reader of JSON."""
_NUMBERS_OF_A_PROCESS = (5, 6)
"""After its PID and name; each may be unknown."""
_SHOWN_CHARACTERS = 60

Value = int | float | str


class FormatFault(ValueError):
    """A recording's line is invalid."""

    def __init__(self, field: str, found: str, expected: str) -> None:
        self.field = field
        self.found = found
        self.expected = expected
        super().__init__(f"{field}: found {found}, expected {expected}")


@dataclass(frozen=True, slots=True)
class Tick:
    """The result of one read."""

    now_ms: int
    gpus: tuple[GpuIdentity, ...]
    """Every GPU that should be there."""
    readings: tuple[GpuReading, ...]
    """Each GPU at most once."""
    error: str | None = None
    """Why nothing at all could be read; there are no readings then."""


@dataclass(frozen=True, slots=True)
class Header:
    """A recording's header."""

    recorded_by: str
    start_ms: int
    gpus: tuple[GpuIdentity, ...]


@dataclass(frozen=True, slots=True)
class _Last:
    """The latest state of one GPU."""

    values: Mapping[str, Value]
    absent: Mapping[str, str]
    processes: tuple[ProcessReading, ...]
    events: tuple[EventCount, ...]
    lag_ms: int


_NOTHING_YET = _Last({}, {}, (), (), 0)


def header_data(header: Header) -> dict[str, Any]:
    """Return the first line of a recording."""
    return {
        "gpuscale_recording": VERSION,
        "recorded_by": header.recorded_by,
        "start_ms": header.start_ms,
        "gpus": [_identity_data(gpu) for gpu in header.gpus],
    }


def read_header(data: object) -> Header:
    """Parse the first line.

    Raises:
        FormatFault: it is no header, or one of a version that is not known here.
    """
    fields = _object(data, "header")
    if "gpuscale_recording" not in fields:
        raise FormatFault("header", "no key gpuscale_recording", "the header of a recording")
    if fields["gpuscale_recording"] != VERSION or fields["gpuscale_recording"] is True:
        found = _shown(fields["gpuscale_recording"])
        raise FormatFault("gpuscale_recording", found, f"the version {VERSION}")
    return Header(
        _text(fields, "recorded_by"),
        _whole(fields.get("start_ms"), "start_ms", 0, _LATEST_MS),
        _identities(fields.get("gpus"), "gpus"),
    )


class TickEncoder:
    """Turns ticks, in order, into lines that hold what changed."""

    def __init__(self, header: Header) -> None:
        self._start_ms = header.start_ms
        self._positions = {gpu: position for position, gpu in enumerate(header.gpus)}
        self._last: dict[int, _Last] = {}
        self._gpus = list(range(len(header.gpus)))
        self._read: list[int] = []

    def encode(self, tick: Tick) -> dict[str, Any]:
        line: dict[str, Any] = {"t": tick.now_ms - self._start_ms}
        named = (*tick.gpus, *(reading.gpu for reading in tick.readings))
        new = [gpu for gpu in dict.fromkeys(named) if gpu not in self._positions]
        for gpu in new:
            self._positions[gpu] = len(self._positions)
        if new:
            line["new"] = [_identity_data(gpu) for gpu in new]
        gpus = [self._positions[gpu] for gpu in tick.gpus]
        if gpus != self._gpus:
            line["gpus"] = self._gpus = gpus
        if tick.error is not None:
            return {**line, "error": tick.error}
        read = [self._positions[reading.gpu] for reading in tick.readings]
        if read != self._read:
            line["read"] = self._read = read
        changes = {}
        for position, reading in zip(read, tick.readings, strict=True):
            change = self._change(position, reading, tick.now_ms)
            if change:
                changes[str(position)] = change
        return {**line, "gpu": changes} if changes else line

    def _change(self, position: int, reading: GpuReading, now_ms: int) -> dict[str, Any]:
        before = self._last.get(position, _NOTHING_YET)
        lag_ms = now_ms - reading.measured_ms
        by_reason: dict[str, list[str]] = {}
        for name, reason in _changed(before.absent, reading.absent).items():
            by_reason.setdefault(reason, []).append(name)
        parts = {
            "v": _changed(before.values, reading.values),
            "-v": [name for name in before.values if name not in reading.values],
            "a": by_reason,
            "-a": [name for name in before.absent if name not in reading.absent],
        }
        change: dict[str, Any] = {key: part for key, part in parts.items() if part}
        if reading.processes != before.processes:
            change["p"] = [_process_data(process) for process in reading.processes]
        if reading.events != before.events:
            change["e"] = [
                [event.field, [list(label) for label in event.labels], event.value]
                for event in reading.events
            ]
        if lag_ms != before.lag_ms:
            change["lag"] = lag_ms
        self._last[position] = _Last(
            dict(reading.values), dict(reading.absent), reading.processes, reading.events, lag_ms
        )
        return change


class TickDecoder:
    """Turns lines, in order, back into ticks."""

    def __init__(self, header: Header) -> None:
        self._start_ms = header.start_ms
        self._known = list(header.gpus)
        self._last: dict[int, _Last] = {}
        self._gpus: Sequence[int] = range(len(header.gpus))
        self._read: Sequence[int] = ()
        self._t = 0

    def decode(self, data: object) -> Tick:
        """Return the tick of one line.

        Raises:
            FormatFault: the line is no tick, or does not follow the ones before.
        """
        line = _object(data, "tick")
        self._t = _whole(line.get("t"), "t", self._t, _LATEST_MS)
        now_ms = self._start_ms + self._t
        if "new" in line:
            self._known.extend(_identities(line["new"], "new"))
            if len(self._known) > MAX_GPUS:
                raise FormatFault("new", f"{len(self._known)} GPUs so far", f"at most {MAX_GPUS}")
        self._gpus = self._positions(line, "gpus", self._gpus)
        gpus = tuple(self._known[position] for position in self._gpus)
        if "error" in line:
            return Tick(now_ms, gpus, (), _text(line, "error"))
        self._read = self._positions(line, "read", self._read)
        for key, change in _object(line.get("gpu", {}), "gpu").items():
            if not (key.isascii() and key.isdigit() and len(key) <= len(str(MAX_GPUS))):
                raise FormatFault("gpu", _shown(key), "the position of a GPU")
            position = _whole(int(key), "gpu", 0, len(self._known) - 1)
            last = self._last.get(position, _NOTHING_YET)
            self._last[position] = _changed_by(last, _object(change, f"gpu.{key}"), f"gpu.{key}")
        readings = []
        for position in self._read:
            gpu, last = self._known[position], self._last.get(position, _NOTHING_YET)
            told = last.values, last.absent, last.processes, last.events
            readings.append(GpuReading(gpu, now_ms - last.lag_ms, *told))
        return Tick(now_ms, gpus, tuple(readings))

    def _positions(self, line: Mapping[str, Any], key: str, before: Sequence[int]) -> Sequence[int]:
        if key not in line:
            return before
        listed = _list(line[key], key)
        positions = [_whole(each, key, 0, len(self._known) - 1) for each in listed]
        if len(set(positions)) < len(positions):
            raise FormatFault(key, "a GPU twice", "each GPU at most once")
        return positions


def _changed(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is new or different; 1 and 1.0 are, since they print differently."""
    return {
        name: value
        for name, value in now.items()
        if name not in before or type(before[name]) is not type(value) or before[name] != value
    }


def _changed_by(last: _Last, change: Mapping[str, Any], where: str) -> _Last:
    values = dict(last.values)
    for name in _texts(change.get("-v", []), f"{where}.-v"):
        values.pop(name, None)
    for name, value in _object(change.get("v", {}), f"{where}.v").items():
        values[name] = _value(value, f"{where}.v.{_cut(name)}")
    absent = dict(last.absent)
    for name in _texts(change.get("-a", []), f"{where}.-a"):
        absent.pop(name, None)
    for reason, names in _object(change.get("a", {}), f"{where}.a").items():
        absent.update(dict.fromkeys(_texts(names, f"{where}.a"), reason))
    processes = last.processes
    if "p" in change:
        listed = _list(change["p"], f"{where}.p")
        processes = tuple(_process(each, f"{where}.p") for each in listed)
    events = last.events
    if "e" in change:
        events = tuple(_event(each, f"{where}.e") for each in _list(change["e"], f"{where}.e"))
    lag_ms = _whole(change.get("lag", last.lag_ms), f"{where}.lag", -_LATEST_MS, _LATEST_MS)
    return _Last(values, absent, processes, events, lag_ms)


def _identity_data(gpu: GpuIdentity) -> dict[str, Any]:
    data: dict[str, Any] = {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "pci_bus_id": gpu.pci_bus_id,
        "model": gpu.model,
    }
    if gpu.instance is not None:
        instance = gpu.instance
        data["instance"] = {
            "id": instance.id,
            "profile": instance.profile,
            "uuid": instance.uuid,
        }
    return data


def _identities(data: object, where: str) -> tuple[GpuIdentity, ...]:
    listed = _list(data, where)
    if len(listed) > MAX_GPUS:
        raise FormatFault(where, f"{len(listed)} GPUs", f"at most {MAX_GPUS}")
    return tuple(_identity(_object(each, where), where) for each in listed)


def _identity(data: Mapping[str, Any], where: str) -> GpuIdentity:
    return GpuIdentity(
        _whole(data.get("index"), f"{where}.index", 0, MAX_INTEGER),
        _text(data, "uuid"),
        _text(data, "pci_bus_id"),
        _text(data, "model"),
        _instance(_object(data["instance"], f"{where}.instance")) if "instance" in data else None,
    )


def _instance(data: Mapping[str, Any]) -> GpuInstance:
    id_ = _whole(data.get("id"), "instance.id", 0, MAX_INTEGER)
    return GpuInstance(id_, _text(data, "profile"), _text(data, "uuid"))


def _process_data(process: ProcessReading) -> list[int | str | None]:
    data: list[int | str | None] = [
        process.pid,
        process.name,
        process.sm_util,
        process.mem_copy_util,
        process.encode_util,
        process.decode_util,
        process.memory_used_mib,
    ]
    return data if process.looks is None else [*data, process.looks]


def _process(data: object, where: str) -> ProcessReading:
    match _list(data, where):
        case [pid, str(name), *numbers] if len(numbers) in _NUMBERS_OF_A_PROCESS:
            known = (
                None if number is None else _whole(number, where, 0, MAX_INTEGER)
                for number in numbers
            )
            return ProcessReading(_whole(pid, where, 0, MAX_INTEGER), name, *known)
    expected = "[pid, name, SM %, memory copy %, encode %, decode %, MiB, looks?]"
    raise FormatFault(where, _shown(data), expected)


def _event(data: object, where: str) -> EventCount:
    match _list(data, where):
        case [str(field), list(labels), value]:
            pairs = tuple(_label(label, where) for label in labels)
            return EventCount(field, pairs, _whole(value, where, 0, MAX_INTEGER))
    raise FormatFault(where, _shown(data), "[family, labels, count]")


def _label(data: object, where: str) -> tuple[str, str]:
    match _texts(data, where):
        case [name, value]:
            return name, value
    raise FormatFault(where, _shown(data), "a label's name and value")


def _value(data: object, where: str) -> Value:
    match data:
        case bool():
            pass
        case int() if abs(data) <= MAX_INTEGER:
            return data
        case float() if math.isfinite(data):
            return data
        case str():
            return data
    raise FormatFault(where, _shown(data), "a finite number or a text")


def _whole(data: object, where: str, low: int, high: int) -> int:
    if isinstance(data, int) and not isinstance(data, bool) and low <= data <= high:
        return data
    raise FormatFault(where, _shown(data), f"a whole number {_range(low, high)}")


def _range(low: int, high: int) -> str:
    if high < low:
        return "that names a GPU, of which there are none so far"
    if high < _LATEST_MS:
        return f"from {low} to {high}"
    return f"of at least {low}" if low >= 0 else f"of at most {high}"


def _object(data: object, where: str) -> Mapping[str, Any]:
    if isinstance(data, dict):
        return data
    raise FormatFault(where, _shown(data), "an object")


def _list(data: object, where: str) -> list[Any]:
    if isinstance(data, list):
        return data
    raise FormatFault(where, _shown(data), "a list")


def _texts(data: object, where: str) -> list[str]:
    listed = _list(data, where)
    if all(isinstance(each, str) for each in listed):
        return listed
    raise FormatFault(where, _shown(data), "a list of texts")


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data.get(key)
    if isinstance(value, str):
        return value
    raise FormatFault(key, _shown(value), "a text")


def _shown(data: object) -> str:
    if data is None:
        return "nothing"
    if isinstance(data, (str, int, float)):
        return _cut(repr(data))
    return "a list" if isinstance(data, list) else "an object"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
