"""The metrics APIs on an aiohttp application. Answers are JSON always, whatever was asked for.

JSON without exception, because every known client takes it, and because an answer without a Content-Type
would be read as the client's own preferred type.

Source: custom-metrics-apiserver v1.30.0; k8s.io/apiserver v0.30.0 (responsewriters, healthz).
"""

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from aiohttp import web

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.metric_values import ExternalValue, MetricValue
from gpuscale.base.words import printable
from gpuscale.server.metricsapi.health import (
    ENDPOINTS,
    PING,
    Checks,
    HealthAnswer,
    HealthCheck,
    health,
    single,
)
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.telemetry.own_metrics import ServedValues
from gpuscale.server.metricsapi.usage.answers import UsageAnswers
from gpuscale.server.metricsapi.usage.measured import UsageProvider
from gpuscale.server.metricsapi.why.page import asks_why, why_answer, why_response
from gpuscale.server.metricsapi.wire import bodies
from gpuscale.server.metricsapi.wire.aggregated import (
    aggregated_list,
    aggregated_version,
    content_type,
)
from gpuscale.server.metricsapi.wire.openapi import openapi_v2, openapi_v3, openapi_v3_index
from gpuscale.server.metricsapi.wire.paths import (
    CUSTOM_GROUP,
    EXTERNAL_GROUP,
    RESOURCE_GROUP,
    BadPathError,
    CustomTarget,
    ExternalTarget,
    NoRouteError,
    custom_target,
    external_target,
    split_path,
    versions_of,
)
from gpuscale.server.metricsapi.wire.requests import RequestError, is_watch, selector_of
from gpuscale.server.metricsapi.wire.responses import json_response, status_response, unless_known
from gpuscale.server.metricsapi.wire.statuses import (
    NO_ROUTE,
    NotDiscoveredError,
    bad_request,
    method_not_allowed,
    status_of,
    watch_not_supported,
)

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.federation.federation import Federation
    from gpuscale.server.metricsapi.own_external import OwnExternal

Answered = Callable[[ServedValues], None]
"""Called with an answer that holds values."""
SeesReasons = Callable[[web.Request], Awaitable[bool]]
"""Returns whether a client may see why a health check failed."""


async def everybody(_: web.Request) -> bool:
    """Let every client see reasons."""
    return True


def add_routes(
    app: web.Application,
    provider: MetricsProvider,
    checks: Checks = lambda _: (),
    answered: Answered = lambda _: None,
    usage: UsageProvider | None = None,
    sees_reasons: SeesReasons = everybody,
    federation: "Federation | None" = None,
    own: "OwnExternal | None" = None,
) -> None:
    """Add the metrics APIs to `app`; the owner of the app runs `provider.run`.

    Args:
        app: not started yet.
        provider: answers.
        checks: of the health paths, beside those of the provider.
        answered: called with every answer that holds values.
        usage: answers for `metrics.k8s.io`; None does not serve it.
        sees_reasons: of failed checks.
        federation: other metrics APIs behind this one; None passes nothing on.
        own: external metrics beside those of the rules, and before them, such as those of triggers.
    """
    api = MetricsApiRoutes(provider, checks, answered, usage, sees_reasons, federation, own)
    app.router.add_route("*", "/apis", api.handle)
    app.router.add_route("*", "/apis/{path:.*}", api.handle)
    app.router.add_get("/version", api.version)
    app.router.add_get("/openapi/v2", api.openapi_v2)
    app.router.add_get("/openapi/v3", api.openapi_v3)
    app.router.add_get("/openapi/v3/{place:.*}", api.openapi_v3_group)
    api.add_health(app)


