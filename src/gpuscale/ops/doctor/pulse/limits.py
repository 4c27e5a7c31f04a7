"""Limits on a pulse's duration and on its concurrent requests."""

from gpuscale.base.ranges import Range

PULSE_S = Range(5, 900)
AT_ONCE = Range(1, 16)
"""Requests."""
