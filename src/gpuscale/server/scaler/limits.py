"""The limits on clients of the scaler."""

from dataclasses import dataclass

from gpuscale.base.flags import FlagReader
from gpuscale.base.settings import NUMBER, SECONDS, Panel, made

LIMITS = Panel("Limits", is_ours=True)
_AGE_S, _GRACE_S, _LIFETIME_S = 1_800.0, 1_200.0, 900.0


def _share_of_age(flags: FlagReader) -> float:
    return (flags.seconds("max-connection-age") or _AGE_S) / _AGE_S


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a scaler's server; times are in seconds."""

    connections: int = LIMITS.option(
        NUMBER.or_default(),
        "max-connections",
        "Connections; beyond that, some of the address with the most are closed.",
        "256",
    )
    connections_per_address: int = LIMITS.option(
        NUMBER.or_default(), "max-connections-per-address", "Of these, from one IP address.", "64"
    )
    streams: int = LIMITS.option(
        NUMBER.or_default(),
        "max-streams",
        "Open streams; a trigger of type external-push has two.",
        "8000",
    )
    streams_per_address: int = LIMITS.option(
        NUMBER.or_default(), "max-streams-per-address", "Of these, from one IP address.", "6000"
    )
    calls_per_address: int = 2_000
    """Under way at a time."""
    triggers: int = LIMITS.option(
        NUMBER.or_default(),
        "max-triggers",
        "Triggers that were asked for in the last ten minutes.",
        "5000",
    )
    triggers_per_namespace: int = 4_500
    triggers_per_address: int = LIMITS.option(
        NUMBER.or_default(), "max-triggers-per-address", "Of these, from one IP address.", "4500"
    )
    message_bytes: int = 128 * 1024
    idle_s: float = 300.0
    """After so long without a call a connection is closed."""
    age_s: float = LIMITS.option(
        SECONDS.or_default(),
        "max-connection-age",
        "After so long a connection takes no more calls, and KEDA opens another one, so that replicas share"
        " its calls.",
        "30m",
    )
    age_grace_s: float = made(lambda flags: _GRACE_S * _share_of_age(flags), usual=lambda: _GRACE_S)
    """How long what runs on such a connection may go on."""
    stream_lifetime_s: float = made(
        lambda flags: _LIFETIME_S * _share_of_age(flags), usual=lambda: _LIFETIME_S
    )
    """Below the grace, so that streams end within the first half of what is left of their connection."""
