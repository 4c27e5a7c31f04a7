"""The serving certificate that an installation has already, which is kept for as long as it is good."""

import base64
import binascii

from gpuscale.install.certificates import ServingCertificate, is_usable, make_certificate
from gpuscale.install.cluster.kinds import kind_named
from gpuscale.install.cluster.ownership import owner
from gpuscale.install.common import metrics_api_secret
from gpuscale.install.values import Values
from gpuscale.kube.client.client import KubeClient

_SECRETS = kind_named("Secret")


async def certificate_for(client: KubeClient, values: Values, now_ms: int) -> ServingCertificate:
    """Return the certificate in the cluster where it can go on serving, else a new one.

    Raises:
        ApiUnreachableError: no answer, or not now.
        ApiStatusError: refused.
    """
    path = _SECRETS.path(metrics_api_secret(values), values.spec.namespace)
    secret = await client.find(path)
    if secret is not None and owner(secret) == values.metadata.name:
        found = _read(secret.get("data") or {})
        if found is not None and is_usable(found, values, now_ms):
            return found
    return make_certificate(values, now_ms)


def _read(data: dict[str, str]) -> ServingCertificate | None:
    try:
        texts = [base64.b64decode(data[key]).decode() for key in ("ca.crt", "tls.crt", "tls.key")]
    except (KeyError, binascii.Error, UnicodeDecodeError):
        return None
    return ServingCertificate(*texts)
