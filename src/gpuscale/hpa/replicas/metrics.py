"""One HPA metric: from the metrics API's answer to its proposed count.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (computeReplicasForMetric,
    computeStatusFor...Metric), metrics/client.go for the errors of the APIs. Their prefixes stack up
    there, and here: the condition and the metric's event show the text from inside, the event
    FailedComputeMetricsReplicas the one from outside.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gpuscale.base.errors import BugError
from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    ExternalMetric,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
    TargetType,
    selector_fault,
)
from gpuscale.hpa.kernel.numbers import wrapped64
from gpuscale.hpa.replicas.calculator import (
    MetricProposal,
    SyncContext,
    plain_metric_replicas,
    resource_replicas,
)
from gpuscale.hpa.replicas.pods import PodSample, sample_of
from gpuscale.hpa.replicas.totals import per_pod_replicas, value_replicas
from gpuscale.hpa.terms.names import label_selector_text, metric_text
from gpuscale.hpa.types import (
    ContainerUsages,
    ExternalValues,
    FetchError,
    ObjectValue,
    Observation,
    PodUsage,
    PodValues,
    UncomputableError,
)


@dataclass(frozen=True, slots=True)
class MetricFailure:
    """Why a metric proposes no count."""

    reason: str
    """Of the condition and of the metric's event."""
    text: str
    """With the prefixes up to the metric."""
    full_text: str
    """With the prefixes up to the list of metrics."""


def replicas_for_metric(
    spec: MetricSpec, observation: Observation, namespace: str, sync: SyncContext
) -> MetricProposal | MetricFailure:
    """Return a metric's proposal, or why it has none.

    Raises:
        BugError: the observation is of another kind than the metric.
    """
    match spec:
        case PodsMetric() | ObjectMetric() if fault := selector_fault(spec):
            kind = "pods" if isinstance(spec, PodsMetric) else "object"
            outside = f"failed to get {kind} metric value: {fault}"
            return MetricFailure(f"FailedGet{kind.capitalize()}Metric", fault, outside)
        case PodsMetric():
            return _attempt(
                lambda: _pods_replicas(spec, observation, sync),
                reason="FailedGetPodsMetric",
                outside="failed to get pods metric value: ",
            )
        case ObjectMetric():
            return _attempt(
                lambda: _object_replicas(spec, observation, namespace, sync),
                reason="FailedGetObjectMetric",
                outside=_object_prefix(spec),
            )
        case ExternalMetric():
            return _attempt(
                lambda: _external_replicas(spec, observation, namespace, sync),
                reason="FailedGetExternalMetric",
                outside=_external_prefix(spec),
            )
        case ResourceMetric():
            return _attempt(
                lambda: _resource_replicas(spec, "", observation, sync),
                reason="FailedGetResourceMetric",
                outside=f"failed to get {spec.name} resource metric value: ",
            )
        case ContainerResourceMetric():
            return _attempt(
                lambda: _resource_replicas(spec, spec.container, observation, sync),
                reason="FailedGetContainerResourceMetric",
                outside=f"failed to get {spec.container} container metric value: ",
            )


def _attempt(
    compute: Callable[[], MetricProposal], *, reason: str, outside: str
) -> MetricProposal | MetricFailure:
    try:
        return compute()
    except UncomputableError as error:
        return MetricFailure(reason, str(error), f"{outside}{error}")


def _pods_replicas(spec: PodsMetric, observation: Observation, sync: SyncContext) -> MetricProposal:
    prefix = f"unable to get metric {spec.name}: "
    _raise_fetch_error(observation, prefix, "custom")
    if not isinstance(observation, PodValues):
        raise _mismatch(spec, observation)
    if not observation.samples:
        raise UncomputableError(f"{prefix}no metrics returned from custom metrics API")
    if spec.target.average_value is None:
        raise UncomputableError("invalid pods metric source: no average value target was set")
    samples = {each.object_name: sample_of(each, each.value_milli) for each in observation.samples}
    target_milli = wrapped64(spec.target.average_value.milli_value())
    return plain_metric_replicas(samples, target_milli, "", sync)


def _object_replicas(
    spec: ObjectMetric, observation: Observation, namespace: str, sync: SyncContext
) -> MetricProposal:
    target = spec.target
    if target.type is TargetType.VALUE and target.value is not None:
        usage_milli = _object_usage(spec, observation, namespace, sync)
        return value_replicas(usage_milli, wrapped64(target.value.milli_value()), sync)
    if target.type is TargetType.AVERAGE_VALUE and target.average_value is not None:
        usage_milli = _object_usage(spec, observation, namespace, sync)
        return per_pod_replicas(
            usage_milli, wrapped64(target.average_value.milli_value()), sync, is_external=False
        )
    raise UncomputableError(
        "invalid object metric source: neither a value target nor an average value target was set"
    )


