"""What clients of the scaler may do."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds of one server; times are seconds."""

    connections: int = 256
    connections_per_address: int = 64
    streams: int = 8_000
    streams_per_address: int = 6_000
    calls_per_address: int = 2_000
    """Under way at a time."""
    triggers: int = 5_000
    triggers_per_namespace: int = 4_500
    triggers_per_address: int = 4_500
    message_bytes: int = 128 * 1024
    idle_s: float = 300.0
    """After so long without a call a connection is closed."""
    age_s: float = 1_800.0
    """After so long a connection takes no more calls; the client opens another one, to any replica."""
    age_grace_s: float = 1_200.0
    """How long what runs on such a connection may go on."""
    stream_lifetime_s: float = 900.0
    """Below the grace, so that streams end well before their connection does."""
