"""The settings of a scaler, from its flags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.flags import FileText, Flag, FlagReader
from gpuscale.base.settings import PORT, SECONDS, TEXT, groups_of, made, part, reader_of
from gpuscale.server.metricsapi.backend_settings import (
    COMMON_OF_VALUES,
    BackendSettings,
    read_backend,
)
from gpuscale.server.metricsapi.trigger_settings import HeldPlace, held_place
from gpuscale.server.panels import SERVING, SETTINGS_FILE
from gpuscale.server.scaler.certificate import ScalerTlsFiles
from gpuscale.server.scaler.limits import ServerLimits
from gpuscale.server.sources.feeds.settings import FeedSettings


def _tls(flags: FlagReader) -> ScalerTlsFiles | None:
    pair = flags.pair("tls-cert-file", "tls-private-key-file")
    client_cas = flags.path("client-ca-file")
    if pair is None:
        if client_cas is not None:
            flags.fault("--client-ca-file: found it alone, expected --tls-cert-file beside it")
        return None
    return ScalerTlsFiles(*pair, client_cas)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalerSettings(BackendSettings):
    """All settings of a scaler."""

    held: HeldPlace = held_place()
    """Where the last decisions of triggers are kept."""
    host: str = SERVING.option(TEXT, "bind-address", "Address to listen on.", "0.0.0.0")  # noqa: S104 - KEDA is another pod
    port: int = SERVING.option(
        PORT, "port", "Port of gRPC, that of scalerAddress in KEDA's triggers.", "6000"
    )
    metrics_port: int | None = SERVING.option(
        PORT.unless_zero(None),
        "metrics-port",
        "Port of /metrics, /healthz and /readyz; 0 serves none.",
        "8080",
    )
    tls: ScalerTlsFiles | None = made(
        _tls,
        SERVING.flag(
            "tls-cert-file", "Serving certificate, with intermediates; renewed files are used."
        ),
        SERVING.flag("tls-private-key-file", "Key of the serving certificate."),
        SERVING.flag(
            "client-ca-file",
            "CAs of client certificates; every client then has to show one. Renewed files are used.",
        ),
    )
    """None serves plain text."""
    shutdown_delay_s: float = SERVING.option(
        SECONDS,
        "shutdown-delay-duration",
        "How long it still serves after SIGTERM, with /readyz failing; a second signal, or SIGINT, "
        "ends it at once.",
        "10s",
    )
    limits: ServerLimits = part(ServerLimits)


GROUPS: Mapping[str, tuple[Flag, ...]] = groups_of(
    ScalerSettings, FeedSettings, more=(SETTINGS_FILE,)
)
"""All flags by the title of their panel."""
FLAGS: Mapping[str, Flag] = {flag.name: flag for flags in GROUPS.values() for flag in flags}
COMMON = frozenset(
    {
        *COMMON_OF_VALUES,
        *(flag.name for flag in GROUPS["Serving"]),
        "held-configmap",
        "held-file",
    }
)
"""Flags that most users need; `--help` shows these."""


def read_settings(
    given: Mapping[str, Sequence[str]], file: Mapping[str, FileText] | None = None
) -> ScalerSettings:
    """Return the settings of these flags, and of the file with settings that they name.

    Args:
        given: the texts of each flag that was given, by name without dashes.
        file: what a file says that was read already.

    Raises:
        UsageError: values that can't be, or flags that don't go together; all are reported, one per line.
        ConfigError: the file can't be read, or is not of its format.
    """
    flags = reader_of(FLAGS, given, file=file)
    settings = read_backend(ScalerSettings, flags)
    if not settings.port:
        flags.fault("--port: found 0, expected a port")
    if settings.metrics_port == settings.port:
        flags.fault(f"--metrics-port: found {settings.port}, expected another port than --port")
    flags.finish()
    return settings
