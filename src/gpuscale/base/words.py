"""Words in messages: counts, numbers, times, foreign text, and suggestions for misspelled words."""

import math
from collections.abc import Iterable
from datetime import UTC, datetime

MAX_WORD = 120
"""Characters; comparing longer words takes long and doesn't help."""


def closest(word: str, known: Iterable[str], cutoff: float = 0.75) -> str | None:
    """Return the most similar known word, whatever its case; None where none is similar.

    Args:
        word: what was found.
        known: what it may be.
        cutoff: from 0, anything, to 1, the same word.
    """
    if len(word) > MAX_WORD:
        return None
    import difflib  # needed only for misspelled words

    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None


def counted(count: int, noun: str) -> str:
    """Return `1 pod` or `3 pods`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def printable(text: str) -> str:
    """Return the text with escapes for what a terminal would act on, such as colours and line ends."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )


def shown_ms(ms: float) -> str:
    """Return a time in four digits: milliseconds, from ten seconds on seconds."""
    return f"{ms:.4g} ms" if ms < 9_999.5 else f"{ms / 1000:.4g} s"


def shown_number(milli: int) -> str:
    """Return a value in plain digits, such as `31.4`."""
    whole, rest = divmod(abs(milli), 1000)
    sign = "-" if milli < 0 else ""
    return f"{sign}{whole}.{rest:03d}".rstrip("0").rstrip(".")


def shown_ratio(ratio: float) -> str:
    """Return a ratio to three places."""
    return f"{round(ratio, 3):g}" if math.isfinite(ratio) else "undefined"


def rfc3339(seconds: float) -> str:
    """Return a moment, in seconds since the epoch, as Kubernetes writes it: `2026-11-28T15:04:05Z`."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
