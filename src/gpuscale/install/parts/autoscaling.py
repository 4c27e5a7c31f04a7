"""What scales the workloads: a HorizontalPodAutoscaler of any version, or KEDA's ScaledObject."""

from gpuscale.formats.signals import SIGNALS, Signal, pod_labels
from gpuscale.install.common import Object, metadata
from gpuscale.install.parts import prometheus
from gpuscale.install.scale.manifest import quantity, resource_trigger
from gpuscale.install.scale.metrics import (
    ContainerResourceMetric,
    MetricEntry,
    QueryMetric,
    ResourceMetric,
    SignalMetric,
)
from gpuscale.install.scale.scale import Scale
from gpuscale.install.values import Values

PART = "autoscaler"
KEDA = "keda.sh/v1alpha1"
_POD_SUFFIX = {"Deployment": "-[a-z0-9]{1,10}-[a-z0-9]{5}", "StatefulSet": "-[0-9]+"}


def autoscaling_objects(values: Values) -> list[Object]:
    """Return one object for each workload that is scaled."""
    return [autoscaler(values, scale) for scale in values.spec.scale]


def autoscaler(values: Values, scale: Scale) -> Object:
    """Return what scales one workload."""
    if scale.autoscaler == "keda":
        return _scaled_object(values, scale)
    return {
        "apiVersion": scale.hpa_version,
        "kind": "HorizontalPodAutoscaler",
        "metadata": _metadata(values, scale),
        "spec": scale.hpa_spec,
    }


def _metadata(values: Values, scale: Scale) -> Object:
    workload = scale.workload
    return metadata(values, PART, name=f"{workload.name}-gpu", namespace=workload.namespace)


def _scaled_object(values: Values, scale: Scale) -> Object:
    return {
        "apiVersion": KEDA,
        "kind": "ScaledObject",
        "metadata": _metadata(values, scale),
        "spec": {
            "scaleTargetRef": scale.target_reference,
            "minReplicaCount": scale.min_replicas,
            "maxReplicaCount": scale.max_replicas,
            # Above zero the HPA asks, and KEDA's own polls would scale nothing.
            **({"pollingInterval": 15} if scale.min_replicas == 0 else {}),
            "advanced": {"horizontalPodAutoscalerConfig": {"behavior": scale.whole_behavior}},
            "triggers": [_trigger(values, scale, each) for each in scale.entries],
        },
    }


def _trigger(values: Values, scale: Scale, metric: MetricEntry) -> Object:
    if isinstance(metric, ResourceMetric | ContainerResourceMetric):
        return resource_trigger(metric)
    if isinstance(metric, QueryMetric):
        return _query_trigger(values, metric.query, metric.target, metric.target_type)
    if not isinstance(metric, SignalMetric):
        raise ValueError(f"found a metric of type {metric.type}, which KEDA has no trigger for")
    # A mean does not grow with the pods. KEDA's default, AverageValue, divides it by the target and so
    # asks for two pods at most for a mean in percent and a target of 50; Value multiplies by the pods.
    query = keda_query(values, scale, SIGNALS[metric.signal])
    return _query_trigger(values, query, metric.target, "Value")


def _query_trigger(values: Values, query: str, target: float, kind: str) -> Object:
    return {
        "type": "prometheus",
        "metricType": kind,
        "metadata": {
            "serverAddress": prometheus.address(values),
            "query": query,
            "threshold": quantity(target),
            # An empty answer is "not known", not "no load", which would scale in.
            "ignoreNullValues": "false",
        },
    }


def keda_query(values: Values, scale: Scale, signal: Signal) -> str:
    """Return the PromQL of the mean over a workload's pods; one element, or none without readings."""
    namespace, pod = pod_labels(signal, honor_labels=values.spec.prometheus.honor_labels)
    suffix = _POD_SUFFIX[scale.workload.kind]
    name = scale.workload.name.replace(".", "[.]")
    matchers = f'{{{namespace}="{scale.workload.namespace}",{pod}=~"{name}{suffix}"}}'
    return f"avg({_per_pod(signal, matchers, pod)})"


def _per_pod(signal: Signal, matchers: str, pod: str) -> str:
    value = f"{signal.aggregate} by ({pod}) ({signal.series}{matchers})"
    if signal.divisor is None:
        return value
    return f"{value} / sum by ({pod}) ({signal.divisor}{matchers})"
