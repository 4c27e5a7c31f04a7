"""Every flag of the metrics API server: prometheus-adapter's, and ours.

One table serves the command line, the messages about wrong values and the docs.

Source: prometheus-adapter v0.12.0 cmd/adapter (adapter.go); custom-metrics-apiserver v1.30.0 pkg/cmd;
k8s.io/apiserver v0.30.0 pkg/server/options.
"""

from types import MappingProxyType

from gpuscale.server.metricsapi.flags.auditing import ACCEPTED, AUDIT, LOGGING
from gpuscale.server.metricsapi.flags.metrics import CLUSTER, FEDERATION, METRICS
from gpuscale.server.metricsapi.flags.serving import AUTHENTICATION, AUTHORIZATION, SERVING
from gpuscale.server.metricsapi.flags.sources import PROMETHEUS, STREAMS

GROUPS = MappingProxyType(
    {
        "Metrics": METRICS,
        "Prometheus": PROMETHEUS,
        "Streams": STREAMS,
        "Cluster": CLUSTER,
        "Federation": FEDERATION,
        "Serving": SERVING,
        "Authentication": AUTHENTICATION,
        "Authorization": AUTHORIZATION,
        "Logging": LOGGING,
        "Audit": AUDIT,
        "Accepted, without effect": ACCEPTED,
    }
)
COMMON = frozenset(
    {
        "config",
        "preset",
        "print-preset",
        "triggers",
        "rules-configmaps",
        "source",
        "value-max-age",
        "metrics-relist-interval",
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
        "scrape-interval",
        "store-directory",
        "remote-write-url",
        "lister-kubeconfig",
        "federate",
        "secure-port",
        "insecure-loopback-port",
        "tls-cert-file",
        "tls-private-key-file",
        "cert-dir",
        "v",
    }
)
"""Flags that most users need; `--help` shows these."""

FLAGS = MappingProxyType({flag.name: flag for flags in GROUPS.values() for flag in flags})
"""By name, in the order of the groups."""
