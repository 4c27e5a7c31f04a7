"""The answers of the metrics APIs, keys in upstream's order: values as JSON text, the rest as data.

Values are put together as text because that takes a fifth of the time of building data and encoding it, and
HPAs request them all day.

Source: k8s.io/metrics pkg/apis (custom_metrics, external_metrics); k8s.io/apimachinery pkg/apis/meta/v1.
Known difference: a metric selector with `!=` is shown as NotIn with one value, which means the same;
upstream can't show it and answers 500.
"""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from json.encoder import encode_basestring as quoted

from gpuscale import __version__
from gpuscale.base.objects.metric_values import ExternalValue, MetricValue
from gpuscale.base.objects.selectors import OPERATOR_WORDS, Operator, Requirement, Selector
from gpuscale.base.quantity import milli_text
from gpuscale.base.words import rfc3339
from gpuscale.server.metricsapi.wire.paths import (
    CUSTOM_GROUP,
    RESOURCE_GROUP,
    CustomTarget,
    versions_of,
)
from gpuscale.server.rules.catalogue import Catalogue
from gpuscale.server.rules.resources import ResourceType

Body = dict[str, object]


def timestamp(time_ms: int) -> str:
    """Return a time in RFC 3339, whole seconds, UTC."""
    return _second_text(time_ms // 1000)


@lru_cache(maxsize=1024)
def _second_text(seconds: int) -> str:
    return rfc3339(seconds)


def custom_list(
    group_version: str,
    target: CustomTarget,
    resource: ResourceType,
    values: Iterable[MetricValue],
    selector: Selector,
) -> str:
    """Return a MetricValueList as JSON."""
    shown = json_text(selector_body(selector))
    metric = quoted(target.metric)
    described = f'{{"describedObject":{{"kind":{quoted(resource.kind)},'
    if target.namespace is not None:
        described += f'"namespace":{quoted(target.namespace)},'
    # In an ObjectReference, apiVersion keeps the slash before a core version, as upstream.
    named, end = f',"apiVersion":{quoted(resource.api_version)}}},', "}"
    if group_version.endswith("/v1beta2"):
        named += f'"metric":{{"name":{metric},"selector":{shown}}},'
    else:
        named += f'"metricName":{metric},'
        end = f',"selector":{shown}}}'
    items = [
        f'{described}"name":{quoted(value.object_name)}{named}{_measured(value)}{end}'
        for value in values
    ]
    return _list("MetricValueList", group_version, items)


def external_list(group_version: str, metric: str, values: Iterable[ExternalValue]) -> str:
    """Return an ExternalMetricValueList as JSON."""
    name = quoted(metric)
    items = [
        f'{{"metricName":{name},"metricLabels":{_labels(value)},{_measured(value)}}}'
        for value in values
    ]
    return _list("ExternalMetricValueList", group_version, items)


def json_text(body: object) -> str:
    """Return data as JSON, without spaces."""
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def selector_body(selector: Selector) -> Body | None:
    """Return a LabelSelector; None for an empty one."""
    if not selector:
        return None
    labels: dict[str, str] = {}
    expressions: list[Body] = []
    for requirement in selector.requirements:
        if requirement.operator is Operator.EQUALS:
            labels[requirement.key] = requirement.values[0]
        else:
            expressions.append(_expression(requirement))
    body: Body = {"matchLabels": labels} if labels else {}
    return {**body, "matchExpressions": expressions} if expressions else body


def usage_resources(version: str) -> Body:
    """Return the APIResourceList of resource metrics."""
    listed = listed_resources(RESOURCE_GROUP, Catalogue())
    return resource_list(f"{RESOURCE_GROUP}/{version}", listed)


def listed_resources(group: str, catalogue: Catalogue, triggers: Sequence[str] = ()) -> list[Body]:
    """Return the items of a group's APIResourceList; names of triggers are external metrics."""
    if group == RESOURCE_GROUP:
        return [
            _resource("nodes", "NodeMetrics", namespaced=False, verbs=("get", "list")),
            _resource("pods", "PodMetrics", namespaced=True, verbs=("get", "list")),
        ]
    if group == CUSTOM_GROUP:
        return [
            _resource(metric.name, "MetricValueList", namespaced=metric.namespaced)
            for metric in catalogue.custom_resources()
        ]
    return [
        _resource(name, "ExternalMetricValueList", namespaced=True)
        for name in dict.fromkeys((*catalogue.external_metrics(), *triggers))
    ]


def group(name: str) -> Body:
    """Return the APIGroup of a group."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def group_list(names: Sequence[str]) -> Body:
    """Return the APIGroupList."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in names]}


def version_info() -> Body:
    """Return what `kubectl version` reads."""
    major, minor, *_ = __version__.split(".")
    return {"major": major, "minor": minor, "gitVersion": f"v{__version__}"}


def _group(name: str) -> Body:
    listed = [
        {"groupVersion": f"{name}/{version}", "version": version} for version in versions_of(name)
    ]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def _resource(name: str, kind: str, *, namespaced: bool, verbs: Sequence[str] = ("get",)) -> Body:
    return {
        "name": name,
        "singularName": "",
        "namespaced": namespaced,
        "kind": kind,
        "verbs": list(verbs),
    }


def resource_list(group_version: str, resources: list[Body]) -> Body:
    """Return an APIResourceList."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }


def _list(kind: str, api_version: str, items: Iterable[str]) -> str:
    head = f'{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{}},"items":['
    return f"{head}{','.join(items)}]}}"


def _measured(value: MetricValue | ExternalValue) -> str:
    time, amount = timestamp(value.measured_ms), milli_text(value.value_milli)
    return f'"timestamp":"{time}","value":"{amount}"'


def _labels(value: ExternalValue) -> str:
    return json_text(None if value.labels is None else dict(sorted(value.labels.items())))


def _expression(requirement: Requirement) -> Body:
    body: Body = {"key": requirement.key, "operator": OPERATOR_WORDS[requirement.operator]}
    return {**body, "values": list(requirement.values)} if requirement.values else body
