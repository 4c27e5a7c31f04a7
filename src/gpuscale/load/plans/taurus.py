"""Taurus YAML and JSON: the first execution that sends requests, its load profile and its requests.

Source: Blazemeter/taurus 1.16 (78b041a), site/dat/docs/ExecutionSettings.md and JMeter.md; bzt/jmx/tools.py
(rates with `steps`).
"""

from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import urljoin

from gpuscale.base.documents.documents import Document, load_documents
from gpuscale.load.plans.types import (
    MAX_USERS,
    ForeignPlan,
    PlanFile,
    PlannedRequest,
    Segment,
    closed_plan,
    of_one_server,
    open_plan,
)

TOOL = "Taurus"
_MOST_STEPS = 10_000
_PROFILE = ("concurrency", "throughput", "ramp-up", "hold-for", "steps", "scenario", "executor")
_SCENARIO = ("requests", "default-address", "headers")
_REQUEST = ("url", "method", "headers", "body", "label")
_KNOWN = ("execution", "scenarios", "settings")


def is_taurus(data: object) -> bool:
    """Return whether data of a YAML file is a Taurus configuration."""
    return isinstance(data, Mapping) and "execution" in data


def read_taurus(text: str, name: str) -> ForeignPlan:
    """Return the load of a Taurus configuration.

    Raises:
        ConfigError: it is no YAML, has no execution, or a value that can't be read.
    """
    source = PlanFile(name)
    document = next(iter(load_documents(text, name)), None)
    if document is None or not is_taurus(document.data):
        source.refuse(None, "execution", "none", "a Taurus configuration, with executions")
    reader = _Reader(document, source)
    return reader.plan()


class _Reader:
    def __init__(self, document: Document, source: PlanFile) -> None:
        self._document, self._source = document, source
        self._data: Any = document.data

    def plan(self) -> ForeignPlan:
        for key in self._data:
            if key not in _KNOWN:
                self._leave_out((key,), f"{key} is not taken over")
        executions = self._data["execution"]
        listed = executions if isinstance(executions, list) else [executions]
        if not listed or not isinstance(listed[0], Mapping):
            self._refuse(("execution",), executions, "a list of executions")
        path: tuple[str | int, ...] = ("execution",)
        if isinstance(executions, list):
            path = ("execution", 0)
            for index in range(1, len(executions)):
                self._leave_out(("execution", index), "a further execution is not taken over")
        return self._execution(listed[0], path)

    def _execution(self, execution: Mapping[str, Any], path: tuple[str | int, ...]) -> ForeignPlan:
        for key in execution:
            if key not in _PROFILE:
                self._leave_out((*path, key), f"{key} is not taken over")

        def seconds(key: str) -> float:
            value = execution.get(key)
            return (
                0.0 if value is None else self._source.seconds(value, self._line((*path, key)), key)
            )

        ramp_s, hold_s = seconds("ramp-up"), seconds("hold-for")
        requests = self._scenario(execution.get("scenario"), (*path, "scenario"))
        rate = self._most(execution, path, "throughput", 1_000_000)
        if rate is None:
            users = self._most(execution, path, "concurrency", MAX_USERS)
            goal = 1.0 if users is None else users
            segments = [Segment(ramp_s, 0, goal), Segment(hold_s, goal, goal)]
            segments = [each for each in segments if each.length_s] or [Segment(0.0, goal, goal)]
            return closed_plan(self._source, TOOL, segments, requests)
        steps = execution.get("steps")
        if steps is None or not ramp_s:
            rising = [Segment(ramp_s, 0, rate)]
        else:
            count = round(
                self._source.number(steps, self._line((*path, "steps")), "steps", _MOST_STEPS)
            )
            levels = [rate * (index + 1) / count for index in range(count)]
            rising = [Segment(ramp_s / count, level, level) for level in levels]
        if "concurrency" in execution:
            what = "concurrency, a bound, is not taken over; --connections is one like it"
            self._leave_out((*path, "concurrency"), what)
        return open_plan(self._source, TOOL, [*rising, Segment(hold_s, rate, rate)], requests)

    def _most(
        self, execution: Mapping[str, Any], path: tuple[str | int, ...], key: str, most: float
    ) -> float | None:
        """Return a number that may also be given for each executor, as `{jmeter: 10}`."""
        value = execution.get(key)
        if isinstance(value, Mapping):
            name = execution.get("executor", "jmeter")
            value = value.get(name, next(iter(value.values()), None))
        if value is None:
            return None
        return self._source.number(value, self._line((*path, key)), key, most)

    def _scenario(self, given: object, path: tuple[str | int, ...]) -> tuple[PlannedRequest, ...]:
        scenarios = self._data.get("scenarios")
        if isinstance(given, str) and isinstance(scenarios, Mapping) and given in scenarios:
            path, given = ("scenarios", given), scenarios[given]
        if isinstance(given, str):
            self._leave_out(path, f"the script {given} is not read; name it to --plan by itself")
            return ()
        if not isinstance(given, Mapping):
            return ()
        if "script" in given:
            what = f"the script {given['script']} is not read; name it to --plan by itself"
            self._leave_out((*path, "script"), what)
        for key in given:
            if key not in (*_SCENARIO, "script"):
                self._leave_out((*path, key), f"{key} is not taken over")
        requests = given.get("requests")
        found = []
        for index, each in enumerate(requests if isinstance(requests, list) else ()):
            place = (*path, "requests", index)
            if (request := self._request(each, place, given)) is not None:
                found.append((request, self._line(place)))
        return of_one_server(self._source, found)

    def _request(
        self, request: object, path: tuple[str | int, ...], scenario: Mapping[str, Any]
    ) -> PlannedRequest | None:
        body: Mapping[str, Any] = {"url": request} if isinstance(request, str) else {}
        if isinstance(request, Mapping):
            body = request
        for key in body:
            if key not in _REQUEST:
                self._leave_out((*path, key), f"{key} is not taken over")
        url = body.get("url")
        if not isinstance(url, str):
            self._refuse((*path, "url"), url, "a URL")
        if "${" in url:
            self._leave_out((*path, "url"), "a URL with a variable is not taken over")
            return None
        headers = {**_texts(scenario.get("headers")), **_texts(body.get("headers"))}
        content = body.get("body")
        if content is not None and not isinstance(content, str):
            self._leave_out((*path, "body"), "a body that is a form is not taken over")
        base = scenario.get("default-address")
        whole = urljoin(base, url) if isinstance(base, str) else url
        return PlannedRequest(
            whole,
            str(body.get("method", "GET")).upper(),
            tuple(headers.items()),
            content.encode() if isinstance(content, str) else b"",
        )

    def _line(self, path: tuple[str | int, ...]) -> int | None:
        return self._document.line(path)

    def _leave_out(self, path: tuple[str | int, ...], what: str) -> None:
        self._source.leave_out(self._line(path), what)

    def _refuse(self, path: tuple[str | int, ...], found: object, expected: str) -> NoReturn:
        self._source.refuse(self._line(path), ".".join(map(str, path)), repr(found), expected)


def _texts(value: object) -> dict[str, str]:
    return (
        {str(key): str(each) for key, each in value.items()} if isinstance(value, Mapping) else {}
    )
