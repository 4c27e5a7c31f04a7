"""Formatting of queries in Prometheus' style: one line if it fits, else several.

Source: prometheus promql/parser (printer.go, prettier.go), release 3.16.
"""

import math
import re
from collections.abc import Iterable
from decimal import Decimal

from gpuscale.base.golang.durations import go_quote
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.promql import tree
from gpuscale.series.promql.parsing.meaning import Written

_MOST_CHARS = 100
_LEGACY_LABEL = re.compile(r"[a-zA-Z_]\w*", re.ASCII)
_UNITS_MS = (("y", 31_536_000_000), ("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000))
_SMALL_UNITS_MS = (("m", 60_000), ("s", 1000), ("ms", 1))


def on_one_line(part: Written) -> str:
    """Return an expression on one line."""
    return _note_lines(part, {})


def _note_lines(part: Written, lines: dict[int, str]) -> str:
    """Return an expression on one line, and record it and its parts by identity."""
    inside = [_note_lines(each, lines) for each in part.parts]
    line = lines[id(part)] = _line(part, inside)
    return line


def _line(part: Written, inside: list[str]) -> str:
    node = part.node
    if part.form == "(":
        return f"({inside[0]})"
    if part.form in ("+", "-"):
        return part.form + inside[0]
    match node:
        case tree.Number(value):
            return _number(value, is_duration=part.form == "duration")
        case tree.Text(value):
            return go_quote(value)
        case tree.Select():
            return _selector(node, part) + _moment(node.moment)
        case tree.SelectRange(selector, range_ms):
            return f"{_selector(selector, part)}[{_duration(range_ms)}]{_moment(selector.moment)}"
        case tree.Subquery():
            return inside[0] + _window(node)
        case tree.Binary():
            return f"{inside[0]} {_operator(node)} {inside[1]}"
        case tree.Call() | tree.Aggregate():
            return f"{_head(node)}({', '.join(inside)})"
        case tree.Negate():
            raise AssertionError(part)


def prettified(part: Written) -> str:
    """Return an expression with its long parts on several lines."""
    lines: dict[int, str] = {}
    _note_lines(part, lines)
    return _split(part, 0, lines)


def _split(part: Written, level: int, lines: dict[int, str]) -> str:
    indent = "  " * level
    line, node = lines[id(part)], part.node
    if part.form in ("+", "-"):
        return indent + part.form + _split(part.parts[0], level, lines).strip()
    is_long = len(line.encode(errors="replace")) > _MOST_CHARS
    if is_long and part.form == "(":
        return f"{indent}(\n{_split(part.parts[0], level + 1, lines)}\n{indent})"
    if isinstance(node, tree.Subquery) and part.form != "(":
        # Prometheus keeps a short one on its line.
        return _split(part.parts[0], level, lines) + _window(node) if is_long else line
    if is_long and isinstance(node, tree.Binary):
        left, right = (_split(each, level + 1, lines) for each in part.parts)
        return f"{left}\n{indent}{_operator(node)}\n{right}"
    if is_long and isinstance(node, tree.Call | tree.Aggregate):
        inside = ",\n".join(_split(each, level + 1, lines) for each in part.parts)
        return f"{indent}{_head(node)}(\n{inside}\n{indent})"
    return indent + line


def _head(node: tree.Call | tree.Aggregate) -> str:
    if isinstance(node, tree.Call):
        return node.function
    if node.by and not node.labels:
        return node.operator
    return f"{node.operator} {'by' if node.by else 'without'} ({_labels(node.labels)}) "


def _operator(node: tree.Binary) -> str:
    matching = node.matching
    text = f"{node.operator}{' bool' if node.return_bool else ''}"
    is_grouped = matching.cardinality in (
        tree.Cardinality.MANY_TO_ONE,
        tree.Cardinality.ONE_TO_MANY,
    )
    if matching.labels or matching.on or is_grouped:
        text += f" {'on' if matching.on else 'ignoring'} ({_labels(matching.labels)})"
    if is_grouped:
        text += f" {matching.cardinality.value} ({_labels(matching.include)})"
    left, right = matching.fill_left, matching.fill_right
    if left is not None and left == right:
        return f"{text} fill ({_fill(left)})"
    text += f" fill_left ({_fill(left)})" if left is not None else ""
    return text + (f" fill_right ({_fill(right)})" if right is not None else "")


def _labels(names: Iterable[str]) -> str:
    return ", ".join(each if _LEGACY_LABEL.fullmatch(each) else go_quote(each) for each in names)


def _selector(node: tree.Select, part: Written) -> str:
    matchers, name = node.matchers, ""
    if part.form == "name":
        name = matchers[-1].value
        matchers = matchers[:-1]
    inside = sorted(
        f"{_labels([each.name])}{each.op.value}{go_quote(each.value)}"
        for each in matchers
        if not (name and each.name == METRIC_NAME and each.op.value == "=" and each.value == name)
    )
    return f"{name}{{{','.join(inside)}}}" if inside else name or "{}"


def _window(node: tree.Subquery) -> str:
    step = "" if node.step_ms is None else _duration(node.step_ms)
    return f"[{_duration(node.range_ms)}:{step}]{_moment(node.moment)}"


def _moment(moment: tree.Moment) -> str:
    text = ""
    if isinstance(moment.at, tree.Anchor):
        text = f" @ {moment.at.value}"
    elif moment.at is not None:
        text = f" @ {moment.at / 1000:.3f}"
    return f"{text} offset {_duration(moment.offset_ms)}" if moment.offset_ms else text


def _duration(length_ms: int) -> str:
    if length_ms < 0:
        return f"-{_duration(-length_ms)}"
    text, rest_ms = "", length_ms
    for unit, unit_ms in (*_UNITS_MS, *_SMALL_UNITS_MS):
        # 90d is easier to read than 12w6d.
        if unit in ("y", "w") and rest_ms % unit_ms:
            continue
        count, rest_ms = divmod(rest_ms, unit_ms)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def _number(value: float, *, is_duration: bool) -> str:
    if is_duration:
        return _duration(int(value * 1000))
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{value:+}".replace("inf", "Inf")
    text = f"{Decimal(repr(value)):f}"
    return text.removesuffix(".0")


def _fill(value: float) -> str:
    """Return a number like Go's `%v`."""
    if not math.isfinite(value):
        return _number(value, is_duration=False)
    text = repr(value).removesuffix(".0")
    return text if "e" in text or abs(value) < 1e16 else f"{value:e}"
