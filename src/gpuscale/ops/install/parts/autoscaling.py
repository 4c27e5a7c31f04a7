"""What scales: a HorizontalPodAutoscaler of any version, or KEDA's ScaledObject; and KEDA's ScaledJobs."""

from collections.abc import Mapping, Sequence

from gpuscale.ops.install.common import SCALER, Object, metadata, part_name
from gpuscale.ops.install.parts import prometheus
from gpuscale.ops.install.parts.model_servers import POD_SUFFIX
from gpuscale.ops.install.scale.azure_monitor import AzureMonitorMetric
from gpuscale.ops.install.scale.jobs import ScaledJob
from gpuscale.ops.install.scale.keda import asks_azure, asks_prometheus
from gpuscale.ops.install.scale.manifest import quantity, resource_trigger
from gpuscale.ops.install.scale.metrics import (
    CombinedMetric,
    ContainerResourceMetric,
    MetricEntry,
    QueryMetric,
    ResourceMetric,
    SignalMetric,
    as_written,
)
from gpuscale.ops.install.scale.scale import Scale, autoscaler_name
from gpuscale.ops.install.scale.wake import served_entries
from gpuscale.ops.install.values import Values
from gpuscale.signals import Signal, pod_labels, value_by

PART = "autoscaler"
KEDA = "keda.sh/v1alpha1"
_RESOURCES = ("cpu", "memory")
_AZURE = "azure"


def autoscaling_objects(values: Values) -> list[Object]:
    """Return an object for each workload and for each kind of Jobs, and how KEDA trusts the scaler."""
    scalers = [autoscaler(values, scale) for scale in values.spec.scale]
    return [
        *_azure_authentications(values),
        *_authentications(values),
        *scalers,
        *_scaled_jobs(values),
    ]


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
    namespace = scale.workload.namespace
    return metadata(values, PART, name=autoscaler_name(scale), namespace=namespace)


def _scaled_object(values: Values, scale: Scale) -> Object:
    triggers = _triggers(values, scale)
    return {
        "apiVersion": KEDA,
        "kind": "ScaledObject",
        "metadata": _metadata(values, scale),
        "spec": {
            "scaleTargetRef": scale.target_reference,
            "minReplicaCount": scale.min_replicas,
            "maxReplicaCount": scale.max_replicas,
            # Above zero the HPA asks, and these would do nothing.
            **(_of_zero(values) if scale.min_replicas == 0 else {}),
            **_fallback(values, scale, triggers),
            "advanced": {
                # Removed while there are no pods, it brings back those that there were before it.
                **({"restoreToOriginalReplicaCount": True} if scale.min_replicas == 0 else {}),
                "horizontalPodAutoscalerConfig": {"behavior": scale.whole_behavior},
            },
            "triggers": triggers,
        },
    }


def _of_zero(values: Values) -> Object:
    keda = values.spec.keda
    return {
        "pollingInterval": keda.polling_interval_seconds,
        "cooldownPeriod": keda.cooldown_period_seconds,
        # Without it, KEDA stops a workload that was never active as soon as it sees it.
        "initialCooldownPeriod": keda.cooldown_period_seconds,
    }


def _fallback(values: Values, scale: Scale, triggers: Sequence[Object]) -> Object:
    """Return what holds while a trigger fails: the pods that there are, and never none."""
    if all(each["type"] in _RESOURCES for each in triggers):
        return {}  # KEDA refuses one then.
    wake = scale.wake
    stated = 1 if wake is None else wake.fallback_replicas or wake.replicas
    return {
        "fallback": {
            "failureThreshold": values.spec.keda.failure_threshold,
            "replicas": min(scale.max_replicas, max(1, scale.min_replicas, stated)),
            "behavior": "currentReplicasIfHigher",
        }
    }


def _triggers(values: Values, scale: Scale) -> list[Object]:
    """Return the triggers in the order of the metrics."""
    if values.spec.keda.trigger == "prometheus":
        return [_trigger(values, scale, each) for each in scale.entries]
    keys = {
        id(e): k for e, k in zip(served_entries(scale.entries), scale.trigger_keys, strict=True)
    }
    return [
        _scaler_trigger(values, scale, keys[id(each)])
        if id(each) in keys
        else _trigger(values, scale, each)
        for each in scale.entries
    ]


def _scaler_trigger(values: Values, scale: Scale, keys: Mapping[str, str]) -> Object:
    """Return a trigger that the scaler answers, and that it pushes to where the workload has to wake."""
    if scale.min_replicas > 0:
        return _asking(values, keys)
    polling = {"pollingInterval": f"{values.spec.keda.polling_interval_seconds}s"}
    # A push brings the first pod at once; above zero there is nothing to push.
    return {**_asking(values, {**keys, **polling}), "type": "external-push"}


def _asking(values: Values, keys: Mapping[str, str]) -> Object:
    """Return a trigger with which KEDA asks the scaler."""
    spec = values.spec
    address = f"{part_name(values, SCALER)}.{spec.namespace}.svc:{spec.scaler.port}"
    trigger: Object = {
        "type": "external",
        "metricType": "AverageValue",
        "metadata": {"scalerAddress": address, **keys},
    }
    if spec.keda.tls_secret is not None:
        trigger["authenticationRef"] = {"name": part_name(values, SCALER)}
    return trigger


