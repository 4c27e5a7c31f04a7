"""Go's literals: durations, booleans as strconv.ParseBool reads them, and strings quoted as `%q` does.

Durations are as users write them: `90s`, `1h30m`, `500ms`, `2d`, or a bare number of seconds.
"""

import math
import re
from collections.abc import Mapping
from types import MappingProxyType

MAX_DURATION_MS = 366 * 86_400_000
"""The longest that a field of our own files may ask for."""
_UNIT_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
    "y": 365 * 86_400_000,
}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdwy])")


def parse_duration_ms(text: str | float) -> int:
    """Return the length in milliseconds.

    Raises:
        ValueError: the text is neither a number of seconds nor parts such as `1h30m`.

    Source: the units of Prometheus' model.ParseDuration; fractions as Go's time.ParseDuration allows.
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        if not 0 <= text < 1e12:
            raise ValueError(f"found {text}, expected a duration of zero or more seconds")
        return round(text * 1000)
    stripped = str(text).strip()
    if re.fullmatch(r"\d+(\.\d+)?", stripped):
        stripped += "s"
    parts = _PART.findall(stripped)
    milliseconds = sum(float(number) * _UNIT_MS[unit] for number, unit in parts)
    if (
        not parts
        or "".join(number + unit for number, unit in parts) != stripped
        or not math.isfinite(milliseconds)
    ):
        raise ValueError(f"found {text!r}, expected a duration such as 15s, 5m or 1h30m")
    return round(milliseconds)


def format_duration(milliseconds: int) -> str:
    """Return the shortest text that `parse_duration_ms` reads back, such as `1h30m` or `2m5s`."""
    if milliseconds == 0:
        return "0s"
    rest = milliseconds
    text = ""
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _UNIT_MS[unit])
        if count:
            text += f"{count}{unit}"
    return text


def go_duration(milliseconds: int) -> str:
    """Return the text that Go's time.Duration prints: `5m0s`, `1h30m0s`, `500ms`, `1.5s`."""
    if 0 < milliseconds < 1000:
        return f"{milliseconds}ms"
    minutes, rest_ms = divmod(milliseconds, 60_000)
    seconds, fraction = divmod(rest_ms, 1000)
    text = f"{seconds}" + (f".{fraction:03d}".rstrip("0") if fraction else "") + "s"
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def go_quote(text: str) -> str:
    """Return `text` as a Go string literal in double quotes.

    Source: Go's strconv (quote.go, Quote). A lone surrogate, which no UTF-8 text holds, becomes U+FFFD.
    """
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


GO_BOOLS: Mapping[str, bool] = MappingProxyType(
    {
        **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
        **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
    }
)
"""What each accepted text means; every other text is an error."""
