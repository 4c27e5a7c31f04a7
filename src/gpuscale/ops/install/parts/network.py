"""Network policies: who may reach a part, and what it may reach. A cluster need not enforce them."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from gpuscale.ops.install.common import (
    NODE_AGENT,
    Object,
    has_api_pods,
    metadata,
    part_name,
    selector,
    settings_of,
)
from gpuscale.ops.install.parts import agent, model_servers, prometheus, scaler
from gpuscale.ops.install.parts import api_pods as metrics_api_pods
from gpuscale.ops.install.pods import NetworkSettings, ServedPodSettings
from gpuscale.ops.install.settings.collected import SelectedPods
from gpuscale.ops.install.values import Values

_DNS = [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]
_API_SERVER_PORTS = (443, 6443, 8443)
"""Policies see the port behind the Service `kubernetes`, which providers choose."""
_SCRAPED = {metrics_api_pods.PART: "scraped-pods", scaler.PART: "scaler-scraped-pods"}
_SCHEME_PORTS = {"http": 80, "https": 443}


def network_objects(values: Values) -> list[Object]:
    """Return a policy for each part with pods."""
    return [*server_policies(values), *prometheus_policies(values)]


def server_policies(values: Values) -> list[Object]:
    """Return the policies of the node agents and of the metrics API."""
    if not values.spec.network_policies:
        return []
    found: list[Object] = []
    if values.spec.agent.enabled:
        outwards = _tcp(*_API_SERVER_PORTS) if agent.asks_api_server(values) else []
        found.append(_policy(values, NODE_AGENT, _tcp(agent.PORT), outwards))
    if has_api_pods(values):
        # Replicas reach each other at the API server's port 6443, which is theirs too.
        ports = _tcp(
            *_API_SERVER_PORTS,
            _source_port(values),
            *_remote_write_ports(values),
            *_alertmanager_ports(values),
        )
        found.append(
            _policy(values, metrics_api_pods.PART, _tcp(metrics_api_pods.PORT), [*_DNS, *ports])
        )
        found += [_scraping(values, metrics_api_pods.PART)] if values.spec.scrapes_pods else []
    return [*found, *_scaler_policies(values)]


def _scaler_policies(values: Values) -> list[Object]:
    if not values.spec.asks_scaler:
        return []
    ingress = _tcp(values.spec.scaler.port, scaler.METRICS_PORT)
    ports = _tcp(*_API_SERVER_PORTS, _source_port(values))
    found = [_policy(values, scaler.PART, ingress, [*_DNS, *ports])]
    return [*found, *([_scraping(values, scaler.PART)] if values.spec.scrapes_pods else ())]


def _scraping(values: Values, part: str) -> Object:
    """Return what lets a part go to the pods that it scrapes, beside what its other policy allows.

    Annotations name any port, and policies can't select by them: it is all pods, and nothing outside.
    """
    api = values.spec.metrics_api
    every: Object = {"to": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP"}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(values, part, name=part_name(values, _SCRAPED[part])),
        "spec": {
            "podSelector": {"matchLabels": selector(values, part)},
            "policyTypes": ["Egress"],
            "egress": [every]
            if api.scrape_pods
            else [_to_selected(each) for each in api.scrape_selected_pods],
        },
    }


def _to_selected(pods: SelectedPods) -> Object:
    named = {"kubernetes.io/metadata.name": pods.namespace}
    place: Object = {"namespaceSelector": {"matchLabels": named} if pods.namespace else {}}
    if pods.match_labels:
        place["podSelector"] = {"matchLabels": dict(pods.match_labels)}
    return {"to": [place], "ports": [{"port": pods.port, "protocol": "TCP"}]}


def prometheus_policies(values: Values) -> list[Object]:
    """Return the policy of the installation's own Prometheus; none where there is none."""
    if not values.spec.network_policies or not values.spec.has_own_prometheus:
        return []
    scalers = [scaler.METRICS_PORT] if values.spec.asks_scaler else []
    found = [] if values.spec.has_streams else model_servers.served(values)
    ours = [*_API_SERVER_PORTS, agent.PORT, *scalers]
    ports = _tcp(*ours, *dict.fromkeys(each.port for each in found if each.port not in ours))
    return [_policy(values, prometheus.PART, _tcp(prometheus.PORT), [*_DNS, *ports])]


def _source_port(values: Values) -> int:
    """Return where the metrics API gets its values."""
    if values.spec.has_streams:
        return agent.PORT
    return url_port(prometheus.address(values))


def _remote_write_ports(values: Values) -> tuple[int, ...]:
    return (values.spec.metrics_api.remote_write_port,) if values.spec.has_streams else ()


def _alertmanager_ports(values: Values) -> tuple[int, ...]:
    return tuple(map(url_port, values.spec.metrics_api.alertmanagers[:1]))


def url_port(url: str) -> int:
    """Return the port that an address leads to."""
    parts = urlsplit(url)
    return parts.port or _SCHEME_PORTS[parts.scheme]


def _peers(values: Values, settings: NetworkSettings) -> Object:
    if not settings.from_:
        return {}
    ours = {
        "app.kubernetes.io/name": "gpuscale",
        "app.kubernetes.io/instance": values.metadata.name,
    }
    return {"from": [*settings.from_, {"podSelector": {"matchLabels": ours}}]}


def _tcp(*ports: int) -> list[Object]:
    return [{"port": port, "protocol": "TCP"} for port in ports]


def _policy(
    values: Values, part: str, ingress: Sequence[Object], egress: Sequence[Object]
) -> Object:
    """Return a policy. By port only: API servers, kubelets and scrapers have no labels to select by."""
    served = settings_of(values, part)
    settings = served.network_policy if isinstance(served, ServedPodSettings) else NetworkSettings()
    outwards = [*([{"ports": list(egress)}] if egress else ()), *settings.egress]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(values, part),
        "spec": {
            "podSelector": {"matchLabels": selector(values, part)},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{**_peers(values, settings), "ports": list(ingress)}],
            # With the type `Egress` and no rules, nothing may go out.
            **({"egress": outwards} if outwards else {}),
        },
    }
