"""Each HPA with its target, its metric values, and whether the HPA controller may read these.

Source: kubernetes v1.36 pkg/controller/podautoscaler/metrics/client.go (requests); how a path becomes the
    attributes of an access review: k8s.io/apiserver pkg/endpoints/request/requestinfo.go.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpuscale.base.errors import ConfigError, GpuscaleError
from gpuscale.base.objects.hpa import (
    ExternalMetric,
    HorizontalPodAutoscaler,
    MetricSpec,
    MetricTarget,
    ObjectMetric,
    PodsMetric,
    TargetType,
)
from gpuscale.base.objects.manifests import read_stored_hpa
from gpuscale.base.objects.metric_values import (
    ExternalValue,
    MetricValue,
    items_of,
    read_external_values,
    read_object_value,
    read_pod_values,
)
from gpuscale.hpa.terms import metric_command, metric_path, scale_path
from gpuscale.kube.client import ApiStatusError, KubeClient
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.metrics_api import group_of
from gpuscale.ops.doctor.direct import at_once
from gpuscale.ops.doctor.rights import ControllerRights
from gpuscale.ops.doctor.snapshot import HpaLook, MetricLook, Snapshot
from gpuscale.server.metricsapi.why import PARAMETER
from gpuscale.server.metricsapi.wire import CUSTOM_GROUP

_NOT_FOUND = 404
_APPS = "apps"
_BATCH = 100
_SHARED = 3
"""HPAs with the same metric in a namespace from which on its pods' values are read at once."""
Shared = Mapping[tuple[str, PodsMetric], Mapping[str, MetricValue]]
"""Values by pod, of a namespace and a metric without its target."""


def _key(spec: PodsMetric) -> PodsMetric:
    return replace(spec, target=_NO_TARGET)


_NO_TARGET = MetricTarget(TargetType.AVERAGE_VALUE)


def custom_path(seen: Snapshot) -> str:
    """Return the path of the newest registered version of the custom metrics API."""
    names = {facts.name(body) for body in seen.all("apiservices")}
    newest = f"v1beta2.{CUSTOM_GROUP}" in names
    return f"/apis/{CUSTOM_GROUP}/{'v1beta2' if newest else 'v1beta1'}"


class HpaReader:
    """Reads HPAs, and makes their controller's requests for metrics.

    Args:
        client: to the API server.
        custom: path of the version of the custom metrics API to ask.
        namespace: whose HPAs are read; None for all.
        report: gets how far it is.
    """

    def __init__(
        self,
        client: KubeClient,
        custom: str,
        namespace: str | None,
        report: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._custom = custom
        self._namespace = namespace
        self._report = report
        self._rights = ControllerRights(client)

    async def read(self, seen: Snapshot) -> tuple[HpaLook, ...]:
        """Return each HPA; an invalid one is skipped."""
        found = [
            (hpa, item)
            for item in seen.looks["hpas"].items
            if (hpa := _hpa(item)) is not None and self._namespace in (None, hpa.metadata.namespace)
        ]
        shared = await self._shared(hpa for hpa, _ in found)
        looks: list[HpaLook] = []
        for start in range(0, len(found), _BATCH):
            self._report(f"following the metrics of HPA {start + 1} of {len(found)}")
            batch = found[start : start + _BATCH]
            looks += await at_once(self._look(seen, hpa, item, shared) for hpa, item in batch)
        return tuple(looks)

    async def _shared(self, hpas: Iterable[HorizontalPodAutoscaler]) -> Shared:
        """Return the values of metrics that several HPAs of a namespace share, read once for all pods."""
        asked: Counter[tuple[str, PodsMetric]] = Counter()
        for hpa in hpas:
            asked.update(
                (hpa.metadata.namespace, _key(spec))
                for spec in hpa.metrics
                if isinstance(spec, PodsMetric)
            )
        many = [key for key, count in asked.items() if count >= _SHARED]
        answers = await at_once(self._of_all(*key) for key in many)
        return {key: values for key, values in zip(many, answers, strict=True) if values}

    async def _of_all(self, namespace: str, spec: PodsMetric) -> Mapping[str, MetricValue]:
        path, params = metric_path(spec, namespace, "", self._custom)
        try:
            values = _values(spec, await self._client.get(path, params))
        except GpuscaleError:
            return {}
        return {each.object_name: each for each in values if isinstance(each, MetricValue)}

    async def _look(
        self,
        seen: Snapshot,
        hpa: HorizontalPodAutoscaler,
        item: Mapping[str, Any],
        shared: Shared,
    ) -> HpaLook:
        body = {**item, "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
        selector, fault, is_absent = await self._selector(seen, hpa)
        look = HpaLook(hpa, body, selector, fault, is_absent)
        metrics = [await self._metric(seen, spec, look, shared) for spec in hpa.metrics]
        return replace(look, metrics=tuple(metrics))

    async def _selector(
        self, seen: Snapshot, hpa: HorizontalPodAutoscaler
    ) -> tuple[str, str, bool]:
        target = hpa.target
        known = facts.named(seen, target.kind, hpa.metadata.namespace, target.name)
        # The controller goes by group and kind, whatever the version.
        if known is not None and target.api_version.rpartition("/")[0] == _APPS:
            selector = known.child("spec").selector("selector")
            return "" if selector is None else str(selector), "", False
        try:
            scale = await self._client.get(scale_path(target, hpa.metadata.namespace))
        except ApiStatusError as error:
            return "", str(error), error.code == _NOT_FOUND
        except GpuscaleError as error:
            return "", str(error), False
        return str((scale.get("status") or {}).get("selector") or ""), "", False

    async def _metric(
        self, seen: Snapshot, spec: MetricSpec, look: HpaLook, shared: Shared
    ) -> MetricLook:
        namespace = look.namespace
        command = metric_command(spec, namespace, look.selector)
        if group_of(spec) is None:
            return MetricLook(spec, command)
        allowed, denied_why = await self._rights.may_read(spec, namespace)
        if isinstance(spec, PodsMetric) and (all_pods := shared.get((namespace, _key(spec)))):
            names = map(facts.name, facts.pods_of(seen, look))
            values = tuple(all_pods[name] for name in names if name in all_pods)
            if values:
                return MetricLook(spec, command, values, "", None, allowed, denied_why)
        path, params = metric_path(spec, namespace, look.selector, self._custom)
        try:
            found = _values(spec, await self._client.get(path, params))
            fault = ""
        except GpuscaleError as error:
            found, fault = (), str(error)
        explanation = None if found else await self._why(path, params)
        return MetricLook(spec, command, found, fault, explanation, allowed, denied_why)

    async def _why(self, path: str, params: Mapping[str, str]) -> Mapping[str, Any] | None:
        """Return gpuscale's own explanation of a metric's value; None from any other server."""
        try:
            answer = await self._client.get(path, {**params, PARAMETER: "json"})
        except GpuscaleError:
            return None
        return answer if answer.get("kind") == "MetricExplanation" else None


def _hpa(item: Mapping[str, Any]) -> HorizontalPodAutoscaler | None:
    try:
        return read_stored_hpa(item, "the API server")
    except ConfigError:
        return None


def _values(
    spec: MetricSpec, answer: Mapping[str, object]
) -> tuple[MetricValue | ExternalValue, ...]:
    """Return the values in an answer as the controller reads them; none if it can't."""
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
