"""Wake sources by name: the load of a workload without pods, from well-known projects' metrics.

A preset is one entry. Its query has one number as its answer, and 0 only where the project was scraped and
has nothing to say: a counter or gauge with labels does not exist before its first request, so most queries
fall back to 0 times a series that is always there. Without that series nothing is known, which is not 0.

Sources, where each metric's name and labels were read:
    llm-d-queue, inference-pool: llm-d-router v0.10 pkg/epp/metrics (llm_d_router_metrics.go, metrics.go),
        pkg/epp/datalayer/logger (ready endpoints are recorded at 0 pods too).
    http-add-on: KEDA HTTP add-on v0.15 interceptor/metrics/instruments.go.
    envoy, istio: Envoy's cluster statistics (docs, upstream/cluster_manager/cluster_stats), Istio 1.30's
        standard metrics (istio_requests_total and its labels).
    nginx: ingress-nginx v1.15 internal/ingress/metric/collectors/socket.go.
    rabbitmq: RabbitMQ 4.2 deps/rabbitmq_prometheus/metrics.md.
    kafka: kafka_exporter v1.9 kafka_exporter.go.
    sqs: as the signal sqs-visible.
    traefik: Traefik v3.7 pkg/observability/metrics/prometheus.go.
    vllm-router: vLLM production stack 0.1.12 src/vllm_router/services/metrics_service.
"""

from dataclasses import dataclass

from gpuscale.signals import SIGNALS, filled_in
from gpuscale.triggers.trigger import WakeQuery


@dataclass(frozen=True, slots=True)
class Preset:
    """A wake source of a known project."""

    name: str
    query: str
    """PromQL with `$name`, the object, and `$namespace`, the trigger's, to be filled in."""
    names: str
    """What `wakeName` is the name of."""
    what: str
    """What the workload is woken by, for people."""


def _came_in(requests: str, always_there: str) -> str:
    """Return a query for the number of requests within a minute.

    A series that is younger than the minute counts with all it has: `increase` misses the request it began
    with, which is the one that has to wake the workload.
    """
    grown = f"sum(increase({requests}[1m]))"
    born = f"sum({requests} unless {requests} offset 1m)"
    return f"({grown} + {born}) or {grown} or {born} or 0 * count({requests}) or 0 * {always_there}"


_PRESETS = (
    Preset(
        "llm-d-queue",
        'sum(llm_d_epp_flow_control_queue_size{inference_pool="$name"})'
        ' or 0 * max(llm_d_epp_ready_endpoints{name="$name"})',
        "the InferencePool",
        "requests that llm-d's endpoint picker holds in its flow control queue",
    ),
    Preset(
        "inference-pool",
        'sum(inference_extension_flow_control_queue_size{inference_pool="$name"})'
        ' or 0 * max(inference_pool_ready_pods{name="$name"})',
        "the InferencePool",
        "requests that the endpoint picker of the Gateway API inference extension holds in its queue",
    ),
    Preset(
        "http-add-on",
        'sum(interceptor_request_concurrency{route_name="$name",route_namespace="$namespace"})'
        " or 0 * count(interceptor_request_concurrency)",
        "the InterceptorRoute",
        "requests that the interceptor of KEDA's HTTP add-on holds",
    ),
    Preset(
        "istio",
        _came_in(
            'istio_requests_total{reporter="source",destination_service_name="$name",'
            'destination_service_namespace="$namespace"}',
            "count(istio_requests_total)",
        ),
        "the Service",
        "requests that came to a gateway or sidecar of Istio within a minute, answered or refused",
    ),
    Preset(
        "envoy",
        _came_in(
            'envoy_cluster_upstream_cx_none_healthy{envoy_cluster_name="$name"}',
            'sum(envoy_cluster_upstream_rq_pending_active{envoy_cluster_name="$name"})',
        )
        + ' or sum(envoy_cluster_upstream_rq_pending_active{envoy_cluster_name="$name"})',
        "the cluster of Envoy",
        "requests that Envoy refused within a minute for want of a healthy host",
    ),
    Preset(
        "nginx",
        _came_in(
            'nginx_ingress_controller_requests{ingress="$name"}',
            "count(nginx_ingress_controller_build_info)",
        ),
        "the Ingress",
        "requests that came to ingress-nginx within a minute, answered or refused",
    ),
    Preset(
        "rabbitmq",
        'sum(rabbitmq_queue_messages_ready{queue="$name"})'
        ' or sum(rabbitmq_detailed_queue_messages_ready{queue="$name"})',
        "the queue",
        "messages that are ready in a queue of RabbitMQ",
    ),
    Preset(
        "kafka",
        'sum(clamp_min(kafka_consumergroup_lag{consumergroup="$name"}, 0))',
        "the consumer group",
        "messages that a consumer group of Kafka lags behind",
    ),
    Preset(
        "sqs",
        SIGNALS["sqs-visible"].query,
        "the queue",
        "messages that are visible in a queue of Amazon SQS",
    ),
    Preset(
        "traefik",
        _came_in(
            'traefik_service_requests_total{service="$name"}', "count(traefik_config_reloads_total)"
        ),
        "the service of Traefik",
        "requests that came to Traefik within a minute, answered or refused",
    ),
    Preset(
        "vllm-router",
        _came_in(
            'vllm:num_incoming_requests_total{model="$name"}', "count(vllm:healthy_pods_total)"
        ),
        "the model",
        "requests that came to the router of the vLLM production stack within a minute",
    ),
)
PRESETS = {preset.name: preset for preset in _PRESETS}


def wake_query(preset: Preset, name: str, namespace: str, threshold: float) -> WakeQuery:
    """Return the wake source of an object; its name is written as PromQL has it."""
    return WakeQuery(filled_in(preset.query, name, namespace), threshold, preset.name)
