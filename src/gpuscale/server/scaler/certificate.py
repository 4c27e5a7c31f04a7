"""The scaler's certificate and client CAs, reloaded when their files change."""

import asyncio
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from gpuscale.base.errors import UsageError
from gpuscale.base.watched_files import FileLook, LastGood

_LOG = logging.getLogger(__name__)
_LOOK_S = 5.0


@dataclass(frozen=True, slots=True)
class ScalerTlsFiles:
    """The paths of the TLS files."""

    certificate: Path
    key: Path
    client_cas: Path | None = None
    """Clients have to show a certificate of one of these CAs; None takes every client."""


@dataclass(frozen=True, slots=True)
class TlsMaterial:
    """The content of the TLS files, as PEM."""

    certificate: bytes
    key: bytes
    client_cas: bytes | None


class WatchedCertificate:
    """The last valid TLS files; a change applies to new connections.

    Args:
        files: read now, and again when they change.

    Raises:
        UsageError: they can't be used.
    """

    def __init__(self, files: ScalerTlsFiles) -> None:
        paths = [files.certificate, files.key, *([files.client_cas] if files.client_cas else [])]
        self._files = LastGood(paths, lambda: _read(files), (UsageError,))

    @property
    def material(self) -> TlsMaterial:
        return self._files.value

    @property
    def fault(self) -> str | None:
        """Why the current TLS files can't be used."""
        return None if self._files.fault is None else str(self._files.fault)

    async def run(self) -> None:
        """Reload changed TLS files until cancelled."""
        said = None
        while True:
            await asyncio.sleep(_LOOK_S)
            if self._files.look() is FileLook.LOADED:
                _LOG.info("new connections get the renewed certificate")
            if self.fault is not None and self.fault != said:
                _LOG.warning("the certificate is kept as it was: %s", self.fault)
            said = self.fault


def _read(files: ScalerTlsFiles) -> TlsMaterial:
    # With a mismatched pair, gRPC only reports failed handshakes, so Python's ssl checks it first.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--tls-cert-file: found {files.certificate} with {files.key}, expected a certificate and "
            f"its key: {_reason(error)}"
        ) from error
    client_cas = None
    if files.client_cas is not None:
        try:
            context.load_verify_locations(files.client_cas)
            client_cas = files.client_cas.read_bytes()
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--client-ca-file: found {files.client_cas}, expected certificates of CAs: "
                f"{_reason(error)}"
            ) from error
    return TlsMaterial(files.certificate.read_bytes(), files.key.read_bytes(), client_cas)


def _no_password() -> str:
    raise ValueError("the key has a password")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
