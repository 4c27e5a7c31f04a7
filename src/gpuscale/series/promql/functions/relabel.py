"""label_replace and label_join: new label values from existing ones.

Source: prometheus promql/functions.go (evalLabelReplace, evalLabelJoin), Go regexp (Expand).
"""

import re
import sys
from collections.abc import Callable

from gpuscale.base.errors import QueryError
from gpuscale.base.regex import Match, Pattern, compile_re2
from gpuscale.series.promql.rows import Rows, unique

MAX_VALUE_CHARS = 64 * 1024
"""Length of a label value made here; calls inside each other can double it every time."""

_REFERENCE = re.compile(r"\$(?:(\$)|(\w+)|\{(\w+)\})")


Hold = Callable[[int], None]
"""Counts bytes of texts that are made; raises QueryError where they are too many."""


def label_replace(
    rows: Rows, target: str, replacement: str, source: str, expression: str, hold: Hold
) -> Rows:
    """Return the rows with `target` set where `source` matches the whole expression.

    Raises:
        QueryError: not a label name, not a regular expression, a value that is too long, texts that are too
            many bytes, or two rows become alike.
    """
    _check_label(target, "destination", "label_replace")
    try:
        pattern = compile_re2(expression)
    except ValueError:
        raise QueryError(f"invalid regular expression in label_replace(): {expression}") from None
    made: dict[str, str | None] = {}
    result: Rows = []
    for labels, value, measured_ms in rows:
        text = labels.value(source)
        if text not in made:
            match = pattern.fullmatch(text)
            made[text] = None
            if match is not None:
                expanded = expand(replacement, match, pattern)
                made[text] = _bounded(expanded, "label_replace", hold)
        new = made[text]
        changed = labels if new is None else labels.override({target: new})
        result.append((changed, value, measured_ms))
    return unique(result)


def label_join(
    rows: Rows, target: str, separator: str, sources: tuple[str, ...], hold: Hold
) -> Rows:
    """Return the rows with `target` set to the values of other labels, joined.

    Raises:
        QueryError: not a label name, a value that is too long, texts that are too many bytes, or two rows
            become alike.
    """
    for source in sources:
        _check_label(source, "source", "label_join")
    _check_label(target, "destination", "label_join")
    result: Rows = []
    for labels, value, measured_ms in rows:
        texts = (labels.value(name) for name in sources)
        made = _bounded(separator.join(texts), "label_join", hold)
        result.append((labels.override({target: made}), value, measured_ms))
    return unique(result)


def expand(template: str, match: Match, pattern: Pattern) -> str:
    """Return the template with `$1`, `$name` and `${name}` replaced by the matched groups."""

    def value(reference: re.Match[str]) -> str:
        if reference[1]:
            return "$"
        return _group(reference[2] or reference[3], match, pattern)

    return _REFERENCE.sub(value, template)


def _group(name: str, match: Match, pattern: Pattern) -> str:
    if name.isascii() and name.isdigit():
        # A longer number names no group.
        return (
            (match.group(int(name)) or "") if len(name) < 9 and int(name) <= pattern.groups else ""
        )
    return (match.group(name) or "") if name in pattern.groupindex else ""


def _bounded(value: str, function: str, hold: Hold) -> str:
    if len(value) > MAX_VALUE_CHARS:
        raise QueryError(
            f"{function}() made a label value of {len(value)} characters, "
            f"expected at most {MAX_VALUE_CHARS}"
        )
    hold(sys.getsizeof(value))
    return value


def _check_label(name: str, role: str, function: str) -> None:
    # Since release 3 any non-empty text is a valid label name.
    if not name:
        raise QueryError(f"invalid {role} label name in {function}(): {name}")
