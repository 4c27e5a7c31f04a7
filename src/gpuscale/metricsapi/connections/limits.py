"""How many connections there may be, and how long each step of one may take."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of a listening port. All times are in the machine's seconds.

    Source of the times: k8s.io/apiserver v0.30.0 pkg/server (secure_serving.go): 32 s for headers, 90 s of
    idleness; net/http ends a handshake with the headers' time.
    """

    total: int = 2_500
    """Connections of clients that are not known to be front proxies."""
    per_address: int = 1_000
    """Of those, from one IP address; all pods of a node may share one behind address translation."""
    proxies: int = 2_500
    """Connections that showed a front proxy's certificate. They count towards neither of the above."""
    handshake_s: float = 10.0
    """From a connection's first moment to the end of the TLS handshake."""
    header_s: float = 32.0
    """From the end of the handshake, or a request's first byte, to the end of its headers."""
    idle_s: float = 90.0
    """From the end of an answer to the first byte of the next request."""
    write_s: float = 60.0
    """For the client to take what was written to it."""
    unsent_bytes: int = 64 * 1024 * 1024
    """Of all answers that clients have not taken yet; beyond that, the slowest client is cut off."""


LOOPBACK_LIMITS = ConnectionLimits(total=256, per_address=256, proxies=1)
"""Of the port that only this machine reaches."""
