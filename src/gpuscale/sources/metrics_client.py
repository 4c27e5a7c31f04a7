"""What the HPA controller does with the metrics API: its requests, and how it reads the answers.

Errors carry the bare reason; the words that the controller puts before it are `hpa`'s.

Source: Kubernetes 1.34 pkg/controller/podautoscaler/metrics (client.go); k8s.io/metrics
pkg/client/custom_metrics (versioned_client.go) and external_metrics (client.go).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self, TypeVar
from urllib.parse import quote, quote_plus

import aiohttp
from yarl import URL

from gpuscale.core.errors import NotFoundError, UnavailableError, UpstreamError
from gpuscale.core.quantity import parse_quantity
from gpuscale.objects.selectors import Selector
from gpuscale.sources.http import HttpSession

_CUSTOM = "custom.metrics.k8s.io"
_EXTERNAL = "external.metrics.k8s.io"
_DEFAULT_WINDOW_SECONDS = 60
_ACCEPT = "application/vnd.kubernetes.protobuf, */*"
"""What kube-controller-manager asks with; JSON comes back."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PodReading:
    """A custom metric of one pod."""

    pod: str
    value_milli: int
    timestamp_ms: int
    window_seconds: int


@dataclass(frozen=True, slots=True)
class ObjectReading:
    """A custom metric of one object."""

    value_milli: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ExternalReading:
    """One value of an external metric."""

    labels: Mapping[str, str]
    value_milli: int
    timestamp_ms: int


class MetricsClient:
    """Reads a metrics API over HTTP. Use it in `async with`, or `close` it.

    Args:
        base_url: where `/apis` is.
        version: of the custom metrics API; an HPA controller takes the one its cluster prefers.
        timeout_s: for a whole request.
    """

    def __init__(self, base_url: str, version: str = "v1beta2", timeout_s: float = 30.0) -> None:
        self.base_url = base_url
        self.version = version
        self._http = HttpSession(timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that are kept open between requests."""
        await self._http.close()

    async def pod_values(
        self, namespace: str, selector: str, metric: str, metric_selector: Selector | None = None
    ) -> list[PodReading]:
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
        return _read(items, _pod_reading)

    async def object_value(
        self,
        namespace: str,
        group_resource: str,
        name: str,
        metric: str,
        metric_selector: Selector | None = None,
    ) -> ObjectReading:
        """Return the metric of one object.

        Args:
            namespace: the HPA's. For the resource `namespaces` it is also the object, whatever `name` says.
            group_resource: `services`, `deployments.apps`.
            name: the object's.
            metric: the metric's.
            metric_selector: conditions on the labels of the series.

        Raises:
            NotFoundError: not served, or not for this object.
            UnavailableError: no answer.
            UpstreamError: an error for an answer.
        """
        of_namespace = group_resource == "namespaces"
        place = "metrics" if of_namespace else f"{_segment(group_resource)}/{_segment(name)}"
        path = f"{self._custom_path(namespace)}/{place}/{_segment(metric)}"
        items = await self._items(path, _metric_selector(metric_selector))
        if len(items) != 1:
            reason = (
                f"the custom metrics API server returned {len(items)} results "
                "when we asked for exactly one"
            )
            raise UpstreamError(reason)
        return _read(items, _object_reading)[0]

    async def external_values(
        self, namespace: str, metric: str, selector: Selector | None = None
    ) -> list[ExternalReading]:
        """Return every value of an external metric; an HPA adds them up.

        Raises:
            NotFoundError: the metric is not served.
            UnavailableError: no answer.
            UpstreamError: an error for an answer.
        """
        path = f"/apis/{_EXTERNAL}/v1beta1/namespaces/{_segment(namespace)}/{_segment(metric)}"
        items = await self._items(path, {"labelSelector": str(selector or "")})
        return _read(items, _external_reading)

    def _custom_path(self, namespace: str) -> str:
        return f"/apis/{_CUSTOM}/{self.version}/namespaces/{_segment(namespace)}"

    async def _items(self, path: str, parameters: Mapping[str, str]) -> list[Mapping[str, Any]]:
        answer = await self._get(path, parameters)
        items = answer.get("items")
        if not isinstance(items, list):
            raise UpstreamError("the answer is no list of metrics")
        return items

    async def _get(self, path: str, parameters: Mapping[str, str]) -> Mapping[str, Any]:
        query = "&".join(f"{key}={quote_plus(text)}" for key, text in parameters.items() if text)
        address = self.base_url.rstrip("/") + path + (f"?{query}" if query else "")
        try:
            status, body = await self._http.fetch(
                "GET", URL(address, encoded=True), headers={"Accept": _ACCEPT}
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(str(error) or type(error).__name__) from error
        return _checked(status, body)


def _checked(status: int, body: bytes) -> Mapping[str, Any]:
    """Return the answer, or raise the Status that it is."""
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


def _read(items: Sequence[Mapping[str, Any]], reader: Callable[[Mapping[str, Any]], T]) -> list[T]:
    try:
        return [reader(item) for item in items]
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise UpstreamError(f"an item can't be read: {error!r}") from error


def _pod_reading(item: Mapping[str, Any]) -> PodReading:
    window = item.get("windowSeconds", item.get("window"))
    return PodReading(
        pod=str(item["describedObject"]["name"]),
        value_milli=_milli(item),
        timestamp_ms=_timestamp_ms(item),
        window_seconds=_DEFAULT_WINDOW_SECONDS if window is None else int(window),
    )


def _object_reading(item: Mapping[str, Any]) -> ObjectReading:
    return ObjectReading(_milli(item), _timestamp_ms(item))


def _external_reading(item: Mapping[str, Any]) -> ExternalReading:
    labels = dict(item.get("metricLabels") or {})
    return ExternalReading(labels, _milli(item), _timestamp_ms(item))


def _milli(item: Mapping[str, Any]) -> int:
    return parse_quantity(item["value"]).milli_value()


def _timestamp_ms(item: Mapping[str, Any]) -> int:
    return round(datetime.fromisoformat(str(item["timestamp"])).timestamp() * 1000)
