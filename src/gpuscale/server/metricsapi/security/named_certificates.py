"""Certificates for single host names, chosen by the name that a client asks for.

An explicit pattern goes before a name that is only read from a certificate, a full name before one with a
`*` for its first label, and of equals the pair that was given first.

Source: k8s.io/apiserver v0.30.0 pkg/server/dynamiccertificates (named_certificates.go), crypto/tls of Go 1.22
(Config.getCertificate). Known difference: addresses as patterns match nothing, since a client that calls
an address does not say so in the handshake.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from OpenSSL import SSL

from gpuscale.base.clock import Clock
from gpuscale.base.errors import UsageError
from gpuscale.server.metricsapi.security.client_tls import TlsRules
from gpuscale.server.metricsapi.security.serving_certificate import (
    CertificateFiles,
    ServingCertificate,
)


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """A certificate and key with the host names that they serve."""

    files: CertificateFiles
    patterns: tuple[str, ...] = ()
    """Host names, perhaps `*` instead of the first label; empty for those in the certificate."""


class NamedCertificates:
    """The current TLS contexts for single host names.

    Raises:
        UsageError: files are missing or don't fit together, or a pair is for no name.
    """

    def __init__(self, pairs: Sequence[NamedFiles], rules: TlsRules, clock: Clock) -> None:
        self._pairs = [
            (ServingCertificate(pair.files, rules, clock), tuple(map(str.lower, pair.patterns)))
            for pair in pairs
        ]
        for pair, (certificate, _) in zip(pairs, self._pairs, strict=True):
            if not pair.patterns and not certificate.names:
                raise UsageError(
                    f"--tls-sni-cert-key: {pair.files.certificate}: found no host name in the "
                    "certificate, expected one there, or names after a colon"
                )

    def context(self, name: str) -> SSL.Context | None:
        """Return the TLS context for a lower-case host name; None if no certificate matches."""
        first, _, rest = name.partition(".")
        for wanted in (name, f"*.{rest}") if first and rest else (name,):
            for names, certificate in self._by_precedence():
                if wanted in names:
                    return certificate.context()
        return None

    def faults(self) -> tuple[str, ...]:
        """Return why certificate files can't be used now; none if all can."""
        return tuple(each.fault for each, _ in self._pairs if each.fault is not None)

    def reload(self) -> None:
        """Reload files that changed, where certificate and key fit together."""
        for certificate, _ in self._pairs:
            certificate.reload()

    async def run(self) -> None:
        """Reload files when they change, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for certificate, _ in self._pairs:
                group.create_task(certificate.run())

    def _by_precedence(self) -> Iterator[tuple[tuple[str, ...], ServingCertificate]]:
        """Yield host names and certificates: explicit patterns first, then the names in the certificates."""
        for certificate, patterns in self._pairs:
            if patterns:
                yield patterns, certificate
        for certificate, patterns in self._pairs:
            if not patterns:
                yield certificate.names, certificate