def _authentications(values: Values) -> list[Object]:
    """Return how KEDA trusts the scaler, in each namespace that it scales something in."""
    spec = values.spec
    if spec.keda.tls_secret is None or not spec.asks_scaler:
        return []
    parameters = {"caCert": "ca.crt"}
    if spec.scaler.client_certificates:
        parameters |= {"tlsClientCert": "tls.crt", "tlsClientKey": "tls.key"}
    secrets = [
        {"parameter": parameter, "name": spec.keda.tls_secret, "key": key}
        for parameter, key in parameters.items()
    ]
    asks = spec.keda.trigger == "scaler"
    scaled = [each for each in spec.scale if each.autoscaler == "keda" and each.trigger_keys]
    places = [
        *(each.workload.namespace for each in scaled if asks),
        *(j.namespace for j in spec.jobs),
    ]
    return [
        {
            "apiVersion": KEDA,
            "kind": "TriggerAuthentication",
            "metadata": metadata(values, PART, name=part_name(values, SCALER), namespace=namespace),
            "spec": {"secretTargetRef": secrets},
        }
        for namespace in dict.fromkeys(places)
    ]


def _azure_authentications(values: Values) -> list[Object]:
    """Return who KEDA is to Azure, in each namespace that it scales something in."""
    identity = values.spec.keda_identity
    if identity is None:
        return []
    keda = values.spec.keda
    scaled = [each for each in values.spec.scale if asks_azure(each) or asks_prometheus(each, keda)]
    name = part_name(values, _AZURE)
    return [
        {
            "apiVersion": KEDA,
            "kind": "TriggerAuthentication",
            "metadata": metadata(values, PART, name=name, namespace=namespace),
            "spec": {"podIdentity": {"provider": "azure-workload", "identityId": identity}},
        }
        for namespace in dict.fromkeys(each.workload.namespace for each in scaled)
    ]


def _scaled_jobs(values: Values) -> list[Object]:
    return [
        {
            "apiVersion": KEDA,
            "kind": "ScaledJob",
            "metadata": metadata(values, PART, name=each.name, namespace=each.namespace),
            "spec": _job_spec(values, each),
        }
        for each in values.spec.jobs
    ]


def _job_spec(values: Values, job: ScaledJob) -> Object:
    if job.job is None:
        raise ValueError(f"found jobFile {job.job_file} of {job.name} unread, expected its Job")
    strategy = as_written(job.scaling_strategy)
    polling = job.polling_interval_seconds or values.spec.keda.polling_interval_seconds
    return {
        "jobTargetRef": job.job,
        "pollingInterval": polling,
        "minReplicaCount": job.min_replicas,
        "maxReplicaCount": job.max_replicas,
        "successfulJobsHistoryLimit": job.successful_jobs_history_limit,
        "failedJobsHistoryLimit": job.failed_jobs_history_limit,
        # By default KEDA removes the Jobs that run whenever the ScaledJob changes.
        "rollout": {"strategy": job.rollout},
        **({"scalingStrategy": strategy} if strategy else {}),
        # KEDA opens no stream for a ScaledJob, so nothing is pushed.
        "triggers": [_asking(values, keys) for keys in job.trigger_keys],
    }


def _trigger(values: Values, scale: Scale, metric: MetricEntry) -> Object:
    if isinstance(metric, ResourceMetric | ContainerResourceMetric):
        return resource_trigger(metric)
    if isinstance(metric, QueryMetric):
        return _query_trigger(values, metric.query, metric.target, metric.target_type)
    if isinstance(metric, AzureMonitorMetric):
        return metric.trigger(part_name(values, _AZURE))
    if not isinstance(metric, SignalMetric):
        what = metric.combined if isinstance(metric, CombinedMetric) else metric.type
        raise ValueError(f"found a metric of type {what}, which KEDA has no trigger for")
    if metric.source.kind != "pods":
        total = metric.query_in(scale.workload.namespace)
        return _query_trigger(values, total, metric.target, "AverageValue")
    # A mean does not grow with the pods. KEDA's default, AverageValue, divides it by the target and so
    # asks for two pods at most for a mean in percent and a target of 50; Value multiplies by the pods.
    query = keda_query(values, scale, metric.source)
    return _query_trigger(values, query, metric.target, "Value")


def _query_trigger(values: Values, query: str, target: float, kind: str) -> Object:
    is_azure = values.spec.keda_identity is not None
    return {
        **({"authenticationRef": {"name": part_name(values, _AZURE)}} if is_azure else {}),
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
    suffix = POD_SUFFIX[scale.workload.kind]
    name = scale.workload.name.replace(".", "[.]")
    matchers = f'{namespace}="{scale.workload.namespace}",{pod}=~"{name}{suffix}"'
    if not signal.is_of_gpus:
        return f"avg({value_by(signal, matchers, pod)})"
    return f"avg({_per_pod(signal, f'{{{matchers}}}', pod)})"


def _per_pod(signal: Signal, matchers: str, pod: str) -> str:
    value = f"{signal.aggregate} by ({pod}) ({signal.series}{matchers})"
    if signal.divisor is None:
        return value
    return f"{value} / sum by ({pod}) ({signal.divisor}{matchers})"
