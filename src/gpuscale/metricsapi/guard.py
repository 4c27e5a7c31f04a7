"""What every request over TLS goes through before it is answered: who, whether, how many, how long.

Source: k8s.io/apiserver v0.30.0 pkg/server (config.go, DefaultBuildHandlerChain) and pkg/server/filters
(maxinflight.go, timeout.go); the limits are its defaults.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from gpuscale.core.errors import GpuscaleError
from gpuscale.kube.auth import MASTERS, User
from gpuscale.metricsapi.app import status_response
from gpuscale.metricsapi.authentication import Authenticator, Credentials, UnauthenticatedError
from gpuscale.metricsapi.authorization import (
    Authorizer,
    attributes_of,
    forbidden_message,
    named_by_fields,
)
from gpuscale.metricsapi.client_tls import ClientConnection
from gpuscale.metricsapi.groups import GROUPS
from gpuscale.metricsapi.own_metrics import ServerMetrics
from gpuscale.metricsapi.statuses import (
    NO_ROUTE,
    TIMED_OUT,
    TOO_MANY,
    UNAUTHORIZED,
    Status,
    forbidden,
    internal_error,
)

_LOG = logging.getLogger(__name__)
_TRUE = {"1", "t", "true"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Inner = Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]


class Guard:
    """Lets requests through to a handler, or answers them.

    Args:
        authenticator: finds out who asks.
        authorizer: decides whether they may.
        metrics: counts who was turned away.
        max_in_flight: requests that are answered at a time; those of system:masters don't count.
        timeout_s: for a request, in the machine's seconds.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        metrics: ServerMetrics,
        max_in_flight: int = 400,
        timeout_s: float = 60.0,
    ) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._metrics = metrics
        self._max_in_flight = max_in_flight
        self._timeout_s = timeout_s
        self._in_flight = 0

    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request, by the handler if it may get there."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._checked(request, handler)
        except TimeoutError:
            return self._refuse(request, "timeout", TIMED_OUT)

    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            user = await self._authenticator.user(_credentials(request))
        except UnauthenticatedError as error:
            _LOG.info("unable to authenticate %s: %s", request.remote, error)
            return self._refuse(request, "unauthenticated", UNAUTHORIZED)
        if MASTERS in user.groups:
            return await handler(request)
        if self._in_flight >= self._max_in_flight:
            response = self._refuse(request, "too many requests", TOO_MANY)
            response.headers["Retry-After"] = "1"
            return response
        self._in_flight += 1
        try:
            refusal = await self._refusal(request, user)
            return await handler(request) if refusal is None else refusal
        finally:
            self._in_flight -= 1

    async def _refusal(self, request: web.Request, user: User) -> web.Response | None:
        """Return the answer to somebody who may not ask this; None where they may."""
        watches = request.query.get("watch", "").lower() in _TRUE
        path = request.rel_url.raw_path
        attributes = attributes_of(request.method, path, request.path, watches=watches)
        if fields := request.query.get("fieldSelector"):
            attributes = named_by_fields(attributes, fields)
        try:
            decision = await self._authorizer.decide(user, attributes)
        except GpuscaleError as error:
            _LOG.warning("unable to authorize %s for %s: %s", user.name, request.path, error)
            status = internal_error("unable to ask the API server whether this is allowed")
            return self._refuse(request, "authorization failed", status)
        if decision.allowed:
            return None
        message = forbidden_message(user, attributes)
        if decision.reason:
            message = f"{message}: {decision.reason}"
        status = forbidden(message, attributes.name, attributes.group, attributes.resource)
        return self._refuse(request, "forbidden", status)

    def _refuse(self, request: web.Request, reason: str, status: Status) -> web.Response:
        self._metrics.rejected(reason)
        response = status_response(request, status)
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


def counted(metrics: ServerMetrics, inner: Inner) -> Middleware:
    """Return a middleware that counts and times what `inner` answers."""

    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = time.perf_counter()
        code = 500
        try:
            response = await inner(request, handler)
            code = response.status
        except web.HTTPNotFound:
            code = NO_ROUTE.code
            response = status_response(request, NO_ROUTE)
        except web.HTTPException as error:
            code = error.status
            raise
        finally:
            metrics.request(group_label(request.path), code, time.perf_counter() - started)
        return response

    return count


async def unguarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer whoever asks; for a port that only this machine reaches."""
    return await handler(request)


def group_label(path: str) -> str:
    """Return the API group of a path, or its first part where that is one of ours; `other` otherwise."""
    first, *rest = path.strip("/").split("/")
    if first == "apis" and rest:
        return rest[0] if rest[0] in GROUPS else "other"
    known = ("apis", "openapi", "version", "metrics", "healthz", "livez", "readyz")
    return first if first in known else "other"


def _credentials(request: web.Request) -> Credentials:
    connection = request.get_extra_info("ssl_object")
    certificates = connection.presented() if isinstance(connection, ClientConnection) else ()
    return Credentials(request.headers, certificates)
