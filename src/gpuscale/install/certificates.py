"""The certificate that the metrics API's replicas share, and the CA that the API server verifies it by."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from cryptography import x509

from gpuscale.core.pki import (
    CA_DAYS,
    host_names,
    make_ca,
    make_serving,
    names_of_service,
)
from gpuscale.install.common import METRICS_API, part_name
from gpuscale.install.values import Values

_RENEWED_BEFORE = timedelta(days=90)


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    """A CA, and a certificate signed by it, as PEM."""

    ca: str
    certificate: str
    key: str = field(repr=False)


def make_certificate(values: Values, now_ms: int) -> ServingCertificate:
    """Return a new certificate for the metrics API's Service. The CA's key is thrown away."""
    ca = make_ca(now_ms)
    serving = make_serving(ca, _names(values), now_ms, CA_DAYS)
    return ServingCertificate(
        ca.certificate.decode(), serving.certificate.decode(), serving.key.decode()
    )


def is_usable(found: ServingCertificate, values: Values, now_ms: int) -> bool:
    """Return whether a certificate that is there can go on serving: for the right name, and for a while."""
    try:
        certificate = x509.load_pem_x509_certificate(found.certificate.encode())
        names = host_names(found.certificate.encode())
    except ValueError:
        return False
    soon = datetime.fromtimestamp(now_ms / 1000, UTC) + _RENEWED_BEFORE
    return _names(values)[0] in names and certificate.not_valid_after_utc > soon


def _names(values: Values) -> tuple[str, ...]:
    return names_of_service(part_name(values, METRICS_API), values.spec.namespace)
