"""The certificate that the metrics API's replicas share, and the CA that the API server verifies it by."""

from dataclasses import dataclass, field

from gpuscale.install.parts.common import METRICS_API, part_name
from gpuscale.install.values import Values
from gpuscale.metricsapi.certificates import make_ca, make_serving, names_of_service


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    """A CA, and a certificate signed by it, as PEM."""

    ca: str
    certificate: str
    key: str = field(repr=False)


def make_certificate(values: Values, now_ms: int) -> ServingCertificate:
    """Return a new certificate for the metrics API's Service. The CA's key is thrown away."""
    ca = make_ca(now_ms)
    names = names_of_service(part_name(values, METRICS_API), values.spec.namespace)
    serving = make_serving(ca, names, now_ms)
    return ServingCertificate(
        ca.certificate.decode(), serving.certificate.decode(), serving.key.decode()
    )
