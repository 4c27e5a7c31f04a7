"""The renewal of the certificate that replicas share, without a failed request.

Every renewal makes a new CA, signs one certificate with it and throws its key away, so there is no CA key to
keep or to lose. Clients have to trust the new CA before any replica shows its certificate, and the old one
until no replica shows the old certificate. So a renewal has three steps, each one write of the Secret:

1. `begin`: the next pair is stored beside the current one, and the bundle gets its CA.
2. `promote`: once the bundle is in the APIServices and every replica has had the time to read it, the next
   pair is the current one.
3. `finish`: once every replica shows the current certificate, the old CA leaves the bundle.

Where nothing good is left, as in a cluster that slept for months, a new pair serves at once.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from gpuscale.base.pki import KeyPair, can_serve, make_ca, make_serving

SPREAD_MS = 300_000
"""Replicas, their peers and the API server read a changed bundle well within five minutes."""
OVERLAP_MS = 3_600_000
"""After an hour no replica shows the old certificate, and no client has an old copy of the bundle."""
_RENEWED_AFTER = 2 / 3
"""Share of a certificate's life, as cert-manager does by default."""


@dataclass(frozen=True, slots=True)
class SharedCertificate:
    """The content of the certificate's Secret."""

    bundle: bytes = b""
    """CAs that clients should trust, as PEM: of the current pair, of the next one and of the one before."""
    current: KeyPair | None = None
    next: KeyPair | None = None
    since_ms: int = 0
    """When the latest step was made."""


def next_step(
    stored: SharedCertificate,
    names: tuple[str, ...],
    now_ms: int,
    days: int,
    *,
    is_published: bool,
) -> SharedCertificate | None:
    """Return the next content of the Secret; None if no step is due.

    Args:
        stored: what it holds.
        names: host names of the Service; the first is what the API server verifies.
        now_ms: milliseconds since the epoch.
        days: life of a new certificate.
        is_published: every APIService has the whole bundle.
    """
    current = stored.current
    if current is None or not can_serve(current, names[0], now_ms):
        if stored.next is not None and can_serve(stored.next, names[0], now_ms):
            return replace(stored, current=stored.next, next=None, since_ms=now_ms)
        ca, pair = _new_pair(names, now_ms, days)
        bundle = b"".join([*_unexpired(stored.bundle, now_ms), ca])
        return SharedCertificate(bundle, pair, None, now_ms)
    waited_ms = now_ms - stored.since_ms
    if waited_ms < -OVERLAP_MS:  # A clock that was far ahead must not hold up a renewal for years.
        waited_ms = OVERLAP_MS
    if stored.next is not None:
        if not can_serve(stored.next, names[0], now_ms):
            return replace(stored, next=None, since_ms=now_ms)
        if is_published and waited_ms >= SPREAD_MS:
            return replace(stored, current=stored.next, next=None, since_ms=now_ms)
        return None
    if now_ms >= _renewal_ms(current):
        ca, pair = _new_pair(names, now_ms, days)
        return replace(stored, bundle=stored.bundle + ca, next=pair, since_ms=now_ms)
    own = [ca for ca in split_bundle(stored.bundle) if _has_signed(ca, current.certificate)]
    if not own:
        # Somebody emptied the bundle: clients can't trust the certificate, so start again.
        return next_step(replace(stored, current=None), names, now_ms, days, is_published=False)
    if waited_ms >= OVERLAP_MS and b"".join(own) != stored.bundle:
        return replace(stored, bundle=b"".join(own), since_ms=now_ms)
    return None


def split_bundle(bundle: bytes) -> list[bytes]:
    """Return the certificates of a PEM bundle one by one; none if it is no PEM."""
    try:
        found = x509.load_pem_x509_certificates(bundle) if bundle.strip() else []
    except ValueError:
        return []
    return [each.public_bytes(serialization.Encoding.PEM) for each in found]


def _unexpired(bundle: bytes, now_ms: int) -> list[bytes]:
    return [
        each
        for each in split_bundle(bundle)
        if now_ms < _ms(x509.load_pem_x509_certificate(each).not_valid_after_utc)
    ]


def _new_pair(names: tuple[str, ...], now_ms: int, days: int) -> tuple[bytes, KeyPair]:
    ca = make_ca(now_ms, days)
    return ca.certificate, make_serving(ca, names, now_ms, days)


def _renewal_ms(pair: KeyPair) -> int:
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    begin, end = _ms(certificate.not_valid_before_utc), _ms(certificate.not_valid_after_utc)
    return begin + int((end - begin) * _RENEWED_AFTER)


def _has_signed(ca: bytes, certificate: bytes) -> bool:
    try:
        issuer = x509.load_pem_x509_certificate(ca)
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _ms(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() * 1000)