def _object_usage(
    spec: ObjectMetric, observation: Observation, namespace: str, sync: SyncContext
) -> int:
    if isinstance(observation, FetchError):
        described, error = spec.described_object, _fetch_error_text(observation, "custom")
        if sync.settings.is_reworded:
            where = f" on {described.kind} {namespace}/{described.name}: {error}"
        else:
            # Up to 1.36, the arguments of the format string were in the wrong order.
            where = f": {described.kind} on {namespace} {described.name}/{error}"
        raise UncomputableError(f"unable to get metric {spec.name}{where}")
    if not isinstance(observation, ObjectValue):
        raise _mismatch(spec, observation)
    return observation.value_milli


def _object_prefix(spec: ObjectMetric) -> str:
    target = spec.target
    if target.type is TargetType.AVERAGE_VALUE and target.average_value is not None:
        return f"failed to get object metric value: failed to get {spec.name} object metric: "
    return "failed to get object metric value: "


def _external_replicas(
    spec: ExternalMetric, observation: Observation, namespace: str, sync: SyncContext
) -> MetricProposal:
    target = spec.target
    if target.average_value is not None:
        values_milli = _external_values(spec, observation, namespace)
        total = sync.kernel.external_total(sync.kernel.column([*values_milli]), 1)
        return per_pod_replicas(
            total, wrapped64(target.average_value.milli_value()), sync, is_external=True
        )
    if target.value is not None:
        values_milli = _external_values(spec, observation, namespace)
        total = sync.kernel.external_total(sync.kernel.column([*values_milli]), 0)
        return value_replicas(total, wrapped64(target.value.milli_value()), sync)
    raise UncomputableError(
        "invalid external metric source: neither a value target nor an average value target was set"
    )


def _external_values(
    spec: ExternalMetric, observation: Observation, namespace: str
) -> tuple[int, ...]:
    if fault := selector_fault(spec):
        raise UncomputableError(fault)
    selector = label_selector_text(spec.selector)
    prefix = f"unable to get external metric {namespace}/{spec.name}/{selector}: "
    _raise_fetch_error(observation, prefix, "external")
    if not isinstance(observation, ExternalValues):
        raise _mismatch(spec, observation)
    if not observation.values_milli:
        raise UncomputableError(f"{prefix}no metrics returned from external metrics API")
    return observation.values_milli


def _external_prefix(spec: ExternalMetric) -> str:
    outside = f"failed to get {spec.name} external metric value: "
    if spec.target.average_value is not None:
        return f"{outside}failed to get {spec.name} external metric: "
    if spec.target.value is not None:
        return f"{outside}failed to get external metric {spec.name}: "
    return outside


def _resource_replicas(
    spec: ResourceMetric | ContainerResourceMetric,
    container: str,
    observation: Observation,
    sync: SyncContext,
) -> MetricProposal:
    target = spec.target
    if target.average_value is not None:
        with_prefix = f"failed to get {spec.name} usage: "
        target_milli = wrapped64(target.average_value.milli_value())
        return _prefixed(
            with_prefix,
            lambda: plain_metric_replicas(
                _usage_samples(spec, container, observation), target_milli, spec.name, sync
            ),
        )
    if target.average_utilization is None:
        raise UncomputableError(
            "invalid resource metric source: neither an average utilization target nor "
            "an average value (usage) target was set"
        )
    percent = target.average_utilization
    return _prefixed(
        f"failed to get {spec.name} utilization: ",
        lambda: resource_replicas(
            _usage_samples(spec, container, observation), percent, spec.name, container, sync
        ),
    )


def _prefixed(prefix: str, compute: Callable[[], MetricProposal]) -> MetricProposal:
    try:
        return compute()
    except UncomputableError as error:
        raise UncomputableError(f"{prefix}{error}") from None


def _usage_samples(
    spec: ResourceMetric | ContainerResourceMetric, container: str, observation: Observation
) -> dict[str, PodSample]:
    prefix = f"unable to get metrics for resource {spec.name}: "
    _raise_fetch_error(observation, prefix, "resource")
    if not isinstance(observation, ContainerUsages):
        raise _mismatch(spec, observation)
    if not observation.samples:
        raise UncomputableError(f"{prefix}no metrics returned from resource metrics API")
    usages = ((usage, _usage_milli(usage, container)) for usage in observation.samples)
    return {u.pod: sample_of(u, milli) for u, milli in usages if milli is not None}


def _usage_milli(usage: PodUsage, container: str) -> int | None:
    """Return the usage of one container or all; None if a relevant one reports none."""
    if container:
        return usage.containers.get(container)
    values = [value for value in usage.containers.values() if value is not None]
    return wrapped64(sum(values)) if values and len(values) == len(usage.containers) else None


def _raise_fetch_error(observation: Observation, prefix: str, api: str) -> None:
    if isinstance(observation, FetchError):
        raise UncomputableError(f"{prefix}{_fetch_error_text(observation, api)}")


def _fetch_error_text(error: FetchError, api: str) -> str:
    return f"unable to fetch metrics from {api} metrics API: {error.text}"


def _mismatch(spec: MetricSpec, observation: Observation) -> BugError:
    return BugError(f"{metric_text(spec)} was answered with {type(observation).__name__}")
