"""Counts in words."""


def counted(count: int, noun: str) -> str:
    """Return `1 pod` or `3 pods`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
