"""Signals of queues: waiting messages in RabbitMQ, Kafka and SQS, through their exporters.

Sources, where each name and label was read:
    RabbitMQ 4.2 deps/rabbitmq_prometheus/metrics.md; `detailed` is the endpoint for single queues.
    kafka_exporter v1.9 kafka_exporter.go: a lag below 0 is a group that reads ahead of a stale offset.
    yet-another-cloudwatch-exporter v0.67 pkg/promutil/migrate.go (BuildMetricName, dimension labels); the
        other spelling is that of prometheus/cloudwatch_exporter.
"""

from gpuscale.signals.signal import Signal, SignalFamily

RABBITMQ = SignalFamily(
    "rabbitmq",
    "RabbitMQ",
    "4.2",
    needs="Prometheus scrapes /metrics/per-object or /metrics/detailed, port 15692",
    names="the queue",
)
KAFKA = SignalFamily(
    "kafka", "Kafka", "kafka_exporter v1.9", needs="kafka_exporter", names="the consumer group"
)
SQS = SignalFamily(
    "sqs",
    "Amazon SQS",
    "yet-another-cloudwatch-exporter v0.67",
    needs="a CloudWatch exporter with ApproximateNumberOfMessagesVisible; CloudWatch is a minute late",
    names="the queue",
)
_WHY = "as many messages as one pod works off while another starts"
_VISIBLE = "aws_sqs_approximate_number_of_messages_visible"


def _queue(family: SignalFamily, metric: str, series: str, query: str, what: str) -> Signal:
    return Signal(
        metric,
        series,
        "messages",
        10,
        "sum",
        family=family,
        kind="external",
        query=query,
        is_there_at_zero=True,
        is_queue=True,
        what=what,
        why=_WHY,
    )


QUEUE_SIGNALS = {
    "rabbitmq-ready": _queue(
        RABBITMQ,
        "rabbitmq_messages_ready",
        "rabbitmq_queue_messages_ready",
        'sum(rabbitmq_queue_messages_ready{queue="$name"})'
        ' or sum(rabbitmq_detailed_queue_messages_ready{queue="$name"})',
        "messages that wait for a consumer",
    ),
    "rabbitmq-messages": _queue(
        RABBITMQ,
        "rabbitmq_messages",
        "rabbitmq_queue_messages",
        'sum(rabbitmq_queue_messages{queue="$name"})'
        ' or sum(rabbitmq_detailed_queue_messages{queue="$name"})',
        "messages that wait or are being worked on",
    ),
    "kafka-lag": _queue(
        KAFKA,
        "kafka_consumergroup_lag",
        "kafka_consumergroup_lag",
        'sum(clamp_min(kafka_consumergroup_lag{consumergroup="$name"}, 0))',
        "messages that a consumer group lags behind; more pods than partitions do nothing",
    ),
    "sqs-visible": _queue(
        SQS,
        "sqs_messages_visible",
        f"{_VISIBLE}_maximum",
        " or ".join(
            f'max({_VISIBLE}_{statistic}{{{label}="$name"}})'
            for statistic in ("maximum", "average")
            for label in ("dimension_QueueName", "queue_name")
        ),
        "messages that wait for a consumer",
    ),
}
