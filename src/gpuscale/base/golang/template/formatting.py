"""Go's printf and `%v` for the types in templates.

Source: Go's fmt (print.go, format.go) and strconv (ftoa.go), release 1.22.
"""

import math
import re
from collections.abc import Iterator, Sequence

from gpuscale.base.golang.durations import go_quote
from gpuscale.base.golang.template.values import TemplateError, Value, kind, plain

MAX_WIDTH = 1000
"""Characters that a verb may ask for; a guard, since a width costs nothing to write."""
_VERB = re.compile(
    r"%(?P<flags>[-+# 0]*)(?P<width>\d*)(?P<precision>\.\d*)?(?P<verb>.?)", re.DOTALL
)


def go_sprintf(text: str, arguments: Sequence[Value]) -> str:
    """Return the result of Go's Sprintf.

    Raises:
        TemplateError: too few or too many values, or a verb that is not served for its value's type.
    """
    values = iter(arguments)
    result = _VERB.sub(lambda match: _verb(match, values), text)
    if any(True for _ in values):
        raise TemplateError(f"printf: more values than verbs in {text!r}")
    return result


def _verb(match: re.Match[str], values: Iterator[Value]) -> str:
    verb = match["verb"]
    if verb == "%":
        return "%"
    try:
        value = next(values)
    except StopIteration:
        raise TemplateError(f"printf: no value for %{verb}") from None
    flags, width = match["flags"], int(match["width"] or 0)
    precision = None if match["precision"] is None else int(match["precision"][1:] or 0)
    if "#" in flags or max(width, precision or 0) > MAX_WIDTH:
        raise TemplateError(f"printf: {match[0]} is not served")
    body = _number(verb, value, flags, precision) or _words(verb, value, precision)
    if body is None:
        raise TemplateError(f"printf: %{verb} of type {kind(value)} is not served")
    return _padded(body, flags, width, is_number=not isinstance(value, str))


def _number(verb: str, value: Value, flags: str, precision: int | None) -> str | None:
    """Return a formatted number with its sign; None if value or verb is not numeric."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and verb in "vfFeEgG":
        text = go_float(value, "g" if verb == "v" else verb, precision)
    elif isinstance(value, int) and verb in "vdxXob" and precision is None:
        text = format(value, "d" if verb == "v" else verb)
    else:
        return None
    sign = next((each for each in "+ " if each in flags), "")
    return text if text[0] in "+-" and text != "+Inf" else sign + text.lstrip("+" if sign else "")


def _words(verb: str, value: Value, precision: int | None) -> str | None:
    if verb == "q" and isinstance(value, str):
        return go_quote(value if precision is None else value[:precision])
    if verb == "t" and isinstance(value, bool):
        return plain(value)
    if verb in {"s", "v"}:
        text = plain(value)
        return text if precision is None or not isinstance(value, str) else text[:precision]
    return None


def _padded(text: str, flags: str, width: int, *, is_number: bool) -> str:
    if "-" in flags:
        return text.ljust(width)
    if "0" in flags and is_number and text[-1:].isalnum() and "Inf" not in text:
        return text.zfill(width) if text[0] != " " else " " + text[1:].zfill(width - 1)
    return text.rjust(width)


def go_float(value: float, verb: str, precision: int | None) -> str:
    """Return a number as `%e`, `%f` or `%g` gives it; `%g` without a precision is the shortest exact text."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    if verb in "gG" and precision is None:
        return plain(value) if verb == "g" else plain(value).upper()
    return format(value, f".{6 if precision is None else precision}{verb}")
