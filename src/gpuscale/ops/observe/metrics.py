"""Reads a metric as the HPA controller does: same requests, same error messages.

Source: kubernetes v1.36 pkg/controller/podautoscaler/metrics/client.go; k8s.io/metrics v0.36
pkg/client/custom_metrics/versioned_client.go, pkg/client/external_metrics/client.go; k8s.io/apiserver v0.36
pkg/endpoints/handlers/responsewriters/errors.go (forbiddenMessage).
"""

from typing import NamedTuple

from gpuscale.base.errors import NotFoundError
from gpuscale.base.objects.hpa import (
    CrossVersionObjectReference,
    ExternalMetric,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
    selector_fault,
)
from gpuscale.hpa.decisions import metric_label
from gpuscale.hpa.terms import SCALING_ACTIVE, is_namespace, metric_path
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import ApiStatusError, ApiUnreachableError, KubeClient
from gpuscale.ops.doctor.checks.metrics_api import HPA_ACCOUNT
from gpuscale.ops.doctor.rights import controller_may_read, metric_attributes
from gpuscale.ops.observe.answers import Entry, conditions_of, observed_entry
from gpuscale.ops.observe.discovery import Discovery
from gpuscale.ops.observe.document import Sight
from gpuscale.ops.observe.lookup import could_not_look
from gpuscale.ops.observe.words import refusal_text
from gpuscale.server.metricsapi.wire import CUSTOM_GROUP, EXTERNAL_GROUP, RESOURCE_GROUP

_REFUSALS = (ApiStatusError, ApiUnreachableError)


class _Request(NamedTuple):
    path: str
    params: dict[str, str]
    asked: str
    """Resource with its group, and name, as the controller's client words them."""


class MetricReader:
    """Makes the HPA controller's requests to the metrics APIs.

    Args:
        client: to the API server.
        discovery: of the same API server.
    """

    def __init__(self, client: KubeClient, discovery: Discovery) -> None:
        self._client = client
        self._discovery = discovery

    async def read(self, sight: Sight, index: int, selector: str) -> Entry:
        """Return the `observed` entry of one metric of an HPA.

        Args:
            sight: of the HPA.
            index: of the metric.
            selector: of the target's pods.

        Raises:
            UnreadableError: the user may not read the metric, or the API server is gone.
        """
        spec, namespace = sight.hpa.metrics[index], sight.hpa.metadata.namespace
        if fault := selector_fault(spec):
            return {"error": fault}
        try:
            request = await self._request(spec, namespace, selector)
        except NotFoundError as error:
            return {"error": str(error)}
        except _REFUSALS as error:
            raise could_not_look(error, _place(sight, spec)) from error
        try:
            answer = await self._client.get(request.path, request.params)
        except _REFUSALS as error:
            return await self._refused(error, sight, spec, request.asked)
        allowed, _ = await controller_may_read(self._client, spec, namespace)
        if allowed is False and not _asks_as_another(sight, index):
            return {"error": forbidden_text(spec, namespace)}
        return observed_entry(spec, answer, sight.now_ms)

    async def _request(self, spec: MetricSpec, namespace: str, selector: str) -> _Request:
        match spec:
            case PodsMetric():
                base = await self._discovery.custom_path()
                asked = f"pods.{CUSTOM_GROUP} *"
                return _Request(*metric_path(spec, namespace, selector, base), asked)
            case ObjectMetric(described_object=described):
                base = await self._discovery.custom_path()
                if is_namespace(described):
                    asked = f"metrics.{CUSTOM_GROUP} {spec.name}"
                    return _Request(*metric_path(spec, namespace, selector, base), asked)
                resource = await self._described(described)
                path, params = metric_path(spec, namespace, selector, base, resource)
                return _Request(path, params, f"{resource}.{CUSTOM_GROUP} {described.name}")
            case ExternalMetric():
                asked = f"{spec.name}.{EXTERNAL_GROUP}"
                return _Request(*metric_path(spec, namespace, selector), asked)
            case _:
                return _Request(*metric_path(spec, namespace, selector), f"pods.{RESOURCE_GROUP}")

    async def _described(self, described: CrossVersionObjectReference) -> str:
        """Return the resource in the request for an Object metric."""
        try:
            return (await self._discovery.resource(described)).qualified
        except NotFoundError as error:
            group = described.api_version.rpartition("/")[0]
            kind = f"{described.kind}.{group}" if group else described.kind
            raise NotFoundError(f"unable to map kind {kind} to resource: {error}") from error

    async def _refused(
        self,
        error: ApiStatusError | ApiUnreachableError,
        sight: Sight,
        spec: MetricSpec,
        asked: str,
    ) -> Entry:
        """Return the controller's error for a refused request, if it would be refused too."""
        namespace = sight.hpa.metadata.namespace
        if error.code in (401, 403):
            allowed, _ = await controller_may_read(self._client, spec, namespace)
            if allowed is not False:
                raise could_not_look(error, _place(sight, spec)) from error
            return {"error": forbidden_text(spec, namespace)}
        if error.code is None:
            await self._check_server()
        return {"error": refusal_text(error, asked)}

    async def _check_server(self) -> None:
        """Return if the API server is up, so that only the metric failed; raise otherwise.

        Raises:
            UnreadableError: it does not.
        """
        try:
            await self._client.get("/version")
        except _REFUSALS as error:
            raise could_not_look(error, "the API server") from error


def forbidden_text(spec: MetricSpec, namespace: str) -> str:
    """Return the API server's message to a controller that may not read a metric."""
    asked = metric_attributes(spec)
    group, resource = asked["group"], asked["resource"]
    name = f' "{asked["name"]}"' if "name" in asked else ""
    whole = f"{resource}/{asked['subresource']}" if "subresource" in asked else resource
    account = ":".join(HPA_ACCOUNT)
    return (
        f'{resource}.{group}{name} is forbidden: User "system:serviceaccount:{account}" cannot '
        f'{asked["verb"]} resource "{whole}" in API group "{group}" in the namespace "{namespace}"'
    )


def _place(sight: Sight, spec: MetricSpec) -> str:
    return f"hpa/{sight.hpa.metadata.name}: {metric_label(spec)}"


def _asks_as_another(sight: Sight, index: int) -> bool:
    """Return whether the HPA's status shows that its controller may read a metric.

    It does by a value, or by an error other than that.
    """
    metrics = mapping_of(sight.body.get("status")).get("currentMetrics")
    values = metrics if isinstance(metrics, list) else []
    if index < len(values) and mapping_of(values[index]).get("type"):
        return True
    failing = (
        each
        for each in conditions_of(sight.body)
        if each.get("type") == SCALING_ACTIVE
        and text_of(each.get("reason")).startswith("FailedGet")
    )
    return any("is forbidden" not in text_of(each.get("message")) for each in failing)