class MetricsApiRoutes:
    """The handlers of one provider, for an app that serves these APIs alone or beside others.

    The arguments are those of `add_routes`.
    """

    def __init__(
        self,
        provider: MetricsProvider,
        checks: Checks = lambda _: (),
        answered: Answered = lambda _: None,
        usage: UsageProvider | None = None,
        sees_reasons: SeesReasons = everybody,
        federation: "Federation | None" = None,
        own: "OwnExternal | None" = None,
    ) -> None:
        self.provider = provider
        self._own = own
        self._federation = federation
        self._sees_reasons = sees_reasons
        self._usage = None if usage is None else UsageAnswers(usage, answered)
        self._more_checks = checks
        self._answered = answered

    def add_health(self, app: web.Application) -> None:
        """Serve the health paths on `app`."""
        for endpoint in ENDPOINTS:
            app.router.add_get(f"/{endpoint}", self.health)
            app.router.add_get(f"/{endpoint}/{{check}}", self.one_check)

    async def handle(self, request: web.Request) -> web.Response:
        """Answer a request for `/apis` or below it."""
        if request.method not in {"GET", "HEAD"}:
            return status_response(request, method_not_allowed())
        try:
            _, *parts = split_path(request.rel_url.raw_path)
            return await self._routed(request, parts)
        except NoRouteError:
            status = NO_ROUTE
        except BadPathError as error:
            status = bad_request(str(error))
        except RequestError as failure:
            status = failure.status
        except GpuscaleError as error:
            status = status_of(error)
        return status_response(request, status)

    async def version(self, request: web.Request) -> web.Response:
        return json_response(request, 200, bodies.version_info())

    async def openapi_v2(self, request: web.Request) -> web.Response:
        return unless_known(request, openapi_v2(self.served_groups()))

    async def openapi_v3(self, request: web.Request) -> web.Response:
        return unless_known(request, openapi_v3_index(self.served_groups()))

    async def openapi_v3_group(self, request: web.Request) -> web.Response:
        """Answer with the document of one group and version."""
        match request.match_info["place"].split("/"):
            case ["apis", group, version] if self._is_served(group, version):
                return unless_known(request, openapi_v3(group, version))
        return status_response(request, NO_ROUTE)

    async def health(self, request: web.Request) -> web.Response:
        """Answer a health path. Once one discovery has worked, a failed one is reported but passes."""
        endpoint = request.path.strip("/")
        excluded = frozenset(request.query.getall("exclude", []))
        verbose = "verbose" in request.query
        checks = self._checks(endpoint)
        found = health(endpoint, checks, excluded, verbose=verbose, shows_reasons=False)
        if found.text != "ok" and await self._sees_reasons(request):
            found = health(endpoint, checks, excluded, verbose=verbose)
        return _text(found)

    async def one_check(self, request: web.Request) -> web.Response:
        _, endpoint, name = request.path.split("/", 2)
        checks = self._checks(endpoint)
        found = single(checks, name, shows_reasons=False)
        if found is not None and not found.is_well and await self._sees_reasons(request):
            found = single(checks, name)
        return status_response(request, NO_ROUTE) if found is None else _text(found)

    def _checks(self, endpoint: str) -> list[HealthCheck]:
        provider = self.provider
        failing = provider.discovery_report()
        remark = provider.undiscovered
        # A server that waits should not be restarted, as it would have to wait again.
        is_fault = endpoint == "readyz" and provider.is_awaited
        if failing:
            asked = len(provider.config.series_queries())
            listing = "".join(f"\n    {line}" for line in failing)
            remark = "; ".join(
                filter(None, (remark, f"{len(failing)} of {asked} series queries failed"))
            )
            remark += f"; their metrics are kept as they were{listing}"
        discovery = HealthCheck("discovery", remark if is_fault else None, remark)
        return [PING, discovery, *self._more_checks(endpoint)]

    async def _routed(self, request: web.Request, parts: list[str]) -> web.Response:
        match parts:
            case []:
                version = aggregated_version(request.headers.get("Accept", ""))
                if version is None:
                    listed = bodies.group_list(self.served_groups())
                    response = json_response(request, 200, listed)
                else:
                    self._check_discovered()
                    document = self.aggregated(version)
                    response = unless_known(request, document, content_type(version))
                response.headers["Vary"] = "Accept"
                return response
            case [group] if group in self.served_groups():
                return json_response(request, 200, bodies.group(group))
            case [group, version] if self._is_served(group, version):
                if group != RESOURCE_GROUP:
                    self._check_discovered()
                listed = bodies.resource_list(f"{group}/{version}", self._listed(group, version))
                response = json_response(request, 200, listed)
                # kubectl shows why the list may be incomplete.
                for text in () if self._federation is None else self._federation.warnings():
                    response.headers.add("Warning", f"299 gpuscale {json.dumps(printable(text))}")
                return response
            case [group, version, *rest] if self._is_served(group, version):
                if group == RESOURCE_GROUP and self._usage is not None:
                    body = await self._usage.answer(request, version, rest)
                    return json_response(request, 200, body)
                is_custom = group == CUSTOM_GROUP
                target = custom_target(rest) if is_custom else external_target(rest)
                return await self._metric(request, f"{group}/{version}", target)
        raise NoRouteError

    async def _metric(
        self, request: web.Request, group_version: str, target: CustomTarget | ExternalTarget
    ) -> web.Response:
        """Answer a request for one metric, from this server's rules or from the member that owns it."""
        is_external = isinstance(target, ExternalTarget)
        series = selector_of(request, "labelSelector" if is_external else "metricLabelSelector")
        own = self._own
        if own is not None and isinstance(target, ExternalTarget) and own.has(target, series):
            if asks_why(request):
                return why_answer(request, await own.why(target, series))
            if is_watch(request):
                raise RequestError(watch_not_supported("*", EXTERNAL_GROUP))
            started = time.perf_counter()
            values = await own.values(target, series)
            self._tell(EXTERNAL_GROUP, target.metric, values, started)
            body = bodies.external_list(group_version, target.metric, values)
            return json_response(request, 200, body)
        federation = self._federation
        claim = None if federation is None else federation.owner(target, series)
        if federation is not None and claim is not None:
            if asks_why(request):
                from gpuscale.server.metricsapi.federation.why import why_passed_on

                asking = federation.values(request, claim, group_version, target)
                return why_answer(request, await why_passed_on(claim, target, asking))
            if is_watch(request):
                raise RequestError(watch_not_supported("*", group_version.partition("/")[0]))
            passed = await federation.values(request, claim, group_version, target)
            return json_response(request, 200, passed.body)
        if asks_why(request):
            return await why_response(request, self.provider, target, series)
        if isinstance(target, CustomTarget):
            objects = selector_of(request, "labelSelector")
            started = time.perf_counter()
            answer = await self.provider.custom(target, objects, series)
            self._tell(CUSTOM_GROUP, target.metric, answer.values, started)
            listed = (group_version, target, answer.resource, answer.values, series)
            return json_response(request, 200, bodies.custom_list(*listed))
        if is_watch(request):
            raise RequestError(watch_not_supported("*", EXTERNAL_GROUP))
        started = time.perf_counter()
        values = await self.provider.external(target, series)
        self._tell(EXTERNAL_GROUP, target.metric, values, started)
        body = bodies.external_list(group_version, target.metric, values)
        return json_response(request, 200, body)

    def aggregated(self, version: str) -> bodies.Body:
        """Return the document of all groups with their resources."""
        served = self.served_groups()
        listed = {
            (group, each): self._listed(group, each)
            for group in served
            for each in versions_of(group)
        }
        return aggregated_list(version, listed, served)

    def _check_discovered(self) -> None:
        """Raise where a list would lack metrics that the first discovery may find."""
        if self.provider.is_awaited:
            raise NotDiscoveredError("which metrics there are")

    def _listed(self, group: str, version: str) -> list[bodies.Body]:
        """Return the resources of a group and version, federation members' included."""
        more = self._own.names if self._own is not None else ()
        ours = bodies.listed_resources(group, self.provider.catalogue, more)
        federation = self._federation
        return ours if federation is None else federation.listed(group, version, ours)

    def served_groups(self) -> list[str]:
        """Return the API groups that have any metrics or resources."""
        config = self.provider.config
        external = config.external_rules or self._own is not None
        groups = ((CUSTOM_GROUP, config.rules), (EXTERNAL_GROUP, external))
        others = () if self._federation is None else self._federation.groups
        served = [group for group, rules in groups if rules or group in others]
        is_usage_served = self._usage is not None and self._usage.is_served
        return [*served, RESOURCE_GROUP] if is_usage_served else served

    def _is_served(self, group: str, version: str) -> bool:
        return group in self.served_groups() and version in versions_of(group)

    def _tell(
        self,
        group: str,
        metric: str,
        values: Sequence[MetricValue] | Sequence[ExternalValue],
        started: float,
    ) -> None:
        if values:
            oldest_ms = min(value.measured_ms for value in values)
            seconds = time.perf_counter() - started
            self._answered(ServedValues(group, metric, oldest_ms, seconds))


def _text(answer: HealthAnswer) -> web.Response:
    return web.Response(text=answer.text, status=200 if answer.is_well else 500)
