"""Template functions with their numbers of arguments, and dialects of them.

Source: Go's text/template (funcs.go).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gpuscale.base.golang.template.formatting import go_sprintf
from gpuscale.base.golang.template.values import (
    TemplateError,
    Value,
    element,
    equal,
    is_true,
    kind,
    less,
    plain,
)

NOT_SERVED = frozenset({"call", "html", "js", "slice", "urlquery"})
"""Go has these; rule files have no use for them."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function's body and how many arguments it takes."""

    run: Callable[[Sequence[Value]], Value]
    least: int = 0
    most: int | None = None


def _index(arguments: Sequence[Value]) -> Value:
    value = arguments[0]
    for key in arguments[1:]:
        value = element(value, key)
    return value


def _print(arguments: Sequence[Value]) -> str:
    """Go's Sprint: a space between two operands where neither is a string."""
    text = ""
    for position, value in enumerate(arguments):
        before = arguments[position - 1] if position else ""
        if not isinstance(value, str) and not isinstance(before, str):
            text += " "
        text += plain(value)
    return text


def _println(arguments: Sequence[Value]) -> str:
    return " ".join(plain(value) for value in arguments) + "\n"


def _printf(arguments: Sequence[Value]) -> str:
    text = arguments[0]
    if not isinstance(text, str):
        raise TemplateError(f"printf: found a format of type {kind(text)}, expected string")
    return go_sprintf(text, arguments[1:])


def _len(arguments: Sequence[Value]) -> int:
    value = arguments[0]
    if isinstance(value, str):
        return len(value.encode())
    if value is None or isinstance(value, (int, float)):
        raise TemplateError(f"len of type {kind(value)}")
    return len(value)


def _eq(arguments: Sequence[Value]) -> bool:
    return any(equal(arguments[0], other) for other in arguments[1:])


def _and(arguments: Sequence[Value]) -> Value:
    return next((value for value in arguments if not is_true(value)), arguments[-1])


def _or(arguments: Sequence[Value]) -> Value:
    return next((value for value in arguments if is_true(value)), arguments[-1])


FUNCTIONS: dict[str, Function] = {
    "and": Function(_and, 1),
    "or": Function(_or, 1),
    "not": Function(lambda arguments: not is_true(arguments[0]), 1, 1),
    "eq": Function(_eq, 2),
    "ne": Function(lambda arguments: not equal(arguments[0], arguments[1]), 2, 2),
    "lt": Function(lambda arguments: less(arguments[0], arguments[1]), 2, 2),
    "le": Function(lambda arguments: not less(arguments[1], arguments[0]), 2, 2),
    "gt": Function(lambda arguments: less(arguments[1], arguments[0]), 2, 2),
    "ge": Function(lambda arguments: not less(arguments[0], arguments[1]), 2, 2),
    "index": Function(_index, 1),
    "len": Function(_len, 1, 1),
    "print": Function(_print),
    "printf": Function(_printf, 1),
    "println": Function(_println),
}


@dataclass(frozen=True)
class Dialect:
    """Delimiters and functions; the default is that of prometheus-adapter's rule files."""

    left: str = "<<"
    right: str = ">>"
    functions: Mapping[str, Function] = field(default_factory=lambda: FUNCTIONS)
    not_served: frozenset[str] = NOT_SERVED
    """Functions that are refused by name; others are unknown."""
    is_strict: bool = True
    """Whether templates are a line or two over known fields: no `define`, no methods, no use of the data as a
    whole. Otherwise they are what Helm takes: nothing is printed for a value that is not there."""

    @cached_property
    def comment_end(self) -> re.Pattern[str]:
        return re.compile(rf"(?:(?P<trim>[ \t\r\n]+-))?{re.escape(self.right)}")


ADAPTER = Dialect()
