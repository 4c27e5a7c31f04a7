"""The values that say there is no value: a series has ended, or has no sample of this time.

Prometheus marks the end with one NaN of its own, apart from the NaN that a target may expose. The other one
never leaves the store: it fills the place of a series that has no sample of a time that it shares.

Source: prometheus model/value (StaleNaN).
"""

import struct

STALE_BITS = 0x7FF0000000000002
ABSENT_BITS = 0x7FF800000000AB5E

_STALE = struct.pack("=Q", STALE_BITS)
_ABSENT = struct.pack("=Q", ABSENT_BITS)


def _float(bits: int) -> float:
    value: float = struct.unpack("=d", struct.pack("=Q", bits))[0]
    return value


STALE = _float(STALE_BITS)
"""Written where a series ends. Compare with `is_stale`, never with `==`."""
ABSENT = _float(ABSENT_BITS)
"""In the place of a sample where there is none; only arrays of several series hold it."""


def is_stale(value: float) -> bool:
    """Return whether a stored value is the marker of a series' end."""
    return value != value and struct.pack("=d", value) == _STALE


def is_absent(value: float) -> bool:
    """Return whether a stored value is no sample."""
    return value != value and struct.pack("=d", value) == _ABSENT
