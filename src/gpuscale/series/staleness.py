"""The value that says a series has ended.

Prometheus marks the end with one NaN of its own, apart from the NaN that a target may expose.

Source: prometheus model/value (StaleNaN).
"""

import struct

_BITS = struct.pack("<Q", 0x7FF0000000000002)

STALE: float = struct.unpack("<d", _BITS)[0]
"""Written where a series ends. Compare with `is_stale`, never with `==`."""


def is_stale(value: float) -> bool:
    """Return whether a stored value is the marker of a series' end."""
    return value != value and struct.pack("<d", value) == _BITS
