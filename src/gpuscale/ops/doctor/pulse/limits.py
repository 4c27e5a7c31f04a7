"""How long a pulse may be watched, and how much of it may be under way at a time."""

from gpuscale.base.ranges import Range

PULSE_S = Range(5, 900)
AT_ONCE = Range(1, 16)
"""Requests."""
