"""The settings of a scaler, from its flags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from gpuscale.base.flags import FlagReader
from gpuscale.server.metricsapi.backend_settings import BackendSettings, backend_settings
from gpuscale.server.metricsapi.trigger_settings import HeldPlace, held_place
from gpuscale.server.scaler.certificate import ScalerTlsFiles
from gpuscale.server.scaler.flags import READ
from gpuscale.server.scaler.limits import ServerLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerSettings(BackendSettings):
    """Everything of one server."""

    host: str
    port: int
    metrics_port: int | None
    """None serves none."""
    tls: ScalerTlsFiles | None
    """None serves plain text."""
    shutdown_delay_s: float
    """How long it serves after the order to stop."""
    held: HeldPlace = field(default_factory=HeldPlace)
    """Where the last decisions of triggers are kept."""
    limits: ServerLimits = field(default_factory=ServerLimits)


def read_settings(given: Mapping[str, Sequence[str]]) -> ScalerSettings:
    """Return the settings of these flags.

    Args:
        given: the texts of each flag that was given, by name without dashes.

    Raises:
        UsageError: values that can't be, or flags that don't go together; all are reported, one per line.
    """
    flags = FlagReader(READ, given)
    backend = backend_settings(flags)
    settings = ScalerSettings(
        **{each.name: getattr(backend, each.name) for each in fields(backend)},
        host=flags.text("bind-address"),
        port=_port(flags),
        metrics_port=flags.port("metrics-port") or None,
        tls=_tls(flags),
        shutdown_delay_s=flags.seconds("shutdown-delay-duration"),
        held=held_place(flags),
        limits=_limits(flags),
    )
    if settings.metrics_port == settings.port:
        flags.fault(f"--metrics-port: found {settings.port}, expected another port than --port")
    flags.finish()
    return settings


def _port(flags: FlagReader) -> int:
    port = flags.port("port")
    if not port:
        flags.fault("--port: found 0, expected a port")
    return port


def _tls(flags: FlagReader) -> ScalerTlsFiles | None:
    pair = flags.pair("tls-cert-file", "tls-private-key-file")
    client_cas = flags.path("client-ca-file")
    if pair is None:
        if client_cas is not None:
            flags.fault("--client-ca-file: found it alone, expected --tls-cert-file beside it")
        return None
    return ScalerTlsFiles(*pair, client_cas)


def _limits(flags: FlagReader) -> ServerLimits:
    usual = ServerLimits()
    # Streams end within the first half of what is left of their connection.
    age_s = flags.seconds("max-connection-age") or usual.age_s
    share = age_s / usual.age_s
    return ServerLimits(
        connections=flags.number("max-connections") or usual.connections,
        connections_per_address=flags.number("max-connections-per-address")
        or usual.connections_per_address,
        streams=flags.number("max-streams") or usual.streams,
        streams_per_address=flags.number("max-streams-per-address") or usual.streams_per_address,
        triggers=flags.number("max-triggers") or usual.triggers,
        triggers_per_address=flags.number("max-triggers-per-address") or usual.triggers_per_address,
        age_s=age_s,
        age_grace_s=usual.age_grace_s * share,
        stream_lifetime_s=usual.stream_lifetime_s * share,
    )
