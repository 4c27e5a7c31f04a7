"""The certificate that the metrics API's replicas share, and the CA that the API server verifies it by.

One that an installation has already is kept for as long as it is good.
"""

import base64
import binascii
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuscale.base.pki import (
    CA_DAYS,
    KeyPair,
    can_serve,
    make_ca,
    make_serving,
    names_of_service,
)
from gpuscale.ops.install.cluster.kinds import kind_named
from gpuscale.ops.install.cluster.ownership import owner
from gpuscale.ops.install.common import METRICS_API, metrics_api_secret, part_name
from gpuscale.ops.install.values import Values

if TYPE_CHECKING:
    from gpuscale.kube.client import KubeClient

_SECRETS = kind_named("Secret")
_RENEWED_BEFORE_MS = 90 * 86_400_000


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A CA, and a certificate signed by it, as PEM."""

    ca: str
    certificate: str
    key: str = field(repr=False)

    def data(self) -> dict[str, str]:
        """Return the certificate as the `data` of a Secret."""
        texts = {"ca.crt": self.ca, "tls.crt": self.certificate, "tls.key": self.key}
        return {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}


def make_certificate(values: Values, now_ms: int) -> IssuedCertificate:
    """Return a new certificate for the metrics API's Service. The CA's key is thrown away."""
    ca = make_ca(now_ms)
    serving = make_serving(ca, _names(values), now_ms, CA_DAYS)
    return IssuedCertificate(
        ca.certificate.decode(), serving.certificate.decode(), serving.key.decode()
    )


async def certificate_for(client: "KubeClient", values: Values, now_ms: int) -> IssuedCertificate:
    """Return the cluster's certificate if it is still usable, else a new one.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    path = _SECRETS.path(metrics_api_secret(values), values.spec.namespace)
    secret = await client.find(path)
    if secret is not None and owner(secret) == values.metadata.name:
        found = _read(secret.get("data") or {})
        if found is not None and _is_usable(found, values, now_ms):
            return found
    return make_certificate(values, now_ms)


def _read(data: dict[str, str]) -> IssuedCertificate | None:
    try:
        texts = [base64.b64decode(data[key]).decode() for key in ("ca.crt", "tls.crt", "tls.key")]
    except (KeyError, binascii.Error, UnicodeDecodeError):
        return None
    return IssuedCertificate(*texts)


def _is_usable(found: IssuedCertificate, values: Values, now_ms: int) -> bool:
    """Return whether a certificate has the right name and remains valid for a while."""
    pair = KeyPair(found.certificate.encode(), found.key.encode())
    return can_serve(pair, _names(values)[0], now_ms + _RENEWED_BEFORE_MS)


def _names(values: Values) -> tuple[str, ...]:
    return names_of_service(part_name(values, METRICS_API), values.spec.namespace)
