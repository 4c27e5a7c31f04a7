"""The values of PromQL's literals: numbers, durations, quoted texts.

Source: prometheus promql/parser (parse.go, number), util/strutil (Unquote), release 3.16; Go's strconv;
prometheus common model/time.go (ParseDuration).
"""

import math
import re

from gpuscale.base.golang.durations import go_quote

_MOST_INT = 2**63 - 1
_INTEGER = re.compile(r"0[xX](?:_?[0-9a-fA-F])+|\d(?:_?\d)*", re.ASCII)
_OCTAL = re.compile("0(?:_?[0-7])+")
_DIGITS = r"\d(?:_?\d)*"
_FLOAT = re.compile(
    rf"(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:e[+-]?{_DIGITS})?|inf|nan",
    re.IGNORECASE | re.ASCII,
)
_UNIT_NS = {
    "y": 365 * 86_400 * 10**9,
    "w": 7 * 86_400 * 10**9,
    "d": 86_400 * 10**9,
    "h": 3_600 * 10**9,
    "m": 60 * 10**9,
    "s": 10**9,
    "ms": 10**6,
}
_UNITS = tuple(_UNIT_NS)
_PART = re.compile(r"(\d+)(\D+)", re.ASCII)
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))|[^\\]+", re.DOTALL
)
_ESCAPED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def number(text: str) -> float:
    """Return a number literal's value.

    Raises:
        ValueError: no number, or one beyond the floats.
    """
    bare = text.replace("_", "")
    if _INTEGER.fullmatch(text) is not None and len(bare) < 20:
        # A leading zero means octal, if the digits allow it.
        base = 16 if bare[1:2] in ("x", "X") else 8 if _OCTAL.fullmatch(text) else 10
        if (whole := int(bare, base)) <= _MOST_INT:
            return float(whole)
    if _FLOAT.fullmatch(text) is None:
        raise ValueError(
            f"error parsing number: strconv.ParseFloat: parsing {go_quote(text)}: invalid syntax"
        )
    value = float(bare)
    if math.isinf(value) and text.lower() != "inf":
        reason = f"parsing {go_quote(text)}: value out of range"
        raise ValueError(f"error parsing number: strconv.ParseFloat: {reason}")
    return value


def duration_seconds(text: str) -> float:
    """Return a duration literal's seconds.

    Raises:
        ValueError: its units are none, or in another order than from the largest to the smallest, or it is
            longer than Go's durations.
    """
    if text[0] == ".":
        raise ValueError(f"not a valid duration string: {go_quote(text)}")
    length_ns, last = 0, -1
    for digits, unit in _PART.findall(text):
        if len(digits) > 20 or int(digits) >= 2**64:
            raise ValueError(f"not a valid duration string: {go_quote(text)}")
        if unit not in _UNIT_NS:
            raise ValueError(f"unknown unit {go_quote(unit)} in duration {go_quote(text)}")
        if _UNITS.index(unit) <= last:
            raise ValueError(f"not a valid duration string: {go_quote(text)}")
        last = _UNITS.index(unit)
        length_ns += int(digits) * _UNIT_NS[unit]
        if length_ns > _MOST_INT:
            raise ValueError("duration out of range")
    seconds, rest_ns = divmod(length_ns, 10**9)
    return seconds + rest_ns / 1e9


def unquoted(text: str) -> str:
    """Return a quoted text's content; invalid UTF-8 becomes U+FFFD, as in Prometheus' JSON."""
    inner = text[1:-1]
    if text[0] == "`" or "\\" not in inner:
        return inner
    found = bytearray()
    for match in _ESCAPE.finditer(inner):
        byte, short, long, octal, character = match.groups()
        if byte or octal:
            found.append(int(byte, 16) if byte else int(octal, 8))
        elif short or long:
            found += chr(int(short or long, 16)).encode()
        else:
            found += _ESCAPED.get(character, character or match[0]).encode(errors="replace")
    return found.decode(errors="replace")
