"""The serving certificate: read from files that may change, or self-made and renewed in time.

A new certificate is shown to new connections; open ones keep theirs. Files that don't fit together, as they
may for a moment while they are replaced, leave the last good pair in place.
"""

import logging
from dataclasses import dataclass
from pathlib import Path

from OpenSSL import SSL

from gpuscale.base.clock import Clock
from gpuscale.base.errors import UsageError
from gpuscale.base.pki import (
    SERVING_DAYS,
    KeyPair,
    host_names,
    make_ca,
    make_serving,
    write_private,
)
from gpuscale.base.watched_files import FileLook, LastGood
from gpuscale.server.metricsapi.security.client_tls import ByName, TlsRules, server_context

_LOG = logging.getLogger(__name__)
LOOK_EVERY_S = 10.0
_RENEW_AFTER_MS = SERVING_DAYS * 2 // 3 * 86_400_000
CERTIFICATE_FILE = "apiserver.crt"
KEY_FILE = "apiserver.key"
CA_FILE = "ca.crt"
CA_KEY_FILE = "ca.key"


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The paths of a certificate and its key."""

    certificate: Path
    key: Path


class ServingCertificate:
    """The current TLS context of a certificate file and a key file.

    Args:
        files: certificate and key.
        rules: what connections are agreed on.
        clock: times the checks of the files.
        by_name: has the certificates of single names; None where this one serves all.

    Raises:
        UsageError: the files are missing, or don't fit together.
    """

    def __init__(
        self,
        files: CertificateFiles,
        rules: TlsRules,
        clock: Clock,
        by_name: ByName | None = None,
    ) -> None:
        self._files = files
        self._rules = rules
        self._clock = clock
        self._by_name = by_name
        try:
            self._loaded = LastGood(
                (files.certificate, files.key), self._load, (OSError, ValueError)
            )
        except (OSError, ValueError) as error:
            raise UsageError(self._fault_text(error)) from error

    def context(self) -> SSL.Context:
        return self._loaded.value[1]

    @property
    def fault(self) -> str | None:
        """Why the current files can't be used; None if they can."""
        error = self._loaded.fault
        return None if error is None else self._fault_text(error)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the host names that the certificate is for, in lower case."""
        return host_names(self._loaded.value[0].certificate)

    async def run(self) -> None:
        """Reload the files when they change, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_EVERY_S)
            self.reload()

    def reload(self) -> None:
        """Reload the files if they changed and fit together."""
        fault, (pair, _) = self.fault, self._loaded.value
        found = self._loaded.look()
        if found is FileLook.FAILED and self.fault != fault:
            _LOG.warning("the last good certificate stays: %s", self.fault)
        if found is FileLook.LOADED and self._loaded.value[0] != pair:
            _LOG.info("new connections get the certificate now in %s", self._files.certificate)

    def _load(self) -> tuple[KeyPair, SSL.Context]:
        files = self._files
        content = KeyPair(files.certificate.read_bytes(), files.key.read_bytes())
        context = server_context(files.certificate, files.key, self._rules, self._by_name)
        return content, context

    def _fault_text(self, error: Exception) -> str:
        where = f"{self._files.certificate} and {self._files.key}"
        return f"{where}: found {error}, expected a PEM certificate and its key"


class OwnCertificate:
    """A CA and a serving certificate made here, in a folder.

    The CA stays for as long as the folder does, so that what was put into an APIService stays right.

    Raises:
        UsageError: the folder can't be written to.
    """

    def __init__(self, folder: Path, names: tuple[str, ...], clock: Clock) -> None:
        self.files = CertificateFiles(folder / CERTIFICATE_FILE, folder / KEY_FILE)
        self._names = names
        self._clock = clock
        self._made_ms = 0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._ca = _kept_ca(folder) or _new_ca(folder, clock.now_ms())
            self._make()
        except ValueError as error:
            raise UsageError(
                f"{folder / CA_KEY_FILE}: {error}; remove it to get a new CA"
            ) from error
        except OSError as error:
            raise UsageError(
                f"can't write certificates to {folder}: {error.strerror}; name a folder that can be "
                "written to by --cert-dir, or give --tls-cert-file and --tls-private-key-file"
            ) from error

    @property
    def ca_bundle(self) -> str:
        """Return the CA as PEM, for the `caBundle` of an APIService."""
        return self._ca.certificate.decode()

    async def run(self) -> None:
        """Renew the serving certificate after two thirds of its lifetime, until cancelled."""
        while True:
            await self._clock.sleep(3600)
            if self._clock.now_ms() - self._made_ms >= _RENEW_AFTER_MS:
                self._renew()

    def _renew(self) -> None:
        try:
            self._make()
        except OSError as error:
            _LOG.warning("can't renew %s: %s", self.files.certificate, error)

    def _make(self) -> None:
        now_ms = self._clock.now_ms()
        pair = make_serving(self._ca, self._names, now_ms)
        write_private(self.files.key, pair.key)
        write_private(self.files.certificate, pair.certificate)
        self._made_ms = now_ms


def _kept_ca(folder: Path) -> KeyPair | None:
    try:
        return KeyPair((folder / CA_FILE).read_bytes(), (folder / CA_KEY_FILE).read_bytes())
    except FileNotFoundError:
        return None


def _new_ca(folder: Path, now_ms: int) -> KeyPair:
    ca = make_ca(now_ms)
    write_private(folder / CA_KEY_FILE, ca.key)
    write_private(folder / CA_FILE, ca.certificate)
    return ca


def given_in(folder: Path) -> CertificateFiles | None:
    """Return a user's certificate and key in the folder; None if they are missing or self-made."""
    files = CertificateFiles(folder / CERTIFICATE_FILE, folder / KEY_FILE)
    there = files.certificate.exists() and files.key.exists()
    return files if there and not (folder / CA_KEY_FILE).exists() else None
