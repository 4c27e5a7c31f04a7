"""Locust: configuration files, and locustfiles, which are read and not run.

Users wait for answers, so most plans are closed loops. Where each user is held to a pace
(`constant_throughput`, `constant_pacing`), users times pace is a rate.

Source: locustio/locust 2.46.3 (407343d), docs/configuration.rst, docs/custom-load-shape.rst,
examples/custom_shape/stages.py.
"""

import ast
import re
import tomllib
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urljoin

from gpuscale.load.plans.types import (
    MAX_USERS,
    ForeignPlan,
    PlanFile,
    PlannedRequest,
    Segment,
    closed_plan,
    open_plan,
)

TOOL = "Locust"
_LINE = re.compile(r"\s*([\w-]+)\s*[=:]?\s*(.*?)\s*$")
_METHODS = ("get", "post", "put", "patch", "delete", "head", "options")
_TAKEN = ("users", "spawn-rate", "run-time", "host", "locustfile", "headless")
_SHAPES = ("LoadTestShape",)
_MOST_NODES = 200_000


def read_locust_config(text: str, name: str, read_beside: Callable[[str], str]) -> ForeignPlan:
    """Return the load of a `locust.conf`, or of `[tool.locust]` in a TOML file.

    Args:
        text: of the file.
        name: of the file.
        read_beside: returns the text of a file that it names.

    Raises:
        ConfigError: a value can't be read.
    """
    source = PlanFile(name)
    options, lines = _options(text, source)
    for key in options:
        if key not in _TAKEN:
            source.leave_out(lines.get(key), f"{key} is not taken over")
    script = _Script(source)
    if isinstance(file := options.get("locustfile"), str):
        script = read_script(read_beside(file), file)
        script.source.left_out[:0] = source.left_out
        source.left_out = script.source.left_out

    def number(key: str, otherwise: float) -> float:
        value = options.get(key)
        return otherwise if value is None else source.number(value, lines.get(key), key, MAX_USERS)

    users = number("users", 1)
    spawn = number("spawn-rate", 1) or 1.0
    run_s = 0.0
    if (length := options.get("run-time")) is not None:
        run_s = source.seconds(length, lines.get("run-time"), "run-time")
    segments = _towards(0, users, spawn, run_s) if run_s else [Segment(0.0, users, users)]
    host = options.get("host")
    return script.plan(segments, host if isinstance(host, str) else None)


def read_locustfile(text: str, name: str) -> ForeignPlan:
    """Return the load of a locustfile with stages; it is read, not run.

    Raises:
        ConfigError: it is no Python, or says nothing of how many users there are.
    """
    script = read_script(text, name)
    if not script.stages:
        expected = "a LoadTestShape with a list of stages, or a locust.conf that names this file"
        script.source.refuse(None, None, "no stages", expected)
    return script.plan([], None)


def _options(text: str, source: PlanFile) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the options of a file and their lines."""
    options: dict[str, Any] = {}
    lines: dict[str, int] = {}
    try:
        tables = tomllib.loads(text)
        given = tables.get("tool", {}).get("locust", tables if "tool" not in tables else {})
    except (tomllib.TOMLDecodeError, AttributeError, RecursionError):
        given = None
    for number, line in enumerate(text.splitlines(), start=1):
        found = _LINE.match(line.partition("#")[0])
        if found is None or line.lstrip().startswith((";", "[")):
            continue
        key = found[1].replace("_", "-")
        lines.setdefault(key, number)
        if given is None:
            options[key] = found[2].strip("\"'")
    if isinstance(given, Mapping):
        options = {str(key).replace("_", "-"): value for key, value in given.items()}
    if not options:
        source.refuse(None, None, "no options", "options such as users and run-time")
    return options, lines


def _towards(before: float, users: float, spawn: float, length_s: float) -> list[Segment]:
    """Return users that grow or shrink at a constant rate, then stay."""
    ramp_s = min(length_s, abs(users - before) / spawn)
    reached = before + (users - before) * (
        ramp_s * spawn / abs(users - before) if users != before else 1
    )
    segments = [Segment(ramp_s, before, reached), Segment(length_s - ramp_s, reached, reached)]
    return [each for each in segments if each.length_s > 0]


class _Script:
    """What was found in a locustfile."""

    def __init__(self, source: PlanFile) -> None:
        self.source = source
        self.stages: list[Segment] = []
        self.host: str | None = None
        self.pace: float | None = None
        """Tasks each second of each user."""
        self.request: tuple[str, str, int] | None = None
        """Method, path and line of the first that is written out."""

    def plan(self, segments: list[Segment], host: str | None) -> ForeignPlan:
        """Return the plan of these users over time; the file's stages take precedence."""
        segments = self.stages or segments
        base = host or self.host
        requests: tuple[PlannedRequest, ...] = ()
        if self.request is not None:
            method, path, line = self.request
            if base or "://" in path:
                requests = (PlannedRequest(urljoin(f"{base}/" if base else "", path), method),)
            else:
                self.source.leave_out(line, "the request has no host; name the URL")
        if self.pace is None or not any(each.length_s for each in segments):
            return closed_plan(self.source, TOOL, segments, requests)
        rates = [Segment(e.length_s, e.first * self.pace, e.last * self.pace) for e in segments]
        return open_plan(self.source, TOOL, rates, requests)


