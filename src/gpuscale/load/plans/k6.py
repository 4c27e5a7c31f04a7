"""k6 scripts: their `options` and their first request, read and not run; or options as JSON.

Rates come from the executors constant-arrival-rate and ramping-arrival-rate; virtual users are a closed loop.

Source: grafana/k6 v2.3 documentation, using-k6/scenarios/executors and using-k6/k6-options/reference.
"""

import re
from urllib.parse import urlsplit

from gpuscale.load.plans.literals import LiteralError, LiteralValue, Unread, Value, read_literal
from gpuscale.load.plans.types import (
    MAX_USERS,
    ForeignPlan,
    PlanFile,
    PlannedRequest,
    Segment,
    closed_plan,
    open_plan,
)

TOOL = "k6"
MAX_CHARACTERS = 2_000_000
_OPTIONS = re.compile(r"\b(?:export\s+(?:const|let|var)\s+)options(?:\s*:\s*\w+)?\s*=\s*")
_REQUEST = re.compile(
    r"\bhttp\.(get|post|put|patch|del|head|options)\(\s*(?:'([^'\n]*)'|\"([^\"\n]*)\"|`([^`]*)`|([^\s,)]+))"
)
_RATES = ("constant-arrival-rate", "ramping-arrival-rate")
_USERS = ("constant-vus", "ramping-vus", "shared-iterations", "per-vu-iterations")
_OF_SCENARIO = (
    "executor", "rate", "timeUnit", "duration", "startRate", "stages", "vus", "startVUs",
    "preAllocatedVUs", "maxVUs",
)  # fmt: skip
_OF_OPTIONS = ("scenarios", "stages", "vus", "duration")
_OF_STAGE = ("duration", "target")


def read_k6(text: str, name: str) -> ForeignPlan:
    """Return the load of a k6 script or of a JSON file with its options.

    Raises:
        ConfigError: it has no options that can be read, or a value that is wrong.
    """
    source = PlanFile(name)
    if len(text) > MAX_CHARACTERS:
        found, expected = f"{len(text)} characters", f"at most {MAX_CHARACTERS}"
        source.refuse(None, None, found, expected)
    stripped = text.lstrip()
    if stripped.startswith("{"):
        start = len(text) - len(stripped)
    elif (found_options := _OPTIONS.search(text)) is not None:
        start = found_options.end()
    else:
        source.refuse(None, None, "no options", "export const options = {...}")
    try:
        options, _ = read_literal(text, start)
    except LiteralError as error:
        source.refuse(error.args[1], "options", error.args[0].removeprefix("found "), "an object")
    if not isinstance(options, dict):
        line = options.line if isinstance(options, Unread) else None
        source.refuse(line, "options", "an expression", "an object that is written out")
    reader = _Reader(source)
    requests = () if stripped.startswith("{") else reader.requests(text)
    return reader.plan(options, requests)


