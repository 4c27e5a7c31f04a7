"""Every flag of the scaler: where it listens, what clients may do, and the metrics API's of values."""

from types import MappingProxyType

from gpuscale.base.flags import Flag
from gpuscale.server.metricsapi.flags import GROUPS as METRICS_API

SERVING = (
    Flag("bind-address", "Address to listen on.", default="0.0.0.0"),  # noqa: S104 - KEDA is another pod
    Flag("port", "Port of gRPC, that of scalerAddress in KEDA's triggers.", "int", "6000"),
    Flag("metrics-port", "Port of /metrics, /healthz and /readyz; 0 serves none.", "int", "8080"),
    Flag("tls-cert-file", "Serving certificate, with intermediates; renewed files are used."),
    Flag("tls-private-key-file", "Key of the serving certificate."),
    Flag(
        "client-ca-file",
        "CAs of client certificates; every client then has to show one. Renewed files are used.",
    ),
    Flag(
        "shutdown-delay-duration",
        "How long it still serves after SIGTERM, with /readyz failing; a second signal, or SIGINT, "
        "ends it at once.",
        "duration",
        "10s",
    ),
)
LIMITS = (
    Flag(
        "max-connections",
        "Connections; beyond that, some of the address with the most are closed.",
        "int",
        "256",
    ),
    Flag("max-connections-per-address", "Of these, from one IP address.", "int", "64"),
    Flag(
        "max-streams",
        "Open streams; a trigger of type external-push has two.",
        "int",
        "8000",
    ),
    Flag("max-streams-per-address", "Of these, from one IP address.", "int", "6000"),
    Flag("max-triggers", "Triggers that were asked for in the last ten minutes.", "int", "5000"),
    Flag("max-triggers-per-address", "Of these, from one IP address.", "int", "4500"),
    Flag(
        "max-connection-age",
        "After so long a connection takes no more calls, and KEDA opens another one, so that replicas share"
        " its calls.",
        "duration",
        "30m",
    ),
)
_NOT_HERE = {
    "print-preset",
    "triggers",
    "hop-lag-interval",
    "serve-prometheus-api",
    "peers",
    "peers-service",
    "peers-ca-file",
    "peers-token-file",
    "peers-server-name",
}
"""Flags of what only the metrics API serves."""


def _of_metrics_api(group: str) -> tuple[Flag, ...]:
    return tuple(
        flag for flag in METRICS_API[group] if flag.name not in _NOT_HERE and not flag.no_effect
    )


GROUPS = MappingProxyType(
    {
        "Serving": SERVING,
        "Limits": LIMITS,
        **{
            group: _of_metrics_api(group)
            for group in ("Metrics", "Prometheus", "Streams", "Cluster", "Logging")
        },
    }
)
COMMON = frozenset(
    {
        *(flag.name for flag in SERVING),
        "config",
        "preset",
        "held-configmap",
        "held-file",
        "source",
        "value-max-age",
        "prometheus-url",
        "prometheus-ca-file",
        "prometheus-token-file",
        "prometheus-identity",
        "prometheus-header",
        "prometheus-username",
        "prometheus-password-file",
        "agent-service",
        "agent",
        "scrape",
        "lister-kubeconfig",
        "v",
    }
)
"""Flags that most users need; `--help` shows these."""

FLAGS = MappingProxyType({flag.name: flag for flags in GROUPS.values() for flag in flags})
"""By name, in the order of the groups."""
READ = MappingProxyType(
    {**{flag.name: flag for flags in METRICS_API.values() for flag in flags}, **FLAGS}
)
"""With those that the settings of values are read with, and that keep their defaults here."""
