"""Values in foreign JSON: one of an unexpected type counts as absent."""

from collections.abc import Mapping


def mapping_of(value: object) -> Mapping[str, object]:
    """Return the object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def text_of(value: object) -> str:
    """Return the text; an empty one for anything else."""
    return value if isinstance(value, str) else ""


def texts_of(value: object) -> tuple[str, ...]:
    """Return the texts of a list; none for anything else."""
    items = value if isinstance(value, list) else ()
    return tuple(item for item in items if isinstance(item, str))
