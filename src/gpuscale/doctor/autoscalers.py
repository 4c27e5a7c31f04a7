"""Each HPA with what it scales, the values it gets, and whether its controller may ask.

Source: kubernetes v1.36 pkg/controller/podautoscaler/metrics/client.go (requests); how a path becomes the
    attributes of an access review: k8s.io/apiserver pkg/endpoints/request/requestinfo.go.
"""

from collections.abc import Mapping
from typing import Any

from gpuscale.core.errors import ConfigError, GpuscaleError
from gpuscale.doctor import facts
from gpuscale.doctor.checks.metrics_api import HPA_ACCOUNT, group_of
from gpuscale.doctor.direct import at_once
from gpuscale.doctor.snapshot import HpaLook, MetricLook, Snapshot
from gpuscale.hpa.queries import metric_command, metric_path, scale_path
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.errors import ApiStatusError
from gpuscale.metricsapi.why.page import PARAMETER
from gpuscale.metricsapi.wire.paths import CUSTOM_GROUP, RESOURCE_GROUP
from gpuscale.objects.hpa import (
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricSpec,
    ObjectMetric,
)
from gpuscale.objects.manifests import read_stored_hpa
from gpuscale.objects.metric_values import (
    ExternalValue,
    MetricValue,
    items_of,
    read_external_values,
    read_object_value,
    read_pod_values,
)

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_NOT_FOUND = 404


def custom_path(seen: Snapshot) -> str:
    """Return the path of the newest custom metrics API that is registered."""
    names = {facts.name(body) for body in seen.all("apiservices")}
    newest = f"v1beta2.{CUSTOM_GROUP}" in names
    return f"/apis/{CUSTOM_GROUP}/{'v1beta2' if newest else 'v1beta1'}"


class HpaReader:
    """Reads HPAs and asks what their controller asks.

    Args:
        client: to the API server.
        custom: path of the version of the custom metrics API to ask.
        namespace: whose HPAs are read; None for all.
    """

    def __init__(self, client: KubeClient, custom: str, namespace: str | None) -> None:
        self._client = client
        self._custom = custom
        self._namespace = namespace

    async def read(self, seen: Snapshot) -> tuple[HpaLook, ...]:
        """Return each HPA; one that can't be read is left out."""
        read = ((_hpa(item), item) for item in seen.looks["hpas"].items)
        return await at_once(
            self._look(hpa, item)
            for hpa, item in read
            if hpa is not None and self._namespace in (None, hpa.metadata.namespace)
        )

    async def _look(self, hpa: HorizontalPodAutoscaler, item: Mapping[str, Any]) -> HpaLook:
        body = {**item, "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
        selector, fault, is_absent = await self._selector(hpa)
        metrics = [await self._metric(spec, hpa, selector) for spec in hpa.metrics]
        return HpaLook(hpa, body, selector, fault, is_absent, tuple(metrics))

    async def _selector(self, hpa: HorizontalPodAutoscaler) -> tuple[str, str, bool]:
        try:
            scale = await self._client.get(scale_path(hpa.target, hpa.metadata.namespace))
        except ApiStatusError as error:
            return "", str(error), error.code == _NOT_FOUND
        except GpuscaleError as error:
            return "", str(error), False
        return str((scale.get("status") or {}).get("selector") or ""), "", False

    async def _metric(
        self, spec: MetricSpec, hpa: HorizontalPodAutoscaler, selector: str
    ) -> MetricLook:
        namespace = hpa.metadata.namespace
        command = metric_command(spec, namespace, selector)
        if group_of(spec) is None:
            return MetricLook(spec, command)
        allowed, denied_why = await controller_may_read(self._client, spec, namespace)
        path, params = metric_path(spec, namespace, selector, self._custom)
        try:
            values = _values(spec, await self._client.get(path, params))
            fault = ""
        except GpuscaleError as error:
            values, fault = (), str(error)
        explanation = None if values else await self._why(path, params)
        return MetricLook(spec, command, values, fault, explanation, allowed, denied_why)

    async def _why(self, path: str, params: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Return the explanation of who serves the metric, if that is gpuscale."""
        try:
            answer = await self._client.get(path, {**params, PARAMETER: "json"})
        except GpuscaleError:
            return None
        return answer if answer.get("kind") == "MetricExplanation" else None


async def controller_may_read(
    client: KubeClient, spec: MetricSpec, namespace: str
) -> tuple[bool | None, str]:
    """Return whether the HPA controller may read a metric, and the API server's reason.

    None where the client may not ask that.
    """
    account_namespace, account = HPA_ACCOUNT
    groups = ["serviceaccounts", f"serviceaccounts:{account_namespace}", "authenticated"]
    question = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{account_namespace}:{account}",
            "groups": [f"system:{group}" for group in groups],
            "resourceAttributes": {"namespace": namespace, **metric_attributes(spec)},
        },
    }
    try:
        status = (await client.ask(_REVIEWS, question)).get("status") or {}
    except GpuscaleError:
        return None, ""
    return status.get("allowed") is True, str(status.get("reason") or "")


def _hpa(item: Mapping[str, Any]) -> HorizontalPodAutoscaler | None:
    try:
        return read_stored_hpa(item, "the API server")
    except ConfigError:
        return None


def metric_attributes(spec: MetricSpec) -> dict[str, str]:
    """Return what an access review calls the reading of a metric."""
    group = group_of(spec)
    if group is None:
        return {"group": RESOURCE_GROUP, "version": "v1beta1", "verb": "list", "resource": "pods"}
    if group != CUSTOM_GROUP:
        return {"group": group, "version": "v1beta1", "verb": "list", "resource": spec.name}
    resource, name = "pods", "*"
    if isinstance(spec, ObjectMetric):
        kind = scale_path(spec.described_object, "-").split("/")[-3]
        resource, name = kind, spec.described_object.name
    attributes = {"resource": resource, "subresource": spec.name, "name": name}
    return {"group": group, "version": "v1beta2", "verb": "get", **attributes}


def _values(
    spec: MetricSpec, answer: Mapping[str, object]
) -> tuple[MetricValue | ExternalValue, ...]:
    """Return what the controller reads of an answer; nothing where it can't."""
    try:
        items = items_of(answer)
        match spec:
            case ExternalMetric():
                return read_external_values(items)
            case ObjectMetric():
                return (read_object_value(items),)
            case _:
                return read_pod_values(items)
    except ValueError:
        return ()
