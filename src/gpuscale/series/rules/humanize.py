"""Numbers for people: the functions of Prometheus' templates.

Source: prometheus template/template.go (v3.0.0).
"""

import math
from datetime import UTC, datetime

from gpuscale.base.golang.template import TemplateError
from gpuscale.base.golang.template.formatting import go_float

_LARGE = ("k", "M", "G", "T", "P", "E", "Z", "Y")
_SMALL = ("m", "u", "n", "p", "f", "a", "z", "y")
_BINARY = ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_MAX_NANOSECONDS = 2.0**63


def humanize(value: float) -> str:
    """Return a number with an SI prefix: 1234567 is `1.235M`."""
    if value == 0 or not math.isfinite(value):
        return _digits(value)
    return _large(value, _LARGE, 1000) if abs(value) >= 1 else _small(value)


def humanize1024(value: float) -> str:
    """Return a number with a binary prefix: 1048576 is `1Mi`."""
    if abs(value) <= 1 or not math.isfinite(value):
        return _digits(value)
    return _large(value, _BINARY, 1024)


def humanize_percentage(value: float) -> str:
    """Return a ratio as a percentage: 0.123 is `12.3%`."""
    return f"{_digits(value * 100)}%"


def humanize_duration(value: float) -> str:
    """Return seconds as a duration: 90061 is `1d 1h 1m 1s`, 0.5 is `500ms`."""
    if not math.isfinite(value):
        return _digits(value)
    if value == 0:
        return f"{_digits(value)}s"
    if abs(value) < 1:
        return f"{_small(value)}s"
    sign, value = ("-", -value) if value < 0 else ("", value)
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {seconds}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {seconds}s"
    if minutes:
        return f"{sign}{minutes}m {seconds}s"
    return f"{sign}{_digits(value)}s"


def humanize_timestamp(value: float) -> str:
    """Return seconds since the epoch as a date and time in UTC, as Go prints it.

    Raises:
        TemplateError: a time that no date can be made of.
    """
    if not math.isfinite(value):
        return _digits(value)
    if abs(value * 1e9) >= _MAX_NANOSECONDS:
        shown = go_float(value, "g", None)
        raise TemplateError(
            f"{shown} cannot be represented as a nanoseconds timestamp since it overflows int64"
        )
    # Go truncates towards zero, before and after the epoch.
    milliseconds = math.trunc(abs(value) * 1e9) // 1_000_000
    seconds, milliseconds = divmod(milliseconds if value >= 0 else -milliseconds, 1000)
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise TemplateError(f"{go_float(value, 'g', None)} is no time of a date") from None
    fraction = f".{milliseconds:03d}".rstrip("0") if milliseconds else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def _large(value: float, prefixes: tuple[str, ...], step: int) -> str:
    prefix = ""
    for each in prefixes:
        if abs(value) < step:
            break
        prefix, value = each, value / step
    return _digits(value) + prefix


def _small(value: float) -> str:
    prefix = ""
    for each in _SMALL:
        if abs(value) >= 1:
            break
        prefix, value = each, value * 1000
    return _digits(value) + prefix


def _digits(value: float) -> str:
    return go_float(value, "g", 4)
