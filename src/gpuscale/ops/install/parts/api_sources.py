"""Where the metrics API gets its values, as arguments: a Prometheus, or streams, scrapes and pushes."""

from gpuscale.ops.install.common import METRICS_API, agent_service, part_name
from gpuscale.ops.install.parts import (
    agent,
    agent_access,
    prometheus,
    prometheus_access,
)
from gpuscale.ops.install.parts.rules import PROMETHEUS_RULE_FILE, RECORDING_FILE
from gpuscale.ops.install.pods import SAMPLES_PER_SERIES
from gpuscale.ops.install.values import Values

PART = METRICS_API
SAMPLES = "/var/lib/gpuscale/samples"
REMOTE_WRITE = "/etc/gpuscale/remote-write"
RULES = "/etc/gpuscale/rules"
TLS = "/etc/gpuscale/tls"
_ALERTMANAGER_CA = "/etc/gpuscale/alertmanager-ca"
_ALERTMANAGER_TOKEN = "/etc/gpuscale/alertmanager-token"  # noqa: S105 - where it is
_ACCOUNT_TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - where it is


def source_arguments(values: Values) -> list[str]:
    """Return the arguments that say where values come from."""
    if not values.spec.has_streams:
        return [
            f"--prometheus-url={prometheus.address(values)}",
            *prometheus_access.arguments(values),
        ]
    return [
        "--source=streams",
        f"--agent-service={values.spec.namespace}/{agent_service(values)}",
        *agent_access.arguments(values),
        f"--store-directory={SAMPLES}",
        f"--store-directory-size-limit={values.spec.metrics_api.store_size}",
        *store_bounds(values.spec.metrics_api.max_series),
        f"--remote-write-config={REMOTE_WRITE}",
        # Each replica sends all samples; the labels distinguish the copies.
        "--remote-write-label=replica=$(POD_NAME)",
        *([f"--agent-pages={agent.AZURE_PAGE}"] if values.spec.agent.azure_metrics else ()),
        *_prometheus_rules(values),
        *pod_scraping(values),
        *_pushes(values),
        *_sharing(values),
    ]


def store_bounds(max_series: int | None) -> list[str]:
    """Return the bounds of the store for which the memory limit has room; the program's own without one."""
    if max_series is None:
        return []
    return [
        f"--store-max-series={max_series}",
        f"--store-max-samples={SAMPLES_PER_SERIES * max_series}",
    ]


def _sharing(values: Values) -> list[str]:
    if not values.spec.shares_agents:
        return []
    return [
        f"--peers-service={values.spec.namespace}/{part_name(values, PART)}",
        f"--peers-ca-file={TLS}/ca.crt",
        f"--peers-token-file={_ACCOUNT_TOKEN}",
    ]


def _prometheus_rules(values: Values) -> list[str]:
    api = values.spec.metrics_api
    recording = [f"--prometheus-rules={RULES}/{RECORDING_FILE}"]
    means = recording if values.spec.recording_rules else []
    if not api.prometheus_rules:
        return means
    files = {_ALERTMANAGER_CA: "ca-file={}/ca.crt", _ALERTMANAGER_TOKEN: "token-file={}/token"}
    return [
        *means,
        f"--prometheus-rules={RULES}/{PROMETHEUS_RULE_FILE}",
        *([f"--alertmanager={','.join(api.alertmanagers)}"] if api.alertmanagers else ()),
        *(
            f"--alertmanager-{files[folder].format(folder)}"
            for folder, _ in alertmanager_secrets(values)
        ),
    ]


def pod_scraping(values: Values) -> list[str]:
    """Return which pods are followed beside the node agents."""
    api = values.spec.metrics_api
    annotated = f"--scrape-annotated-pods={'true' if api.scrape_pods else 'false'}"
    if not values.spec.scrapes_pods:
        return [annotated]
    return [
        annotated,
        *(f"--scrape-selected-pods={each.flag}" for each in api.scrape_selected_pods),
        # The preset has rules for model servers; the rules of the file come before it.
        "--preset=on",
        *([f"--exporter-pods={api.exporter_pods}"] if api.exporter_pods else ()),
    ]


def _pushes(values: Values) -> list[str]:
    otlp = values.spec.metrics_api.otlp
    if not otlp.enabled:
        return []
    promoted = [f"--otlp-promote={','.join(otlp.promote)}"] if otlp.promote else []
    return ["--receive-otlp", *promoted]


def alertmanager_secrets(values: Values) -> list[tuple[str, str]]:
    """Return the folders and Secrets of what goes to Alertmanagers."""
    api = values.spec.metrics_api
    found = (
        (_ALERTMANAGER_CA, api.alertmanager_ca_secret),
        (_ALERTMANAGER_TOKEN, api.alertmanager_token_secret),
    )
    return [(folder, secret) for folder, secret in found if api.alertmanagers and secret]
