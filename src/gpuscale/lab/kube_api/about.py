"""Groups, version and OpenAPI schemas of a live run's Kubernetes API."""

import asyncio
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from gpuscale import __version__
from gpuscale.lab.kube_api.discovery import ServedGroups
from gpuscale.lab.kube_api.kinds import ApiResource
from gpuscale.lab.kube_api.openapi import definitions, document, places
from gpuscale.server.metricsapi import MetricsApiRoutes
from gpuscale.server.metricsapi.wire import (
    aggregated_version,
    bodies,
    content_type,
    json_response,
    openapi_v2,
    openapi_v3_index,
    unless_known,
)

Json = dict[str, Any]


class About:
    """Answers kubectl's discovery requests, which come before those for objects.

    Args:
        kinds: of the objects.
        discovery: of their groups.
        metrics: the metrics APIs on the same address.
        release: of Kubernetes, such as 1.36.
    """

    def __init__(
        self,
        kinds: Sequence[ApiResource],
        discovery: ServedGroups,
        metrics: MetricsApiRoutes,
        release: str,
    ) -> None:
        self._kinds = kinds
        self._discovery = discovery
        self._metrics = metrics
        self._release = release
        self._documents: dict[str, Json | None] = dict.fromkeys(places(kinds))
        """By place, each once it was asked for."""

    def add_routes(self, app: web.Application) -> None:
        """Add the routes of version and schemas to `app`."""
        app.router.add_get("/version", self._version)
        app.router.add_get("/openapi/v2", self._openapi_v2)
        app.router.add_get("/openapi/v3", self._openapi_v3)
        app.router.add_get("/openapi/v3/{place:.*}", self._openapi_v3_place)

    def roots(self, request: web.Request, root: str) -> web.Response:
        """Answer a request for `/api` or `/apis`."""
        version = aggregated_version(request.headers.get("Accept", ""))
        if version is not None:
            body: Json = {**self._metrics.aggregated(version)}
            theirs = [] if root == "api" else body["items"]
            body["items"] = [*self._discovery.aggregated(is_core=root == "api"), *theirs]
            response = unless_known(request, body, content_type(version))
        elif root == "api":
            versions = {"versions": ["v1"], "serverAddressByClientCIDRs": []}
            response = json_response(request, 200, {"kind": "APIVersions", **versions})
        else:
            body = {**bodies.group_list(self._metrics.served_groups())}
            body["groups"] = [*self._discovery.groups(), *body["groups"]]
            response = json_response(request, 200, body)
        response.headers["Vary"] = "Accept"
        return response

    async def _version(self, request: web.Request) -> web.Response:
        major, _, minor = self._release.partition(".")
        text = f"v{self._release}.0+gpuscale-{__version__}"
        return json_response(request, 200, {"major": major, "minor": minor, "gitVersion": text})

    async def _openapi_v2(self, request: web.Request) -> web.Response:
        body: Json = openapi_v2(self._metrics.served_groups())
        body["definitions"] = {**definitions(self._kinds), **body["definitions"]}
        return unless_known(request, body)

    async def _openapi_v3(self, request: web.Request) -> web.Response:
        body: Json = openapi_v3_index(self._metrics.served_groups())
        return unless_known(request, {"paths": {**places(self._kinds), **body["paths"]}})

    async def _openapi_v3_place(self, request: web.Request) -> web.Response:
        place = request.match_info["place"]
        if place not in self._documents:
            return await self._metrics.openapi_v3_group(request)
        found = self._documents[place]
        if found is None:
            found = await asyncio.to_thread(document, self._kinds, place)
            self._documents[place] = found
        return unless_known(request, found)