def read_script(text: str, name: str) -> _Script:
    """Analyse a locustfile's text without running it.

    Raises:
        ConfigError: it is no Python.
    """
    script = _Script(PlanFile(name))
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        script.source.refuse(
            getattr(error, "lineno", None),
            None,
            f"broken Python ({getattr(error, 'msg', '') or str(error) or 'nested too deeply'})",
            "a locustfile",
        )
    for index, node in enumerate(ast.walk(tree)):
        if index > _MOST_NODES:
            script.source.refuse(None, None, f"more than {_MOST_NODES} parts", "a shorter file")
        match node:
            case ast.ClassDef():
                _read_class(node, script)
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="client"), attr=method)):
                _read_request(node, method, script)
    return script


def _read_class(node: ast.ClassDef, script: _Script) -> None:
    bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
    is_shape = bool(bases & set(_SHAPES)) or any(base.endswith("Shape") for base in bases)
    has_stages = False
    for statement in node.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        if is_shape and name == "stages":
            has_stages = True
            script.stages = _stages(value, script.source)
        elif name == "host" and isinstance(value, ast.Constant) and isinstance(value.value, str):
            script.host = script.host or value.value
        elif name == "wait_time":
            _read_pace(value, script)
    if is_shape and not has_stages:
        what = f"{node.name}: a shape that is computed can't be read; only a list of stages can"
        script.source.leave_out(node.lineno, what)


def _stages(value: ast.expr, source: PlanFile) -> list[Segment]:
    """Return users over time: each stage lasts until its `duration`, counted from the start."""
    try:
        found = ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        source.refuse(value.lineno, "stages", ast.unparse(value)[:80], "a list of plain values")
    listed = found if isinstance(found, (list, tuple)) else [found]
    segments: list[Segment] = []
    before, at_s = 0.0, 0.0
    for index, stage in enumerate(listed):
        line = value.elts[index].lineno if isinstance(value, ast.List) else value.lineno
        if not isinstance(stage, Mapping) or not {"duration", "users"} <= stage.keys():
            source.refuse(line, "stages", repr(stage), "a duration and users")
        for key in stage:
            if key not in ("duration", "users", "spawn_rate"):
                source.leave_out(line, f"{key} of a stage is not taken over")
        end_s = source.seconds(stage["duration"], line, "duration")
        users = source.number(stage["users"], line, "users", MAX_USERS)
        spawn = source.number(stage.get("spawn_rate", users), line, "spawn_rate", MAX_USERS)
        if end_s <= at_s:
            source.refuse(line, "duration", f"{end_s:g}", f"more than the one before, {at_s:g}")
        parts = _towards(before, users, spawn or 1.0, end_s - at_s)
        segments += parts
        before, at_s = parts[-1].last, end_s
    return segments


def _read_pace(value: ast.expr, script: _Script) -> None:
    match value:
        case ast.Call(func=function, args=[ast.Constant(value=int() | float() as number)]):
            name = ast.unparse(function).rpartition(".")[2]
            if name == "constant_throughput" and number > 0:
                script.pace = float(number)
                return
            if name == "constant_pacing" and number > 0:
                script.pace = 1 / number
                return
    script.source.leave_out(value.lineno, "wait_time, users' pauses, is not taken over")


def _read_request(node: ast.Call, method: str, script: _Script) -> None:
    if method not in _METHODS:
        return
    match node.args:
        case [ast.Constant(value=str() as path), *_]:
            if script.request is None:
                script.request = (method.upper(), path, node.lineno)
                for keyword in node.keywords:
                    if keyword.arg != "name":
                        what = f"{keyword.arg} of the request is not taken over"
                        script.source.leave_out(node.lineno, what)
                return
    script.source.leave_out(node.lineno, "a further request, or one that is computed, is left out")
