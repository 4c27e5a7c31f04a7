"""The settings of saving, and its state."""

from dataclasses import dataclass
from pathlib import Path

from gpuscale.base.quantity import parse_quantity

MIB = 1024 * 1024
MIN_BYTES = 16 * MIB
"""With less, a segment would hardly hold the names of its series."""


def size_limit(text: str) -> int:
    """Parse the limit on the bytes of all segment files.

    Raises:
        ValueError: the text is no quantity, or one of too few bytes.
    """
    try:
        limit = parse_quantity(text).value()
    except ValueError:
        limit = 0
    if limit < MIN_BYTES:
        expected = f"bytes such as 512Mi, {MIN_BYTES // MIB}Mi at least"
        raise ValueError(f"found {text!r}, expected {expected}")
    return limit


@dataclass(frozen=True, slots=True)
class SavingSettings:
    """All settings of saving."""

    directory: Path
    max_bytes: int = 1024 * MIB
    """Of all files together; beyond it the oldest go."""
    interval_s: float = 5.0
    """From one save to the next; what a crash can lose."""


@dataclass(slots=True)
class SavingState:
    """Counts since the start, and the current fault."""

    fault: str | None = None
    """Why nothing is saved now; None where all is well."""
    faults: int = 0
    """Saves that failed."""
    saved_ms: int | None = None
    """When everything was saved last."""
    samples: int = 0
    """Saved."""
    written_bytes: int = 0
    disk_bytes: int = 0
    """Of all segments now."""
    segments: int = 0
    restored_samples: int = 0
    restored_series: int = 0
    restore_seconds: float = 0.0
    lost_samples: dict[str, int] | None = None
    """Samples that were on disk and did not come back, by reason; None before they were read."""
    torn_segments: int = 0
    """Files that were cut off at the first record that is not whole."""
    torn_bytes: int = 0
    put_aside: int = 0
    """Files that were renamed because they can't be read."""
    expected_back: int = 0
    """Restored series that have had no sample since the start yet."""
    ended: int = 0
    """Restored series that were ended because they did not come back."""
