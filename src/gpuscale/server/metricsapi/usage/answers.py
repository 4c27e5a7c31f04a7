"""Requests below `metrics.k8s.io`, and their answers.

Source: metrics-server v0.7.1 pkg/api (install.go, pod.go, node.go); k8s.io/apiserver v0.30.0
pkg/endpoints/handlers (get.go, response.go).
"""

import time
from collections.abc import Callable, Sequence

from aiohttp import web

from gpuscale.base.objects.selectors import Selector
from gpuscale.server.metricsapi.telemetry.own_metrics import ServedValues
from gpuscale.server.metricsapi.usage.bodies import listed, node_item, pod_item, single, usage_table
from gpuscale.server.metricsapi.usage.measured import UsageProvider
from gpuscale.server.metricsapi.wire import bodies
from gpuscale.server.metricsapi.wire.aggregated import MAX_ACCEPT, by_preference
from gpuscale.server.metricsapi.wire.field_selectors import FieldSelector, parse_field_selector
from gpuscale.server.metricsapi.wire.paths import RESOURCE_GROUP, NoRouteError
from gpuscale.server.metricsapi.wire.requests import RequestError, is_watch, selector_of
from gpuscale.server.metricsapi.wire.statuses import bad_request, watch_not_supported
from gpuscale.server.rules.resource_rules import ResourceRules

_TABLE_VERSIONS = ("v1", "v1beta1")


class UsageAnswers:
    """Answers requests for pods and nodes.

    Args:
        usage: what they use.
        answered: called with every answer that holds values.
    """

    def __init__(self, usage: UsageProvider, answered: Callable[[ServedValues], None]) -> None:
        self._usage = usage
        self._answered = answered

    @property
    def is_served(self) -> bool:
        return self._usage.rules is not None

    async def answer(self, request: web.Request, version: str, rest: Sequence[str]) -> bodies.Body:
        """Return the body for what follows the version in a path.

        Raises:
            NoRouteError: nothing is served there.
            RequestError: a selector is wrong, or a watch is asked for.
            NotFoundError: there is no such object, or no value for it.
            ListError: it is not known which objects there are.
        """
        rules = self._usage.rules
        if rules is None:
            raise NoRouteError
        match rest:
            case []:
                return bodies.usage_resources(version)
            case ["nodes", *name] if len(name) <= 1:
                return await self._nodes(request, version, rules, name)
            case ["pods"]:
                return await self._pods(request, version, rules, None, [])
            case ["namespaces", namespace, "pods", *name] if len(name) <= 1:
                return await self._pods(request, version, rules, namespace, name)
        raise NoRouteError

    async def _pods(
        self,
        request: web.Request,
        version: str,
        rules: ResourceRules,
        namespace: str | None,
        name: Sequence[str],
    ) -> bodies.Body:
        started = time.perf_counter()
        if name:
            found = [await self._usage.pod(rules, namespace or "", name[0])]
        else:
            found = await self._usage.pods(rules, namespace, *_selectors(request, "pods"))
        self._tell("pods", [each.usage.measured_ms for each in found], started)
        now_ms = self._usage.now_ms()
        items = [pod_item(each, rules.window_ms, now_ms) for each in found]
        if table_version := _table_version(request):
            parts = [each.usage.containers.values() for each in found]
            return usage_table(table_version, items, parts, rules.window_ms)
        kind = "PodMetrics"
        return single(version, kind, items[0]) if name else listed(version, kind, items)

    async def _nodes(
        self, request: web.Request, version: str, rules: ResourceRules, name: Sequence[str]
    ) -> bodies.Body:
        started = time.perf_counter()
        if name:
            found = [await self._usage.node(rules, name[0])]
        else:
            found = await self._usage.nodes(rules, *_selectors(request, "nodes"))
        self._tell("nodes", [each.usage.measured_ms for each in found], started)
        now_ms = self._usage.now_ms()
        items = [node_item(each, rules.window_ms, now_ms) for each in found]
        if table_version := _table_version(request):
            parts = [[each.usage.usage] for each in found]
            return usage_table(table_version, items, parts, rules.window_ms)
        kind = "NodeMetrics"
        return single(version, kind, items[0]) if name else listed(version, kind, items)

    def _tell(self, resource: str, measured_ms: Sequence[int], started: float) -> None:
        if measured_ms:
            seconds = time.perf_counter() - started
            self._answered(ServedValues(RESOURCE_GROUP, resource, min(measured_ms), seconds))


def _selectors(request: web.Request, resource: str) -> tuple[Selector, FieldSelector]:
    if is_watch(request):
        raise RequestError(watch_not_supported(resource, RESOURCE_GROUP))
    try:
        fields = parse_field_selector(request.query.get("fieldSelector", ""))
    except ValueError as error:
        raise RequestError(bad_request(str(error))) from None
    return selector_of(request, "labelSelector"), fields


def _table_version(request: web.Request) -> str | None:
    """Return the version of the Table that a client would rather have than the objects."""
    for name, parameters in by_preference(request.headers.get("Accept", "")[:MAX_ACCEPT]):
        if name not in ("application/json", "application/*", "*/*"):
            continue
        if "as" not in parameters:
            return None
        version = parameters.get("v")
        is_table = (parameters["as"], parameters.get("g")) == ("Table", "meta.k8s.io")
        if is_table and version in _TABLE_VERSIONS:
            return version
    return None
