"""The HPA controller's client of the metrics APIs: its requests, and how it reads the answers.

Errors carry the bare reason; the words that the controller puts before it are `hpa`'s.

Source: Kubernetes 1.34 pkg/controller/podautoscaler/metrics (client.go); k8s.io/metrics
pkg/client/custom_metrics (versioned_client.go) and external_metrics (client.go).
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Self, TypeVar
from urllib.parse import quote, quote_plus

import aiohttp
from yarl import URL

from gpuscale.base.errors import NotFoundError, UnavailableError, UpstreamError
from gpuscale.base.objects.hpa import CrossVersionObjectReference
from gpuscale.base.objects.metric_values import (
    ExternalValue,
    MetricValue,
    items_of,
    read_external_values,
    read_object_value,
    read_pod_values,
)
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.unreachable import reason_of
from gpuscale.server.rules.resources import KUBERNETES, ResourceMapper
from gpuscale.server.sources.http.session import HttpSession

_CUSTOM = "custom.metrics.k8s.io"
_EXTERNAL = "external.metrics.k8s.io"
_ACCEPT = "application/vnd.kubernetes.protobuf, */*"
"""What kube-controller-manager asks with; JSON comes back."""

S = TypeVar("S")
T = TypeVar("T")


class HttpMetricsClient:
    """A `hpa.controller.client.MetricsClient` over HTTP. Use it in `async with`, or `close` it.

    Args:
        base_url: where `/apis` is.
        version: of the custom metrics API; an HPA controller takes the one its cluster prefers.
        timeout_s: for a whole request.
        mapper: knows the resource of a described object's kind.
    """

    def __init__(
        self,
        base_url: str,
        version: str = "v1beta2",
        timeout_s: float = 30.0,
        mapper: ResourceMapper = KUBERNETES,
    ) -> None:
        self.base_url = base_url
        self.version = version
        self._http = HttpSession(timeout_s)
        self._mapper = mapper

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that are kept open between requests."""
        await self._http.close()

    async def pod_values(
        self, namespace: str, selector: str, metric: str, metric_selector: Selector | None = None
    ) -> tuple[MetricValue, ...]:
        """Return the metric of the pods that the selector text selects; a pod without one is left out.

        Raises:
            NotFoundError: the metric is not served.
            UnavailableError: no answer.
            UpstreamError: an error for an answer.
        """
        path = f"{self._custom_path(namespace)}/pods/%2A/{_segment(metric)}"
        items = await self._items(
            path, {"labelSelector": selector, **_metric_selector(metric_selector)}
        )
        return _read(read_pod_values, items)

    async def object_value(
        self,
        namespace: str,
        described: CrossVersionObjectReference,
        metric: str,
        metric_selector: Selector | None = None,
    ) -> MetricValue:
        """Return the metric of one object.

        Args:
            namespace: the HPA's. It is also the object where that is a Namespace, whatever its name says.
            described: the object.
            metric: the metric's.
            metric_selector: conditions on the labels of the series.

        Raises:
            NotFoundError: not served, or not for this object.
            UnavailableError: no answer.
            UpstreamError: an error for an answer.
        """
        resource = self._mapper.find_kind(described.kind, described.api_version).name
        of_namespace = resource == "namespaces"
        place = "metrics" if of_namespace else f"{_segment(resource)}/{_segment(described.name)}"
        path = f"{self._custom_path(namespace)}/{place}/{_segment(metric)}"
        return _read(read_object_value, await self._items(path, _metric_selector(metric_selector)))

    async def external_values(
        self, namespace: str, metric: str, selector: Selector | None = None
    ) -> tuple[ExternalValue, ...]:
        """Return every value of an external metric; an HPA adds them up.

        Raises:
            NotFoundError: the metric is not served.
            UnavailableError: no answer.
            UpstreamError: an error for an answer.
        """
        path = f"/apis/{_EXTERNAL}/v1beta1/namespaces/{_segment(namespace)}/{_segment(metric)}"
        items = await self._items(path, {"labelSelector": str(selector or "")})
        return _read(read_external_values, items)

    async def resource_usages(self, _namespace: str, _selector: str, _resource: str) -> NoReturn:
        """Raise: the live loop serves usage for `kubectl top` only, as virtual time has no usage."""
        raise NotFoundError("no metrics returned from resource metrics API")

    def _custom_path(self, namespace: str) -> str:
        return f"/apis/{_CUSTOM}/{self.version}/namespaces/{_segment(namespace)}"

    async def _items(
        self, path: str, parameters: Mapping[str, str]
    ) -> tuple[Mapping[str, object], ...]:
        return _read(items_of, await self._get(path, parameters))

    async def _get(self, path: str, parameters: Mapping[str, str]) -> Mapping[str, Any]:
        query = "&".join(f"{key}={quote_plus(text)}" for key, text in parameters.items() if text)
        address = self.base_url.rstrip("/") + path + (f"?{query}" if query else "")
        try:
            status, body = await self._http.fetch(
                "GET", URL(address, encoded=True), headers={"Accept": _ACCEPT}
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(
                f"{self.base_url} does not answer: {reason_of(error)}"
            ) from error
        return _checked(status, body)


def _checked(status: int, body: bytes) -> Mapping[str, Any]:
    """Return the JSON object of a response, or raise its error Status."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if status == 200 and isinstance(answer, dict):
        return answer
    message = answer.get("message") if isinstance(answer, dict) else None
    text = str(message or f"an error on the server ({status}) has prevented the request")
    if status == 404:
        raise NotFoundError(str(message or "the server could not find the requested resource"))
    raise UnavailableError(text) if status in {429, 503, 504} else UpstreamError(text)


def _segment(text: str) -> str:
    return quote(text, safe=":")


def _metric_selector(selector: Selector | None) -> dict[str, str]:
    return {"metricLabelSelector": str(selector)} if selector else {}


def _read(reader: Callable[[S], T], answer: S) -> T:
    try:
        return reader(answer)
    except ValueError as error:
        raise UpstreamError(str(error)) from error
