"""Where and how the store is saved."""

from dataclasses import dataclass
from pathlib import Path

MIB = 1024 * 1024
MIN_BYTES = 16 * MIB
"""With less, a segment would hardly hold the names of its series."""


@dataclass(frozen=True, slots=True)
class SavingSettings:
    """Everything about saving that a user decides."""

    directory: Path
    max_bytes: int = 1024 * MIB
    """Of all files together; beyond it the oldest go."""
    interval_s: float = 5.0
    """From one save to the next; what a crash can lose."""