class _Reader:
    def __init__(self, source: PlanFile) -> None:
        self._source = source

    def plan(
        self, options: dict[str, LiteralValue], requests: tuple[PlannedRequest, ...]
    ) -> ForeignPlan:
        self._leave_out_others(options, _OF_OPTIONS, "")
        scenarios = options.get("scenarios")
        if scenarios is None:
            return self._closed(options, "vus", requests)
        if not isinstance(scenarios.value, dict) or not scenarios.value:
            self._source.refuse(scenarios.line, "scenarios", _kind(scenarios.value), "scenarios")
        (name, first), *others = scenarios.value.items()
        for other, member in others:
            self._source.leave_out(member.line, f"the further scenario {other} is not taken over")
        if not isinstance(first.value, dict):
            self._source.refuse(first.line, name, _kind(first.value), "an object")
        scenario = first.value
        self._leave_out_others(scenario, _OF_SCENARIO, f"{name}.")
        executor = self._text(scenario, "executor")
        if executor in _RATES:
            return open_plan(self._source, TOOL, self._rates(scenario, executor), requests)
        if executor not in _USERS:
            line = scenario["executor"].line if "executor" in scenario else first.line
            self._source.refuse(line, "executor", repr(executor), ", ".join((*_RATES, *_USERS)))
        return self._closed(scenario, "startVUs" if executor == "ramping-vus" else "vus", requests)

    def _rates(self, scenario: dict[str, LiteralValue], executor: str) -> list[Segment]:
        unit_s = self._seconds(scenario, "timeUnit") or 1.0
        for key in ("preAllocatedVUs", "maxVUs"):
            if key in scenario:
                what = f"{key}, a bound, is not taken over; --connections is one like it"
                self._source.leave_out(scenario[key].line, what)
        if executor == "constant-arrival-rate":
            rate = self._number(scenario, "rate") / unit_s
            return [Segment(self._seconds(scenario, "duration") or 0.0, rate, rate)]
        start = self._number(scenario, "startRate", 0.0)
        stages = self._stages(scenario, start)
        return [Segment(e.length_s, e.first / unit_s, e.last / unit_s) for e in stages]

    def _closed(
        self, given: dict[str, LiteralValue], first: str, requests: tuple[PlannedRequest, ...]
    ) -> ForeignPlan:
        users = self._number(given, first, 1.0)
        length_s = self._seconds(given, "duration")
        segments = [Segment(length_s or 0.0, users, users)]
        if "stages" in given:
            segments = self._stages(given, users)
        return closed_plan(self._source, TOOL, segments, requests)

    def _stages(self, given: dict[str, LiteralValue], before: float) -> list[Segment]:
        """Return the stages, each of which goes evenly from the last target to its own."""
        stages = given.get("stages")
        if stages is None or not isinstance(stages.value, list):
            line = None if stages is None else stages.line
            self._source.refuse(line, "stages", "none that can be read", "a list of stages")
        segments: list[Segment] = []
        for member in stages.value:
            if not isinstance(member.value, dict):
                self._source.refuse(member.line, "stages", _kind(member.value), "an object")
            self._leave_out_others(member.value, _OF_STAGE, "stages.")
            target = self._number(member.value, "target", line=member.line)
            length_s = self._seconds(member.value, "duration") or 0.0
            segments.append(Segment(length_s, before, target))
            before = target
        return segments

    def requests(self, text: str) -> tuple[PlannedRequest, ...]:
        """Return the first literal request; how many a run of the script sends is unknown."""
        chosen: PlannedRequest | None = None
        for found in _REQUEST.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            method = "DELETE" if found[1] == "del" else found[1].upper()
            url = next((each for each in found.groups()[1:4] if each is not None), "")
            if chosen is None and urlsplit(url).scheme in ("http", "https") and "${" not in url:
                chosen = PlannedRequest(url, method)
                if found[1] not in ("get", "head"):
                    self._source.leave_out(line, "the body of the request is not taken over")
            else:
                what = "a further request, or one that is computed, is not taken over"
                self._source.leave_out(line, what)
        return () if chosen is None else (chosen,)

    def _leave_out_others(
        self, given: dict[str, LiteralValue], known: tuple[str, ...], place: str
    ) -> None:
        for key, member in given.items():
            if key not in known:
                self._source.leave_out(member.line, f"{place}{key} is not taken over")

    def _value(self, given: dict[str, LiteralValue], key: str) -> tuple[Value, int | None]:
        member = given.get(key)
        if member is None:
            return None, None
        if isinstance(member.value, Unread):
            expected = "a value that is written out: scripts are read, not run"
            self._source.refuse(member.line, key, repr(member.value.text[:80]), expected)
        return member.value, member.line

    def _text(self, given: dict[str, LiteralValue], key: str) -> str:
        value, _ = self._value(given, key)
        return value if isinstance(value, str) else ""

    def _number(
        self,
        given: dict[str, LiteralValue],
        key: str,
        default: float | None = None,
        line: int | None = None,
    ) -> float:
        value, own_line = self._value(given, key)
        if value is None and default is not None:
            return default
        return self._source.number(value, own_line or line, key, MAX_USERS)

    def _seconds(self, given: dict[str, LiteralValue], key: str) -> float | None:
        """Return a duration: a text such as 1m30s, or milliseconds as a number."""
        value, line = self._value(given, key)
        if value is None:
            return None
        if isinstance(value, float) and value >= 0:
            return value / 1000
        return self._source.seconds(value, line, key)


def _kind(value: Value) -> str:
    return repr(value.text[:80]) if isinstance(value, Unread) else type(value).__name__
