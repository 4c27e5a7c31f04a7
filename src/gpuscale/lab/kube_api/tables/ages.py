"""Ages and durations, as kubectl and the API server write them.

Source: k8s.io/apimachinery v0.36 pkg/util/duration (HumanDuration).
"""

from datetime import datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_YEAR = 365 * _DAY


def human_duration(milliseconds: int) -> str:
    """Return a duration in two or three digits; may be negative, as clocks differ."""
    seconds = int(milliseconds / 1000)
    if seconds < 0:
        return "0s" if seconds >= -1 else "<invalid>"
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    for unit, unit_name, small, small_name, two_until, until in (
        (_MINUTE, "m", 1, "s", 10 * _MINUTE, 3 * _HOUR),
        (_HOUR, "h", _MINUTE, "m", 8 * _HOUR, 2 * _DAY),
        (_DAY, "d", _HOUR, "h", 8 * _DAY, 2 * _YEAR),
        (_YEAR, "y", _DAY, "d", 8 * _YEAR, None),
    ):
        if until is not None and seconds >= until:
            continue
        rest = seconds % unit // small if seconds < two_until else 0
        return f"{seconds // unit}{unit_name}" + (f"{rest}{small_name}" if rest else "")
    return ""


def age(time: object, now_ms: int) -> str:
    """Return the age of an object's timestamp; `<unknown>` if it has none."""
    if not isinstance(time, str) or not time:
        return "<unknown>"
    return human_duration(now_ms - time_ms(time))


def time_ms(text: str) -> int:
    """Parse an RFC 3339 timestamp to milliseconds since the epoch."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)
