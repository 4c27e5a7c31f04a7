"""Options that say how long."""

from gpuscale.base.errors import UsageError
from gpuscale.base.golang.durations import parse_duration_ms


def seconds_of(name: str, text: str) -> float:
    """Return the seconds of an option's text.

    Raises:
        UsageError: it is no duration, or none at all.
    """
    try:
        seconds = parse_duration_ms(text) / 1000
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise UsageError(f"{name}: found {text!r}, expected a duration such as 30s or 2m")
    return seconds
