"""What scales the workloads: a HorizontalPodAutoscaler of any version, or KEDA's ScaledObject."""

from gpuscale.install.common import Object, metadata
from gpuscale.install.parts import prometheus
from gpuscale.install.parts.rules import MEAN
from gpuscale.install.signals import SIGNALS, Signal, pod_labels
from gpuscale.install.values import Scale, Values

PART = "autoscaler"
KEDA = "keda.sh/v1alpha1"
_POD_SUFFIX = {"Deployment": "-[a-z0-9]{1,10}-[a-z0-9]{5}", "StatefulSet": "-[0-9]+"}


def autoscaling_objects(values: Values) -> list[Object]:
    """Return one object for each workload that is scaled."""
    return [autoscaler(values, scale) for scale in values.spec.scale]


def autoscaler(values: Values, scale: Scale) -> Object:
    """Return what scales one workload."""
    return _scaled_object(values, scale) if scale.autoscaler == "keda" else _hpa(values, scale)


def _metadata(values: Values, scale: Scale) -> Object:
    workload = scale.workload
    return metadata(values, PART, name=f"{workload.name}-gpu", namespace=workload.namespace)


def quantity(number: float) -> str:
    """Return a number as a quantity, with up to three decimals and no exponent."""
    return f"{number:.3f}".rstrip("0").rstrip(".")


def _hpa(values: Values, scale: Scale) -> Object:
    reference = {"apiVersion": "apps/v1", "kind": scale.workload.kind, "name": scale.workload.name}
    spec: Object = {
        "scaleTargetRef": reference,
        "minReplicas": scale.min_replicas,
        "maxReplicas": scale.max_replicas,
        "metrics": [_metric(scale, reference)],
    }
    if scale.hpa_version != "autoscaling/v2beta1":
        spec["behavior"] = {"scaleDown": _stabilization(scale)}
    return {
        "apiVersion": scale.hpa_version,
        "kind": "HorizontalPodAutoscaler",
        "metadata": _metadata(values, scale),
        "spec": spec,
    }


def _metric(scale: Scale, reference: Object) -> Object:
    target = quantity(scale.target)
    if scale.metric == "object":
        return _object_metric(scale, reference, target)
    name = SIGNALS[scale.signal].metric
    if scale.hpa_version == "autoscaling/v2beta1":
        return {"type": "Pods", "pods": {"metricName": name, "targetAverageValue": target}}
    average = {"type": "AverageValue", "averageValue": target}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": average}}


def _object_metric(scale: Scale, reference: Object, target: str) -> Object:
    if scale.hpa_version == "autoscaling/v2beta1":
        old = {"metricName": MEAN, "target": reference, "targetValue": target}
        return {"type": "Object", "object": old}
    wanted = {
        "metric": {"name": MEAN},
        "describedObject": reference,
        "target": {"type": "Value", "value": target},
    }
    return {"type": "Object", "object": wanted}


def _scaled_object(values: Values, scale: Scale) -> Object:
    trigger = {
        "type": "prometheus",
        # A mean does not grow with the pods. KEDA's default, AverageValue, divides it by the target and so
        # asks for two pods at most for a mean in percent and a target of 50; Value multiplies by the pods.
        "metricType": "Value",
        "metadata": {
            "serverAddress": prometheus.address(values),
            "query": keda_query(values, scale),
            "threshold": quantity(scale.target),
            # An empty answer is "not known", not "no load", which would scale in.
            "ignoreNullValues": "false",
        },
    }
    return {
        "apiVersion": KEDA,
        "kind": "ScaledObject",
        "metadata": _metadata(values, scale),
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": scale.workload.kind,
                "name": scale.workload.name,
            },
            "minReplicaCount": scale.min_replicas,
            "maxReplicaCount": scale.max_replicas,
            "pollingInterval": 15,
            "advanced": {
                "horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": _stabilization(scale)}}
            },
            "triggers": [trigger],
        },
    }


def _stabilization(scale: Scale) -> Object:
    return {"stabilizationWindowSeconds": scale.scale_down_stabilization_seconds}


def keda_query(values: Values, scale: Scale) -> str:
    """Return the PromQL of the mean over a workload's pods; one element, or none without readings."""
    signal = SIGNALS[scale.signal]
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
