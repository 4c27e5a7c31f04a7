"""The known word that somebody may have meant."""

from collections.abc import Iterable

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
    import difflib  # only who mistypes needs it

    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=cutoff)
    return by_lower[close[0]] if close else None
