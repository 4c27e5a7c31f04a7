"""Whether Prometheus refuses requests, and which agents it does not scrape."""

from collections.abc import Iterator, Mapping

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.fields import Fields
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.judges import PROMETHEUS, ClusterFinding
from gpuscale.ops.doctor.snapshot import Snapshot

SCRAPING_CHECKS = Checks(PROMETHEUS)
PROMETHEUS_REFUSES = SCRAPING_CHECKS.add(
    "prometheus-refuses",
    Severity.ERROR,
    "A Prometheus that wants credentials, and a metrics server without any.",
    "Give the metrics server credentials: --prometheus-token-file, --prometheus-username and "
    "--prometheus-password-file, or --prometheus-identity for an Azure Monitor workspace.",
)
NODE_NOT_SCRAPED = SCRAPING_CHECKS.add(
    "node-not-scraped",
    Severity.ERROR,
    "An agent that Prometheus has no target for, while it has one for others.",
    "Find the node in the scrape configuration: its labels, zone or pool may be left out.",
)

_CREDENTIALS = (
    "--prometheus-token-file",
    "--prometheus-identity",
    "--prometheus-username",
    "--prometheus-header",
    "--prometheus-client-tls-cert-file",
    "--prometheus-auth-config",
    "--prometheus-auth-incluster",
)


def refused_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the metrics servers without credentials for a Prometheus that requires some."""
    look = snapshot.prometheus
    for body, _, flags in facts.metrics_servers(snapshot):
        if look.refused and not any(flag in flags for flag in _CREDENTIALS):
            yield PROMETHEUS_REFUSES.found(
                f"deployment/{facts.full_name(body)}",
                f"Prometheus answers {look.refused}: it wants credentials, and the metrics server has none.",
                f"{look.address}: {look.fault}; no flag --prometheus-token-file, "
                "--prometheus-username or the like",
                Fix(
                    PROMETHEUS_REFUSES.fix,
                    "gpuscale metrics-api --help",
                ),
            )


def left_out_findings(snapshot: Snapshot) -> Iterator[ClusterFinding]:
    """Return the agents without a scrape target, in a Prometheus that scrapes other agents."""
    targets = [labels for labels, _ in snapshot.prometheus.targets]
    pods = [
        pod
        for pod in facts.agent_pods(snapshot)
        if facts.is_ready(pod) and facts.spec_of(pod).node_name
    ]
    addresses = {_host(labels) for labels in targets} - {""}
    names = {labels.get("pod", "") for labels in targets} - {""}
    nodes = {labels.get(key, "") for labels in targets for key in _NODE_LABELS} - {""} | addresses
    left_out = [pod for pod in pods if not _is_target(pod, addresses, names, nodes)]
    if len(left_out) == len(pods):
        return
    for pod in left_out:
        node = facts.spec_of(pod).node_name
        yield NODE_NOT_SCRAPED.found(
            f"pod/{facts.full_name(pod)}",
            f"Prometheus does not scrape the agent on node {node}.",
            f"no target for {_addresses(pod)[0] if _addresses(pod) else facts.name(pod)}; it scrapes "
            f"{len(pods) - len(left_out)} of {len(pods)} agents",
            Fix(
                NODE_NOT_SCRAPED.fix,
                f"kubectl get node {node} --show-labels; kubectl get servicemonitor,podmonitor -A",
            ),
        )


_NODE_LABELS = ("node", "instance", "kubernetes_node", "Hostname", "nodename")


def _host(labels: Mapping[str, str]) -> str:
    return labels.get("instance", "").rpartition(":")[0].strip("[]")


def _addresses(pod: Fields) -> list[str]:
    status = pod.child("status")
    return [text for text in (status.text("podIP"), status.text("hostIP")) if text]


def _is_target(pod: Fields, addresses: set[str], names: set[str], nodes: set[str]) -> bool:
    return (
        facts.name(pod) in names
        or any(address in addresses for address in _addresses(pod))
        or facts.spec_of(pod).node_name in nodes
    )
