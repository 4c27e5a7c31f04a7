"""Load plans of other tools, as far as they can be converted."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn
from urllib.parse import urlsplit

from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.loads import Load
from gpuscale.load.plan import MAX_RATE

MAX_SEGMENTS = 100_000
MAX_USERS = 10_000_000
_LONGEST_S = 1e9


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """The request that a plan sends."""

    url: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class ForeignPlan:
    """One load, from another tool's file."""

    tool: str
    load: Load | None
    """None is a closed loop: users who wait for answers."""
    duration_s: float | None
    """None where the file doesn't say how long."""
    users: int = 0
    """The most at a time, of a closed loop."""
    requests: tuple[PlannedRequest, ...] = ()
    """Sent in turn, all to one server."""
    left_out: tuple[str, ...] = ()
    """What could not be taken over, each with file and line."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A rate that changes linearly; a number of users while a plan counts those."""

    length_s: float
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class SegmentsLoad:
    """Consecutive segments; the rate may jump between them, and is 0 after the last."""

    segments: tuple[Segment, ...]

    def rate(self, t: float) -> float:
        """Return requests per second at `t`."""
        start = 0.0
        for each in self.segments:
            if start <= t < start + each.length_s:
                return each.first + (each.last - each.first) * (t - start) / each.length_s
            start += each.length_s
        return 0.0

    def requests_until(self, t: float) -> float:
        """Return how many requests came in [0, t)."""
        total, start = 0.0, 0.0
        for each in self.segments:
            if start >= t:
                break
            inside = min(t - start, each.length_s)
            if each.length_s > 0:
                slope = (each.last - each.first) / each.length_s
                total += each.first * inside + slope * inside * inside / 2
            start += each.length_s
        return total

    def changes(self, end: float) -> tuple[float, ...]:
        """Return the times between segments, whether the rate jumps or not."""
        moments, start = [], 0.0
        for each in self.segments:
            if start > end:
                break
            moments.append(start)
            start += each.length_s
        return (*moments, *((start,) if start <= end else ()))


@dataclass(slots=True)
class PlanFile:
    """A file being read: collects what is left out, and raises errors with lines.

    Args:
        name: of the file, for messages.
    """

    name: str
    left_out: list[str] = field(default_factory=list)

    def leave_out(self, line: int | None, what: str) -> None:
        """Record something that can't be converted."""
        where = self.name if line is None else f"{self.name}:{line}"
        text = f"{where}: {what}"
        if len(self.left_out) < 100 and text not in self.left_out:
            self.left_out.append(text)

    def refuse(self, line: int | None, field_: str | None, found: str, expected: str) -> NoReturn:
        """Raise a fault of the file.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(Problem(self.name, line, field_, found[:200], expected))

    def seconds(self, value: object, line: int | None, field_: str) -> float:
        """Return a duration such as `1m30s`, or a number of seconds.

        Raises:
            ConfigError: it is neither.
        """
        found = -1.0
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            with contextlib.suppress(ValueError):
                found = parse_duration_ms(value) / 1000
        if not 0 <= found < _LONGEST_S:
            self.refuse(line, field_, repr(value), "a duration such as 30s or 1m30s")
        return found

    def number(self, value: object, line: int | None, field_: str, most: float = MAX_RATE) -> float:
        """Return a non-negative number, given as a number or text.

        Raises:
            ConfigError: it is none.
        """
        found = -1.0
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            with contextlib.suppress(ValueError, OverflowError):
                found = float(value)
        if not 0 <= found <= most:
            self.refuse(line, field_, repr(value), f"a number from 0 to {most:g}")
        return found


def of_one_server(
    source: PlanFile, found: Sequence[tuple[PlannedRequest, int | None]]
) -> tuple[PlannedRequest, ...]:
    """Return the requests to the first one's server, and record the others with their lines."""
    kept: list[PlannedRequest] = []
    for request, line in found:
        if kept and urlsplit(request.url)[:2] != urlsplit(kept[0].url)[:2]:
            source.leave_out(line, "a request to another server is not taken over")
        else:
            kept.append(request)
    return tuple(kept)


def open_plan(
    source: PlanFile, tool: str, segments: list[Segment], requests: Sequence[PlannedRequest]
) -> ForeignPlan:
    """Return an open-loop plan, which sends at given rates.

    Raises:
        ConfigError: it has no time in it, or too many parts.
    """
    total_s = sum(each.length_s for each in segments)
    if total_s <= 0 or len(segments) > MAX_SEGMENTS:
        source.refuse(None, None, f"{total_s:g} s in {len(segments)} stages", "a time to send for")
    load = SegmentsLoad(tuple(each for each in segments if each.length_s > 0))
    return ForeignPlan(tool, load, total_s, 0, tuple(requests), tuple(source.left_out))


def closed_plan(
    source: PlanFile, tool: str, segments: list[Segment], requests: Sequence[PlannedRequest]
) -> ForeignPlan:
    """Return a closed-loop plan: the largest number of users, all the time.

    Raises:
        ConfigError: it has no user.
    """
    users = round(max((max(each.first, each.last) for each in segments), default=0))
    if users < 1:
        source.refuse(None, None, "no users and no rate", "one of them")
    if any(each.first != each.last for each in segments) or len(segments) > 1:
        source.leave_out(None, f"how users come and go; {users} of them are there all the time")
    total_s = sum(each.length_s for each in segments)
    return ForeignPlan(tool, None, total_s or None, users, tuple(requests), tuple(source.left_out))
