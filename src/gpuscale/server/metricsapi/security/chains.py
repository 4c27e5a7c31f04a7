"""Whether a certificate that a client showed was signed by a given CA, and the user it names.

Source: Go crypto/x509 (Certificate.Verify with KeyUsages ClientAuth), as k8s.io/apiserver v0.30.0
pkg/authentication/request/x509 (x509.go) uses it: any certificate of the bundle is an anchor, intermediates
come from the client, and an extended key usage, where there is one, has to allow clients.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL import crypto

from gpuscale.base.byte_cache import ByteCache

_PEM_END = "-----END CERTIFICATE-----"
_PEM_START = "-----BEGIN CERTIFICATE-----"
_FOR_CLIENTS = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
_REMEMBERED_S = 10.0
"""How long a verdict holds: as long as those on tokens. Verifying takes a quarter of a millisecond."""
_MOST_BYTES = 4 * 1024 * 1024
"""Of certificates with their verdicts, for each bundle. Anyone may show some, a hundred kilobytes at once."""
_CERTIFICATE_BYTES = 4 * 1024
"""What OpenSSL and Python take for any certificate; a large one takes two to three times its DER more."""
MAX_BUNDLE = 1024 * 1024
MAX_CHAIN = 10
"""Certificates that a client may show; real chains have one to three."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The user that a verified certificate names."""

    common_name: str
    organizations: tuple[str, ...]


class UntrustedError(Exception):
    """A client certificate is not signed by a trusted CA."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The remembered result of verifying a connection's certificates."""

    until_s: float
    subject: Subject | None
    fault: str = ""


class CaBundle:
    """Trusted CA certificates, which verify client certificates.

    Args:
        pem: one certificate or more.
        timer: returns seconds of any origin.

    Raises:
        ValueError: the text holds no certificates.
    """

    def __init__(self, pem: str, timer: Callable[[], float] = time.monotonic) -> None:
        self.pem = pem
        self._timer = timer
        self._verdicts: ByteCache[tuple[crypto.X509, ...], _Verdict] = ByteCache(
            "certificates", _MOST_BYTES
        )
        self._store = crypto.X509Store()
        self._store.set_flags(crypto.X509StoreFlags.PARTIAL_CHAIN)
        for certificate in _certificates(pem):
            self._store.add_cert(certificate)

    def subject(self, presented: Sequence[crypto.X509]) -> Subject:
        """Return the user that the first of the certificates names.

        What a connection showed is looked at again after ten seconds, not for each of its requests.

        Args:
            presented: the client's own, then intermediates in any order; at least one.

        Raises:
            UntrustedError: not signed by this CA, not valid now, or not for clients.
        """
        shown = tuple(presented)
        verdict = self._verdicts.get(shown)
        if verdict is None or self._timer() >= verdict.until_s:
            verdict = self._judge(shown)
        if verdict.subject is None:
            raise UntrustedError(verdict.fault)
        return verdict.subject

    def _judge(self, shown: tuple[crypto.X509, ...]) -> "_Verdict":
        until_s = self._timer() + _REMEMBERED_S
        try:
            verdict = _Verdict(until_s, self._verified(shown))
        except UntrustedError as error:
            verdict = _Verdict(until_s, None, str(error))
        self._verdicts.put(shown, verdict, sum(map(_bytes_of, shown)))
        return verdict

    def _verified(self, presented: Sequence[crypto.X509]) -> Subject:
        leaf, *others = presented
        if len(others) >= MAX_CHAIN:
            raise UntrustedError(
                f"found {len(presented)} certificates, expected {MAX_CHAIN} at most"
            )
        try:
            chain = crypto.X509StoreContext(self._store, leaf, others).get_verified_chain()
            certificates = [each.to_cryptography() for each in chain]
            if not all(_is_for_clients(each) for each in certificates):
                raise UntrustedError("certificate is not meant for clients")
            return _subject(certificates[0])
        except crypto.X509StoreContextError as error:
            raise UntrustedError(str(error)) from error
        except (crypto.Error, ValueError, x509.DuplicateExtension) as error:
            raise UntrustedError(f"certificate can't be read: {error}") from error


def _bytes_of(certificate: crypto.X509) -> int:
    der = crypto.dump_certificate(crypto.FILETYPE_ASN1, certificate)
    return _CERTIFICATE_BYTES + 3 * len(der)


def _certificates(pem: str) -> list[crypto.X509]:
    if len(pem) > MAX_BUNDLE:
        raise ValueError(f"found {len(pem)} characters, expected at most {MAX_BUNDLE}")
    blocks = [
        part.split(_PEM_START, 1)[1] for part in pem.split(_PEM_END)[:-1] if _PEM_START in part
    ]
    if not blocks:
        raise ValueError("found no certificate, expected PEM text with at least one")
    return [_certificate(f"{_PEM_START}{block}{_PEM_END}\n") for block in blocks]


def _certificate(pem: str) -> crypto.X509:
    try:
        return crypto.load_certificate(crypto.FILETYPE_PEM, pem.encode())
    except (crypto.Error, ValueError) as error:
        raise ValueError("found PEM text that holds no certificate") from error


def _is_for_clients(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return bool(_FOR_CLIENTS.intersection(usage))


def _subject(certificate: x509.Certificate) -> Subject:
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    organizations = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return Subject(
        str(names[-1].value) if names else "",
        tuple(str(each.value) for each in organizations),
    )
