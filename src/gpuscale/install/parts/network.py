"""Network policies: who may reach a part, and whom it may reach. A cluster need not enforce them."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from gpuscale.install.parts import agent, metrics_api, prometheus
from gpuscale.install.parts.common import Object, metadata, selector
from gpuscale.install.values import Values

_DNS = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
_API_SERVER_PORTS = (443, 6443, 8443)
"""Policies see the port behind the Service `kubernetes`, which providers choose."""
_SCHEME_PORTS = {"http": 80, "https": 443}


def network_objects(values: Values) -> list[Object]:
    """Return a policy for each part with pods."""
    spec = values.spec
    if not spec.network_policies:
        return []
    found: list[Object] = []
    if spec.agent.enabled:
        found.append(_policy(values, agent.PART, _tcp(agent.PORT), []))
    if spec.metrics_api.enabled and spec.metrics_api.external_name is None:
        ports = _tcp(*_API_SERVER_PORTS, _prometheus_port(values))
        found.append(_policy(values, metrics_api.PART, _tcp(metrics_api.PORT), [*_DNS, *ports]))
    if spec.prometheus.kind == "own":
        ports = _tcp(*_API_SERVER_PORTS, agent.PORT)
        found.append(_policy(values, prometheus.PART, _tcp(prometheus.PORT), [*_DNS, *ports]))
    return found


def _prometheus_port(values: Values) -> int:
    parts = urlsplit(prometheus.address(values))
    return parts.port or _SCHEME_PORTS[parts.scheme]


def _tcp(*ports: int) -> list[Object]:
    return [{"port": port, "protocol": "TCP"} for port in ports]


def _policy(
    values: Values, part: str, ingress: Sequence[Object], egress: Sequence[Object]
) -> Object:
    """Return a policy. By port only: API servers, kubelets and scrapers have no labels to select by."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(values, part),
        "spec": {
            "podSelector": {"matchLabels": selector(values, part)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"ports": list(ingress)}],
            # With the type `Egress` and no rules, nothing may go out.
            **({"egress": [{"ports": list(egress)}]} if egress else {}),
        },
    }
